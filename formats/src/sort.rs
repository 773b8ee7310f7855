//! Bounded sorting: requests that come almost in the order of their times leave in that order.
//!
//! Other tools' files are often sorted by completion, or merged from several processors. A request
//! waits until one comes that is a window later, or until too many wait. One that comes later still
//! leaves at once and is counted: it is kept, only its place in the tape is not its own.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::request::Request;

/// Sorts by time within a window.
#[derive(Debug)]
pub struct TimeSorter {
    waiting: BinaryHeap<Reverse<Waiting>>,
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
            waiting: BinaryHeap::new(),
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
        self.latest_ns = self.latest_ns.max(request.time_ns);
        let waiting = Waiting {
            time_ns: request.time_ns,
            arrival: self.arrivals,
            request,
        };
        self.arrivals += 1;
        self.waiting.push(Reverse(waiting));
    }

    /// The next request whose turn has come.
    pub fn pop(&mut self) -> Option<Request> {
        let Reverse(first) = self.waiting.peek()?;
        let waited = self.latest_ns.saturating_sub(first.time_ns);
        if waited < self.window_ns && self.waiting.len() <= self.capacity {
            return None;
        }
        self.leave()
    }

    /// The next request, whether its turn has come or not: for the end of the input.
    pub fn leave(&mut self) -> Option<Request> {
        let Reverse(first) = self.waiting.pop()?;
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
        self.waiting.len()
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
