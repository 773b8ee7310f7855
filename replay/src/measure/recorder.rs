//! Takes completions and turns them into totals and a series of intervals.

use super::Latencies;
use crate::engine::Action;
use crate::result::Interval;
use crate::tokens::Area;

/// Intervals kept before the following ones become twice as long, so that a run of any length
/// takes bounded memory.
const INTERVALS_PER_LENGTH: usize = 100_000;

/// One operation's figures.
#[derive(Debug, Default)]
pub struct OpRecord {
    /// Service times of those that succeeded.
    pub service: Latencies,
    /// Requests, failed ones included.
    pub requests: u64,
    /// Bytes of those that succeeded.
    pub bytes: u64,
    slice: Latencies,
}

/// Records the requests that count.
#[derive(Debug)]
pub struct Recorder {
    ops: [OpRecord; Action::ALL.len()],
    intervals: Vec<Interval>,
    interval_ns: u64,
    start_ns: u64,
    slice_end_ns: u64,
    slice_requests: u64,
    slice_bytes: u64,
    slice_area: Area,
}

impl Recorder {
    /// Begins to record at a time, with intervals of this length.
    pub fn new(interval_ns: u64, area: Area) -> Self {
        let interval_ns = interval_ns.max(1);
        Recorder {
            ops: Default::default(),
            intervals: Vec::new(),
            interval_ns,
            start_ns: area.at_ns,
            slice_end_ns: area.at_ns.saturating_add(interval_ns),
            slice_requests: 0,
            slice_bytes: 0,
            slice_area: area,
        }
    }

    /// When the current interval ends. [`Recorder::close_intervals`] is due then.
    pub fn interval_end_ns(&self) -> u64 {
        self.slice_end_ns
    }

    /// A request that succeeded.
    #[inline]
    pub fn succeeded(&mut self, action: Action, bytes: u64, service_ns: u64) {
        let record = &mut self.ops[action.index()];
        record.requests += 1;
        record.bytes += bytes;
        record.slice.record(service_ns);
        self.slice_requests += 1;
        if matches!(action, Action::Read | Action::Write) {
            self.slice_bytes += bytes;
        }
    }

    /// A request that failed.
    pub fn failed(&mut self, action: Action) {
        self.ops[action.index()].requests += 1;
        self.slice_requests += 1;
    }

    /// Closes the intervals that have ended by a time; `area` gives the tokens' sums at any time.
    pub fn close_intervals(&mut self, now_ns: u64, area: impl Fn(u64) -> Area) {
        while now_ns >= self.slice_end_ns {
            self.close(area(self.slice_end_ns));
        }
    }

    /// Closes everything at the end of the run.
    pub fn finish(mut self, end: Area) -> ([OpRecord; Action::ALL.len()], Vec<Interval>) {
        if self.slice_requests > 0 || end.at_ns > self.slice_area.at_ns {
            self.close(end);
        }
        (self.ops, self.intervals)
    }

    fn close(&mut self, area: Area) {
        let mut all = Latencies::default();
        for record in &mut self.ops {
            record.service.add(&record.slice);
            all.add(&record.slice);
            record.slice.clear();
        }
        self.intervals.push(Interval {
            elapsed_ns: area.at_ns.saturating_sub(self.start_ns),
            requests: std::mem::take(&mut self.slice_requests),
            bytes: std::mem::take(&mut self.slice_bytes),
            outstanding_mean: area.since(self.slice_area).mean(),
            service_ns: all.figures(),
        });
        if self.intervals.len().is_multiple_of(INTERVALS_PER_LENGTH) {
            self.interval_ns = self.interval_ns.saturating_mul(2);
        }
        self.slice_area = area;
        self.slice_end_ns = area.at_ns.saturating_add(self.interval_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two operations outstanding all the time.
    fn two(at_ns: u64) -> Area {
        Area {
            at_ns,
            token_ns: u128::from(at_ns) * 2,
            at_cap_ns: 0,
        }
    }

    #[test]
    fn completions_fall_into_the_interval_of_their_time() {
        let mut recorder = Recorder::new(100, two(1_000));
        recorder.succeeded(Action::Read, 4_096, 50);
        recorder.failed(Action::Write);
        recorder.close_intervals(1_099, two);
        recorder.succeeded(Action::Flush, 0, 70);
        recorder.close_intervals(1_310, two);
        recorder.succeeded(Action::Discard, 1 << 20, 10);
        let (ops, intervals) = recorder.finish(two(1_320));
        let slices: Vec<_> = intervals
            .iter()
            .map(|i| (i.elapsed_ns, i.requests, i.bytes))
            .collect();
        assert_eq!(
            slices,
            [(100, 3, 4_096), (200, 0, 0), (300, 0, 0), (320, 1, 0)]
        );
        assert!(
            intervals
                .iter()
                .all(|i| (i.outstanding_mean - 2.0).abs() < 1e-9)
        );
        assert_eq!(intervals[0].service_ns.unwrap().max, 70);
        assert_eq!(intervals[1].service_ns, None);
        let totals = |action: Action| {
            let record = &ops[action.index()];
            (record.requests, record.bytes, record.service.count())
        };
        assert_eq!(totals(Action::Read), (1, 4_096, 1));
        assert_eq!(totals(Action::Write), (1, 0, 0));
        assert_eq!(totals(Action::Discard), (1, 1 << 20, 1));
    }

    #[test]
    fn intervals_grow_instead_of_filling_memory() {
        let mut recorder = Recorder::new(1, two(0));
        recorder.close_intervals(100_010, two);
        let (_, intervals) = recorder.finish(two(100_010));
        assert_eq!(intervals.len(), 100_005);
        assert_eq!(intervals[100_004].elapsed_ns, 100_010);
    }
}
