//! `iotape record`: the block I/O of devices into a tape.

use iotape_capture::{Options, Progress, Report, Session};
use iotape_formats::tape::Layer;

use crate::cli::RecordArgs;
use crate::commands::info::Info;
use crate::commands::{print, print_json};
use crate::exit::{Failure, Outcome, warn};
use crate::files::{create_private, open_tape};
use crate::render::progress::ProgressLine;
use crate::render::units;
use crate::signals;

pub fn run(args: &RecordArgs) -> Result<Outcome, Failure> {
    let ring_bytes = usize::try_from(args.ring).map_err(Failure::usage)?;
    let options = Options {
        layer: args.layer.map(Layer::from),
        ring_bytes,
        hide_host: args.hide_host,
        duration: args.duration,
        tape_path: Some(args.output.clone()),
        ..Options::new(args.devices.clone())
    };
    let stop = signals::stop_flag()?;
    // The tape is made only once the kernel lets us record, and events wait in its rings meanwhile.
    let session = Session::start(&options).map_err(Failure::new)?;
    let file = create_private(&args.output, args.force)?;
    let known = session.warnings().to_vec();
    for warning in &known {
        warn(warning);
    }
    let mut line = ProgressLine::new(args.quiet);
    let mut show = |progress: &Progress| line.show(&progress_text(progress));
    let report = session.run(file, &stop, &mut show).map_err(Failure::new)?;
    line.clear();

    for warning in report
        .warnings
        .iter()
        .filter(|warning| !known.contains(warning))
    {
        warn(warning);
    }
    warn_of_unpaired(&report);
    show_report(args, &report)?;
    Ok(Outcome::flawed_if(report.summary.counters.lost_events > 0))
}

/// A few requests without completion are those in flight at the end. More of them say that the
/// kernel dropped events without counting them (docs/capture.md, "What it cannot know").
fn warn_of_unpaired(report: &Report) {
    let (unpaired, requests) = (
        report.summary.counters.unpaired_issues,
        report.summary.requests,
    );
    if unpaired > 64 && unpaired > requests / 100 {
        warn(format_args!(
            "{} of {} requests have no completion: the kernel dropped events that it did not \
             count; these requests are kept without latency",
            units::count(unpaired),
            units::count(requests)
        ));
    }
}

fn show_report(args: &RecordArgs, report: &Report) -> Result<(), Failure> {
    if args.json {
        return print_json(&Info::of(&open_tape(&args.output)?, report.tape_bytes));
    }
    print(&format!(
        "{}: {} requests in {}, {} bytes of tape, {} events lost\n",
        args.output.display(),
        units::count(report.summary.requests),
        units::span(report.elapsed),
        units::count(report.tape_bytes),
        units::count(report.summary.counters.lost_events),
    ))
}

fn progress_text(progress: &Progress) -> String {
    let seconds = progress.elapsed.as_secs_f64().max(1e-9);
    format!(
        "{}: {} requests, {} MB/s, {} in flight, {} lost, tape {}",
        units::span(progress.elapsed),
        units::count(progress.requests),
        units::significant(progress.bytes as f64 / 1e6 / seconds),
        progress.in_flight,
        units::count(progress.lost_events),
        units::bytes(progress.tape_bytes)
    )
}
