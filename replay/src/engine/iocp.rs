//! Windows: overlapped reads and writes, and a completion port that brings back all that are done
//! with one system call.
//!
//! What the system has no overlapped form for runs in threads: flushes, and with them writes that
//! wait for one; discards and write-zeroes, which file systems perform in the call itself.

use std::io;
use std::sync::Arc;

use super::threads::ThreadsEngine;
use super::workers::Workers;
use super::{Action, Completion, Engine, Io, Medium, Wait, coarse};
use crate::options::EngineChoice;
use crate::sys::{self, Port, PortOptions, Signal, Transfer, code};

/// See the module.
pub struct IocpEngine {
    port: Port,
    medium: Medium,
    depth: u32,
    /// Operations that were done when they were started.
    done: Vec<Completion>,
    aside: Option<Workers>,
    notes: Vec<String>,
}

impl IocpEngine {
    /// As users know it.
    pub const NAME: &str = "completion ports";

    /// An engine with `depth` slots and all that the system offers.
    ///
    /// # Errors
    /// Of kind [`io::ErrorKind::Unsupported`] when another system's engine was chosen; the
    /// system's own.
    pub fn start(choice: EngineChoice, depth: u32, medium: Medium) -> io::Result<Self> {
        if choice == EngineChoice::Uring {
            let why = "io_uring is of Linux; this system has iocp and threads";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        IocpEngine::new(depth, medium, PortOptions::ALL)
    }

    /// An engine with `depth` slots.
    ///
    /// # Errors
    /// The system's.
    pub fn new(depth: u32, medium: Medium, options: PortOptions) -> io::Result<Self> {
        let files: Vec<_> = medium.disks.iter().map(|d| Arc::clone(&d.file)).collect();
        let port = Port::new(depth, &files, Arc::clone(&medium.buffers), options)?;
        Ok(IocpEngine {
            port,
            medium,
            depth,
            done: Vec::new(),
            aside: None,
            notes: Vec::new(),
        })
    }

    /// Hands an operation to a thread; its outcome, if there are no threads.
    fn start_aside(&mut self, slot: u32, io: &Io) -> Option<i64> {
        if self.aside.is_none() {
            let count = self.depth.min(ThreadsEngine::MAX_DEPTH);
            let started = Signal::of(&self.port)
                .and_then(|signal| Workers::start(count, self.medium.clone(), Some(signal)));
            match started {
                Ok(workers) => self.aside = Some(workers),
                Err(error) => self.notes.push(format!("flushes: no threads: {error}")),
            }
        }
        let Some(workers) = &self.aside else {
            return Some(-i64::from(code::IO));
        };
        workers.queue(slot, io);
        None
    }
}

impl Engine for IocpEngine {
    fn name(&self) -> &'static str {
        "iocp"
    }

    fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    fn now_ns(&self) -> u64 {
        sys::monotonic_ns()
    }

    fn queue(&mut self, slot: u32, io: &Io) {
        let transfer = Transfer {
            slot,
            target: io.target,
            offset: io.offset,
            length: io.length,
        };
        let at_once = match io.action {
            Action::Read => self.port.read(&transfer),
            Action::Write if !io.preflush => self.port.write(&transfer, io.payload, io.fua),
            _ => self.start_aside(slot, io),
        };
        if let Some(outcome) = at_once {
            self.done.push(Completion { slot, outcome });
        }
    }

    fn turn(&mut self, wait: Wait, done: &mut Vec<Completion>) -> io::Result<()> {
        let wait = if self.done.is_empty() { wait } else { Wait::No };
        done.append(&mut self.done);
        let timeout_ms = coarse::timeout_ms(wait, sys::monotonic_ns());
        let signalled = self.port.wait(timeout_ms, |slot, outcome| {
            done.push(Completion { slot, outcome });
        })?;
        if let Some(workers) = self.aside.as_ref().filter(|_| signalled) {
            workers.collect(Wait::No, done);
        }
        Ok(())
    }
}
