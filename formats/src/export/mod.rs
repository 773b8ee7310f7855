//! Requests in the formats of other tools.
//!
//! Each writer is fed requests in the order of the tape and writes what its format can say. What it
//! cannot say is counted in [`Losses`], never turned into something else without a word.

pub mod blkparse;
pub mod blktrace;
pub mod fio;
pub mod jsonl;

use std::collections::BTreeMap;

/// What another tool's format had no words for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// How many requests each shortcoming befell.
    counts: BTreeMap<&'static str, u64>,
}

impl Losses {
    /// Counts a request that this befell.
    fn count(&mut self, shortcoming: &'static str) {
        *self.counts.entry(shortcoming).or_default() += 1;
    }

    /// Each shortcoming, and how many requests it befell.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.counts
            .iter()
            .map(|(shortcoming, count)| (*shortcoming, *count))
    }

    /// Whether the format said everything.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }
}
