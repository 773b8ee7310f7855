//! What `record` and `top` share: what they are asked to watch, and what they say at the end.

use iotape_capture::{Options, Report, Session, Warning};
use iotape_formats::tape::Layer;
use serde::Serialize;

use crate::cli::{BackendArg, SourceArgs};
use crate::exit::{Failure, warn};
use crate::render::units;

/// What is recorded and for how long, with every other option at its default.
pub fn source_options(args: &SourceArgs) -> Result<Options, Failure> {
    refuse_on_windows(args)?;
    let ring_bytes = args.ring.map(usize::try_from).transpose();
    Ok(Options {
        backend: args.backend.into(),
        all_disks: args.all,
        layer: args.layer.map(Layer::from),
        ring_bytes: ring_bytes.map_err(Failure::usage)?,
        duration: args.duration,
        ..Options::new(args.devices.clone())
    })
}

/// Arms what these options need.
pub fn start(options: &Options) -> Result<Session, Failure> {
    Session::start(options).map_err(|error| match error.is_of_usage() {
        true => Failure::usage(error),
        false => Failure::new(error),
    })
}

/// What only another system's recorder can honour.
fn refuse_on_windows(args: &SourceArgs) -> Result<(), Failure> {
    let refused = match args.backend {
        _ if !cfg!(windows) => return Ok(()),
        _ if args.all => "--all",
        BackendArg::Perf => "--backend perf",
        BackendArg::Ftrace => "--backend ftrace",
        BackendArg::Bpf => "--backend bpf",
        BackendArg::Blktrace => "--backend blktrace",
        BackendArg::Auto if args.ring.is_some() => "--ring",
        BackendArg::Auto => return Ok(()),
    };
    Err(Failure::usage(format_args!(
        "{refused} is of Linux; on Windows events come from an event session of the kernel's, whose \
         buffers have a size of their own; leave it out"
    )))
}

/// Whether something that happened was not seen.
pub fn is_lossy(report: &Report) -> bool {
    let unseen = |warning: &Warning| matches!(warning, Warning::ProcessorAdded { .. });
    report.summary.counters.lost_events > 0 || report.warnings.iter().any(unseen)
}

/// Says what a session warned of while it ran, besides what is `known`.
pub fn warn_of_new(report: &Report, known: &[Warning]) {
    for warning in report.warnings.iter().filter(|new| !known.contains(new)) {
        warn(warning);
    }
}

/// A few requests without completion are those in flight at the end. More of them say that the
/// kernel dropped events without counting them (docs/capture.md, "What it cannot know").
pub fn warn_of_unpaired(report: &Report, backend: BackendArg) {
    let (unpaired, requests) = (
        report.summary.counters.unpaired_issues,
        report.summary.requests,
    );
    if unpaired > 64 && unpaired > requests / 100 {
        let remedy = match backend {
            BackendArg::Auto | BackendArg::Perf => "; --backend ftrace may see them",
            BackendArg::Ftrace | BackendArg::Bpf | BackendArg::Blktrace => "",
        };
        warn(format_args!(
            "{} of {} requests have no completion: the kernel dropped events that it did not \
             count; these requests are kept without latency{remedy}",
            units::count(unpaired),
            units::count(requests)
        ));
    }
}

/// What `record --live --json` and `top --json` print last.
#[derive(Debug, Serialize)]
pub struct End {
    #[serde(rename = "type")]
    kind: &'static str,
    requests: u64,
    lost_events: u64,
    /// Requests whose beginning was lost; null where the kernel does not tell.
    lost_requests: Option<u64>,
    elapsed_ns: u64,
    /// Null without a tape.
    tape_bytes: Option<u64>,
    /// Why it ended.
    ended: String,
}

impl End {
    /// The end of a recording.
    pub fn of(report: &Report, tape: bool) -> End {
        End {
            kind: "end",
            requests: report.summary.requests,
            lost_events: report.summary.counters.lost_events,
            lost_requests: report.lost_requests,
            elapsed_ns: u64::try_from(report.elapsed.as_nanos()).unwrap_or(u64::MAX),
            tape_bytes: tape.then_some(report.tape_bytes),
            ended: report.ended.to_string(),
        }
    }
}
