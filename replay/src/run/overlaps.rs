//! Requests in flight at the same time on the same bytes, of which at least one changes them.
//!
//! The ranges in flight are marked in a table of counters, by hash of each chunk that they touch.
//! Only where a counter says that something may be there are the ranges themselves looked at, so
//! that a request costs the same at any depth.

use crate::engine::{Action, Io};
use crate::map::Striping;

const CHUNK_BYTES: u64 = 64 << 10;
const COUNTERS: usize = 4_096;
/// A range of more chunks is in no counter: while one is in flight, all ranges are looked at.
const MOST_CHUNKS: u64 = 32;

/// See the module.
#[derive(Debug)]
pub struct Overlaps {
    striping: Option<Striping>,
    /// By the request's key.
    ranges: Vec<Option<Range>>,
    counters: Vec<u32>,
    wide: u32,
}

#[derive(Clone, Copy, Debug)]
struct Range {
    target: u8,
    start: u64,
    end: u64,
    changes: bool,
}

impl Overlaps {
    /// Nothing in flight.
    pub fn new(striping: Option<Striping>) -> Self {
        Overlaps {
            striping,
            ranges: Vec::new(),
            counters: vec![0; COUNTERS],
            wide: 0,
        }
    }

    /// Whether a request overlaps one in flight.
    pub fn any(&self, io: &Io) -> bool {
        let Some(range) = self.range(io) else {
            return false;
        };
        let suspect = self.wide > 0
            || match range.chunks() {
                Some(chunks) => chunks.into_iter().any(|chunk| self.counters[chunk] > 0),
                None => true,
            };
        suspect
            && self
                .ranges
                .iter()
                .flatten()
                .any(|other| other.meets(&range))
    }

    /// A request goes into flight.
    pub fn enter(&mut self, key: usize, io: &Io) {
        let Some(range) = self.range(io) else {
            return;
        };
        match range.chunks() {
            Some(chunks) => chunks.for_each(|chunk| self.counters[chunk] += 1),
            None => self.wide += 1,
        }
        if self.ranges.len() <= key {
            self.ranges.resize(key + 1, None);
        }
        self.ranges[key] = Some(range);
    }

    /// It is done.
    pub fn leave(&mut self, key: usize) {
        let Some(range) = self.ranges.get_mut(key).and_then(Option::take) else {
            return;
        };
        match range.chunks() {
            Some(chunks) => chunks.for_each(|chunk| self.counters[chunk] -= 1),
            None => self.wide -= 1,
        }
    }

    /// Ranges of a striped volume are compared there, whether or not they touch one stripe only.
    fn range(&self, io: &Io) -> Option<Range> {
        if io.action == Action::Flush || io.length == 0 {
            return None;
        }
        let (target, start) = match self.striping {
            None => (io.target, io.offset),
            Some(_) if io.target == Io::STRIPED => (Io::STRIPED, io.offset),
            Some(striping) => (Io::STRIPED, striping.position(io)),
        };
        Some(Range {
            target,
            start,
            end: start.saturating_add(io.length),
            changes: io.action != Action::Read,
        })
    }
}

impl Range {
    fn meets(&self, other: &Range) -> bool {
        self.target == other.target
            && self.start < other.end
            && other.start < self.end
            && (self.changes || other.changes)
    }

    /// Counters of the chunks that it touches; `None` when these are too many.
    fn chunks(self) -> Option<impl Iterator<Item = usize>> {
        let (first, last) = (self.start / CHUNK_BYTES, (self.end - 1) / CHUNK_BYTES);
        let target = u64::from(self.target) << 52;
        let counter = move |chunk: u64| {
            let hash = (chunk ^ target).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            usize::try_from(hash >> 52).unwrap_or(0) % COUNTERS
        };
        (last - first < MOST_CHUNKS).then(|| (first..=last).map(counter))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn io(action: Action, target: u8, offset: u64, length: u64) -> Io {
        Io {
            action,
            target,
            offset,
            length,
            ..Io::default()
        }
    }

    #[test]
    fn only_what_changes_data_on_the_same_bytes_counts() {
        let mut overlaps = Overlaps::new(None);
        overlaps.enter(3, &io(Action::Read, 0, 4_096, 4_096));
        assert!(!overlaps.any(&io(Action::Read, 0, 4_096, 4_096)));
        assert!(overlaps.any(&io(Action::Write, 0, 8_191, 1)));
        assert!(!overlaps.any(&io(Action::Write, 0, 8_192, 1)));
        assert!(!overlaps.any(&io(Action::Write, 1, 4_096, 4_096)));
        assert!(overlaps.any(&io(Action::Discard, 0, 0, 1 << 40)));
        assert!(!overlaps.any(&io(Action::Flush, 0, 0, 0)));
        overlaps.leave(3);
        overlaps.leave(3);
        assert!(!overlaps.any(&io(Action::Write, 0, 4_096, 4_096)));
        overlaps.enter(0, &io(Action::Discard, 0, 0, 1 << 40));
        assert!(overlaps.any(&io(Action::Read, 0, 1 << 39, 1)));
        overlaps.leave(0);
        assert!(!overlaps.any(&io(Action::Read, 0, 1 << 39, 1)));
    }

    #[test]
    fn on_stripes_a_part_of_one_meets_the_whole() {
        let striping = Striping {
            stripe_bytes: 4_096,
            targets: 2,
        };
        let mut overlaps = Overlaps::new(Some(striping));
        overlaps.enter(0, &io(Action::Write, Io::STRIPED, 4_096, 8_192));
        // The second stripe is the first of the second target.
        assert!(overlaps.any(&io(Action::Read, 1, 0, 4_096)));
        assert!(overlaps.any(&io(Action::Read, 0, 4_096, 512)));
        assert!(!overlaps.any(&io(Action::Read, 0, 0, 4_096)));
        assert!(!overlaps.any(&io(Action::Read, 1, 4_096, 4_096)));
    }

    proptest! {
        #[test]
        fn found_as_by_comparing_all(
            requests in prop::collection::vec((0u64..1 << 23, 1u64..1 << 22, any::<bool>()), 1..60),
        ) {
            let mut overlaps = Overlaps::new(None);
            let mut in_flight: Vec<(usize, u64, u64, bool)> = Vec::new();
            for (key, (offset, length, write)) in requests.into_iter().enumerate() {
                let action = if write { Action::Write } else { Action::Read };
                let io = io(action, 0, offset, length);
                let expected = in_flight.iter().any(|&(_, start, end, changes)| {
                    start < offset + length && offset < end && (changes || write)
                });
                prop_assert_eq!(overlaps.any(&io), expected);
                overlaps.enter(key, &io);
                in_flight.push((key, offset, offset + length, write));
                if in_flight.len() > 8 {
                    overlaps.leave(in_flight.remove(key % 8).0);
                }
            }
        }
    }
}
