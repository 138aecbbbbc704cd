//! From a client's conversation to the JSON a template sees.

use base::{Refusal, Result};
use serde_json::{Map, Value as Json};

use crate::chat::{Content, MAX_CHAT_BYTES, MAX_CHAT_DEPTH, MAX_MESSAGES, MAX_TOOLS, Message};
use crate::template::Conversation;

/// What a template can't take as clients send it, found by trying it once (see `Template::new`). Where a
/// template takes a form, it gets that form unchanged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quirks {
    /// `content: null` fails: it gets "".
    pub null_fails: bool,
    /// An absent `content` fails: it gets "".
    pub absent_fails: bool,
    /// Arguments must be a JSON string.
    pub string_arguments: bool,
}

/// Refuses conversations beyond the limits of [`crate::chat`].
pub fn check_limits(conversation: &Conversation) -> Result<()> {
    let count = conversation.messages.len();
    if count > MAX_MESSAGES {
        let limit = format!("at most {MAX_MESSAGES} messages");
        return Err(Refusal::value("messages", count, limit, "send fewer").into());
    }
    let tools = conversation.tools.as_ref().map_or(0, Vec::len);
    if tools > MAX_TOOLS {
        let limit = format!("at most {MAX_TOOLS} tools");
        return Err(Refusal::value("tools", tools, limit, "send fewer").into());
    }
    for name in ["messages", "tools", "add_generation_prompt"] {
        if conversation.extra.contains_key(name) {
            let hint = "send it as the request's own field";
            return Err(Refusal::value("chat_template_kwargs", name, "not a name of its own", hint).into());
        }
    }
    Ok(())
}

/// The messages with nothing changed but `None` fields left out.
pub fn as_given(messages: &[Message]) -> Vec<Json> {
    messages.iter().map(|message| serde_json::to_value(message).unwrap_or_default()).collect()
}

/// The messages in the form that this template takes: parts joined, arguments parsed.
pub fn normalised(messages: &[Message], quirks: Quirks) -> Result<Vec<Json>> {
    messages.iter().enumerate().map(|(index, message)| one_message(index, message, quirks)).collect()
}

fn one_message(index: usize, message: &Message, quirks: Quirks) -> Result<Json> {
    let mut json = serde_json::to_value(message).unwrap_or_default();
    let Some(map) = json.as_object_mut() else { return Ok(json) };
    match &message.content {
        Some(Content::Text(_)) => {}
        Some(Content::Parts(parts)) => {
            map.insert("content".into(), Json::String(joined(index, parts)?));
        }
        Some(Content::Null) if quirks.null_fails => {
            map.insert("content".into(), Json::String(String::new()));
        }
        None if quirks.absent_fails => {
            map.insert("content".into(), Json::String(String::new()));
        }
        Some(Content::Null) | None => {}
    }
    let calls = map.get_mut("tool_calls").and_then(Json::as_array_mut);
    for (call, json) in calls.into_iter().flatten().enumerate() {
        if let Some(function) = json.get_mut("function").and_then(Json::as_object_mut) {
            let given = function.remove("arguments").unwrap_or_default();
            function.insert("arguments".into(), arguments(index, call, given, quirks)?);
        }
    }
    Ok(json)
}

/// Text parts joined. Clients name them `text`, the Responses API `input_text` and `output_text`.
fn joined(index: usize, parts: &[Json]) -> Result<String> {
    let mut text = String::new();
    for (number, part) in parts.iter().enumerate() {
        let field = format!("messages[{index}].content[{number}]");
        let kind = part.get("type").and_then(Json::as_str).unwrap_or("text");
        match (kind, part.get("text").and_then(Json::as_str).or(part.as_str())) {
            ("text" | "input_text" | "output_text", Some(words)) => text.push_str(words),
            ("text" | "input_text" | "output_text", None) => {
                let limit = "a part of type text has a string in its field text";
                return Err(Refusal::value(field, "a part without text", limit, "add it").into());
            }
            _ => {
                let hint = "this engine reads text only";
                return Err(Refusal::value(field, short(kind), "type text", hint).into());
            }
        }
    }
    Ok(text)
}

/// Arguments as an object, or as the string that holds it. An empty string and null are no arguments.
fn arguments(index: usize, call: usize, given: Json, quirks: Quirks) -> Result<Json> {
    let bad = |value: String, why: String| {
        let field = format!("messages[{index}].tool_calls[{call}].function.arguments");
        Refusal::value(field, short(&value), why, "send a JSON object")
    };
    let parsed = match &given {
        Json::Null => Json::Object(Map::new()),
        Json::String(text) if text.trim().is_empty() => Json::Object(Map::new()),
        Json::String(text) => {
            serde_json::from_str(text).map_err(|fault| bad(text.clone(), format!("valid JSON: {fault}")))?
        }
        other => other.clone(),
    };
    if !parsed.is_object() {
        return Err(bad(given.to_string(), "a JSON object".into()).into());
    }
    if !quirks.string_arguments {
        return Ok(parsed);
    }
    Ok(match given {
        Json::String(text) if !text.trim().is_empty() => Json::String(text),
        _ => Json::String(parsed.to_string()),
    })
}

/// At most 80 characters, for messages.
fn short(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_string(),
    }
}

/// Refuses contents (an object of fields) that are too large in all or nested too deeply; gives their bytes.
pub fn check_size(contents: &Json) -> Result<usize> {
    let mut bytes = 0;
    for (field, value) in contents.as_object().into_iter().flatten() {
        measure(field, value, 0, &mut bytes)?;
    }
    Ok(bytes)
}

fn measure(field: &str, value: &Json, depth: usize, bytes: &mut usize) -> Result<()> {
    if depth > MAX_CHAT_DEPTH {
        let limit = format!("at most {MAX_CHAT_DEPTH} levels");
        return Err(Refusal::value(field, "a deeply nested value", limit, "flatten it").into());
    }
    *bytes += match value {
        Json::String(text) => text.len(),
        _ => 8,
    };
    if *bytes > MAX_CHAT_BYTES {
        let limit = format!("at most {MAX_CHAT_BYTES} bytes in all");
        return Err(Refusal::value(field, "this much text", limit, "send less").into());
    }
    match value {
        Json::Array(items) => items.iter().try_for_each(|item| measure(field, item, depth + 1, bytes)),
        Json::Object(map) => map.iter().try_for_each(|(key, item)| {
            *bytes += key.len();
            measure(field, item, depth + 1, bytes)
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn normal(message: Json, quirks: Quirks) -> Result<Json> {
        let messages: Vec<Message> = vec![serde_json::from_value(message).unwrap()];
        normalised(&messages, quirks).map(|mut all| all.remove(0))
    }

    fn call(arguments: Json) -> Json {
        json!({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]})
    }

    #[test]
    fn string_arguments_are_parsed_and_bad_ones_name_their_message() {
        let got = normal(call(json!("{\"a\": 3}")), Quirks::default()).unwrap();
        assert_eq!(got["tool_calls"][0]["function"]["arguments"], json!({"a": 3}));
        for (given, want) in
            [(json!(""), json!({})), (json!(null), json!({})), (json!({"b": 1}), json!({"b": 1}))]
        {
            let got = normal(call(given), Quirks::default()).unwrap();
            assert_eq!(got["tool_calls"][0]["function"]["arguments"], want);
        }
        for bad in [json!("{\"a\": "), json!("[1]"), json!(3), json!("x")] {
            let fault = normal(call(bad), Quirks::default()).unwrap_err().to_string();
            assert!(fault.starts_with("messages[0].tool_calls[0].function.arguments: "), "{fault}");
        }
    }

    #[test]
    fn templates_that_want_strings_get_the_string_as_it_was_sent() {
        let quirks = Quirks { string_arguments: true, ..Default::default() };
        let got = normal(call(json!("{\"a\":  3}")), quirks).unwrap();
        assert_eq!(got["tool_calls"][0]["function"]["arguments"], json!("{\"a\":  3}"));
        let got = normal(call(json!({"a": 3})), quirks).unwrap();
        assert_eq!(got["tool_calls"][0]["function"]["arguments"], json!("{\"a\":3}"));
    }

    #[test]
    fn text_parts_are_joined_and_others_refused() {
        let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        let parts = json!({"role": "user", "content": parts});
        assert_eq!(normal(parts, Quirks::default()).unwrap()["content"], "ab");
        let image =
            json!({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]});
        let fault = normal(image, Quirks::default()).unwrap_err().to_string();
        assert!(fault.starts_with("messages[0].content[1]: image_url"), "{fault}");
    }

    #[test]
    fn null_and_absent_content_follow_the_template() {
        let quirks = Quirks { null_fails: true, absent_fails: true, ..Default::default() };
        assert_eq!(normal(json!({"role": "assistant"}), quirks).unwrap()["content"], "");
        assert_eq!(normal(json!({"role": "assistant", "content": null}), quirks).unwrap()["content"], "");
        let kept = normal(json!({"role": "assistant", "content": null}), Quirks::default()).unwrap();
        assert_eq!(kept, json!({"role": "assistant", "content": null}));
    }

    #[test]
    fn size_and_depth_are_limited() {
        let mut deep = json!(1);
        for _ in 0..=MAX_CHAT_DEPTH {
            deep = json!([deep]);
        }
        assert!(check_size(&json!({"tools": deep})).unwrap_err().to_string().contains("tools"));
        let large = json!(["x".repeat(MAX_CHAT_BYTES + 1)]);
        assert!(check_size(&json!({"messages": large})).is_err());
        assert_eq!(check_size(&json!({"messages": {"a": [1, "bc"]}})).unwrap(), 8 + 1 + 8 + 8 + 2);
    }
}
