//! Aligned columns of text, for people.

/// Rows as columns two spaces apart, a line each; columns are right-aligned where `right` says so.
pub fn table(rows: &[Vec<String>], right: &[bool]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| rows.iter().filter_map(|r| r.get(c)).map(|t| t.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().enumerate().map(|(c, cell)| {
            let pad = " ".repeat(widths[c] - cell.chars().count());
            if right.get(c).copied().unwrap_or(false) { pad + cell } else { format!("{cell}{pad}") }
        });
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [["a", "1"], ["long", "20"]].map(|r| r.map(String::from).to_vec());
        assert_eq!(table(&rows, &[false, true]), "a      1\nlong  20\n");
        assert_eq!(table(&[], &[]), "");
    }
}
