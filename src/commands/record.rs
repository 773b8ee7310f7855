//! `iotape record`: the block I/O of devices into a tape.

use std::io::{BufReader, Seek};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use iotape_capture::{
    Bounds, Destination, Ended, Options, Progress, Report, Session, TapeFiles, User,
};
use iotape_formats::tape::TapeReader;
use serde::Serialize;

use crate::cli::RecordArgs;
use crate::commands::info::Info;
use crate::commands::recording::{
    End, is_lossy, source_options, start, warn_of_new, warn_of_unpaired,
};
use crate::commands::{print, print_json, print_json_line};
use crate::exit::{Failure, Outcome, warn};
use crate::live::{Form, View, Watched};
use crate::render::progress::ProgressLine;
use crate::render::units;
use crate::signals::Signals;

pub fn run(args: &RecordArgs) -> Result<Outcome, Failure> {
    if args.output.as_os_str() == "-" || is_own_output(&args.output) {
        return Err(Failure::usage(
            "-o: a tape cannot go to standard output or error, since its end is written last and read first: \
             name a file of its own",
        ));
    }
    let form = args.live.then(|| Form::choose(args.json));
    let signals = Signals::catch(form == Some(Form::Screen))?;
    let user = User::choose(args.source.user.as_deref()).map_err(Failure::usage)?;
    // The tape is made only once the kernel lets us record, and events wait in its rings meanwhile.
    let options = options(args)?;
    let session = start(&options)?;
    let segmented = args.rotate.is_some();
    let mut files = TapeFiles::create(&args.output, segmented, args.force).map_err(Failure::new)?;
    // From here on the tape is written without any right to trace.
    let space = options.bounds.check_space(files.free_bytes());
    let ready = space.and_then(|()| user.take_over(Some(&files)));
    let stays_root = ready.map_err(|error| {
        // Nothing was recorded into it.
        let _ = files.remove_oldest();
        Failure::at(args.output.display(), error)
    })?;
    let known = session.warnings().to_vec();
    if let Some(warning) = &stays_root {
        warn(warning);
    }
    for warning in &known {
        warn(warning);
    }
    // From here on threads may be started.
    signals.guard()?;
    let report = match form {
        Some(form) => run_live(args, session, &mut files, signals.stop(), form)?,
        None => run_quietly(args, session, &mut files, signals.stop())?,
    };
    warn_of_new(&report, &known);
    warn_of_unpaired(&report, args.source.backend);
    warn_of_early_end(&report);
    show_report(args, &report, &files)?;
    Ok(Outcome::flawed_if(
        is_lossy(&report) || report.ended == Ended::LowSpace,
    ))
}

/// Whether what is printed goes into this file: it would stand in the middle of the tape.
#[cfg(unix)]
fn is_own_output(path: &Path) -> bool {
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;

    let Ok(output) = std::fs::metadata(path) else {
        return false;
    };
    let (stdout, stderr) = (std::io::stdout(), std::io::stderr());
    [stdout.as_fd(), stderr.as_fd()].into_iter().any(|stream| {
        let stream = stream.try_clone_to_owned().map(std::fs::File::from);
        let there = stream.and_then(|file| file.metadata());
        let is_it = |there: std::fs::Metadata| {
            there.is_file() && (there.dev(), there.ino()) == (output.dev(), output.ino())
        };
        there.is_ok_and(is_it)
    })
}

/// Files that are written to are not opened a second time here.
#[cfg(not(unix))]
fn is_own_output(_path: &Path) -> bool {
    false
}

fn run_quietly(
    args: &RecordArgs,
    session: Session,
    files: &mut TapeFiles,
    stop: &AtomicBool,
) -> Result<Report, Failure> {
    let mut line = ProgressLine::new(args.quiet);
    let mut show = |progress: &Progress| line.show(&progress_text(progress));
    session
        .run(files, stop, &mut show)
        .map_err(|error| Failure::at(args.output.display(), error))
}

fn run_live(
    args: &RecordArgs,
    session: Session,
    files: &mut TapeFiles,
    stop: &AtomicBool,
    form: Form,
) -> Result<Report, Failure> {
    let watched = Watched {
        title: format!("iotape record -o {}", args.output.display()),
        devices: session.devices(),
        interval: args.interval,
        tape: true,
    };
    let mut view = View::start(watched, form, None)
        .map_err(|error| Failure::at("cannot start the live view", error))?;
    let report = session.run(files, stop, view.observer());
    // A view that broke is no reason to call the recording failed.
    if let Err(failure) = view.finish(report.as_ref().ok()) {
        warn(failure);
    }
    report.map_err(|error| Failure::at(args.output.display(), error))
}

fn options(args: &RecordArgs) -> Result<Options, Failure> {
    Ok(Options {
        hide_host: args.hide_host,
        bounds: Bounds {
            max_bytes: args.max_bytes,
            rotate: args.rotate,
            keep: args.keep,
            min_free_bytes: args.min_free,
        },
        fail_on_loss: args.fail_on_loss,
        tape_path: Some(args.output.clone()),
        ..source_options(&args.source)?
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
    if args.json && args.live {
        return print_json_line(&End::of(report, true));
    }
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
        progress.in_flight(),
        units::count(progress.lost_events),
        units::bytes(progress.tape_bytes)
    )
}
