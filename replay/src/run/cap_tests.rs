//! The cap over workers and targets, as the targets see it: devices in memory that count for
//! themselves what is outstanding, under random loads.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;

use super::*;
use crate::engine::Action;
use crate::map::Striping;
use crate::options::Timing;
use crate::plan::{Batch, channel};
use crate::sys::monotonic_ns;

/// All devices of a run.
#[derive(Debug, Default)]
struct Devices {
    state: Mutex<Load>,
}

#[derive(Clone, Debug, Default)]
struct Load {
    cap: u32,
    outstanding: u32,
    most: u32,
    since_ns: u64,
    at_cap_ns: u64,
    operation_ns: u128,
    /// By target: operations, and bytes of reads and writes.
    seen: Vec<(u64, u64)>,
    workers: std::collections::HashSet<std::thread::ThreadId>,
}

impl Load {
    fn pass(&mut self) {
        let now = monotonic_ns();
        let passed = now.saturating_sub(self.since_ns);
        self.operation_ns += u128::from(self.outstanding) * u128::from(passed);
        if self.outstanding == self.cap {
            self.at_cap_ns += passed;
        }
        self.since_ns = now;
    }
}

/// Completes what it was given in any order, now and then nothing.
struct Counting {
    devices: Arc<Devices>,
    in_flight: Vec<(u32, Io)>,
    random: Rng,
}

impl Engine for Counting {
    fn name(&self) -> &'static str {
        "counting"
    }

    fn take_notes(&mut self) -> Vec<String> {
        Vec::new()
    }

    fn now_ns(&self) -> u64 {
        monotonic_ns()
    }

    fn queue(&mut self, slot: u32, io: &Io) {
        let mut load = self.devices.state.lock().unwrap();
        load.pass();
        load.outstanding += 1;
        load.most = load.most.max(load.outstanding);
        let seen = &mut load.seen[usize::from(io.target)];
        seen.0 += 1;
        if matches!(io.action, Action::Read | Action::Write) {
            seen.1 += io.length;
        }
        load.workers.insert(std::thread::current().id());
        self.in_flight.push((slot, *io));
    }

    fn turn(&mut self, _wait: Wait, done: &mut Vec<Completion>) -> io::Result<()> {
        if self.random.u8(..) < 30 {
            std::thread::sleep(Duration::from_micros(self.random.u64(0..80)));
        }
        let mut load = self.devices.state.lock().unwrap();
        load.pass();
        for _ in 0..self.random.usize(0..=self.in_flight.len()) {
            let place = self.random.usize(..self.in_flight.len());
            let (slot, io) = self.in_flight.swap_remove(place);
            load.outstanding -= 1;
            let outcome = io.success();
            done.push(Completion { slot, outcome });
        }
        Ok(())
    }
}

/// A random request on stripes, by hand: how many operations, and bytes on each target.
fn request(random: &mut Rng, striping: Striping, expected: &mut [(u64, u64)]) -> Io {
    let stripe = striping.stripe_bytes;
    let flush = random.u8(..) < 10;
    let length = random.u64(1..=5 * stripe);
    let offset = random.u64(0..1 << 30);
    if flush {
        expected.iter_mut().for_each(|seen| seen.0 += 1);
        return striping.lay(Io {
            action: Action::Flush,
            target: Io::STRIPED,
            ..Io::default()
        });
    }
    let preflush = random.u8(..) < 10;
    if preflush {
        expected.iter_mut().for_each(|seen| seen.0 += 1);
    }
    let mut at = offset;
    while at < offset + length {
        let end = ((at / stripe + 1) * stripe).min(offset + length);
        let seen = &mut expected[(at / stripe) as usize % usize::from(striping.targets)];
        seen.0 += 1;
        seen.1 += end - at;
        at = end;
    }
    striping.lay(Io {
        action: Action::Write,
        offset,
        length,
        preflush,
        target: Io::STRIPED,
        ..Io::default()
    })
}

fn bounds(depth: u32, striping: Striping) -> Bounds {
    Bounds {
        depth,
        timing: Timing::Asap,
        warmup: Duration::ZERO,
        repeat_for: None,
        interval: Duration::from_millis(10),
        total_requests: None,
        striping: Some(striping),
    }
}

/// One replay; how many workers submitted something.
fn holds_the_cap(seed: u64) -> usize {
    let mut random = Rng::with_seed(seed);
    let workers = random.u32(1..=8);
    let striping = Striping {
        stripe_bytes: 4096 << random.u32(0..4),
        targets: random.u8(1..=4),
    };
    let cap = random.u32(1..=24);
    let count = 3_000;
    let context = format!("seed {seed}: {workers} workers, {striping:?}, cap {cap}");

    let mut expected = vec![(0, 0); usize::from(striping.targets)];
    let ios: Vec<Io> = (0..count)
        .map(|_| request(&mut random, striping, &mut expected))
        .collect();
    let devices = Arc::new(Devices {
        state: Mutex::new(Load {
            cap,
            seen: vec![(0, 0); usize::from(striping.targets)],
            since_ns: monotonic_ns(),
            ..Load::default()
        }),
    });
    let (outlet, feed) = channel();
    let batch = Batch {
        recorded_ns: vec![None; ios.len()],
        remapped: vec![false; ios.len()],
        ios,
        ..Batch::default()
    };
    outlet.batches.send(batch).unwrap();
    drop(outlet.batches);
    let start = || {
        Ok(Counting {
            devices: Arc::clone(&devices),
            in_flight: Vec::new(),
            random: Rng::with_seed(seed),
        })
    };
    let ended = run_workers(
        workers,
        &start,
        feed,
        &bounds(cap, striping),
        Attached::default(),
        &AtomicBool::new(false),
        &mut |_| {},
    );
    let outcome = ended.unwrap().outcome;
    let load = devices.state.lock().unwrap().clone();

    assert_eq!(outcome.ending, Ending::Done, "{context}");
    assert_eq!(
        (outcome.completed, outcome.abandoned),
        (count, 0),
        "{context}"
    );
    assert_eq!((load.outstanding, outcome.strays), (0, 0), "{context}");
    assert_eq!(load.seen, expected, "{context}");
    assert!(load.most <= cap, "{context}: {} outstanding", load.most);
    assert!(outcome.outstanding_max <= cap, "{context}");
    assert_eq!(
        outcome.outstanding_max.max(load.most),
        outcome.outstanding_max,
        "{context}"
    );
    assert!(
        outcome.littles_law_error < 1e-9,
        "{context}: {}",
        outcome.littles_law_error
    );
    // A token is out from before its operation reaches the device until after it has left it.
    assert!(
        outcome.outstanding.token_ns >= load.operation_ns,
        "{context}"
    );
    assert!(outcome.outstanding.at_cap_ns >= load.at_cap_ns, "{context}");
    assert!(load.workers.len() <= workers as usize, "{context}");
    load.workers.len()
}

#[test]
fn outstanding_never_exceeds_the_cap_as_the_devices_see_it() {
    // Who gets a turn is up to the system, but not always to the same one.
    let most_workers = (0..60).map(holds_the_cap).max();
    assert!(most_workers > Some(2), "{most_workers:?}");
}
