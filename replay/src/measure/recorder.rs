//! Takes completions, and cuts the run into slices of time.

use std::io;

use super::collector::{Collector, Slice, Totals};
use super::run_log::RunLog;
use crate::engine::Action;
use crate::tokens::Area;

/// Intervals kept before the following ones become twice as long, so that a run of any length
/// takes bounded memory.
const INTERVALS_PER_LENGTH: u64 = 100_000;

/// Records the requests that count.
#[derive(Debug)]
pub struct Recorder {
    collector: Collector,
    slice: Slice,
    interval_ns: u64,
    slice_end_ns: u64,
    closed: u64,
}

impl Recorder {
    /// A recorder of intervals of this length. It begins with [`Recorder::restart`].
    ///
    /// # Errors
    /// When its thread cannot be started.
    pub fn new(interval_ns: u64, log: Option<RunLog>) -> io::Result<Self> {
        Ok(Recorder {
            collector: Collector::start(log)?,
            slice: Slice::default(),
            interval_ns: interval_ns.max(1),
            slice_end_ns: u64::MAX,
            closed: 0,
        })
    }

    /// The first interval begins, before anything is recorded.
    pub fn restart(&mut self, area: Area) {
        self.begin_slice(area);
    }

    /// When the current interval ends. [`Recorder::close_intervals`] is due then.
    pub fn interval_end_ns(&self) -> u64 {
        self.slice_end_ns
    }

    /// A request that succeeded; `lag_ns` in an open loop.
    #[inline]
    pub fn succeeded(&mut self, action: Action, bytes: u64, service_ns: u64, lag_ns: Option<u64>) {
        self.slice.ops[action.index()].succeeded(bytes, service_ns, lag_ns);
    }

    /// A request that failed.
    pub fn failed(&mut self, action: Action) {
        self.slice.ops[action.index()].requests += 1;
    }

    /// Closes the intervals that have ended by a time; `area` gives the tokens' sums at any time.
    pub fn close_intervals(&mut self, now_ns: u64, area: impl Fn(u64) -> Area) {
        while now_ns >= self.slice_end_ns {
            self.close(area(self.slice_end_ns));
        }
    }

    /// Closes everything at the end of the run.
    ///
    /// # Errors
    /// When the thread that adds up has died.
    pub fn finish(mut self, end: Area) -> io::Result<Totals> {
        let requests: u64 = self.slice.ops.iter().map(|record| record.requests).sum();
        if requests > 0 || end.at_ns > self.slice.start.at_ns {
            self.close(end);
        }
        self.collector.finish()
    }

    fn close(&mut self, area: Area) {
        self.slice.end = area;
        self.collector.take(&mut self.slice);
        self.closed += 1;
        if self.closed.is_multiple_of(INTERVALS_PER_LENGTH) {
            self.interval_ns = self.interval_ns.saturating_mul(2);
        }
        self.begin_slice(area);
    }

    fn begin_slice(&mut self, area: Area) {
        self.slice.start = area;
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

    fn recorder(interval_ns: u64, start: Area) -> Recorder {
        let mut recorder = Recorder::new(interval_ns, None).unwrap();
        recorder.restart(start);
        recorder
    }

    #[test]
    fn completions_fall_into_the_interval_of_their_time() {
        let mut recorder = recorder(100, two(1_000));
        recorder.succeeded(Action::Read, 4_096, 50, None);
        recorder.failed(Action::Write);
        recorder.close_intervals(1_099, two);
        recorder.succeeded(Action::Flush, 0, 70, None);
        recorder.close_intervals(1_310, two);
        recorder.succeeded(Action::Discard, 1 << 20, 10, None);
        let Totals { ops, intervals } = recorder.finish(two(1_320)).unwrap();
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
        assert_eq!(intervals[0].response_ns, intervals[0].service_ns);
        assert_eq!((intervals[1].service_ns, intervals[0].lag_ns), (None, None));
        let totals = |action: Action| {
            let record = &ops[action.index()];
            (record.requests, record.bytes, record.all_service().count())
        };
        assert_eq!(totals(Action::Read), (1, 4_096, 1));
        assert_eq!(totals(Action::Write), (1, 0, 0));
        assert_eq!(totals(Action::Discard), (1, 1 << 20, 1));
    }

    #[test]
    fn response_is_lag_and_service_and_sizes_are_apart() {
        let mut recorder = recorder(100, two(0));
        recorder.succeeded(Action::Read, 4_096, 50, Some(7));
        recorder.close_intervals(100, two);
        recorder.succeeded(Action::Read, 65_536, 80, Some(0));
        let Totals { ops, intervals } = recorder.finish(two(150)).unwrap();
        let max = |latency: Option<crate::result::Latency>| latency.unwrap().max;
        assert_eq!(max(intervals[0].service_ns), 50);
        assert_eq!(max(intervals[0].response_ns), 57);
        assert_eq!(max(intervals[0].lag_ns), 7);
        assert_eq!(max(intervals[1].response_ns), 80);
        let reads = &ops[Action::Read.index()];
        let sizes: Vec<u64> = reads.service.iter().map(|class| class.count()).collect();
        assert_eq!(sizes, [1, 0, 0, 0, 1, 0, 0, 0, 0, 0]);
        assert_eq!((reads.lag.count(), reads.response.count()), (2, 2));
    }

    #[test]
    fn intervals_grow_instead_of_filling_memory() {
        let mut recorder = recorder(1, two(0));
        recorder.close_intervals(100_010, two);
        let intervals = recorder.finish(two(100_010)).unwrap().intervals;
        assert_eq!(intervals.len(), 100_005);
        assert_eq!(intervals[100_004].elapsed_ns, 100_010);
    }
}
