//! The loop that submits: takes tokens, hands operations to the engine, reaps, records.

mod chains;
mod groups;
mod guard;
mod lanes;
mod outcome;
mod overlaps;
mod submit;
mod timed;

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub use self::chains::Link;
use self::groups::{Groups, Next};
pub use self::guard::Guard;
pub use self::lanes::{Ended, run_workers};
pub use self::outcome::{Bounds, Ending, Failure, Outcome};
use self::timed::Pace;
use crate::engine::{Action, Completion, Engine, Io, TICK, Wait};
use crate::measure::{Delays, Recorder, RunLog, Totals};
use crate::options::Progress;
use crate::plan::Feed;
use crate::slots::{Flight, GroupId, Slots};
use crate::sys::CpuTime;
use crate::tokens::{Area, Tokens};

/// Failures in a row after which a run is given up.
const HOPELESS_FAILURES: u64 = 1_000;
/// A target that completes nothing for so long has stopped.
const STALL: Duration = Duration::from_secs(120);
/// The same, once the user wants to stop.
const STALL_WHEN_STOPPED: Duration = Duration::from_secs(5);
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// Replays what comes from `feed` until it ends.
///
/// # Errors
/// When the engine fails.
pub fn run<E: Engine>(
    engine: E,
    feed: Feed,
    bounds: &Bounds,
    attached: Attached,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
) -> io::Result<Ended> {
    let cpu = CpuTime::of_thread();
    let mut lane = Lane::new(engine, bounds.depth);
    let notes = lane.engine.take_notes();
    let now = lane.engine.now_ns();
    let mut run = Run::new(feed, bounds, attached, now)?;
    while run.feed.ready().is_empty() && !run.feed.ended() && !stop.load(Ordering::Relaxed) {
        run.feed.wait(TICK);
    }
    run.restart_clock(lane.engine.now_ns());
    let mut spinning_since_ns = None;
    loop {
        let now = lane.engine.now_ns();
        if let Some(since_ns) = spinning_since_ns.take() {
            lane.spun_ns += now.saturating_sub(since_ns);
        }
        if now >= run.due_ns {
            run.on_time(now, Some(progress));
        }
        if stop.load(Ordering::Relaxed) {
            run.end(Ending::Stopped);
        }
        let idle = run.fill(&mut lane, now);
        if run.tokens.outstanding() == 0 {
            if run.is_over() {
                break;
            }
            if idle == Idle::Planner {
                run.feed.wait(TICK);
                continue;
            }
        }
        let wait = run.wait_for::<E>(idle, now);
        lane.engine.turn(wait, &mut lane.done)?;
        if wait == Wait::No && lane.done.is_empty() {
            spinning_since_ns = Some(now);
        }
        let now = lane.engine.now_ns();
        if now >= run.due_ns {
            run.on_time(now, Some(progress));
        }
        run.reap(&mut lane, now);
        if run.stalled(now) {
            run.ending = Some(Ending::Stalled);
            break;
        }
    }
    run.spun_ns = lane.spun_ns;
    Ok(Ended {
        outcome: run.finish(lane.engine.now_ns())?,
        submitter_cpu: CpuTime::of_thread().since(cpu),
        notes,
    })
}

/// What looks on at a run.
#[derive(Debug, Default)]
pub struct Attached {
    /// Where intervals are logged.
    pub log: Option<RunLog>,
    /// Overlaps and content; `None` where nothing of that matters.
    pub guard: Option<Guard>,
    /// What is known before the run that a reader of its result should know.
    pub notes: Vec<String>,
}

/// What one thread submits with.
struct Lane<E> {
    engine: E,
    done: Vec<Completion>,
    /// Of its own operations.
    in_flight: u32,
    /// Takes no more of them than this for now.
    limit: u32,
    spun_ns: u64,
}

impl<E: Engine> Lane<E> {
    fn new(engine: E, depth: u32) -> Self {
        Lane {
            engine,
            done: Vec::with_capacity(usize::try_from(depth).unwrap_or(0)),
            in_flight: 0,
            limit: u32::MAX,
            spun_ns: 0,
        }
    }

    fn queue(&mut self, slot: u32, io: &Io) {
        self.engine.queue(slot, io);
        self.in_flight += 1;
    }
}

/// What has to come before more can be submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Idle {
    /// A completion.
    Token,
    /// A time.
    Time(u64),
    /// More of the tape.
    Planner,
}

/// Everything of a run but the engines.
struct Run<'a> {
    feed: Feed,
    bounds: &'a Bounds,
    tokens: Tokens,
    pace: Pace,
    slots: Slots,
    groups: Groups,
    guard: Option<Guard>,
    recorder: Recorder,
    errors: BTreeMap<(usize, Failure), u64>,
    ending: Option<Ending>,
    counting: bool,
    start_ns: u64,
    /// Start of the time that counts.
    counted_ns: u64,
    counted_area: Area,
    first_submitted_ns: Option<u64>,
    last_completed_ns: u64,
    last_progress_ns: u64,
    /// Earliest time at which [`Run::on_time`] has something to do.
    due_ns: u64,
    last_life_ns: u64,
    starved_since_ns: Option<u64>,
    starved_ns: u64,
    spun_ns: u64,
    /// Since when requests that are due wait for tokens.
    backlog_since_ns: Option<u64>,
    delays: Delays,
    completed: u64,
    bytes: u64,
    failures_in_a_row: u64,
    strays: u64,
    /// Of operations, so that it compares with the tokens.
    service_ns: u128,
}

fn whole_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl<'a> Run<'a> {
    fn new(feed: Feed, bounds: &'a Bounds, attached: Attached, now: u64) -> io::Result<Self> {
        let recorder = Recorder::new(whole_ns(bounds.interval), attached.log)?;
        let area = Area {
            at_ns: now,
            ..Area::default()
        };
        Ok(Run {
            feed,
            bounds,
            tokens: Tokens::new(bounds.depth, now),
            pace: Pace::new(bounds.timing, now),
            slots: Slots::new(bounds.depth),
            groups: Groups::new(bounds.striping, bounds.depth),
            guard: attached.guard,
            recorder,
            errors: BTreeMap::new(),
            ending: None,
            counting: false,
            start_ns: now,
            counted_ns: now,
            counted_area: area,
            first_submitted_ns: None,
            last_completed_ns: now,
            last_progress_ns: now,
            due_ns: now,
            last_life_ns: now,
            starved_since_ns: None,
            starved_ns: 0,
            spun_ns: 0,
            backlog_since_ns: None,
            delays: Delays::default(),
            completed: 0,
            bytes: 0,
            failures_in_a_row: 0,
            strays: 0,
            service_ns: 0,
        })
    }

    /// The run begins now: the first batch is there.
    fn restart_clock(&mut self, now: u64) {
        self.tokens = Tokens::new(self.bounds.depth, now);
        self.pace = Pace::new(self.bounds.timing, now);
        self.start_ns = now;
        self.last_progress_ns = now;
        self.last_life_ns = now;
        self.due_ns = now;
    }

    /// Whatever depends on the time and not on a completion.
    #[cold]
    fn on_time(&mut self, now: u64, progress: Option<&mut dyn FnMut(&Progress)>) {
        if self.counting {
            let tokens = &self.tokens;
            self.recorder.close_intervals(now, |at| tokens.area(at));
        } else if now.saturating_sub(self.start_ns) >= whole_ns(self.bounds.warmup) {
            self.start_counting(now);
        }
        if self.counting && self.time_left(now) == Some(0) {
            self.end(Ending::Done);
        }
        if let Some(progress) = progress
            && now.saturating_sub(self.last_progress_ns) >= whole_ns(PROGRESS_EVERY)
        {
            self.last_progress_ns = now;
            self.report(now, progress);
        }
        self.due_ns = self.next_due(now);
    }

    fn start_counting(&mut self, now: u64) {
        self.counting = true;
        self.counted_ns = now;
        self.counted_area = self.tokens.area(now);
        self.tokens.restart_max();
        self.feed.start_counting();
        self.recorder.restart(self.counted_area);
    }

    /// Nanoseconds until no more is submitted; `None` without such a bound.
    fn time_left(&self, now: u64) -> Option<u64> {
        let bound = whole_ns(self.bounds.repeat_for?);
        Some(self.counted_ns.saturating_add(bound).saturating_sub(now))
    }

    fn next_due(&self, now: u64) -> u64 {
        let progress = self
            .last_progress_ns
            .saturating_add(whole_ns(PROGRESS_EVERY));
        if !self.counting {
            return progress.min(self.start_ns.saturating_add(whole_ns(self.bounds.warmup)));
        }
        let due = progress.min(self.recorder.interval_end_ns());
        match self.time_left(now) {
            Some(left) if left > 0 => due.min(now.saturating_add(left)),
            _ => due,
        }
    }

    fn report(&self, now: u64, progress: &mut dyn FnMut(&Progress)) {
        progress(&Progress::Running {
            elapsed: Duration::from_nanos(now.saturating_sub(self.start_ns)),
            requests: self.completed,
            bytes: self.bytes,
            total_requests: self.bounds.total_requests,
            warming_up: !self.counting,
        });
    }

    /// Submits nothing more.
    fn end(&mut self, ending: Ending) {
        if self.ending.is_none() {
            self.ending = Some(ending);
        }
    }

    /// Whether nothing more will be submitted.
    fn is_over(&self) -> bool {
        self.ending.is_some() || (self.feed.ended() && !self.pace.holds_requests())
    }

    fn note_starvation(&mut self, now: u64, dry: bool) {
        let starved = dry && !self.feed.ended();
        match self.starved_since_ns {
            None if starved => self.starved_since_ns = Some(now),
            Some(since) if !starved => {
                self.starved_ns += now.saturating_sub(since);
                self.starved_since_ns = None;
            }
            _ => {}
        }
    }

    fn reap<E: Engine>(&mut self, lane: &mut Lane<E>, now: u64) {
        let mut done = std::mem::take(&mut lane.done);
        let mut given = 0;
        for completion in done.drain(..) {
            let Some(flight) = self.slots.give(completion.slot) else {
                self.strays += 1;
                continue;
            };
            self.last_life_ns = now;
            self.service_ns += u128::from(now.saturating_sub(flight.submitted_ns));
            lane.in_flight = lane.in_flight.saturating_sub(1);
            let failure = failure(&flight.io, completion.outcome);
            if let Some(guard) = &mut self.guard {
                guard.done(completion.slot, &flight.io, failure.is_none());
                if flight.group == GroupId::NONE {
                    guard.leave(completion.slot, GroupId::NONE);
                }
            }
            if flight.group == GroupId::NONE {
                self.complete(&flight, failure, now);
            } else if self.part_done(lane, flight.group, failure, now) {
                continue;
            }
            given += 1;
        }
        lane.done = done;
        if given > 0 {
            self.tokens.give(given, now);
        }
    }

    /// A part of a request is done; `true` when its token has gone to the next part.
    #[cold]
    #[inline(never)]
    fn part_done<E: Engine>(
        &mut self,
        lane: &mut Lane<E>,
        id: GroupId,
        failure: Option<Failure>,
        now: u64,
    ) -> bool {
        match self.groups.part_done(id, failure) {
            Next::Start(part) => {
                self.start_part(lane, id, part, now);
                return true;
            }
            Next::Nothing => {}
            Next::Done(request, failure) => {
                if let Some(guard) = &mut self.guard {
                    guard.leave(0, id);
                }
                self.complete(&request, failure, now);
            }
        }
        false
    }

    #[inline(always)]
    fn complete(&mut self, request: &Flight, failure: Option<Failure>, now: u64) {
        let io = &request.io;
        self.completed += 1;
        if let Pace::Dependent(chains) = &mut self.pace {
            chains.completed(request.link, now);
        }
        if request.counts {
            self.last_completed_ns = now;
        }
        match failure {
            None => {
                self.failures_in_a_row = 0;
                if matches!(io.action, Action::Read | Action::Write) {
                    self.bytes += io.length;
                }
                if request.counts {
                    let service = now.saturating_sub(request.submitted_ns);
                    let lag = self.pace.is_timed().then(|| request.lag_ns());
                    self.recorder.succeeded(io.action, io.length, service, lag);
                }
            }
            Some(failure) => self.fail(io.action, failure, request.counts),
        }
    }

    #[cold]
    fn fail(&mut self, action: Action, failure: Failure, counts: bool) {
        *self.errors.entry((action.index(), failure)).or_default() += 1;
        if counts {
            self.recorder.failed(action);
        }
        self.failures_in_a_row += 1;
        if self.failures_in_a_row >= HOPELESS_FAILURES {
            self.end(Ending::Hopeless);
        }
    }

    fn stalled(&self, now: u64) -> bool {
        let limit = match self.ending {
            Some(Ending::Stopped) => STALL_WHEN_STOPPED,
            _ => STALL,
        };
        self.tokens.outstanding() > 0 && now.saturating_sub(self.last_life_ns) > whole_ns(limit)
    }

    fn finish(self, now: u64) -> io::Result<Outcome> {
        let end = if self.tokens.outstanding() == 0 && self.counting {
            self.last_completed_ns.max(self.counted_ns)
        } else {
            now
        };
        let area = self.tokens.area(now);
        let abandoned = self.slots.in_flight();
        let abandoned_ns: u128 = abandoned
            .map(|flight| u128::from(now.saturating_sub(flight.submitted_ns)))
            .sum();
        let Totals { ops, intervals } = self.recorder.finish(Area { at_ns: end, ..area })?;
        let elapsed_ns = self
            .first_submitted_ns
            .map_or(0, |first| self.last_completed_ns.saturating_sub(first));
        Ok(Outcome {
            ops,
            intervals,
            errors: self.errors,
            ending: self.ending.unwrap_or(Ending::Done),
            elapsed_ns,
            warmup_ns: if self.counting {
                self.counted_ns.saturating_sub(self.start_ns)
            } else {
                now.saturating_sub(self.start_ns)
            },
            outstanding: Area { at_ns: end, ..area }.since(self.counted_area),
            outstanding_max: self.tokens.max(),
            completed: self.completed,
            abandoned: self.tokens.outstanding(),
            strays: self.strays,
            run_ns: now.saturating_sub(self.start_ns),
            starved_ns: self.starved_ns,
            spun_ns: self.spun_ns,
            delays: self.delays,
            seen: self.guard.map(Guard::into_seen),
            littles_law_error: relative_difference(area.token_ns, self.service_ns + abandoned_ns),
        })
    }
}

#[inline]
fn failure(io: &Io, outcome: i64) -> Option<Failure> {
    match i32::try_from(-outcome) {
        _ if outcome == io.success() => None,
        Ok(errno) if errno > 0 => Some(Failure::Errno(errno)),
        _ => Some(Failure::Short),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a ratio")]
fn relative_difference(found: u128, expected: u128) -> f64 {
    if expected == 0 {
        return if found == 0 { 0.0 } else { 1.0 };
    }
    found.abs_diff(expected) as f64 / expected as f64
}

#[cfg(test)]
mod cap_tests;
#[cfg(test)]
mod tests;
