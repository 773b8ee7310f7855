//! What the user asks of a replay.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use iotape_formats::Op;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::hdr_log::HdrLog;
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
    /// Replays no other operations than these; empty: all. The timeline stays that of the whole
    /// tape.
    pub only: Vec<Op>,
    /// Leaves out what was recorded earlier than this after the start of the tape.
    pub from: Option<Duration>,
    /// Leaves out what was recorded at this time after the start of the tape, or later.
    pub to: Option<Duration>,
    /// How the tape's offsets become the targets'. On [`TargetSpec::Scratch`] identity is wrapping.
    pub mapping: MappingMode,
    /// Added to each offset, with [`MappingMode::Offset`].
    pub map_offset_bytes: i64,
    /// Length of the regions of [`MappingMode::Scale`] and [`MappingMode::Hash`]: a power of two of
    /// at least 4,096.
    pub map_region_bytes: u64,
    /// Widens requests that do not begin and end on a sector of their target until they do; else
    /// they are refused.
    pub align: bool,
    /// What becomes of operations that a target does not have.
    pub unsupported: Unsupported,
    /// Of what writes carry, this many percent are zeros, spread evenly.
    pub compressible: u8,
    /// Of the blocks written (of 4,096 bytes, if requests are so aligned), this many percent are
    /// the same block; all others are unique.
    pub duplicate: u8,
    /// Writes carry tags that are checked when they are read, in the run and once after it. Orders
    /// overlaps. Costs so much processor time that the figures are not those of the target alone.
    pub verify: bool,
    /// A request that overlaps one in flight, of which one changes data, waits for it.
    pub order_overlaps: bool,
    /// Which engine submits.
    pub engine: EngineChoice,
    /// Threads that submit, each pinned to a processor, from 1 to [`Options::MAX_WORKERS`]; `None`:
    /// one, not pinned. A simulated target has one.
    pub workers: Option<u32>,
    /// Seed of the payload of writes and of the content of a scratch file.
    pub seed: u64,
    /// Most memory for the buffers of all requests in flight.
    pub buffer_limit_bytes: u64,
}

impl Options {
    /// The default of [`Options::buffer_limit_bytes`]: 1 GiB.
    pub const BUFFER_LIMIT_BYTES: u64 = 1 << 30;
    /// The default of [`Options::map_region_bytes`]: 1 MiB.
    pub const MAP_REGION_BYTES: u64 = 1 << 20;
    /// Most targets of a replay.
    pub const MAX_TARGETS: usize = 64;
    /// Most threads that submit.
    pub const MAX_WORKERS: u32 = 256;

    /// Replay against a target with everything else at its default: data is not changed, offsets
    /// are kept, the engine is chosen automatically.
    pub fn new(target: TargetSpec) -> Self {
        Options {
            targets: vec![target],
            arrangement: Arrangement::Single,
            write_policy: WritePolicy::Refuse,
            only: Vec::new(),
            from: None,
            to: None,
            mapping: MappingMode::Identity,
            map_offset_bytes: 0,
            map_region_bytes: Self::MAP_REGION_BYTES,
            align: false,
            unsupported: Unsupported::Fail,
            compressible: 0,
            duplicate: 0,
            verify: false,
            order_overlaps: false,
            engine: EngineChoice::Auto,
            workers: None,
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
    /// Shifted by a constant.
    Offset,
    /// Regions go to proportional places of the target, whatever is in one stays together.
    Scale,
    /// Modulo the target's size; a request that would cross the end is moved back until it fits.
    Wrap,
    /// Regions go to places that a seeded permutation of the target's regions gives.
    Hash,
}

impl fmt::Display for MappingMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            MappingMode::Identity => "identity",
            MappingMode::Offset => "offset",
            MappingMode::Scale => "scale",
            MappingMode::Hash => "hash",
            MappingMode::Wrap => "wrap",
        })
    }
}

/// What becomes of operations that a target does not have: discards, and write-zeroes that the
/// kernel would turn into writes. It is known of block devices before the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unsupported {
    /// The tape is refused.
    #[default]
    Fail,
    /// They are left out and counted.
    Skip,
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

/// When requests are submitted. In each case not before a token is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Timing {
    /// In tape order, as soon as a token is free: a closed loop.
    #[default]
    Asap,
    /// At the times of the tape, counted from its first request, whatever the target does: an open
    /// loop.
    Recorded,
    /// As long after an earlier request of the same submitter has completed as when it was
    /// recorded.
    Dependent,
}

impl Timing {
    /// Whether the tape's times are kept.
    pub fn keeps_time(self) -> bool {
        self != Timing::Asap
    }
}

/// How many times as fast as recorded: a decimal fraction, kept exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speed {
    millionths: u64,
}

/// A text that is no speed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("expected a number from 0.000001 to 1000000, with at most 6 decimals, found {0:?}")]
pub struct SpeedError(pub String);

impl Speed {
    const ONE: u64 = 1_000_000;
    const MAX: u64 = 1_000_000 * Self::ONE;

    /// As recorded.
    pub const RECORDED: Speed = Speed {
        millionths: Self::ONE,
    };

    /// How long a time takes at this speed, rounded down to whole nanoseconds.
    #[inline]
    pub fn divide(self, time_ns: u64) -> u64 {
        if self.millionths == Self::ONE {
            return time_ns;
        }
        let scaled = u128::from(time_ns) * u128::from(Self::ONE) / u128::from(self.millionths);
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }

    /// As a number.
    #[expect(clippy::cast_precision_loss, reason = "at most 10^12")]
    pub fn factor(self) -> f64 {
        self.millionths as f64 / Self::ONE as f64
    }
}

impl FromStr for Speed {
    type Err = SpeedError;

    fn from_str(text: &str) -> Result<Self, SpeedError> {
        let error = || SpeedError(text.to_owned());
        let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || decimals.len() > 6 || !digits(whole) || !digits(decimals) {
            return Err(error());
        }
        let millionths: u64 = format!("{whole}{decimals:0<6}")
            .parse()
            .map_err(|_| error())?;
        match millionths {
            1..=Self::MAX => Ok(Speed { millionths }),
            _ => Err(error()),
        }
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.factor())
    }
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
    /// How many times as fast as recorded, where the timing keeps the tape's times.
    pub speed: Speed,
    /// Repeats the tape until this much time has passed since the end of the warm-up. `None`: the
    /// tape runs once.
    pub repeat_for: Option<Duration>,
    /// Left out of the figures: requests submitted earlier than this after the first.
    pub warmup: Duration,
    /// Length of the entries of [`crate::result::Run::intervals`]; at least 1 ms.
    pub interval: Duration,
    /// Where to write the histograms of each interval.
    pub hdr_log: Option<HdrLog>,
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
            speed: Speed::RECORDED,
            hdr_log: None,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_is_a_decimal_fraction_kept_exactly() {
        let speed = |text: &str| text.parse::<Speed>();
        assert_eq!(speed("0.3").map(|s| s.divide(3)), Ok(10));
        assert_eq!(
            speed("1000000").map(|s| s.divide(u64::MAX)),
            Ok(18_446_744_073_709)
        );
        assert_eq!(speed("0.000001").map(|s| s.divide(2)), Ok(2_000_000));
        assert_eq!(speed("2.50").map(|s| s.to_string()), Ok("2.5".to_owned()));
        for text in [
            "",
            "0",
            ".5",
            "-1",
            "1e3",
            "1000000.1",
            "0.0000001",
            "1.2.3",
            "+1",
            "NaN",
        ] {
            assert!(speed(text).is_err(), "{text}");
        }
    }
}
