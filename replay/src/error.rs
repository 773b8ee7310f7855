//! Why a replay cannot be done.

use std::io;
use std::path::PathBuf;

use iotape_formats::Op;
use thiserror::Error;

/// What rids a target of what it carries.
const WIPE: &str = if cfg!(windows) {
    "diskpart (select disk, clean)"
} else {
    "wipefs"
};
/// Who may open a target.
const PRIVILEGED: &str = if cfg!(windows) {
    "administrator"
} else {
    "root or as a member of the device's group"
};
/// The variable that says where scratch files go.
const TEMPORARY: &str = if cfg!(windows) { "TMP" } else { "TMPDIR" };

/// Why a replay was refused or broke off. Everything up to and including [`ReplayError::Busy`] is
/// found before the target is touched.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// Nothing has this name.
    #[error("{}: no such file or device", path.display())]
    NotFound {
        /// The target.
        path: PathBuf,
    },
    /// The system refuses access.
    #[error(
        "{}: permission denied to open it for {access}; run as {privileged}",
        path.display(),
        privileged = PRIVILEGED
    )]
    PermissionDenied {
        /// The target.
        path: PathBuf,
        /// `reading` or `reading and writing`.
        access: &'static str,
    },
    /// A directory.
    #[error("{}: is a directory; name a block device or a regular file (without a target, a scratch file is made)", path.display())]
    Directory {
        /// The target.
        path: PathBuf,
    },
    /// A FIFO or a socket.
    #[error("{}: is a {kind}, which has no offsets; name a block device or a regular file", path.display())]
    NotSeekable {
        /// The target.
        path: PathBuf,
        /// `FIFO` or `socket`.
        kind: &'static str,
    },
    /// A character device.
    #[error("{}: is a character device; name the block device instead{hint}", path.display())]
    CharacterDevice {
        /// The target.
        path: PathBuf,
        /// For an NVMe controller: which block device to name.
        hint: String,
    },
    /// A volume or another device of Windows.
    #[error(
        "{}: is neither a disk nor a file; name a whole disk (\\\\.\\PhysicalDrive1) or a regular file",
        path.display()
    )]
    NoDiskOrFile {
        /// The target.
        path: PathBuf,
    },
    /// The disk that the system runs from.
    #[error("{}: Windows runs from it ({directory}); use --skip-writes to only read", path.display())]
    SystemDisk {
        /// The target.
        path: PathBuf,
        /// Where Windows is.
        directory: String,
    },
    /// The device or file cannot be written.
    #[error("{}: is read-only, and the tape changes data; use --skip-writes to replay the rest", path.display())]
    ReadOnly {
        /// The target.
        path: PathBuf,
    },
    /// Nothing can be read from it.
    #[error("{}: has no data: its size is 0", path.display())]
    Empty {
        /// The target.
        path: PathBuf,
    },
    /// A block device that does not do direct I/O.
    #[error("{}: the device refuses direct I/O (O_DIRECT): {source}", path.display())]
    NoDirectIo {
        /// The target.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A filesystem on it is in use.
    #[error(
        "{}: {device} is mounted on {mount_point}; unmount it, or use --skip-writes to only read",
        path.display()
    )]
    Mounted {
        /// The target.
        path: PathBuf,
        /// The device that is mounted: the target, or a partition of it.
        device: String,
        /// Where.
        mount_point: String,
    },
    /// Memory is swapped to it.
    #[error("{}: {device} is in use as swap; swapoff it first", path.display())]
    Swap {
        /// The target.
        path: PathBuf,
        /// The device that is in use: the target, or a partition of it.
        device: String,
    },
    /// Another device is built on it.
    #[error(
        "{}: {device} is held by {holder} (device mapper, LVM, md, loop or multipath); take that down first, or replay against it instead",
        path.display()
    )]
    Held {
        /// The target.
        path: PathBuf,
        /// The device that is held: the target, or a partition of it.
        device: String,
        /// Who holds it.
        holder: String,
    },
    /// It carries something that somebody may want to keep.
    #[error(
        "{}: carries {what} (signature at byte {offset_bytes}); if that is no longer wanted, remove it with {wipe}, or use --skip-writes to only read",
        path.display(),
        wipe = WIPE
    )]
    Signature {
        /// The target.
        path: PathBuf,
        /// Such as `an ext4 filesystem` or `a GPT partition table`.
        what: &'static str,
        /// Where the signature stands.
        offset_bytes: u64,
    },
    /// The tape changes data and nobody said that it may.
    #[error(
        "{}: the tape changes data ({writes} writes, {discards} discards, {write_zeroes} write-zeroes); \
         use --overwrite {} to lose what the target holds, or --skip-writes to leave them out",
        path.display(), path.display()
    )]
    OverwriteNeeded {
        /// The target.
        path: PathBuf,
        /// Writes in the tape.
        writes: u64,
        /// Discards in the tape.
        discards: u64,
        /// Write-zeroes in the tape.
        write_zeroes: u64,
    },
    /// `--overwrite` names something that is not replayed against.
    #[error("--overwrite {}: not a target of this replay", path.display())]
    OverwriteNamesNoTarget {
        /// What it names.
        path: PathBuf,
    },
    /// More or fewer targets than the arrangement takes.
    #[error("{found} targets: expected {expected}")]
    TargetCount {
        /// How many there are.
        found: usize,
        /// What is expected, and how to say what is meant.
        expected: &'static str,
    },
    /// The same target under two names, or twice under one.
    #[error("{} and {}: are the same target; name each once", path.display(), other.display())]
    SameTarget {
        /// One name.
        path: PathBuf,
        /// The other.
        other: PathBuf,
    },
    /// Stripes of this length cannot be laid onto the targets.
    #[error("stripe of {stripe_bytes} bytes: expected a multiple of {unit_bytes} up to 1 GiB")]
    Stripe {
        /// What was asked for.
        stripe_bytes: u64,
        /// What it must be a multiple of.
        unit_bytes: u64,
    },
    /// A device that the tape does not have.
    #[error("--device {device}: the tape has no such device; it has {devices}")]
    NoSuchDevice {
        /// As the user named it.
        device: String,
        /// Index and name of those it has.
        devices: String,
    },
    /// A device of the tape for which two targets were named.
    #[error("--device {device}: two targets are named for it; name one")]
    DeviceTwice {
        /// As the user named it.
        device: String,
    },
    /// A device of the tape for which no target was named.
    #[error(
        "the tape's device {device} has {requests} requests and no target; add --device {device}=TARGET, or leave it out of the tape with iotape edit"
    )]
    DeviceWithoutTarget {
        /// Its index.
        device: u16,
        /// How many requests it has.
        requests: u64,
    },
    /// The tape asks for an operation that the target does not have.
    #[error(
        "{target}: has no {op}, of which the tape has {requests}; use --unsupported skip to leave them out"
    )]
    Unsupported {
        /// The target.
        target: String,
        /// The operation.
        op: Op,
        /// How many of them the tape has.
        requests: u64,
    },
    /// The tape reaches behind the end of the target.
    #[error(
        "{target}: the target has {target_bytes} bytes, the tape reaches to {tape_bytes}; \
         use --map wrap, --map scale or --map hash to fold the tape onto the target, --map offset to shift it, or a larger target"
    )]
    TooSmall {
        /// The target.
        target: String,
        /// Its size.
        target_bytes: u64,
        /// First byte behind the tape's requests, all devices laid one behind the other.
        tape_bytes: u64,
    },
    /// The tape is shifted to before the target.
    #[error(
        "{target}: with --map-offset the tape's first request would be at byte {first_bytes}; use a smaller shift"
    )]
    BeforeStart {
        /// The target.
        target: String,
        /// Where its first request would be: negative.
        first_bytes: i128,
    },
    /// Regions of this length cannot be moved.
    #[error("regions of {region_bytes} bytes: expected a power of two of at least 4096")]
    Region {
        /// What was asked for.
        region_bytes: u64,
    },
    /// A single request is longer than the target.
    #[error(
        "{target}: the target has {target_bytes} bytes, fewer than the longest request of the tape ({request_bytes})"
    )]
    RequestLongerThanTarget {
        /// The target.
        target: String,
        /// Its size.
        target_bytes: u64,
        /// Length of the request.
        request_bytes: u64,
    },
    /// A request does not start and end on a sector of the target.
    #[error(
        "{target}: its sectors have {sector_bytes} bytes, but the tape's request {row} ({op} of {length_bytes} bytes at {offset_bytes}) \
         is not a multiple of that; use --align to widen such requests, or a target with smaller sectors"
    )]
    Unaligned {
        /// The target.
        target: String,
        /// Its logical sector, or its alignment for direct I/O.
        sector_bytes: u32,
        /// Position of the first such request in the tape, from 0.
        row: u64,
        /// What it does.
        op: Op,
        /// Where.
        offset_bytes: u64,
        /// How long.
        length_bytes: u64,
    },
    /// The buffers of all requests in flight would take too much memory.
    #[error(
        "the longest request of the tape ({longest_bytes} bytes) at depth {depth} needs {needed_bytes} bytes of buffers, \
         more than the limit of {limit_bytes}; use a smaller depth"
    )]
    Buffers {
        /// Longest request that transfers data.
        longest_bytes: u64,
        /// The depth cap.
        depth: u32,
        /// Product of both, with the payload.
        needed_bytes: u64,
        /// The limit.
        limit_bytes: u64,
    },
    /// The tape holds no request that can be replayed.
    #[error("the tape has {requests} requests, none of which can be replayed{why}")]
    NothingToReplay {
        /// Requests in the tape.
        requests: u64,
        /// Why, if it is the user's choice.
        why: &'static str,
    },
    /// A depth cap of zero or beyond what the engine holds.
    #[error("depth {depth}: expected 1 to {max}{with}")]
    Depth {
        /// What was asked for.
        depth: u32,
        /// The largest.
        max: u32,
        /// With which engine; empty when it is so with any.
        with: &'static str,
    },
    /// More workers than there can be, or none.
    #[error("{workers} workers: expected 1 to {max}{with}")]
    Workers {
        /// What was asked for.
        workers: u32,
        /// The most.
        max: u32,
        /// With which target; empty when it is so with any.
        with: &'static str,
    },
    /// The content asked for cannot be written, or not be checked.
    #[error("{option}: {why}")]
    Content {
        /// As the user asked for it.
        option: &'static str,
        /// Why not, and what would do.
        why: &'static str,
    },
    /// The buffers cannot be had.
    #[error("no memory for {needed_bytes} bytes of buffers: {source}; use a smaller depth")]
    Memory {
        /// What all buffers take.
        needed_bytes: u64,
        /// The kernel's answer.
        source: io::Error,
    },
    /// There is no room for a scratch file.
    #[error(
        "{}: {free_bytes} bytes free, of which a scratch file takes a quarter: too little for the tape, which needs at least {needed_bytes} bytes; \
         set {variable} to a directory with more room, or name a target",
        directory.display(),
        variable = TEMPORARY
    )]
    NoRoomForScratch {
        /// Where it was to be made.
        directory: PathBuf,
        /// Free space there.
        free_bytes: u64,
        /// Smallest file that the tape can be wrapped onto.
        needed_bytes: u64,
    },
    /// The scratch file could not be made or filled.
    #[error(
        "{}: cannot make a scratch file: {source}; set {variable} to another directory, or name a target",
        directory.display(),
        variable = TEMPORARY
    )]
    Scratch {
        /// Where it was to be made.
        directory: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The user stopped the preparation.
    #[error("interrupted before the first request")]
    Interrupted,
    /// Somebody else has the device open exclusively.
    #[error("{}: is in use: the kernel or another program has claimed it exclusively", path.display())]
    Busy {
        /// The target.
        path: PathBuf,
    },
    /// The target could not be opened or examined for another reason.
    #[error("{}: cannot {action}: {source}", path.display())]
    Target {
        /// The target.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The engine that was asked for does not work here.
    #[error("engine {engine}: {source}")]
    Engine {
        /// Its name.
        engine: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The tape could not be read.
    #[error("tape: {0}")]
    Tape(#[from] crate::source::SourceError),
    /// This system has no engine.
    #[error(
        "replay on this operating system is not supported yet; it works on Linux and on Windows"
    )]
    UnsupportedPlatform,
}
