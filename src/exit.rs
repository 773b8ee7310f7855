//! How a command ends: its exit status, and the error that it prints.

use std::fmt::Display;
use std::process::ExitCode;

/// The end of a command that did its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All is well.
    Done,
    /// Done, but events were lost, data is damaged, or a run is not valid.
    Flawed,
}

impl Outcome {
    /// [`Outcome::Flawed`] if `flawed`.
    pub fn flawed_if(flawed: bool) -> Outcome {
        if flawed {
            Outcome::Flawed
        } else {
            Outcome::Done
        }
    }
}

/// The end of a command that did not do its work.
#[derive(Debug)]
pub struct Failure {
    message: String,
    usage: bool,
}

impl Failure {
    /// The work could not be done.
    pub fn new(message: impl Display) -> Failure {
        Failure {
            message: message.to_string(),
            usage: false,
        }
    }

    /// What was asked for makes no sense.
    pub fn usage(message: impl Display) -> Failure {
        Failure {
            message: message.to_string(),
            usage: true,
        }
    }

    /// The same, with what it happened to in front.
    pub fn at(subject: impl Display, error: impl Display) -> Failure {
        Failure::new(format_args!("{subject}: {error}"))
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

/// Prints what went wrong and turns it into the exit status.
pub fn exit_code(result: Result<Outcome, Failure>) -> ExitCode {
    match result {
        Ok(Outcome::Done) => ExitCode::from(0),
        Ok(Outcome::Flawed) => ExitCode::from(3),
        Err(failure) => {
            eprintln!("iotape: error: {}", defused(&failure.message));
            ExitCode::from(if failure.usage { 2 } else { 1 })
        }
    }
}

/// Prints a warning.
pub fn warn(warning: impl Display) {
    eprintln!("iotape: warning: {}", defused(&warning.to_string()));
}

/// Names of files, and what files say, may hold characters that control a terminal: they are escaped.
/// Lines stay lines.
fn defused(message: &str) -> String {
    let mut shown = String::with_capacity(message.len());
    for c in message.chars() {
        match c.is_control() && c != '\n' {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown
}
