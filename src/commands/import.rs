//! `iotape import`: another tool's files into a tape.

mod found;

use std::fmt::Display;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use iotape_formats::import::text::TextFormat;
use iotape_formats::import::{blktrace, csv, etl, perf_data, text, tracing};
use iotape_formats::tape::{Layer, Summary};

use crate::cli::{ImportArgs, ImportFormat, LayerArg};
use crate::commands::print;
use crate::exit::{Failure, Outcome, warn};
use crate::files::NewFile;
use crate::render::progress::ProgressLine;
use crate::render::units;

use found::Found;

const TOOL: &str = concat!("iotape ", env!("CARGO_PKG_VERSION"));

pub fn run(args: &ImportArgs) -> Result<Outcome, Failure> {
    for path in &args.files {
        if path.is_dir() && !blktrace::is_trace(path).map_err(Failure::new)? {
            return Err(found::directory(path));
        }
    }
    if args.file_names && !is_etl(args) {
        return Err(Failure::usage(
            "--file-names takes the names of files from an .etl; this is another format",
        ));
    }
    let (summary, outcome) = match args.from {
        ImportFormat::Auto => import_found(args),
        ImportFormat::Blktrace => import_blktrace(args),
        ImportFormat::Etl => import_etl(args),
        ImportFormat::Csv => import_csv(args, open_table(args)?),
        ImportFormat::Xperf => import_text(args, open_table(args)?, TextFormat::Xperf),
        ImportFormat::Wpa => import_text(args, open_table(args)?, TextFormat::Wpa),
        ImportFormat::Msr => import_text(args, open_table(args)?, TextFormat::Msr),
        ImportFormat::PerfData => import_perf_data(args),
        ImportFormat::Tracing => import_tracing(args, open_table(args)?),
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

fn is_etl(args: &ImportArgs) -> bool {
    match args.from {
        ImportFormat::Etl => true,
        ImportFormat::Auto => etl::is_trace(&args.files[0]).unwrap_or(false),
        _ => false,
    }
}

/// Finds the format by content. A name without a file may be mistyped: blktrace's importer says what
/// it looked for.
fn import_found(args: &ImportArgs) -> Result<(Summary, Outcome), Failure> {
    let path = args.files[0].as_path();
    if path != Path::new("-") {
        if !path.exists() || blktrace::is_trace(path).map_err(Failure::new)? {
            return import_blktrace(args);
        }
        if etl::is_trace(path).map_err(|error| Failure::at(path.display(), error))? {
            return import_etl(args);
        }
    }
    let mut table = open_table(args)?;
    let start = table
        .fill_buf()
        .map_err(|error| Failure::at(path.display(), error))?;
    let start = &start[..start.len().min(found::BYTES)];
    match found::find(start) {
        Some(Found::PerfData) if path == Path::new("-") => import_perf_stream(args, table),
        Some(Found::PerfData) => import_perf_data(args),
        Some(Found::Tracing) => import_tracing(args, table),
        Some(Found::Text(format)) => import_text(args, table, format),
        Some(Found::Csv) => import_csv(args, table),
        None => {
            let bytes = std::fs::metadata(path).ok().filter(|file| file.is_file());
            Err(found::unknown(path, bytes.map(|file| file.len()), start))
        }
    }
}

/// The one file of a table.
fn open_table(args: &ImportArgs) -> Result<Box<dyn BufRead>, Failure> {
    let [path] = args.files.as_slice() else {
        return Err(Failure::usage("a table is one file; name one"));
    };
    let source: Box<dyn Read> = if path == Path::new("-") {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(File::open(path).map_err(|error| Failure::at(path.display(), error))?)
    };
    Ok(Box::new(BufReader::with_capacity(1 << 18, source)))
}

/// Windows' own formats tell requests of the device layer.
fn refuse_queue_layer(args: &ImportArgs) -> Result<(), Failure> {
    match args.layer {
        Some(LayerArg::Queue) => Err(Failure::usage(
            "such a file tells requests of the device layer only; leave out --layer queue",
        )),
        _ => Ok(()),
    }
}

fn refuse_without_offsets(args: &ImportArgs) -> Result<(), Failure> {
    match args.without_offsets {
        true => Err(Failure::usage(
            "--without-offsets is for tables of wpaexporter; these requests have offsets",
        )),
        false => Ok(()),
    }
}

fn import_text(
    args: &ImportArgs,
    table: Box<dyn BufRead>,
    format: TextFormat,
) -> Result<(Summary, Outcome), Failure> {
    refuse_queue_layer(args)?;
    if format != TextFormat::Wpa {
        refuse_without_offsets(args)?;
    }
    let options = text::Options {
        tool: TOOL.to_owned(),
        level: args.level.into(),
        without_offsets: args.without_offsets,
    };
    let mut line = ProgressLine::new(false);
    let mut show = |read| line.show(&format!("{} requests", units::count(read)));
    let (tape, sink) = NewFile::begin(&args.output, args.force)?;
    let name = args.files[0].display();
    let (_, report) = text::import(table, format, &options, sink, &mut show)
        .map_err(|error| Failure::at(&name, error))?;
    tape.keep()?;
    line.clear();
    if report.before_zero > 0 {
        warn(format_args!(
            "{name}: {} requests were issued before the tape begins: their latency is left empty",
            units::count(report.before_zero)
        ));
    }
    Ok((report.summary, Outcome::Done))
}

fn import_tracing(
    args: &ImportArgs,
    source: Box<dyn BufRead>,
) -> Result<(Summary, Outcome), Failure> {
    refuse_without_offsets(args)?;
    let options = tracing::Options {
        tool: TOOL.to_owned(),
        level: args.level.into(),
        layer: args.layer.map_or(Layer::Device, Layer::from),
        tick_khz: args.tick_khz,
    };
    let mut line = ProgressLine::new(false);
    let mut show = |read| line.show(&format!("{} lines", units::count(read)));
    let (tape, sink) = NewFile::begin(&args.output, args.force)?;
    let (_, summary) = tracing::import(source, &options, sink, &mut show)
        .map_err(|error| Failure::at(args.files[0].display(), error))?;
    tape.keep()?;
    let outcome = Outcome::flawed_if(summary.counters.lost_events > 0);
    Ok((summary, outcome))
}

fn import_perf_data(args: &ImportArgs) -> Result<(Summary, Outcome), Failure> {
    let [path] = args.files.as_slice() else {
        return Err(Failure::usage("a perf.data is one file; name one"));
    };
    if path == Path::new("-") {
        return import_perf_stream(args, open_table(args)?);
    }
    let source = File::open(path).map_err(|error| Failure::at(path.display(), error))?;
    import_perf(args, |options, sink, show| {
        perf_data::import(source, options, sink, show)
    })
}

fn import_perf_stream(
    args: &ImportArgs,
    source: Box<dyn BufRead>,
) -> Result<(Summary, Outcome), Failure> {
    import_perf(args, |options, sink, show| {
        perf_data::import_stream(source, options, sink, show)
    })
}

/// Imports a `perf.data`, from wherever `read` reads it.
fn import_perf<W>(
    args: &ImportArgs,
    read: impl FnOnce(
        &perf_data::Options,
        File,
        &mut dyn FnMut(&perf_data::Progress),
    ) -> Result<(W, perf_data::Report), perf_data::PerfDataError>,
) -> Result<(Summary, Outcome), Failure> {
    refuse_without_offsets(args)?;
    let options = perf_data::Options {
        tool: TOOL.to_owned(),
        level: args.level.into(),
        layer: args.layer.map_or(Layer::Device, Layer::from),
    };
    let mut line = ProgressLine::new(false);
    let mut show = |progress: &perf_data::Progress| {
        line.show(&format!(
            "{} read, {} events",
            units::bytes(progress.bytes),
            units::count(progress.events)
        ));
    };
    let name = args.files[0].display();
    let (tape, sink) = NewFile::begin(&args.output, args.force)?;
    let (_, report) = read(&options, sink, &mut show).map_err(|error| Failure::at(&name, error))?;
    tape.keep()?;
    line.clear();
    for warning in report.warnings() {
        warn(format_args!("{name}: {warning}"));
    }
    let outcome = Outcome::flawed_if(report.is_flawed());
    Ok((report.summary, outcome))
}

fn import_csv(args: &ImportArgs, source: Box<dyn BufRead>) -> Result<(Summary, Outcome), Failure> {
    refuse_without_offsets(args)?;
    let options = csv::Options {
        tool: TOOL.to_owned(),
        layer: args.layer.map_or(Layer::Device, Layer::from),
        level: args.level.into(),
    };
    let mut line = ProgressLine::new(false);
    let mut show = |read| line.show(&format!("{} requests", units::count(read)));
    let (tape, sink) = NewFile::begin(&args.output, args.force)?;
    let (_, summary) = csv::import(source, &options, sink, &mut show)
        .map_err(|error| Failure::at(args.files[0].display(), error))?;
    tape.keep()?;
    Ok((summary, Outcome::Done))
}

fn import_etl(args: &ImportArgs) -> Result<(Summary, Outcome), Failure> {
    let [path] = args.files.as_slice() else {
        return Err(Failure::usage("an .etl is one file; name one"));
    };
    refuse_queue_layer(args)?;
    refuse_without_offsets(args)?;
    let failed = |error: &dyn Display| Failure::at(path.display(), error);
    let source = File::open(path).map_err(|error| failed(&error))?;
    let options = etl::Options {
        tool: TOOL.to_owned(),
        level: args.level.into(),
        file_names: args.file_names,
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
    refuse_without_offsets(args)?;
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
