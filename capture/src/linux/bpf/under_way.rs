//! Requests that have begun and are not done: beginnings and ends are put together here.
//!
//! What is told of a request comes in the order of time, but for what an interrupt overtook: an end
//! that is older than the beginning at hand is that of an earlier request, which never gets it.

use std::collections::VecDeque;

use foldhash::{HashMap, HashMapExt as _};

use super::record::{Kind, Record};

/// A device has a fixed number of requests. Where more are seen, ends were missed.
const MOST: usize = 1 << 18;

/// Requests by their pointer.
#[derive(Debug)]
pub(super) struct UnderWay {
    /// One that is done stays until there is another at its place, which is soon.
    latest: HashMap<u64, Latest>,
    /// When requests were issued, and their pointers, up to the oldest that may not be done.
    issues: VecDeque<(u64, u64)>,
    /// Ends of what was not seen to begin.
    pub unpaired: u64,
    /// Records of a kind that the programs do not write.
    pub undecodable: u64,
    /// Ends are missing: without the time of allocation, an end proves nothing.
    in_doubt: bool,
}

/// The latest request at a place.
#[derive(Debug)]
struct Latest {
    begun: Record,
    state: State,
    in_doubt: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Issued,
    Requeued,
    Done,
}

impl Default for UnderWay {
    fn default() -> UnderWay {
        UnderWay {
            latest: HashMap::with_capacity(1024),
            issues: VecDeque::with_capacity(1024),
            unpaired: 0,
            undecodable: 0,
            in_doubt: false,
        }
    }
}

impl UnderWay {
    /// Takes what happened to a request, and hands over those that nothing more can happen to.
    pub fn take(&mut self, told: &Record, done: &mut impl FnMut(Record)) {
        let Some(kind) = told.kind() else {
            self.undecodable += 1;
            return;
        };
        match kind {
            Kind::Whole => done(*told),
            Kind::Begun => self.begin(told, done),
            Kind::Requeued | Kind::PartFailed => {
                if let Some(request) = self.of(told) {
                    request.begun.note_error(told);
                    if kind == Kind::Requeued {
                        request.state = State::Requeued;
                    }
                }
            }
            Kind::Done | Kind::MayBeUnissued => self.end(kind, told, done),
        }
    }

    /// Ends were lost: from now on until it is told that none were.
    pub fn ends_are_missing(&mut self, missing: bool) {
        if missing {
            let all = self.latest.values_mut();
            all.for_each(|request| request.in_doubt = true);
        }
        self.in_doubt = missing;
    }

    /// Up to when all that began is done, if that is known not later than `until_ns`. What began
    /// before `since_ns` and is not done is left out of account from now on.
    pub fn all_done_before(&mut self, since_ns: u64, until_ns: u64) -> u64 {
        while let Some((time_ns, pointer)) = self.issues.front() {
            let is_open =
                |latest: &Latest| latest.state != State::Done && latest.begun.time_ns() == *time_ns;
            if *time_ns >= since_ns && self.latest.get(pointer).is_some_and(is_open) {
                return until_ns.min(*time_ns);
            }
            self.issues.pop_front();
        }
        until_ns
    }

    /// Those that are not done.
    pub fn iter(&self) -> impl Iterator<Item = Record> {
        let latest = self.latest.values();
        let open = latest.filter(|request| request.state != State::Done);
        open.map(|request| request.begun.without_end())
    }

    /// Hands over all that are not done.
    pub fn give_up(&mut self, done: &mut impl FnMut(Record)) {
        self.iter().for_each(done);
        self.latest.clear();
        self.issues.clear();
    }

    fn of(&mut self, told: &Record) -> Option<&mut Latest> {
        let identity = told.identity();
        let request = self.latest.get_mut(&identity.pointer())?;
        let is_it = request.begun.identity() == identity && request.state != State::Done;
        is_it.then_some(request)
    }

    fn begin(&mut self, told: &Record, done: &mut impl FnMut(Record)) {
        let identity = told.identity();
        let pointer = identity.pointer();
        if self.latest.len() >= MOST && !self.latest.contains_key(&pointer) {
            self.give_up(done);
        }
        self.issues.push_back((told.time_ns(), pointer));
        let new = Latest {
            begun: *told,
            state: State::Issued,
            in_doubt: self.in_doubt,
        };
        let Some(before) = self.latest.get_mut(&pointer) else {
            self.latest.insert(pointer, new);
            return;
        };
        if before.state == State::Requeued && before.begun.identity() == identity {
            before.begun = before.begun.issued_again(told);
            before.state = State::Issued;
            return;
        }
        if before.state != State::Done {
            done(before.begun.without_end());
        }
        *before = new;
    }

    fn end(&mut self, kind: Kind, told: &Record, done: &mut impl FnMut(Record)) {
        let request = self.of(told).and_then(|request| {
            let latency_ns = told.time_ns().checked_sub(request.begun.time_ns())?;
            Some((request, latency_ns))
        });
        let Some((request, latency_ns)) = request else {
            self.unpaired += u64::from(kind == Kind::Done);
            return;
        };
        request.state = State::Done;
        if request.in_doubt && !told.identity().is_sure() {
            done(request.begun.without_end());
            return;
        }
        request.begun.note_error(told);
        done(request.begun.with_latency(latency_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGUN: u64 = 1;
    const REQUEUED: u64 = 2;
    const PART_FAILED: u64 = 3;
    const DONE: u64 = 4;
    const MAY_BE_UNISSUED: u64 = 5;
    const NO_LATENCY: u64 = u64::MAX;

    /// Something that happened to the request at `pointer`, allocated at `allocated`.
    fn told(kind: u64, time_ns: u64, pointer: u64, allocated: u64) -> Record {
        let queue = 7 | 3 << 48;
        Record([
            time_ns,
            pointer << 22 | allocated,
            queue,
            0,
            0,
            0,
            0,
            kind << 58,
        ])
    }

    /// Time and latency of what comes of them.
    fn all(under_way: &mut UnderWay, records: &[Record]) -> Vec<(u64, u64)> {
        let mut done = Vec::new();
        for record in records {
            under_way.take(record, &mut |record| done.push((record.0[0], record.0[1])));
        }
        done
    }

    #[test]
    fn each_end_meets_its_beginning() {
        let mut under_way = UnderWay::default();
        let records = [
            told(BEGUN, 100, 1, 5),
            told(BEGUN, 110, 2, 5),
            told(DONE, 150, 2, 5),
            told(BEGUN, 160, 2, 6),
            told(DONE, 170, 1, 5),
            told(DONE, 175, 2, 6),
            told(DONE, 180, 3, 5),
            told(MAY_BE_UNISSUED, 190, 3, 5),
        ];
        let done = all(&mut under_way, &records);
        assert_eq!(done, [(110, 40), (100, 70), (160, 15)]);
        assert_eq!((under_way.unpaired, under_way.iter().count()), (1, 0));
    }

    #[test]
    fn an_end_of_another_request_at_the_same_place_is_none() {
        let mut under_way = UnderWay::default();
        // The end of the first and the beginning of the second were lost.
        let records = [told(BEGUN, 100, 1, 5), told(DONE, 900, 1, 6)];
        assert_eq!(all(&mut under_way, &records), []);
        assert_eq!(under_way.unpaired, 1);
        let next = [told(BEGUN, 950, 1, 7), told(DONE, 940, 1, 7)];
        assert_eq!(all(&mut under_way, &next), [(100, NO_LATENCY)]);
        assert_eq!(under_way.unpaired, 2, "older than its beginning");
        let mut left = Vec::new();
        under_way.give_up(&mut |record| left.push((record.0[0], record.0[1])));
        assert_eq!(left, [(950, NO_LATENCY)]);
    }

    #[test]
    fn what_is_of_no_known_kind_is_counted() {
        let mut under_way = UnderWay::default();
        let records = [
            told(BEGUN, 100, 1, 5),
            told(6, 110, 1, 5),
            told(DONE, 150, 1, 5),
        ];
        assert_eq!(all(&mut under_way, &records), [(100, 50)]);
        assert_eq!((under_way.undecodable, under_way.unpaired), (1, 0));
    }

    #[test]
    fn where_the_time_of_allocation_is_not_taken_lost_ends_leave_no_latency() {
        let mut under_way = UnderWay::default();
        let first = [told(BEGUN, 100, 1, 0), told(BEGUN, 100, 2, 9)];
        all(&mut under_way, &first);
        under_way.ends_are_missing(true);
        let during = [
            told(DONE, 200, 1, 0),
            told(DONE, 200, 2, 9),
            told(BEGUN, 300, 1, 0),
        ];
        assert_eq!(
            all(&mut under_way, &during),
            [(100, NO_LATENCY), (100, 100)]
        );
        under_way.ends_are_missing(false);
        let after = [
            told(DONE, 400, 1, 0),
            told(BEGUN, 500, 1, 0),
            told(DONE, 600, 1, 0),
        ];
        assert_eq!(all(&mut under_way, &after), [(300, NO_LATENCY), (500, 100)]);
    }

    #[test]
    fn a_requeued_request_waits_until_it_is_issued_again() {
        let mut under_way = UnderWay::default();
        let mut failed = told(PART_FAILED, 120, 1, 5);
        failed.0[3] = 9 << 48;
        let records = [
            told(BEGUN, 100, 1, 5),
            failed,
            told(REQUEUED, 130, 1, 5),
            told(BEGUN, 180, 1, 5),
            told(DONE, 200, 1, 5),
        ];
        let mut done = Vec::new();
        for record in &records {
            under_way.take(record, &mut |record| done.push(record.0));
        }
        // Issued at 180, queued for 7 + 80 before; the last processor; the error of the part.
        assert_eq!(done.len(), 1);
        assert_eq!(done[0][..4], [180, 20, 87 | 3 << 48, 9 << 48]);
    }

    #[test]
    fn it_is_known_up_to_when_all_are_done() {
        let mut under_way = UnderWay::default();
        let up_to = |under_way: &mut UnderWay| under_way.all_done_before(50, 1000);
        assert_eq!(up_to(&mut under_way), 1000);
        let begun = [100, 200, 300].map(|time_ns| told(BEGUN, time_ns, time_ns, 5));
        all(&mut under_way, &begun);
        assert_eq!(up_to(&mut under_way), 100);
        all(&mut under_way, &[told(DONE, 310, 200, 5)]);
        assert_eq!(up_to(&mut under_way), 100);
        all(&mut under_way, &[told(DONE, 320, 100, 5)]);
        assert_eq!(up_to(&mut under_way), 300);
        // Requeued and issued again, it began later; at last it takes too long.
        all(&mut under_way, &[told(REQUEUED, 330, 300, 5)]);
        assert_eq!(up_to(&mut under_way), 300);
        all(&mut under_way, &[told(BEGUN, 400, 300, 5)]);
        assert_eq!(up_to(&mut under_way), 400);
        assert_eq!(under_way.all_done_before(401, 1000), 1000);
        assert_eq!(under_way.iter().count(), 1);
    }

    #[test]
    fn memory_is_bounded() {
        let mut under_way = UnderWay::default();
        let mut done = 0;
        for pointer in 0..MOST as u64 + 5 {
            let begun = told(BEGUN, pointer, pointer, 1);
            under_way.take(&begun, &mut |_| done += 1);
        }
        assert_eq!((done, under_way.iter().count()), (MOST, 5));
    }
}
