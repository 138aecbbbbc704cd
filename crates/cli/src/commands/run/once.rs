//! One prompt, one answer.

use anyhow::Result;
use text::chat::{Message, Tool};
use text::tools::Event;

use super::RunArgs;
use super::answer::{Prompt, answer, generate_options, shown};
use crate::interrupt;
use crate::load::Opened;
use crate::output::{murmur, note, put, put_json};

pub fn run(args: &RunArgs, opened: &Opened, tools: Option<Vec<Tool>>, text: String) -> Result<()> {
    let tokenizer = opened.tokenizer()?;
    let prompt = if args.plain {
        Prompt::plain(&tokenizer, &text, &args.stop)?
    } else {
        let messages = conversation(args, text);
        Prompt::chat(&tokenizer, &messages, tools.as_deref(), thinking(args, opened), &args.stop)?
    };
    let recipe = args.recipe.recipe()?;
    let options = args.engine.options(&opened.model, &recipe, 0)?;
    let max_tokens = prompt.room(args.max_tokens, options.context)?;
    let generate = generate_options(args, max_tokens);
    generate.sampling.check(opened.model.vocab)?;
    let working = interrupt::working();
    let mut engine = opened.engine(recipe, options, working.flag())?;
    engine.set_digest(args.digest);
    let seq = engine.begin()?;
    let mut stream = Stream { silent: args.json, ..Stream::default() };
    let made = answer(&mut engine, seq, &tokenizer, prompt, &generate, working.flag(), &mut |event| {
        stream.hear(event)
    });
    stream.finish()?;
    let made = made?;
    let digest = args.digest.then(|| engine.digest(seq).to_string());
    if args.json {
        return put_json(&made.json(digest, &engine));
    }
    if let Some(digest) = digest {
        note(&format!("digest {digest}"));
    }
    if args.stats {
        murmur(&made.stats_text(&engine));
    }
    Ok(())
}

/// The messages of a single question.
pub fn conversation(args: &RunArgs, text: String) -> Vec<Message> {
    let system = args.system.as_ref().map(|s| Message::text("system", s));
    system.into_iter().chain([Message::text("user", text)]).collect()
}

/// What the template is told: the bundled model was trained to answer at once.
pub fn thinking(args: &RunArgs, opened: &Opened) -> Option<bool> {
    let wish = args.thinking.as_deref().map(|wish| wish == "on");
    wish.or(opened.bundled.then_some(false))
}

/// Shows events as they come: text and calls on stdout, thoughts on stderr.
#[derive(Default)]
pub struct Stream {
    /// Show nothing.
    pub silent: bool,
    /// The last thing on stdout did not end its line.
    open_line: bool,
    thinking: bool,
}

impl Stream {
    /// Shows one event.
    pub fn hear(&mut self, event: &Event) -> Result<(), base::WorldError> {
        if self.silent {
            return Ok(());
        }
        if self.thinking && !matches!(event, Event::Reasoning(_)) {
            murmur("\n\n");
            self.thinking = false;
        }
        match event {
            Event::Text(text) => {
                put(text)?;
                self.open_line = !text.ends_with('\n');
            }
            Event::Reasoning(text) => {
                murmur(text);
                self.thinking = true;
            }
            Event::ToolCall(call) => {
                let before = if self.open_line { "\n" } else { "" };
                put(&format!("{before}{}\n", shown(call)))?;
                self.open_line = false;
            }
        }
        Ok(())
    }

    /// Ends the last line.
    pub fn finish(&mut self) -> Result<(), base::WorldError> {
        if std::mem::take(&mut self.thinking) {
            murmur("\n");
        }
        if std::mem::take(&mut self.open_line) {
            put("\n")?;
        }
        Ok(())
    }
}
