//! From what happened in a run to what the result says of it.

mod verdict;

use std::collections::BTreeMap;
use std::io;

use iotape_formats::tape::Summary;

use crate::content::Checked;
use crate::engine::Action;
use crate::measure::{Latencies, OpRecord, SIZES, longest_of};
use crate::options::{RunOptions, Timing};
use crate::plan::Tally;
use crate::result::{
    self, ErrorCount, LoopKind, OpFigures, Outstanding, Payload, Schedule, SizeFigures, Skipped,
    TargetKind, ToolUse, Verified, WriteMode,
};
use crate::run::{Failure, Outcome};
use crate::sim_spec::SimSpec;
use crate::sys::CpuTime;
use crate::target::Target;

/// What a run was made of, besides what happened in it.
#[derive(Debug)]
pub struct Circumstances<'a> {
    pub options: &'a RunOptions,
    pub engine: &'static str,
    /// Of the process.
    pub cpu: CpuTime,
    /// Threads that submitted.
    pub workers: u32,
    /// Of the busiest thread that submitted.
    pub submitter_cpu: CpuTime,
    /// None: the null target, or a simulated one.
    pub targets: &'a [Target],
    /// The device that was simulated.
    pub simulated: Option<&'a SimSpec>,
    pub write_mode: WriteMode,
    pub payload: Payload,
    /// What was found when it was read back.
    pub contents: Option<Checked>,
    pub mapping: result::Mapping,
    /// Of the tape.
    pub summary: &'a Summary,
    /// Devices of the tape with requests.
    pub devices: usize,
    /// Whether the recording was ended cleanly.
    pub finished: bool,
    /// Of the tape, in words.
    pub damage: Option<String>,
    /// Why the tape could not be read to its end.
    pub unread: Option<String>,
    /// From the choice of the engine.
    pub notes: Vec<String>,
}

/// Sets up the result of a run.
pub fn run(outcome: Outcome, tally: &Tally, circumstances: Circumstances<'_>) -> result::Run {
    let seconds = seconds(outcome.elapsed_ns);
    let ops: [Spans; Action::ALL.len()] =
        std::array::from_fn(|index| Spans::of(&outcome.ops[index]));
    let all = Spans::merged(&ops);
    let moved = |action: Action| &outcome.ops[action.index()];
    let bytes = moved(Action::Read)
        .bytes
        .saturating_add(moved(Action::Write).bytes);
    let succeeded = [Action::Read, Action::Write]
        .map(|action| ops[action.index()].service.count())
        .iter()
        .sum();
    let options = circumstances.options;
    let mut run = result::Run {
        label: options.label.clone(),
        profile: options.profile.name.clone(),
        depth_cap: options.profile.depth,
        timing: options.timing,
        loop_kind: match options.timing {
            Timing::Asap => LoopKind::Closed,
            Timing::Recorded => LoopKind::Open,
            Timing::Dependent => LoopKind::Dependent,
        },
        engine: circumstances.engine.to_owned(),
        workers: circumstances.workers,
        order: options.order,
        targets: targets(tally, &circumstances),
        write_mode: circumstances.write_mode,
        payload: circumstances.payload.clone(),
        overlapping: outcome.seen.as_ref().map(|seen| seen.overlapping),
        verified: circumstances.contents.as_ref().map(verified),
        mapping: result::Mapping {
            remapped_share: share(tally.remapped, tally.with_range),
            widened_requests: tally.widened,
            widened_bytes: tally.widened_bytes,
            ..circumstances.mapping.clone()
        },
        passes: tally.passes,
        elapsed_ns: outcome.elapsed_ns,
        warmup_ns: outcome.warmup_ns,
        requests: outcome.ops.iter().map(|record| record.requests).sum(),
        bytes,
        throughput_mb_s: per_second(bytes, seconds) / 1e6,
        iops: per_second(succeeded, seconds),
        service_ns: all.service.figures(),
        response_ns: all.response().figures(),
        lag_ns: all.lag.figures(),
        schedule: options
            .timing
            .keeps_time()
            .then(|| schedule(&outcome, tally, options)),
        by_op: by_op(&outcome.ops, &ops, tally, seconds),
        skipped: skipped(tally),
        outstanding: Outstanding {
            cap: options.profile.depth,
            mean: outcome.outstanding.mean(),
            max: outcome.outstanding_max,
            at_cap_share: outcome.outstanding.at_cap_share(),
        },
        recorded_ns: merged(tally.recorded.iter().flatten()).figures(),
        intervals: Vec::new(),
        histograms: histograms(&ops, &all),
        errors: errors(&outcome.errors),
        tool: tool_use(&outcome, &circumstances),
        valid: false,
        reasons: Vec::new(),
        notes: Vec::new(),
    };
    run.reasons = verdict::reasons(&run, &outcome, tally, &circumstances);
    run.notes = verdict::notes(&run, &outcome, circumstances);
    run.valid = run.reasons.is_empty();
    run.intervals = outcome.intervals;
    run
}

/// The targets' facts and what went to each; the null target has no facts.
fn targets(tally: &Tally, circumstances: &Circumstances<'_>) -> Vec<result::Target> {
    let targets = circumstances.targets;
    let count = targets.len().max(tally.targets.len()).max(1);
    let target = |index: usize| {
        let facts = targets.get(index).map(|target| target.facts.clone());
        let simulated = || circumstances.simulated.map(simulated_facts);
        let load = tally.targets.get(index).copied().unwrap_or_default();
        result::Target {
            operations: load.operations,
            bytes: load.bytes,
            offset_sum: load.offset_sum,
            ..facts.or_else(simulated).unwrap_or_default()
        }
    };
    (0..count).map(target).collect()
}

fn simulated_facts(spec: &SimSpec) -> result::Target {
    result::Target {
        path: Some(spec.to_string()),
        kind: TargetKind::Sim,
        size_bytes: Some(spec.size_bytes).filter(|&size| size != u64::MAX),
        ..result::Target::default()
    }
}

fn schedule(outcome: &Outcome, tally: &Tally, options: &RunOptions) -> Schedule {
    let delays = &outcome.delays;
    let whole = |ns: u128| u64::try_from(ns).unwrap_or(u64::MAX);
    Schedule {
        speed: options.speed.factor(),
        delayed_by_cap_share: share(delays.by_cap, delays.requests),
        delayed_by_cap_ns: whole(delays.by_cap_ns),
        total_lag_ns: whole(delays.total_ns),
        late_share: share(delays.late, delays.requests),
        end_drift_ns: delays.last_ns,
        dependent_share: share(tally.dependent, tally.submitted),
        out_of_order: tally.disorder.displaced,
        out_of_place: tally.disorder.late,
    }
}

/// The latencies of an operation of all sizes, or of all operations.
#[derive(Default)]
struct Spans {
    service: Latencies,
    open_response: Latencies,
    lag: Latencies,
}

impl Spans {
    fn of(record: &OpRecord) -> Self {
        Spans {
            service: merged(record.service.iter()),
            open_response: record.response.clone(),
            lag: record.lag.clone(),
        }
    }

    fn merged(parts: &[Spans]) -> Self {
        Spans {
            service: merged(parts.iter().map(|part| &part.service)),
            open_response: merged(parts.iter().map(|part| &part.open_response)),
            lag: merged(parts.iter().map(|part| &part.lag)),
        }
    }

    /// In a closed loop the service time.
    fn response(&self) -> &Latencies {
        if self.open_response.count() > 0 {
            &self.open_response
        } else {
            &self.service
        }
    }
}

fn verified(checked: &Checked) -> Verified {
    Verified {
        bytes: checked.bytes,
        wrong: checked.wrong,
        first_wrong: checked.first_wrong.clone(),
        unread_bytes: checked.unread_bytes,
        untracked_bytes: checked.untracked_bytes,
    }
}

fn merged<'a>(parts: impl Iterator<Item = &'a Latencies>) -> Latencies {
    let mut all = Latencies::default();
    parts.for_each(|part| all.add(part));
    all
}

fn by_op(
    ops: &[OpRecord; Action::ALL.len()],
    spans: &[Spans; Action::ALL.len()],
    tally: &Tally,
    seconds: f64,
) -> BTreeMap<String, OpFigures> {
    let occurred = Action::ALL
        .into_iter()
        .filter(|action| ops[action.index()].requests > 0);
    occurred
        .map(|action| {
            let record = &ops[action.index()];
            let spans = &spans[action.index()];
            let recorded = &tally.recorded[action.index()];
            let figures = OpFigures {
                requests: record.requests,
                bytes: record.bytes,
                throughput_mb_s: per_second(record.bytes, seconds) / 1e6,
                iops: per_second(spans.service.count(), seconds),
                service_ns: spans.service.figures(),
                response_ns: spans.response().figures(),
                lag_ns: spans.lag.figures(),
                recorded_ns: merged(recorded.iter()).figures(),
                sizes: sizes(record, recorded),
            };
            (action.op().name().to_owned(), figures)
        })
        .collect()
}

/// Replayed against recorded, by size; of operations that have one.
fn sizes(record: &OpRecord, recorded: &[Latencies; SIZES]) -> Vec<SizeFigures> {
    if record.bytes == 0 {
        return Vec::new();
    }
    let classes = record.service.iter().zip(recorded).enumerate();
    classes
        .filter(|(_, (service, recorded))| service.count() > 0 || recorded.count() > 0)
        .map(|(class, (service, recorded))| SizeFigures {
            up_to_bytes: longest_of(class),
            requests: service.count(),
            service_ns: service.figures(),
            recorded_ns: recorded.figures(),
        })
        .collect()
}

/// Service times under the operation's name; response times and lags, where they are something
/// else, behind it.
fn histograms(ops: &[Spans; Action::ALL.len()], all: &Spans) -> BTreeMap<String, String> {
    let named = Action::ALL
        .into_iter()
        .map(|action| (action.op().name(), &ops[action.index()]));
    named
        .chain([("all", all)])
        .flat_map(|(name, spans)| {
            [
                (name.to_owned(), &spans.service),
                (format!("{name}/response"), &spans.open_response),
                (format!("{name}/lag"), &spans.lag),
            ]
        })
        .filter(|(_, latencies)| latencies.count() > 0)
        .filter_map(|(name, latencies)| Some((name, latencies.to_base64()?)))
        .collect()
}

fn skipped(tally: &Tally) -> Vec<Skipped> {
    let entries = tally.skipped.iter();
    entries
        .map(|(&(op, reason), &(requests, bytes))| Skipped {
            op: op.name().to_owned(),
            reason: reason.text().to_owned(),
            requests,
            bytes,
        })
        .collect()
}

fn errors(errors: &BTreeMap<(usize, Failure), u64>) -> Vec<ErrorCount> {
    let entries = errors.iter();
    entries
        .map(|(&(action, failure), &count)| {
            let (errno, message) = match failure {
                Failure::Errno(errno) => {
                    (Some(errno), io::Error::from_raw_os_error(errno).to_string())
                }
                Failure::Short => (None, "transferred less than asked".to_owned()),
            };
            let op = Action::ALL
                .get(action)
                .map_or("other", |action| action.op().name());
            ErrorCount {
                op: op.to_owned(),
                errno,
                message,
                count,
            }
        })
        .collect()
}

#[expect(clippy::cast_precision_loss, reason = "means and shares")]
fn tool_use(outcome: &Outcome, circumstances: &Circumstances<'_>) -> ToolUse {
    let per_request = match outcome.completed {
        0 => 0.0,
        completed => circumstances.cpu.total_ns() as f64 / completed as f64,
    };
    let submitter_ns = circumstances.submitter_cpu.total_ns();
    let busy_ns = submitter_ns.saturating_sub(outcome.spun_ns);
    ToolUse {
        cpu_user_ns: circumstances.cpu.user_ns,
        cpu_system_ns: circumstances.cpu.system_ns,
        cpu_per_request_ns: per_request,
        submitter_busy_share: share(busy_ns, outcome.run_ns).min(1.0),
        submitter_spinning_share: share(outcome.spun_ns, outcome.run_ns),
        starved_share: share(outcome.starved_ns, outcome.run_ns),
        littles_law_error: outcome.littles_law_error,
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share")]
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate")]
fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        count as f64 / seconds
    } else {
        0.0
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate")]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
