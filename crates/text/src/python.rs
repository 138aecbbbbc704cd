//! Python's ways of writing values, for templates that were made for them: `json.dumps`, `repr` of floats,
//! `strftime`.

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Error, ErrorKind, Value};

use crate::guard::Guard;

/// Deepest nesting that `tojson` writes.
const MAX_DEPTH: usize = 200;

/// How `json.dumps` was asked to write.
struct Style {
    ensure_ascii: bool,
    sort_keys: bool,
    indent: Option<String>,
    item: String,
    key: String,
}

/// The `tojson` filter as transformers defines it:
/// `tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
pub fn tojson(guard: &Guard, value: &Value, args: &Rest<Value>, kwargs: &Kwargs) -> Result<String, Error> {
    let named = |index: usize, name: &str| -> Result<Option<Value>, Error> {
        let by_name: Option<Value> = kwargs.get(name)?;
        Ok(by_name.or_else(|| args.get(index).cloned()).filter(|value| !value.is_none()))
    };
    let indent = match named(1, "indent")? {
        None => None,
        Some(text) if text.as_str().is_some() => text.as_str().map(str::to_string),
        // Python takes a negative indent as newlines only.
        Some(count) => Some(" ".repeat(i64::try_from(count)?.clamp(0, 64) as usize)),
    };
    let separators = match named(2, "separators")? {
        None => None,
        Some(pair) => Some((separator(&pair, 0)?, separator(&pair, 1)?)),
    };
    let (item, key) = separators
        .unwrap_or_else(|| (if indent.is_some() { "," } else { ", " }.to_string(), ": ".to_string()));
    let style = Style {
        ensure_ascii: named(0, "ensure_ascii")?.is_some_and(|value| value.is_true()),
        sort_keys: named(3, "sort_keys")?.is_some_and(|value| value.is_true()),
        indent,
        item,
        key,
    };
    kwargs.assert_all_used()?;
    let mut out = String::new();
    write_json(&mut out, guard, &style, value, 0)?;
    Ok(out)
}

fn separator(pair: &Value, index: usize) -> Result<String, Error> {
    let value = pair.get_item_by_index(index)?;
    match value.as_str() {
        Some(text) => Ok(text.to_string()),
        None => Err(fault("separators must be two strings")),
    }
}

fn fault(words: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, words.into())
}

fn write_json(
    out: &mut String,
    guard: &Guard,
    style: &Style,
    value: &Value,
    depth: usize,
) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(fault(format!("tojson: nested deeper than {MAX_DEPTH}")));
    }
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&number(value)),
        ValueKind::String => write_string(out, guard, style, value.as_str().unwrap_or_default()),
        ValueKind::Seq | ValueKind::Iterable => {
            let items = value.try_iter()?.map(|item| (None, item)).collect();
            write_items(out, guard, style, ('[', ']'), items, depth)?;
        }
        ValueKind::Map => {
            let mut items = Vec::new();
            for key in value.try_iter()? {
                let item = value.get_item(&key)?;
                items.push((Some(key_text(&key)?), item));
            }
            if style.sort_keys {
                items.sort_by(|a, b| a.0.cmp(&b.0));
            }
            write_items(out, guard, style, ('{', '}'), items, depth)?;
        }
        other => return Err(fault(format!("{other} is not JSON serializable"))),
    }
    Ok(())
}

fn write_items(
    out: &mut String,
    guard: &Guard,
    style: &Style,
    (open, close): (char, char),
    items: Vec<(Option<String>, Value)>,
    depth: usize,
) -> Result<(), Error> {
    let newline = |out: &mut String, depth: usize| {
        if let Some(indent) = &style.indent {
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
    };
    out.push(open);
    let empty = items.is_empty();
    for (index, (key, item)) in items.into_iter().enumerate() {
        if index > 0 {
            out.push_str(&style.item);
        }
        newline(out, depth + 1);
        if let Some(key) = key {
            write_string(out, guard, style, &key);
            out.push_str(&style.key);
        }
        write_json(out, guard, style, &item, depth + 1)?;
    }
    if !empty {
        newline(out, depth);
    }
    out.push(close);
    Ok(())
}

/// Keys that are no strings are written as Python's `json` does.
fn key_text(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_string()),
        ValueKind::None => Ok("null".into()),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.into()),
        ValueKind::Number => Ok(number(key)),
        other => Err(fault(format!("a key must be a string, not {other}"))),
    }
}

/// A placeholder stays one where its spelling needs no escape; else the escaped form is written, which is no
/// longer the spelling of a special token.
fn write_string(out: &mut String, guard: &Guard, style: &Style, text: &str) {
    out.push('"');
    for c in text.chars() {
        match guard.spelled(c) {
            None => escape(out, style, c),
            Some(spelled) => {
                let mut escaped = String::new();
                spelled.chars().for_each(|c| escape(&mut escaped, style, c));
                if escaped == spelled {
                    out.push(c);
                } else {
                    out.push_str(&guard.protect(&escaped));
                }
            }
        }
    }
    out.push('"');
}

fn escape(out: &mut String, style: &Style, c: char) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\u{8}' => out.push_str("\\b"),
        '\u{c}' => out.push_str("\\f"),
        c if (c as u32) < 0x20 || (style.ensure_ascii && !(' '..='~').contains(&c)) => {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        }
        c => out.push(c),
    }
}

/// A number as Python prints it.
pub fn number(value: &Value) -> String {
    match f64::try_from(value.clone()) {
        Ok(float) if !value.is_integer() => float_repr(float),
        _ => value.to_string(),
    }
}

/// Python's `repr` of a float: shortest digits, an exponent below 1e-4 and from 1e16 on. Infinities and NaN
/// as `json.dumps` writes them.
fn float_repr(value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.into();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let plain = format!("{value}");
    if plain.contains('.') { plain } else { plain + ".0" }
}

/// `datetime.strftime` for the directives that templates use, at `seconds` since 1970 in UTC.
pub fn strftime(format: &str, seconds: i64) -> Result<String, Error> {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    const MONTHS: [&str; 12] = [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ];
    const DAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];
    let (month_name, day_name) = (MONTHS[month as usize - 1], DAYS[days.rem_euclid(7) as usize]);
    let half = if hour % 12 == 0 { 12 } else { hour % 12 };
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut directive = chars.next();
        let padded = directive != Some('-');
        if !padded {
            directive = chars.next();
        }
        let two = |value: i64| if padded { format!("{value:02}") } else { value.to_string() };
        out.push_str(&match directive {
            Some('Y') => format!("{year:04}"),
            Some('y') => two(year.rem_euclid(100)),
            Some('m') => two(month),
            Some('d') => two(day),
            Some('e') => format!("{day:2}"),
            Some('H') => two(hour),
            Some('I') => two(half),
            Some('M') => two(minute),
            Some('S') => two(second % 60),
            Some('p') => if hour < 12 { "AM" } else { "PM" }.to_string(),
            Some('B') => month_name.to_string(),
            Some('b') => month_name[..3].to_string(),
            Some('A') => day_name.to_string(),
            Some('a') => day_name[..3].to_string(),
            Some('F') => format!("{year:04}-{month:02}-{day:02}"),
            Some('T') => format!("{hour:02}:{minute:02}:{:02}", second % 60),
            Some('j') => {
                let day_of_year = days - days_of(year, 1, 1) + 1;
                if padded { format!("{day_of_year:03}") } else { day_of_year.to_string() }
            }
            Some('Z' | 'z') => String::new(),
            Some('%') => "%".to_string(),
            other => {
                let name = other.map(String::from).unwrap_or_default();
                return Err(fault(format!("strftime_now: the directive %{name} is not known")));
            }
        });
    }
    Ok(out)
}

/// Year, month and day of a day number since 1970-01-01 (proleptic Gregorian).
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Day number since 1970-01-01 of a date.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let month_index = (month + 9) % 12;
    let day_of_year = (153 * month_index + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_as_python_prints_them() {
        for (value, want) in [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (-0.0, "-0.0"),
            (1e16, "1e+16"),
            (1e15, "1000000000000000.0"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.5e300, "1.5e+300"),
            (123456.789, "123456.789"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "Infinity"),
        ] {
            assert_eq!(float_repr(value), want);
        }
    }

    #[test]
    fn dates_as_python_prints_them() {
        // 2026-01-15 12:34:56 UTC
        let at = 1_768_480_496;
        for (format, want) in [
            ("%Y-%m-%d", "2026-01-15"),
            ("%d %b %Y", "15 Jan 2026"),
            ("%B %-d, %Y", "January 15, 2026"),
            ("%A %a %j %y %H:%M:%S %I%p %%", "Thursday Thu 015 26 12:34:56 12PM %"),
        ] {
            assert_eq!(strftime(format, at).unwrap(), want);
        }
        assert_eq!(strftime("%F %T", -1).unwrap(), "1969-12-31 23:59:59");
        assert_eq!(strftime("%F %j", 951_782_400).unwrap(), "2000-02-29 060");
        assert!(strftime("%Q", at).unwrap_err().to_string().contains("%Q"));
        assert!(strftime("%", at).is_err());
    }
}
