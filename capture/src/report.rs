//! What a recording tells while it runs and when it ends.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use iotape_formats::tape::Summary;

/// The state of a running recording, about once a second.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Since the start.
    pub elapsed: Duration,
    /// Requests that were completed or given up so far.
    pub requests: u64,
    /// Bytes that those read and wrote.
    pub bytes: u64,
    /// Events that the kernel had to drop so far.
    pub lost_events: u64,
    /// Requests that are missing so far because the event that began them was lost; `None` where
    /// the kernel only tells how many events of all kinds.
    pub lost_requests: Option<u64>,
    /// Bytes of tape written so far; 0 without a tape.
    pub tape_bytes: u64,
    /// Requests that were in flight just now on each device, in the order of their indexes; empty where that is not known.
    pub in_flight_by_device: Vec<u64>,
    /// Segments begun so far; 1 without segments, 0 without a tape.
    pub segments: u32,
}

impl Progress {
    /// Requests that were in flight just now; 0 where that is not known.
    pub fn in_flight(&self) -> u64 {
        self.in_flight_by_device.iter().sum()
    }
}

/// Why a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The stop flag was set.
    Stopped,
    /// The duration was over.
    Duration,
    /// The last recorded device went away.
    DevicesGone,
    /// The tape has the size that was allowed ([`crate::Bounds::max_bytes`]).
    MaxBytes,
    /// No more space is free than is to be left free ([`crate::Bounds::min_free_bytes`]).
    LowSpace,
    /// Events were lost, and the recording was to end then ([`crate::Options::fail_on_loss`]).
    Lost,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ended::Stopped => "stopped",
            Ended::Duration => "the time is over",
            Ended::DevicesGone => "the recorded devices are gone",
            Ended::MaxBytes => "the tape has the size that was allowed",
            Ended::LowSpace => "the space to be left free is reached",
            Ended::Lost => "events were lost",
        })
    }
}

/// A finished recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Totals of the tape, or of all segments, removed ones included.
    pub summary: Summary,
    /// Size of the tape, or of all segments, removed ones included.
    pub tape_bytes: u64,
    /// Segments that were written; 1 without segments.
    pub segments: u32,
    /// Segments that were removed to make room for later ones.
    pub removed: u32,
    /// Requests that are missing because the event that began them was lost; `None` where the
    /// kernel only tells how many events of all kinds.
    pub lost_requests: Option<u64>,
    /// From the start until the last request was taken.
    pub elapsed: Duration,
    /// Why it ended.
    pub ended: Ended,
    /// What to know about the tape, those of the start included.
    pub warnings: Vec<Warning>,
}

/// A circumstance that changes what a tape says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// The device has no request queue of its own and was recorded at the queue layer.
    QueueLayerOnly {
        /// Name of the device.
        device: String,
    },
    /// Two recorded devices lie on each other: the same I/O appears at both.
    Stacked {
        /// The device above, such as a dm or md device.
        upper: String,
        /// The recorded device that it is built on.
        lower: String,
    },
    /// The tape is written to a recorded device: the recording sees its own writes.
    TapeOnRecordedDevice {
        /// Name of the device.
        device: String,
    },
    /// The device went away during the recording.
    DeviceGone {
        /// Name of the device.
        device: String,
    },
    /// A processor came online during the recording: its first events are missing, or all of them where
    /// the rights to open events had been given up.
    ProcessorAdded {
        /// Number of the processor.
        cpu: u32,
    },
    /// The recording goes on as root, since the user could not make further segments.
    StaysRoot {
        /// Where the segments are to go.
        folder: PathBuf,
        /// Number of the user.
        user: u32,
    },
    /// The kernel lost events.
    EventsLost {
        /// How many, as far as the kernel says.
        events: u64,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::QueueLayerOnly { device } => write!(
                f,
                "{device} has no request queue: recorded at the queue layer (requests as their submitters asked)"
            ),
            Warning::Stacked { upper, lower } => write!(
                f,
                "{upper} is built on {lower} and both are recorded: the same I/O appears at both"
            ),
            Warning::TapeOnRecordedDevice { device } => write!(
                f,
                "the tape is written to {device}, which is recorded: the tape contains its own writeback; write it elsewhere"
            ),
            Warning::DeviceGone { device } => {
                write!(f, "{device} went away during the recording")
            }
            Warning::ProcessorAdded { cpu } => write!(
                f,
                "processor {cpu} came online during the recording: its first events are missing, or all if the rights to record it had been given up"
            ),
            Warning::StaysRoot { folder, user } => write!(
                f,
                "{}: user {user} cannot make segments there, so the recorder goes on as root: choose another folder, or say --user",
                folder.display()
            ),
            Warning::EventsLost { events } => write!(
                f,
                "the kernel lost {events} events: use a larger ring, or give the recorder more processor time"
            ),
        }
    }
}
