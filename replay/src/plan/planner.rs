//! The thread that reads the tape ahead of the loop.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender};

use fastrand::Rng;
use iotape_formats::Op;

use super::dependency::{Cell, Dependencies, Due};
use super::feed::{BATCH_ROWS, Batch, Outlet, Skip};
use super::order::{Disorder, Order};
use super::rules::{Rules, SkipReason};
use super::timeline::Timeline;

use crate::engine::{Action, Io};
use crate::map::{Mapping, Striping};
use crate::measure::{Latencies, SIZES, size_class};
use crate::options::{Speed, Timing};
use crate::source::{Row, Source, SourceError};

/// Reads a source and makes batches of it.
#[derive(Debug)]
pub struct Planner<'a> {
    /// What becomes of each row.
    pub rules: &'a Rules,
    /// When requests are due.
    pub pacing: Pacing,
    /// Seed of the places in the payload.
    pub seed: u64,
    /// Whether to begin again at the end of the tape.
    pub repeat: bool,
}

/// What makes times of the run of the tape's.
#[derive(Clone, Copy, Debug)]
pub struct Pacing {
    /// The rule.
    pub timing: Timing,
    /// How many times as fast.
    pub speed: Speed,
    /// The time of the tape at which each pass begins; `None`: that of its first request.
    pub origin_ns: Option<u64>,
}

/// What became of the rows that the loop has used.
#[derive(Debug, Default)]
pub struct Tally {
    /// Recorded latencies of the operations that count, per action and class of size.
    pub recorded: [[Latencies; SIZES]; Action::ALL.len()],
    /// Rows left out, and their bytes.
    pub skipped: BTreeMap<(Op, SkipReason), (u64, u64)>,
    /// Submitted operations with a range.
    pub with_range: u64,
    /// Those whose offset the mapping changed.
    pub remapped: u64,
    /// Those that were widened to whole sectors.
    pub widened: u64,
    /// By so many bytes together.
    pub widened_bytes: u64,
    /// Passes over the tape that were begun.
    pub passes: u64,
    /// Submitted requests.
    pub submitted: u64,
    /// The same by action, and their bytes as they stand on the tape.
    pub by_action: [(u64, u64); Action::ALL.len()],
    /// Those that waited for the completion of another.
    pub dependent: u64,
    /// How far the tape was from the order of its times, where that mattered.
    pub disorder: Disorder,
    /// What went to each target, by its index.
    pub targets: Vec<TargetTally>,
    striping: Option<Striping>,
}

/// What was submitted to one target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetTally {
    /// Operations: requests, or parts of them.
    pub operations: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Offsets added up, modulo 2^64.
    pub offset_sum: u64,
}

impl Planner<'_> {
    /// Plans until the tape ends or nobody takes batches any more; then waits for all that are
    /// used. Returns what was used, and why the tape could not be read on.
    pub fn run<S: Source>(
        &self,
        source: &mut S,
        outlet: Outlet,
    ) -> (Tally, Result<(), SourceError>) {
        let Outlet { batches, used } = outlet;
        let mut sink = Sink {
            batches,
            used,
            tally: Tally::new(&self.rules.mapping),
            batch: Batch::default(),
            random: Rng::with_seed(self.seed),
            timeline: Timeline::new(self.pacing.speed, self.pacing.origin_ns),
            dependencies: match self.pacing.timing {
                Timing::Dependent => Some(Dependencies::new()),
                _ => None,
            },
            planned: 0,
        };
        sink.batch.clear();
        let read = self.passes(source, &mut sink);
        // What was planned before the end, or before an error, is still replayed.
        sink.send();
        let Sink {
            batches,
            used,
            mut tally,
            ..
        } = sink;
        drop(batches);
        for batch in used {
            tally.add(&batch);
        }
        (tally, read)
    }

    /// Plans pass after pass, until the tape ends or nobody takes batches any more.
    fn passes<S: Source>(&self, source: &mut S, sink: &mut Sink) -> Result<(), SourceError> {
        let timed = self.pacing.timing.keeps_time();
        source.select_submitters(self.pacing.timing == Timing::Dependent);
        loop {
            source.rewind();
            sink.begin_pass();
            let before = sink.planned;
            let goes_on = if timed {
                self.timed_pass(source, sink)?
            } else {
                self.pass(source, sink)?
            };
            // A tape of which nothing is submitted would be read forever.
            if !goes_on || !self.repeat || sink.planned == before {
                return Ok(());
            }
        }
    }

    /// Plans the rows as they stand on the tape; `false` when nobody takes batches any more.
    fn pass<S: Source>(&self, source: &mut S, sink: &mut Sink) -> Result<bool, SourceError> {
        while let Some(rows) = source.next_block()? {
            for row in 0..rows {
                sink.add(self.rules, &source.row(row));
                if sink.batch.rows() >= BATCH_ROWS && !sink.send() {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Plans the rows in the order of their times; `false` when nobody takes batches any more.
    fn timed_pass<S: Source>(&self, source: &mut S, sink: &mut Sink) -> Result<bool, SourceError> {
        let mut order = Order::default();
        let mut read = Ok(());
        let mut at_end = false;
        while !at_end {
            match source.next_block() {
                Ok(Some(rows)) => (0..rows).for_each(|row| order.push(source.row(row))),
                Ok(None) => at_end = true,
                Err(error) => {
                    at_end = true;
                    read = Err(error);
                }
            }
            for row in order.leave(at_end) {
                sink.add_timed(self.rules, row);
                if sink.batch.rows() >= BATCH_ROWS && !sink.send() {
                    return Ok(false);
                }
            }
            order.left();
        }
        sink.tally.disorder.add(order.disorder());
        read.map(|()| true)
    }
}

struct Sink {
    batches: SyncSender<Batch>,
    used: Receiver<Batch>,
    tally: Tally,
    batch: Batch,
    random: Rng,
    timeline: Timeline,
    dependencies: Option<Dependencies>,
    /// Requests that are to be submitted.
    planned: u64,
}

impl Sink {
    fn begin_pass(&mut self) {
        self.batch.pass_starts.push(self.batch.ios.len());
        self.timeline.next_pass();
        if let Some(dependencies) = &mut self.dependencies {
            dependencies.rewind();
        }
    }

    /// Adds a row, and when it is due if it is to be submitted.
    fn add_timed(&mut self, rules: &Rules, row: &Row) {
        if rules.filter.is_outside(row.time_ns) {
            self.skip(row, SkipReason::OutsideTimes);
            return;
        }
        let at_ns = self.timeline.at(row.time_ns);
        if self.add(rules, row) {
            let due = self.due(row, at_ns);
            self.batch.dues.push(due);
        }
    }

    fn due(&mut self, row: &Row, at_ns: u64) -> Due {
        let Some(dependencies) = &mut self.dependencies else {
            return Due::at(at_ns);
        };
        let (after, own) = dependencies.of(row);
        match after {
            Some((after, think_ns)) => Due {
                ns: self.timeline.scale(think_ns),
                after,
                own,
            },
            None => Due {
                own,
                ..Due::at(at_ns)
            },
        }
    }

    fn skip(&mut self, row: &Row, reason: SkipReason) {
        self.batch.skips.push(Skip {
            before: self.batch.ios.len(),
            op: row.op,
            reason,
            bytes: row.length_bytes,
        });
    }

    /// Adds a row; `true` when it is to be submitted.
    #[inline]
    fn add(&mut self, rules: &Rules, row: &Row) -> bool {
        let batch = &mut self.batch;
        let ios = &mut batch.ios;
        match rules.plan_into(row, &mut self.random, |io| ios.push(io)) {
            Ok(remapped) => {
                if rules.align_bytes > 1 {
                    batch.note_widened(row.length_bytes);
                }
                batch.recorded_ns.push(row.latency_ns);
                batch.remapped.push(remapped);
                self.planned += 1;
                true
            }
            Err(reason) => {
                self.skip(row, reason);
                false
            }
        }
    }

    /// Sends the batch; `false` when nobody takes it. Continues in a used one.
    fn send(&mut self) -> bool {
        let mut next = Batch::default();
        for batch in self.used.try_iter() {
            self.tally.add(&batch);
            next = batch;
        }
        next.clear();
        self.batches
            .send(std::mem::replace(&mut self.batch, next))
            .is_ok()
    }
}

impl Tally {
    fn new(mapping: &Mapping) -> Self {
        Tally {
            targets: vec![TargetTally::default(); mapping.targets()],
            striping: mapping.striping(),
            ..Tally::default()
        }
    }

    /// Of these operations, what was submitted or left out: requests, and bytes.
    pub fn accounted(&self, ops: &[Op]) -> (u64, u64) {
        let skipped = self.skipped.iter().filter(|((op, _), _)| ops.contains(op));
        let submitted = Action::ALL.into_iter().zip(&self.by_action);
        let submitted = submitted.filter(|(action, _)| ops.contains(&action.op()));
        skipped
            .map(|(_, totals)| totals)
            .chain(submitted.map(|(_, totals)| totals))
            .fold((0, 0), |(requests, bytes), (more, more_bytes)| {
                (requests + more, bytes.saturating_add(*more_bytes))
            })
    }

    fn add(&mut self, batch: &Batch) {
        let whole = batch.used == batch.ios.len();
        let used = batch.used.min(batch.ios.len());
        for skip in &batch.skips {
            if skip.before < used || whole {
                let (requests, bytes) = self.skipped.entry((skip.op, skip.reason)).or_default();
                *requests += 1;
                *bytes = bytes.saturating_add(skip.bytes);
            }
        }
        for (io, remapped) in batch.ios[..used].iter().zip(&batch.remapped) {
            self.with_range += u64::from(io.action != Action::Flush);
            self.remapped += u64::from(*remapped);
            let (requests, bytes) = &mut self.by_action[io.action.index()];
            *requests += 1;
            *bytes = bytes.saturating_add(io.length);
        }
        self.add_targets(&batch.ios[..used]);
        for (place, more) in batch.widened.iter().filter(|(place, _)| *place < used) {
            self.widened += 1;
            let (_, bytes) = &mut self.by_action[batch.ios[*place].action.index()];
            *bytes = bytes.saturating_sub(*more);
            self.widened_bytes = self.widened_bytes.saturating_add(*more);
        }
        let counts_from = batch.counts_from.min(used);
        let counted = batch.ios[counts_from..used].iter();
        for (io, recorded) in counted.zip(&batch.recorded_ns[counts_from..used]) {
            if let Some(latency_ns) = recorded {
                self.recorded[io.action.index()][size_class(io.length)].record(*latency_ns);
            }
        }
        self.submitted += used as u64;
        let dues = &batch.dues[..used.min(batch.dues.len())];
        self.dependent += dues.iter().filter(|due| due.after != Cell::NONE).count() as u64;
        let begun = |&&start: &&usize| start < used || whole;
        self.passes += batch.pass_starts.iter().filter(begun).count() as u64;
    }

    fn add_targets(&mut self, ios: &[Io]) {
        let Some(striping) = self.striping else {
            return ios.iter().for_each(|io| self.add_target(io));
        };
        for io in ios {
            if io.target == Io::STRIPED {
                let parts = (0..striping.parts(io)).map(|number| striping.part(io, number));
                parts.for_each(|part| self.add_target(&part));
            } else {
                self.add_target(io);
            }
        }
    }

    #[inline]
    fn add_target(&mut self, io: &Io) {
        let Some(tally) = self.targets.get_mut(usize::from(io.target)) else {
            return;
        };
        tally.operations += 1;
        if matches!(io.action, Action::Read | Action::Write) {
            tally.bytes = tally.bytes.wrapping_add(io.length);
        }
        tally.offset_sum = tally.offset_sum.wrapping_add(io.offset);
    }
}
