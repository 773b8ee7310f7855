//! Requests as BPF programs on the block tracepoints see them: by their pointers, so that each has its
//! own latency whatever else is under way.
//!
//! ```text
//! programs on tracepoints ── table of bios (by pointer): who asks for a request
//!        │ a request begins, is done: 64 bytes each, where it happens
//!        ▼
//! rings of the processors, mapped ── merged by time ── put together ── slices of time ── requests in order
//! ```
//!
//! The programs lock and allocate nothing. They wake nobody until a ring is half full, and then once
//! until it was read. A ring that is full loses the newest record, which is counted on its processor.
//! Beginnings leave a quarter of it to ends, and are lost from the loss of an end until the rings are
//! read. How many requests are missing is known exactly, and a request is known by its pointer and the
//! time of its allocation, so that a loss puts no other in doubt.

mod groups;
mod kernel_values;
mod lane;
mod layout;
mod programs;
mod record;
mod under_way;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use iotape_formats::arrivals::Arrivals;
use iotape_formats::tape::{Counters, LossReason};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::groups::SeenGroups;
use self::kernel_values::KernelValues;
use self::lane::Lane;
use self::layout::Layout;
use self::programs::Programs;
use self::record::{KEY, Record, WORDS};
use self::under_way::UnderWay;
use super::arm::{self, Plan};
use super::devices::BlockDevice;
use super::merge::Merge;
use super::source::{Lost, Place, Source, Told};
use crate::CaptureError;

pub(super) use self::kernel_values::VMLINUX;

/// How long a request waits for earlier ones at most, and how many wait.
const HOLD_NS: u64 = 1_000_000_000;
const WAITING: usize = 256 << 10;
/// How long the rings may lie while much happens. Whom the recorder displaces, the scheduler may leave
/// on one processor with others for milliseconds, while another has nothing to do.
const RUSH_PATIENCE: Duration = Duration::from_millis(500);
/// A bio that waited longer for its request than this was not seen to get one.
const FORGET_NS: u64 = 60_000_000_000;
/// How often what was missed, and what is forgotten, is looked for.
const LOOK_NS: u64 = 1_000_000_000;
const SWEEP_NS: u64 = 10_000_000_000;

/// Words of what a processor tells (`struct processor`), and their places.
const PROCESSOR_WORDS: usize = 32;
const HEAD: usize = 0;
const LOST: usize = 1;
const UNTRACKED: usize = 2;
const UNPAIRED: usize = 3;
const MERGES: usize = 4;
const SPLITS: usize = 5;
const REQUEUES: usize = 6;
const FLUSH_WISHES: usize = 7;
const FLUSHES: usize = 8;
const ENDS_LOST: usize = 9;
const TAIL: usize = 16;
const WOKEN: usize = 17;

/// The programs, and what they have told.
#[derive(Debug)]
pub(super) struct Bpf {
    programs: Programs,
    layout: Layout,
    values: KernelValues,
    /// Up to here each processor's ring was read.
    tails: Vec<u64>,
    merge: Merge,
    under_way: UnderWay,
    arrivals: Arrivals<Record>,
    seen: Seen,
    groups: SeenGroups,
    /// Ends that had been lost when the rings were last looked at.
    ends_lost: u64,
    drained_ns: u64,
    looked_ns: u64,
    swept_ns: u64,
}

/// The sums over all processors that are accounted for.
#[derive(Debug, Default)]
struct Seen {
    lost: u64,
    ends_lost: u64,
    misses: u64,
    unpaired: u64,
    merges: u64,
    splits: u64,
    requeues: u64,
    coalesced_flushes: u64,
    undecodable: u64,
}

impl Bpf {
    /// Loads the programs for these devices and attaches them.
    pub fn attach(
        devices: &[BlockDevice],
        ring_bytes: usize,
        now_ns: u64,
    ) -> Result<Bpf, CaptureError> {
        let system = |action: &str| {
            let action = action.to_owned();
            move |source| CaptureError::System { action, source }
        };
        let possible = arm::possible_cpus().map_err(system("reading the list of processors"))?;
        let processors = possible.iter().max().map_or(1, |last| *last as usize + 1);
        let values = KernelValues::read().map_err(super::rights::btf_error)?;
        let layout = Layout::new(devices, processors, ring_bytes);
        Ok(Bpf {
            programs: Programs::attach(&layout)?,
            tails: vec![0; processors],
            layout,
            values,
            merge: Merge::default(),
            under_way: UnderWay::default(),
            arrivals: Arrivals::new(HOLD_NS, WAITING),
            seen: Seen::default(),
            groups: SeenGroups::default(),
            ends_lost: 0,
            drained_ns: now_ns,
            looked_ns: now_ns,
            swept_ns: now_ns,
        })
    }

    /// Tracepoints that the kernel does not have: what they count is missing.
    pub fn missing(&self) -> &[&'static str] {
        &self.programs.missing
    }

    /// Takes what the rings have from before `until_ns`.
    fn take_records(&mut self, until_ns: u64) {
        let (rings, processors) = (
            self.programs.rings.words(),
            self.programs.processors.words(),
        );
        let slots = self.layout.ring_slots;
        let told = processors.chunks_exact(PROCESSOR_WORDS);
        let mut lanes: Vec<Lane<'_>> = self
            .tails
            .iter()
            .zip(told)
            .zip(rings.chunks_exact(slots * WORDS))
            .map(|((tail, told), ring)| Lane::new(*tail, told, ring))
            .collect();
        // After the ends of the lanes: what was lost before one of their records is counted.
        let ends_lost = self.sum(ENDS_LOST);
        let (under_way, arrivals, groups) =
            (&mut self.under_way, &mut self.arrivals, &mut self.groups);
        under_way.ends_are_missing(ends_lost != self.ends_lost);
        self.ends_lost = ends_lost;
        self.merge.run(&mut lanes, until_ns, |lane, limit_ns| {
            while let Some(record) = lane.take_before(limit_ns) {
                under_way.take(&record, &mut |record| {
                    groups.notice(record.cgroup());
                    arrivals.add(record.time_ns(), record);
                });
            }
        });
        for (tail, lane) in self.tails.iter_mut().zip(lanes) {
            *tail = lane.give_back();
        }
        let blocked = &self.programs.blocked.words()[0];
        if blocked.load(Ordering::Relaxed) != 0 {
            blocked.store(0, Ordering::Relaxed);
        }
    }

    /// Up to when everything is known that began, if the rings are, up to `until_ns`. Of bios it is
    /// not: those that wait are in the kernel.
    fn complete_until(&mut self, until_ns: u64) -> u64 {
        let held_ns = until_ns.saturating_sub(HOLD_NS);
        // In any case: it forgets what it has told.
        let done_ns = self.under_way.all_done_before(held_ns, until_ns);
        match self.layout.has_queue_layer() {
            true => held_ns,
            false => done_ns,
        }
    }

    /// Hands on what began before `until_ns`.
    fn hand_on(&mut self, until_ns: u64, told: &mut dyn FnMut(Told<'_>)) {
        // Before their requests, so that their names are found in time.
        self.groups.take_new(&mut |id| told(Told::Group(id)));
        let (layout, values) = (&self.layout, &self.values);
        let late = self
            .arrivals
            .release_before(until_ns, &mut |record: Record| {
                let Some(device) = layout.devices.get(record.device()) else {
                    told(Told::Counted(Counters {
                        undecodable: 1,
                        ..Counters::default()
                    }));
                    return;
                };
                let name = record.name();
                told(Told::Request(record.decode(device.dev, &name, values)));
            });
        if late > 0 {
            told(Told::Counted(Counters {
                late,
                ..Counters::default()
            }));
        }
    }

    fn sum(&self, place: usize) -> u64 {
        let words = self.programs.processors.words().iter();
        let of_each = words.skip(place).step_by(PROCESSOR_WORDS);
        of_each.map(|word| word.load(Ordering::Relaxed)).sum()
    }

    /// Tells what was counted since the last time.
    fn tell_counts(&mut self, now_ns: u64, told: &mut dyn FnMut(Told<'_>)) {
        self.tell_lost(now_ns, told);
        let saved = self.sum(FLUSH_WISHES).saturating_sub(self.sum(FLUSHES));
        let (sums, seen) = (
            [UNPAIRED, MERGES, SPLITS, REQUEUES].map(|place| self.sum(place)),
            &mut self.seen,
        );
        let more = |seen: &mut u64, sum: u64| {
            let more = sum.saturating_sub(*seen);
            *seen += more;
            more
        };
        let counters = Counters {
            unpaired_completions: more(&mut seen.unpaired, sums[0] + self.under_way.unpaired),
            merges: more(&mut seen.merges, sums[1]),
            splits: more(&mut seen.splits, sums[2]),
            requeues: more(&mut seen.requeues, sums[3]),
            coalesced_flushes: more(&mut seen.coalesced_flushes, saved),
            undecodable: more(&mut seen.undecodable, self.under_way.undecodable),
            ..Counters::default()
        };
        if counters != Counters::default() {
            told(Told::Counted(counters));
        }
    }

    fn tell_lost(&mut self, now_ns: u64, told: &mut dyn FnMut(Told<'_>)) {
        let (lost, ends_lost) = (self.sum(LOST) + self.sum(UNTRACKED), self.sum(ENDS_LOST));
        let requests = lost - self.seen.lost;
        let events = requests + (ends_lost - self.seen.ends_lost);
        if events > 0 {
            (self.seen.lost, self.seen.ends_lost) = (lost, ends_lost);
            told(Told::Lost(Lost {
                from_ns: self.drained_ns,
                to_ns: now_ns,
                events,
                requests: Some(requests),
                reason: LossReason::RingFull,
            }));
        }
    }

    /// Tells which calls of programs the kernel left out.
    fn tell_misses(&mut self, now_ns: u64, told: &mut dyn FnMut(Told<'_>)) {
        let misses = self.programs.misses();
        if misses > self.seen.misses {
            told(Told::Lost(Lost {
                from_ns: self.looked_ns,
                to_ns: now_ns,
                events: misses - self.seen.misses,
                requests: None,
                reason: LossReason::Unknown,
            }));
            self.seen.misses = misses;
        }
    }

    fn look(&mut self, now_ns: u64, told: &mut dyn FnMut(Told<'_>)) {
        self.tell_misses(now_ns, told);
        self.looked_ns = now_ns;
        if now_ns.saturating_sub(self.swept_ns) >= SWEEP_NS {
            self.swept_ns = now_ns;
            self.sweep(now_ns);
        }
    }

    /// Forgets what was queued for the device layer and never became a request that was seen.
    fn sweep(&self, now_ns: u64) {
        for slot in self.programs.bios.words().chunks_exact(WORDS) {
            let key = slot[KEY].load(Ordering::Acquire);
            if key == 0 {
                continue;
            }
            let record = read(slot);
            let forgotten = record.time_ns() < now_ns.saturating_sub(FORGET_NS);
            if forgotten && !self.is_at_queue_layer(&record) {
                // If it is just being taken, the kernel has the slot.
                let _ = slot[KEY].compare_exchange(key, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }

    fn is_at_queue_layer(&self, record: &Record) -> bool {
        let device = self.layout.devices.get(record.device());
        device.is_some_and(|device| device.queue_layer)
    }

    /// Bios that are under way and recorded as such.
    fn bios_under_way(&self, each: &mut dyn FnMut(Record)) {
        if !self.layout.has_queue_layer() {
            return;
        }
        for slot in self.programs.bios.words().chunks_exact(WORDS) {
            if slot[KEY].load(Ordering::Acquire) == 0 {
                continue;
            }
            let record = read(slot).without_end().without_queue();
            if self.is_at_queue_layer(&record) {
                each(record);
            }
        }
    }
}

impl Source for Bpf {
    fn wait(&mut self, timeout: &Timespec) {
        let mut polled = [PollFd::new(&self.programs.wake, PollFlags::IN)];
        // An interrupted wait is just a short one.
        let _ = poll(&mut polled, Some(timeout));
        while self.programs.wake.next().is_some() {}
    }

    /// What waits for its order is to leave in time.
    fn is_pressing(&self) -> bool {
        self.arrivals.waiting() > 0
    }

    fn patience_in_a_rush(&self) -> Option<Duration> {
        Some(RUSH_PATIENCE)
    }

    fn drain(&mut self, until_ns: u64, told: &mut dyn FnMut(Told<'_>)) {
        self.take_records(until_ns);
        self.tell_counts(until_ns, told);
        self.drained_ns = until_ns;
        if until_ns.saturating_sub(self.looked_ns) >= LOOK_NS {
            self.look(until_ns, told);
        }
        let complete_ns = self.complete_until(until_ns);
        self.hand_on(complete_ns, told);
    }

    fn settle(&mut self, now_ns: u64, told: &mut dyn FnMut(Told<'_>)) {
        self.take_records(u64::MAX);
        self.tell_counts(now_ns, told);
        self.tell_misses(now_ns, told);
        let mut left = Vec::new();
        self.under_way.give_up(&mut |record| left.push(record));
        self.bios_under_way(&mut |record| left.push(record));
        for record in left {
            self.groups.notice(record.cgroup());
            self.arrivals.add(record.time_ns(), record);
        }
        self.hand_on(u64::MAX, told);
    }

    fn in_flight(&mut self, each: &mut dyn FnMut(Place)) {
        let mut place = |record: Record| {
            if let Some(device) = self.layout.devices.get(record.device()) {
                each(Place {
                    dev: device.dev,
                    offset_bytes: record.offset_bytes(),
                    length_bytes: record.length_bytes(),
                });
            }
        };
        self.under_way.iter().for_each(&mut place);
        self.bios_under_way(&mut place);
    }

    fn add_processors(&mut self, _plan: &Plan, _now_ns: u64) -> Vec<u32> {
        // All that can be have their ring.
        Vec::new()
    }
}

fn read(words: &[AtomicU64]) -> Record {
    Record(std::array::from_fn(|word| {
        words[word].load(Ordering::Relaxed)
    }))
}
