//! The bytes behind each token id, from the vocabulary's spelling and the tokenizer's decoder.

use serde_json::Value;

/// How spellings stand for bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spelling {
    /// Each character stands for one byte (GPT-2's table).
    ByteLevel,
    /// `▁` is a space, `<0x41>` is a byte, all else is itself (SentencePiece with byte fallback).
    ByteFallback,
}

impl Spelling {
    /// Reads the `decoder` entry of tokenizer.json. `Err` carries the name of a decoder that is not known.
    pub fn of_decoder(decoder: &Value) -> Result<Spelling, String> {
        let name = |step: &Value| step["type"].as_str().unwrap_or("none").to_string();
        let steps: Vec<&Value> = match name(decoder).as_str() {
            "Sequence" => decoder["decoders"].as_array().into_iter().flatten().collect(),
            _ => vec![decoder],
        };
        let names: Vec<String> = steps.iter().map(|step| name(step)).collect();
        match names.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["ByteLevel"] => Ok(Spelling::ByteLevel),
            ["Replace", "ByteFallback", "Fuse"]
                if steps[0]["pattern"]["String"] == "▁" && steps[0]["content"] == " " =>
            {
                Ok(Spelling::ByteFallback)
            }
            _ => Err(names.join(" + ")),
        }
    }

    /// The bytes of one vocabulary entry (not of added tokens, which stand for themselves).
    pub fn bytes(self, spelled: &str, table: &CharBytes) -> Vec<u8> {
        match self {
            // A spelling with a character outside the table stands for itself, as in the reference.
            Spelling::ByteLevel => spelled
                .chars()
                .map(|c| table.byte(c))
                .collect::<Option<Vec<u8>>>()
                .unwrap_or_else(|| spelled.as_bytes().to_vec()),
            Spelling::ByteFallback => match fallback_byte(spelled) {
                Some(byte) => vec![byte],
                None => spelled.replace('▁', " ").into_bytes(),
            },
        }
    }
}

/// `<0x41>` → 0x41.
fn fallback_byte(spelled: &str) -> Option<u8> {
    let digits = spelled.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() != 2 { None } else { u8::from_str_radix(digits, 16).ok() }
}

/// GPT-2's table, character → byte: printable Latin-1 characters stand for themselves, the other bytes for
/// U+0100 onward in their order.
#[derive(Debug)]
pub struct CharBytes {
    bytes: Vec<Option<u8>>,
}

impl CharBytes {
    /// The table.
    pub fn new() -> Self {
        let mut bytes = vec![None; 256 + 68];
        let mut next = 256;
        for byte in 0..=255u8 {
            if matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF) {
                bytes[byte as usize] = Some(byte);
            } else {
                bytes[next] = Some(byte);
                next += 1;
            }
        }
        CharBytes { bytes }
    }

    fn byte(&self, c: char) -> Option<u8> {
        self.bytes.get(c as usize).copied().flatten()
    }
}

/// Byte strings by token id, in one allocation.
#[derive(Debug, Clone, Default)]
pub struct ByteTable {
    ends: Vec<u32>,
    bytes: Vec<u8>,
}

impl ByteTable {
    /// Adds the next id's bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.ends.push(u32::try_from(self.bytes.len()).expect("tokenizer files are capped far below 4 GiB"));
    }

    /// Bytes of `id`; empty beyond the table.
    pub fn get(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let Some(&end) = self.ends.get(id) else { return &[] };
        let start = if id == 0 { 0 } else { self.ends[id - 1] };
        &self.bytes[start as usize..end as usize]
    }

    /// Number of ids.
    pub fn len(&self) -> usize {
        self.ends.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn byte_level_spellings_cover_every_byte_once() {
        let table = CharBytes::new();
        let mut seen: Vec<u8> =
            (0..400u32).filter_map(char::from_u32).filter_map(|c| table.byte(c)).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..=255u8).collect::<Vec<_>>());
        assert_eq!(Spelling::ByteLevel.bytes("ĠaĊ", &table), b" a\n");
        assert_eq!(Spelling::ByteLevel.bytes("你", &table), "你".as_bytes());
    }

    #[test]
    fn byte_fallback_spellings() {
        let table = CharBytes::new();
        assert_eq!(Spelling::ByteFallback.bytes("▁the▁", &table), b" the ");
        assert_eq!(Spelling::ByteFallback.bytes("<0xE2>", &table), [0xE2]);
        assert_eq!(Spelling::ByteFallback.bytes("<0xEZ>", &table), b"<0xEZ>");
    }

    #[test]
    fn decoders_are_known_or_refused_by_name() {
        assert_eq!(Spelling::of_decoder(&json!({"type": "ByteLevel"})), Ok(Spelling::ByteLevel));
        let sequence = json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"}]});
        assert_eq!(Spelling::of_decoder(&sequence), Ok(Spelling::ByteFallback));
        assert_eq!(Spelling::of_decoder(&json!({"type": "WordPiece"})), Err("WordPiece".into()));
        assert_eq!(Spelling::of_decoder(&Value::Null), Err("none".into()));
        assert_eq!(
            Spelling::of_decoder(&json!({"type": "Sequence", "decoders": [
            {"type": "Fuse"}, {"type": "Strip"}]})),
            Err("Fuse + Strip".into())
        );
    }

    #[test]
    fn ids_beyond_the_table_are_empty() {
        let mut table = ByteTable::default();
        table.push(b"ab");
        table.push(b"");
        table.push(b"c");
        assert_eq!([table.get(0), table.get(1), table.get(2), table.get(3)], [&b"ab"[..], b"", b"c", b""]);
        assert_eq!(table.get(u32::MAX), b"");
        assert_eq!(table.len(), 3);
    }
}
