//! The loop against a device of which everything is known: its own clock, so many servers, one
//! service time.

use std::collections::BTreeSet;

use super::*;
use crate::map::Striping;
use crate::options::Timing;
use crate::plan::{Batch, channel};
use crate::sys::code;

const MS: u64 = 1_000_000;

/// `servers` servers that each take `service_ns`, in the order of submission.
struct Toy {
    now_ns: std::cell::Cell<u64>,
    service_ns: u64,
    free_at_ns: Vec<u64>,
    /// Completion time and slot.
    in_flight: BTreeSet<(u64, u32)>,
    most_in_flight: usize,
    /// Outcome in place of success, from this request on.
    fails_from: Option<(usize, i64)>,
    /// Completes nothing from this request on.
    silent_from: Option<usize>,
    seen: usize,
    outcomes: BTreeMap<u32, i64>,
    /// Time, action, target, offset and length of each submission.
    log: Vec<(u64, Action, u8, u64, u64)>,
}

impl Toy {
    fn new(servers: usize, service_ns: u64) -> Self {
        Toy {
            now_ns: std::cell::Cell::new(5_000),
            service_ns,
            free_at_ns: vec![0; servers],
            in_flight: BTreeSet::new(),
            most_in_flight: 0,
            fails_from: None,
            silent_from: None,
            seen: 0,
            outcomes: BTreeMap::new(),
            log: Vec::new(),
        }
    }
}

impl Engine for Toy {
    fn name(&self) -> &'static str {
        "toy"
    }

    fn take_notes(&mut self) -> Vec<String> {
        Vec::new()
    }

    fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    fn queue(&mut self, slot: u32, io: &Io) {
        let server = self.free_at_ns.iter_mut().min().unwrap();
        let done = (*server).max(self.now_ns.get()) + self.service_ns;
        *server = done;
        let outcome = match self.fails_from {
            Some((from, outcome)) if self.seen >= from => outcome,
            _ if matches!(io.action, Action::Read | Action::Write) => io.length.cast_signed(),
            _ => 0,
        };
        let now = self.now_ns.get() - 5_000;
        self.log
            .push((now, io.action, io.target, io.offset, io.length));
        self.outcomes.insert(slot, outcome);
        if self.silent_from.is_none_or(|from| self.seen < from) {
            self.in_flight.insert((done, slot));
        }
        self.seen += 1;
        self.most_in_flight = self.most_in_flight.max(self.in_flight.len());
    }

    /// Everything that completes at the next moment at which something does.
    fn turn(&mut self, _wait: Wait, done: &mut Vec<Completion>) -> io::Result<()> {
        let Some(&(at, _)) = self.in_flight.first() else {
            self.now_ns.set(self.now_ns.get() + whole_ns(TICK));
            return Ok(());
        };
        self.now_ns.set(at);
        while let Some(&(time, slot)) = self.in_flight.first() {
            if time > at {
                break;
            }
            self.in_flight.pop_first();
            let outcome = self.outcomes[&slot];
            done.push(Completion { slot, outcome });
        }
        Ok(())
    }
}

fn bounds(depth: u32) -> Bounds {
    Bounds {
        depth,
        timing: Timing::Asap,
        warmup: Duration::ZERO,
        repeat_for: None,
        interval: Duration::from_millis(10),
        total_requests: None,
        striping: None,
    }
}

/// Replays `count` reads of a page.
fn replay(toy: &mut Toy, count: usize, bounds: &Bounds) -> Outcome {
    let read = Io {
        length: 4096,
        ..Io::default()
    };
    replay_all(toy, vec![read; count], bounds)
}

fn replay_all(toy: &mut Toy, ios: Vec<Io>, bounds: &Bounds) -> Outcome {
    let (outlet, feed) = channel();
    let batch = Batch {
        recorded_ns: vec![None; ios.len()],
        remapped: vec![false; ios.len()],
        ios,
        ..Batch::default()
    };
    outlet.batches.send(batch).unwrap();
    drop(outlet.batches);
    run(
        toy,
        feed,
        bounds,
        Attached::default(),
        &AtomicBool::new(false),
        &mut |_| {},
    )
    .unwrap()
    .outcome
}

#[test]
fn throughput_and_response_are_those_of_the_known_device() {
    for servers in [1u64, 3, 8] {
        for depth in [1u64, 2, 8, 48] {
            for service_ns in [100_000, 7 * MS] {
                let busy = servers.min(depth);
                let count = 9_600 * busy;
                let mut toy = Toy::new(servers as usize, service_ns);
                let options = Bounds {
                    interval: Duration::from_secs(3_600),
                    ..bounds(depth as u32)
                };
                let outcome = replay(&mut toy, count as usize, &options);
                let context = format!("c {servers}, d {depth}, s {service_ns}");

                assert_eq!(outcome.elapsed_ns, count / busy * service_ns, "{context}");
                assert_eq!(toy.most_in_flight, depth as usize, "{context}");
                assert_eq!(u64::from(outcome.outstanding_max), depth, "{context}");
                let reads = &outcome.ops[Action::Read.index()];
                assert_eq!((reads.requests, reads.bytes), (count, count * 4096));
                // In steady state d / throughput; the first and the last d requests wait less.
                let steady = depth as f64 / busy as f64 * service_ns as f64;
                let mean = reads.all_service().figures().unwrap().mean;
                assert!(
                    (mean / steady - 1.0).abs() < 0.006,
                    "{context}: {mean} for {steady}"
                );
                // Little's law: Σ service / time.
                let expected = mean * count as f64 / outcome.elapsed_ns as f64;
                assert!(
                    (outcome.outstanding.mean() / expected - 1.0).abs() < 1e-9,
                    "{context}"
                );
                assert!(outcome.littles_law_error == 0.0, "{context}");
                // At the cap until the last d - 1 requests are alone: less than d services.
                let share = outcome.outstanding.at_cap_share();
                assert!(
                    share > 1.0 - depth as f64 / 9_600.0 && share <= 1.0,
                    "{context}: {share}"
                );
            }
        }
    }
}

#[test]
fn the_warm_up_is_left_out_to_the_nanosecond() {
    let mut toy = Toy::new(1, MS);
    let options = Bounds {
        warmup: Duration::from_millis(10),
        ..bounds(1)
    };
    let outcome = replay(&mut toy, 100, &options);
    assert_eq!(outcome.ops[Action::Read.index()].requests, 90);
    assert_eq!((outcome.warmup_ns, outcome.elapsed_ns), (10 * MS, 90 * MS));
    assert_eq!((outcome.completed, outcome.run_ns), (100, 100 * MS));
    assert!((outcome.outstanding.mean() - 1.0).abs() < 1e-12);
    // A completion on the edge of two intervals falls into the later one.
    let counts: Vec<u64> = outcome.intervals.iter().map(|i| i.requests).collect();
    assert_eq!(counts, [9, 10, 10, 10, 10, 10, 10, 10, 10, 1]);
    assert!(
        outcome
            .intervals
            .iter()
            .all(|i| (i.outstanding_mean - 1.0).abs() < 1e-9 || i.requests == 1)
    );
}

#[test]
fn the_time_asked_for_bounds_the_submissions() {
    let mut toy = Toy::new(2, MS);
    let options = Bounds {
        repeat_for: Some(Duration::from_millis(50)),
        ..bounds(4)
    };
    let outcome = replay(&mut toy, 100_000, &options);
    // Two a millisecond for 50 ms, and the four in flight at the end.
    assert_eq!(outcome.ops[Action::Read.index()].requests, 2 * 50 + 2);
    assert_eq!(
        (outcome.ending, outcome.elapsed_ns),
        (Ending::Done, 51 * MS)
    );
}

#[test]
fn failures_are_counted_by_kind_and_a_thousand_in_a_row_end_the_run() {
    let mut toy = Toy::new(4, MS);
    toy.fails_from = Some((50, -i64::from(code::IO)));
    let outcome = replay(&mut toy, 5_000, &bounds(8));
    assert_eq!(outcome.ending, Ending::Hopeless);
    let eio = (Action::Read.index(), Failure::Errno(code::IO));
    // What was in flight with the thousandth still comes back.
    assert_eq!(outcome.errors, BTreeMap::from([(eio, 1_000 + 6)]));
    assert_eq!(outcome.abandoned, 0);

    let mut toy = Toy::new(4, MS);
    toy.fails_from = Some((9_999, 512));
    let outcome = replay(&mut toy, 10_000, &bounds(8));
    let short = (Action::Read.index(), Failure::Short);
    assert_eq!(outcome.errors, BTreeMap::from([(short, 1)]));
    assert_eq!(outcome.ending, Ending::Done);
    assert_eq!(outcome.ops[Action::Read.index()].bytes, 9_999 * 4096);
}

#[test]
fn a_target_that_stops_answering_is_given_up() {
    let mut toy = Toy::new(1, MS);
    toy.silent_from = Some(10);
    let outcome = replay(&mut toy, 100, &bounds(4));
    assert_eq!(outcome.ending, Ending::Stalled);
    assert_eq!((outcome.completed, outcome.abandoned), (10, 4));
    assert!(outcome.run_ns > whole_ns(STALL));
    assert!(outcome.littles_law_error == 0.0);
}

#[test]
fn a_stop_submits_nothing_more_and_waits_for_what_is_in_flight() {
    let (outlet, feed) = channel();
    let ios = vec![Io::default(); 5_000];
    outlet
        .batches
        .send(Batch {
            ios,
            ..Batch::default()
        })
        .unwrap();
    let mut toy = Toy::new(1, MS);
    let stop = AtomicBool::new(false);
    // The first report comes after a second: a thousand services.
    let mut reported = 0;
    let outcome = run(
        &mut toy,
        feed,
        &bounds(4),
        Attached::default(),
        &stop,
        &mut |progress| {
            let Progress::Running { requests, .. } = progress else {
                return;
            };
            reported = *requests;
            stop.store(true, Ordering::Relaxed);
        },
    );
    let outcome = outcome.unwrap().outcome;
    assert_eq!(outcome.ending, Ending::Stopped);
    assert_eq!(
        (reported, outcome.completed, outcome.abandoned),
        (999, 1_003, 0)
    );
}

const PAIR: Striping = Striping {
    stripe_bytes: 4096,
    targets: 2,
};

fn striped(depth: u32) -> Bounds {
    Bounds {
        striping: Some(PAIR),
        ..bounds(depth)
    }
}

fn laid(action: Action, offset: u64, length: u64, preflush: bool) -> Io {
    PAIR.lay(Io {
        action,
        offset,
        length,
        preflush,
        target: Io::STRIPED,
        ..Io::default()
    })
}

#[test]
fn a_request_of_several_parts_is_one_and_takes_its_tokens_at_once() {
    // Each operation takes a millisecond, whatever else is in flight.
    let mut toy = Toy::new(8, MS);
    let page = |offset| laid(Action::Read, offset, 4096, false);
    let three = laid(Action::Read, 4096, 3 * 4096, false);
    let outcome = replay_all(&mut toy, vec![page(0), three, page(4096)], &striped(3));
    // The three wait for the first page's token, and the last page for them.
    let times: Vec<(u64, u8, u64)> = toy.log.iter().map(|l| (l.0, l.2, l.3)).collect();
    assert_eq!(
        times,
        [
            (0, 0, 0),
            (MS, 1, 0),
            (MS, 0, 4096),
            (MS, 1, 4096),
            (2 * MS, 1, 0)
        ]
    );
    let reads = &outcome.ops[Action::Read.index()];
    assert_eq!((reads.requests, reads.bytes), (3, 5 * 4096));
    assert_eq!(reads.all_service().figures().unwrap().max, MS);
    assert_eq!((outcome.completed, outcome.outstanding_max), (3, 3));
    assert!(outcome.littles_law_error == 0.0);
}

#[test]
fn more_parts_than_tokens_run_in_turn() {
    let mut toy = Toy::new(8, MS);
    let seven = laid(Action::Write, 0, 7 * 4096, false);
    let after = laid(Action::Read, 0, 4096, false);
    let outcome = replay_all(&mut toy, vec![seven, after], &striped(3));
    let times: Vec<u64> = toy.log.iter().map(|l| l.0 / MS).collect();
    assert_eq!(times, [0, 0, 0, 1, 1, 1, 2, 2]);
    // From the first part's submission to the last one's completion.
    let write = outcome.ops[Action::Write.index()]
        .all_service()
        .figures()
        .unwrap();
    assert_eq!((write.count, write.max), (1, 3 * MS));
    assert_eq!(toy.most_in_flight, 3);
    assert!(outcome.littles_law_error == 0.0);
}

#[test]
fn writes_behind_a_preflush_wait_for_every_flush_and_nothing_passes_them() {
    let mut toy = Toy::new(1, MS);
    let write = laid(Action::Write, 4096, 2 * 4096, true);
    let after = laid(Action::Read, 0, 4096, false);
    let outcome = replay_all(&mut toy, vec![write, after, after], &striped(3));
    let log: Vec<(u64, Action)> = toy.log.iter().map(|l| (l.0 / MS, l.1)).collect();
    // One server: the flushes end after 1 and 2 ms, the read that had the third token after 3.
    assert_eq!(
        log,
        [
            (0, Action::Flush),
            (0, Action::Flush),
            (0, Action::Read),
            (1, Action::Read),
            (3, Action::Write),
            (3, Action::Write)
        ]
    );
    assert_eq!(outcome.completed, 3);
    assert!(outcome.littles_law_error == 0.0);
}

#[test]
fn a_failed_part_fails_its_request_and_ends_it() {
    let mut toy = Toy::new(8, MS);
    toy.fails_from = Some((2, -i64::from(code::IO)));
    let ten = laid(Action::Read, 0, 10 * 4096, false);
    let outcome = replay_all(&mut toy, vec![ten], &striped(2));
    let eio = (Action::Read.index(), Failure::Errno(code::IO));
    assert_eq!(outcome.errors, BTreeMap::from([(eio, 1)]));
    assert_eq!(
        (toy.log.len(), outcome.completed, outcome.abandoned),
        (4, 1, 0)
    );
}
