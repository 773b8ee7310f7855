//! Which request waits for which: what a submitter did after it had an answer.
//!
//! A tape does not say why a request was issued. The rule here takes the latest request of the same
//! submitter that had completed by then for the cause, and the time in between for thinking. In
//! other words, a stream of one request at a time becomes a chain, and a stream of several becomes
//! as many chains. What overlaps is independent, and so are submitters.
//!
//! Memory is bounded: so many requests whose completion lies ahead, so many submitters. What is
//! beyond is not depended upon.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use crate::source::Row;

/// Most requests of which the recorded completion lies ahead.
const MAX_OPEN: usize = 65_536;
/// Most submitters; of more, the half that has been silent longest is forgotten.
const MAX_SUBMITTERS: usize = 65_536;
/// Cells that are ever in use: one for each open request and one for each submitter.
pub const CELLS: usize = MAX_OPEN + MAX_SUBMITTERS;

/// When a request is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// Since the start of the run; or since the completion that it waits for.
    pub ns: u64,
    /// The cell of the request that it waits for.
    pub after: Cell,
    /// Where its own completion is kept for others.
    pub own: Cell,
}

/// The place of a completion, below [`CELLS`], which several requests have one after another; or
/// none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell(u32);

impl Cell {
    /// No cell.
    pub const NONE: Cell = Cell(u32::MAX);

    /// Its position; `None` of none.
    #[inline]
    pub fn index(self) -> Option<usize> {
        (self != Cell::NONE)
            .then(|| usize::try_from(self.0).ok())
            .flatten()
    }
}

impl Due {
    /// At a time of the run, whatever else happens.
    #[inline]
    pub fn at(ns: u64) -> Due {
        Due {
            ns,
            after: Cell::NONE,
            own: Cell::NONE,
        }
    }
}

/// Finds for each request the one that it waits for. See the module.
#[derive(Debug)]
pub struct Dependencies {
    /// By recorded completion, then by the order of issue.
    open: BinaryHeap<Reverse<(u64, u64, u64, Cell)>>,
    /// Of each submitter the latest completion.
    latest: HashMap<u64, Latest>,
    free: Vec<Cell>,
    issued: u64,
}

#[derive(Clone, Copy, Debug)]
struct Latest {
    completed_ns: u64,
    cell: Cell,
}

impl Dependencies {
    /// With nothing known.
    pub fn new() -> Self {
        let cells = u32::try_from(CELLS).unwrap_or(0);
        Dependencies {
            open: BinaryHeap::new(),
            latest: HashMap::new(),
            free: (0..cells).rev().map(Cell).collect(),
            issued: 0,
        }
    }

    /// What a request waits for, and how long after, in the tape's time; `None`: it is due at its
    /// own time. To be asked of every request that is replayed, in the order of their times.
    pub fn of(&mut self, row: &Row) -> (Option<(Cell, u64)>, Cell) {
        self.complete(row.time_ns);
        let submitter = submitter(row);
        let after = self.latest.get(&submitter).map(|latest| {
            let think_ns = row.time_ns.saturating_sub(latest.completed_ns);
            (latest.cell, think_ns)
        });
        (after, self.open(row, submitter))
    }

    /// Another pass begins: requests of it wait for none of the one before.
    pub fn rewind(&mut self) {
        *self = Dependencies::new();
    }

    /// Takes what had completed by a time for the latest of its submitter.
    fn complete(&mut self, now_ns: u64) {
        while let Some(&Reverse((completed_ns, _, submitter, cell))) = self.open.peek()
            && completed_ns <= now_ns
        {
            self.open.pop();
            let latest = Latest { completed_ns, cell };
            if let Some(before) = self.latest.insert(submitter, latest) {
                self.free.push(before.cell);
            }
            if self.latest.len() > MAX_SUBMITTERS {
                self.forget_silent();
            }
        }
    }

    /// Keeps a place for a request's completion; [`Cell::NONE`] when its time is not known.
    fn open(&mut self, row: &Row, submitter: u64) -> Cell {
        let Some(latency_ns) = row.latency_ns else {
            return Cell::NONE;
        };
        if self.open.len() >= MAX_OPEN {
            return Cell::NONE;
        }
        let Some(cell) = self.free.pop() else {
            return Cell::NONE;
        };
        self.issued += 1;
        let completed_ns = row.time_ns.saturating_add(latency_ns);
        self.open
            .push(Reverse((completed_ns, self.issued, submitter, cell)));
        cell
    }

    fn forget_silent(&mut self) {
        let mut times: Vec<u64> = self.latest.values().map(|l| l.completed_ns).collect();
        let middle = times.len() / 2;
        let (_, &mut median_ns, _) = times.select_nth_unstable(middle);
        let free = &mut self.free;
        self.latest.retain(|_, latest| {
            let keep = latest.completed_ns > median_ns;
            if !keep {
                free.push(latest.cell);
            }
            keep
        });
    }
}

/// The process, or the device of a request whose process is not known.
fn submitter(row: &Row) -> u64 {
    match row.pid {
        Some(pid) => u64::from(pid),
        None => (1 << 32) | u64::from(row.device.0),
    }
}

#[cfg(test)]
mod tests {
    use iotape_formats::DeviceIndex;

    use super::*;

    fn row(pid: u32, time_ns: u64, latency_ns: impl Into<Option<u64>>) -> Row {
        Row {
            pid: Some(pid),
            time_ns,
            latency_ns: latency_ns.into(),
            ..Row::default()
        }
    }

    #[test]
    fn one_at_a_time_is_a_chain_and_submitters_are_apart() {
        let mut dependencies = Dependencies::new();
        let (after, first) = dependencies.of(&row(1, 100, 50));
        assert_eq!(after, None);
        // Another submitter knows nothing of it.
        assert_eq!(dependencies.of(&row(2, 160, 5)).0, None);
        // Issued at 170, 20 after the completion at 150.
        let (after, second) = dependencies.of(&row(1, 170, 30));
        assert_eq!(after, Some((first, 20)));
        assert_eq!(dependencies.of(&row(1, 200, 1)).0, Some((second, 0)));
    }

    #[test]
    fn what_overlaps_is_independent_and_the_latest_completion_counts() {
        let mut dependencies = Dependencies::new();
        let (_, slow) = dependencies.of(&row(1, 0, 100));
        let (after, fast) = dependencies.of(&row(1, 10, 20));
        assert_eq!(after, None);
        assert_eq!(dependencies.of(&row(1, 40, 1_000)).0, Some((fast, 10)));
        assert_eq!(dependencies.of(&row(1, 110, 1_000)).0, Some((slow, 10)));
    }

    #[test]
    fn without_a_process_the_device_submits_and_without_a_latency_nothing_waits() {
        let mut dependencies = Dependencies::new();
        let on = |device, time_ns, latency_ns| Row {
            device: DeviceIndex(device),
            time_ns,
            latency_ns,
            ..Row::default()
        };
        let (_, first) = dependencies.of(&on(0, 0, Some(10)));
        let (after, none) = dependencies.of(&on(1, 20, None));
        assert_eq!((after, none), (None, Cell::NONE));
        assert_eq!(dependencies.of(&on(1, 30, Some(1))).0, None);
        assert_eq!(dependencies.of(&on(0, 30, Some(1))).0, Some((first, 20)));
    }

    #[test]
    fn memory_is_bounded_by_open_requests_and_submitters() {
        let mut dependencies = Dependencies::new();
        let count = 200_000u32;
        for n in 0..count {
            dependencies.of(&row(n, u64::from(n), 1_000_000_000));
        }
        assert_eq!(dependencies.open.len(), MAX_OPEN);
        // All complete; then as many submitters come and go.
        for n in 0..count {
            dependencies.of(&row(n, 2_000_000_000 + 10 * u64::from(n), 5));
        }
        assert!(dependencies.latest.len() <= MAX_SUBMITTERS);
        // The last one is still known, and no cell is lost.
        let after = dependencies.of(&row(count - 1, 4_000_000_000, 5)).0;
        assert_eq!(after.map(|(_, think_ns)| think_ns), Some(1_998_000_005));
        let used = dependencies.latest.len() + dependencies.open.len();
        assert_eq!(dependencies.free.len() + used, CELLS);
    }
}
