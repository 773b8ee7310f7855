//! The loop that submits: takes tokens, hands operations to the engine, reaps, records.

mod chains;
mod groups;
mod timed;

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub use self::chains::Link;
use self::groups::{Groups, Next};
use self::timed::Pace;
use crate::engine::{Action, Completion, Engine, Io, TICK, Wait};
use crate::map::Striping;
use crate::measure::{Delays, OpRecord, Recorder, RunLog, Totals};
use crate::options::{Progress, Timing};
use crate::plan::Feed;
use crate::result::Interval;
use crate::slots::{Flight, GroupId, Slots};
use crate::tokens::{Area, Tokens};

/// Failures in a row after which a run is given up.
const HOPELESS_FAILURES: u64 = 1_000;
/// A target that completes nothing for so long has stopped.
const STALL: Duration = Duration::from_secs(120);
/// The same, once the user wants to stop.
const STALL_WHEN_STOPPED: Duration = Duration::from_secs(5);
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// How a run is bounded.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Most operations outstanding.
    pub depth: u32,
    /// When requests are due.
    pub timing: Timing,
    /// Left out of the figures at the start.
    pub warmup: Duration,
    /// Submits no more after this long since the end of the warm-up.
    pub repeat_for: Option<Duration>,
    /// Length of an interval.
    pub interval: Duration,
    /// Requests of the tape that will be submitted; `None` when time is the bound.
    pub total_requests: Option<u64>,
    /// How requests that touch several targets are cut up.
    pub striping: Option<Striping>,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The tape is through, or the time is up.
    Done,
    /// The user stopped it.
    Stopped,
    /// Too many failures in a row.
    Hopeless,
    /// The target completed nothing for too long.
    Stalled,
}

/// How an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failure {
    /// With this error of the system.
    Errno(i32),
    /// It transferred less than asked.
    Short,
}

/// What happened in a run.
#[derive(Debug)]
pub struct Outcome {
    /// Per action, the requests that count.
    pub ops: [OpRecord; Action::ALL.len()],
    /// In slices of time.
    pub intervals: Vec<Interval>,
    /// Failures by position of the action and kind, all of the run.
    pub errors: BTreeMap<(usize, Failure), u64>,
    /// Why it ended.
    pub ending: Ending,
    /// From the first submission that counts to the last completion that counts.
    pub elapsed_ns: u64,
    /// Length of the warm-up.
    pub warmup_ns: u64,
    /// Tokens, over the time that counts.
    pub outstanding: Area,
    /// Most tokens out in that time.
    pub outstanding_max: u32,
    /// Requests completed in the whole run.
    pub completed: u64,
    /// Operations that never completed.
    pub abandoned: u32,
    /// Completions of slots with nothing in flight.
    pub strays: u64,
    /// Time of the whole run.
    pub run_ns: u64,
    /// Of that, with a free token and nothing decoded.
    pub starved_ns: u64,
    /// Of that, looking at the clock until a request was due.
    pub spun_ns: u64,
    /// Of the requests that count.
    pub delays: Delays,
    /// |Σ tokens × time − Σ service| / Σ service, all operations of the run.
    pub littles_law_error: f64,
}

/// Replays what comes from `feed` until it ends.
///
/// # Errors
/// When the engine fails.
pub fn run<E: Engine>(
    engine: E,
    feed: Feed,
    bounds: &Bounds,
    log: Option<RunLog>,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
) -> io::Result<Outcome> {
    let recorder = Recorder::new(whole_ns(bounds.interval), log)?;
    let mut run = Run::new(engine, feed, bounds, recorder);
    while run.feed.ready().is_empty() && !run.feed.ended() && !stop.load(Ordering::Relaxed) {
        run.feed.wait(TICK);
    }
    run.restart_clock();
    loop {
        let now = run.engine.now_ns();
        if now >= run.due_ns {
            run.on_time(now, progress);
        }
        if stop.load(Ordering::Relaxed) {
            run.end(Ending::Stopped);
        }
        let idle = run.fill(now);
        if run.tokens.outstanding() == 0 {
            if run.is_over() {
                break;
            }
            if idle == Idle::Planner {
                run.feed.wait(TICK);
                continue;
            }
        }
        let wait = run.wait_for(idle, now);
        run.engine.turn(wait, &mut run.done)?;
        let before = now;
        let now = run.engine.now_ns();
        if now >= run.due_ns {
            run.on_time(now, progress);
        }
        if wait == Wait::No && run.done.is_empty() {
            run.spun_ns += now.saturating_sub(before);
        }
        run.reap(now);
        if run.stalled(now) {
            run.ending = Some(Ending::Stalled);
            break;
        }
    }
    run.finish()
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

/// What [`Run::submit_ready`] has come to.
enum Submitted {
    /// The end of what is decoded, or of the tokens.
    Wholes,
    /// A request of several parts.
    UpToParts,
    /// Nothing was there.
    Nothing,
}

struct Run<'a, E> {
    engine: E,
    feed: Feed,
    bounds: &'a Bounds,
    tokens: Tokens,
    pace: Pace,
    slots: Slots,
    groups: Groups,
    done: Vec<Completion>,
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

impl<'a, E: Engine> Run<'a, E> {
    fn new(engine: E, feed: Feed, bounds: &'a Bounds, recorder: Recorder) -> Self {
        let now = engine.now_ns();
        let area = Area {
            at_ns: now,
            ..Area::default()
        };
        Run {
            engine,
            feed,
            bounds,
            tokens: Tokens::new(bounds.depth, now),
            pace: Pace::new(bounds.timing, now),
            slots: Slots::new(bounds.depth),
            groups: Groups::new(bounds.striping, bounds.depth),
            done: Vec::with_capacity(usize::try_from(bounds.depth).unwrap_or(0)),
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
        }
    }

    /// The run begins now: the first batch is there.
    fn restart_clock(&mut self) {
        let now = self.engine.now_ns();
        self.tokens = Tokens::new(self.bounds.depth, now);
        self.pace = Pace::new(self.bounds.timing, now);
        self.start_ns = now;
        self.last_progress_ns = now;
        self.last_life_ns = now;
        self.due_ns = now;
    }

    /// Whatever depends on the time and not on a completion.
    #[cold]
    fn on_time(&mut self, now: u64, progress: &mut dyn FnMut(&Progress)) {
        if self.counting {
            let tokens = &self.tokens;
            self.recorder.close_intervals(now, |at| tokens.area(at));
        } else if now.saturating_sub(self.start_ns) >= whole_ns(self.bounds.warmup) {
            self.start_counting(now);
        }
        if self.counting && self.time_left(now) == Some(0) {
            self.end(Ending::Done);
        }
        if now.saturating_sub(self.last_progress_ns) >= whole_ns(PROGRESS_EVERY) {
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

    /// Submits while there are tokens and operations.
    fn fill(&mut self, now: u64) -> Idle {
        if self.pace.is_timed() {
            return self.fill_timed(now);
        }
        let mut dry = false;
        let mut go_on = self.resume_groups(now) && self.ending.is_none();
        while go_on && self.tokens.free() > 0 {
            match self.submit_ready(now) {
                Submitted::Wholes => {}
                Submitted::UpToParts => go_on = self.start_group(now),
                Submitted::Nothing => {
                    dry = true;
                    go_on = false;
                }
            }
        }
        self.note_starvation(now, dry);
        if dry && !self.feed.ended() {
            Idle::Planner
        } else {
            Idle::Token
        }
    }

    /// Whether nothing more will be submitted.
    fn is_over(&self) -> bool {
        self.ending.is_some() || (self.feed.ended() && !self.pace.holds_requests())
    }

    /// Submits requests that are one operation, until one comes that is not.
    #[inline]
    fn submit_ready(&mut self, now: u64) -> Submitted {
        if E::VIRTUAL_CLOCK {
            self.wait_for_planner();
        }
        let free = usize::try_from(self.tokens.free()).unwrap_or(0);
        let ready = self.feed.ready();
        let count = ready.len().min(free);
        if count == 0 {
            return Submitted::Nothing;
        }
        let mut taken = 0u32;
        let mut parts = false;
        for io in &ready[..count] {
            if io.target == Io::STRIPED {
                parts = true;
                break;
            }
            let flight = Flight {
                io: *io,
                submitted_ns: now,
                counts: self.counting,
                ..Flight::default()
            };
            let Some(slot) = self.slots.take(flight) else {
                break;
            };
            self.engine.queue(slot, io);
            taken += 1;
        }
        // There are as many slots as tokens, and no more were asked for than are free.
        let _ = self.tokens.take(taken, now);
        self.advance(taken, now);
        if parts {
            Submitted::UpToParts
        } else {
            Submitted::Wholes
        }
    }

    /// Starts the next request, which has several parts, if there are tokens for them; `false` when
    /// it has to wait for tokens.
    #[cold]
    #[inline(never)]
    fn start_group(&mut self, now: u64) -> bool {
        let Some(&io) = self.feed.ready().first() else {
            return true;
        };
        let count = self.groups.parts_at_once(&io);
        if count > self.tokens.free() {
            return false;
        }
        let id = self.groups.begin(Flight {
            io,
            submitted_ns: now,
            counts: self.counting,
            ..Flight::default()
        });
        self.start_parts(id, count, now);
        self.advance(1, now);
        true
    }

    /// Goes on with groups whose parts have waited for others; `false` when there are not tokens
    /// enough, and nothing else may start before them.
    #[inline]
    fn resume_groups(&mut self, now: u64) -> bool {
        while let Some((id, count)) = self.groups.waiting() {
            if count > self.tokens.free() {
                return false;
            }
            self.groups.resumed();
            self.start_parts(id, count, now);
        }
        true
    }

    #[cold]
    fn start_parts(&mut self, id: GroupId, count: u32, now: u64) {
        // The caller has looked that there are as many.
        let _ = self.tokens.take(count, now);
        for _ in 0..count {
            if let Some(part) = self.groups.take_part(id) {
                self.start_part(id, part, now);
            }
        }
    }

    fn start_part(&mut self, id: GroupId, part: Io, now: u64) {
        let flight = Flight {
            io: part,
            submitted_ns: now,
            group: id,
            ..Flight::default()
        };
        if let Some(slot) = self.slots.take(flight) {
            self.engine.queue(slot, &part);
        }
    }

    /// So many requests have been submitted.
    #[inline]
    fn advance(&mut self, count: u32, now: u64) {
        self.feed.advance(usize::try_from(count).unwrap_or(0));
        if count > 0 && self.counting && self.first_submitted_ns.is_none() {
            self.first_submitted_ns = Some(now);
        }
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

    fn reap(&mut self, now: u64) {
        let mut done = std::mem::take(&mut self.done);
        let mut given = 0;
        for completion in done.drain(..) {
            let Some(flight) = self.slots.give(completion.slot) else {
                self.strays += 1;
                continue;
            };
            self.last_life_ns = now;
            self.service_ns += u128::from(now.saturating_sub(flight.submitted_ns));
            let failure = failure(&flight.io, completion.outcome);
            if flight.group == GroupId::NONE {
                self.complete(&flight, failure, now);
            } else if self.part_done(flight.group, failure, now) {
                continue;
            }
            given += 1;
        }
        self.done = done;
        if given > 0 {
            self.tokens.give(given, now);
        }
    }

    /// A part of a request is done; `true` when its token has gone to the next part.
    #[cold]
    #[inline(never)]
    fn part_done(&mut self, id: GroupId, failure: Option<Failure>, now: u64) -> bool {
        match self.groups.part_done(id, failure) {
            Next::Start(part) => {
                self.start_part(id, part, now);
                return true;
            }
            Next::Nothing => {}
            Next::Done(request, failure) => self.complete(&request, failure, now),
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

    fn finish(self) -> io::Result<Outcome> {
        let now = self.engine.now_ns();
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
mod tests;
