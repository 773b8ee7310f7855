//! One module a verb: `run(&args)` does the work and says how it ended.

pub mod check;
pub mod compare;
pub mod doctor;
pub mod edit;
pub mod export;
pub mod import;
pub mod info;
pub mod record;
mod recording;
pub mod replay;
pub mod top;

use std::io::{ErrorKind, Write};
use std::time::Duration;

use serde::Serialize;

use crate::exit::Failure;
use crate::render::json::plain_json;

/// Refuses a part of a tape that ends before it begins.
fn check_times(from: Option<Duration>, to: Option<Duration>) -> Result<(), Failure> {
    match from.zip(to) {
        Some((from, to)) if from >= to => Err(Failure::usage("--from must be earlier than --to")),
        _ => Ok(()),
    }
}

/// Prints text. A reader that has seen enough (`| head`) is no failure.
fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::at("cannot write to standard output", error))
        }
        _ => Ok(()),
    }
}

/// Prints a value as JSON on one line.
fn print_json_line(value: &impl Serialize) -> Result<(), Failure> {
    let json = serde_json::to_string(value).map_err(Failure::new)?;
    print(&(plain_json(json) + "\n"))
}

/// Prints a value as indented JSON.
fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(value).map_err(Failure::new)?;
    print(&(plain_json(json) + "\n"))
}
