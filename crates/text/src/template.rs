//! Chat templates: Jinja as transformers runs it (minijinja with Python's ways), over untrusted messages.

use std::ops::Range;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use base::{Refusal, Result};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Output, State, Value, escape_formatter};
use serde_json::{Map, Value as Json, json};

use crate::chat::{Content, Message, Tool};
use crate::guard::{Guard, GuardRules};
use crate::normal::{Quirks, as_given, check_limits, check_size, normalised};
use crate::python;

/// Work one rendering may do, in minijinja's units (one instruction, or 64 bytes made): some for every
/// template, more for every message, tool and byte, and no more than seconds and a few GiB.
fn fuel(messages_and_tools: usize, bytes: usize) -> u64 {
    const BASE: u64 = 2_000_000;
    const PER_MESSAGE: u64 = 50_000;
    const PER_BYTE: u64 = 8;
    const MOST: u64 = 60_000_000;
    (BASE + PER_MESSAGE * messages_and_tools as u64 + PER_BYTE * bytes as u64).min(MOST)
}

/// Deepest recursion of macros and loops.
const RECURSION: usize = 200;
/// Longest rendered prompt, in bytes.
pub const MAX_RENDERED_BYTES: usize = 128 << 20;

/// A conversation to render.
#[derive(Debug, Clone, Default)]
pub struct Conversation {
    /// In order.
    pub messages: Vec<Message>,
    /// `None`: the field is absent, which some templates tell from an empty list.
    pub tools: Option<Vec<Tool>>,
    /// Ends the prompt where the assistant begins to speak.
    pub add_generation_prompt: bool,
    /// Passed to the template if given.
    pub enable_thinking: Option<bool>,
    /// Further variables of the template (`chat_template_kwargs`).
    pub extra: Map<String, Json>,
    /// Leaves the last message open, so that the model goes on with it.
    pub continue_final: bool,
}

/// A prompt: the text for people, and where it holds message content that must not become a control token.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rendered {
    /// The whole prompt.
    pub text: String,
    /// Sorted byte ranges of `text` that no special token may touch.
    pub guarded: Vec<Range<usize>>,
}

/// Spellings of a tokenizer's special tokens, and the variables that templates know some of them by
/// (`bos_token`, `eos_token`, …).
#[derive(Debug, Clone, Default)]
pub struct Specials {
    /// All spellings.
    pub spellings: Vec<String>,
    /// Variable and spelling.
    pub variables: Vec<(String, String)>,
}

/// Seconds since 1970 in UTC, for `strftime_now`.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// A compiled chat template.
#[derive(Clone)]
pub struct Template {
    env: Environment<'static>,
    source: String,
    rules: GuardRules,
    variables: Vec<(String, String)>,
    quirks: Quirks,
    /// Used instead when tools are sent.
    tool_use: Option<Box<Template>>,
}

/// The words of `raise_exception`, to tell a template's refusal from its failure.
#[derive(Debug)]
struct Raised(String);

impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

impl Template {
    /// Compiles `source` and finds out which forms of a tool call it takes. A template that doesn't compile
    /// is refused with its line.
    pub fn new(source: &str, specials: &Specials) -> Result<Template> {
        let system_clock = || {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
        };
        let mut env = environment(Arc::new(system_clock));
        env.add_template_owned("chat", without_generation_tags(source)).map_err(|fault| {
            Refusal::unsupported(
                "this chat template",
                describe(&fault),
                "put a working one into chat_template.jinja",
            )
        })?;
        let mut template = Template {
            env,
            source: source.to_string(),
            rules: GuardRules::new(specials.spellings.iter().map(String::as_str), source),
            variables: specials.variables.clone(),
            quirks: Quirks::default(),
            tool_use: None,
        };
        template.quirks = template.probe();
        Ok(template)
    }

    /// The same template with another clock.
    pub fn with_clock(mut self, clock: Clock) -> Template {
        self.tool_use = self.tool_use.map(|other| Box::new(other.with_clock(clock.clone())));
        set_clock(&mut self.env, clock);
        self
    }

    /// The same template with another for conversations with tools (an empty list of tools included), as
    /// models have that publish one named `tool_use`.
    pub fn with_tool_use(mut self, other: Template) -> Template {
        self.tool_use = Some(Box::new(other));
        self
    }

    /// The template's text; with `tools`, that of the one for conversations with tools.
    pub fn source(&self, tools: bool) -> &str {
        &self.chosen(tools).source
    }

    fn chosen(&self, tools: bool) -> &Template {
        match &self.tool_use {
            Some(other) if tools => other,
            _ => self,
        }
    }

    /// Renders a conversation. Text parts are joined, arguments given as a string are parsed, and null or
    /// absent content becomes "" where the template can't take it.
    pub fn render(&self, conversation: &Conversation) -> Result<Rendered> {
        check_limits(conversation)?;
        let chosen = self.chosen(conversation.tools.is_some());
        chosen.render_json(conversation, normalised(&conversation.messages, chosen.quirks)?)
    }

    /// Renders a conversation with its messages unchanged, as the reference library does.
    pub fn render_as_given(&self, conversation: &Conversation) -> Result<Rendered> {
        check_limits(conversation)?;
        let chosen = self.chosen(conversation.tools.is_some());
        chosen.render_json(conversation, as_given(&conversation.messages))
    }

    fn render_json(&self, conversation: &Conversation, messages: Vec<Json>) -> Result<Rendered> {
        let tools = serde_json::to_value(&conversation.tools).unwrap_or_default();
        let mut contents =
            json!({ "messages": messages, "tools": tools, "chat_template_kwargs": conversation.extra });
        let bytes = check_size(&contents)?;
        let guard = Arc::new(self.rules.guard(&contents)?);
        if conversation.continue_final {
            mark_end(&mut contents["messages"], guard.marker())?;
        }
        let values = self.variables(conversation, &contents, &guard);
        let mut env = self.env.clone();
        let parts = conversation.messages.len() + conversation.tools.as_ref().map_or(0, Vec::len);
        env.set_fuel(Some(fuel(parts, bytes)));
        let in_filter = guard.clone();
        env.add_filter("tojson", move |value: &Value, args: Rest<Value>, kwargs: Kwargs| {
            python::tojson(&in_filter, value, &args, &kwargs).map(Value::from)
        });
        let template = env.get_template("chat").map_err(|fault| refused(&fault))?;
        let mut out = Capped::default();
        let captured = template.render_captured_to(Value::from_pairs(values), &mut out);
        captured.map_err(|fault| refused(&fault))?;
        let mut text = String::from_utf8_lossy(&out.bytes).into_owned();
        if conversation.continue_final {
            cut_at_mark(&mut text, guard.marker())?;
        }
        let (text, guarded) = guard.restore(&text);
        Ok(Rendered { text, guarded })
    }

    fn variables(&self, asked: &Conversation, contents: &Json, guard: &Guard) -> Vec<(String, Value)> {
        let mut values: Vec<(String, Value)> = Vec::new();
        values.extend(self.variables.iter().map(|(name, text)| (name.clone(), Value::from(text.as_str()))));
        if let Some(thinking) = asked.enable_thinking {
            values.push(("enable_thinking".into(), Value::from(thinking)));
        }
        for (name, value) in &asked.extra {
            values.push((name.clone(), to_value(guard, value)));
        }
        values.push(("documents".into(), Value::from(())));
        values.push(("messages".into(), to_value(guard, &contents["messages"])));
        values.push(("tools".into(), to_value(guard, &contents["tools"])));
        values.push(("add_generation_prompt".into(), Value::from(asked.add_generation_prompt)));
        values
    }

    /// Tries a short exchange with a tool call in the forms that clients send.
    fn probe(&self) -> Quirks {
        let works = |content: Option<Content>, arguments: Json| {
            let call = json!([{"id": "call_1", "type": "function",
                "function": {"name": "f", "arguments": arguments}}]);
            let speaks = Message {
                content,
                tool_calls: serde_json::from_value(call).ok(),
                ..Message::text("assistant", "")
            };
            let answer = Message {
                tool_call_id: Some("call_1".into()),
                name: Some("f".into()),
                ..Message::text("tool", "1")
            };
            let (asks, ends) = (Message::text("user", "x"), Message::text("assistant", "y"));
            let messages = vec![asks.clone(), speaks, answer, ends, asks];
            let function = json!({"name": "f", "description": "f", "parameters":
                {"type": "object", "properties": {"a": {"type": "integer", "description": "a"}}}});
            let tool = json!([{"type": "function", "function": function}]);
            let tools = serde_json::from_value(tool).ok();
            self.render_as_given(&Conversation { messages, tools, ..Default::default() }).is_ok()
        };
        let empty = || Some(Content::Text(String::new()));
        let (object, string) = (json!({"a": 1}), json!("{\"a\": 1}"));
        let string_arguments = !works(empty(), object.clone()) && works(empty(), string.clone());
        let arguments = if string_arguments { string } else { object };
        if !works(empty(), arguments.clone()) {
            return Quirks::default();
        }
        Quirks {
            null_fails: !works(Some(Content::Null), arguments.clone()),
            absent_fails: !works(None, arguments),
            string_arguments,
        }
    }
}

impl std::fmt::Debug for Template {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Template").field("quirks", &self.quirks).finish_non_exhaustive()
    }
}

/// Jinja as transformers sets it up.
fn environment(clock: Clock) -> Environment<'static> {
    let mut env = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    env.set_syntax(syntax.expect("these delimiters are the default ones"));
    env.set_recursion_limit(RECURSION);
    env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    env.set_formatter(|out: &mut Output, state: &mut State, value: &Value| {
        if value.kind() == ValueKind::Number {
            return out.write_str(&python::number(value)).map_err(Error::from);
        }
        escape_formatter(out, state, value)
    });
    env.add_function("raise_exception", |words: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, words.clone()).with_source(Raised(words)))
    });
    // llama.cpp's templates use it; transformers has none.
    env.add_filter("from_json", |text: String| -> Result<Value, Error> {
        serde_json::from_str::<Value>(&text)
            .map_err(|fault| Error::new(ErrorKind::InvalidOperation, format!("from_json: {fault}")))
    });
    // Python can't iterate over None, numbers and booleans; it can over an undefined variable.
    env.add_test("iterable", |value: &Value| {
        use ValueKind::{Iterable, Map, Seq, String, Undefined};
        matches!(value.kind(), Iterable | Map | Seq | String | Undefined)
    });
    set_clock(&mut env, clock);
    env
}

fn set_clock(env: &mut Environment<'static>, clock: Clock) {
    env.add_function("strftime_now", move |format: String| python::strftime(&format, clock()));
}

/// Messages are strings, numbers and their containers; strings are guarded.
fn to_value(guard: &Guard, json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(flag) => Value::from(*flag),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(signed), _) => Value::from(signed),
            (None, Some(unsigned)) => Value::from(unsigned),
            (None, None) => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(guard.protect(text)),
        Json::Array(items) => Value::from(items.iter().map(|item| to_value(guard, item)).collect::<Vec<_>>()),
        Json::Object(map) => {
            Value::from_pairs(map.iter().map(|(key, item)| (guard.protect(key), to_value(guard, item))))
        }
    }
}

/// `{% generation %}` and its end, which mark an assistant's words for training, become a block that always
/// runs: their white-space control stays.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let body = at + 2;
        let Some(length) = rest[body..].find("%}") else { break };
        let inner = &rest[body..body + length];
        let word = inner.trim_start_matches(['-', '+']).trim_end_matches(['-', '+']).trim();
        out.push_str(&rest[..body]);
        out.push_str(&match word {
            "generation" => inner.replace(word, "if true"),
            "endgeneration" => inner.replace(word, "endif"),
            _ => inner.to_string(),
        });
        out.push_str("%}");
        rest = &rest[body + length + 2..];
    }
    out.push_str(rest);
    out
}

/// Appends the mark, and a space by which trimming shows, to the last message.
fn mark_end(messages: &mut Json, marker: char) -> Result<()> {
    let last = messages.as_array_mut().and_then(|all| all.last_mut());
    match last.and_then(|message| message.get_mut("content")) {
        Some(Json::String(content)) => {
            content.push(marker);
            content.push(' ');
            Ok(())
        }
        _ => {
            let limit = "a last message with text";
            Err(Refusal::value("continue_final_message", true, limit, "add an assistant message").into())
        }
    }
}

/// Cuts the prompt at the mark. If the template trimmed the message, its end is trimmed too.
fn cut_at_mark(text: &mut String, marker: char) -> Result<()> {
    let Some(at) = text.rfind(marker) else {
        let limit = "a template that prints the last message";
        return Err(Refusal::value("continue_final_message", true, limit, "don't ask for it").into());
    };
    let trimmed = !text[at + marker.len_utf8()..].starts_with(' ');
    text.truncate(at);
    if trimmed {
        text.truncate(text.trim_end().len());
    }
    Ok(())
}

/// Output of a template, capped.
#[derive(Default)]
struct Capped {
    bytes: Vec<u8>,
}

impl std::io::Write for Capped {
    fn write(&mut self, part: &[u8]) -> std::io::Result<usize> {
        if self.bytes.len() + part.len() > MAX_RENDERED_BYTES {
            return Err(std::io::Error::other(format!(
                "the prompt is longer than {MAX_RENDERED_BYTES} bytes"
            )));
        }
        self.bytes.extend_from_slice(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A template's own refusal in its own words, or what it failed at.
fn refused(fault: &Error) -> Refusal {
    let mut source = std::error::Error::source(fault);
    while let Some(cause) = source {
        if let Some(Raised(words)) = cause.downcast_ref::<Raised>() {
            let hint = "the model's own chat template refuses it";
            return Refusal::value("messages", "this conversation", words, hint);
        }
        source = cause.source();
    }
    let hint = "the model's chat template can't render it";
    Refusal::value("messages", "this conversation", describe(fault), hint)
}

/// The error and its causes in one line.
fn describe(fault: &Error) -> String {
    let mut words = fault.to_string();
    let mut source = std::error::Error::source(fault);
    while let Some(cause) = source {
        words.push_str(": ");
        words.push_str(&cause.to_string());
        source = cause.source();
    }
    words
}
