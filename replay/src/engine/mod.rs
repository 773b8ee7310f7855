//! Engines: what carries operations to a target and brings their completions back.

pub mod null;
pub mod threads;
pub mod uring;
mod workers;

#[cfg(test)]
mod tests;

pub use workers::{Medium, Unsplit};

use std::io;
use std::time::Duration;

use iotape_formats::Op;

/// [`Engine::turn`] comes back about this often, even when nothing completes.
pub const TICK: Duration = Duration::from_millis(100);

/// What an operation does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// Reads into the slot's buffer.
    #[default]
    Read,
    /// Writes payload.
    Write,
    /// Makes completed writes durable.
    Flush,
    /// Tells the target that a range is no longer in use.
    Discard,
    /// Zeroes a range.
    WriteZeroes,
}

impl Action {
    /// All of them.
    pub const ALL: [Action; 5] = [
        Action::Read,
        Action::Write,
        Action::Flush,
        Action::Discard,
        Action::WriteZeroes,
    ];

    /// Its position in [`Action::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// The tape's operation that it stands for.
    pub fn op(self) -> Op {
        match self {
            Action::Read => Op::Read,
            Action::Write => Op::Write,
            Action::Flush => Op::Flush,
            Action::Discard => Op::Discard,
            Action::WriteZeroes => Op::WriteZeroes,
        }
    }
}

/// One operation, ready to be submitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Io {
    /// First byte on the target.
    pub offset: u64,
    /// How long. At most the buffers' length for reads and writes.
    pub length: u64,
    /// Where a write's data begins in the payload.
    pub payload: u32,
    /// What it does.
    pub action: Action,
    /// A write that is durable on completion.
    pub fua: bool,
    /// A write before which the target is flushed: one operation, done when both are.
    pub preflush: bool,
}

/// An operation that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Its slot.
    pub slot: u32,
    /// Bytes transferred (0 for an operation that transfers none), or an error's number, negative.
    pub outcome: i64,
}

/// The contract. The caller owns the slots: at most as many as the engine was made for, each with
/// at most one operation between [`Engine::queue`] and its [`Completion`]. All calls come from one
/// thread.
pub trait Engine {
    /// Name in the result.
    fn name(&self) -> &'static str;

    /// What a reader of the result should know about how this engine works here.
    fn take_notes(&mut self) -> Vec<String>;

    /// The clock of all times of a run, in nanoseconds.
    fn now_ns(&self) -> u64;

    /// Takes an operation, which may start now and starts with the next turn at the latest.
    fn queue(&mut self, slot: u32, io: &Io);

    /// Starts what is queued and appends completions to `done`. Returns once there is at least one,
    /// or after [`TICK`]; at once with whatever there is, if not to `wait`.
    ///
    /// # Errors
    /// When the engine itself fails. A failed operation is a completion.
    fn turn(&mut self, wait: bool, done: &mut Vec<Completion>) -> io::Result<()>;
}
