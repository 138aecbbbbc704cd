//! Errors at the edge: what is printed and which exit code it is.

use std::io::ErrorKind;
use std::process::ExitCode;

use base::{Error, Refusal, WorldError};

/// The world failed: a file is missing or damaged, memory, disk.
const WORLD: u8 = 1;
/// The command line can't be meant.
const USAGE: u8 = 2;
/// Refused: a value, a combination or a request beyond what model and machine can do.
const REFUSED: u8 = 3;
/// Ctrl-C, as shells count it: 128 + SIGINT.
const CANCELLED: u8 = 130;

/// A command line that the parser accepts and that still can't be meant.
#[derive(Debug)]
pub struct Usage(pub String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Shorthand for a [`Usage`] error.
pub fn usage(what: impl Into<String>) -> anyhow::Error {
    Usage(what.into()).into()
}

/// Prints `error`, if there is something to say, and gives its exit code.
pub fn report(error: &anyhow::Error) -> ExitCode {
    let code = code(error);
    if code != 0 {
        eprintln!("krasis: {}", message(error));
    }
    ExitCode::from(code)
}

/// The error and its causes, each once: some errors speak of their cause themselves.
fn message(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

fn code(error: &anyhow::Error) -> u8 {
    for cause in error.chain() {
        if cause.is::<Usage>() {
            return USAGE;
        }
        let found = match cause.downcast_ref::<Error>() {
            Some(Error::Refused(refusal)) => Some(refused(refusal)),
            Some(Error::World(world)) => Some(failed(world)),
            None => cause.downcast_ref::<Refusal>().map(refused).or(cause.downcast_ref().map(failed)),
        };
        if let Some(code) = found {
            return code;
        }
        if cause.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe) {
            return 0;
        }
    }
    WORLD
}

fn refused(refusal: &Refusal) -> u8 {
    match refusal {
        Refusal::Cancelled => CANCELLED,
        // Something that is not where it was said to be is a matter of files, not of what can be done.
        Refusal::NotFound { .. } => WORLD,
        Refusal::Value { .. } | Refusal::Unsupported { .. } => REFUSED,
    }
}

fn failed(world: &WorldError) -> u8 {
    match world {
        // Whoever read our output has seen enough (`| head`): the end of the work, not a failure.
        WorldError::Io { source, .. } if source.kind() == ErrorKind::BrokenPipe => 0,
        _ => WORLD,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{Context, anyhow};
    use std::path::Path;

    fn of(error: impl Into<Error>) -> anyhow::Error {
        anyhow::Error::from(error.into())
    }

    #[test]
    fn a_cause_is_told_once() {
        let full = std::io::Error::other("the disk is full");
        let error = of(WorldError::io("write", Path::new("f"), full));
        assert_eq!(message(&error), "can't write f: the disk is full");
        assert_eq!(message(&error.context("building")), "building: can't write f: the disk is full");
    }

    #[test]
    fn codes_follow_who_can_mend_it() {
        let not_found = || Refusal::NotFound { what: "x".into(), value: "y".into(), hint: "z".into() };
        let io = |kind| WorldError::io("write", Path::new("f"), std::io::Error::from(kind));
        for (error, expected) in [
            (of(Refusal::value("a", 1, "2", "b")), 3),
            (of(Refusal::unsupported("a", "b", "c")), 3),
            (of(not_found()), 1),
            (of(Refusal::Cancelled), 130),
            (of(io(ErrorKind::PermissionDenied)), 1),
            (of(io(ErrorKind::BrokenPipe)), 0),
            (usage("a"), 2),
            (anyhow!("anything"), 1),
            (Refusal::value("a", 1, "2", "b").into(), 3),
            (io(ErrorKind::NotFound).into(), 1),
            (std::io::Error::from(ErrorKind::BrokenPipe).into(), 0),
        ] {
            assert_eq!(code(&error), expected, "{error}");
            let text = error.to_string();
            assert_eq!(code(&Err::<(), _>(error).context("while doing").unwrap_err()), expected, "{text}");
        }
    }
}
