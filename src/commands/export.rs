//! `iotape export`: a tape's requests in another format.

mod trace_files;

use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::PathBuf;

use iotape_formats::Request;
use iotape_formats::csv::{CsvWriter, More};
use iotape_formats::export::blkparse::BlkparseWriter;
use iotape_formats::export::blktrace::{BlktraceWriter, Report, Source, Survey};
use iotape_formats::export::fio::{FioWriter, Version};
use iotape_formats::export::{Losses, jsonl};
use iotape_formats::tape::{Block, Device, Names};

use crate::cli::{ExportArgs, ExportFormat, MoreColumn};
use crate::commands::check::warn_of_damage;
use crate::exit::{Failure, Outcome, warn};
use crate::files::{NewFile, TapeFile, open_tape};
use trace_files::TraceFiles;

pub fn run(args: &ExportArgs) -> Result<Outcome, Failure> {
    let more = more(args)?;
    if args.force && args.to == ExportFormat::Blktrace {
        return Err(Failure::usage(
            "--force replaces one file; the files of blktrace are a set: name another, or remove it",
        ));
    }
    let mut tape = open_tape(&args.tape)?;
    let output = args.output.as_ref().filter(|path| path.as_os_str() != "-");
    let report = match (output, args.to) {
        (Some(base), ExportFormat::Blktrace) => blktrace(&mut tape, base.clone()),
        (None, ExportFormat::Blktrace) => Err(Failure::usage(
            "blktrace has a file for each CPU; name them with -o NAME (NAME.blktrace.0 and so on)",
        )),
        (Some(path), _) => {
            let (new, file) = NewFile::begin(path, args.force)?;
            write(&mut tape, args.to, more, BufWriter::new(file))
                .map_err(|failure| Failure::at(path.display(), failure))
                .and_then(|report| new.keep().map(|()| report))
        }
        (None, _) => write(
            &mut tape,
            args.to,
            more,
            BufWriter::new(io::stdout().lock()),
        ),
    }?;
    for counts in [&report.losses, &report.additions] {
        for (what, requests) in counts.iter() {
            warn(format_args!("{requests} requests: {what}"));
        }
    }
    let damaged = warn_of_damage(&args.tape, &tape);
    Ok(Outcome::flawed_if(damaged || !report.losses.is_empty()))
}

/// A reader that has seen enough (`| head`) ends the export without complaint.
fn write(
    tape: &mut TapeFile,
    to: ExportFormat,
    more: More,
    sink: impl Write,
) -> Result<Report, Failure> {
    match write_as(tape, to, more, sink) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Report::default()),
        other => other.map_err(Failure::new),
    }
}

fn write_as(
    tape: &mut TapeFile,
    to: ExportFormat,
    more: More,
    mut sink: impl Write,
) -> io::Result<Report> {
    let losses = match to {
        ExportFormat::Csv => {
            let mut csv = CsvWriter::new(sink, more)?;
            each_named(tape, |request, device, names| {
                csv.write(request, device, names)
            })?;
            csv.finish()?;
            Losses::default()
        }
        ExportFormat::Jsonl => {
            each(tape, |request, device| {
                jsonl::write(&mut sink, request, device)
            })?;
            sink.flush()?;
            Losses::default()
        }
        ExportFormat::Fio => fio(tape, Version::V3, sink)?,
        ExportFormat::FioV2 => fio(tape, Version::V2, sink)?,
        ExportFormat::Blkparse | ExportFormat::Blktrace => return blkparse(tape, sink),
    };
    Ok(Report {
        losses,
        additions: Losses::default(),
    })
}

fn blkparse(tape: &mut TapeFile, sink: impl Write) -> io::Result<Report> {
    let survey = survey(tape)?;
    let devices = tape.devices().to_vec();
    let mut text = BlkparseWriter::new(sink, survey, &source(tape, &devices));
    each(tape, |request, _| text.write(request))?;
    text.finish()
}

fn blktrace(tape: &mut TapeFile, base: PathBuf) -> Result<Report, Failure> {
    let mut files = TraceFiles::new(base)?;
    let mut write = || {
        let survey = survey(tape)?;
        let devices = tape.devices().to_vec();
        let open = |cpu| files.create(cpu).map(BufWriter::new);
        let mut trace = BlktraceWriter::new(open, survey, &source(tape, &devices))?;
        each(tape, |request, _| trace.write(request))?;
        trace.finish()
    };
    let written: io::Result<Report> = write();
    written.map_err(|error| files.given_up(&error))
}

/// The first of two passes over the tape.
fn survey(tape: &mut TapeFile) -> io::Result<Survey> {
    let mut survey = Survey::new();
    each(tape, |request, _| {
        survey.look_at(request);
        Ok(())
    })?;
    tape.rewind();
    Ok(survey)
}

fn source<'a>(tape: &TapeFile, devices: &'a [Device]) -> Source<'a> {
    Source {
        devices,
        anchor: tape.anchors().first().copied(),
        error_codes: tape.header().error_codes,
    }
}

fn fio(tape: &mut TapeFile, version: Version, sink: impl Write) -> io::Result<Losses> {
    let path = |name: &String| format!("/dev/{name}");
    let mut log = FioWriter::new(sink, version, names(tape).iter().map(path).collect())?;
    each(tape, |request, _| log.write(request))?;
    log.finish()
}

fn names(tape: &TapeFile) -> Vec<String> {
    tape.devices()
        .iter()
        .map(|device| device.name.clone())
        .collect()
}

/// Which columns are asked for besides the usual ones.
fn more(args: &ExportArgs) -> Result<More, Failure> {
    if !args.with.is_empty() && args.to != ExportFormat::Csv {
        return Err(Failure::usage(
            "--with adds columns to CSV; other formats have what they have",
        ));
    }
    Ok(More {
        cgroup: args.with.contains(&MoreColumn::Cgroup),
        file: args.with.contains(&MoreColumn::File),
    })
}

/// Hands each request, with the name of its device, to `write`.
fn each(
    tape: &mut TapeFile,
    mut write: impl FnMut(&Request, &str) -> io::Result<()>,
) -> io::Result<()> {
    each_named(tape, |request, device, _| write(request, device))
}

/// Hands each request, with the name of its device and those of control groups and files, to `write`.
fn each_named(
    tape: &mut TapeFile,
    mut write: impl FnMut(&Request, &str, &Names) -> io::Result<()>,
) -> io::Result<()> {
    let mut block = Block::default();
    while tape.next_block(&mut block).map_err(io::Error::other)? {
        let names = names(tape);
        for request in block.requests() {
            let device = names
                .get(usize::from(request.device.0))
                .map_or("", String::as_str);
            write(&request, device, tape.names())?;
        }
    }
    Ok(())
}
