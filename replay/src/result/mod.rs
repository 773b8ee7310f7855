//! The result document: what a replay measured, as one JSON document of schema `iotape.result/1`.
//!
//! Every field is always present; a value that is not known is `null`. Readers ignore fields that
//! they do not know, so that a later version may add some without a new schema. Times are in
//! nanoseconds, sizes in bytes, MB are 10⁶ bytes, shares lie between 0 and 1.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::options::{MappingMode, Timing};

/// Name and version of the document.
pub const SCHEMA: &str = "iotape.result/1";

/// One experiment: a tape, a host, and the runs made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// What all runs have in common.
    pub experiment: Experiment,
    /// The runs, in the order in which they were made.
    pub runs: Vec<Run>,
}

/// Why a text is not a result document.
#[derive(Debug, Error)]
pub enum DocumentError {
    /// Not JSON, or JSON whose fields have other types.
    #[error("not a result document ({SCHEMA}): {0}")]
    Json(#[from] serde_json::Error),
    /// JSON of another schema.
    #[error("expected a document of schema {SCHEMA:?}, found {found:?}")]
    Schema {
        /// What the document says it is; empty when it says nothing.
        found: String,
    },
}

impl Document {
    /// A document around the runs of an experiment.
    pub fn new(experiment: Experiment, runs: Vec<Run>) -> Self {
        Document {
            schema: SCHEMA.to_owned(),
            experiment,
            runs,
        }
    }

    /// Reads a document back.
    ///
    /// # Errors
    /// [`DocumentError::Schema`] when it is of another schema, [`DocumentError::Json`] when it is
    /// no JSON or does not hold to the schema.
    pub fn from_json(text: &str) -> Result<Self, DocumentError> {
        #[derive(Deserialize)]
        struct Head {
            #[serde(default)]
            schema: String,
        }
        let head: Head = serde_json::from_str(text)?;
        if head.schema != SCHEMA {
            return Err(DocumentError::Schema { found: head.schema });
        }
        Ok(serde_json::from_str(text)?)
    }

    /// Writes the document, indented, with a newline at the end.
    ///
    /// # Errors
    /// None for documents made by this crate; the serialiser's own otherwise.
    pub fn to_json(&self) -> Result<String, DocumentError> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}

/// What all runs of a document have in common.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Experiment {
    /// The tape that was replayed.
    pub tape: Tape,
    /// Where.
    pub host: Host,
    /// The command as typed, program first.
    pub command: Vec<String>,
    /// Seed of everything random in the experiment.
    pub seed: u64,
    /// When it began, as `YYYY-MM-DDThh:mm:ssZ`.
    pub started: Option<String>,
}

/// Identity of a tape.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tape {
    /// Hash of the requests, in hexadecimal.
    pub id: String,
    /// As the user named it.
    pub path: Option<String>,
    /// Requests in it.
    pub requests: u64,
    /// Bytes that its requests read and write.
    pub bytes: u64,
}

/// The machine that replayed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// Its name.
    pub hostname: Option<String>,
    /// Operating system and kernel release, such as `Linux 6.18.0`.
    pub kernel: Option<String>,
    /// Processors that the process may use.
    pub cpus: Option<u32>,
}

/// One run of a tape under one depth cap.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Run {
    /// Name given by the caller.
    pub label: String,
    /// Name of the depth cap, when it has one.
    pub profile: Option<String>,
    /// Most operations that may be outstanding.
    pub depth_cap: u32,
    /// When requests were submitted.
    pub timing: Timing,
    /// Whether a request waits for an earlier one to free its slot (`closed`) or for the clock.
    #[serde(rename = "loop")]
    pub loop_kind: LoopKind,
    /// `uring`, `iocp`, `threads`, `null` or `sim`.
    pub engine: String,
    /// Threads that submitted.
    pub workers: u32,
    /// Position among the runs of the experiment, from 0.
    pub order: u32,
    /// What was replayed against.
    pub targets: Vec<Target>,
    /// What was done to the target's data.
    pub write_mode: WriteMode,
    /// What writes carried.
    pub payload: Payload,
    /// Requests that overlapped one in flight when they were submitted, of which one changed data,
    /// warm-up included; `null` where the tape changes none. Where overlaps were kept in order,
    /// these waited.
    pub overlapping: Option<u64>,
    /// What reading back what was written has shown; `null` where it was not asked for.
    pub verified: Option<Verified>,
    /// How offsets were laid onto the targets.
    pub mapping: Mapping,
    /// How often the tape was begun.
    pub passes: u64,
    /// From the first submission that counts to the last completion that counts.
    pub elapsed_ns: u64,
    /// Time left out of the figures at the start.
    pub warmup_ns: u64,
    /// Requests that count: submitted after the warm-up and completed, with or without error.
    pub requests: u64,
    /// Bytes read and written by those that succeeded.
    pub bytes: u64,
    /// [`Run::bytes`] / 10⁶ over [`Run::elapsed_ns`].
    pub throughput_mb_s: f64,
    /// Reads and writes that succeeded, per second.
    pub iops: f64,
    /// Completed − submitted, all operations.
    pub service_ns: Option<Latency>,
    /// Completed − scheduled. In a closed loop the same as the service time.
    pub response_ns: Option<Latency>,
    /// Submitted − scheduled. `null` in a closed loop, where a request is scheduled when it is
    /// submitted.
    pub lag_ns: Option<Latency>,
    /// How the tape's times were kept; `null` in a closed loop.
    pub schedule: Option<Schedule>,
    /// Figures of each operation that occurred, by its name.
    pub by_op: BTreeMap<String, OpFigures>,
    /// Requests of the tape that were left out, by operation and reason.
    pub skipped: Vec<Skipped>,
    /// Operations outstanding.
    pub outstanding: Outstanding,
    /// The tape's own latencies of the requests that count; `null` when the tape has none.
    pub recorded_ns: Option<Latency>,
    /// The run in slices of time, in which a request belongs to the slice of its completion.
    pub intervals: Vec<Interval>,
    /// Service times as HdrHistogram V2, compressed, in base64 (as in HdrHistogram's own interval
    /// log): `all` and each operation, in nanoseconds. In an open loop also response times and
    /// lags, as `all/response`, `read/lag` and so on.
    pub histograms: BTreeMap<String, String>,
    /// Failed requests, by operation and error.
    pub errors: Vec<ErrorCount>,
    /// What the tool itself used.
    pub tool: ToolUse,
    /// Whether the figures say something about the target.
    pub valid: bool,
    /// Why not.
    pub reasons: Vec<String>,
    /// What a reader should know besides.
    pub notes: Vec<String>,
}

/// What a request waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoopKind {
    /// A free token: the target's speed sets the rate.
    #[default]
    Closed,
    /// The clock: the tape sets the rate.
    Open,
    /// The completion of an earlier request of the same submitter, and then the clock.
    Dependent,
}

/// How the tape's times were kept. Shares are of the requests that count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Schedule {
    /// How many times as fast as recorded.
    pub speed: f64,
    /// Share that had to wait for a token when they were due: what makes an open loop a closed one.
    /// Once a token is lacking, all that is due until the loop has caught up waits for tokens.
    pub delayed_by_cap_share: f64,
    /// Sum of those waits.
    pub delayed_by_cap_ns: u64,
    /// Sum of all lags.
    pub total_lag_ns: u64,
    /// Share that was submitted more than 1 ms late besides: the tool's own fault.
    pub late_share: f64,
    /// Lag of the request submitted last.
    pub end_drift_ns: u64,
    /// Share that waited for the completion of another request.
    pub dependent_share: f64,
    /// Requests of the tape that stood behind a later one and were put in order, all passes.
    pub out_of_order: u64,
    /// Those too far from their place, which were due as soon as they were met.
    pub out_of_place: u64,
}

/// A target and what the system says about it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Target {
    /// As the user named it, or the description of a simulated device; `null` for the null target.
    pub path: Option<String>,
    /// What it is.
    pub kind: TargetKind,
    /// Size; `null` for the null target.
    pub size_bytes: Option<u64>,
    /// Vendor's model name.
    pub model: Option<String>,
    /// Firmware revision.
    pub firmware: Option<String>,
    /// Smallest addressable unit, in bytes.
    pub logical_sector: Option<u32>,
    /// Smallest unit that the medium writes without reading first, in bytes.
    pub physical_sector: Option<u32>,
    /// I/O scheduler of the kernel.
    pub scheduler: Option<String>,
    /// The kernel's view of the device's cache: `write back` or `write through`.
    pub write_cache: Option<String>,
    /// Whether requests bypass the page cache.
    pub direct: bool,
    /// Filesystem that a file lies on.
    pub filesystem: Option<String>,
    /// Operations submitted to it, warm-up included: requests, or parts of requests that touch
    /// several targets.
    pub operations: u64,
    /// Bytes that these read and write.
    pub bytes: u64,
    /// Their first bytes on the target added up, modulo 2^64: with the same sum from elsewhere a
    /// check that the right places were asked for.
    pub offset_sum: u64,
}

/// Kind of a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetKind {
    /// A block device.
    Block,
    /// A regular file of the user's.
    File,
    /// A file made for the run.
    Scratch,
    /// Nothing: the tool's own ceiling.
    #[default]
    Null,
    /// A simulated device.
    Sim,
}

/// What was done to the target's data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteMode {
    /// The tape changes no data.
    #[default]
    None,
    /// Writes, discards and write-zeroes were issued.
    Overwrite,
    /// Writes, discards and write-zeroes were left out.
    SkipWrites,
}

/// What writes carried.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Payload {
    /// `random`, or `tagged` where it was checked.
    pub kind: String,
    /// Seed of the random bytes.
    pub seed: u64,
    /// Percent of zeros in it.
    pub compressible_percent: u8,
    /// Percent of its blocks that are the same.
    pub duplicate_percent: u8,
}

/// What reading back what was written has shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Verified {
    /// Bytes that were looked at, by reads of the tape and once more at the end.
    pub bytes: u64,
    /// Blocks that were not what was written there last.
    pub wrong: u64,
    /// The first of them: target, byte, what stands there and what was written.
    pub first_wrong: Option<String>,
    /// Bytes that could not be read back.
    pub unread_bytes: u64,
    /// Bytes written that were not looked at, for want of memory to remember them.
    pub untracked_bytes: u64,
}

/// How offsets were laid onto the targets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Mapping {
    /// The rule.
    pub mode: MappingMode,
    /// Share of the requests with a range whose offset the rule changed.
    pub remapped_share: f64,
    /// What was added to each offset; `null` where nothing was.
    pub offset_bytes: Option<i64>,
    /// Length of the regions that were moved; `null` where none were.
    pub region_bytes: Option<u64>,
    /// Requests that were widened to whole sectors of their target.
    pub widened_requests: u64,
    /// Bytes that this added; they count wherever bytes are counted.
    pub widened_bytes: u64,
}

/// Statistics of a set of latencies. Mean, deviation, minimum and maximum are exact; percentiles
/// are those of a histogram with three significant digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Latency {
    /// How many.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation of the population.
    pub stddev: f64,
    /// Shortest.
    pub min: u64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p99_9: u64,
    /// 99.99th percentile.
    pub p99_99: u64,
    /// Longest.
    pub max: u64,
}

/// Figures of one operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OpFigures {
    /// Requests that count, failed ones included.
    pub requests: u64,
    /// Bytes of those that succeeded: read, written, discarded or zeroed.
    pub bytes: u64,
    /// [`OpFigures::bytes`] / 10⁶ per second of the run.
    pub throughput_mb_s: f64,
    /// Those that succeeded, per second of the run.
    pub iops: f64,
    /// Completed − submitted.
    pub service_ns: Option<Latency>,
    /// Completed − scheduled. In a closed loop the same as the service time.
    pub response_ns: Option<Latency>,
    /// Submitted − scheduled; `null` in a closed loop.
    pub lag_ns: Option<Latency>,
    /// The tape's own latencies of the same requests.
    pub recorded_ns: Option<Latency>,
    /// Replayed and recorded latencies by length, in classes of powers of two; empty for
    /// operations without a length.
    pub sizes: Vec<SizeFigures>,
}

/// Figures of the requests of an operation that are about as long.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SizeFigures {
    /// The longest in this class; longer than half of it, but in the first class, which holds all
    /// up to it. `null`: longer than the class before.
    pub up_to_bytes: Option<u64>,
    /// Requests that succeeded.
    pub requests: u64,
    /// Completed − submitted.
    pub service_ns: Option<Latency>,
    /// The tape's own latencies of the same requests.
    pub recorded_ns: Option<Latency>,
}

/// Operations outstanding, weighted by time. A token is out from just before the submission until
/// the completion is reaped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outstanding {
    /// Most that may be.
    pub cap: u32,
    /// Mean over the measured time.
    pub mean: f64,
    /// Most that were.
    pub max: u32,
    /// Share of the time at the cap.
    pub at_cap_share: f64,
}

/// A slice of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Interval {
    /// End of the slice, since the start of the measured time.
    pub elapsed_ns: u64,
    /// Requests completed in it.
    pub requests: u64,
    /// Bytes read and written in it.
    pub bytes: u64,
    /// Mean of operations outstanding in it.
    pub outstanding_mean: f64,
    /// Service times of the requests completed in it; `null` when there were none.
    pub service_ns: Option<Latency>,
    /// Their response times.
    pub response_ns: Option<Latency>,
    /// Their lags; `null` in a closed loop.
    pub lag_ns: Option<Latency>,
}

/// Requests that were left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Skipped {
    /// Name of the operation.
    pub op: String,
    /// Why.
    pub reason: String,
    /// How many, warm-up included.
    pub requests: u64,
    /// Their lengths.
    pub bytes: u64,
}

/// Requests that failed with the same error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ErrorCount {
    /// Name of the operation.
    pub op: String,
    /// Number of the error, positive; `null` for a transfer shorter than asked.
    pub errno: Option<i32>,
    /// In words.
    pub message: String,
    /// How many, warm-up included.
    pub count: u64,
}

/// What the tool used during a run, and how it bore up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolUse {
    /// Processor time of the process in user mode.
    pub cpu_user_ns: u64,
    /// Processor time of the process in the kernel.
    pub cpu_system_ns: u64,
    /// Processor time per request, warm-up included.
    pub cpu_per_request_ns: f64,
    /// Processor time of the submitting thread over the run's time. Near 1 the run is limited by
    /// the processor, not by the target.
    pub submitter_busy_share: f64,
    /// Share of the time in which the submitting thread looked at the clock until a request was
    /// due; not in [`ToolUse::submitter_busy_share`].
    pub submitter_spinning_share: f64,
    /// Share of the time with a free token and no decoded request to use it.
    pub starved_share: f64,
    /// |outstanding mean × time − Σ service| / Σ service: Little's law, a check of the
    /// bookkeeping.
    pub littles_law_error: f64,
}

#[cfg(test)]
mod tests;
