//! `iotape export`: a tape's requests in another format.

use std::io::{self, BufWriter, ErrorKind, Write};

use iotape_formats::Request;
use iotape_formats::csv::CsvWriter;
use iotape_formats::export::fio::{FioWriter, Version};
use iotape_formats::export::{Losses, jsonl};
use iotape_formats::tape::Block;

use crate::cli::{ExportArgs, ExportFormat};
use crate::commands::check::warn_of_damage;
use crate::exit::{Failure, Outcome, warn};
use crate::files::{TapeFile, create_private, open_tape};

pub fn run(args: &ExportArgs) -> Result<Outcome, Failure> {
    let mut tape = open_tape(&args.tape)?;
    let losses = match &args.output {
        Some(path) => write(
            &mut tape,
            args.to,
            BufWriter::new(create_private(path, false)?),
        ),
        None => write(&mut tape, args.to, BufWriter::new(io::stdout().lock())),
    }?;
    for (shortcoming, requests) in losses.iter() {
        warn(format_args!("{requests} requests: {shortcoming}"));
    }
    let damaged = warn_of_damage(&args.tape, &tape);
    Ok(Outcome::flawed_if(damaged || !losses.is_empty()))
}

/// A reader that has seen enough (`| head`) ends the export without complaint.
fn write(tape: &mut TapeFile, to: ExportFormat, sink: impl Write) -> Result<Losses, Failure> {
    match write_as(tape, to, sink) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Losses::default()),
        other => other.map_err(Failure::new),
    }
}

fn write_as(tape: &mut TapeFile, to: ExportFormat, mut sink: impl Write) -> io::Result<Losses> {
    match to {
        ExportFormat::Csv => {
            let mut csv = CsvWriter::new(sink)?;
            each(tape, |request, device| csv.write(request, device))?;
            csv.finish()?;
        }
        ExportFormat::Jsonl => {
            each(tape, |request, device| {
                jsonl::write(&mut sink, request, device)
            })?;
            sink.flush()?;
        }
        ExportFormat::Fio => return fio(tape, Version::V3, sink),
        ExportFormat::FioV2 => return fio(tape, Version::V2, sink),
    }
    Ok(Losses::default())
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

/// Hands each request, with the name of its device, to `write`.
fn each(
    tape: &mut TapeFile,
    mut write: impl FnMut(&Request, &str) -> io::Result<()>,
) -> io::Result<()> {
    let mut block = Block::default();
    while tape.next_block(&mut block).map_err(io::Error::other)? {
        let names = names(tape);
        for request in block.requests() {
            let device = names
                .get(usize::from(request.device.0))
                .map_or("", String::as_str);
            write(&request, device)?;
        }
    }
    Ok(())
}
