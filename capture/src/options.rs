//! What to record and how.

use std::path::PathBuf;
use std::time::Duration;

use iotape_formats::tape::Layer;

use crate::Bounds;

/// How events come from the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// [`Backend::Bpf`] where it is built in and works, else [`Backend::Perf`]. Both leave nothing
    /// behind.
    #[default]
    Auto,
    /// Tracepoints through `perf_event_open`: all that is armed hangs on file descriptors.
    Perf,
    /// Tracepoints through an instance of ftrace: sees what perf leaves out in some tasks. Needs root;
    /// the instance is removed by a process of its own, however this one ends.
    Ftrace,
    /// Programs in the kernel that pair requests by themselves: each has its own latency, process and
    /// control group. Needs the feature `bpf`.
    Bpf,
    /// The kernel's block traces, as `blktrace` reads them. Needs root and debugfs, works without kernel
    /// lockdown only, and one trace runs on a queue at a time; it is removed by a process of its
    /// own, however this one ends.
    Blktrace,
}

impl Backend {
    /// Its name in a tape's header.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Auto | Backend::Perf => "perf",
            Backend::Ftrace => "ftrace",
            Backend::Bpf => "bpf",
            Backend::Blktrace => "blktrace",
        }
    }

    /// Its default for [`Options::ring_bytes`] on a machine of so many processors.
    pub fn default_ring_bytes(self, processors: usize) -> usize {
        match self {
            // A buffer for each device, where the others have one for all.
            Backend::Blktrace => 2 << 20,
            // The fewer, the more each of them sees, and the more it costs to come for it.
            Backend::Bpf => match processors {
                0..=4 => 16 << 20,
                5..=8 => 8 << 20,
                _ => Options::DEFAULT_RING_BYTES,
            },
            _ => Options::DEFAULT_RING_BYTES,
        }
    }
}

/// What to record and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Block devices: a path such as `/dev/sda`, or a name such as `sda`. Naming one twice is the
    /// same as naming it once. On Linux a folder stands for the leaf devices under its file system:
    /// those that are built on no other device, each at its own layer.
    pub devices: Vec<PathBuf>,
    /// Besides, all disks that are built on no other device (Linux). What dm, md and other devices do
    /// is recorded where it reaches them, once.
    pub all_disks: bool,
    /// How events come from the kernel.
    pub backend: Backend,
    /// Where requests are seen. `None` takes each device's default: the device layer where it has
    /// a request queue, else the queue layer ([`crate::Warning::QueueLayerOnly`] says so).
    pub layer: Option<Layer>,
    /// Size of the kernel's ring of each processor, in bytes: a power of two, at least
    /// [`Options::MIN_RING_BYTES`]. With [`Backend::Blktrace`] each processor has one for each disk.
    /// `None` takes the backend's default ([`Backend::default_ring_bytes`]).
    pub ring_bytes: Option<usize>,
    /// Leaves the host's name out of the tape.
    pub hide_host: bool,
    /// Ends the recording after this time; `None` records until it is stopped.
    pub duration: Option<Duration>,
    /// How much may be written.
    pub bounds: Bounds,
    /// Ends the recording as soon as events were lost.
    pub fail_on_loss: bool,
    /// The program that records, as the tape's header names it.
    pub tool: String,
    /// Where the tape is written. Only used to warn when that is on a recorded device.
    pub tape_path: Option<PathBuf>,
}

impl Options {
    /// Default of most backends for [`Options::ring_bytes`]: about 160 ms of a processor that sees
    /// 150,000 requests a second at the queue layer.
    pub const DEFAULT_RING_BYTES: usize = 4 << 20;
    /// Smallest ring.
    pub const MIN_RING_BYTES: usize = 64 << 10;

    /// Records these devices until stopped, with every option at its default.
    pub fn new(devices: Vec<PathBuf>) -> Options {
        Options {
            devices,
            all_disks: false,
            backend: Backend::Auto,
            layer: None,
            ring_bytes: None,
            hide_host: false,
            duration: None,
            bounds: Bounds::default(),
            fail_on_loss: false,
            tool: concat!("iotape ", env!("CARGO_PKG_VERSION")).to_owned(),
            tape_path: None,
        }
    }
}
