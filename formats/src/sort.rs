//! Bounded sorting: requests that come almost in the order of their times leave in that order.
//!
//! Other tools' files are often sorted by completion, or merged from several processors. A request
//! waits until one comes that is a window later, or until too many wait. One that comes later still
//! leaves at once and is counted: it is kept, only its place in the tape is not its own.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::request::Request;

/// How many places from the end a request is still put into its place by moving the others.
const NEAR: usize = 32;

/// Sorts by time within a window.
///
/// Most requests come in order but for the few that were outstanding together: these are put into
/// their place near the end of a queue. The others wait in a heap, where each costs more.
#[derive(Debug)]
pub struct TimeSorter {
    /// In order.
    queue: VecDeque<Waiting>,
    far: BinaryHeap<Reverse<Waiting>>,
    window_ns: u64,
    capacity: usize,
    arrivals: u64,
    latest_ns: u64,
    left_to_ns: u64,
    late: u64,
}

/// Ordered by time, then by arrival.
#[derive(Debug, PartialEq, Eq)]
struct Waiting {
    time_ns: u64,
    arrival: u64,
    request: Request,
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.time_ns, self.arrival).cmp(&(other.time_ns, other.arrival))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl TimeSorter {
    /// A sorter in which a request waits for others up to `window_ns` later, and in which at most
    /// `capacity` requests wait.
    pub fn new(window_ns: u64, capacity: usize) -> TimeSorter {
        TimeSorter {
            queue: VecDeque::new(),
            far: BinaryHeap::new(),
            window_ns,
            capacity,
            arrivals: 0,
            latest_ns: 0,
            left_to_ns: 0,
            late: 0,
        }
    }

    /// Takes a request. [`TimeSorter::pop`] may have some to give afterwards.
    pub fn push(&mut self, request: Request) {
        let time_ns = request.time_ns;
        self.latest_ns = self.latest_ns.max(time_ns);
        let waiting = Waiting {
            time_ns,
            arrival: self.arrivals,
            request,
        };
        self.arrivals += 1;
        let later = self.queue.iter().rev().take(NEAR + 1);
        match later.take_while(|other| other.time_ns > time_ns).count() {
            0 => self.queue.push_back(waiting),
            later if later <= NEAR => self.queue.insert(self.queue.len() - later, waiting),
            _ => self.far.push(Reverse(waiting)),
        }
    }

    /// The next request whose turn has come.
    pub fn pop(&mut self) -> Option<Request> {
        let first = self.queue.front().into_iter();
        let far = self.far.peek().map(|Reverse(far)| far);
        let first_ns = first.chain(far).map(|waiting| waiting.time_ns).min()?;
        let waited = self.latest_ns.saturating_sub(first_ns);
        if waited < self.window_ns && self.waiting() <= self.capacity {
            return None;
        }
        self.leave()
    }

    /// The next request, whether its turn has come or not: for the end of the input.
    pub fn leave(&mut self) -> Option<Request> {
        let first = match (self.queue.front(), self.far.peek()) {
            (Some(near), Some(Reverse(far))) if far < near => self.far.pop().map(|first| first.0),
            (None, _) => self.far.pop().map(|first| first.0),
            _ => self.queue.pop_front(),
        }?;
        if first.time_ns < self.left_to_ns {
            self.late += 1;
        }
        self.left_to_ns = self.left_to_ns.max(first.time_ns);
        Some(first.request)
    }

    /// Requests that left after a later one.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        self.queue.len() + self.far.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sort(window_ns: u64, capacity: usize, times: &[u64]) -> (Vec<u64>, u64) {
        let mut sorter = TimeSorter::new(window_ns, capacity);
        let mut out = Vec::new();
        for time_ns in times {
            sorter.push(Request {
                time_ns: *time_ns,
                ..Request::default()
            });
            out.extend(std::iter::from_fn(|| sorter.pop()).map(|request| request.time_ns));
        }
        out.extend(std::iter::from_fn(|| sorter.leave()).map(|request| request.time_ns));
        (out, sorter.late())
    }

    #[test]
    fn within_the_window_the_order_is_restored() {
        assert_eq!(
            sort(100, 9, &[50, 20, 80, 10, 130, 120]),
            (vec![10, 20, 50, 80, 120, 130], 0)
        );
    }

    #[test]
    fn beyond_the_window_a_request_is_kept_and_counted() {
        // 50 leaves when 150 comes; 40 is too late for its place.
        assert_eq!(sort(100, 9, &[50, 150, 40]), (vec![50, 40, 150], 1));
    }

    #[test]
    fn no_more_than_the_capacity_waits() {
        // The third arrival pushes out the least of three: 2, then 1 is late.
        assert_eq!(sort(1000, 2, &[3, 2, 4, 1]), (vec![2, 1, 3, 4], 1));
    }

    /// Near and far disorder, and equal times: as a stable sort has them.
    #[test]
    fn any_order_within_the_window_is_a_stable_sort() {
        let mut state = 1u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (state >> 33) % below
        };
        for spread in [1, 10, 100, 1000, 100_000] {
            let mut sorter = TimeSorter::new(u64::MAX, usize::MAX);
            let mut expected: Vec<(u64, u64)> = (0..5000)
                .map(|number| (number * 10 + random(spread), number))
                .collect();
            for (time_ns, number) in &expected {
                sorter.push(Request {
                    time_ns: *time_ns,
                    offset_bytes: *number,
                    ..Request::default()
                });
            }
            expected.sort();
            let sorted = std::iter::from_fn(|| sorter.leave());
            let sorted: Vec<(u64, u64)> = sorted
                .map(|request| (request.time_ns, request.offset_bytes))
                .collect();
            assert!(sorted == expected, "{spread}");
            assert_eq!(sorter.late(), 0);
        }
    }

    #[test]
    fn equal_times_keep_their_order() {
        let mut sorter = TimeSorter::new(100, 9);
        for offset_bytes in [7, 3, 5] {
            sorter.push(Request {
                offset_bytes,
                ..Request::default()
            });
        }
        let offsets: Vec<u64> = std::iter::from_fn(|| sorter.leave())
            .map(|request| request.offset_bytes)
            .collect();
        assert_eq!(offsets, [7, 3, 5]);
    }
}
