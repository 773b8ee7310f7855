//! io_uring: everything queued is submitted, and a completion awaited, by one system call a turn.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

use super::workers::Workers;
use super::{Action, Completion, Engine, Io, Medium, TICK, Wait, time_to_wait};
use crate::options::EngineChoice;
use crate::sys::{self, AUXILIARY, Read, Ring, RingError, RingOptions, Signal, Write, code};

/// Marks the completion of a flush that a write is linked to; the slot is in the bits below.
const LINKED_FLUSH: u64 = 1 << 32;
const TICK_TAG: u64 = AUXILIARY;
const WATCH_TAG: u64 = AUXILIARY | 1;
/// Threads that discard on kernels whose io_uring cannot.
const DISCARD_THREADS: u32 = 16;

/// See the module.
pub struct UringEngine {
    ring: Ring,
    medium: Medium,
    depth: u32,
    ticking: bool,
    /// Why the flush before a slot's write failed, while that write is being cancelled.
    flush_errors: Vec<i32>,
    /// Operations that could not be queued.
    refused: Vec<Completion>,
    discarders: Option<Discarders>,
    notes: Vec<String>,
}

/// Threads whose completions reach the ring through an eventfd.
struct Discarders {
    workers: Workers,
    event: OwnedFd,
    watched: bool,
}

impl UringEngine {
    /// As users know it.
    pub const NAME: &str = "io_uring";

    /// An engine with `depth` slots and all that the kernel offers.
    ///
    /// # Errors
    /// Of kind [`io::ErrorKind::Unsupported`] where io_uring is not to be had, or another system's
    /// engine was chosen.
    pub fn start(choice: EngineChoice, depth: u32, medium: Medium) -> io::Result<Self> {
        let unsupported = |why| io::Error::new(io::ErrorKind::Unsupported, why);
        if choice == EngineChoice::Iocp {
            let why = "completion ports are of Windows; this system has uring and threads";
            return Err(unsupported(why.to_owned()));
        }
        UringEngine::new(depth, medium, RingOptions::ALL).map_err(|error| match error {
            RingError::Unavailable(why) => unsupported(why),
            RingError::Io(source) => source,
        })
    }

    /// An engine with `depth` slots, to be created on the thread that uses it.
    ///
    /// # Errors
    /// [`RingError::Unavailable`] where io_uring is not to be had.
    pub fn new(depth: u32, medium: Medium, options: RingOptions) -> Result<Self, RingError> {
        // Two entries a slot, the tick and the watch.
        let entries = depth.saturating_mul(2).saturating_add(2);
        let files = medium.disks.iter().map(|disk| Arc::clone(&disk.file));
        let mut ring = Ring::new(
            entries,
            files.collect(),
            Arc::clone(&medium.buffers),
            options,
        )?;
        ring.allow_blocking(depth);
        let notes = ring.take_notes();
        let flush_errors = vec![0; usize::try_from(depth).unwrap_or(0)];
        Ok(UringEngine {
            ring,
            medium,
            depth,
            ticking: false,
            flush_errors,
            refused: Vec::new(),
            discarders: None,
            notes,
        })
    }

    #[inline]
    fn push(&mut self, slot: u32, io: &Io) -> bool {
        let Some(disk) = self.medium.disk(io) else {
            return false;
        };
        let may_block = io.length > disk.unsplit.transfer_bytes;
        match io.action {
            Action::Read => {
                let Ok(length) = u32::try_from(io.length) else {
                    return false;
                };
                let read = Read {
                    file: io.target,
                    slot,
                    length,
                    offset: io.offset,
                    may_block,
                };
                self.ring.read(&read, u64::from(slot))
            }
            Action::Write => self.write(slot, io, may_block),
            Action::Flush => self.ring.flush(io.target, u64::from(slot)),
            Action::Discard | Action::WriteZeroes => self.deallocate(slot, io),
        }
    }

    fn write(&mut self, slot: u32, io: &Io, may_block: bool) -> bool {
        let Ok(length) = u32::try_from(io.length) else {
            return false;
        };
        let tag = u64::from(slot);
        let write = Write {
            file: io.target,
            payload: io.payload,
            length,
            offset: io.offset,
            durable: io.fua,
            may_block,
        };
        if io.preflush {
            self.ring.flush_and_write(&write, tag | LINKED_FLUSH, tag)
        } else {
            self.ring.write(&write, tag)
        }
    }

    fn deallocate(&mut self, slot: u32, io: &Io) -> bool {
        let Some(disk) = self.medium.disk(io) else {
            return false;
        };
        let tag = u64::from(slot);
        let may_block = io.length > disk.unsplit.discard_bytes;
        let mode = match io.action {
            Action::Discard if disk.block_device && self.ring.discards(io.target) => {
                return self
                    .ring
                    .discard(io.target, io.offset, io.length, may_block, tag);
            }
            Action::Discard if disk.block_device => return self.discard_aside(slot, io),
            Action::Discard => libc::FALLOC_FL_PUNCH_HOLE,
            _ => libc::FALLOC_FL_ZERO_RANGE,
        };
        let mode = mode | libc::FALLOC_FL_KEEP_SIZE;
        self.ring
            .allocate(io.target, mode, io.offset, io.length, tag)
    }

    fn discard_aside(&mut self, slot: u32, io: &Io) -> bool {
        if self.discarders.is_none() {
            match Discarders::start(self.depth.min(DISCARD_THREADS), self.medium.clone()) {
                Ok(discarders) => self.discarders = Some(discarders),
                Err(error) => self.notes.push(format!("discards: no threads: {error}")),
            }
        }
        let Some(discarders) = &self.discarders else {
            return false;
        };
        discarders.workers.queue(slot, io);
        true
    }

    fn arm(&mut self) {
        if !self.ticking {
            self.ticking = self.ring.tick(TICK, TICK_TAG);
        }
        if let Some(discarders) = &mut self.discarders
            && !discarders.watched
        {
            discarders.watched = self.ring.watch(discarders.event.as_raw_fd(), WATCH_TAG);
        }
    }
}

impl Discarders {
    fn start(count: u32, medium: Medium) -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let signal = Signal::of(&event)?;
        Ok(Discarders {
            workers: Workers::start(count, medium, Some(signal))?,
            event,
            watched: false,
        })
    }

    fn collect(&mut self, done: &mut Vec<Completion>) {
        self.watched = false;
        // Resets the counter; it is empty when another collection was faster.
        let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
        self.workers.collect(Wait::No, done);
    }
}

impl Engine for UringEngine {
    fn name(&self) -> &'static str {
        "uring"
    }

    fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    fn now_ns(&self) -> u64 {
        sys::monotonic_ns()
    }

    #[inline]
    fn queue(&mut self, slot: u32, io: &Io) {
        if !self.push(slot, io) {
            self.refused.push(Completion {
                slot,
                outcome: -i64::from(code::BAD_BUFFER),
            });
        }
    }

    fn turn(&mut self, wait: Wait, done: &mut Vec<Completion>) -> io::Result<()> {
        self.arm();
        match wait {
            Wait::Tick if self.refused.is_empty() => self.ring.submit(true)?,
            Wait::Until(_) if self.refused.is_empty() => {
                self.ring.submit_and_wait_for(time_to_wait(wait))?;
            }
            _ => self.ring.submit(false)?,
        }
        done.append(&mut self.refused);
        let UringEngine {
            ring,
            ticking,
            flush_errors,
            discarders,
            ..
        } = self;
        ring.reap(|tag, result| match tag {
            TICK_TAG => *ticking = false,
            WATCH_TAG => {
                if let Some(discarders) = discarders {
                    discarders.collect(done);
                }
            }
            _ => {
                if let Some(completion) = operation_done(tag, result, flush_errors) {
                    done.push(completion);
                }
            }
        });
        Ok(())
    }
}

/// A flush that a write is linked to is not yet a completion. When it fails the kernel cancels the
/// write, and its error stands for both.
fn operation_done(tag: u64, result: i32, flush_errors: &mut [i32]) -> Option<Completion> {
    let slot = u32::try_from(tag & (LINKED_FLUSH - 1)).ok()?;
    let flush_error = flush_errors.get_mut(usize::try_from(slot).ok()?)?;
    if tag & LINKED_FLUSH != 0 {
        *flush_error = result.min(0);
        return None;
    }
    let mut outcome = result;
    if *flush_error != 0 {
        outcome = *flush_error;
        *flush_error = 0;
    }
    Some(Completion {
        slot,
        outcome: i64::from(outcome),
    })
}
