//! Engines: what carries operations to a target and brings their completions back.

#[cfg(any(windows, test))]
mod coarse;
#[cfg(windows)]
pub mod iocp;
mod medium;
pub mod null;
pub mod sim;
pub mod threads;
#[cfg(target_os = "linux")]
pub mod uring;
mod workers;

#[cfg(test)]
mod tests;

#[cfg(windows)]
pub use iocp::IocpEngine as SystemEngine;
pub use medium::{Disk, Medium, Unsplit};
#[cfg(target_os = "linux")]
pub use uring::UringEngine as SystemEngine;

use std::io;
use std::time::Duration;

use iotape_formats::Op;

use crate::sys;

/// [`Engine::turn`] comes back about this often, even when nothing completes.
pub const TICK: Duration = Duration::from_millis(100);

/// How long [`Engine::turn`] waits for a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    No,
    /// Until this time of the engine's clock, or about [`TICK`] if that is sooner.
    Until(u64),
    /// About [`TICK`].
    Tick,
}

/// The longest that a turn should block, on the system's clock.
pub fn time_to_wait(wait: Wait) -> Duration {
    match wait {
        Wait::No => Duration::ZERO,
        Wait::Until(time_ns) => {
            Duration::from_nanos(time_ns.saturating_sub(sys::monotonic_ns())).min(TICK)
        }
        Wait::Tick => TICK,
    }
}

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

/// One operation, ready to be submitted; or, on its way to the loop, one that will be several.
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
    /// Which target, by its index in the [`Medium`]; or [`Io::STRIPED`], and then its offset is
    /// that in the whole striped range. An engine is never handed one of these.
    pub target: u8,
}

impl Io {
    /// The target of an operation that becomes several, each on one target.
    pub const STRIPED: u8 = u8::MAX;

    /// The outcome of its success: bytes transferred.
    #[inline]
    pub fn success(&self) -> i64 {
        match self.action {
            Action::Read | Action::Write => self.length.cast_signed(),
            Action::Flush | Action::Discard | Action::WriteZeroes => 0,
        }
    }
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
    /// Whether the clock goes on only while a turn waits, and then to the nanosecond. A real clock
    /// goes on always, and a wait may end late.
    const VIRTUAL_CLOCK: bool = false;

    /// Name in the result.
    fn name(&self) -> &'static str;

    /// What a reader of the result should know about how this engine works here.
    fn take_notes(&mut self) -> Vec<String>;

    /// The clock of all times of a run, in nanoseconds.
    fn now_ns(&self) -> u64;

    /// Takes an operation, which may start now and starts with the next turn at the latest.
    fn queue(&mut self, slot: u32, io: &Io);

    /// Starts what is queued and appends completions to `done`. Returns once there is at least one,
    /// or when it has waited enough.
    ///
    /// # Errors
    /// When the engine itself fails. A failed operation is a completion.
    fn turn(&mut self, wait: Wait, done: &mut Vec<Completion>) -> io::Result<()>;
}

impl<E: Engine> Engine for &mut E {
    const VIRTUAL_CLOCK: bool = E::VIRTUAL_CLOCK;

    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn take_notes(&mut self) -> Vec<String> {
        (**self).take_notes()
    }

    fn now_ns(&self) -> u64 {
        (**self).now_ns()
    }

    fn queue(&mut self, slot: u32, io: &Io) {
        (**self).queue(slot, io);
    }

    fn turn(&mut self, wait: Wait, done: &mut Vec<Completion>) -> io::Result<()> {
        (**self).turn(wait, done)
    }
}
