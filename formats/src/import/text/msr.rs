//! The MSR Cambridge block traces: a week of 13 servers, in 2007.
//!
//! No line names the columns: Timestamp, Hostname, DiskNumber, Type, Offset, Size, ResponseTime. The
//! timestamp is the FILETIME of the issue; offset and size are in bytes, the response time in
//! 100 ns.

use std::io::BufRead;

use super::error::TextError;
use super::row::{MAX_TIME_NS, Row, Rows};
use crate::request::{Op, Request};

const COLUMNS: [&str; 7] = [
    "Timestamp",
    "Hostname",
    "DiskNumber",
    "Type",
    "Offset",
    "Size",
    "ResponseTime",
];
/// FILETIME of 1970-01-01.
const UNIX_FILETIME: i128 = 116_444_736_000_000_000;
const NS_PER_FILETIME: i128 = 100;

/// Whether a file that begins with this line is such a trace.
pub(super) fn begins(line: &str) -> bool {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let is_number = |index: usize| {
        fields
            .get(index)
            .is_some_and(|field| field.parse::<u64>().is_ok())
    };
    fields.len() == COLUMNS.len()
        && [0, 2, 4, 5, 6].into_iter().all(is_number)
        && op_of(fields[3]).is_some()
}

fn op_of(text: &str) -> Option<Op> {
    match text {
        _ if text.eq_ignore_ascii_case("read") => Some(Op::Read),
        _ if text.eq_ignore_ascii_case("write") => Some(Op::Write),
        _ => None,
    }
}

/// A trace under way.
pub(super) struct Trace<R> {
    reader: ::csv::Reader<R>,
    record: ::csv::StringRecord,
    /// The first row is read to know when the trace begins.
    first: Option<Row>,
    start: u64,
    host: String,
}

impl<R: BufRead> Trace<R> {
    pub fn open(source: R) -> Result<Trace<R>, TextError> {
        let reader = ::csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .trim(::csv::Trim::All)
            .from_reader(source);
        let mut trace = Trace {
            reader,
            record: ::csv::StringRecord::new(),
            first: None,
            start: 0,
            host: String::new(),
        };
        if trace.reader.read_record(&mut trace.record)? {
            trace.start = trace.number(0)?;
            trace.host = trace.field(1)?.to_owned();
            trace.first = Some(trace.row()?);
        }
        Ok(trace)
    }

    fn row(&self) -> Result<Row, TextError> {
        let time = i128::from(self.number(0)?) - i128::from(self.start);
        let time_ns = i64::try_from(time * NS_PER_FILETIME).ok();
        let time_ns = time_ns.filter(|time_ns| time_ns.abs() < MAX_TIME_NS);
        let (offset_bytes, length_bytes) = (self.number(4)?, self.number(5)?);
        if offset_bytes.checked_add(length_bytes).is_none() {
            return Err(self.wrong(5, "offset and size reach past the 64-bit byte range"));
        }
        let latency_ns = self.number(6)?.checked_mul(100);
        Ok(Row {
            device: format!("{}_{}", self.field(1)?, self.number(2)?),
            time_ns: time_ns.ok_or_else(|| self.wrong(0, "36 years from the first one"))?,
            request: Request {
                op: op_of(self.field(3)?).ok_or_else(|| self.wrong(3, "expected Read or Write"))?,
                offset_bytes,
                length_bytes,
                latency_ns: Some(
                    latency_ns.ok_or_else(|| self.wrong(6, "a time beyond 64 bits of ns"))?,
                ),
                ..Request::default()
            },
        })
    }

    fn field(&self, column: usize) -> Result<&str, TextError> {
        self.record.get(column).ok_or_else(|| TextError::Short {
            line: self.line(),
            column: COLUMNS[column].to_owned(),
            fields: self.record.len(),
            expected: COLUMNS.len(),
        })
    }

    fn number(&self, column: usize) -> Result<u64, TextError> {
        let parsed = self.field(column)?.parse::<u64>();
        parsed.map_err(|error| self.wrong(column, &error.to_string()))
    }

    fn wrong(&self, column: usize, problem: &str) -> TextError {
        let found = self.record.get(column).unwrap_or_default();
        TextError::field(self.line(), COLUMNS[column], found, problem)
    }
}

impl<R: BufRead> Rows for Trace<R> {
    fn name(&self) -> &'static str {
        "msr"
    }

    fn next_row(&mut self) -> Result<Option<Row>, TextError> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        match self.reader.read_record(&mut self.record)? {
            true => self.row().map(Some),
            false => Ok(None),
        }
    }

    fn line(&self) -> u64 {
        self.record.position().map_or(0, ::csv::Position::line)
    }

    fn notes(&self) -> Vec<String> {
        vec![
            "imported from an MSR Cambridge trace, which does not tell processes, flushes and the \
             sizes of disks"
                .to_owned(),
        ]
    }

    fn resolution_ns(&self) -> u32 {
        100
    }

    fn start_wall_ns(&self) -> Option<i128> {
        Some((i128::from(self.start) - UNIX_FILETIME) * NS_PER_FILETIME)
    }

    fn host(&self) -> Option<String> {
        (!self.host.is_empty()).then(|| self.host.clone())
    }
}
