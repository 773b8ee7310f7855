//! What `xperf -a dumper` prints, and the SNIA IOTTA traces of Microsoft's production servers.
//!
//! Between `BeginHeader` and `EndHeader` stands a line for each kind of event, which names its
//! columns; newer versions have more of them. Then comes a line for each event. Times are in microseconds
//! since the start of the trace; that of a DiskRead, DiskWrite or DiskFlush is the completion,
//! `ElapsedTime` before which it was issued. An Init line with the same packet, if it is there,
//! tells the processor.

use std::collections::HashMap;
use std::io::{BufRead, Read};

use super::error::TextError;
use super::number::whole;
use super::row::{MAX_LINE_BYTES, MAX_TIME_NS, Processes, Row, Rows};
use crate::import::etl::requests::flags_of;
use crate::import::inits::{Init, Inits};
use crate::request::{Flags, Op, Request};

const BEGIN: &str = "BeginHeader";
const END: &str = "EndHeader";
/// FILETIME of 1970-01-01.
const UNIX_FILETIME: i128 = 116_444_736_000_000_000;
/// Most kinds of events whose columns are remembered; xperf has some hundred.
const MAX_KINDS: usize = 4096;

/// Whether a file that begins with this line is such a dump.
pub(super) fn begins(line: &str) -> bool {
    line.trim() == BEGIN
}

/// Events of which something is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Done(Op),
    Init,
}

fn kind_of(name: &str) -> Option<Kind> {
    match name {
        "DiskRead" => Some(Kind::Done(Op::Read)),
        "DiskWrite" => Some(Kind::Done(Op::Write)),
        "DiskFlush" => Some(Kind::Done(Op::Flush)),
        "DiskReadInit" | "DiskWriteInit" | "DiskFlushInit" => Some(Kind::Init),
        _ => None,
    }
}

/// A dump under way.
pub(super) struct Dump<R> {
    source: R,
    /// Columns of each kind that is read, by name.
    columns: HashMap<String, HashMap<String, usize>>,
    text: Vec<u8>,
    line: u64,
    others: u64,
    start_wall_ns: Option<i128>,
    /// A line behind the header that is read already.
    pending: bool,
    inits: Inits,
    processes: Processes,
}

impl<R: BufRead> Dump<R> {
    /// Reads the header, and the line behind it, which may tell the time of day.
    pub fn open(source: R) -> Result<Dump<R>, TextError> {
        let mut dump = Dump {
            source,
            columns: HashMap::new(),
            text: Vec::new(),
            line: 0,
            others: 0,
            start_wall_ns: None,
            pending: false,
            inits: Inits::new(false),
            processes: Processes::default(),
        };
        while dump.read_line()? {
            let text = String::from_utf8_lossy(&dump.text).into_owned();
            if text.trim() == END {
                break;
            }
            dump.name_columns(&text);
        }
        if dump.read_line()? {
            dump.pending = true;
            dump.start_wall_ns = trace_start(&String::from_utf8_lossy(&dump.text));
        }
        Ok(dump)
    }

    /// Reads the next line into `text`, without its end; says whether there was one.
    fn read_line(&mut self) -> Result<bool, TextError> {
        if std::mem::take(&mut self.pending) {
            return Ok(true);
        }
        self.text.clear();
        let mut limited = self.source.by_ref().take(MAX_LINE_BYTES);
        let read = limited.read_until(b'\n', &mut self.text);
        let line = self.line;
        let bytes = read.map_err(|source| TextError::Read { line, source })?;
        self.line += u64::from(bytes > 0);
        if bytes as u64 == MAX_LINE_BYTES && !self.text.ends_with(b"\n") {
            let start = String::from_utf8_lossy(&self.text);
            return Err(TextError::field(
                self.line,
                "the line",
                &start,
                "it is too long",
            ));
        }
        Ok(bytes > 0)
    }

    fn name_columns(&mut self, text: &str) {
        let mut names = text.split(',').map(str::trim);
        let Some(kind) = names.next().filter(|kind| kind_of(kind).is_some()) else {
            return;
        };
        if self.columns.len() < MAX_KINDS {
            let places = names.zip(1..).map(|(name, place)| (name.to_owned(), place));
            self.columns.insert(kind.to_owned(), places.collect());
        }
    }

    /// The request of the line at hand, if it is one.
    fn row(&mut self) -> Result<Option<Row>, TextError> {
        let text = String::from_utf8_lossy(&self.text).into_owned();
        let fields: Vec<&str> = text.split(',').map(str::trim).collect();
        let name = fields.first().copied().unwrap_or_default();
        let Some(kind) = kind_of(name) else {
            self.others += u64::from(!name.is_empty());
            return Ok(None);
        };
        let Some(columns) = self.columns.get(name) else {
            let problem = "its columns are not named between BeginHeader and EndHeader";
            return Err(TextError::field(self.line, "the event", name, problem));
        };
        let line = Line {
            columns,
            fields: &fields,
            number: self.line,
        };
        match kind {
            Kind::Done(op) => done(&line, op, &mut self.inits, &mut self.processes).map(Some),
            Kind::Init => {
                let init = Init {
                    time_ns: line.time_ns("TimeStamp")?,
                    process_id: None,
                    processor: line.cpu()?,
                };
                self.inits.begin(line.whole("IrpPtr")?, init);
                Ok(None)
            }
        }
    }
}

/// A line with its columns.
struct Line<'a> {
    columns: &'a HashMap<String, usize>,
    fields: &'a [&'a str],
    number: u64,
}

impl Line<'_> {
    /// What stands in a column; `None` if the dump does not have it.
    fn optional(&self, column: &str) -> Result<Option<&str>, TextError> {
        let Some(place) = self.columns.get(column) else {
            return Ok(None);
        };
        let found = self.fields.get(*place).copied();
        found.map(Some).ok_or_else(|| TextError::Short {
            line: self.number,
            column: column.to_owned(),
            fields: self.fields.len(),
            expected: place + 1,
        })
    }

    fn text(&self, column: &'static str) -> Result<&str, TextError> {
        self.optional(column)?.ok_or_else(|| {
            let names: Vec<&str> = self.columns.keys().map(String::as_str).collect();
            TextError::MissingColumn {
                line: self.number,
                missing: column,
                advice: "the dump's header must name it for this event",
                found: names.join(", ").chars().take(300).collect(),
            }
        })
    }

    fn wrong(&self, column: &'static str, problem: &str) -> TextError {
        let found = self.optional(column).ok().flatten().unwrap_or_default();
        TextError::field(self.number, column, found, problem)
    }

    fn whole(&self, column: &'static str) -> Result<u64, TextError> {
        whole(self.text(column)?).map_err(|problem| self.wrong(column, &problem))
    }

    /// Microseconds.
    fn time_ns(&self, column: &'static str) -> Result<i64, TextError> {
        let ns = self.whole(column)?.checked_mul(1000);
        let ns = ns.and_then(|ns| i64::try_from(ns).ok());
        let ns = ns.filter(|ns| *ns < MAX_TIME_NS);
        ns.ok_or_else(|| self.wrong(column, "36 years"))
    }

    /// Old versions do not tell the processor.
    fn cpu(&self) -> Result<Option<u16>, TextError> {
        let Some(text) = self.optional("CPU")? else {
            return Ok(None);
        };
        let parsed = text.parse::<u16>();
        parsed
            .map(Some)
            .map_err(|error| self.wrong("CPU", &error.to_string()))
    }
}

/// The request of a completion.
fn done(
    line: &Line<'_>,
    op: Op,
    inits: &mut Inits,
    processes: &mut Processes,
) -> Result<Row, TextError> {
    const PROCESS: &str = "Process Name ( PID)";
    let (done_ns, elapsed_ns) = (line.time_ns("TimeStamp")?, line.time_ns("ElapsedTime")?);
    let time_ns = done_ns - elapsed_ns; // both are below 2^60
    let (offset_bytes, length_bytes) = match op {
        Op::Flush => (0, 0),
        _ => (line.whole("ByteOffset")?, line.whole("IOSize")?),
    };
    if offset_bytes.checked_add(length_bytes).is_none() {
        return Err(line.wrong("IOSize", "offset and size reach past the 64-bit byte range"));
    }
    let irp_flags = match line.optional("IrpFlags")? {
        Some(_) => line.whole("IrpFlags")?,
        None => 0,
    };
    let mut flags = flags_of(irp_flags as u32);
    if matches!(line.optional("I/O Pri")?, Some("VeryLow" | "Very Low")) {
        flags |= Flags::BACKGROUND;
    }
    let irp = line.whole("IrpPtr")?;
    let init = inits.end(irp, Some(time_ns));
    let process = line.optional(PROCESS)?;
    Ok(Row {
        device: format!("PhysicalDrive{}", line.whole("DiskNum")?),
        time_ns,
        request: Request {
            op,
            flags,
            offset_bytes,
            length_bytes,
            latency_ns: Some(elapsed_ns.unsigned_abs()),
            process: process.and_then(|text| processes.parse(text)),
            cpu: init.and_then(|init| init.processor).map(u32::from),
            ..Request::default()
        },
    })
}

/// Nanoseconds since 1970 of `Trace Start: FILETIME`.
fn trace_start(text: &str) -> Option<i128> {
    let (_, rest) = text.split_once("Trace Start:")?;
    let rest = rest.trim_start();
    let end = rest
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(rest.len());
    let filetime: u64 = rest.get(..end)?.parse().ok()?;
    Some((i128::from(filetime) - UNIX_FILETIME) * 100)
}

impl<R: BufRead> Rows for Dump<R> {
    fn name(&self) -> &'static str {
        "xperf"
    }

    fn next_row(&mut self) -> Result<Option<Row>, TextError> {
        while self.read_line()? {
            if let Some(row) = self.row()? {
                return Ok(Some(row));
            }
        }
        self.inits.finish();
        Ok(None)
    }

    fn line(&self) -> u64 {
        self.line
    }

    fn notes(&self) -> Vec<String> {
        vec![
            "imported from a dump of xperf, in whole microseconds, which does not tell the sizes of \
             disks and the outcome of requests"
                .to_owned(),
        ]
    }

    fn resolution_ns(&self) -> u32 {
        1000
    }

    fn start_wall_ns(&self) -> Option<i128> {
        self.start_wall_ns
    }

    fn other_lines(&self) -> u64 {
        self.others
    }

    fn unfinished(&self) -> u64 {
        self.inits.unfinished
    }
}
