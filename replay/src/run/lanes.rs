//! Several threads that submit: each with an engine of its own, all with one cursor, one pool of
//! tokens and one set of figures, which whoever is not in a system call holds for a moment.
//!
//! Nothing is divided beforehand. A worker takes what there is; only when another has nothing in
//! flight does it take no more than an equal share, so that all come to work.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Attached, Bounds, Ending, Idle, Lane, Outcome, Run};
use crate::engine::{Engine, TICK, Wait, time_to_wait};
use crate::options::Progress;
use crate::plan::Feed;
use crate::sys::{self, CpuTime};

/// How soon to look again for a request that was not planned in time.
const PLANNER_PAUSE: Duration = Duration::from_millis(1);

/// A run that has ended, and what its threads took.
#[derive(Debug)]
pub struct Ended {
    pub outcome: Outcome,
    /// Of the thread that was busiest.
    pub submitter_cpu: CpuTime,
    /// What could not be had.
    pub notes: Vec<String>,
}

struct Shared<'a> {
    state: Mutex<State<'a>>,
    /// Tokens, or the end, for those that have nothing in flight.
    something: Condvar,
    workers: u32,
}

struct State<'a> {
    run: Run<'a>,
    /// Whether the first request was there, with which the run begins.
    begun: bool,
    /// Workers that have nothing in flight and wait.
    hungry: u32,
    notes: Vec<String>,
    busiest: CpuTime,
}

/// Replays what comes from `feed` on `workers` threads, each pinned to a processor with an engine
/// that `start` makes on it.
///
/// # Errors
/// When a thread cannot be started, or an engine cannot or fails.
pub fn run_workers<E: Engine>(
    workers: u32,
    start: &(dyn Fn() -> io::Result<E> + Sync),
    feed: Feed,
    bounds: &Bounds,
    attached: Attached,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
) -> io::Result<Ended> {
    let shared = Shared {
        state: Mutex::new(State {
            run: Run::new(feed, bounds, attached, sys::monotonic_ns())?,
            begun: false,
            hungry: 0,
            notes: Vec::new(),
            busiest: CpuTime::default(),
        }),
        something: Condvar::new(),
        workers,
    };
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for number in 0..workers {
            let shared = &shared;
            let work = move || shared.work(number, start, stop);
            let thread = std::thread::Builder::new()
                .name(format!("iotape-submit-{number}"))
                .spawn_scoped(scope, work);
            match thread {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    shared.lock().run.end(Ending::Stopped);
                    return Err(error);
                }
            }
        }
        while !threads.iter().all(|thread| thread.is_finished()) {
            shared.watch(stop, progress);
        }
        threads.into_iter().try_for_each(|thread| {
            thread
                .join()
                .map_err(|_| io::Error::other("a submitting thread died"))?
        })
    })?;
    let state = shared
        .state
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    Ok(Ended {
        outcome: state.run.finish(sys::monotonic_ns())?,
        submitter_cpu: state.busiest,
        notes: state.notes,
    })
}

impl<'a> Shared<'a> {
    /// What the thread that started the others does: says how far it is.
    fn watch(&self, stop: &AtomicBool, progress: &mut dyn FnMut(&Progress)) {
        std::thread::sleep(TICK / 10);
        let mut state = self.lock();
        if stop.load(Ordering::Relaxed) {
            state.run.end(Ending::Stopped);
        }
        let now = sys::monotonic_ns();
        if state.begun && now >= state.run.due_ns {
            state.run.on_time(now, Some(progress));
        }
    }

    fn work<E: Engine>(
        &self,
        number: u32,
        start: &(dyn Fn() -> io::Result<E> + Sync),
        stop: &AtomicBool,
    ) -> io::Result<()> {
        let pinned = sys::pin_to_processor(number);
        let begun = CpuTime::of_thread();
        let engine = start();
        let mut state = self.lock();
        if let Err(error) = pinned {
            let note = format!("workers are not pinned to processors: {error}");
            if !state.notes.contains(&note) {
                state.notes.push(note);
            }
        }
        let ended = engine.and_then(|engine| {
            let mut lane = Lane::new(engine, state.run.bounds.depth);
            for note in lane.engine.take_notes() {
                if !state.notes.contains(&note) {
                    state.notes.push(note);
                }
            }
            drop(state);
            self.submit(&mut lane, stop)
        });
        let mut state = self.lock();
        if ended.is_err() {
            state.run.end(Ending::Stopped);
        }
        let used = CpuTime::of_thread().since(begun);
        if used.total_ns() > state.busiest.total_ns() {
            state.busiest = used;
        }
        self.something.notify_all();
        ended
    }

    fn submit<E: Engine>(&self, lane: &mut Lane<E>, stop: &AtomicBool) -> io::Result<()> {
        let mut state = self.lock();
        loop {
            let now = lane.engine.now_ns();
            if !state.begin(now) {
                state = self.pause(state, PLANNER_PAUSE);
                continue;
            }
            if now >= state.run.due_ns {
                state.run.on_time(now, None);
            }
            if stop.load(Ordering::Relaxed) {
                state.run.end(Ending::Stopped);
            }
            lane.limit = match state.hungry {
                0 => u32::MAX,
                _ => state.run.bounds.depth.div_ceil(self.workers),
            };
            lane.limit = lane.limit.max(lane.in_flight);
            let idle = state.run.fill(lane, now);
            if lane.in_flight == 0 {
                if state.run.ending == Some(Ending::Stalled)
                    || state.run.is_over() && !state.run.groups.any_waiting()
                {
                    break;
                }
                let wait = state.run.wait_for::<E>(idle, now);
                state = self.pause(state, pause(idle, wait));
                continue;
            }
            if state.hungry > 0 && state.run.tokens.free() > 0 {
                self.something.notify_one();
            }
            let wait = state.run.wait_for::<E>(idle, now);
            drop(state);
            lane.engine.turn(wait, &mut lane.done)?;
            state = self.lock();
            self.take_back(&mut state, lane, wait, now);
            if state.run.ending == Some(Ending::Stalled) {
                break;
            }
        }
        state.run.spun_ns = state.run.spun_ns.max(lane.spun_ns);
        Ok(())
    }

    fn take_back<E: Engine>(
        &self,
        state: &mut State<'_>,
        lane: &mut Lane<E>,
        wait: Wait,
        before: u64,
    ) {
        let now = lane.engine.now_ns();
        if now >= state.run.due_ns {
            state.run.on_time(now, None);
        }
        if wait == Wait::No && lane.done.is_empty() {
            lane.spun_ns += now.saturating_sub(before);
        }
        let any = !lane.done.is_empty();
        state.run.reap(lane, now);
        if any && state.hungry > 0 {
            self.something.notify_one();
        }
        if state.run.stalled(now) {
            state.run.ending = Some(Ending::Stalled);
            self.something.notify_all();
        }
    }

    /// Waits until there may be something to take.
    fn pause<'s, 'r>(
        &self,
        mut state: MutexGuard<'s, State<'r>>,
        up_to: Duration,
    ) -> MutexGuard<'s, State<'r>> {
        state.hungry += 1;
        let mut state = self
            .something
            .wait_timeout(state, up_to)
            .unwrap_or_else(PoisonError::into_inner)
            .0;
        state.hungry -= 1;
        state
    }

    fn lock(&self) -> MutexGuard<'_, State<'a>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State<'_> {
    /// Begins the run once there is a first request, or will be none; whether it has begun.
    fn begin(&mut self, now: u64) -> bool {
        let run = &mut self.run;
        let nothing_yet = run.feed.ready().is_empty() && !run.feed.ended();
        if !self.begun && (!nothing_yet || run.ending.is_some()) {
            self.begun = true;
            run.restart_clock(now);
        }
        self.begun
    }
}

fn pause(idle: Idle, wait: Wait) -> Duration {
    match idle {
        Idle::Planner => PLANNER_PAUSE,
        Idle::Token | Idle::Time(_) => time_to_wait(wait),
    }
}
