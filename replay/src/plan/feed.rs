//! Batches of operations on their way to the loop that submits, and back for what was recorded.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

use iotape_formats::Op;

use super::dependency::Due;
use super::rules::SkipReason;
use crate::engine::{Action, Io};

/// Rows of the tape in a batch.
pub const BATCH_ROWS: usize = 4_096;
/// Batches that wait to be submitted: 26 ms of 5 million requests a second, so that a planner which
/// the system has put aside for a moment is not missed.
const BATCHES_AHEAD: usize = 32;

/// A row that was left out.
#[derive(Clone, Copy, Debug)]
pub struct Skip {
    /// It stood before this operation of the batch.
    pub before: usize,
    pub op: Op,
    pub reason: SkipReason,
    pub bytes: u64,
}

/// Some rows of the tape. Comes back to the planner with what became of it.
#[derive(Debug, Default)]
pub struct Batch {
    /// One for each request that is submitted; see [`Io::STRIPED`].
    pub ios: Vec<Io>,
    /// When each of them is due; empty when all are, at once.
    pub dues: Vec<Due>,
    /// The recorded latency of each operation.
    pub recorded_ns: Vec<Option<u64>>,
    /// Whether the mapping changed each operation's offset.
    pub remapped: Vec<bool>,
    /// Operations that were widened to whole sectors, by their place, and by how many bytes.
    pub widened: Vec<(usize, u64)>,
    pub skips: Vec<Skip>,
    /// Operations before which a pass over the tape begins.
    pub pass_starts: Vec<usize>,
    /// Operations that were submitted.
    pub used: usize,
    /// The first of them that counts.
    pub counts_from: usize,
}

impl Batch {
    pub fn clear(&mut self) {
        self.ios.clear();
        self.dues.clear();
        self.recorded_ns.clear();
        self.remapped.clear();
        self.widened.clear();
        self.skips.clear();
        self.pass_starts.clear();
        self.used = 0;
        self.counts_from = usize::MAX;
    }

    /// Notes by how much the operation added last is longer than on the tape.
    pub fn note_widened(&mut self, length_bytes: u64) {
        let Some(io) = self.ios.last().filter(|io| io.action != Action::Flush) else {
            return;
        };
        let more = io.length.saturating_sub(length_bytes);
        if more > 0 {
            self.widened.push((self.ios.len() - 1, more));
        }
    }

    /// Rows of the tape in it.
    pub fn rows(&self) -> usize {
        self.ios.len() + self.skips.len()
    }
}

/// The planner's end.
pub struct Outlet {
    pub batches: SyncSender<Batch>,
    pub used: Receiver<Batch>,
}

/// The submitting loop's end.
#[derive(Debug)]
pub struct Feed {
    batches: Receiver<Batch>,
    used: Sender<Batch>,
    current: Batch,
    next: usize,
    counting: bool,
    ended: bool,
}

/// Connects a planner with a loop.
pub fn channel() -> (Outlet, Feed) {
    let (batches, from_planner) = sync_channel(BATCHES_AHEAD);
    let (to_planner, used) = std::sync::mpsc::channel();
    let feed = Feed {
        batches: from_planner,
        used: to_planner,
        current: Batch::default(),
        next: 0,
        counting: false,
        ended: false,
    };
    (Outlet { batches, used }, feed)
}

impl Feed {
    /// Operations that can be submitted now; empty when none is decoded yet, or none is left.
    #[inline]
    pub fn ready(&mut self) -> &[Io] {
        if self.next == self.current.ios.len() {
            self.load(None);
        }
        &self.current.ios[self.next..]
    }

    /// The first of [`Feed::ready`], and when it is due.
    #[inline]
    pub fn first(&mut self) -> Option<(Io, Due)> {
        let io = *self.ready().first()?;
        let due = self.current.dues.get(self.next).copied();
        Some((io, due.unwrap_or(Due::at(0))))
    }

    /// Waits for the planner up to a time.
    pub fn wait(&mut self, up_to: Duration) {
        if self.next == self.current.ios.len() {
            self.load(Some(up_to));
        }
    }

    /// Says that the first `count` of [`Feed::ready`] are submitted.
    #[inline]
    pub fn advance(&mut self, count: usize) {
        self.next += count;
    }

    /// From the next operation on, they count.
    pub fn start_counting(&mut self) {
        self.counting = true;
        self.current.counts_from = self.next;
    }

    /// Whether the planner has nothing more.
    pub fn ended(&self) -> bool {
        self.ended && self.next == self.current.ios.len()
    }

    /// Takes the next batch that has operations. Batches without any only carry skips.
    fn load(&mut self, wait: Option<Duration>) {
        while !self.ended && self.next == self.current.ios.len() {
            let batch = match wait {
                None => self.batches.try_recv(),
                Some(up_to) => self
                    .batches
                    .recv_timeout(up_to)
                    .map_err(|error| match error {
                        RecvTimeoutError::Timeout => TryRecvError::Empty,
                        RecvTimeoutError::Disconnected => TryRecvError::Disconnected,
                    }),
            };
            match batch {
                Ok(batch) => {
                    self.give_back(batch);
                    self.current.counts_from = if self.counting { 0 } else { usize::MAX };
                }
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => self.ended = true,
            }
        }
    }

    fn give_back(&mut self, next: Batch) {
        let mut used = std::mem::replace(&mut self.current, next);
        used.used = self.next;
        self.next = 0;
        // Fails when the planner has died, which its owner learns.
        let _ = self.used.send(used);
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.give_back(Batch::default());
    }
}
