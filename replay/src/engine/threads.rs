//! Blocking system calls, one thread for each slot: where io_uring is not to be had.

use std::io;

use super::workers::Workers;
use super::{Completion, Engine, Io, Medium, Wait};
use crate::sys;

/// See the module.
#[derive(Debug)]
pub struct ThreadsEngine {
    workers: Workers,
}

impl ThreadsEngine {
    /// Most threads that are started: a larger depth is refused.
    pub const MAX_DEPTH: u32 = 1_024;

    /// An engine with `depth` slots.
    ///
    /// # Errors
    /// When the threads cannot be started.
    pub fn new(depth: u32, medium: Medium) -> io::Result<Self> {
        Ok(ThreadsEngine {
            workers: Workers::start(depth, medium, None)?,
        })
    }
}

impl Engine for ThreadsEngine {
    fn name(&self) -> &'static str {
        "threads"
    }

    fn take_notes(&mut self) -> Vec<String> {
        Vec::new()
    }

    fn now_ns(&self) -> u64 {
        sys::monotonic_ns()
    }

    fn queue(&mut self, slot: u32, io: &Io) {
        self.workers.queue(slot, io);
    }

    fn turn(&mut self, wait: Wait, done: &mut Vec<Completion>) -> io::Result<()> {
        self.workers.collect(wait, done);
        Ok(())
    }
}
