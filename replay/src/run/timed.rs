//! The loop where requests wait for the clock, not only for tokens.

use super::chains::{Chains, Link};
use super::{Flight, Idle, Lane, Run};
use crate::engine::{Engine, Io, TICK, Wait};
use crate::options::Timing;
use crate::slots::GroupId;

/// A wait on a real clock may end this much late: the loop asks to be woken so much earlier and
/// looks at the clock for the rest.
const OVERSLEEP_NS: u64 = 100_000;
/// How soon to look again for a request that was not planned in time.
const PLANNER_NS: u64 = 1_000_000;

/// What decides when a request is due.
#[derive(Debug)]
pub enum Pace {
    /// Nothing but tokens.
    Asap,
    /// The tape's times.
    Recorded,
    /// The completions of other requests.
    Dependent(Box<Chains>),
}

/// A request that is next, and when it is due.
struct Scheduled {
    io: Io,
    due_ns: u64,
    link: Link,
}

impl Pace {
    /// For a run that starts at a time.
    pub fn new(timing: Timing, start_ns: u64) -> Self {
        match timing {
            Timing::Asap => Pace::Asap,
            Timing::Recorded => Pace::Recorded,
            Timing::Dependent => Pace::Dependent(Box::new(Chains::new(start_ns))),
        }
    }

    /// Whether requests have a time at which they are due.
    pub fn is_timed(&self) -> bool {
        !matches!(self, Pace::Asap)
    }

    /// Whether requests wait that were taken from the planner.
    pub fn holds_requests(&self) -> bool {
        matches!(self, Pace::Dependent(chains) if !chains.is_empty())
    }
}

impl Run<'_> {
    /// Submits what is due while there are tokens.
    pub(super) fn fill_timed<E: Engine>(&mut self, lane: &mut Lane<E>, now: u64) -> Idle {
        if !self.resume_groups(lane, now) {
            self.backlog_since_ns.get_or_insert(now);
            return Idle::Token;
        }
        if self.ending.is_some() {
            return Idle::Token;
        }
        loop {
            let Some(next) = self.next_scheduled::<E>() else {
                let dry = !self.pace.holds_requests() && !self.feed.ended();
                self.backlog_since_ns = None;
                self.note_starvation(now, dry);
                return if dry { Idle::Planner } else { Idle::Token };
            };
            if next.due_ns > now {
                self.backlog_since_ns = None;
                self.note_starvation(now, false);
                return Idle::Time(next.due_ns);
            }
            if !self.submit_scheduled(lane, &next, now) {
                self.backlog_since_ns.get_or_insert(now);
                self.note_starvation(now, false);
                return Idle::Token;
            }
        }
    }

    /// How to wait on a real or a virtual clock.
    pub(super) fn wait_for<E: Engine>(&self, idle: Idle, now: u64) -> Wait {
        match idle {
            Idle::Time(due_ns) if E::VIRTUAL_CLOCK => Wait::Until(due_ns),
            Idle::Time(due_ns) => match due_ns.saturating_sub(OVERSLEEP_NS) {
                early_ns if early_ns > now => Wait::Until(early_ns),
                _ => Wait::No,
            },
            Idle::Planner if self.pace.is_timed() => Wait::Until(now.saturating_add(PLANNER_NS)),
            Idle::Planner | Idle::Token => Wait::Tick,
        }
    }

    fn next_scheduled<E: Engine>(&mut self) -> Option<Scheduled> {
        self.take_into_window::<E>();
        match &self.pace {
            Pace::Dependent(chains) => {
                let (io, due_ns, link) = chains.first()?;
                Some(Scheduled { io, due_ns, link })
            }
            _ => {
                let (io, due) = self.feed.first()?;
                Some(Scheduled {
                    io,
                    due_ns: self.start_ns.saturating_add(due.ns),
                    link: Link::NONE,
                })
            }
        }
    }

    fn take_into_window<E: Engine>(&mut self) {
        loop {
            if E::VIRTUAL_CLOCK {
                self.wait_for_planner();
            }
            let Pace::Dependent(chains) = &mut self.pace else {
                return;
            };
            if !chains.has_room() {
                return;
            }
            let Some((io, due)) = self.feed.first() else {
                return;
            };
            chains.take(io, due);
            self.feed.advance(1);
        }
    }

    /// `false` when there are not tokens enough.
    fn submit_scheduled<E: Engine>(
        &mut self,
        lane: &mut Lane<E>,
        next: &Scheduled,
        now: u64,
    ) -> bool {
        let flight = Flight {
            io: next.io,
            submitted_ns: now,
            scheduled_ns: next.due_ns,
            counts: self.counting,
            group: GroupId::NONE,
            link: next.link,
        };
        if self.tokens.outstanding() == 0 {
            self.last_life_ns = now;
        }
        if !self.start_request(lane, flight) {
            return false;
        }
        if self.counting {
            let lag_ns = now.saturating_sub(next.due_ns);
            let backlog_ns = self
                .backlog_since_ns
                .map_or(0, |since_ns| now.saturating_sub(since_ns));
            self.delays.record(lag_ns, lag_ns.min(backlog_ns));
            self.first_submitted_ns.get_or_insert(now);
        }
        match &mut self.pace {
            Pace::Dependent(chains) => chains.submitted(),
            _ => self.feed.advance(1),
        }
        true
    }

    /// No time passes on a virtual clock meanwhile.
    pub(super) fn wait_for_planner(&mut self) {
        while self.feed.ready().is_empty() && !self.feed.ended() {
            self.feed.wait(TICK);
        }
    }
}
