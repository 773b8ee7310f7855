//! Items of several processors into the order of their times.
//!
//! perf reads the rings of all processors in turn and then says that a round is over. What comes two
//! rounds later is not older than anything in this one: when a round ends, what is not newer than the
//! newest of the round before can go.
//!
//! A file without such marks, or with rounds longer than [`MAX_WAITING`] items, gives the oldest as soon
//! as so many wait; one that is older than what has gone is counted.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Most items that wait.
const MAX_WAITING: usize = 1 << 19;

/// Sorts items by time.
#[derive(Debug)]
pub(super) struct Rounds<T> {
    waiting: BinaryHeap<Reverse<Waiting<T>>>,
    arrivals: u64,
    newest: u64,
    newest_before: u64,
    /// Up to when items may go.
    until: Option<u64>,
    gone_to: u64,
    /// Items that came after newer ones had gone.
    pub late: u64,
}

#[derive(Debug)]
struct Waiting<T> {
    time: u64,
    arrival: u64,
    item: T,
}

impl<T> PartialEq for Waiting<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for Waiting<T> {}

impl<T> PartialOrd for Waiting<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Waiting<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.time, self.arrival).cmp(&(other.time, other.arrival))
    }
}

impl<T> Rounds<T> {
    pub fn new() -> Rounds<T> {
        Rounds {
            waiting: BinaryHeap::new(),
            arrivals: 0,
            newest: 0,
            newest_before: 0,
            until: None,
            gone_to: 0,
            late: 0,
        }
    }

    /// Takes an item; without a time, one of now.
    pub fn push(&mut self, time: Option<u64>, item: T) {
        let time = time.unwrap_or(self.newest);
        self.late += u64::from(time < self.gone_to);
        self.newest = self.newest.max(time);
        self.waiting.push(Reverse(Waiting {
            time,
            arrival: self.arrivals,
            item,
        }));
        self.arrivals += 1;
    }

    /// A round is over.
    pub fn end_round(&mut self) {
        self.until = Some(self.newest_before);
        self.newest_before = self.newest;
    }

    /// No more items come.
    pub fn end(&mut self) {
        self.until = Some(u64::MAX);
    }

    /// The next item that may go.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        let first = &self.waiting.peek()?.0;
        let may_go = self.until.is_some_and(|until| first.time <= until);
        if !may_go && self.waiting.len() <= MAX_WAITING {
            return None;
        }
        self.gone_to = self.gone_to.max(first.time);
        self.waiting.pop().map(|Reverse(waiting)| waiting.item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(rounds: &mut Rounds<u64>) -> Vec<u64> {
        std::iter::from_fn(|| rounds.pop()).collect()
    }

    #[test]
    fn a_round_later_all_that_is_not_newer_goes() {
        let mut rounds = Rounds::new();
        for time in [5, 9, 1, 7] {
            rounds.push(Some(time), time);
        }
        rounds.end_round();
        assert!(all(&mut rounds).is_empty());
        for time in [8, 12, 10] {
            rounds.push(Some(time), time);
        }
        rounds.end_round();
        assert_eq!(all(&mut rounds), [1, 5, 7, 8, 9]);
        rounds.push(Some(2), 2);
        rounds.push(None, 100);
        rounds.end();
        assert_eq!(all(&mut rounds), [2, 10, 12, 100]);
        assert_eq!(rounds.late, 1);
    }

    #[test]
    fn without_rounds_so_many_wait() {
        let mut rounds = Rounds::new();
        for time in 0..MAX_WAITING as u64 + 3 {
            rounds.push(Some(time), time);
        }
        assert_eq!(all(&mut rounds), [0, 1, 2]);
    }
}
