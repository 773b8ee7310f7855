//! Threads that perform operations with blocking system calls.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use super::{Action, Completion, Io, Medium, Wait, time_to_wait};
use crate::sys::{self, Signal, code};

/// Enough for a system call; the default of 2 MiB, times the depth, is address space for nothing.
const STACK_BYTES: usize = 64 << 10;

/// A pool of threads, and the operations that they have done.
#[derive(Debug)]
pub struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    medium: Medium,
    jobs: Mutex<Jobs>,
    job_queued: Condvar,
    done: Mutex<Vec<Completion>>,
    job_done: Condvar,
    /// Signalled after each completion, for an owner that waits elsewhere.
    signal: Option<Signal>,
}

#[derive(Debug, Default)]
struct Jobs {
    queued: VecDeque<(u32, Io)>,
    running: usize,
    closed: bool,
}

impl Workers {
    /// Starts `count` threads.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(count: u32, medium: Medium, signal: Option<Signal>) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            medium,
            jobs: Mutex::default(),
            job_queued: Condvar::new(),
            done: Mutex::default(),
            job_done: Condvar::new(),
            signal,
        });
        let mut workers = Workers {
            shared,
            threads: Vec::new(),
        };
        for number in 0..count {
            let shared = Arc::clone(&workers.shared);
            let thread = Builder::new()
                .name(format!("iotape-io-{number}"))
                .stack_size(STACK_BYTES)
                .spawn(move || shared.work())?;
            workers.threads.push(thread);
        }
        Ok(workers)
    }

    /// Hands an operation to the next free thread.
    pub fn queue(&self, slot: u32, io: &Io) {
        lock(&self.shared.jobs).queued.push_back((slot, *io));
        self.shared.job_queued.notify_one();
    }

    /// Appends what is done.
    pub fn collect(&self, wait: Wait, into: &mut Vec<Completion>) {
        let mut done = lock(&self.shared.done);
        if wait != Wait::No && done.is_empty() {
            done = self
                .shared
                .job_done
                .wait_timeout(done, time_to_wait(wait))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        into.append(&mut done);
    }
}

impl Drop for Workers {
    /// Threads in a system call that may never return are left behind, with the buffers they use.
    fn drop(&mut self) {
        let running = {
            let mut jobs = lock(&self.shared.jobs);
            jobs.closed = true;
            jobs.queued.clear();
            jobs.running
        };
        self.shared.job_queued.notify_all();
        if running == 0 {
            for thread in self.threads.drain(..) {
                let _ = thread.join();
            }
        }
    }
}

impl Shared {
    fn work(&self) {
        while let Some((slot, io)) = self.next_job() {
            let outcome = match self.medium.perform(slot, &io) {
                Ok(bytes) => i64::try_from(bytes).unwrap_or(i64::MAX),
                Err(errno) => -i64::from(errno),
            };
            lock(&self.jobs).running -= 1;
            lock(&self.done).push(Completion { slot, outcome });
            self.job_done.notify_one();
            if let Some(signal) = &self.signal {
                signal.raise();
            }
        }
    }

    fn next_job(&self) -> Option<(u32, Io)> {
        let mut jobs = lock(&self.jobs);
        loop {
            if jobs.closed {
                return None;
            }
            if let Some(job) = jobs.queued.pop_front() {
                jobs.running += 1;
                return Some(job);
            }
            jobs = self
                .job_queued
                .wait(jobs)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Medium {
    /// Performs an operation: bytes transferred, or the number of the error.
    fn perform(&self, slot: u32, io: &Io) -> Result<usize, i32> {
        let disk = self.disk(io).ok_or(code::NO_DEVICE)?;
        let file = &*disk.file;
        let length = usize::try_from(io.length).map_err(|_| code::INVALID)?;
        match io.action {
            Action::Read => {
                let buffer = self.buffers.slot(slot, length).ok_or(code::BAD_BUFFER)?;
                sys::read_at(file, buffer, io.offset)
            }
            Action::Write => {
                if io.preflush {
                    sys::flush(file)?;
                }
                let buffer = self
                    .buffers
                    .payload(io.payload, length)
                    .ok_or(code::BAD_BUFFER)?;
                sys::write_at(file, buffer, io.offset, io.fua)
            }
            Action::Flush => sys::flush(file).map(|()| 0),
            Action::Discard if disk.block_device => {
                sys::discard_blocks(file, io.offset, io.length).map(|()| 0)
            }
            Action::Discard => sys::discard_in_file(file, io.offset, io.length).map(|()| 0),
            Action::WriteZeroes => sys::write_zeroes(file, io.offset, io.length).map(|()| 0),
        }
    }
}

/// A poisoned lock guards plain values, which are whole at any moment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
