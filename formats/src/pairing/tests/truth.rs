//! A small block layer that knows which operation each completion belongs to: every latency that
//! pairing gives must be the true one, whatever is merged, split, done in parts or overlapping.

use proptest::prelude::*;

use crate::request::Flags;

use super::*;

/// What the submitter handed over.
#[derive(Clone, Debug)]
struct Bio {
    range: Bytes,
    begun_ns: u64,
    left: u64,
    done_ns: Option<u64>,
}

/// What the driver works on: parts of bios that follow each other.
#[derive(Clone, Debug)]
struct Work {
    range: Bytes,
    /// Index of a bio and what this covers of it.
    parts: Vec<(usize, Bytes)>,
}

#[derive(Default)]
struct World {
    now_ns: u64,
    bios: Vec<Bio>,
    queued: Vec<Work>,
    overlapped: bool,
    events: Vec<Event>,
}

const SECTOR: u64 = 512;

impl World {
    fn emit(&mut self, step: Step, range: &Bytes) {
        self.now_ns += 1;
        self.events.push(Event {
            time_ns: self.now_ns,
            step,
            device: DeviceIndex(0),
            op: Op::Write,
            flags: Flags::NONE,
            offset_bytes: range.start,
            length_bytes: range.end - range.start,
            cpu: None,
            error: None,
            process: None,
            cgroup: None,
        });
    }

    fn queue(&mut self, start: u64, sectors: u64) {
        let range = start * SECTOR..(start + sectors) * SECTOR;
        let open = self.bios.iter().filter(|bio| bio.done_ns.is_none());
        self.overlapped |= open
            .into_iter()
            .any(|bio| bio.range.start < range.end && range.start < bio.range.end);
        self.emit(Step::Queued, &range);
        let index = self.bios.len();
        self.bios.push(Bio {
            range: range.clone(),
            begun_ns: self.now_ns,
            left: range.end - range.start,
            done_ns: None,
        });
        self.queued.push(Work {
            range: range.clone(),
            parts: vec![(index, range)],
        });
    }

    fn split(&mut self, which: usize, at: u64) {
        if self.queued.is_empty() {
            return;
        }
        let which = which % self.queued.len();
        let work = self.queued[which].clone();
        let at = work.range.start + (at * SECTOR) % (work.range.end - work.range.start);
        if work.parts.len() != 1 || at == work.range.start {
            return;
        }
        let bio = work.parts[0].0;
        let pieces = [work.range.start..at, at..work.range.end];
        self.queued[which] = Work {
            range: pieces[0].clone(),
            parts: vec![(bio, pieces[0].clone())],
        };
        self.queued.push(Work {
            range: pieces[1].clone(),
            parts: vec![(bio, pieces[1].clone())],
        });
    }

    fn merge(&mut self, which: usize) {
        if self.queued.is_empty() {
            return;
        }
        let which = which % self.queued.len();
        let end = self.queued[which].range.end;
        let next = self.queued.iter().position(|work| work.range.start == end);
        let Some(next) = next.filter(|next| *next != which) else {
            return;
        };
        let taken = self.queued[next].clone();
        self.queued[which].range.end = taken.range.end;
        self.queued[which].parts.extend(taken.parts);
        self.queued.swap_remove(next);
    }

    /// Completes the first `sectors` of a request, or all of it.
    fn complete(&mut self, which: usize, sectors: Option<u64>) {
        if self.queued.is_empty() {
            return;
        }
        let which = which % self.queued.len();
        let work = self.queued[which].clone();
        let length = work.range.end - work.range.start;
        let done = match sectors {
            Some(sectors) => (sectors * SECTOR) % length + SECTOR,
            None => length,
        };
        let cut = work.range.start + done.min(length);
        self.emit(Step::RequestCompleted, &(work.range.start..cut));
        let mut rest = Work {
            range: cut..work.range.end,
            parts: Vec::new(),
        };
        for (index, part) in work.parts {
            let bio = &mut self.bios[index];
            bio.left -= part.end.min(cut) - part.start.min(cut);
            if bio.left == 0 {
                bio.done_ns = Some(self.now_ns);
            }
            if part.end > cut {
                rest.parts.push((index, part.start.max(cut)..part.end));
            }
        }
        match rest.parts.is_empty() {
            true => drop(self.queued.swap_remove(which)),
            false => self.queued[which] = rest,
        }
    }
}

fn run(actions: &[(u8, u16, u16)], space: u64) -> World {
    let mut world = World::default();
    for (action, first, second) in actions {
        let (first, second) = (u64::from(*first), u64::from(*second));
        match action % 8 {
            0..=2 => world.queue(first % space, second % 16 + 1),
            3 => world.split(first as usize, second),
            4 => world.merge(first as usize),
            5 => world.complete(first as usize, Some(second)),
            _ => world.complete(first as usize, None),
        }
    }
    world
}

fn check(world: &World) -> Result<(), TestCaseError> {
    let mut pairing = Pairing::new(vec![rules(Layer::Queue)], Limits::default(), 0, None);
    for event in &world.events {
        pairing.event(event.clone());
    }
    let mut requests = Vec::new();
    pairing.finish(&mut requests);
    prop_assert_eq!(requests.len(), world.bios.len());
    for (request, bio) in requests.iter().zip(&world.bios) {
        prop_assert_eq!(request.time_ns, bio.begun_ns);
        prop_assert_eq!(
            request.offset_bytes..request.end_bytes().unwrap(),
            bio.range.clone()
        );
        let truth = bio.done_ns.map(|done_ns| done_ns - bio.begun_ns);
        if let Some(latency) = request.latency_ns {
            prop_assert_eq!(Some(latency), truth, "{:?} of {:?}", request, world.events);
        } else if !world.overlapped {
            prop_assert_eq!(truth, None, "nothing overlapped: {:?}", request);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn latencies_are_true_where_much_overlaps(actions in prop::collection::vec(any::<(u8, u16, u16)>(), 0..60)) {
        check(&run(&actions, 40))?;
    }

    #[test]
    fn latencies_are_complete_where_nothing_overlaps(actions in prop::collection::vec(any::<(u8, u16, u16)>(), 0..60)) {
        let world = run(&actions, 4000);
        check(&world)?;
    }
}
