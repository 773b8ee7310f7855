//! `iotape import`: another tool's file into a tape.

use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::Path;

use iotape_formats::csv::CsvReader;
use iotape_formats::sort::TimeSorter;
use iotape_formats::tape::{Counters, Device, Header, Layer, Level, Summary, TapeWriter};
use iotape_formats::{DeviceIndex, Request};

use crate::cli::{FormatArg, ImportArgs};
use crate::commands::print;
use crate::exit::{Failure, Outcome};
use crate::files::create_private;
use crate::render::progress::ProgressLine;
use crate::render::units;

/// How far apart requests may stand in the file and still be put in order.
const WINDOW_NS: u64 = 1_000_000_000;
/// Most requests that wait for their order.
const WINDOW_REQUESTS: usize = 1 << 18;
/// Requests between two looks at the progress line.
const PROGRESS_EVERY: u64 = 1 << 17;

pub fn run(args: &ImportArgs) -> Result<Outcome, Failure> {
    let FormatArg::Csv = args.from;
    let source: Box<dyn Read> = if args.file == Path::new("-") {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(File::open(&args.file).map_err(|e| Failure::at(args.file.display(), e))?)
    };
    let rows = CsvReader::new(BufReader::with_capacity(1 << 18, source))
        .map_err(|e| Failure::at(args.file.display(), e))?;
    let tape = create_private(&args.output, args.force)?;
    let summary = write_tape(rows, tape, args).inspect_err(|_| {
        let _ = std::fs::remove_file(&args.output);
    })?;
    print(&format!(
        "{}: {} requests, {} out of order\n",
        args.output.display(),
        units::count(summary.requests),
        units::count(summary.counters.late),
    ))?;
    Ok(Outcome::Done)
}

fn write_tape(
    mut rows: CsvReader<impl Read>,
    tape: impl Write,
    args: &ImportArgs,
) -> Result<Summary, Failure> {
    let writer = TapeWriter::create(tape, &header(args), &[], Level::Live);
    let mut import = Import {
        writer: writer.map_err(|e| Failure::at(args.output.display(), e))?,
        devices: 0,
        layer: args.layer.into(),
        output: &args.output,
    };
    let mut sorter = TimeSorter::new(WINDOW_NS, WINDOW_REQUESTS);
    let mut line = ProgressLine::new(false);
    let mut read = 0u64;
    while let Some(request) = rows
        .next_request()
        .map_err(|e| Failure::at(args.file.display(), e))?
    {
        import.name_devices(rows.devices())?;
        sorter.push(request);
        while let Some(request) = sorter.pop() {
            import.push(&request)?;
        }
        read += 1;
        if read.is_multiple_of(PROGRESS_EVERY) {
            line.show(&format!("{} requests", units::count(read)));
        }
    }
    while let Some(request) = sorter.leave() {
        import.push(&request)?;
    }
    import.writer.count(&Counters {
        late: sorter.late(),
        ..Counters::default()
    });
    let finished = import.writer.finish();
    finished
        .map(|(_, summary)| summary)
        .map_err(|e| Failure::at(args.output.display(), e))
}

fn header(args: &ImportArgs) -> Header {
    Header {
        tool: concat!("iotape ", env!("CARGO_PKG_VERSION")).to_owned(),
        backend: "import:csv".to_owned(),
        notes: vec![format!(
            "imported from CSV, which does not say at which layer its requests were seen, nor its \
             clock and the devices' sizes; the layer was given as {}",
            Layer::from(args.layer)
        )],
        ..Header::default()
    }
}

/// A tape that is being made of requests from elsewhere.
struct Import<'a, W: Write> {
    writer: TapeWriter<W>,
    devices: usize,
    layer: Layer,
    output: &'a Path,
}

impl<W: Write> Import<'_, W> {
    fn name_devices(&mut self, names: &[String]) -> Result<(), Failure> {
        while let Some(name) = names.get(self.devices) {
            // The reader refuses more devices than fit an index.
            let index = DeviceIndex(self.devices as u16);
            let device = Device {
                index,
                name: name.clone(),
                layer: self.layer,
                ..Device::default()
            };
            self.writer
                .device(&device)
                .map_err(|e| Failure::at(self.output.display(), e))?;
            self.devices += 1;
        }
        Ok(())
    }

    fn push(&mut self, request: &Request) -> Result<(), Failure> {
        self.writer
            .push(request)
            .map_err(|e| Failure::at(self.output.display(), e))
    }
}
