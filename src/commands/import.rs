//! `iotape import`: another tool's files into a tape.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use iotape_formats::import::{blktrace, csv};
use iotape_formats::tape::{Layer, Summary};

use crate::cli::{ImportArgs, ImportFormat};
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
    let summary = match format {
        ImportFormat::Blktrace => import_blktrace(args),
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
    Ok(Outcome::flawed_if(counters.lost_events > 0))
}

/// What is no trace of blktrace's is read as CSV, whose reader says what it misses. A name without a
/// file may be mistyped: blktrace's importer says what it looked for.
fn detect(path: &Path) -> Result<ImportFormat, Failure> {
    if path == Path::new("-") {
        return Ok(ImportFormat::Csv);
    }
    let is_trace = !path.exists() || blktrace::is_trace(path).map_err(Failure::new)?;
    Ok(if is_trace {
        ImportFormat::Blktrace
    } else {
        ImportFormat::Csv
    })
}

fn import_csv(args: &ImportArgs) -> Result<Summary, Failure> {
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
    Ok(summary)
}

fn import_blktrace(args: &ImportArgs) -> Result<Summary, Failure> {
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
    Ok(report.summary)
}
