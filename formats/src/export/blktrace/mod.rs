//! The per-CPU files of blktrace (version 7, this machine's byte order), for blkparse, btt,
//! btreplay and iowatcher.
//!
//! Each request becomes the events that a kernel writes for it, on the CPU that the tape names (0
//! where it names none), numbered without gaps, each file in order of time:
//!
//! | event | when | what |
//! |---|---|---|
//! | Q | the time it was queued | at the device layer `time - queue_ns`, or `time` if that is not known |
//! | G, I | with Q | device layer only; the tape does not know when in between they happened |
//! | D | `time` | |
//! | C | `time + latency_ns` | none if the latency is not known |
//!
//! At the queue layer Q is at `time`, and there is no issue to be told. D is written there, too,
//! with Q: without it iowatcher takes the time since the trace's start for a latency, and btt has no
//! D2C and counts requests as active for ever. That it was added is counted ([`Report::additions`]).
//!
//! Seen in recordings of Linux 6.18 and done alike: a flush is queued as an empty write with
//! PREFLUSH (`FWS`), issued and completed as an empty read with it (`FN`), and reported done once
//! more as an empty write (`WS`), as is a write with PREFLUSH. The name of a process is noted before
//! its first event, the wall clock when the trace begins, in the first file. The trace begins at
//! [`START_NS`] on its clock, which is the tape's zero, or before it by as much as a request was
//! queued before it (up to an hour).
//!
//! A device whose name is `major,minor` keeps that number; any other gets 259,N, with N counted from
//! 0 in the order of the tape's devices, past numbers that are taken.
//!
//! All devices of a tape are in one set, as is told by each record; btreplay, which plays a set on the
//! device that it is named after, wants one set a device (`iotape edit --device`).
//!
//! What version 7 cannot say is counted ([`Report::losses`]): operations other than reads, writes,
//! flushes and discards, flags other than sync, FUA, preflush, metadata and read-ahead, lengths from
//! 4 GiB, offsets within a sector, errors that are no errno, names longer than 15 bytes. Control
//! groups are left out, too: the kernel can name them, but blkparse 1.2 cannot read such records.
//! [`crate::import::blktrace`] gives back the same requests otherwise, but for names of devices, for
//! what it does not take for certain, such as the latency of flushes in its first seconds, and for
//! what is filled in where the tape has nothing: queue time 0, process 0, CPU 0, error 0.

mod numbers;
pub(super) mod schedule;
mod survey;
pub(super) mod traced;

pub use survey::Survey;

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

use blktrace_parse::{
    Action, ByteOrder, Categories, DeviceNumber, Format, Kind, Record, Version, encode,
};

use super::Losses;
use crate::request::Request;
use crate::tape::{Anchor, Device, ErrorCodes};
use schedule::{Event, Schedule};
use traced::MAX_NAME_BYTES;

/// Where a trace begins on its clock: not at 0, which some tools take for "never".
pub const START_NS: u64 = 1_000_000_000;

const FORMAT: Format = Format::new(Version::V7, ByteOrder::NATIVE);
/// Most processes whose names are remembered as noted; beyond, names are noted again.
const MAX_NOTED: usize = 1 << 16;
/// Length of the kernel's `comm`.
const COMM_BYTES: usize = 16;

/// What a trace takes from the tape besides its requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Source<'a> {
    /// The tape's devices.
    pub devices: &'a [Device],
    /// Its first moment on both clocks.
    pub anchor: Option<Anchor>,
    /// What its errors are.
    pub error_codes: ErrorCodes,
}

/// How a trace differs from the tape.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What the format could not say.
    pub losses: Losses,
    /// What the format or its tools ask for and the tape does not have.
    pub additions: Losses,
}

/// Writes per-CPU files, which `open` makes by the number of the CPU.
#[derive(Debug)]
pub struct BlktraceWriter<F, W: Write> {
    schedule: Schedule,
    files: Files<F, W>,
}

impl<F: FnMut(u32) -> io::Result<W>, W: Write> BlktraceWriter<F, W> {
    /// Begins a trace of the requests that `survey` has looked at.
    ///
    /// # Errors
    /// When the first file cannot be made or written.
    pub fn new(open: F, survey: Survey, source: &Source<'_>) -> io::Result<Self> {
        let mut files = Files {
            open,
            cpus: Vec::new(),
            encoded: Vec::new(),
            noted: HashMap::new(),
        };
        let lead_ns = survey.lead_ns;
        let mut schedule = Schedule::new(survey, source);
        if let Some(anchor) = source.anchor {
            match clock_at_start(anchor, lead_ns) {
                Some(clock) => files.put(&note(Kind::WallClock, START_NS, &clock))?,
                None => schedule.lose("wall clock not said: not between 1970 and 2106"),
            }
        }
        Ok(BlktraceWriter { schedule, files })
    }

    /// Writes the next request of the tape, in its turn.
    ///
    /// # Errors
    /// When a file cannot be made or written.
    pub fn write(&mut self, request: &Request) -> io::Result<()> {
        let files = &mut self.files;
        self.schedule.push(request, &mut |event| files.event(event))
    }

    /// Writes the rest, and the empty files of CPUs without events: tools stop at the first number
    /// that is missing.
    ///
    /// # Errors
    /// When a file cannot be made or written.
    pub fn finish(mut self) -> io::Result<Report> {
        let files = &mut self.files;
        let report = self.schedule.finish(&mut |event| files.event(event))?;
        self.files.finish()?;
        Ok(report)
    }
}

/// The files, by CPU.
#[derive(Debug)]
struct Files<F, W> {
    open: F,
    cpus: Vec<Option<W>>,
    encoded: Vec<u8>,
    /// Names of processes as the trace has them.
    noted: HashMap<u32, Arc<str>>,
}

impl<F: FnMut(u32) -> io::Result<W>, W: Write> Files<F, W> {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        if event.record.action.kind() == Kind::Queue
            && let Some(name) = event.name
        {
            self.note_name(&event.record, name)?;
        }
        self.put(&event.record)
    }

    /// Notes who the process is, unless the trace says so already.
    fn note_name(&mut self, event: &Record<'_>, name: &Arc<str>) -> io::Result<()> {
        if self.noted.get(&event.pid) == Some(name) {
            return Ok(());
        }
        if self.noted.len() >= MAX_NOTED {
            self.noted.clear();
        }
        self.noted.insert(event.pid, Arc::clone(name));
        let mut comm = [0; COMM_BYTES];
        for (to, from) in comm.iter_mut().zip(name.bytes().take(MAX_NAME_BYTES)) {
            *to = from;
        }
        self.put(&Record {
            pid: event.pid,
            device: event.device,
            cpu: event.cpu,
            ..note(Kind::Process, event.time_ns, &comm)
        })
    }

    fn put(&mut self, record: &Record<'_>) -> io::Result<()> {
        self.encoded.clear();
        encode(record, FORMAT, &mut self.encoded).map_err(io::Error::other)?;
        let index = record.cpu as usize;
        if self.cpus.len() <= index {
            self.cpus.resize_with(index + 1, || None);
        }
        let Some(slot) = self.cpus.get_mut(index) else {
            return Ok(());
        };
        let file = match slot {
            Some(file) => file,
            None => slot.insert((self.open)(record.cpu)?),
        };
        file.write_all(&self.encoded)
    }

    fn finish(mut self) -> io::Result<()> {
        for cpu in 0..self.cpus.len().max(1) as u32 {
            match self.cpus.get_mut(cpu as usize) {
                Some(Some(file)) => file.flush()?,
                _ => drop((self.open)(cpu)?),
            }
        }
        Ok(())
    }
}

/// A note of CPU 0 about nobody.
fn note(kind: Kind, time_ns: u64, pdu: &[u8]) -> Record<'_> {
    Record {
        sequence: 0,
        time_ns,
        sector: 0,
        bytes: 0,
        action: Action::new(kind, Categories::NOTE, false),
        pid: 0,
        device: DeviceNumber(0),
        cpu: 0,
        error: 0,
        cgroup: None,
        pdu,
        order: ByteOrder::NATIVE,
    }
}

/// The wall clock as the kernel notes it, so long before the tape's zero.
fn clock_at_start(anchor: Anchor, lead_ns: u64) -> Option<[u8; 8]> {
    let zero_ns = i128::from(anchor.wall_ns) - i128::from(anchor.time_ns);
    let wall_ns = zero_ns - i128::from(lead_ns);
    let seconds = u32::try_from(wall_ns.div_euclid(1_000_000_000)).ok()?;
    let nanoseconds = wall_ns.rem_euclid(1_000_000_000) as u32;
    let mut words = [0; 8];
    words[..4].copy_from_slice(&seconds.to_ne_bytes());
    words[4..].copy_from_slice(&nanoseconds.to_ne_bytes());
    Some(words)
}

#[cfg(test)]
mod tests;
