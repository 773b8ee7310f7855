//! Bounded time ordering of what is known only once it is done: a source that pairs by itself hands
//! over whole requests in the order in which they were done.
//!
//! They wait in slices of time, by when they began, for as long as an earlier one may still turn up:
//! at most `hold_ns`. A slice then leaves sorted. What turns up after its slice has left is *late*; it
//! leaves at once.

use std::collections::VecDeque;

/// Width of a slice: 4.2 ms.
const SLICE_SHIFT: u32 = 22;

/// Items that wait for earlier ones.
#[derive(Debug)]
pub struct Arrivals<T> {
    slices: VecDeque<Vec<(u64, T)>>,
    /// Number of the first slice.
    first: u64,
    /// What turned up after its slice had left.
    late: Vec<(u64, T)>,
    waiting: usize,
    capacity: usize,
    hold_ns: u64,
    /// Emptied slices, to be used again.
    used: Vec<Vec<(u64, T)>>,
}

impl<T> Arrivals<T> {
    /// Items wait for `hold_ns` at most, and about `capacity` of them: above it, the oldest leave.
    pub fn new(hold_ns: u64, capacity: usize) -> Arrivals<T> {
        Arrivals {
            slices: VecDeque::new(),
            first: 0,
            late: Vec::new(),
            waiting: 0,
            capacity,
            hold_ns,
            used: Vec::new(),
        }
    }

    /// Takes an item that began at `time_ns`, which is not later than `now_ns` of the next
    /// [`Arrivals::release`].
    pub fn add(&mut self, time_ns: u64, item: T) {
        let slice = time_ns >> SLICE_SHIFT;
        if self.slices.is_empty() && self.first == 0 {
            // Earlier ones may still turn up.
            self.first = slice.saturating_sub(self.slices_held());
        }
        let Some(index) = slice.checked_sub(self.first) else {
            self.late.push((time_ns, item));
            return;
        };
        // A time far ahead is no time of this clock; it must not cost memory.
        let index = index.min(4 * self.slices_held() + 1);
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        while self.slices.len() <= index {
            self.slices.push_back(self.used.pop().unwrap_or_default());
        }
        self.slices[index].push((time_ns, item));
        self.waiting += 1;
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.waiting + self.late.len()
    }

    /// Lets out what need not wait any longer at `now_ns`, in the order of beginning, and returns how
    /// many are late: began before one that had left.
    pub fn release(&mut self, now_ns: u64, out: &mut dyn FnMut(T)) -> u64 {
        self.release_before(now_ns.saturating_sub(self.hold_ns), out)
    }

    /// The same of what began before `until_ns`, if it is known that nothing of that time is missing.
    pub fn release_before(&mut self, until_ns: u64, out: &mut dyn FnMut(T)) -> u64 {
        let late = self.late.len() as u64;
        self.late.sort_by_key(|(time_ns, _)| *time_ns);
        self.late.drain(..).for_each(|(_, item)| out(item));
        let until = until_ns >> SLICE_SHIFT;
        while self.first < until || self.waiting > self.capacity {
            match self.slices.pop_front() {
                Some(slice) => self.let_out(slice, out),
                // Nothing waits: the next begins where it will.
                None => {
                    self.first = self.first.max(until);
                    break;
                }
            }
        }
        late
    }

    /// Lets out everything.
    pub fn finish(&mut self, out: &mut dyn FnMut(T)) -> u64 {
        self.release(u64::MAX, out)
    }

    fn let_out(&mut self, mut slice: Vec<(u64, T)>, out: &mut dyn FnMut(T)) {
        self.first += 1;
        self.waiting -= slice.len();
        slice.sort_unstable_by_key(|(time_ns, _)| *time_ns);
        slice.drain(..).for_each(|(_, item)| out(item));
        // As many as are ever filled at once; the room of a burst is given back.
        let usual = 4 * (self.capacity as u64 / self.slices_held() + 1);
        if (self.used.len() as u64) < self.slices_held() && slice.capacity() as u64 <= usual {
            self.used.push(slice);
        }
    }

    fn slices_held(&self) -> u64 {
        (self.hold_ns >> SLICE_SHIFT) + 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn released(arrivals: &mut Arrivals<u64>, now_ns: u64) -> (Vec<u64>, u64) {
        let mut out = Vec::new();
        let late = arrivals.release(now_ns, &mut |item| out.push(item));
        (out, late)
    }

    #[test]
    fn what_arrives_in_the_order_of_ends_leaves_in_that_of_beginnings() {
        let mut arrivals = Arrivals::new(1000 * MS, 100);
        for time_ms in [50, 20, 900, 20, 700] {
            arrivals.add(time_ms * MS, time_ms);
        }
        assert_eq!(released(&mut arrivals, 950 * MS), (vec![], 0));
        assert_eq!(released(&mut arrivals, 1100 * MS), (vec![20, 20, 50], 0));
        arrivals.add(400 * MS, 400);
        let mut out = Vec::new();
        assert_eq!(arrivals.finish(&mut |item| out.push(item)), 0);
        assert_eq!(out, [400, 700, 900]);
    }

    #[test]
    fn what_is_complete_leaves_at_once() {
        let mut arrivals = Arrivals::new(1000 * MS, 100);
        for time_ms in [50, 20, 40, 30] {
            arrivals.add(time_ms * MS, time_ms);
        }
        let mut out = Vec::new();
        // Slices are 4.2 ms wide.
        assert_eq!(
            arrivals.release_before(41 * MS, &mut |item| out.push(item)),
            0
        );
        assert_eq!(out, [20, 30]);
        assert_eq!(arrivals.waiting(), 2);
        assert_eq!(
            arrivals.release_before(60 * MS, &mut |item| out.push(item)),
            0
        );
        assert_eq!(out, [20, 30, 40, 50]);
    }

    #[test]
    fn nothing_waits_longer_than_it_may_and_what_comes_later_is_late() {
        let mut arrivals = Arrivals::new(100 * MS, 100);
        arrivals.add(1000 * MS, 1000);
        // A slice leaves when all of it has waited.
        assert_eq!(released(&mut arrivals, 1105 * MS), (vec![1000], 0));
        arrivals.add(700 * MS, 700);
        arrivals.add(600 * MS, 600);
        arrivals.add(1101 * MS, 1101);
        assert_eq!(released(&mut arrivals, 1110 * MS), (vec![600, 700], 2));
        assert_eq!(released(&mut arrivals, 1300 * MS), (vec![1101], 0));
    }

    #[test]
    fn more_than_the_capacity_do_not_wait() {
        let mut arrivals = Arrivals::new(1000 * MS, 2);
        for time_ms in [10, 20, 30] {
            arrivals.add(time_ms * MS, time_ms);
        }
        assert_eq!(released(&mut arrivals, 30 * MS), (vec![10], 0));
    }

    #[test]
    fn a_time_far_ahead_costs_no_memory() {
        let mut arrivals = Arrivals::new(1000 * MS, 100);
        arrivals.add(10 * MS, 1);
        arrivals.add(u64::MAX, 2);
        assert!(arrivals.slices.len() < 2000);
        let mut out = Vec::new();
        arrivals.finish(&mut |item| out.push(item));
        assert_eq!(out, [1, 2]);
    }
}
