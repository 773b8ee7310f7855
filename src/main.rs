//! `iotape`, the command: parses what is asked, lets the libraries do it, shows what came of it.
//!
//! The libraries below print nothing and know no exit status; both are decided here. Each verb has
//! its module in [`commands`], which ends in an [`exit::Outcome`] or an [`exit::Failure`].

mod cli;
mod commands;
mod exit;
mod files;
mod live;
mod render;
mod signals;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Record(args) => commands::record::run(&args),
        Command::Top(args) => commands::top::run(&args),
        Command::Info(args) => commands::info::run(&args),
        Command::Export(args) => commands::export::run(&args),
        Command::Import(args) => commands::import::run(&args),
        Command::Check(args) => commands::check::run(&args),
        Command::Edit(args) => commands::edit::run(&args),
        Command::Replay(args) => commands::replay::run(&args),
        Command::Compare(args) => commands::compare::run(&args),
        Command::Doctor(args) => commands::doctor::run(&args),
    };
    exit::exit_code(result)
}
