//! `iotape import`: another tool's files into a tape.

use std::fmt::Display;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use iotape_formats::import::{blktrace, csv, etl};
use iotape_formats::tape::{Layer, Summary};

use crate::cli::{ImportArgs, ImportFormat, LayerArg};
use crate::commands::print;
use crate::exit::{Failure, Outcome, warn};
use crate::files::NewFile;
use crate::render::progress::ProgressLine;
use crate::render::units;

const TOOL: &str = concat!("iotape ", env!("CARGO_PKG_VERSION"));

pub fn run(args: &ImportArgs) -> Result<Outcome, Failure> {
    let format = match args.from {
        ImportFormat::Auto => detect(&args.files[0])?,
        named => named,
    };
    let (summary, outcome) = match format {
        ImportFormat::Blktrace => import_blktrace(args),
        ImportFormat::Etl => import_etl(args),
        ImportFormat::Csv | ImportFormat::Auto => import_csv(args),
    }?;
    let counters = &summary.counters;
    print(&format!(
        "{}: {} requests, {} unpaired, {} out of order, {} events lost\n",
        args.output.display(),
        units::count(summary.requests),
        units::count(counters.unpaired()),
        units::count(counters.late),
        units::count(counters.lost_events),
    ))?;
    Ok(outcome)
}

/// What is no binary trace is read as CSV, whose reader says what it misses. A name without a file
/// may be mistyped: blktrace's importer says what it looked for.
fn detect(path: &Path) -> Result<ImportFormat, Failure> {
    if path == Path::new("-") {
        return Ok(ImportFormat::Csv);
    }
    if !path.exists() || blktrace::is_trace(path).map_err(Failure::new)? {
        return Ok(ImportFormat::Blktrace);
    }
    let is_etl = etl::is_trace(path).map_err(|error| Failure::at(path.display(), error))?;
    Ok(match is_etl {
        true => ImportFormat::Etl,
        false => ImportFormat::Csv,
    })
}

fn import_csv(args: &ImportArgs) -> Result<(Summary, Outcome), Failure> {
    let [path] = args.files.as_slice() else {
        return Err(Failure::usage("a CSV is one file; name one"));
    };
    let source: Box<dyn Read> = if path == Path::new("-") {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(File::open(path).map_err(|e| Failure::at(path.display(), e))?)
    };
    let options = csv::Options {
        tool: TOOL.to_owned(),
        layer: args.layer.map_or(Layer::Device, Layer::from),
        level: args.level.into(),
    };
    let source = BufReader::with_capacity(1 << 18, source);
    let mut line = ProgressLine::new(false);
    let mut show = |read| line.show(&format!("{} requests", units::count(read)));
    let (tape, sink) = NewFile::begin(&args.output, args.force)?;
    let (_, summary) = csv::import(source, &options, sink, &mut show)
        .map_err(|error| Failure::at(path.display(), error))?;
    tape.keep()?;
    Ok((summary, Outcome::Done))
}

fn import_etl(args: &ImportArgs) -> Result<(Summary, Outcome), Failure> {
    let [path] = args.files.as_slice() else {
        return Err(Failure::usage("an .etl is one file; name one"));
    };
    if matches!(args.layer, Some(LayerArg::Queue)) {
        return Err(Failure::usage(
            "an .etl tells requests of the device layer only; leave out --layer queue",
        ));
    }
    let failed = |error: &dyn Display| Failure::at(path.display(), error);
    let source = File::open(path).map_err(|error| failed(&error))?;
    let options = etl::Options {
        tool: TOOL.to_owned(),
        level: args.level.into(),
    };
    let mut line = ProgressLine::new(false);
    let mut show = |progress: &etl::Progress| {
        line.show(&format!(
            "{} of {} read, {} requests",
            units::bytes(progress.bytes),
            units::bytes(progress.of_bytes),
            units::count(progress.requests)
        ));
    };
    let (tape, sink) = NewFile::begin(&args.output, args.force)?;
    let (_, report) =
        etl::import(source, &options, sink, &mut show).map_err(|error| failed(&error))?;
    tape.keep()?;
    line.clear();
    for warning in report.warnings() {
        warn(format_args!("{}: {warning}", path.display()));
    }
    let outcome = Outcome::flawed_if(report.is_flawed());
    Ok((report.summary, outcome))
}

fn import_blktrace(args: &ImportArgs) -> Result<(Summary, Outcome), Failure> {
    let files: &[PathBuf] = &args.files;
    let sources = blktrace::open_files(files).map_err(Failure::new)?;
    let options = blktrace::Options {
        tool: TOOL.to_owned(),
        layer: args.layer.map(Layer::from),
        level: args.level.into(),
    };
    let mut line = ProgressLine::new(false);
    let mut show = |progress: &blktrace::Progress| {
        line.show(&format!(
            "{} read, {} requests",
            units::bytes(progress.bytes),
            units::count(progress.requests)
        ));
    };
    let (tape, sink) = NewFile::begin(&args.output, args.force)?;
    let (_, report) = blktrace::import(sources, &options, sink, &mut show).map_err(Failure::new)?;
    tape.keep()?;
    line.clear();
    for warning in report.warnings() {
        warn(warning);
    }
    let outcome = Outcome::flawed_if(report.summary.counters.lost_events > 0);
    Ok((report.summary, outcome))
}
