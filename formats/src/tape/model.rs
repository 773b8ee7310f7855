//! What a tape says about itself: the values behind its metadata records.
//!
//! These are the types that the rest of the program works with. Their stored form is versioned and
//! separate (`docs/format.md`, "Metadata records").

use std::fmt;
use std::sync::Arc;

#[cfg(doc)]
use crate::request::Request;
use crate::request::{DeviceIndex, Op};

/// Where the tape comes from and how to read its times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Program and version that wrote the tape, such as `iotape 0.1.0`.
    pub tool: String,
    /// Name of the recorded host, unless the user asked to hide it.
    pub host: Option<String>,
    /// Operating system and kernel of the recorded host, such as `Linux 6.18.44`.
    pub os: Option<String>,
    /// The clock behind every time in the tape.
    pub clock: Clock,
    /// How the requests were captured: `perf`, `blktrace`, `etw`, or `import:csv`.
    pub backend: String,
    /// Capture options, as `name=value`.
    pub options: Vec<String>,
    /// What [`Request::error`] holds.
    pub error_codes: ErrorCodes,
    /// What the source could not tell, in words.
    pub notes: Vec<String>,
}

/// The clock of a tape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Name of the source, such as `CLOCK_MONOTONIC` or `QueryPerformanceCounter`.
    pub source: String,
    /// Smallest step of the source, in nanoseconds; every time is a multiple of it or not known to be.
    pub resolution_ns: u32,
}

impl Default for Clock {
    fn default() -> Self {
        Clock {
            source: "unknown".to_owned(),
            resolution_ns: 1,
        }
    }
}

/// The numbering of [`Request::error`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorCodes {
    /// Linux `errno`, positive.
    #[default]
    Errno,
    /// Windows `NTSTATUS`.
    NtStatus,
}

/// Where a request was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layer {
    /// As the submitter asked: before merging, splitting and scheduling.
    Queue,
    /// As the driver got it.
    #[default]
    Device,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Layer::Queue => "queue",
            Layer::Device => "device",
        })
    }
}

/// A recorded device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Its index in [`Request::device`].
    pub index: DeviceIndex,
    /// Its name on the recorded host, such as `sda` or `PhysicalDrive0`.
    pub name: String,
    /// Where its requests were seen.
    pub layer: Layer,
    /// Size.
    pub size_bytes: Option<u64>,
    /// Smallest addressable unit.
    pub logical_sector_bytes: Option<u32>,
    /// Smallest unit that the medium writes without reading first.
    pub physical_sector_bytes: Option<u32>,
    /// Vendor's model name.
    pub model: Option<String>,
    /// Whether it is a spinning disk.
    pub rotational: Option<bool>,
    /// Names of the devices that it is built on (partition, dm, md).
    pub parents: Vec<String>,
}

/// A moment seen on both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Anchor {
    /// On the tape's clock: nanoseconds since the first anchor, which is at 0.
    pub time_ns: u64,
    /// On the wall clock: nanoseconds since 1970-01-01 UTC.
    pub wall_ns: i64,
}

/// Why events are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LossReason {
    /// The kernel's ring was full: the recorder did not drain it in time.
    RingFull,
    /// The kernel throttled or disabled the source.
    Throttled,
    /// A gap in the source's own sequence numbers.
    SequenceGap,
    /// The source says that events were lost, not why.
    Unknown,
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            LossReason::RingFull => "ring full",
            LossReason::Throttled => "throttled",
            LossReason::SequenceGap => "sequence gap",
            LossReason::Unknown => "unknown",
        })
    }
}

/// What a [`Name`] is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NameKind {
    /// Of the control group with this number in [`Request::cgroup`]: its path in its hierarchy,
    /// such as `/system.slice/postfix.service`.
    Cgroup,
    /// Of a file, whose number is that of [`crate::tape::name_id`].
    File,
}

/// What stands behind a number of the requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// What it is of.
    pub kind: NameKind,
    /// The number.
    pub id: u64,
    /// The name.
    pub name: Arc<str>,
}

/// Events that are missing from the tape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// They were lost after this time.
    pub from_ns: u64,
    /// They were lost before this time.
    pub to_ns: u64,
    /// How many.
    pub events: u64,
    /// How many of them began a request (queue layer: queued it, device layer: issued it), so that
    /// so many requests are missing from the tape; `None` when the source does not know.
    pub requests: Option<u64>,
    /// Why.
    pub reason: LossReason,
}

/// What the capture met besides whole requests. Each block carries what was counted since the
/// block before, so that a tape without a footer loses no count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events that the source lost.
    pub lost_events: u64,
    /// Requests whose completion was never seen: kept, without latency, where their beginning says
    /// where they went (all sources but Windows' Init events).
    pub unpaired_issues: u64,
    /// Completions whose issue was never seen: not kept.
    pub unpaired_completions: u64,
    /// Requests whose completion could not be told from another's: kept, without latency.
    pub ambiguous: u64,
    /// Requests that left the ordering window before an earlier one arrived.
    pub late: u64,
    /// Bios merged into another request (device layer).
    pub merges: u64,
    /// Bios split into several requests (device layer).
    pub splits: u64,
    /// Requests that the driver gave back and got again (device layer).
    pub requeues: u64,
    /// Flushes that were answered by another's flush (device layer).
    pub coalesced_flushes: u64,
    /// Source records that could not be understood.
    pub undecodable: u64,
}

impl Counters {
    /// Issues without completion and completions without issue.
    pub fn unpaired(&self) -> u64 {
        self.unpaired_issues
            .saturating_add(self.unpaired_completions)
    }

    /// Adds another's counts to these.
    pub fn add(&mut self, other: &Counters) {
        let pairs = [
            (&mut self.lost_events, other.lost_events),
            (&mut self.unpaired_issues, other.unpaired_issues),
            (&mut self.unpaired_completions, other.unpaired_completions),
            (&mut self.ambiguous, other.ambiguous),
            (&mut self.late, other.late),
            (&mut self.merges, other.merges),
            (&mut self.splits, other.splits),
            (&mut self.requeues, other.requeues),
            (&mut self.coalesced_flushes, other.coalesced_flushes),
            (&mut self.undecodable, other.undecodable),
        ];
        for (sum, addend) in pairs {
            *sum = sum.saturating_add(addend);
        }
    }
}

/// Requests and bytes of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpTotals {
    /// How many requests.
    pub requests: u64,
    /// Sum of their lengths.
    pub bytes: u64,
}

/// What one device's requests span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceExtent {
    /// Which device.
    pub device: DeviceIndex,
    /// How many requests.
    pub requests: u64,
    /// Lowest offset of a request with a length.
    pub min_offset_bytes: u64,
    /// Highest end of a request.
    pub end_bytes: u64,
    /// Longest request that transfers data: the size of the buffer that replays any of them.
    pub longest_transfer_bytes: u64,
    /// Every offset and length, OR-ed: its trailing zeros give the alignment that all requests have.
    pub alignment_bits: u64,
}

/// Totals of a block, or of a whole tape: enough to skip the block and to size buffers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// How many requests.
    pub requests: u64,
    /// Earliest request.
    pub first_ns: u64,
    /// Latest request.
    pub last_ns: u64,
    /// Per operation, indexed by its number.
    pub by_op: [OpTotals; Op::ALL.len()],
    /// Per device that has requests, in the order of their indexes.
    pub devices: Vec<DeviceExtent>,
    /// What the capture met besides.
    pub counters: Counters,
    /// Identity of the requests ([`crate::tape::TapeId`]).
    pub id: super::TapeId,
}
