//! The command line: what can be asked, and the help that explains it.

mod replay;
mod values;

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use iotape_capture::{Backend, Rotate};
use iotape_formats::Op;
use iotape_formats::tape::{Layer, Level};

pub use replay::{EngineArg, MapArg, ProfileArg, ReplayArgs, TimingArg, UnsupportedArg};
use values::{duration, interval, rotate, size, size_or_nothing, speed};

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

static RING_HELP: LazyLock<String> = LazyLock::new(|| {
    format!(
        "Memory per processor for events that wait to be read, such as 8MiB; a power of two; not on \
         Windows [default: {}MiB; for bpf {}MiB with up to 4 processors, {}MiB with up to 8; for blktrace, \
         which takes it for each disk, {}MiB]",
        Backend::Perf.default_ring_bytes(1) >> 20,
        Backend::Bpf.default_ring_bytes(4) >> 20,
        Backend::Bpf.default_ring_bytes(8) >> 20,
        Backend::Blktrace.default_ring_bytes(1) >> 20,
    )
});

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
    fn the_help_tells_the_rings_that_are_taken() {
        assert!(RING_HELP.contains(
            "[default: 4MiB; for bpf 16MiB with up to 4 processors, 8MiB with up to 8; for blktrace, \
             which takes it for each disk, 2MiB]"
        ));
    }
}
