//! Why a recording could not start or go on.

use std::io;
use std::path::PathBuf;

use iotape_formats::tape::TapeError;
use thiserror::Error;

/// Why a recording could not start or go on.
#[derive(Debug, Error)]
pub enum CaptureError {
    /// No recorder exists for this operating system.
    #[error(
        "recording is not supported on this operating system: record on Linux or Windows, or import another tool's file"
    )]
    Unsupported,
    /// Only root becomes another user.
    #[error("cannot go on as {user}: only root on Linux can become another user")]
    NotRoot {
        /// As it was named.
        user: String,
    },
    /// There is no such user.
    #[error("no user {name} in /etc/passwd")]
    UnknownUser {
        /// As it was named.
        name: String,
    },
    /// The user could not make further segments.
    #[error(
        "{folder}: user {user}, as whom the recording goes on, cannot make segments there: choose another folder, or another user (--user; root keeps all rights)"
    )]
    ClosedFolder {
        /// Where the segments are to go.
        folder: PathBuf,
        /// Number of the user.
        user: u32,
    },
    /// The backend is another system's.
    #[error("no backend {backend} on this operating system: leave the backend to its default")]
    NoBackend {
        /// Name of the backend.
        backend: &'static str,
    },
    /// The backend is not part of this program.
    #[error(
        "this program was built without the backend {backend}: build it with `cargo build --release --features {backend}` (it takes clang: apt install clang), or leave the backend to its default"
    )]
    NotBuilt {
        /// Name of the backend, and of the feature.
        backend: &'static str,
    },
    /// No device was named.
    #[error("no device to record was named")]
    NoDevice,
    /// The ring size cannot be used.
    #[error("ring of {bytes} bytes: expected a power of two of at least {least} bytes")]
    RingSize {
        /// What was asked for.
        bytes: usize,
        /// The smallest ring.
        least: usize,
    },
    /// There is no such device.
    #[error("{path}: no such block device ({source})")]
    UnknownDevice {
        /// As it was named.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// It is something else.
    #[error("{path} is not a block device")]
    NotABlockDevice {
        /// As it was named.
        path: PathBuf,
    },
    /// A folder's file system has no device of its own.
    #[error(
        "{path}: its file system lies on no block device that is known (memory, network, ZFS): name the devices"
    )]
    NoDeviceBelow {
        /// As it was named.
        path: PathBuf,
    },
    /// It has no medium, so that no I/O can happen.
    #[error(
        "{device} has a size of 0: no medium, or a loop or zram device that is not set up; no I/O can happen on it"
    )]
    NoMedium {
        /// Name of the device.
        device: String,
    },
    /// The device layer was asked for where it does not exist.
    #[error(
        "{device} has no request queue, so that nothing can be recorded at its device layer: leave the layer to its default, or record the devices below it"
    )]
    NoDeviceLayer {
        /// Name of the device.
        device: String,
    },
    /// The queue layer was asked for where requests are only seen at their disk.
    #[error(
        "an event session of Windows reports requests at the disk, not as they were submitted: leave the layer to its default"
    )]
    NoQueueLayer,
    /// More devices than one recording takes.
    #[error("{devices} devices: at most {most} can be recorded together")]
    TooManyDevices {
        /// How many were named.
        devices: usize,
        /// How many can be.
        most: usize,
    },
    /// A right is missing.
    #[error("{action}: permission denied, missing is {missing}; {remedy}")]
    Permission {
        /// What was tried.
        action: &'static str,
        /// Which right is missing.
        missing: String,
        /// The command that helps.
        remedy: String,
    },
    /// The kernel has no block tracepoints.
    #[error(
        "the kernel has no tracepoint block:{name}: it needs CONFIG_BLK_DEV_IO_TRACE or CONFIG_FTRACE with CONFIG_BLOCK"
    )]
    NoTracepoint {
        /// Name of the tracepoint.
        name: &'static str,
    },
    /// The kernel describes a tracepoint in a way that is not understood.
    #[error("tracepoint block:{name}: {reason}")]
    TracepointFormat {
        /// Name of the tracepoint.
        name: &'static str,
        /// What was expected and not found.
        reason: String,
    },
    /// Somebody else traces the queue, or did not clean up.
    #[error(
        "{device} has a block trace already, and a queue has one at a time: {}",
        other_trace(device, reader.as_deref())
    )]
    TraceInUse {
        /// Name of the device.
        device: String,
        /// Who reads that trace, if anybody does.
        reader: Option<String>,
    },
    /// The kernel cannot trace blocks in blktrace's way.
    #[error(
        "the kernel has no block traces (CONFIG_BLK_DEV_IO_TRACE): record with --backend perf or ftrace"
    )]
    NoBlockTrace,
    /// Another tracer takes all records.
    #[error(
        "ftrace's tracer blk is on and takes all records of block traces: turn it off (echo nop >/sys/kernel/tracing/current_tracer), or record with --backend perf or ftrace"
    )]
    BlkTracer,
    /// Lockdown closes the kernel's buffers.
    #[error(
        "kernel lockdown ({state}) closes blktrace's relay files: record with --backend perf or ftrace, which do the same under lockdown"
    )]
    LockedDown {
        /// Its state, as far as it is told.
        state: String,
    },
    /// The kernel's buffers would take too much memory.
    #[error(
        "the buffers of all processors and disks would take {needed} bytes, and {available} are available, of which 1/{part} may be taken: choose smaller ones (--ring), or fewer disks"
    )]
    BufferMemory {
        /// What they would take, in bytes.
        needed: u64,
        /// What the kernel could give, in bytes.
        available: u64,
        /// The part of it that may be taken is one in so many.
        part: u64,
    },
    /// The tape cannot be written.
    #[error(transparent)]
    Tape(#[from] TapeError),
    /// The tape cannot be written any further.
    #[error(
        "{error}; the tape ends with what was written before, and {requests} requests that waited to be written are lost"
    )]
    TapeCutShort {
        /// Why.
        error: TapeError,
        /// Requests that are lost.
        requests: usize,
    },
    /// A tape's file cannot be made.
    #[error("{path}: {}", made(source))]
    TapeFile {
        /// Which.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// Old segments can only go where there are segments.
    #[error("to keep so many segments, say when one ends (rotate)")]
    KeepWithoutRotate,
    /// Nothing would be left.
    #[error("0 segments to keep: expected at least 1, the one that is being written")]
    KeepNothing,
    /// A bound is too narrow.
    #[error("{bytes} bytes for a tape: expected at least {least}, for each segment")]
    SegmentSize {
        /// What was asked for, or what it leaves for each segment.
        bytes: u64,
        /// The least.
        least: u64,
    },
    /// The tape's file system is too full to begin.
    #[error(
        "{free} bytes are free where the tape is to go, and {floor} are to be left free: choose another place or a lower floor"
    )]
    NoSpace {
        /// Bytes that are free.
        free: u64,
        /// Bytes that are to be left free.
        floor: u64,
    },
    /// The thread that writes the tape ended early without an error.
    #[error("the tape's writer ended before the recording")]
    WriterEnded,
    /// A call of the system failed otherwise.
    #[error("{action}: {source}")]
    System {
        /// What was tried.
        action: String,
        /// What the system answered.
        source: io::Error,
    },
}

impl CaptureError {
    /// Whether what was asked for is wrong wherever it is asked: other options help, and nothing else.
    pub fn is_of_usage(&self) -> bool {
        use CaptureError::{
            KeepNothing, KeepWithoutRotate, NoBackend, NoDevice, NotBuilt, RingSize, SegmentSize,
            TooManyDevices,
        };
        matches!(
            self,
            NoBackend { .. }
                | NotBuilt { .. }
                | NoDevice
                | RingSize { .. }
                | TooManyDevices { .. }
                | KeepWithoutRotate
                | KeepNothing
                | SegmentSize { .. }
        )
    }
}

/// What happened to a file that was to be made.
fn made(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AlreadyExists => "exists already and is kept; name another file".to_owned(),
        _ => error.to_string(),
    }
}

/// Whose trace it is, and what to do.
fn other_trace(device: &str, reader: Option<&str>) -> String {
    match reader {
        Some(reader) => {
            format!("{reader} reads it; wait for its end, or record with --backend perf")
        }
        None => format!(
            "nobody reads it, so that a tracer that was killed may have left it; if nobody uses it, remove it (blktrace -d /dev/{device} -k), or record with --backend perf"
        ),
    }
}
