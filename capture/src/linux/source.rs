//! Where events come from: the contract between a backend and the loop that records.

use std::fmt;
use std::time::Duration;

use iotape_formats::event::Event;
use iotape_formats::request::{Flags, Op};
use iotape_formats::tape::{Counters, LossReason};
use rustix::event::Timespec;

use super::arm::Plan;

/// What a source tells.
#[derive(Debug)]
pub(super) enum Told<'a> {
    /// A tracepoint's record.
    Sample(Sample<'a>),
    /// An event that the backend decoded itself.
    Event(Decoded<'a>),
    #[cfg_attr(not(feature = "bpf"), expect(dead_code, reason = "only BPF pairs"))]
    /// A request that the backend has paired itself; in the order of their times.
    Request(Finished<'a>),
    #[cfg_attr(not(feature = "bpf"), expect(dead_code, reason = "only BPF does"))]
    /// The kernel's number of a control group that requests will be of.
    Group(u64),
    #[cfg_attr(not(feature = "bpf"), expect(dead_code, reason = "only BPF counts"))]
    /// What the backend counted itself.
    Counted(Counters),
    /// From here on records may be missing.
    GapBegins,
    /// Records were dropped.
    Lost(Lost),
    /// Records are complete again.
    GapEnds,
}

/// A tracepoint's record.
#[derive(Debug)]
pub(super) struct Sample<'a> {
    /// On the monotonic clock.
    pub time_ns: u64,
    pub cpu: u32,
    /// Process (thread group) that ran; `None` where only the record's thread is known.
    pub pid: Option<u32>,
    pub record: &'a [u8],
}

/// An event as the kernel reports it: of a device number, and of a thread.
#[derive(Debug)]
pub(super) struct Decoded<'a> {
    /// The kernel's number of the device: major << 20 | minor.
    pub dev: u32,
    /// On the monotonic clock. Its device and process are found from the other fields.
    pub event: Event,
    /// Thread that ran.
    pub thread: u32,
    /// Name of that thread.
    pub comm: &'a [u8],
}

/// A request from its beginning to its end.
#[derive(Debug)]
pub(super) struct Finished<'a> {
    /// Number of its device, as the kernel keeps it.
    pub dev: u32,
    /// When it was issued, or queued (queue layer), on the monotonic clock.
    pub time_ns: u64,
    /// `None`: it was not seen to be done.
    pub latency_ns: Option<u64>,
    pub queue_ns: Option<u64>,
    pub op: Op,
    pub flags: Flags,
    pub offset_bytes: u64,
    pub length_bytes: u64,
    /// Number and name of the process that submitted.
    pub process: Option<(u32, &'a [u8])>,
    pub cgroup: Option<u64>,
    pub cpu: u32,
    /// `None` where it was not seen to be done.
    pub error: Option<u32>,
}

/// Where a request is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Number of its device, as the kernel keeps it.
    pub dev: u32,
    pub offset_bytes: u64,
    pub length_bytes: u64,
}

/// Records that were dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lost {
    pub from_ns: u64,
    pub to_ns: u64,
    pub events: u64,
    /// Those of them that began a request, if the kernel tells.
    pub requests: Option<u64>,
    pub reason: LossReason,
}

/// Tracepoints that are armed, and what they have left in the kernel's buffers.
pub(super) trait Source: fmt::Debug + Send {
    /// Waits until a buffer fills, or for a moment.
    fn wait(&mut self, timeout: &Timespec);

    /// Whether what turns up after a quiet time must be handed on soon, because what is to be known
    /// about it passes.
    fn is_pressing(&self) -> bool {
        false
    }

    /// How long the buffers may lie untouched while much happens, if that is longer than else. They
    /// wake whoever waits when they fill.
    fn patience_in_a_rush(&self) -> Option<Duration> {
        None
    }

    /// Hands on what was written before `until_ns`, in the order of time. Look at the clock for
    /// `until_ns` before this call.
    fn drain(&mut self, until_ns: u64, told: &mut dyn FnMut(Told<'_>));

    /// At the end: what was dropped and not told yet.
    fn settle(&mut self, now_ns: u64, told: &mut dyn FnMut(Told<'_>));

    /// Tells the requests that the backend pairs itself and that are under way.
    fn in_flight(&mut self, _each: &mut dyn FnMut(Place)) {}

    /// Takes up processors that came online, and tells those on which events are missing.
    fn add_processors(&mut self, plan: &Plan, now_ns: u64) -> Vec<u32>;
}
