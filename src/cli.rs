//! The command line: what can be asked, and the help that explains it.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use iotape_capture::{Backend, Rotate};
use iotape_formats::Op;
use iotape_formats::tape::{Layer, Level};
use iotape_replay::{SimSpecError, Speed, TargetSpec};

/// Exit statuses, printed under every `--help`.
const EXIT_STATUS: &str = "Exit status: 0 done, 1 failed, 2 wrong usage, \
3 done but with lost data or an invalid run.";

#[derive(Debug, Parser)]
#[command(
    name = "iotape",
    version,
    about = "A tape recorder for block I/O: record a server, replay the tape on a candidate device",
    after_help = EXIT_STATUS,
    propagate_version = true,
    max_term_width = 80
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Record(RecordArgs),
    Top(TopArgs),
    Info(InfoArgs),
    Export(ExportArgs),
    Import(ImportArgs),
    Check(CheckArgs),
    Edit(EditArgs),
    Replay(ReplayArgs),
    Compare(CompareArgs),
    Doctor(DoctorArgs),
}

/// Record the block I/O of devices into a tape.
///
/// Ends at Ctrl-C, SIGTERM or after --for; the tape is whole in each case. A tape whose recorder
/// was killed keeps everything but the last seconds.
#[derive(Debug, Args)]
#[command(after_help = joined(&[
    "Examples:\n",
    "  sudo iotape record /dev/sda -o mail.iotape --for 30m\n",
    "  sudo iotape record sda nvme0n1 -o both.iotape --layer queue\n",
    "  sudo iotape record sda -o mail.iotape --rotate 100MiB --keep 20\n",
    "                                 (mail.0001.iotape, mail.0002.iotape and so on)\n",
    "  sudo iotape record sda -o mail.iotape --live\n\n",
    EXIT_STATUS
]))]
pub struct RecordArgs {
    #[command(flatten)]
    pub source: SourceArgs,
    /// The tape to write: a file that does not exist yet.
    #[arg(short, long, value_name = "TAPE")]
    pub output: PathBuf,
    /// End the recording before the tape, or all its segments, exceed this.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub max_bytes: Option<u64>,
    /// Go on in a new segment before one exceeds a size, or after a time: each is a whole tape.
    /// `iotape edit` joins them.
    #[arg(long, value_name = "SIZE|DURATION", value_parser = rotate)]
    pub rotate: Option<Rotate>,
    /// Keep this many segments, the newest; with --max-bytes each gets its share.
    #[arg(long, value_name = "N", requires = "rotate",
        value_parser = clap::value_parser!(u32).range(1..))]
    pub keep: Option<u32>,
    /// Space to leave free where the tape is: below it the oldest segments go (--keep), or the
    /// recording ends.
    #[arg(long, value_name = "SIZE", value_parser = size_or_nothing, default_value = "256MiB")]
    pub min_free: u64,
    /// End the recording as soon as events are lost.
    #[arg(long)]
    pub fail_on_loss: bool,
    /// Leave the host's name out of the tape.
    #[arg(long)]
    pub hide_host: bool,
    /// Replace an existing tape.
    #[arg(long)]
    pub force: bool,
    /// Show what goes on: a screen on a terminal, else a line each interval.
    #[arg(long, conflicts_with = "quiet")]
    pub live: bool,
    /// How often the live view shows new figures; from 100ms to 1h.
    #[arg(long, value_name = "DURATION", value_parser = interval, default_value = "1s",
        requires = "live")]
    pub interval: Duration,
    /// No progress line.
    #[arg(short, long)]
    pub quiet: bool,
    /// Print what was recorded as JSON. With --live a JSON object a line: one each interval, and one
    /// at the end (docs/capture.md).
    #[arg(long)]
    pub json: bool,
}

/// Where requests come from.
#[derive(Debug, Args)]
pub struct SourceArgs {
    /// Devices: /dev/sda or just sda, or a folder such as /var/mail for the leaf devices under its
    /// file system; on Windows 0 or C:.
    #[arg(required_unless_present = "all", value_name = "DEVICE")]
    pub devices: Vec<PathBuf>,
    /// All disks that are built on no other device: each byte once, whatever dm or md make of them. Not
    /// on Windows.
    #[arg(long)]
    pub all: bool,
    /// Stop after this long, such as 90s, 30m or 8h.
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Where to watch: as submitted (queue) or as the driver gets it (device).
    /// By default the device layer where a device has a request queue.
    #[arg(long, value_enum)]
    pub layer: Option<LayerArg>,
    /// How events come from the kernel; `iotape doctor` says what works here. Windows has one way.
    #[arg(long, value_enum, default_value = "auto")]
    pub backend: BackendArg,
    #[arg(long, value_name = "SIZE", value_parser = size, help = RING_HELP.as_str())]
    pub ring: Option<u64>,
    /// As whom to go on once everything is armed: by default who called sudo, else nobody; root keeps
    /// all rights.
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
}

/// Show the block I/O of devices as it happens, without writing a tape.
///
/// The view of `record --live`: throughput, operations, depth, latency, losses and the processes that
/// move the most bytes. A screen on a terminal, else a line each interval. Ends at Ctrl-C, SIGTERM or
/// after --for.
#[derive(Debug, Args)]
#[command(after_help = joined(&[
    "Examples:\n",
    "  sudo iotape top sda nvme0n1\n",
    "  sudo iotape top sda --for 10s --interval 500ms | cat\n",
    "  sudo iotape top sda --json | jq .iops\n\n",
    EXIT_STATUS
]))]
pub struct TopArgs {
    #[command(flatten)]
    pub source: SourceArgs,
    /// How often new figures are shown; from 100ms to 1h.
    #[arg(long, value_name = "DURATION", value_parser = interval, default_value = "1s")]
    pub interval: Duration,
    /// Print a JSON object a line: one each interval, and one at the end (docs/capture.md).
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum LevelArg {
    /// Quickly, as the recorder does.
    Live,
    /// As small as it gets.
    Archive,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum LayerArg {
    /// Bios, as the submitter asked.
    Queue,
    /// Requests, as the driver got them.
    Device,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum BackendArg {
    /// bpf where it is built in and works, else perf: both leave nothing behind.
    Auto,
    /// Tracepoints through perf events.
    Perf,
    /// Tracepoints through an instance of ftrace: needs root, and sees what perf
    /// leaves out on some kernels.
    Ftrace,
    /// Programs in the kernel that pair requests themselves: every latency, and control
    /// groups. Only where it was built in (feature bpf).
    Bpf,
    /// The kernel's block traces, as blktrace reads them: needs root, debugfs and a kernel without
    /// lockdown; one trace runs on a disk at a time.
    Blktrace,
}

impl From<BackendArg> for Backend {
    fn from(backend: BackendArg) -> Backend {
        match backend {
            BackendArg::Auto => Backend::Auto,
            BackendArg::Perf => Backend::Perf,
            BackendArg::Ftrace => Backend::Ftrace,
            BackendArg::Bpf => Backend::Bpf,
            BackendArg::Blktrace => Backend::Blktrace,
        }
    }
}

impl From<LayerArg> for Layer {
    fn from(layer: LayerArg) -> Layer {
        match layer {
            LayerArg::Queue => Layer::Queue,
            LayerArg::Device => Layer::Device,
        }
    }
}

impl From<LevelArg> for Level {
    fn from(level: LevelArg) -> Level {
        match level {
            LevelArg::Live => Level::Live,
            LevelArg::Archive => Level::Archive,
        }
    }
}

/// Whose I/O is told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// By name of the process.
    Process,
    /// By control group.
    Cgroup,
    /// By file.
    File,
    /// By device.
    Device,
}

/// Say what a tape holds, from its header and footer.
#[derive(Debug, Args)]
#[command(after_help = joined(&["Example:\n  iotape info mail.iotape\n\n", EXIT_STATUS]))]
pub struct InfoArgs {
    /// The tape.
    pub tape: PathBuf,
    /// Who did how much: requests, bytes and latencies of each. Processes of one name are one. Of up to
    /// 1,024 the shares are exact; what is met later counts as others.
    #[arg(long, value_enum)]
    pub by: Option<By>,
    /// Show so many of them, those with the most requests.
    #[arg(long, value_name = "N", default_value_t = 20, requires = "by")]
    pub top: usize,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Write a tape's requests in another format.
#[derive(Debug, Args)]
#[command(after_help = joined(&[
    "Examples:\n",
    "  iotape export mail.iotape --to csv -o mail.csv\n",
    "  iotape export mail.iotape --to blktrace -o sda   (sda.blktrace.0, .1 and so on)\n\n",
    EXIT_STATUS
]))]
pub struct ExportArgs {
    /// The tape.
    pub tape: PathBuf,
    /// The format.
    #[arg(long, value_enum)]
    pub to: ExportFormat,
    /// Columns to add to the CSV behind the others: names where the tape has them, else numbers.
    #[arg(long, value_enum, value_name = "COLUMN", value_delimiter = ',')]
    pub with: Vec<MoreColumn>,
    /// Where to write; standard output when left out, or -. For blktrace, what stands before .blktrace.N
    /// in the names of its files.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace an existing file; not for blktrace, whose files are a set.
    #[arg(long, requires = "output")]
    pub force: bool,
}

/// A column that CSV has only when it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MoreColumn {
    /// The control group.
    Cgroup,
    /// The file.
    File,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// One request a line, columns named in the first.
    Csv,
    /// One request a line, as a JSON object with the CSV's names.
    Jsonl,
    /// An I/O log of fio, version 3, for --read_iolog.
    Fio,
    /// An I/O log of fio, version 2.
    FioV2,
    /// The per-CPU files of blktrace, for blkparse, btt, btreplay and iowatcher.
    Blktrace,
    /// The text that blkparse prints.
    Blkparse,
}

/// Make a tape of another tool's files.
///
/// Reads this project's CSV, the per-CPU files of blktrace, event trace logs of Windows (.etl), the
/// text of xperf's dumper, tables of wpaexporter, MSR Cambridge traces, perf.data with block events,
/// and such events as text (trace_pipe, perf script --ns). An .etl without disk I/O
/// makes no tape: what it holds is said, and the exit status is 1.
#[derive(Debug, Args)]
#[command(after_help = joined(&[
    "Examples:\n",
    "  iotape import mail.csv -o mail.iotape\n",
    "  iotape import sda.blktrace.0 sda.blktrace.1 -o sda.iotape\n",
    "  iotape import sda -o sda.iotape          (sda.blktrace.0, .1 and so on)\n",
    "  iotape import server.etl -o server.iotape\n",
    "  perf record -a -e 'block:*' -o sda.perf sleep 60; iotape import sda.perf -o sda.iotape\n",
    "  perf script --ns | iotape import - -o sda.iotape\n\n",
    EXIT_STATUS
]))]
pub struct ImportArgs {
    /// The files; - reads a CSV or another table from standard input.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// The tape to write; must not exist yet.
    #[arg(short, long, value_name = "TAPE")]
    pub output: PathBuf,
    /// Format of the files; found by their content when left out.
    #[arg(long, value_enum, default_value = "auto")]
    pub from: ImportFormat,
    /// Layer at which requests were seen (CSV), or are to be seen (blktrace, perf.data, tracing).
    #[arg(long, value_enum)]
    pub layer: Option<LayerArg>,
    /// Take a table of wpaexporter that has no offsets: all become 0, which the tape says. For
    /// statistics, not for replay.
    #[arg(long)]
    pub without_offsets: bool,
    /// Take the names of files that an .etl tells into the tape. They are private: left out unless this
    /// is given, and removed again by `edit --strip-names`.
    #[arg(long)]
    pub file_names: bool,
    /// Rate of a trace clock that counts ticks (trace_pipe with x86-tsc), in kHz.
    #[arg(long, value_name = "KHZ", value_parser = clap::value_parser!(u64).range(1..))]
    pub tick_khz: Option<u64>,
    /// How small to make the tape.
    #[arg(long, value_enum, default_value = "live")]
    pub level: LevelArg,
    /// Replace an existing tape.
    #[arg(long)]
    pub force: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ImportFormat {
    /// Found by content.
    Auto,
    /// This project's CSV.
    Csv,
    /// The per-CPU files of blktrace.
    Blktrace,
    /// An event trace log of Windows (.etl).
    Etl,
    /// What xperf -a dumper prints.
    Xperf,
    /// A table of wpaexporter or Windows Performance Analyzer.
    Wpa,
    /// An MSR Cambridge trace.
    Msr,
    /// What perf record writes, with block events.
    PerfData,
    /// Block events as text: Linux' trace_pipe, or what perf script prints.
    Tracing,
}

/// Read a whole tape and verify every record.
#[derive(Debug, Args)]
#[command(after_help = joined(&[
    "Example:\n  iotape check mail.iotape\n",
    "  iotape check torn.iotape --repair whole.iotape\n\n",
    EXIT_STATUS
]))]
pub struct CheckArgs {
    /// The tape.
    pub tape: PathBuf,
    /// Write a new tape with everything that is whole in this one.
    #[arg(long, value_name = "TAPE")]
    pub repair: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Make a tape of other tapes: cut, filter, merge, scale, anonymize, recompress.
///
/// Several tapes are merged by wall clock. Filters given together all apply. Without any option
/// the tape is only made smaller.
#[derive(Debug, Args)]
#[command(after_help = joined(&[
    "Examples:\n",
    "  iotape edit day.iotape -o noon.iotape --from 11.5h --to 12.5h\n",
    "  iotape edit a.iotape b.iotape -o both.iotape\n",
    "  iotape edit mail.iotape -o reads.iotape --op read --process imap\n",
    "  iotape edit mail.iotape -o vendor.iotape --anonymize\n\n",
    EXIT_STATUS
]))]
pub struct EditArgs {
    /// The tapes.
    #[arg(required = true, value_name = "TAPE")]
    pub tapes: Vec<PathBuf>,
    /// The tape to write; must not exist yet.
    #[arg(short, long, value_name = "TAPE")]
    pub output: PathBuf,
    /// Keep requests from this time on, counted from the tape's start.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub from: Option<Duration>,
    /// Keep requests before this time.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub to: Option<Duration>,
    /// Keep these operations, such as read,write.
    #[arg(long, value_name = "OP", value_delimiter = ',')]
    pub op: Vec<Op>,
    /// Keep requests of these devices.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub device: Vec<String>,
    /// Keep requests of these processes, by name or by pid.
    #[arg(long, value_name = "NAME|PID", value_delimiter = ',')]
    pub process: Vec<String>,
    /// Keep requests that touch bytes from here on, such as 10GiB.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub from_offset: Option<u64>,
    /// Keep requests that touch bytes before this.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub to_offset: Option<u64>,
    /// Divide times by this: at 2 the tape lasts half as long.
    #[arg(long, value_name = "X", value_parser = speed)]
    pub speed: Option<f64>,
    /// Remove the names of the host, processes, control groups and files, and move offsets.
    #[arg(long)]
    pub anonymize: bool,
    /// Remove the names of control groups and files, and the numbers that follow from them.
    #[arg(long)]
    pub strip_names: bool,
    /// How small to make the tape.
    #[arg(long, value_enum, default_value = "archive")]
    pub level: LevelArg,
    /// Replace an existing tape.
    #[arg(long)]
    pub force: bool,
}

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

/// Set results side by side: light with heavy, device with device.
#[derive(Debug, Args)]
#[command(after_help = joined(&[
    "Example:\n  iotape compare old.json new.json\n\n", EXIT_STATUS
]))]
pub struct CompareArgs {
    /// Results written by `iotape replay -o`.
    #[arg(required = true, value_name = "RESULT.json")]
    pub results: Vec<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Say what this machine can record and replay, and how to enable the rest.
#[derive(Debug, Args)]
#[command(after_help = EXIT_STATUS)]
pub struct DoctorArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Reads `90s`, `1.5h`, `250ms`.
fn duration(text: &str) -> Result<Duration, String> {
    let expected = "expected a number and a unit (ms, s, m, h or d), such as 90s";
    let (number, unit) = split_number(text).ok_or(expected)?;
    let seconds = match unit {
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(expected.to_owned()),
    };
    match Duration::try_from_secs_f64(number * seconds) {
        Ok(duration) if duration.is_zero() => Err("must be longer than nothing".to_owned()),
        Ok(duration) if duration > LONGEST => Err("must be at most 1000d".to_owned()),
        Ok(duration) => Ok(duration),
        Err(_) => Err(expected.to_owned()),
    }
}

/// Bound on durations, far from every overflow.
const LONGEST: Duration = Duration::from_secs(1000 * 86_400);

/// Reads how often a view changes.
fn interval(text: &str) -> Result<Duration, String> {
    const FROM: Duration = Duration::from_millis(100);
    const TO: Duration = Duration::from_secs(3600);
    match duration(text)? {
        interval if (FROM..=TO).contains(&interval) => Ok(interval),
        _ => Err("must be from 100ms to 1h".to_owned()),
    }
}

static RING_HELP: LazyLock<String> = LazyLock::new(|| {
    format!(
        "Memory per processor for events that wait to be read, such as 8MiB; a power of two; not on \
         Windows [default: {}MiB; for blktrace, which takes it for each disk, {}MiB]",
        Backend::Auto.default_ring_bytes() >> 20,
        Backend::Blktrace.default_ring_bytes() >> 20,
    )
});

/// Reads a size or a duration: their units differ.
fn rotate(text: &str) -> Result<Rotate, String> {
    let by_size = size(text).map(Rotate::Bytes);
    by_size
        .or_else(|_| duration(text).map(Rotate::Every))
        .map_err(|_| "expected a size such as 100MiB, or a duration such as 1h".to_owned())
}

/// Reads a size that may be 0.
fn size_or_nothing(text: &str) -> Result<u64, String> {
    match text {
        "0" => Ok(0),
        text => size(text),
    }
}

/// Reads a positive factor.
fn speed(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(factor) if (1e-6..=1e6).contains(&factor) => Ok(factor),
        _ => Err("expected a number from 0.000001 to 1000000".to_owned()),
    }
}

/// Reads a path, or a simulated device behind `sim:`.
fn target(text: &OsStr) -> Result<TargetSpec, SimSpecError> {
    match text.to_str() {
        Some(text) if text.starts_with("sim:") => text.parse().map(TargetSpec::Sim),
        _ => Ok(TargetSpec::Path(PathBuf::from(text))),
    }
}

/// Reads `4MiB`, `64KiB`, `4096`.
fn size(text: &str) -> Result<u64, String> {
    let expected = "expected bytes, or a number with KiB, MiB or GiB, such as 4MiB";
    let (number, unit) = split_number(text).ok_or(expected)?;
    let bytes = match unit {
        "" | "B" => 1.0,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(expected.to_owned()),
    } * number;
    if bytes.fract() != 0.0 || !(1.0..=1e15).contains(&bytes) {
        return Err(expected.to_owned());
    }
    Ok(bytes as u64)
}

/// Reads `-1MiB`, `4096`.
fn shift(text: &str) -> Result<i64, String> {
    let (sign, number) = match text.strip_prefix('-') {
        Some(number) => (-1, number),
        None => (1, text),
    };
    // At most 10^15.
    Ok(sign * size(number)?.cast_signed())
}

/// Reads `sda=/dev/sdb`.
fn device_target(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((device, target)) if !device.is_empty() && !target.is_empty() => {
            Ok((device.to_owned(), PathBuf::from(target)))
        }
        _ => Err("expected a device of the tape, =, and a target, such as sda=/dev/sdb".to_owned()),
    }
}

fn split_number(text: &str) -> Option<(f64, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit.trim_start()))
}

/// Joins help texts into one.
fn joined(parts: &[&str]) -> String {
    parts.concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_fits_80_columns() {
        let mut cli = Cli::command();
        cli.build();
        for command in cli.get_subcommands_mut() {
            let help = command.render_long_help().to_string();
            let longest = help.lines().map(|line| line.chars().count()).max();
            assert!(longest <= Some(80), "{help}");
        }
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1.5h"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        for wrong in [
            "",
            "90",
            "s",
            "-1s",
            "1e9s",
            "0s",
            "99999999d",
            "nan",
            "1.2.3s",
        ] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_interval_is_neither_too_short_nor_too_long() {
        assert_eq!(interval("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(interval("1h"), Ok(Duration::from_secs(3600)));
        for wrong in ["99ms", "2h", "1", ""] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_device_and_its_target_are_split_at_the_first_sign() {
        let split = device_target("0=/dev/disk/by-id/a=b").unwrap();
        assert_eq!(
            split,
            ("0".to_owned(), PathBuf::from("/dev/disk/by-id/a=b"))
        );
        for wrong in ["sda", "=x", "sda=", ""] {
            assert!(device_target(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_segment_ends_by_size_or_by_time() {
        assert_eq!(rotate("1MiB"), Ok(Rotate::Bytes(1 << 20)));
        assert_eq!(rotate("1048576"), Ok(Rotate::Bytes(1 << 20)));
        assert_eq!(rotate("10m"), Ok(Rotate::Every(Duration::from_secs(600))));
        for wrong in ["", "1M", "0", "0s", "m"] {
            assert!(rotate(wrong).is_err(), "{wrong}");
        }
        assert_eq!(size_or_nothing("0"), Ok(0));
        assert!(
            RING_HELP.contains("[default: 4MiB; for blktrace, which takes it for each disk, 2MiB]")
        );
    }

    #[test]
    fn sizes_are_binary() {
        assert_eq!(size("4MiB"), Ok(4 << 20));
        assert_eq!(size("65536"), Ok(65_536));
        assert_eq!(size("0.5KiB"), Ok(512));
        assert_eq!((shift("-1MiB"), shift("4096")), (Ok(-1 << 20), Ok(4096)));
        assert!(shift("--1").is_err() && shift("-").is_err());
        for wrong in ["", "4MB", "0", "-4", "1.5", "9999999GiB"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
