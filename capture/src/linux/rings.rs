//! The kernel's rings: one per processor, merged by time.
//!
//! Within a ring, records follow each other almost in the order of time (an interrupt can put its
//! record before that of the code it interrupted, a moment younger). Merging therefore looks at the
//! front of each ring only. A record belongs to the past once its time is a margin older than the
//! moment at which the rings were looked at: nothing older can still appear, except in a ring of a
//! processor that was itself interrupted for longer than the margin, and such records are taken as
//! they come.
//!
//! A ring that is full makes the kernel drop records. It says so before the next record that fits,
//! which may be long after. So a ring that was found so full that a record may have been dropped
//! opens a *gap*: from the last record before it until the next record behind it (or until the
//! kernel's count says that nothing was dropped), no completion proves anything.

use std::ops::ControlFlow;

use iotape_formats::tape::LossReason;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::arm::{OnlineCpus, Plan};
use super::merge::{Lane, Merge};
use super::source::{Lost, Sample, Source, Told};
use super::sys::{Ring, TracepointEvent};

const RECORD_LOST: u32 = 2;
const RECORD_THROTTLE: u32 = 5;
const RECORD_SAMPLE: u32 = 9;
const RECORD_LOST_SAMPLES: u32 = 13;

/// Larger than any record of a block tracepoint: with less space than this, one may be dropped.
const LARGEST_RECORD: u64 = 1024;

/// The ring of one processor.
#[derive(Debug)]
struct CpuRing {
    cpu: u32,
    ring: Ring,
    /// Events that write into the ring besides its owner.
    others: Vec<TracepointEvent>,
    /// Up to here records were handed on.
    cursor: u64,
    /// Time of the last record that was handed on.
    last_ns: u64,
    full: Option<Full>,
    /// Samples that the kernel dropped and that are accounted for.
    known_lost: u64,
    /// Those of them that began a request.
    known_lost_requests: u64,
    /// Its processor went offline.
    dead: bool,
}

/// A ring was full.
#[derive(Clone, Copy, Debug)]
struct Full {
    /// Records before this position were certainly written before anything was dropped.
    from: u64,
    /// A record at or behind this position was certainly written when there was space again.
    to: u64,
    /// Whether the records before `from` have been handed on: the gap is open.
    open: bool,
}

/// The rings of all processors.
#[derive(Debug, Default)]
pub(super) struct Rings {
    rings: Vec<CpuRing>,
    open_gaps: usize,
    scratch: Vec<u8>,
    merge: Merge,
    online: OnlineCpus,
    /// Processors that came online and cannot be recorded, and since when.
    closed: Vec<(u32, u64)>,
}

impl Rings {
    pub fn add(&mut self, cpu: u32, ring: Ring, others: Vec<TracepointEvent>, now_ns: u64) {
        self.rings.push(CpuRing {
            cpu,
            ring,
            others,
            cursor: 0,
            last_ns: now_ns,
            full: None,
            known_lost: 0,
            known_lost_requests: 0,
            dead: false,
        });
    }

    /// Processors that have a live ring.
    fn cpus(&self) -> impl Iterator<Item = u32> + '_ {
        self.live().map(|ring| ring.cpu)
    }

    fn live(&self) -> impl Iterator<Item = &CpuRing> + '_ {
        self.rings.iter().filter(|ring| !ring.dead)
    }

    /// The processor of this ring went offline. What it has written stays.
    fn mark_dead(&mut self, cpu: u32) {
        for ring in self.rings.iter_mut().filter(|ring| ring.cpu == cpu) {
            ring.dead = true;
        }
    }
}

impl Source for Rings {
    fn wait(&mut self, timeout: &Timespec) {
        let mut polled: Vec<PollFd<'_>> = self
            .live()
            .map(|ring| PollFd::new(&ring.ring, PollFlags::IN))
            .collect();
        // An interrupted wait is just a short one.
        if poll(&mut polled, Some(timeout)).is_err() {
            return;
        }
        let hung_up = |fd: &PollFd<'_>| fd.revents().intersects(PollFlags::HUP | PollFlags::ERR);
        let dead: Vec<u32> = (self.cpus().zip(&polled))
            .filter(|(_, fd)| hung_up(fd))
            .map(|(cpu, _)| cpu)
            .collect();
        for cpu in dead {
            self.mark_dead(cpu);
        }
    }

    fn add_processors(&mut self, plan: &Plan, now_ns: u64) -> Vec<u32> {
        let Ok(mut online) = self.online.read() else {
            return Vec::new();
        };
        // Events do not outlive their processor's going offline, and not every kernel hangs up.
        let gone: Vec<u32> = self.cpus().filter(|cpu| !online.contains(cpu)).collect();
        for cpu in gone {
            self.mark_dead(cpu);
        }
        let known: Vec<u32> = self.cpus().collect();
        online.retain(|cpu| {
            !known.contains(cpu) && !self.closed.iter().any(|(closed, _)| closed == cpu)
        });
        online.retain(|cpu| match plan.open(*cpu) {
            Ok(Some(opened)) if opened.arm().is_ok() => {
                self.add(*cpu, opened.ring, opened.others, now_ns);
                true
            }
            // It went offline again: there is nothing to record on it.
            Ok(_) => false,
            // The rights to open events have been given up: said once.
            Err(_) => {
                self.closed.push((*cpu, now_ns));
                true
            }
        });
        online
    }

    fn drain(&mut self, until_ns: u64, told: &mut dyn FnMut(Told<'_>)) {
        let Rings {
            rings,
            open_gaps,
            scratch,
            merge,
            ..
        } = self;
        for ring in rings.iter_mut() {
            ring.look();
            if ring.next_ns().is_none() {
                ring.settle(until_ns, open_gaps, told);
            }
        }
        merge.run(rings, until_ns, |ring, limit_ns| {
            ring.hand_on(limit_ns, open_gaps, scratch, told);
        });
        for ring in &mut self.rings {
            ring.give_back();
        }
        self.rings
            .retain(|ring| !ring.dead || ring.next_ns().is_some() || ring.full.is_some());
    }

    fn settle(&mut self, now_ns: u64, told: &mut dyn FnMut(Told<'_>)) {
        for ring in &mut self.rings {
            ring.tell_lost(now_ns, None, told);
            ring.close_gap(&mut self.open_gaps, told);
        }
        for (_, from_ns) in self.closed.drain(..) {
            told(Told::Lost(Lost {
                from_ns,
                to_ns: now_ns,
                events: 0,
                requests: None,
                reason: LossReason::Unknown,
            }));
        }
    }
}

impl Lane for CpuRing {
    fn next_ns(&self) -> Option<u64> {
        let (header, _) = self.ring.bytes(self.cursor, 8)?;
        let size = u64::from(number::<2>(header, 6)?);
        // In a sample the time follows the header and the thread, in other records it is last.
        let at = match number::<4>(header, 0)? {
            RECORD_SAMPLE => self.cursor + 16,
            _ => self.cursor + size.saturating_sub(8),
        };
        // What is not a record is stepped over at once.
        Some(self.u64_at(at).unwrap_or(self.last_ns))
    }
}

impl CpuRing {
    fn look(&mut self) {
        let head = self.ring.refresh();
        self.note_full(self.ring.tail(), head);
    }

    /// Between `tail` and `head` the ring was in use at once: was it full?
    fn note_full(&mut self, tail: u64, head: u64) {
        let from = tail + (self.ring.size() - LARGEST_RECORD);
        if head <= from {
            return;
        }
        let full = self.full.get_or_insert(Full {
            from,
            to: head,
            open: false,
        });
        full.to = full.to.max(head);
    }

    /// Hands on what is older than `limit_ns`.
    fn hand_on(
        &mut self,
        limit_ns: u64,
        open_gaps: &mut usize,
        scratch: &mut Vec<u8>,
        told: &mut dyn FnMut(Told<'_>),
    ) {
        while let Some(time_ns) = self.next_ns().filter(|time_ns| *time_ns < limit_ns) {
            self.enter_gap(open_gaps, told);
            if self.record(time_ns, open_gaps, scratch, told).is_break() {
                break;
            }
            self.last_ns = time_ns;
            if self.cursor - self.ring.tail() > self.ring.size() / 8 {
                self.give_back();
            }
        }
        self.enter_gap(open_gaps, told);
    }

    /// Handles the record at the cursor and steps over it.
    fn record(
        &mut self,
        time_ns: u64,
        open_gaps: &mut usize,
        scratch: &mut Vec<u8>,
        told: &mut dyn FnMut(Told<'_>),
    ) -> ControlFlow<()> {
        let at = self.cursor;
        let Some((kind, size)) = self.header(at) else {
            return ControlFlow::Break(());
        };
        self.cursor += size as u64;
        match kind {
            RECORD_LOST | RECORD_LOST_SAMPLES => {
                let count_at = if kind == RECORD_LOST { at + 16 } else { at + 8 };
                let count = self.u64_at(count_at).unwrap_or(0);
                self.tell_lost(time_ns, Some(count), told);
                self.close_gap(open_gaps, told);
            }
            RECORD_THROTTLE => {
                let reason = LossReason::Throttled;
                told(Told::Lost(Lost {
                    from_ns: self.last_ns,
                    to_ns: time_ns,
                    events: 0,
                    requests: Some(0),
                    reason,
                }));
            }
            _ if self.full.is_some_and(|full| full.open && at >= full.to) => {
                // There was space before this record, and the kernel would have told a loss first.
                self.close_gap(open_gaps, told);
            }
            _ => {}
        }
        if kind == RECORD_SAMPLE {
            self.sample(at, size, time_ns, scratch, told);
        }
        ControlFlow::Continue(())
    }

    fn sample(
        &self,
        at: u64,
        size: usize,
        time_ns: u64,
        scratch: &mut Vec<u8>,
        told: &mut dyn FnMut(Told<'_>),
    ) {
        let Some(pieces) = self.ring.bytes(at, size) else {
            return;
        };
        let bytes = match pieces {
            (whole, []) => whole,
            (first, rest) => {
                scratch.clear();
                scratch.extend_from_slice(first);
                scratch.extend_from_slice(rest);
                &scratch[..]
            }
        };
        // Header, thread (process, thread), time, size of the record, the record.
        let (Some(pid), Some(length)) = (number::<4>(bytes, 8), number::<4>(bytes, 24)) else {
            return;
        };
        let record = bytes.get(28..).unwrap_or_default();
        let record = record.get(..length as usize).unwrap_or(record);
        told(Told::Sample(Sample {
            time_ns,
            cpu: self.cpu,
            pid: Some(pid),
            record,
        }));
    }

    /// Kind and size of the record at a position. `None` if that is not a record: the rest of what
    /// was written is skipped, which cannot happen unless the kernel's format changes.
    fn header(&mut self, at: u64) -> Option<(u32, usize)> {
        let (header, _) = self.ring.bytes(at, 8)?;
        let (kind, size) = (number::<4>(header, 0)?, number::<2>(header, 6)? as usize);
        if size < 8 || self.ring.bytes(at, size).is_none() {
            self.cursor = self.ring.head();
            return None;
        }
        Some((kind, size))
    }

    fn u64_at(&self, at: u64) -> Option<u64> {
        let (bytes, _) = self.ring.bytes(at, 8)?;
        Some(u64::from_ne_bytes(*bytes.first_chunk()?))
    }

    /// Opens the gap if the records before it have been handed on.
    fn enter_gap(&mut self, open_gaps: &mut usize, told: &mut dyn FnMut(Told<'_>)) {
        let Some(full) = self.full.as_mut().filter(|full| !full.open) else {
            return;
        };
        if self.cursor < full.from {
            return;
        }
        full.open = true;
        *open_gaps += 1;
        if *open_gaps == 1 {
            told(Told::GapBegins);
        }
    }

    fn close_gap(&mut self, open_gaps: &mut usize, told: &mut dyn FnMut(Told<'_>)) {
        let Some(full) = self.full.take() else { return };
        if full.open {
            *open_gaps -= 1;
            if *open_gaps == 0 {
                told(Told::GapEnds);
            }
        }
    }

    /// The ring is empty: if it was full, the kernel's count tells whether anything was dropped.
    fn settle(&mut self, now_ns: u64, open_gaps: &mut usize, told: &mut dyn FnMut(Told<'_>)) {
        if self.full.is_some() && self.ring.event().lost().is_some() {
            self.enter_gap(open_gaps, told);
            self.tell_lost(now_ns, None, told);
            self.close_gap(open_gaps, told);
        }
    }

    /// Tells what was dropped and is not accounted for. `told_count` is the number in a record,
    /// for kernels that do not count by event.
    fn tell_lost(&mut self, to_ns: u64, told_count: Option<u64>, told: &mut dyn FnMut(Told<'_>)) {
        let (mut lost, mut lost_requests) = (Some(0), 0);
        for event in [self.ring.event()].into_iter().chain(&self.others) {
            let of_event = event.lost();
            lost = lost.zip(of_event).map(|(sum, more)| sum + more);
            if event.begins_requests {
                lost_requests += of_event.unwrap_or(0);
            }
        }
        let (events, requests) = match lost {
            Some(lost) => {
                let known = std::mem::replace(&mut self.known_lost, lost);
                let known_requests =
                    std::mem::replace(&mut self.known_lost_requests, lost_requests);
                (
                    lost.saturating_sub(known),
                    Some(lost_requests.saturating_sub(known_requests)),
                )
            }
            None => (told_count.unwrap_or(0), None),
        };
        if events > 0 {
            let reason = LossReason::RingFull;
            told(Told::Lost(Lost {
                from_ns: self.last_ns,
                to_ns,
                events,
                requests,
                reason,
            }));
        }
    }

    fn give_back(&mut self) {
        let before = self.ring.tail();
        self.ring.release(self.cursor);
        let seen = self.ring.head();
        // What was written until the space was given back tells whether there had been enough.
        let head = self.ring.refresh();
        if head > seen {
            self.note_full(before, head);
        }
    }
}

/// A number of `N` bytes at an offset.
fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes: [u8; N] = *bytes.get(at..)?.first_chunk()?;
    let mut word = [0; 4];
    if cfg!(target_endian = "big") {
        word[4 - N..].copy_from_slice(&bytes);
    } else {
        word[..N].copy_from_slice(&bytes);
    }
    Some(u32::from_ne_bytes(word))
}

#[cfg(test)]
mod tests;
