//! The text that blkparse prints by default of the files that [`super::blktrace`] writes, without
//! its summary.
//!
//! Columns: device, CPU, number on that CPU, seconds since the first event, process id, action,
//! operation and flags, then `sector + sectors` and the process's name, of a completion the error.
//!
//! Of events at the same time on several CPUs, blkparse prints those of one CPU together, which CPU
//! first depends on what it read before; here it is the lower one. blkparse knows each process id
//! by the first name that it had; here each event has the name of its own time.

use std::io::{self, Write};

use blktrace_parse::{Categories, Kind, Record};

use super::blktrace::schedule::{Event, Schedule};
use super::blktrace::{Report, Source, Survey};
use crate::event::SECTOR_BYTES;
use crate::request::Request;

const NS_PER_SECOND: u64 = 1_000_000_000;

/// Writes the text.
#[derive(Debug)]
pub struct BlkparseWriter<W: Write> {
    schedule: Schedule,
    lines: Lines<W>,
}

impl<W: Write> BlkparseWriter<W> {
    /// Begins the text of the requests that `survey` has looked at.
    pub fn new(sink: W, survey: Survey, source: &Source<'_>) -> Self {
        BlkparseWriter {
            schedule: Schedule::new(survey, source),
            lines: Lines {
                sink,
                first_ns: None,
            },
        }
    }

    /// Writes the next request of the tape, in its turn.
    ///
    /// # Errors
    /// When the sink fails.
    pub fn write(&mut self, request: &Request) -> io::Result<()> {
        let lines = &mut self.lines;
        self.schedule.push(request, &mut |event| lines.write(event))
    }

    /// Writes the rest.
    ///
    /// # Errors
    /// When the sink fails.
    pub fn finish(mut self) -> io::Result<Report> {
        let lines = &mut self.lines;
        let report = self.schedule.finish(&mut |event| lines.write(event))?;
        self.lines.sink.flush()?;
        Ok(report)
    }
}

#[derive(Debug)]
struct Lines<W> {
    sink: W,
    first_ns: Option<u64>,
}

impl<W: Write> Lines<W> {
    fn write(&mut self, event: &Event<'_>) -> io::Result<()> {
        let record = &event.record;
        let first_ns = *self.first_ns.get_or_insert(record.time_ns);
        let since_ns = record.time_ns.saturating_sub(first_ns);
        write!(
            self.sink,
            "{:3},{:<3} {:2} {:8} {:5}.{:09} {:5} {:>2} {:>3} ",
            record.device.major(),
            record.device.minor(),
            record.cpu,
            record.sequence,
            since_ns / NS_PER_SECOND,
            since_ns % NS_PER_SECOND,
            record.pid,
            letter(record.action.kind()),
            rwbs(record),
        )?;
        self.range(record)?;
        match (record.action.kind(), event.name) {
            (Kind::Complete, _) => writeln!(self.sink, "[{}]", record.error),
            (_, Some(name)) => writeln!(self.sink, "[{name}]"),
            // What blkparse's printf makes of no name.
            (_, None) => writeln!(self.sink, "[(null)]"),
        }
    }

    /// Sectors, or the bytes of a command.
    fn range(&mut self, record: &Record<'_>) -> io::Result<()> {
        let categories = record.action.categories();
        let is_command = categories.contains(Categories::PASS_THROUGH);
        let (sector, sectors) = (record.sector, u64::from(record.bytes) / SECTOR_BYTES);
        match (record.action.kind(), sectors) {
            (Kind::Complete, _) if is_command => Ok(()),
            (Kind::Queue | Kind::Insert | Kind::Issue, _) if is_command => {
                write!(self.sink, "{} ", record.bytes)
            }
            (_, 1..) => write!(self.sink, "{sector} + {sectors} "),
            (Kind::Complete, 0) => write!(self.sink, "{sector} "),
            _ => Ok(()),
        }
    }
}

/// The action, in blkparse's letters.
fn letter(kind: Kind) -> &'static str {
    match kind {
        Kind::Queue => "Q",
        Kind::GetRequest => "G",
        Kind::Insert => "I",
        Kind::Issue => "D",
        Kind::Complete => "C",
        _ => "?",
    }
}

/// Operation and flags, in blkparse's letters.
fn rwbs(record: &Record<'_>) -> String {
    let has = |category| record.action.categories().contains(category);
    let operation = match record.bytes {
        _ if has(Categories::DISCARD) => 'D',
        _ if has(Categories::WRITE) => 'W',
        0 => 'N',
        _ => 'R',
    };
    let letters = [
        (has(Categories::FLUSH), 'F'),
        (true, operation),
        (has(Categories::FUA), 'F'),
        (has(Categories::READAHEAD), 'A'),
        (has(Categories::SYNC), 'S'),
        (has(Categories::META), 'M'),
    ];
    let set = letters.into_iter().filter(|(is_set, _)| *is_set);
    set.map(|(_, letter)| letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{DeviceIndex, Flags, Op, Process};
    use crate::tape::Device;

    /// The text is that of blkparse 1.2.0 for the files that [`super::super::blktrace`] writes of
    /// the same requests.
    #[test]
    fn lines_are_those_of_blkparse() {
        let write = Request {
            time_ns: 1_500_000,
            device: DeviceIndex(0),
            op: Op::Write,
            flags: Flags::SYNC | Flags::META,
            offset_bytes: 4096,
            length_bytes: 8192,
            latency_ns: Some(2_000_000_000),
            queue_ns: Some(500_000),
            process: Some(Process {
                pid: 4211,
                name: "jbd2/sda1-8".into(),
            }),
            cpu: Some(1),
            error: Some(5),
            ..Request::default()
        };
        let flush = Request {
            time_ns: 2_000_000,
            op: Op::Flush,
            latency_ns: Some(1_000),
            ..Request::default()
        };
        let command = Request {
            time_ns: 3_000_000,
            op: Op::Other,
            length_bytes: 36,
            ..Request::default()
        };
        let devices = [Device {
            name: "8,0".to_owned(),
            ..Device::default()
        }];
        let requests = [write, flush, command];
        let mut survey = Survey::new();
        requests.iter().for_each(|request| survey.look_at(request));
        let source = Source {
            devices: &devices,
            ..Source::default()
        };
        let mut text = Vec::new();
        let mut writer = BlkparseWriter::new(&mut text, survey, &source);
        for request in &requests {
            writer.write(request).unwrap();
        }
        writer.finish().unwrap();
        let expected = "
  8,0    1        1     0.000000000  4211  Q WSM 8 + 16 [jbd2/sda1-8]
  8,0    1        2     0.000000000  4211  G WSM 8 + 16 [jbd2/sda1-8]
  8,0    1        3     0.000000000  4211  I WSM 8 + 16 [jbd2/sda1-8]
  8,0    1        4     0.000500000  4211  D WSM 8 + 16 [jbd2/sda1-8]
  8,0    0        1     0.001000000     0  Q FWS [(null)]
  8,0    0        2     0.001000000     0  G FWS [(null)]
  8,0    0        3     0.001000000     0  D  FN [(null)]
  8,0    0        4     0.001001000     0  C  FN 0 [0]
  8,0    0        5     0.001001000     0  C  WS 0 [0]
  8,0    0        6     0.002000000     0  Q   R 36 [(null)]
  8,0    0        7     0.002000000     0  G   R [(null)]
  8,0    0        8     0.002000000     0  I   R 36 [(null)]
  8,0    0        9     0.002000000     0  D   R 36 [(null)]
  8,0    1        5     2.000500000  4211  C WSM 8 + 16 [65531]
";
        assert_eq!(format!("\n{}", String::from_utf8(text).unwrap()), expected);
    }
}
