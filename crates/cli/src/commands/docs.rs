use std::fmt::Write;

use anyhow::Result;
use clap::{Arg, Args, Command, CommandFactory};

use super::Cli;
use crate::output::put;

/// Prints docs/cli.md: every command and flag, from the definitions the program parses with
#[derive(Debug, Args)]
#[command(hide = true)]
pub struct DocsArgs {}

pub fn run(_: DocsArgs) -> Result<()> {
    Ok(put(&markdown(&Cli::command()))?)
}

fn markdown(root: &Command) -> String {
    let mut text =
        String::from("# Commands of `krasis`\n\nWritten by `krasis docs`; edit the definitions, not this.\n");
    let _ = write!(text, "\n{}\n", paragraph(root.get_after_help().map(ToString::to_string)));
    for command in root.get_subcommands().filter(|c| !c.is_hide_set()) {
        section(&mut text, "krasis", command, 2);
    }
    text
}

fn section(text: &mut String, parent: &str, command: &Command, depth: usize) {
    let name = format!("{parent} {}", command.get_name());
    let positionals: String = command.get_positionals().map(|a| format!(" {}", shown(a))).collect();
    let _ = write!(text, "\n{} `{name}{positionals}`\n\n", "#".repeat(depth));
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string);
    let _ = writeln!(text, "{}", paragraph(about));
    let args: Vec<&Arg> =
        command.get_arguments().filter(|a| !a.is_hide_set() && a.get_id() != "help").collect();
    if !args.is_empty() {
        text.push_str("\n| | |\n|---|---|\n");
    }
    for arg in args {
        let _ = writeln!(text, "| `{}` | {} |", flag(arg).replace('|', "\\|"), help(arg));
    }
    for inner in command.get_subcommands().filter(|c| c.get_name() != "help") {
        section(text, &name, inner, depth + 1);
    }
}

fn paragraph(text: Option<String>) -> String {
    text.unwrap_or_default().trim().to_string()
}

/// A positional argument as in the usage line.
fn shown(arg: &Arg) -> String {
    let name = value_name(arg);
    let many = arg.get_num_args().is_some_and(|n| n.max_values() > 1);
    let dots = if many { "…" } else { "" };
    if arg.is_required_set() { format!("{name}{dots}") } else { format!("[{name}{dots}]") }
}

fn value_name(arg: &Arg) -> String {
    let names = arg.get_value_names().map(|n| n.iter().map(ToString::to_string).collect::<Vec<_>>());
    names.map_or_else(|| arg.get_id().to_string().to_uppercase(), |n| n.join(" "))
}

fn flag(arg: &Arg) -> String {
    match arg.get_long() {
        None => value_name(arg),
        Some(long) if arg.get_action().takes_values() => format!("--{long} {}", values(arg)),
        Some(long) => format!("--{long}"),
    }
}

/// The values a flag takes, or the name of its value.
fn values(arg: &Arg) -> String {
    let possible: Vec<String> = arg.get_possible_values().iter().map(|v| v.get_name().to_string()).collect();
    if possible.is_empty() || arg.is_hide_possible_values_set() {
        format!("<{}>", value_name(arg))
    } else {
        possible.join("|")
    }
}

fn help(arg: &Arg) -> String {
    let text = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let defaults: Vec<String> =
        arg.get_default_values().iter().map(|v| v.to_string_lossy().into_owned()).collect();
    if !defaults.is_empty() && arg.get_action().takes_values() {
        let _ = write!(text, " [default: {}]", defaults.join(" "));
    }
    text.replace('|', "\\|").replace('<', "\\<")
}
