//! Submits as fast as the tokens allow, in the order of the tape.

use super::{Idle, Lane, Run};
use crate::engine::{Engine, Io};
use crate::slots::{Flight, GroupId};

/// What [`Run::submit_ready`] has come to.
enum Submitted {
    /// The end of what is decoded, or of the tokens.
    Wholes,
    /// A request of several parts.
    UpToParts,
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
                Submitted::UpToParts => go_on = self.start_group(lane, now),
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
            Submitted::UpToParts
        } else {
            Submitted::Wholes
        }
    }

    /// Starts the next request, which has several parts, if there are tokens for them; `false` when
    /// it has to wait for tokens.
    #[cold]
    #[inline(never)]
    fn start_group<E: Engine>(&mut self, lane: &mut Lane<E>, now: u64) -> bool {
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
        self.start_parts(lane, id, count, now);
        self.advance(1, now);
        true
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
            lane.queue(slot, &part);
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
