//! A chat in the terminal: one line per message. Each turn processes the conversation again unless the
//! engine's sequence is already the beginning of it.

use std::io::{BufRead, stdin};
use std::path::Path;

use anyhow::Result;
use base::{Refusal, WorldError};
use engine::{Engine, Seq};
use text::Tokenizer;
use text::chat::{FunctionCall, Message, Tool, ToolCall};

use super::RunArgs;
use super::answer::{Answer, Prompt, answer, generate_options};
use super::once::{Stream, thinking};
use crate::interrupt;
use crate::load::Opened;
use crate::output::{murmur, note};

struct Chat<'a> {
    args: &'a RunArgs,
    tokenizer: Tokenizer,
    engine: Engine,
    tools: Option<Vec<Tool>>,
    thinking: Option<bool>,
    messages: Vec<Message>,
    /// The sequence and the tokens that it holds.
    held: Option<(Seq, Vec<u32>)>,
}

pub fn run(args: &RunArgs, opened: &Opened, tools: Option<Vec<Tool>>) -> Result<()> {
    let recipe = args.recipe.recipe()?;
    let options = args.engine.options(&opened.model, &recipe, 0)?;
    let generate = generate_options(args, 1);
    generate.sampling.check(opened.model.vocab)?;
    let tokenizer = opened.tokenizer()?;
    let working = interrupt::working();
    let mut engine = opened.engine(recipe, options, working.flag())?;
    drop(working);
    engine.set_digest(args.digest);
    let system = args.system.as_ref().map(|s| Message::text("system", s));
    let mut chat = Chat {
        args,
        tokenizer,
        engine,
        tools,
        thinking: thinking(args, opened),
        messages: system.into_iter().collect(),
        held: None,
    };
    note(&format!("{}: a line is a message, Ctrl-D ends the chat, Ctrl-C an answer", opened.name()));
    let mut line = String::new();
    loop {
        murmur("> ");
        line.clear();
        let read = stdin().lock().read_line(&mut line);
        if read.map_err(|e| WorldError::io("read", Path::new("stdin"), e))? == 0 {
            note("");
            return Ok(());
        }
        if !line.trim().is_empty() {
            chat.turn(line.trim())?;
        }
    }
}

impl Chat<'_> {
    /// One message and its answer. What the person can mend, or cancelled, is said, and the chat goes on
    /// without the message.
    fn turn(&mut self, text: &str) -> Result<()> {
        let before = self.messages.len();
        self.messages.push(Message::text("user", text));
        let mut stream = Stream::default();
        let made = self.answer(&mut stream);
        stream.finish()?;
        match made {
            Ok(made) => {
                if self.args.stats {
                    murmur(&made.stats_text(&self.engine));
                }
                self.messages.push(as_message(made));
                Ok(())
            }
            Err(error) => {
                if let Some((seq, _)) = self.held.take() {
                    self.engine.end(seq);
                }
                self.messages.truncate(before);
                match error.downcast_ref::<base::Error>() {
                    Some(base::Error::Refused(refusal)) => note(&refusal.to_string()),
                    _ if error.is::<Refusal>() => note(&error.to_string()),
                    _ => return Err(error),
                }
                Ok(())
            }
        }
    }

    fn answer(&mut self, stream: &mut Stream) -> Result<Answer> {
        let working = interrupt::working();
        let (tools, stops) = (self.tools.as_deref(), &self.args.stop);
        let mut prompt = if self.args.plain {
            let text = self.messages.last().and_then(|m| match &m.content {
                Some(text::chat::Content::Text(text)) => Some(text.clone()),
                _ => None,
            });
            Prompt::plain(&self.tokenizer, &text.unwrap_or_default(), stops)?
        } else {
            Prompt::chat(&self.tokenizer, &self.messages, tools, self.thinking, stops)?
        };
        let max_tokens = prompt.room(self.args.max_tokens, self.engine.options().context)?;
        let (seq, mut tokens) = self.sequence(&prompt.ids)?;
        prompt.ids.drain(..tokens.len());
        tokens.extend(&prompt.ids);
        let options = generate_options(self.args, max_tokens);
        let (engine, tokenizer, flag) = (&mut self.engine, &self.tokenizer, working.flag());
        self.held = Some((seq, Vec::new()));
        let made = answer(engine, seq, tokenizer, prompt, &options, flag, &mut |event| stream.hear(event))?;
        // The last token was chosen but not fed.
        tokens.extend(&made.token_ids[..made.token_ids.len().saturating_sub(1)]);
        self.held = Some((seq, tokens));
        if self.args.digest {
            note(&format!("digest {}", self.engine.digest(seq)));
        }
        Ok(made)
    }

    /// A sequence that holds a true beginning of `prompt`, and that beginning: what is held if it fits, else
    /// nothing.
    fn sequence(&mut self, prompt: &[u32]) -> Result<(Seq, Vec<u32>)> {
        if let Some((seq, tokens)) = self.held.take() {
            if !tokens.is_empty() && tokens.len() < prompt.len() && prompt.starts_with(&tokens) {
                return Ok((seq, tokens));
            }
            self.engine.end(seq);
        }
        Ok((self.engine.begin()?, Vec::new()))
    }
}

/// An answer as part of the conversation.
fn as_message(answer: Answer) -> Message {
    let call = |call: text::tools::ToolCall| ToolCall {
        kind: Some("function".into()),
        function: FunctionCall {
            name: call.name,
            arguments: serde_json::Value::String(call.arguments),
            ..FunctionCall::default()
        },
        ..ToolCall::default()
    };
    let calls: Vec<ToolCall> = answer.calls.into_iter().map(call).collect();
    Message {
        reasoning_content: Some(answer.reasoning).filter(|r| !r.is_empty()),
        tool_calls: Some(calls).filter(|c| !c.is_empty()),
        ..Message::text("assistant", answer.text)
    }
}
