//! What the user asks of a replay.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::sim_spec::SimSpec;

/// What is decided once, before any run: the targets, what may be done to them, and how the tape is
/// laid onto them.
#[derive(Clone, Debug)]
pub struct Options {
    /// What to replay against: from one to [`Options::MAX_TARGETS`]. Several are all paths, or all
    /// [`TargetSpec::Null`].
    pub targets: Vec<TargetSpec>,
    /// What of the tape goes to which target.
    pub arrangement: Arrangement,
    /// What may happen to the targets' data.
    pub write_policy: WritePolicy,
    /// How the tape's offsets become the targets'. [`TargetSpec::Scratch`] wraps whatever is said.
    pub mapping: MappingMode,
    /// Which engine submits.
    pub engine: EngineChoice,
    /// Seed of the payload of writes and of the content of a scratch file.
    pub seed: u64,
    /// Most memory for the buffers of all requests in flight.
    pub buffer_limit_bytes: u64,
}

impl Options {
    /// The default of [`Options::buffer_limit_bytes`]: 1 GiB.
    pub const BUFFER_LIMIT_BYTES: u64 = 1 << 30;
    /// Most targets of a replay.
    pub const MAX_TARGETS: usize = 64;

    /// Replay against a target with everything else at its default: data is not changed, offsets
    /// are kept, the engine is chosen automatically.
    pub fn new(target: TargetSpec) -> Self {
        Options {
            targets: vec![target],
            arrangement: Arrangement::Single,
            write_policy: WritePolicy::Refuse,
            mapping: MappingMode::Identity,
            engine: EngineChoice::Auto,
            seed: 1,
            buffer_limit_bytes: Self::BUFFER_LIMIT_BYTES,
        }
    }
}

/// What to replay against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetSpec {
    /// A block device or an existing regular file.
    Path(PathBuf),
    /// A file made for the occasion, filled with random data, and gone afterwards.
    Scratch {
        /// Where to make it. `None`: `TMPDIR` if set, else `/tmp`, or `/var/tmp` where `/tmp` is
        /// in memory.
        directory: Option<PathBuf>,
    },
    /// No target at all: every request completes at once. Measures the tool itself.
    Null,
    /// A simulated device, whose answers are known.
    Sim(SimSpec),
}

/// What of the tape goes to which target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Arrangement {
    /// Everything to the only target, the tape's devices one behind the other.
    #[default]
    Single,
    /// The tape's devices one behind the other, in stripes over all targets, as RAID 0 does.
    Striped {
        /// Length of a stripe: a multiple of 4,096, at most 1 GiB.
        stripe_bytes: u64,
    },
    /// Each device of the tape to the target named for it. Devices that share a target are laid one
    /// behind the other.
    Devices(Vec<DeviceTarget>),
}

/// Where a device of the tape goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceTarget {
    /// The device: its name or its index, as `iotape info` prints them.
    pub device: String,
    /// Index of the target among [`Options::targets`].
    pub target: usize,
}

/// What may happen to the target's data. What is no device or file of the user's needs no permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WritePolicy {
    /// Nothing: a tape that changes data is refused.
    Refuse,
    /// Data may be overwritten on the targets named here, by the path the user typed.
    Overwrite(Vec<PathBuf>),
    /// The target is opened read-only; writes, discards and write-zeroes are left out.
    SkipWrites,
}

/// How offsets of the tape become offsets of the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MappingMode {
    /// Unchanged.
    #[default]
    Identity,
    /// Modulo the target's size; a request that would cross the end is moved back until it fits.
    Wrap,
}

impl fmt::Display for MappingMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            MappingMode::Identity => "identity",
            MappingMode::Wrap => "wrap",
        })
    }
}

/// Which engine submits the requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineChoice {
    /// io_uring or completion ports, else threads. The result says which and why.
    #[default]
    Auto,
    /// io_uring (Linux), or an error.
    Uring,
    /// Overlapped I/O and a completion port (Windows), or an error.
    Iocp,
    /// One thread per token with blocking system calls.
    Threads,
}

impl EngineChoice {
    /// As the result names the engine.
    pub fn name(self) -> &'static str {
        match self {
            EngineChoice::Auto => "auto",
            EngineChoice::Uring => "uring",
            EngineChoice::Iocp => "iocp",
            EngineChoice::Threads => "threads",
        }
    }
}

/// When requests are submitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Timing {
    /// In tape order, as soon as a token is free: a closed loop.
    #[default]
    Asap,
}

/// A depth cap with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// `light`, `heavy`, or `None` for a depth that the user gave as a number.
    pub name: Option<String>,
    /// Most operations outstanding at any moment, from 1 to [`Profile::MAX_DEPTH`].
    pub depth: u32,
}

impl Profile {
    /// Largest depth cap. A flush linked to a write takes two entries of an io_uring, which has at
    /// most 32,768.
    pub const MAX_DEPTH: u32 = 8_192;

    /// Depth 8.
    pub fn light() -> Self {
        Profile {
            name: Some("light".to_owned()),
            depth: 8,
        }
    }

    /// Depth 48.
    pub fn heavy() -> Self {
        Profile {
            name: Some("heavy".to_owned()),
            depth: 48,
        }
    }

    /// A depth without a name.
    pub fn depth(depth: u32) -> Self {
        Profile { name: None, depth }
    }
}

/// What is decided for each run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Name of the run in the result, such as the device and the profile.
    pub label: String,
    /// The depth cap.
    pub profile: Profile,
    /// When requests are submitted.
    pub timing: Timing,
    /// Repeats the tape until this much time has passed since the end of the warm-up. `None`: the
    /// tape runs once.
    pub repeat_for: Option<Duration>,
    /// Left out of the figures: requests submitted earlier than this after the first.
    pub warmup: Duration,
    /// Length of the entries of [`crate::result::Run::intervals`]; at least 1 ms.
    pub interval: Duration,
    /// Position of the run in the experiment, from 0.
    pub order: u32,
}

impl RunOptions {
    /// One pass of the tape under a profile, as fast as the cap lets.
    pub fn new(label: impl Into<String>, profile: Profile) -> Self {
        RunOptions {
            label: label.into(),
            profile,
            timing: Timing::Asap,
            repeat_for: None,
            warmup: Duration::ZERO,
            interval: Duration::from_secs(1),
            order: 0,
        }
    }
}

/// How far a replay is; given to the progress callback about once a second.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    /// A scratch file is being filled.
    Filling {
        /// Bytes written so far.
        done_bytes: u64,
        /// Bytes to write.
        total_bytes: u64,
    },
    /// A run is under way.
    Running {
        /// Since the first submission.
        elapsed: Duration,
        /// Requests completed, warm-up included.
        requests: u64,
        /// Bytes read and written, warm-up included.
        bytes: u64,
        /// Requests of the tape, all passes asked for; `None` when the run is bounded by time.
        total_requests: Option<u64>,
        /// Whether the warm-up is still going on.
        warming_up: bool,
    },
}
