//! Takes: a model folder's tokenizer files, conversations, token ids.
//! Gives: prompts as token ids; and from generated ids whole characters, reasoning and tool calls.
//! Never: knows devices, models or HTTP; lets message content become a control token.

pub mod added;
pub mod chat;
mod detok;
mod files;
mod guard;
mod normal;
pub mod pipeline;
mod python;
pub mod reasoning;
mod stops;
mod template;
mod token_bytes;
mod tokenizer;
pub mod tools;

pub use detok::{Detokenizer, Utf8Stream};
pub use stops::{StopOutput, Stops};
pub use template::{Clock, Conversation, MAX_RENDERED_BYTES, Rendered, Specials, Template};
pub use tokenizer::{MAX_SPACE_RUN, Tokenizer};
