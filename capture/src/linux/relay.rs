//! The buffers of block traces: one for each processor and queue, merged by time.
//!
//! A processor writes its buffer with interrupts off, and reserves the place of a record before it fills
//! it. Read from another processor, the last record may be half written, or be an old one that stood
//! there. So each buffer is read *on its own processor*, where no writer can be in between: the
//! thread that drains goes from one to the next. A processor that is offline writes nothing.
//!
//! The records of a processor stand in the order of time. A full buffer drops the newest records; on
//! kernels before 6.17 their numbers have no gap, so that only the trace's own counter tells. It is read
//! at the start of each round: what it grew by was dropped after the round before. As long as its
//! time is not over, nothing proves anything.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;

use iotape_formats::DeviceIndex;
use iotape_formats::Process;
use iotape_formats::blktrace::{
    self, Decoded as DecodedRecord, Decoder, Payload, Record, SequenceTracker,
};
use iotape_formats::event::Event;
use iotape_formats::tape::LossReason;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, openat};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::arm::{self, Plan};
use super::clock;
use super::merge::{Lane, Merge};
use super::source::{Decoded, Lost, Source, Told};
use super::sys::Janitor;

/// How much of a buffer is read at once.
const READ_BYTES: usize = 128 << 10;
/// Most names of threads that are remembered; above it, all are forgotten.
const REMEMBERED: usize = 64 << 10;
/// A thread's name as the kernel has it.
const NAME_BYTES: usize = 16;

/// The traces of a recording.
#[derive(Debug)]
pub(super) struct Traces {
    // In this order: the files are closed before the traces are removed.
    buffers: Vec<Buffer>,
    traces: Vec<Trace>,
    _keeper: Option<Janitor>,
    names: Names,
    merge: Merge,
    losses: Losses,
    /// Processors that came online and cannot be recorded, and since when.
    closed: Vec<(u32, u64)>,
}

/// What was dropped, and since when nothing was.
#[derive(Debug)]
struct Losses {
    /// Records were dropped in this time, and events of it are still to come.
    gap: Option<Lost>,
    /// When the counters were read last.
    looked_ns: u64,
}

/// A queue's trace.
#[derive(Debug)]
pub(super) struct Trace {
    folder: OwnedFd,
    dropped: OwnedFd,
    /// Dropped records that are accounted for.
    known_dropped: u64,
}

/// The buffer of one processor and queue.
#[derive(Debug)]
struct Buffer {
    trace: usize,
    cpu: u32,
    file: OwnedFd,
    bytes: Vec<u8>,
    /// Up to here bytes were decoded.
    start: usize,
    /// The last read found the end.
    at_end: bool,
    decoder: Decoder,
    /// Places without a record that are accounted for.
    known_damage: u64,
    numbers: SequenceTracker,
    next: Option<Next>,
}

/// A record that is decoded and not handed on.
#[derive(Debug)]
struct Next {
    dev: u32,
    thread: u32,
    event: Event,
}

/// Names of threads, as the trace's notes tell them.
#[derive(Debug, Default)]
struct Names(HashMap<u32, [u8; NAME_BYTES]>);

impl Trace {
    /// Opens a trace by its folder.
    pub fn open(folder: OwnedFd) -> io::Result<Trace> {
        Ok(Trace {
            dropped: open(&folder, "dropped")?,
            folder,
            known_dropped: 0,
        })
    }

    /// How many more records were dropped than is known.
    fn dropped_since(&mut self) -> u64 {
        let dropped = number_in(&self.dropped).unwrap_or(self.known_dropped);
        let known = std::mem::replace(&mut self.known_dropped, dropped);
        dropped.saturating_sub(known)
    }
}

fn open(folder: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(openat(folder, name, flags, Mode::empty())?)
}

fn number_in(file: &OwnedFd) -> Option<u64> {
    let mut text = [0; 32];
    let count = rustix::io::pread(file, &mut text, 0).ok()?;
    std::str::from_utf8(text.get(..count)?)
        .ok()?
        .trim()
        .parse()
        .ok()
}

impl Traces {
    /// No trace yet. Those that are added are removed by `keeper`.
    pub fn new(keeper: Janitor) -> Traces {
        Traces {
            buffers: Vec::new(),
            traces: Vec::new(),
            _keeper: Some(keeper),
            names: Names::default(),
            merge: Merge::default(),
            losses: Losses {
                gap: None,
                looked_ns: clock::monotonic_ns(),
            },
            closed: Vec::new(),
        }
    }

    /// Adds a trace and opens its buffers.
    pub fn add(&mut self, trace: Trace) -> io::Result<()> {
        let index = self.traces.len();
        self.traces.push(trace);
        for cpu in arm::possible_cpus()? {
            match self.open_buffer(index, cpu) {
                // A processor that is offline has no buffer.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => other?,
            }
        }
        Ok(())
    }

    fn open_buffer(&mut self, trace: usize, cpu: u32) -> io::Result<()> {
        let Some(of_queue) = self.traces.get(trace) else {
            return Ok(());
        };
        self.buffers.push(Buffer {
            trace,
            cpu,
            file: open(&of_queue.folder, &format!("trace{cpu}"))?,
            bytes: Vec::new(),
            start: 0,
            at_end: false,
            decoder: Decoder::new(),
            known_damage: 0,
            numbers: SequenceTracker::new(),
            next: None,
        });
        Ok(())
    }
}

impl Losses {
    /// Takes up what was dropped since the last look.
    fn look(&mut self, traces: &mut [Trace], told: &mut dyn FnMut(Told<'_>)) {
        let before_ns = clock::monotonic_ns();
        let dropped = traces.iter_mut().map(Trace::dropped_since).sum();
        // What these counters have not counted happens later than now.
        let now_ns = clock::monotonic_ns();
        let from_ns = std::mem::replace(&mut self.looked_ns, before_ns);
        if dropped > 0 {
            self.open_gap(from_ns, now_ns, dropped, LossReason::RingFull, told);
        }
    }

    fn open_gap(
        &mut self,
        from_ns: u64,
        to_ns: u64,
        events: u64,
        reason: LossReason,
        told: &mut dyn FnMut(Told<'_>),
    ) {
        if self.gap.is_none() {
            told(Told::GapBegins);
        }
        let gap = self.gap.get_or_insert(Lost {
            from_ns,
            to_ns,
            events: 0,
            requests: None,
            reason,
        });
        gap.to_ns = gap.to_ns.max(to_ns);
        gap.events += events;
    }

    /// Closes the gap if all of its time is in the past.
    fn close_gap(&mut self, now_ns: u64, told: &mut dyn FnMut(Told<'_>)) {
        if let Some(gap) = self.gap.take_if(|gap| gap.to_ns < now_ns) {
            told(Told::Lost(gap));
            told(Told::GapEnds);
        }
    }
}

impl Source for Traces {
    fn wait(&mut self, timeout: &Timespec) {
        let mut polled: Vec<PollFd<'_>> = self
            .buffers
            .iter()
            .map(|buffer| PollFd::new(&buffer.file, PollFlags::IN))
            .collect();
        // An interrupted wait is just a short one.
        let _ = poll(&mut polled, Some(timeout));
    }

    fn is_pressing(&self) -> bool {
        // The thread whose process is to be found may end.
        true
    }

    fn drain(&mut self, until_ns: u64, told: &mut dyn FnMut(Told<'_>)) {
        let allowed = sched_getaffinity(None);
        let Traces {
            buffers,
            traces,
            names,
            merge,
            losses,
            ..
        } = self;
        losses.look(traces, told);
        for buffer in buffers.iter_mut() {
            buffer.load(names, losses, told);
        }
        merge.run(buffers, until_ns, |buffer, limit_ns| {
            buffer.hand_on(limit_ns, names, losses, told);
        });
        losses.close_gap(until_ns, told);
        if let Ok(allowed) = allowed {
            let _ = sched_setaffinity(None, &allowed);
        }
    }

    fn settle(&mut self, now_ns: u64, told: &mut dyn FnMut(Told<'_>)) {
        self.losses.look(&mut self.traces, told);
        self.losses.close_gap(u64::MAX, told);
        let missing_numbers: u64 = self.buffers.iter_mut().map(Buffer::missing_numbers).sum();
        let known: u64 = self.traces.iter().map(|trace| trace.known_dropped).sum();
        let uncounted = missing_numbers.saturating_sub(known);
        let closed = self
            .closed
            .drain(..)
            .map(|(_, from_ns)| (from_ns, 0, LossReason::Unknown));
        let numbers = (uncounted > 0).then_some((0, uncounted, LossReason::SequenceGap));
        for (from_ns, events, reason) in closed.chain(numbers) {
            told(Told::Lost(Lost {
                from_ns,
                to_ns: now_ns,
                events,
                requests: None,
                reason,
            }));
        }
    }

    fn add_processors(&mut self, _plan: &Plan, now_ns: u64) -> Vec<u32> {
        let mut online = arm::online_cpus().unwrap_or_default();
        online.retain(|cpu| !self.closed.iter().any(|(closed, _)| closed == cpu));
        online.retain(|cpu| {
            let unopened = |trace: &usize| {
                let is_it = |buffer: &Buffer| (buffer.trace, buffer.cpu) == (*trace, *cpu);
                !self.buffers.iter().any(is_it)
            };
            let unopened: Vec<usize> = (0..self.traces.len()).filter(unopened).collect();
            // The kernel began its buffer when it came online: nothing is missing once it is open.
            let opened = |trace| self.open_buffer(trace, *cpu).is_ok();
            !unopened.into_iter().all(opened)
        });
        // The rights to open buffers have been given up: said once.
        self.closed.extend(online.iter().map(|cpu| (*cpu, now_ns)));
        online
    }
}

impl Lane for Buffer {
    fn next_ns(&self) -> Option<u64> {
        self.next.as_ref().map(|next| next.event.time_ns)
    }
}

impl Buffer {
    /// Reads and decodes up to the next event.
    fn load(&mut self, names: &mut Names, losses: &mut Losses, told: &mut dyn FnMut(Told<'_>)) {
        while self.next.is_none() && (self.decode(names) || self.read()) {}
        let damage = self.decoder.damage().skipped_regions;
        if damage > std::mem::replace(&mut self.known_damage, damage) {
            let now_ns = clock::monotonic_ns();
            losses.open_gap(losses.looked_ns, now_ns, 1, LossReason::Unknown, told);
        }
    }

    /// Hands on what is older than `limit_ns`.
    fn hand_on(
        &mut self,
        limit_ns: u64,
        names: &mut Names,
        losses: &mut Losses,
        told: &mut dyn FnMut(Told<'_>),
    ) {
        while let Some(next) = self.next.take_if(|next| next.event.time_ns < limit_ns) {
            losses.close_gap(next.event.time_ns, told);
            told(Told::Event(Decoded {
                dev: next.dev,
                comm: names.get(next.thread),
                thread: next.thread,
                event: next.event,
            }));
            self.load(names, losses, told);
        }
    }

    /// Decodes a step further; says whether there was anything to decode.
    fn decode(&mut self, names: &mut Names) -> bool {
        let rest = self.bytes.get(self.start..).unwrap_or_default();
        if rest.is_empty() {
            return false;
        }
        // All records before the end of what was there are whole.
        let Ok((step, used)) = self.decoder.step(rest, self.at_end) else {
            // Not blktrace's at all, which no kernel writes.
            self.start = self.bytes.len();
            return false;
        };
        match step {
            DecodedRecord::Record(record) => {
                self.numbers.observe(&record);
                if let Payload::Process(name) = record.payload() {
                    names.learn(record.pid, name);
                }
                self.next = next_of(&record);
            }
            DecodedRecord::Skipped => {}
            DecodedRecord::More(_) | DecodedRecord::End => {
                self.start += used;
                return false;
            }
        }
        self.start += used;
        true
    }

    /// Reads what the kernel has, on the buffer's processor; says whether there was anything.
    fn read(&mut self) -> bool {
        self.bytes.drain(..self.start);
        self.start = 0;
        let mut only = CpuSet::new();
        let index = self.cpu as usize;
        if index < CpuSet::MAX_CPU {
            only.set(index);
            // Refused for one that is offline (nobody writes there), or closed to us by a cpuset.
            let _ = sched_setaffinity(None, &only);
        }
        let kept = self.bytes.len();
        self.bytes.resize(kept + READ_BYTES, 0);
        let free = self.bytes.get_mut(kept..).unwrap_or_default();
        let count = rustix::io::read(&self.file, free).unwrap_or(0);
        self.bytes.truncate(kept + count);
        self.at_end = count < READ_BYTES;
        count > 0
    }

    /// Records that are missing by their numbers.
    fn missing_numbers(&mut self) -> u64 {
        self.numbers.finish();
        self.numbers.numbering().lost
    }
}

/// What a record reports, if requests need it.
fn next_of(record: &Record<'_>) -> Option<Next> {
    let step = blktrace::step_of(record)?;
    let process = || Process {
        pid: record.pid,
        name: "".into(),
    };
    let event = blktrace::event_of(record, step, record.time_ns, DeviceIndex(0), process)?;
    Some(Next {
        dev: record.device.0,
        thread: record.pid,
        event: Event {
            process: None,
            ..event
        },
    })
}

impl Names {
    fn learn(&mut self, thread: u32, name: &[u8]) {
        if self.0.len() >= REMEMBERED {
            self.0.clear();
        }
        let mut kept = [0; NAME_BYTES];
        let length = name.len().min(NAME_BYTES);
        kept[..length].copy_from_slice(&name[..length]);
        self.0.insert(thread, kept);
    }

    /// The name without trailing zeroes; empty if it is not known.
    fn get(&self, thread: u32) -> &[u8] {
        let Some(name) = self.0.get(&thread) else {
            return &[];
        };
        let end = name.iter().position(|byte| *byte == 0);
        &name[..end.unwrap_or(NAME_BYTES)]
    }
}

#[cfg(test)]
#[path = "relay/tests.rs"]
mod tests;
