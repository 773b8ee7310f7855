//! `iotape replay`: the tape against a target, one run a depth cap.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use iotape_replay::result::{Document, Experiment, Run, Tape};
use iotape_replay::{
    Arrangement, DeviceTarget, EngineChoice, HdrLog, MappingMode, Options, Profile, Progress,
    Replay, RunOptions, Source, Speed, TapeSource, TargetSpec, Timing, Unsupported, WritePolicy,
};

use crate::cli::{EngineArg, MapArg, ProfileArg, ReplayArgs, TimingArg, UnsupportedArg};
use crate::commands::info::transferred_bytes;
use crate::commands::{check_times, print};
use crate::exit::{Failure, Outcome};
use crate::files::{NewFile, open_tape};
use crate::render::progress::ProgressLine;
use crate::render::{result, units};
use crate::signals;

pub fn run(args: &ReplayArgs) -> Result<Outcome, Failure> {
    check(args)?;
    let tape = open_tape(&args.tape)?;
    let experiment = Experiment {
        tape: Tape {
            id: tape.summary().id.to_string(),
            path: Some(args.tape.display().to_string()),
            requests: tape.summary().requests,
            bytes: transferred_bytes(tape.summary()),
        },
        command: std::env::args_os()
            .map(|arg| arg.to_string_lossy().into_owned())
            .collect(),
        seed: args.seed,
        started: Some(
            jiff::Timestamp::now()
                .strftime("%Y-%m-%dT%H:%M:%SZ")
                .to_string(),
        ),
        host: iotape_replay::host(),
    };
    // Made first: better to fail now than after minutes of measuring.
    let output = args
        .output
        .as_ref()
        .map(|path| NewFile::begin(path, false))
        .transpose()?;

    let pace = pace(args)?;
    let log = args.hdr_log.as_ref().map(|path| HistogramLog::begin(path));
    let log = log.transpose()?;

    let stop = signals::stop_flag()?;
    let mut line = ProgressLine::new(args.quiet);
    let mut show = |progress: &Progress| line.show(&progress_text(progress));
    let prepared = Replay::prepare(TapeSource::new(tape), options(args), &stop, &mut show);
    let mut replay = prepared.map_err(Failure::new)?;
    let hdr_log = log.as_ref().map(|log| log.log.clone());
    let first = RunOptions { hdr_log, ..pace };
    let runs = run_all(args, &first, &mut replay, &stop, &mut show)?;
    drop(replay);
    line.clear();

    let valid = runs.iter().all(|run| run.valid);
    let document = Document::new(experiment, runs);
    let json = document.to_json().map_err(Failure::new)?;
    if let Some((result, mut file)) = output {
        file.write_all(json.as_bytes()).map_err(Failure::new)?;
        result.keep()?;
    }
    if let Some(log) = log {
        log.keep()?;
    }
    print(&if args.json {
        json
    } else {
        result::to_text(&document)
    })?;
    Ok(Outcome::flawed_if(!valid))
}

fn options(args: &ReplayArgs) -> Options {
    let (targets, arrangement) = targets(args);
    Options {
        targets,
        arrangement,
        write_policy: write_policy(args.skip_writes, &args.overwrite),
        mapping: match args.map {
            Some(MapArg::Offset) => MappingMode::Offset,
            Some(MapArg::Scale) => MappingMode::Scale,
            Some(MapArg::Wrap) => MappingMode::Wrap,
            Some(MapArg::Hash) => MappingMode::Hash,
            None if args.map_offset.is_some() => MappingMode::Offset,
            Some(MapArg::Identity) | None => MappingMode::Identity,
        },
        map_offset_bytes: args.map_offset.unwrap_or(0),
        map_region_bytes: args.map_region,
        align: args.align,
        unsupported: match args.unsupported {
            UnsupportedArg::Skip => Unsupported::Skip,
            UnsupportedArg::Fail => Unsupported::Fail,
        },
        engine: match args.engine {
            EngineArg::Auto | EngineArg::Null => EngineChoice::Auto,
            EngineArg::Uring => EngineChoice::Uring,
            EngineArg::Iocp => EngineChoice::Iocp,
            EngineArg::Threads => EngineChoice::Threads,
        },
        only: args.only.clone(),
        from: args.from,
        to: args.to,
        compressible: args.compressible,
        duplicate: args.duplicate,
        verify: args.verify,
        order_overlaps: args.order_overlaps,
        workers: args.workers,
        seed: args.seed,
        ..Options::new(TargetSpec::Null)
    }
}

/// Options that mean something only together.
fn check(args: &ReplayArgs) -> Result<(), Failure> {
    match (args.map, args.map_offset) {
        (Some(MapArg::Offset), None) => Err(Failure::usage(
            "--map offset: say by how much, --map-offset BYTES",
        )),
        (Some(map), Some(_)) if map != MapArg::Offset => Err(Failure::usage(
            "--map-offset: means --map offset, not another mapping",
        )),
        _ => Ok(()),
    }
}

/// What to replay against, and what goes where.
fn targets(args: &ReplayArgs) -> (Vec<TargetSpec>, Arrangement) {
    let mut targets = args.targets.clone();
    let mut devices = Vec::new();
    for (device, path) in &args.device {
        let path = TargetSpec::Path(path.clone());
        let known = targets.iter().position(|known| *known == path);
        let target = known.unwrap_or_else(|| {
            targets.push(path);
            targets.len() - 1
        });
        let device = device.clone();
        devices.push(DeviceTarget { device, target });
    }
    let arrangement = match args.stripe {
        Some(stripe_bytes) => Arrangement::Striped { stripe_bytes },
        None if !devices.is_empty() => Arrangement::Devices(devices),
        None => Arrangement::Single,
    };
    match args.engine {
        EngineArg::Null => targets = vec![TargetSpec::Null; targets.len().max(1)],
        _ if targets.is_empty() => targets.push(TargetSpec::Scratch { directory: None }),
        _ => {}
    }
    (targets, arrangement)
}

fn write_policy(skip_writes: bool, overwrite: &[PathBuf]) -> WritePolicy {
    match (skip_writes, overwrite) {
        (true, _) => WritePolicy::SkipWrites,
        (false, []) => WritePolicy::Refuse,
        (false, targets) => WritePolicy::Overwrite(targets.to_vec()),
    }
}

fn profiles(args: &ReplayArgs) -> Vec<Profile> {
    if let Some(depth) = args.depth {
        return vec![Profile::depth(depth)];
    }
    let asked: &[ProfileArg] = match args.profile.as_slice() {
        [] => &[ProfileArg::Light, ProfileArg::Heavy],
        asked => asked,
    };
    let profile = |asked: &ProfileArg| match asked {
        ProfileArg::Light => Profile::light(),
        ProfileArg::Heavy => Profile::heavy(),
    };
    asked.iter().map(profile).collect()
}

/// A file of histograms that is kept once it is whole.
struct HistogramLog {
    file: NewFile,
    log: HdrLog,
}

impl HistogramLog {
    fn begin(path: &Path) -> Result<HistogramLog, Failure> {
        let (file, handle) = NewFile::begin(path, false)?;
        let log = HdrLog::new(BufWriter::new(handle));
        let log = log.map_err(|error| Failure::at(path.display(), error))?;
        Ok(HistogramLog { file, log })
    }

    fn keep(self) -> Result<(), Failure> {
        self.log.finish().map_err(Failure::new)?;
        self.file.keep()
    }
}

/// What all runs have in common.
fn pace(args: &ReplayArgs) -> Result<RunOptions, Failure> {
    let timing = match (args.timing, args.speed) {
        (Some(TimingArg::Asap), Some(_)) => {
            return Err(Failure::usage(
                "--speed needs the tape's times: --timing recorded or dependent, not asap",
            ));
        }
        (Some(TimingArg::Asap), None) | (None, None) => Timing::Asap,
        (Some(TimingArg::Recorded), _) | (None, Some(_)) => Timing::Recorded,
        (Some(TimingArg::Dependent), _) => Timing::Dependent,
    };
    check_times(args.from, args.to)?;
    Ok(RunOptions {
        timing,
        speed: args.speed.unwrap_or(Speed::RECORDED),
        repeat_for: args.duration,
        warmup: args.warmup.unwrap_or(Duration::ZERO),
        ..RunOptions::new("", Profile::light())
    })
}

/// The runs that were made, the profiles in turn; after an interruption those up to it.
fn run_all<S: Source>(
    args: &ReplayArgs,
    pace: &RunOptions,
    replay: &mut Replay<S>,
    stop: &AtomicBool,
    show: &mut dyn FnMut(&Progress),
) -> Result<Vec<Run>, Failure> {
    let profiles = profiles(args);
    let rounds = (0..args.runs).flat_map(|_| &profiles);
    let mut runs = Vec::new();
    for (order, profile) in (0u32..).zip(rounds) {
        let label = profile
            .name
            .clone()
            .unwrap_or_else(|| format!("depth {}", profile.depth));
        let options = RunOptions {
            label,
            profile: profile.clone(),
            order,
            ..pace.clone()
        };
        runs.push(replay.run(&options, stop, show).map_err(Failure::new)?);
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(runs)
}

fn progress_text(progress: &Progress) -> String {
    match progress {
        Progress::Filling {
            done_bytes,
            total_bytes,
        } => format!(
            "filling the scratch file: {} of {}",
            units::bytes(*done_bytes),
            units::bytes(*total_bytes)
        ),
        Progress::Running {
            elapsed,
            requests,
            bytes,
            total_requests,
            warming_up,
        } => {
            let seconds = elapsed.as_secs_f64().max(1e-9);
            let of = total_requests.map(|total| format!(" of {}", units::count(total)));
            format!(
                "{}: {}{} requests, {} MB/s{}",
                units::span(*elapsed),
                units::count(*requests),
                of.unwrap_or_default(),
                units::significant(*bytes as f64 / 1e6 / seconds),
                if *warming_up { ", warming up" } else { "" }
            )
        }
    }
}
