//! What can be asked of a replay.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use iotape_formats::Op;
use iotape_replay::{Speed, TargetSpec};

use super::values::{device_target, duration, shift, size, target};
use super::{EXIT_STATUS, joined};

/// Replay a tape under a queue-depth cap and measure.
///
/// Without TARGET the tape is wrapped onto a scratch file in the temporary directory, which is
/// removed afterwards: safe for anybody. Without --profile or --depth both profiles run: light
/// (at most 8 requests outstanding) and heavy (48).
#[derive(Debug, Args)]
#[command(after_help = joined(&[
    "Examples:\n",
    "  iotape replay mail.iotape\n",
    "  iotape replay mail.iotape /dev/nvme1n1 --overwrite /dev/nvme1n1 --map wrap\n",
    "  iotape replay mail.iotape /dev/nvme1n1 --skip-writes --depth 16 -o r.json\n",
    "  iotape replay mail.iotape /dev/sdb --skip-writes --timing recorded --speed 2\n",
    "  iotape replay mail.iotape sim:servers=4,service=100us --timing dependent\n",
    "  iotape replay mail.iotape --runs 5 --hdr-log mail.hlog -o mail.json\n",
    "  iotape replay mail.iotape --stripe 64KiB /dev/sdb /dev/sdc --skip-writes\n",
    "  iotape replay pair.iotape --device sda=/dev/sdb --device sdd=/dev/sdc\n\n",
    EXIT_STATUS
]))]
pub struct ReplayArgs {
    /// The tape.
    pub tape: PathBuf,
    /// Block devices or files to replay against, several with --stripe; or a simulated device:
    /// sim:servers=4,service=100us, and as wanted dist=exp, stall=100ms@2s, seed=1, size=1GiB,
    /// joined by commas.
    #[arg(
        value_name = "TARGET",
        value_parser = OsStringValueParser::new().try_map(|text| target(&text))
    )]
    pub targets: Vec<TargetSpec>,
    /// Lay the tape over the targets in stripes of this length, such as 64KiB, as RAID 0
    /// does.
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with = "device")]
    pub stripe: Option<u64>,
    /// Replay this device of the tape, by name or index, against this target; once for each.
    #[arg(
        long,
        value_name = "DEVICE=TARGET",
        value_parser = device_target,
        conflicts_with = "targets"
    )]
    pub device: Vec<(String, PathBuf)>,
    /// Depth caps to run: light is 8, heavy is 48.
    #[arg(long, value_enum, value_delimiter = ',', conflicts_with = "depth")]
    pub profile: Vec<ProfileArg>,
    /// Run once, with at most this many requests outstanding.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub depth: Option<u32>,
    /// When requests are issued. By default asap; recorded if --speed is given.
    #[arg(long, value_enum)]
    pub timing: Option<TimingArg>,
    /// Keep the tape's times at this many times the speed, such as 2 or 0.5.
    #[arg(long, value_name = "X")]
    pub speed: Option<Speed>,
    /// Replay each profile this many times, in turn: light, heavy, light, heavy.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Replay only these operations, such as read,write. The gaps of the others remain.
    #[arg(long, value_name = "OP", value_delimiter = ',')]
    pub only: Vec<Op>,
    /// Leave out what was recorded earlier than this after the tape's start.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub from: Option<Duration>,
    /// Leave out what was recorded at this time after the tape's start, or later.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub to: Option<Duration>,
    /// How the tape's offsets become the target's; a target smaller than the tape needs wrap,
    /// scale or hash.
    #[arg(long, value_enum, value_name = "MODE")]
    pub map: Option<MapArg>,
    /// What is added to each offset, in bytes; may be negative. The same as --map offset.
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, value_parser = shift)]
    pub map_offset: Option<i64>,
    /// Length of the regions that scale and hash move as a whole: a power of two.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "1MiB")]
    pub map_region: u64,
    /// Widen requests to whole sectors of the target instead of refusing them.
    #[arg(long)]
    pub align: bool,
    /// What becomes of discards and write-zeroes that a target does not have: the tape is
    /// refused, or they are left out and counted.
    #[arg(long, value_enum, default_value = "fail")]
    pub unsupported: UnsupportedArg,
    /// How requests reach the kernel.
    #[arg(long, value_enum, default_value = "auto")]
    pub engine: EngineArg,
    /// Submit from this many threads, each pinned to a processor; one by default, not pinned.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub workers: Option<u32>,
    /// Repeat the tape until this much time has passed, such as 60s.
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Leave the first part of each run out of the figures.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub warmup: Option<Duration>,
    /// Let the tape's writes destroy what this target holds; names the target once more.
    #[arg(long, value_name = "TARGET", conflicts_with = "skip_writes")]
    pub overwrite: Vec<PathBuf>,
    /// Leave out writes, discards and write-zeroes, and open the target read-only.
    #[arg(long)]
    pub skip_writes: bool,
    /// Percent of what is written that is zeros, for targets that compress.
    #[arg(long, value_name = "PERCENT", default_value_t = 0,
          value_parser = clap::value_parser!(u8).range(0..=100))]
    pub compressible: u8,
    /// Percent of the written blocks of 4 KiB that are the same one, for targets that remove
    /// duplicates; the others are unique then.
    #[arg(long, value_name = "PERCENT", default_value_t = 0,
          value_parser = clap::value_parser!(u8).range(0..=100))]
    pub duplicate: u8,
    /// Tag what is written, and check it when it is read and once more at the end.
    #[arg(long, conflicts_with = "skip_writes")]
    pub verify: bool,
    /// Let a request wait for one in flight on the same bytes, if one of both changes data.
    #[arg(long)]
    pub order_overlaps: bool,
    /// Seed of the written data.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write the histograms of each second to this file, as an interval log of HdrHistogram.
    #[arg(long, value_name = "FILE")]
    pub hdr_log: Option<PathBuf>,
    /// Write the result to this file; must not exist yet.
    #[arg(short, long, value_name = "RESULT.json")]
    pub output: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
    /// No progress line.
    #[arg(short, long)]
    pub quiet: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProfileArg {
    /// At most 8 requests outstanding.
    Light,
    /// At most 48 requests outstanding.
    Heavy,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum TimingArg {
    /// As fast as the cap lets: a request is issued when a slot frees.
    Asap,
    /// At the tape's times, whatever the target does, but for the cap.
    Recorded,
    /// As long after an earlier request of its process has completed as on the tape.
    Dependent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MapArg {
    /// The same offset; what does not fit is refused. On a scratch file as wrap.
    Identity,
    /// The offset plus --map-offset; what does not fit is refused.
    Offset,
    /// Regions at proportional places: a large tape on a small target or the other way.
    Scale,
    /// The offset modulo the target's size.
    Wrap,
    /// Regions at places that a permutation from --seed gives.
    Hash,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum UnsupportedArg {
    /// Leave them out.
    Skip,
    /// Refuse the tape.
    Fail,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum EngineArg {
    /// The system's best, or threads where that is forbidden.
    Auto,
    /// io_uring (Linux).
    Uring,
    /// Overlapped I/O and a completion port (Windows).
    Iocp,
    /// One blocking call in a thread per outstanding request.
    Threads,
    /// No I/O at all: the ceiling of this tool on this machine.
    Null,
}
