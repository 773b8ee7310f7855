//! Submits as fast as the tokens allow, in the order of the tape.

use super::{Idle, Lane, Run};
use crate::engine::{Engine, Io};
use crate::slots::{Flight, GroupId};

/// What [`Run::submit_ready`] has come to.
enum Submitted {
    /// The end of what is decoded, or of the tokens.
    Wholes,
    /// A request of several parts, or one that is looked at.
    UpToOther,
    /// Nothing was there.
    Nothing,
}

impl Run<'_> {
    /// Submits while there are tokens and operations.
    pub(super) fn fill<E: Engine>(&mut self, lane: &mut Lane<E>, now: u64) -> Idle {
        if self.pace.is_timed() {
            return self.fill_timed(lane, now);
        }
        let mut dry = false;
        let mut go_on = self.resume_groups(lane, now) && self.ending.is_none();
        while go_on && self.tokens.free() > 0 && lane.in_flight < lane.limit {
            match self.submit_ready(lane, now) {
                Submitted::Wholes => {}
                Submitted::UpToOther => go_on = self.start_next(lane, now),
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

    /// Submits requests that are one operation, until one comes that is not.
    #[inline]
    fn submit_ready<E: Engine>(&mut self, lane: &mut Lane<E>, now: u64) -> Submitted {
        if E::VIRTUAL_CLOCK {
            self.wait_for_planner();
        }
        let free = self.tokens.free().min(lane.limit - lane.in_flight);
        let free = usize::try_from(free).unwrap_or(0);
        let ready = self.feed.ready();
        let count = ready.len().min(free);
        if count == 0 {
            return Submitted::Nothing;
        }
        if self.guard.is_some() {
            return Submitted::UpToOther;
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
            lane.engine.queue(slot, io);
            taken += 1;
        }
        lane.in_flight += taken;
        // There are as many slots as tokens, and no more were asked for than are free.
        let _ = self.tokens.take(taken, now);
        self.advance(taken, now);
        if parts {
            Submitted::UpToOther
        } else {
            Submitted::Wholes
        }
    }

    /// Starts the next request; `false` when it has to wait for tokens or for another request.
    #[inline(never)]
    fn start_next<E: Engine>(&mut self, lane: &mut Lane<E>, now: u64) -> bool {
        let Some(&io) = self.feed.ready().first() else {
            return true;
        };
        let flight = Flight {
            io,
            submitted_ns: now,
            counts: self.counting,
            ..Flight::default()
        };
        let started = self.start_request(lane, flight);
        self.advance(u32::from(started), now);
        started
    }

    /// Starts a request of one or several parts; `false` as above.
    pub(super) fn start_request<E: Engine>(&mut self, lane: &mut Lane<E>, flight: Flight) -> bool {
        let io = &flight.io;
        let parts = match io.target {
            Io::STRIPED => self.groups.parts_at_once(io),
            _ => 1,
        };
        if parts > self.tokens.free() || lane.in_flight >= lane.limit {
            return false;
        }
        if let Some(guard) = &mut self.guard
            && !guard.may_start(io)
        {
            return false;
        }
        let now = flight.submitted_ns;
        if io.target == Io::STRIPED {
            let id = self.groups.begin(flight);
            if let Some(guard) = &mut self.guard {
                guard.enter(0, id, io);
            }
            self.start_parts(lane, id, parts, now);
            return true;
        }
        // There are as many slots as tokens.
        let _ = self.tokens.take(1, now);
        if let Some(slot) = self.slots.take(flight) {
            if let Some(guard) = &mut self.guard {
                guard.enter(slot, GroupId::NONE, io);
            }
            self.queue(lane, slot, *io);
        }
        true
    }

    fn queue<E: Engine>(&mut self, lane: &mut Lane<E>, slot: u32, mut io: Io) {
        if let Some(guard) = &mut self.guard {
            guard.prepare(slot, &mut io);
        }
        lane.queue(slot, &io);
    }

    /// Goes on with groups whose parts have waited for others; `false` when there are not tokens
    /// enough, and nothing else may start before them.
    #[inline]
    pub(super) fn resume_groups<E: Engine>(&mut self, lane: &mut Lane<E>, now: u64) -> bool {
        while let Some((id, count)) = self.groups.waiting() {
            if count > self.tokens.free() {
                return false;
            }
            self.groups.resumed();
            self.start_parts(lane, id, count, now);
        }
        true
    }

    #[cold]
    pub(super) fn start_parts<E: Engine>(
        &mut self,
        lane: &mut Lane<E>,
        id: GroupId,
        count: u32,
        now: u64,
    ) {
        // The caller has looked that there are as many.
        let _ = self.tokens.take(count, now);
        for _ in 0..count {
            if let Some(part) = self.groups.take_part(id) {
                self.start_part(lane, id, part, now);
            }
        }
    }

    pub(super) fn start_part<E: Engine>(
        &mut self,
        lane: &mut Lane<E>,
        id: GroupId,
        part: Io,
        now: u64,
    ) {
        let flight = Flight {
            io: part,
            submitted_ns: now,
            group: id,
            ..Flight::default()
        };
        if let Some(slot) = self.slots.take(flight) {
            self.queue(lane, slot, part);
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
}
