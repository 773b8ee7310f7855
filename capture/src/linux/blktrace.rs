//! Setting up the kernel's block traces: one for each queue, and what can stand in the way.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use iotape_formats::tape::Layer;
use rustix::fs::{Mode, OFlags, fstat, open};

use super::arm;
use super::debugfs::DebugFs;
use super::devices::{BlockDevice, Number};
use super::relay::{Trace, Traces};
use super::rights;
use super::sys::{TraceWanted, set_up_traces, start_trace};
use super::tracefs::TraceFs;
use crate::CaptureError;

/// Largest sub-buffer, blktrace's own. A buffer has at least [`LEAST_SUB_BUFFERS`].
const SUB_BUFFER_BYTES: usize = 512 << 10;
const LEAST_SUB_BUFFERS: usize = 4;
/// Part of the available memory that the kernel's buffers may take.
const MEMORY_PART: u64 = 4;

/// Categories of `linux/blktrace_api.h`, by bit: QUEUE 4, COMPLETE 7, NOTIFY 10.
const QUEUE_AND_COMPLETE: u64 = 1 << 4 | 1 << 7;
/// All but messages of schedulers and drivers. Names of processes are told all the same.
const ALL_BUT_MESSAGES: u64 = !(1 << 10);

/// A queue to trace: a disk, also where partitions of it are recorded.
#[derive(Debug)]
struct Queue {
    name: String,
    device: OwnedFd,
    categories: u64,
}

/// Sets up and starts a trace for the queue of each device.
pub(super) fn start(devices: &[BlockDevice], ring_bytes: usize) -> Result<Traces, CaptureError> {
    refuse_blk_tracer()?;
    let debugfs = DebugFs::open().map_err(rights::debugfs_error)?;
    let queues = queues(devices)?;
    check_memory(queues.len(), ring_bytes)?;
    let sub_buffer_bytes = SUB_BUFFER_BYTES.min(ring_bytes / LEAST_SUB_BUFFERS);
    let wanted: Vec<TraceWanted<'_>> = queues
        .iter()
        .map(|queue| TraceWanted {
            device: queue.device.as_fd(),
            categories: queue.categories,
            sub_buffer_bytes: u32::try_from(sub_buffer_bytes).unwrap_or(u32::MAX),
            sub_buffers: u32::try_from(ring_bytes / sub_buffer_bytes).unwrap_or(u32::MAX),
        })
        .collect();
    let (keeper, answers) = set_up_traces(&wanted).map_err(|source| CaptureError::System {
        action: "setting up block traces".to_owned(),
        source,
    })?;
    let mut traces = Traces::new(keeper);
    for (queue, answer) in queues.iter().zip(answers) {
        let folder = answer.map_err(|error| refused(&queue.name, error))?;
        let opened = open_folder(&debugfs, &folder, &queue.name).and_then(Trace::open);
        traces
            .add(opened.map_err(rights::relay_error)?)
            .map_err(rights::relay_error)?;
    }
    for queue in &queues {
        start_trace(queue.device.as_fd()).map_err(|source| CaptureError::System {
            action: format!("starting the block trace of {}", queue.name),
            source,
        })?;
    }
    Ok(traces)
}

/// The kernel names the folder as the trace or, with `!` for `/`, as the disk.
fn open_folder(debugfs: &DebugFs, told: &str, disk: &str) -> io::Result<OwnedFd> {
    debugfs
        .folder(&format!("block/{told}"))
        .or_else(|_| debugfs.folder(&format!("block/{}", disk.replace('/', "!"))))
}

fn queues(devices: &[BlockDevice]) -> Result<Vec<Queue>, CaptureError> {
    let mut wanted: BTreeMap<Number, (String, u64)> = BTreeMap::new();
    for device in devices {
        let categories = match device.layer {
            Layer::Queue => QUEUE_AND_COMPLETE,
            Layer::Device => ALL_BUT_MESSAGES,
        };
        let queue = wanted
            .entry(device.reported)
            .or_insert_with(|| (device.disk_name(), 0));
        queue.1 |= categories;
    }
    let opened = wanted.into_iter().map(|(number, (name, categories))| {
        Ok(Queue {
            device: open_disk(&name, number)?,
            name,
            categories,
        })
    });
    opened.collect()
}

/// Opens a disk to speak of it, which neither reads it nor keeps others from using it.
fn open_disk(name: &str, number: Number) -> Result<OwnedFd, CaptureError> {
    let path = PathBuf::from("/dev").join(name);
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::PermissionDenied => rights::root_needed("opening a disk", "root"),
        _ => CaptureError::UnknownDevice {
            path: path.clone(),
            source,
        },
    };
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let device = open(&path, flags, Mode::empty()).map_err(|error| failed(error.into()))?;
    let status = fstat(&device).map_err(|error| failed(error.into()))?;
    if Number::of_dev(status.st_rdev) != number {
        return Err(failed(io::Error::other(format!(
            "it is not device {number}"
        ))));
    }
    Ok(device)
}

/// The kernel keeps a buffer for each processor and queue, and takes the memory at once.
fn check_memory(queues: usize, ring_bytes: usize) -> Result<(), CaptureError> {
    let cpus = arm::online_cpus().map_or(1, |cpus| cpus.len());
    let needed = queues as u64 * cpus as u64 * ring_bytes as u64;
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = |line: &str| {
        let kilobytes = line
            .strip_prefix("MemAvailable:")?
            .trim()
            .strip_suffix("kB")?;
        kilobytes.trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    match text.lines().find_map(available) {
        Some(available) if needed > available / MEMORY_PART => Err(CaptureError::BufferMemory {
            needed,
            available,
            part: MEMORY_PART,
        }),
        _ => Ok(()),
    }
}

/// While ftrace's tracer `blk` is on, the kernel gives all records to it and none to a block trace.
pub(super) fn refuse_blk_tracer() -> Result<(), CaptureError> {
    let current = TraceFs::open().and_then(|tracefs| tracefs.read("current_tracer"));
    match current {
        Ok(name) if name.trim() == "blk" => Err(CaptureError::BlkTracer),
        _ => Ok(()),
    }
}

/// Whether the kernel has block traces, by the folder that each disk has for them; `None` without a disk.
pub(super) fn is_compiled_in() -> Option<bool> {
    let mut disks = fs::read_dir("/sys/block").ok()?.flatten().peekable();
    disks.peek()?;
    Some(disks.any(|disk| disk.path().join("trace").exists()))
}

fn refused(device: &str, source: io::Error) -> CaptureError {
    match source.raw_os_error() {
        Some(libc::EBUSY) => CaptureError::TraceInUse {
            device: device.to_owned(),
            reader: reader_of(device),
        },
        Some(libc::ENOTTY | libc::EOPNOTSUPP) => CaptureError::NoBlockTrace,
        Some(libc::EPERM | libc::EACCES) => rights::root_needed("setting up a block trace", "root"),
        _ => CaptureError::System {
            action: format!("setting up a block trace of {device}"),
            source,
        },
    }
}

/// A process that reads the trace of a device, as `blktrace (process 123)`.
fn reader_of(device: &str) -> Option<String> {
    let buffers = format!("/block/{device}/trace");
    let reads = |process: &fs::DirEntry| {
        let files = fs::read_dir(process.path().join("fd"))
            .into_iter()
            .flatten();
        files
            .flatten()
            .filter_map(|file| fs::read_link(file.path()).ok())
            .any(|path| path.to_string_lossy().contains(&buffers))
    };
    let process = fs::read_dir("/proc").ok()?.flatten().find(reads)?;
    let name = fs::read_to_string(process.path().join("comm")).ok()?;
    let number = process.file_name();
    Some(format!(
        "{} (process {})",
        name.trim(),
        number.to_string_lossy()
    ))
}
