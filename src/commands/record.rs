//! `iotape record`: the block I/O of devices into a tape.

use std::io::{BufReader, Seek};

use iotape_capture::{
    Bounds, Destination, Ended, Options, Progress, Report, Session, TapeFiles, User, Warning,
};
use iotape_formats::tape::{Layer, TapeReader};
use serde::Serialize;

use crate::cli::{BackendArg, RecordArgs};
use crate::commands::info::Info;
use crate::commands::{print, print_json};
use crate::exit::{Failure, Outcome, warn};
use crate::render::progress::ProgressLine;
use crate::render::units;
use crate::signals;

pub fn run(args: &RecordArgs) -> Result<Outcome, Failure> {
    refuse_on_windows(args)?;
    let stop = signals::stop_flag()?;
    let user = User::choose(args.user.as_deref()).map_err(Failure::usage)?;
    // The tape is made only once the kernel lets us record, and events wait in its rings meanwhile.
    let session = Session::start(&options(args)?).map_err(Failure::new)?;
    let segmented = args.rotate.is_some();
    let mut files = TapeFiles::create(&args.output, segmented, args.force).map_err(Failure::new)?;
    // From here on the tape is written without any right to trace.
    let stays_root = user.take_over(Some(&files)).map_err(|error| {
        // Nothing was recorded into it.
        let _ = files.remove_oldest();
        Failure::new(error)
    })?;
    let known = session.warnings().to_vec();
    if let Some(warning) = &stays_root {
        warn(warning);
    }
    for warning in &known {
        warn(warning);
    }
    let mut line = ProgressLine::new(args.quiet);
    let mut show = |progress: &Progress| line.show(&progress_text(progress));
    let report = session
        .run(&mut files, &stop, &mut show)
        .map_err(|error| Failure::at(args.output.display(), error))?;
    line.clear();

    for warning in report
        .warnings
        .iter()
        .filter(|warning| !known.contains(warning))
    {
        warn(warning);
    }
    warn_of_unpaired(&report, args.backend);
    warn_of_early_end(&report);
    show_report(args, &report, &files)?;
    let unseen = |warning: &Warning| matches!(warning, Warning::ProcessorAdded { .. });
    let lossy = report.summary.counters.lost_events > 0 || report.warnings.iter().any(unseen);
    Ok(Outcome::flawed_if(lossy || report.ended == Ended::LowSpace))
}

/// What only another system's recorder can honour.
fn refuse_on_windows(args: &RecordArgs) -> Result<(), Failure> {
    let refused = match args.backend {
        _ if !cfg!(windows) => return Ok(()),
        BackendArg::Perf => "--backend perf",
        BackendArg::Ftrace => "--backend ftrace",
        BackendArg::Auto if args.ring.is_some() => "--ring",
        BackendArg::Auto => return Ok(()),
    };
    Err(Failure::usage(format_args!(
        "{refused} is of Linux; on Windows events come from an event session of the kernel's, whose \
         buffers have a size of their own; leave it out"
    )))
}

fn options(args: &RecordArgs) -> Result<Options, Failure> {
    let ring_bytes = args.ring.map(usize::try_from).transpose();
    Ok(Options {
        backend: args.backend.into(),
        layer: args.layer.map(Layer::from),
        ring_bytes: ring_bytes
            .map_err(Failure::usage)?
            .unwrap_or(Options::DEFAULT_RING_BYTES),
        hide_host: args.hide_host,
        duration: args.duration,
        bounds: Bounds {
            max_bytes: args.max_bytes,
            rotate: args.rotate,
            keep: args.keep,
            min_free_bytes: args.min_free,
        },
        fail_on_loss: args.fail_on_loss,
        tape_path: Some(args.output.clone()),
        ..Options::new(args.devices.clone())
    })
}

/// Says why it ended where nobody asked for that moment.
fn warn_of_early_end(report: &Report) {
    if matches!(
        report.ended,
        Ended::MaxBytes | Ended::LowSpace | Ended::Lost
    ) {
        warn(format_args!(
            "the recording ended after {}: {}",
            units::span(report.elapsed),
            report.ended
        ));
    }
}

/// A few requests without completion are those in flight at the end. More of them say that the
/// kernel dropped events without counting them (docs/capture.md, "What it cannot know").
fn warn_of_unpaired(report: &Report, backend: BackendArg) {
    let (unpaired, requests) = (
        report.summary.counters.unpaired_issues,
        report.summary.requests,
    );
    if unpaired > 64 && unpaired > requests / 100 {
        let remedy = match backend {
            BackendArg::Auto | BackendArg::Perf => "; --backend ftrace may see them",
            BackendArg::Ftrace => "",
        };
        warn(format_args!(
            "{} of {} requests have no completion: the kernel dropped events that it did not \
             count; these requests are kept without latency{remedy}",
            units::count(unpaired),
            units::count(requests)
        ));
    }
}

/// What `record --rotate --json` prints.
#[derive(Debug, Serialize)]
struct Segmented {
    requests: u64,
    lost_events: u64,
    /// Requests whose beginning was lost; null where the kernel does not tell.
    lost_requests: Option<u64>,
    tape_bytes: u64,
    /// Removed ones included.
    segments: u32,
    removed: u32,
    /// Segments that are there.
    paths: Vec<String>,
}

fn show_report(args: &RecordArgs, report: &Report, files: &TapeFiles) -> Result<(), Failure> {
    if args.json {
        return show_json(args, report, files);
    }
    let mut text = format!(
        "{}: {} requests in {}, {} bytes of tape, {} events lost{}\n",
        args.output.display(),
        units::count(report.summary.requests),
        units::span(report.elapsed),
        units::count(report.tape_bytes),
        units::count(report.summary.counters.lost_events),
        match report.lost_requests {
            Some(requests @ 1..) => format!(", {} requests among them", units::count(requests)),
            _ => String::new(),
        },
    );
    if args.rotate.is_some() {
        let (first, last) = (files.paths().next(), files.paths().last());
        text.push_str(&format!(
            "{} segments, {} of them removed; from {} to {}\n",
            report.segments,
            report.removed,
            first.unwrap_or(&args.output).display(),
            last.unwrap_or(&args.output).display(),
        ));
    }
    print(&text)
}

fn show_json(args: &RecordArgs, report: &Report, files: &TapeFiles) -> Result<(), Failure> {
    if args.rotate.is_some() {
        return print_json(&Segmented {
            requests: report.summary.requests,
            lost_events: report.summary.counters.lost_events,
            lost_requests: report.lost_requests,
            tape_bytes: report.tape_bytes,
            segments: report.segments,
            removed: report.removed,
            paths: files
                .paths()
                .map(|path| path.to_string_lossy().into_owned())
                .collect(),
        });
    }
    let failed = |error: &dyn std::fmt::Display| Failure::at(args.output.display(), error);
    let file = files.file().ok_or_else(|| failed(&"no tape was made"))?;
    let mut file = file.try_clone().map_err(|error| failed(&error))?;
    file.rewind().map_err(|error| failed(&error))?;
    let tape = TapeReader::open(BufReader::new(file)).map_err(|error| failed(&error))?;
    print_json(&Info::of(&tape, report.tape_bytes))
}

fn progress_text(progress: &Progress) -> String {
    let seconds = progress.elapsed.as_secs_f64().max(1e-9);
    let segment = match progress.segments {
        0 | 1 => String::new(),
        segments => format!(", segment {segments}"),
    };
    format!(
        "{}: {} requests, {} MB/s, {} in flight, {} lost, tape {}{segment}",
        units::span(progress.elapsed),
        units::count(progress.requests),
        units::significant(progress.bytes as f64 / 1e6 / seconds),
        progress.in_flight,
        units::count(progress.lost_events),
        units::bytes(progress.tape_bytes)
    )
}
