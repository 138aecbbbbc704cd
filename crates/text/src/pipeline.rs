//! Generated ids in, events out: bytes → stop strings → reasoning → tool calls. All that generates goes
//! through here, so that every way to ask gives the same text.

use base::Result;

use crate::chat::Tool;
use crate::reasoning::{self, ReasoningSplitter};
use crate::template::Rendered;
use crate::tools::{self, Event, Grammar, ToolParser};
use crate::{Detokenizer, Stops, Tokenizer};

/// How an answer is read.
#[derive(Debug, Clone)]
pub struct Options {
    /// Ids that end the answer; they give no text. Empty: none ends it.
    pub eos: Vec<u32>,
    /// Strings that end the answer.
    pub stops: Vec<String>,
    /// Special tokens give no text.
    pub skip_special: bool,
    /// Split off a thought; true inside: the prompt opened it already.
    pub reasoning: Option<bool>,
    /// Find tool calls.
    pub grammar: Option<Grammar>,
    /// The definitions that the model saw.
    pub tools: Vec<Tool>,
}

impl Options {
    /// For a prompt that is just text: the answer is text too.
    pub fn plain(tokenizer: &Tokenizer) -> Options {
        Options {
            eos: tokenizer.eos_ids(),
            stops: Vec::new(),
            skip_special: true,
            reasoning: None,
            grammar: None,
            tools: Vec::new(),
        }
    }

    /// For an answer to a rendered conversation. Tools of a template whose grammar is not read here are
    /// refused.
    pub fn chat(tokenizer: &Tokenizer, prompt: &Rendered, tools: &[Tool]) -> Result<Options> {
        let source = tokenizer.template()?.source(!tools.is_empty());
        let grammar = if tools.is_empty() { None } else { Some(tools::required(source)?) };
        let thinks = reasoning::detect(source);
        Ok(Options {
            reasoning: thinks.then(|| reasoning::opened_by(&prompt.text)),
            grammar,
            tools: tools.to_vec(),
            ..Options::plain(tokenizer)
        })
    }

    /// The same with stop strings.
    pub fn with_stops(mut self, stops: Vec<String>) -> Options {
        self.stops = stops;
        self
    }
}

/// Why an answer ended, in OpenAI's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// An end token or a stop string.
    Stop,
    /// The limit of tokens or the context.
    Length,
    /// An end token or a stop string, behind one or more tool calls.
    ToolCalls,
}

impl FinishReason {
    /// As the API spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
            FinishReason::ToolCalls => "tool_calls",
        }
    }
}

/// One answer being read.
pub struct Output<'a> {
    detokenizer: Detokenizer<'a>,
    eos: Vec<u32>,
    stops: Stops,
    reasoning: Option<ReasoningSplitter>,
    parser: Option<Box<dyn ToolParser + Send>>,
    ended: bool,
    calls: usize,
}

impl<'a> Output<'a> {
    /// For one answer.
    pub fn new(tokenizer: &'a Tokenizer, options: Options) -> Self {
        Output {
            detokenizer: Detokenizer::new(tokenizer, options.skip_special),
            eos: options.eos,
            stops: Stops::new(options.stops),
            reasoning: options.reasoning.map(ReasoningSplitter::new),
            parser: options.grammar.map(|grammar| grammar.parser(&options.tools)),
            ended: false,
            calls: 0,
        }
    }

    /// Adds a generated id. After [`Output::ended`] nothing more comes.
    pub fn push(&mut self, id: u32) -> Vec<Event> {
        if self.ended {
            return Vec::new();
        }
        if self.eos.contains(&id) {
            self.ended = true;
            return Vec::new();
        }
        let text = self.detokenizer.push(id);
        self.text(&text)
    }

    /// The answer is over (also when [`Output::ended`] says so): gives all that was held back.
    pub fn finish(&mut self) -> Vec<Event> {
        let tail = self.detokenizer.finish();
        let mut events = self.text(&tail);
        let held = self.stops.finish().text;
        events.extend(self.after_stops(&held));
        let thoughts = self.reasoning.as_mut().map(ReasoningSplitter::finish).unwrap_or_default();
        events.extend(self.after_reasoning(thoughts));
        let rest = self.parser.as_mut().map(|parser| parser.finish()).unwrap_or_default();
        events.extend(self.counted(rest));
        events
    }

    /// An end token or a stop string was met: generation must stop.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Why the answer ended, once [`Output::finish`] was called: without an end token or stop string it was
    /// the length.
    pub fn finish_reason(&self) -> FinishReason {
        match (self.ended, self.calls) {
            (false, _) => FinishReason::Length,
            (true, 0) => FinishReason::Stop,
            (true, _) => FinishReason::ToolCalls,
        }
    }

    fn text(&mut self, text: &str) -> Vec<Event> {
        let out = self.stops.push(text);
        self.ended |= out.stopped;
        self.after_stops(&out.text)
    }

    fn after_stops(&mut self, text: &str) -> Vec<Event> {
        if text.is_empty() {
            return Vec::new();
        }
        let events = match &mut self.reasoning {
            Some(splitter) => splitter.push(text),
            None => vec![Event::Text(text.to_string())],
        };
        self.after_reasoning(events)
    }

    fn after_reasoning(&mut self, events: Vec<Event>) -> Vec<Event> {
        let Some(parser) = &mut self.parser else { return events };
        let mut all = Vec::new();
        for event in events {
            match event {
                Event::Text(text) => all.extend(parser.push(&text)),
                other => all.push(other),
            }
        }
        self.counted(all)
    }

    fn counted(&mut self, events: Vec<Event>) -> Vec<Event> {
        self.calls += events.iter().filter(|event| matches!(event, Event::ToolCall(_))).count();
        events
    }
}
