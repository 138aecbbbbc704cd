//! A model folder's tokenizer: the reference library for text, and our own rule for control tokens.

use std::panic::AssertUnwindSafe;
use std::path::Path;

use base::{FileFault, Refusal, Result, WorldError};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokenizers::AddedToken;

use crate::added::{Added, AddedTokens, Piece};
use crate::chat::Message;
use crate::files::{MAX_CONFIG_BYTES, MAX_TEMPLATE_BYTES, MAX_TOKENIZER_BYTES, read_capped, read_object};
use crate::template::{Conversation, Rendered, Specials, Template};
use crate::token_bytes::{ByteTable, CharBytes, Spelling};

/// Largest token id that is believed (the largest known vocabulary has 262,144 entries).
const MAX_TOKEN_ID: u32 = 4 << 20;

/// Longest run of white space that is encoded. Splitting patterns with a look-ahead behind `\s+` overflow the
/// stack of the pattern library near a million, and the rest of the text is then left unsplit silently.
pub const MAX_SPACE_RUN: usize = 100_000;

/// Named tokens of tokenizer_config.json that templates may use as variables.
const NAMED: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// Tokenizer, special tokens and chat template of one model.
#[derive(Debug)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    bytes: ByteTable,
    special: Vec<bool>,
    added: AddedTokens,
    specials: Specials,
    template: Option<Template>,
    eos: Vec<u32>,
}

/// The parts of tokenizer.json that decide whether it is understood.
#[derive(Deserialize)]
struct Shape {
    #[serde(default)]
    decoder: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    added_tokens: Vec<AddedShape>,
    model: ModelShape,
}

#[derive(Deserialize)]
struct AddedShape {
    id: u32,
    content: String,
}

#[derive(Deserialize)]
struct ModelShape {
    #[serde(default)]
    dropout: Option<f64>,
}

impl Tokenizer {
    /// Reads tokenizer.json, tokenizer_config.json, generation_config.json and chat_template.jinja (which
    /// wins over the config's template); all but the first may be absent. Files that can't be trusted are
    /// [`WorldError`]s with their path, forms that this engine doesn't know are refused by name.
    pub fn open(folder: &Path) -> Result<Tokenizer> {
        let path = folder.join("tokenizer.json");
        let Some(text) = read_capped(&path, MAX_TOKENIZER_BYTES)? else {
            let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
            return Err(WorldError::io("open", &path, missing).into());
        };
        let config_path = folder.join("tokenizer_config.json");
        let config = read_object(&config_path, MAX_CONFIG_BYTES)?.unwrap_or_default();
        let shape: Shape = serde_json::from_str(&text)
            .map_err(|fault| WorldError::damaged(&path, FileFault::BadText, "a tokenizer", fault))?;
        let spelling = understood(&shape)?;
        let mut inner = parse(&path, &text)?;
        for token in &shape.added_tokens {
            check_id(&inner, &path, &token.content, token.id)?;
        }
        add_from_config(&mut inner, &config_path, &config)?;
        inner.set_encode_special_tokens(true);
        let mut tokenizer = assemble(inner, &path, spelling)?;
        tokenizer.specials.variables = named_tokens(&config);
        if let Some((source, tool_use)) = template_source(folder, &config)? {
            let template = Template::new(&source, &tokenizer.specials)?;
            tokenizer.template = Some(match tool_use {
                Some(source) => template.with_tool_use(Template::new(&source, &tokenizer.specials)?),
                None => template,
            });
        }
        let generation = read_object(&folder.join("generation_config.json"), MAX_CONFIG_BYTES)?;
        tokenizer.eos = tokenizer.find_eos(&generation.unwrap_or_default());
        Ok(tokenizer)
    }

    /// Ids of plain text: spellings of special tokens are text like any other, ordinary added tokens
    /// (`<think>`) become their ids. Nothing is put before or after.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let mut run = 0;
        let longest = text.chars().map(|c| {
            run = if c.is_whitespace() { run + 1 } else { 0 };
            run
        });
        if let Some(run) = longest.max().filter(|&run| run > MAX_SPACE_RUN) {
            let (value, limit) =
                (format!("a run of {run} white-space characters"), format!("at most {MAX_SPACE_RUN}"));
            return Err(Refusal::value("text", value, limit, "shorten it").into());
        }
        let encoding = self.inner.encode_fast(text, false);
        let encoding = encoding.map_err(|fault| {
            Refusal::value("text", "this text", fault.to_string(), "the model's tokenizer can't encode it")
        })?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Ids of a prompt: the template's own special tokens become their ids, those spelled in message
    /// content stay text.
    pub fn encode_prompt(&self, prompt: &Rendered) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        for piece in self.added.split(&prompt.text, &prompt.guarded) {
            match piece {
                Piece::Special(id) => ids.push(id),
                Piece::Text(range) => ids.extend(self.encode(&prompt.text[range])?),
            }
        }
        Ok(ids)
    }

    /// The bytes a token stands for. Ids beyond the vocabulary have none.
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        self.bytes.get(id)
    }

    /// Whether a token is a control token.
    pub fn is_special(&self, id: u32) -> bool {
        self.special.get(id as usize).copied().unwrap_or(false)
    }

    /// One more than the largest id. A model's embedding may have more rows.
    pub fn vocab_size(&self) -> usize {
        self.bytes.len()
    }

    /// Ids that end a turn, sorted: the config's `eos_token`, generation_config's `eos_token_id`, and the
    /// special token that the chat template puts behind an assistant's words.
    pub fn eos_ids(&self) -> Vec<u32> {
        self.eos.clone()
    }

    /// The id of a token by its spelling in the vocabulary.
    pub fn id_of(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// Spellings of the special tokens, and their names in templates.
    pub fn specials(&self) -> &Specials {
        &self.specials
    }

    /// The model's chat template; refused if it has none.
    pub fn template(&self) -> Result<&Template> {
        self.template.as_ref().ok_or_else(|| {
            let why = "the model folder has no chat template";
            Refusal::unsupported("chat", why, "add a chat_template.jinja to it").into()
        })
    }

    fn find_eos(&self, generation: &Map<String, Value>) -> Vec<u32> {
        let named = self.specials.variables.iter().find(|(name, _)| name == "eos_token");
        let mut ids: Vec<u32> = named.and_then(|(_, text)| self.id_of(text)).into_iter().collect();
        let declared = match generation.get("eos_token_id") {
            Some(Value::Array(all)) => all.as_slice(),
            Some(one) => std::slice::from_ref(one),
            None => &[],
        };
        let known = |id: &u32| (*id as usize) < self.vocab_size();
        let as_id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
        ids.extend(declared.iter().filter_map(as_id).filter(known));
        ids.extend(self.template.as_ref().and_then(|template| self.turn_end(template)));
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// The special token behind an assistant's words, read off a rendered exchange.
    fn turn_end(&self, template: &Template) -> Option<u32> {
        const WORDS: &str = "krasis-turn-end-probe";
        let user = Message::text("user", "x");
        let messages = vec![user.clone(), Message::text("assistant", WORDS), user];
        let prompt = template.render(&Conversation { messages, ..Default::default() }).ok()?;
        let mut pieces = self.added.split(&prompt.text, &prompt.guarded).into_iter();
        pieces.find(
            |piece| matches!(piece, Piece::Text(range) if prompt.text[range.clone()].contains(WORDS)),
        )?;
        match pieces.next()? {
            Piece::Special(id) => Some(id),
            Piece::Text(_) => None,
        }
    }
}

/// Refuses by name what this engine would read wrongly.
fn understood(shape: &Shape) -> Result<Spelling> {
    let hint = "use a model whose tokenizer.json is of the byte-level or byte-fallback kind";
    if shape.model.dropout.is_some_and(|dropout| dropout != 0.0) {
        return Err(Refusal::unsupported("BPE dropout", "it encodes at random", hint).into());
    }
    if says_prepend_first(&shape.pre_tokenizer) {
        let why = "it treats the first piece of a prompt unlike the others";
        return Err(Refusal::unsupported("Metaspace with prepend_scheme first", why, hint).into());
    }
    let named = |decoder| format!("the tokenizer's decoder {decoder}");
    let why = "its bytes per token are not known";
    Spelling::of_decoder(&shape.decoder)
        .map_err(|decoder| Refusal::unsupported(named(decoder), why, hint).into())
}

fn says_prepend_first(step: &Value) -> bool {
    let nested = step["pretokenizers"].as_array();
    step["prepend_scheme"] == "first" || nested.into_iter().flatten().any(says_prepend_first)
}

fn parse(path: &Path, text: &str) -> Result<tokenizers::Tokenizer> {
    // The library unwraps in places; a file must not bring the program down.
    let parsed = std::panic::catch_unwind(AssertUnwindSafe(|| tokenizers::Tokenizer::from_bytes(text)));
    let damaged = |found: String| WorldError::damaged(path, FileFault::BadText, "a tokenizer", found);
    let mut inner = match parsed {
        Ok(Ok(inner)) => inner,
        Ok(Err(fault)) => return Err(damaged(fault.to_string()).into()),
        Err(_) => return Err(damaged("one that the tokenizer library panics on".into()).into()),
    };
    // Both are for training: they would cut or lengthen prompts silently.
    inner.with_truncation(None).map_err(|fault| damaged(fault.to_string()))?;
    inner.with_padding(None);
    Ok(inner)
}

/// The config's own list of added tokens wins over tokenizer.json's, as in transformers.
fn add_from_config(
    inner: &mut tokenizers::Tokenizer,
    path: &Path,
    config: &Map<String, Value>,
) -> Result<()> {
    let Some(listed) = config.get("added_tokens_decoder").and_then(Value::as_object) else { return Ok(()) };
    let damaged =
        |expected: &str, found: String| WorldError::damaged(path, FileFault::BadText, expected, found);
    let mut tokens = Vec::new();
    for (id, token) in listed {
        let number: u32 = id.parse().map_err(|_| damaged("a token id", id.clone()))?;
        let token: AddedToken = serde_json::from_value(token.clone())
            .map_err(|fault| damaged("an added token", format!("{id}: {fault}")))?;
        tokens.push((number, token));
    }
    tokens.sort_by_key(|&(id, _)| id);
    inner
        .add_tokens(tokens.iter().map(|(_, token)| token.clone()))
        .map_err(|fault| damaged("added tokens", fault.to_string()))?;
    for (id, token) in &tokens {
        check_id(inner, path, &token.content, *id)?;
    }
    Ok(())
}

/// The library renumbers an added token whose id doesn't fit; the model would read another token.
fn check_id(inner: &tokenizers::Tokenizer, path: &Path, content: &str, id: u32) -> Result<()> {
    let found = inner.token_to_id(content);
    if content.is_empty() || found == Some(id) {
        return Ok(());
    }
    let expected = format!("id {id} for the added token {content:?}");
    let found = found.map_or("none".to_string(), |found| found.to_string());
    Err(WorldError::damaged(path, FileFault::BadText, expected, found).into())
}

fn assemble(inner: tokenizers::Tokenizer, path: &Path, spelling: Spelling) -> Result<Tokenizer> {
    let vocabulary = inner.get_vocab(true);
    let largest = vocabulary.values().copied().max().unwrap_or(0);
    if largest > MAX_TOKEN_ID {
        let (limit, found) = (format!("token ids up to {MAX_TOKEN_ID}"), largest);
        return Err(WorldError::damaged(path, FileFault::BadText, limit, found).into());
    }
    let mut spelled: Vec<Option<&str>> = vec![None; largest as usize + 1];
    for (text, &id) in &vocabulary {
        spelled[id as usize] = Some(text);
    }
    let reference = inner.get_added_vocabulary();
    let mut added: Vec<Added> = Vec::new();
    for (&id, token) in reference.get_added_tokens_decoder() {
        added.push(Added {
            id,
            content: token.content.clone(),
            special: token.special || reference.is_special_token(&token.content),
            lstrip: token.lstrip,
            rstrip: token.rstrip,
            single_word: token.single_word,
        });
    }
    added.sort_by_key(|token| token.id);
    let mut special = vec![false; spelled.len()];
    let mut own_bytes: Vec<bool> = vec![false; spelled.len()];
    for token in &added {
        special[token.id as usize] = token.special;
        own_bytes[token.id as usize] = true;
    }
    let (table, mut bytes) = (CharBytes::new(), ByteTable::default());
    for (id, text) in spelled.iter().enumerate() {
        match text {
            None => bytes.push(&[]),
            Some(text) if own_bytes[id] => bytes.push(text.as_bytes()),
            Some(text) => bytes.push(&spelling.bytes(text, &table)),
        }
    }
    let spellings = added.iter().filter(|token| token.special).map(|token| token.content.clone()).collect();
    Ok(Tokenizer {
        bytes,
        special,
        added: AddedTokens::new(added),
        specials: Specials { spellings, variables: Vec::new() },
        template: None,
        eos: Vec::new(),
        inner,
    })
}

/// `eos_token` and its like: a string, or an object with `content`.
fn named_tokens(config: &Map<String, Value>) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().or(value["content"].as_str()).map(str::to_string);
    let named = NAMED.iter().filter_map(|&name| Some((name.to_string(), text(config.get(name)?)?)));
    named.collect()
}

/// chat_template.jinja, else the config's template; of several, the one named `default`, and the one named
/// `tool_use` if there is one.
fn template_source(folder: &Path, config: &Map<String, Value>) -> Result<Option<(String, Option<String>)>> {
    let path = folder.join("chat_template.jinja");
    if let Some(source) = read_capped(&path, MAX_TEMPLATE_BYTES)? {
        return Ok(Some((source, None)));
    }
    match config.get("chat_template") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(source)) => Ok(Some((source.clone(), None))),
        Some(Value::Array(all)) => {
            let named = |name: &str| {
                let entry = all.iter().find(|entry| entry["name"] == name)?;
                entry["template"].as_str().map(str::to_string)
            };
            match named("default") {
                Some(source) => Ok(Some((source, named("tool_use")))),
                None => {
                    let why = "none of its templates is named default";
                    let hint = "put the right one into chat_template.jinja";
                    Err(Refusal::unsupported("tokenizer_config.json's chat_template", why, hint).into())
                }
            }
        }
        Some(other) => {
            let path = folder.join("tokenizer_config.json");
            let found = format!("{other:.40}");
            Err(WorldError::damaged(&path, FileFault::BadText, "chat_template as text", found).into())
        }
    }
}
