//! The ring of a processor, as it is read.

use std::sync::atomic::{AtomicU64, Ordering};

use super::record::{LAST, Record, WORDS};
use super::{HEAD, TAIL, WOKEN, read};
use crate::linux::merge;

/// What a ring had when it was looked at.
#[derive(Debug)]
pub(super) struct Lane<'a> {
    told: &'a [AtomicU64],
    ring: &'a [AtomicU64],
    begun: u64,
    tail: u64,
    head: u64,
    /// The oldest, if there is one.
    next: Option<Record>,
}

impl<'a> Lane<'a> {
    /// Looks at the ring from `tail` on. `told` are the words of its processor.
    pub fn new(tail: u64, told: &'a [AtomicU64], ring: &'a [AtomicU64]) -> Lane<'a> {
        // Before the head is read: what comes later wakes again.
        if told[WOKEN].load(Ordering::Relaxed) != 0 {
            told[WOKEN].store(0, Ordering::SeqCst);
        }
        let mut lane = Lane {
            told,
            ring,
            begun: tail,
            tail,
            head: told[HEAD].load(Ordering::Acquire),
            next: None,
        };
        lane.next = lane.look();
        lane
    }

    /// Takes the oldest record if it is from before `limit_ns`.
    pub fn take_before(&mut self, limit_ns: u64) -> Option<Record> {
        let record = self.next.filter(|next| next.time_ns() < limit_ns)?;
        self.tail += 1;
        self.next = self.look();
        Some(record)
    }

    /// Gives the kernel the room of what was taken, and returns up to where that was.
    pub fn give_back(self) -> u64 {
        if self.tail != self.begun {
            self.told[TAIL].store(self.tail, Ordering::Release);
        }
        self.tail
    }

    fn look(&self) -> Option<Record> {
        if self.tail >= self.head {
            return None;
        }
        let slots = self.ring.len() / WORDS;
        let slot = (self.tail as usize & (slots - 1)) * WORDS;
        let words = &self.ring[slot..slot + WORDS];
        let lap = 1 + (self.tail >> slots.trailing_zeros() & 1);
        // What is reserved and not written yet comes next time.
        let is_written = Record::lap_of(words[LAST].load(Ordering::Acquire)) == lap;
        is_written.then(|| read(words))
    }
}

impl merge::Lane for Lane<'_> {
    fn next_ns(&self) -> Option<u64> {
        self.next.map(|next| next.time_ns())
    }
}
