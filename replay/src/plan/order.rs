//! Puts rows into the order of their times, within a bounded window.
//!
//! Tapes are almost in order: a recorder lets a request go after a second at most, and an importer
//! takes what it is given. Rows wait until twice a window of them is there; then they are sorted
//! and the first half leaves. A sort that finds runs in order costs next to nothing where nothing
//! is to be done.

use crate::source::Row;

/// Rows that wait for earlier ones.
pub const WINDOW_ROWS: usize = 65_536;

/// See the module.
#[derive(Debug, Default)]
pub struct Order {
    waiting: Vec<Row>,
    /// How many of the rows at the front are to leave.
    leaving: usize,
    latest_ns: u64,
    left_to_ns: u64,
    sorted: bool,
    tally: Disorder,
}

/// How far the rows were from the order of their times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disorder {
    /// Rows that stand behind a later one.
    pub displaced: u64,
    /// Those that came too late to be put where they belong.
    pub late: u64,
}

impl Disorder {
    /// Adds what another pass found.
    pub fn add(&mut self, other: Disorder) {
        self.displaced += other.displaced;
        self.late += other.late;
    }
}

impl Order {
    /// Takes a row.
    #[inline]
    pub fn push(&mut self, row: Row) {
        if row.time_ns < self.latest_ns {
            self.tally.displaced += 1;
            self.sorted = false;
        }
        self.latest_ns = self.latest_ns.max(row.time_ns);
        self.waiting.push(row);
    }

    /// The rows that are to leave now, in order; none while too few wait. They are gone once
    /// [`Order::left`] is called. At the end of the input all leave.
    pub fn leave(&mut self, at_end: bool) -> &mut [Row] {
        let count = self.waiting.len();
        if !at_end && count < 2 * WINDOW_ROWS {
            return &mut [];
        }
        if !self.sorted {
            self.waiting.sort_by_key(|row| row.time_ns);
            self.sorted = true;
        }
        self.leaving = if at_end { count } else { count - WINDOW_ROWS };
        let leaving = &mut self.waiting[..self.leaving];
        let late = leaving.partition_point(|row| row.time_ns < self.left_to_ns);
        self.tally.late += late as u64;
        // What has missed its place is as late as what it stands behind, not later.
        for row in &mut leaving[..late] {
            row.time_ns = self.left_to_ns;
        }
        leaving
    }

    /// Forgets the rows of [`Order::leave`].
    pub fn left(&mut self) {
        let last = self.waiting[..self.leaving].last();
        self.left_to_ns = last.map_or(self.left_to_ns, |row| row.time_ns);
        self.waiting.drain(..self.leaving);
        self.leaving = 0;
    }

    /// What was found.
    pub fn disorder(&self) -> Disorder {
        self.tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that leaves, in blocks of a thousand.
    fn sort(order: &mut Order, times: impl Iterator<Item = u64>) -> Vec<u64> {
        let mut out = Vec::new();
        let mut leave = |order: &mut Order, at_end| {
            out.extend(order.leave(at_end).iter().map(|row| row.time_ns));
            order.left();
        };
        for (n, time_ns) in times.enumerate() {
            order.push(Row {
                time_ns,
                ..Row::default()
            });
            if n % 1_000 == 999 {
                leave(order, false);
            }
        }
        leave(order, true);
        out
    }

    #[test]
    fn what_is_in_order_stays_and_is_not_counted() {
        let mut order = Order::default();
        let times: Vec<u64> = (0..300_000).map(|n| n / 3).collect();
        assert_eq!(sort(&mut order, times.iter().copied()), times);
        assert_eq!(order.disorder(), Disorder::default());
    }

    #[test]
    fn the_order_is_restored_within_the_window() {
        let mut order = Order::default();
        // Blocks of 60,000 backwards: all but the first row of each stand behind a later one.
        let times = (0..300_000u64).map(|n| n / 60_000 * 60_000 + 59_999 - n % 60_000);
        assert_eq!(sort(&mut order, times), (0..300_000).collect::<Vec<u64>>());
        let expected = Disorder {
            displaced: 300_000 - 5,
            late: 0,
        };
        assert_eq!(order.disorder(), expected);
    }

    #[test]
    fn what_comes_too_late_is_due_at_once_and_counted() {
        let mut order = Order::default();
        let times = (1_000..301_000u64).chain([5, 400_000]);
        let out = sort(&mut order, times);
        assert!(out.is_sorted());
        assert_eq!((out.len(), out[0]), (300_002, 1_000));
        let expected = Disorder {
            displaced: 1,
            late: 1,
        };
        assert_eq!(order.disorder(), expected);
    }
}
