//! A simulated device: some servers, a distribution of service times, stalls, and a clock of its
//! own. What a run on it should measure can be computed by hand.
//!
//! The clock stands still but in turns that wait, and then goes to the next completion or to the
//! end of the wait, whichever comes first. So a run takes no time, and is the same each time.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::io;

use fastrand::Rng;

use super::{Completion, Engine, Io, TICK, Wait};
use crate::sim_spec::{Distribution, SimSpec, Stall};
use crate::sys::code;

/// See the module.
#[derive(Debug)]
pub struct SimEngine {
    device: Device,
    now_ns: u64,
    /// Completion time and slot.
    in_flight: BTreeSet<(u64, u32)>,
    outcomes: Vec<i64>,
    most_in_flight: usize,
}

/// A queue, served in the order of arrival by whichever server is free first.
#[derive(Debug)]
struct Device {
    spec: SimSpec,
    free_at_ns: BinaryHeap<Reverse<u64>>,
    random: Rng,
}

impl SimEngine {
    /// A device with `depth` slots, all servers idle, at time 0.
    pub fn new(depth: u32, spec: &SimSpec) -> Self {
        SimEngine {
            device: Device {
                spec: spec.clone(),
                free_at_ns: (0..spec.servers).map(|_| Reverse(0)).collect(),
                random: Rng::with_seed(spec.seed),
            },
            now_ns: 0,
            in_flight: BTreeSet::new(),
            outcomes: vec![0; usize::try_from(depth).unwrap_or(0)],
            most_in_flight: 0,
        }
    }

    /// Most operations that the device has held at once, by its own count.
    #[cfg(test)]
    pub fn most_in_flight(&self) -> usize {
        self.most_in_flight
    }

    fn next_completion_ns(&self) -> Option<u64> {
        self.in_flight.first().map(|&(time_ns, _)| time_ns)
    }
}

impl Device {
    /// When an operation that arrives now is done.
    fn serve(&mut self, now_ns: u64) -> u64 {
        let service_ns = match self.spec.distribution {
            Distribution::Fixed => self.spec.service_ns,
            Distribution::Exponential => exponential(self.spec.service_ns, &mut self.random),
        };
        // As many servers as were made, and at least one by the specification.
        let Reverse(free_ns) = self.free_at_ns.pop().unwrap_or(Reverse(now_ns));
        let done_ns = worked(free_ns.max(now_ns), service_ns, &self.spec.stalls);
        self.free_at_ns.push(Reverse(done_ns));
        done_ns
    }
}

/// When `work_ns` of work that begin at a time are done, given stalls in order in which none is.
fn worked(from_ns: u64, work_ns: u64, stalls: &[Stall]) -> u64 {
    let mut done_ns = from_ns.saturating_add(work_ns);
    for stall in stalls {
        let end_ns = stall.at_ns.saturating_add(stall.length_ns);
        if stall.at_ns < done_ns && from_ns < end_ns {
            done_ns = done_ns.saturating_add(end_ns - from_ns.max(stall.at_ns));
        }
    }
    done_ns
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a random time, positive, to the nanosecond"
)]
fn exponential(mean_ns: u64, random: &mut Rng) -> u64 {
    // 1 - [0, 1) is never 0.
    (-(1.0 - random.f64()).ln() * mean_ns as f64).round() as u64
}

impl Engine for SimEngine {
    const VIRTUAL_CLOCK: bool = true;

    fn name(&self) -> &'static str {
        "sim"
    }

    fn take_notes(&mut self) -> Vec<String> {
        Vec::new()
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn queue(&mut self, slot: u32, io: &Io) {
        let end = io.offset.checked_add(io.length);
        let fits = end.is_some_and(|end| end <= self.device.spec.size_bytes);
        if let Some(outcome) = usize::try_from(slot)
            .ok()
            .and_then(|index| self.outcomes.get_mut(index))
        {
            *outcome = if fits {
                io.success()
            } else {
                -i64::from(code::IO)
            };
        }
        self.in_flight
            .insert((self.device.serve(self.now_ns), slot));
        self.most_in_flight = self.most_in_flight.max(self.in_flight.len());
    }

    fn turn(&mut self, wait: Wait, done: &mut Vec<Completion>) -> io::Result<()> {
        let tick_ns = self
            .now_ns
            .saturating_add(u64::try_from(TICK.as_nanos()).unwrap_or(u64::MAX));
        let limit_ns = match wait {
            Wait::No => self.now_ns,
            Wait::Until(time_ns) => time_ns.min(tick_ns),
            Wait::Tick => tick_ns,
        };
        let next_ns = self.next_completion_ns().unwrap_or(u64::MAX);
        self.now_ns = self.now_ns.max(limit_ns.min(next_ns));
        while let Some(&(time_ns, slot)) = self.in_flight.first()
            && time_ns <= self.now_ns
        {
            self.in_flight.pop_first();
            let index = usize::try_from(slot).unwrap_or(usize::MAX);
            let outcome = self.outcomes.get(index).copied().unwrap_or(0);
            done.push(Completion { slot, outcome });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn spec(text: &str) -> SimSpec {
        text.parse().unwrap()
    }

    fn read() -> Io {
        Io {
            length: 4096,
            ..Io::default()
        }
    }

    /// Completion times of `count` operations that all arrive at 0.
    fn times(spec: &SimSpec, count: u32) -> Vec<u64> {
        let mut engine = SimEngine::new(count, spec);
        for slot in 0..count {
            engine.queue(slot, &read());
        }
        assert_eq!(engine.most_in_flight(), count as usize);
        let mut times = Vec::new();
        let mut done = Vec::new();
        while times.len() < count as usize {
            engine.turn(Wait::Tick, &mut done).unwrap();
            times.extend(done.drain(..).map(|_| engine.now_ns()));
        }
        times
    }

    #[test]
    fn two_servers_serve_in_turn() {
        let times = times(&spec("servers=2,service=1ms"), 5);
        assert_eq!(times, [MS, MS, 2 * MS, 2 * MS, 3 * MS]);
    }

    #[test]
    fn no_work_is_done_in_a_stall() {
        let spec = spec("service=2ms,stall=10ms@3ms,stall=1ms@14ms");
        // The second is at work from 2 to 3 and from 13 to 14; the third begins where it ends.
        assert_eq!(times(&spec, 3), [2 * MS, 14 * MS, 17 * MS]);
    }

    #[test]
    fn a_wait_ends_at_its_time_or_with_a_completion() {
        let mut engine = SimEngine::new(1, &spec("service=1ms"));
        let mut done = Vec::new();
        engine.queue(0, &read());
        engine.turn(Wait::No, &mut done).unwrap();
        assert_eq!((engine.now_ns(), done.len()), (0, 0));
        engine.turn(Wait::Until(MS - 1), &mut done).unwrap();
        assert_eq!((engine.now_ns(), done.len()), (MS - 1, 0));
        engine.turn(Wait::Until(9 * MS), &mut done).unwrap();
        assert_eq!((engine.now_ns(), done.len()), (MS, 1));
        engine.turn(Wait::Until(0), &mut done).unwrap();
        engine.turn(Wait::Tick, &mut done).unwrap();
        assert_eq!((engine.now_ns(), done.len()), (101 * MS, 1));
    }

    #[test]
    fn exponential_service_times_have_their_mean_and_come_again() {
        let spec = spec("service=100us,dist=exp,seed=7");
        let last = |spec: &SimSpec| *times(spec, 20_000).last().unwrap() as f64;
        let mean_ns = last(&spec) / 20_000.0;
        // The mean of 20,000 has a standard error of 0.7 %.
        assert!((mean_ns / 100_000.0 - 1.0).abs() < 0.03, "{mean_ns}");
        assert!((last(&spec) / 20_000.0 - mean_ns).abs() < 1e-9);
        let other = SimSpec { seed: 8, ..spec };
        assert!((last(&other) / 20_000.0 - mean_ns).abs() > 1.0);
    }

    #[test]
    fn what_lies_behind_the_end_fails() {
        let mut engine = SimEngine::new(2, &spec("service=1us,size=8KiB"));
        let mut done = Vec::new();
        for (slot, offset) in [(0, 4096), (1, 4097)] {
            engine.queue(slot, &Io { offset, ..read() });
        }
        while done.len() < 2 {
            engine.turn(Wait::Tick, &mut done).unwrap();
        }
        let outcomes: Vec<i64> = done.iter().map(|done| done.outcome).collect();
        assert_eq!(outcomes, [4096, -i64::from(code::IO)]);
    }
}
