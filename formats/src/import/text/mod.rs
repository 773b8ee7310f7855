//! Tables of requests that Windows people have: xperf's dumper, wpaexporter's CSV, the MSR Cambridge
//! traces.
//!
//! Each is read line by line into rows, and these into the tape, in bounded memory. A
//! line that cannot be understood stops the import: a table that is read wrong in one place is
//! read wrong in others. Names of files are left out.

mod error;
mod msr;
mod number;
mod row;
mod wpa;
mod xperf;

pub use error::TextError;

use std::io::{BufRead, Write};

use crate::import::sorted::SortedTape;
use crate::tape::{Clock, Counters, Device, ErrorCodes, Header, Layer, Level, Summary};

use row::{Devices, Rows};

/// Requests between two calls of the progress callback.
const PROGRESS_EVERY: u64 = 1 << 16;

/// Which table it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextFormat {
    /// What `xperf -a dumper` prints, and the SNIA IOTTA traces of Microsoft's production servers.
    Xperf,
    /// A table of requests that wpaexporter or Windows Performance Analyzer exported as CSV.
    Wpa,
    /// The MSR Cambridge traces: `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`.
    Msr,
}

/// How to import.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Program and version for the tape's header, such as `iotape 0.1.0`.
    pub tool: String,
    /// How hard to try to make the tape small.
    pub level: Level,
    /// Takes a table that does not tell offsets: all of them become 0, which the tape says.
    pub without_offsets: bool,
}

/// What was imported.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The tape's totals.
    pub summary: Summary,
    /// Lines of other events, which are left out.
    pub other_lines: u64,
    /// Requests that were issued before the tape's zero: their latency is left empty.
    pub before_zero: u64,
}

/// Which table a file with this beginning holds; 4,096 bytes are enough to tell. `None` for
/// anything else.
pub fn detect(start: &[u8]) -> Option<TextFormat> {
    let text = String::from_utf8_lossy(start);
    let first = text
        .trim_start_matches('\u{feff}')
        .trim_start()
        .lines()
        .next()?;
    if xperf::begins(first) {
        Some(TextFormat::Xperf)
    } else if wpa::begins(first) {
        Some(TextFormat::Wpa)
    } else if msr::begins(first) {
        Some(TextFormat::Msr)
    } else {
        None
    }
}

/// Writes the tape of a table, in bounded memory. `progress` is told now and then how many requests
/// were read.
///
/// # Errors
///
/// At the first line that cannot be understood, when the source cannot be read, or when the sink
/// fails.
pub fn import<R: BufRead, W: Write>(
    source: R,
    format: TextFormat,
    options: &Options,
    sink: W,
    progress: &mut dyn FnMut(u64),
) -> Result<(W, Report), TextError> {
    match format {
        TextFormat::Xperf => write(xperf::Dump::open(source)?, options, sink, progress),
        TextFormat::Wpa => {
            let table = wpa::Table::open(source, options.without_offsets)?;
            write(table, options, sink, progress)
        }
        TextFormat::Msr => write(msr::Trace::open(source)?, options, sink, progress),
    }
}

fn write<W: Write>(
    mut rows: impl Rows,
    options: &Options,
    sink: W,
    progress: &mut dyn FnMut(u64),
) -> Result<(W, Report), TextError> {
    let header = Header {
        tool: options.tool.clone(),
        host: rows.host(),
        clock: Clock {
            source: "unknown".to_owned(),
            resolution_ns: rows.resolution_ns(),
        },
        backend: format!("import:{}", rows.name()),
        error_codes: ErrorCodes::NtStatus,
        notes: rows.notes(),
        ..Header::default()
    };
    let (wall_ns, window_ns) = (rows.start_wall_ns(), rows.window_ns());
    let mut tape = SortedTape::start(sink, &header, options.level, wall_ns, window_ns)?;
    let mut devices = Devices::default();
    let mut read = 0u64;
    while let Some(row) = rows.next_row()? {
        let (index, is_new) = devices.index(&row.device, rows.line())?;
        if is_new {
            tape.device(&Device {
                index,
                name: row.device,
                layer: Layer::Device,
                ..Device::default()
            })?;
        }
        tape.push(index, row.time_ns, row.request)?;
        read += 1;
        if read.is_multiple_of(PROGRESS_EVERY) {
            progress(read);
        }
    }
    if read == 0 {
        return Err(TextError::Empty {
            format: rows.name(),
        });
    }
    tape.drain()?;
    tape.count(&Counters {
        unpaired_issues: rows.unfinished(),
        ..Counters::default()
    });
    let before_zero = tape.before_zero;
    let (sink, summary) = tape.finish()?;
    let report = Report {
        summary,
        other_lines: rows.other_lines(),
        before_zero,
    };
    Ok((sink, report))
}
