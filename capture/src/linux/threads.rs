//! To which process a thread belongs.

use std::collections::HashMap;
use std::fs;

/// Threads that are remembered; above it, all are forgotten and learned again.
const REMEMBERED: usize = 16 << 10;
/// How long a thread is believed to be the same: its number may be given to another.
const BELIEVED_NS: u64 = 10_000_000_000;

/// Threads seen lately.
///
/// ftrace's records name the thread alone. A thread that ended before it was looked up is taken for a
/// process of its own, which is what most short-lived ones are: the number of a program's first
/// thread is that of its process.
#[derive(Debug, Default)]
pub(super) struct Threads {
    known: HashMap<u32, u32>,
    since_ns: u64,
    last: Option<(u32, u32)>,
}

impl Threads {
    /// The process of a thread that ran at `now_ns`.
    pub fn process_of(&mut self, thread: u32, now_ns: u64) -> u32 {
        if now_ns.saturating_sub(self.since_ns) > BELIEVED_NS || self.known.len() >= REMEMBERED {
            self.known.clear();
            self.last = None;
            self.since_ns = now_ns;
        }
        if let Some((_, process)) = self.last.filter(|(last, _)| *last == thread) {
            return process;
        }
        let look_up = || thread_group(thread).unwrap_or(thread);
        let process = *self.known.entry(thread).or_insert_with(look_up);
        self.last = Some((thread, process));
        process
    }
}

fn thread_group(thread: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_belongs_to_its_process() {
        let this = std::process::id();
        let thread = std::thread::spawn(|| {
            let thread = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            let mut threads = Threads::default();
            [0, 1].map(|now_ns| (thread, threads.process_of(thread, now_ns)))
        });
        for (thread, process) in thread.join().unwrap() {
            assert_eq!(process, this);
            assert_ne!(thread, this);
        }
        // No thread has the highest number.
        assert_eq!(Threads::default().process_of(u32::MAX, 0), u32::MAX);
    }

    #[test]
    fn memory_is_bounded() {
        let mut threads = Threads::default();
        for thread in 0..2 * REMEMBERED as u32 {
            threads.process_of(u32::MAX - thread, 0);
        }
        assert!(threads.known.len() <= REMEMBERED);
    }
}
