//! The project's CSV: one request a row, every value in it readable by eye and by any tool.
//!
//! Columns and meaning are specified in `docs/format.md`, "CSV". A value that the source did not
//! have is an empty field. Devices stand by name, and so do control groups and files, if they are
//! asked for. What a tape says besides its requests (losses, anchors, sector sizes) is not in the CSV.

use std::io::{self, Read, Write};
use std::sync::Arc;

use thiserror::Error;

use crate::request::{DeviceIndex, Flags, Process, Request};
use crate::shared_names::SharedNames;
use crate::tape::{Name, NameKind, Names, name_id};

/// The columns, in the order in which they are written.
pub const COLUMNS: [&str; 12] = [
    "time_ns",
    "device",
    "op",
    "flags",
    "offset_bytes",
    "length_bytes",
    "latency_ns",
    "queue_ns",
    "pid",
    "process",
    "cpu",
    "error",
];

/// The columns that are written behind them when they are asked for.
pub const MORE_COLUMNS: [&str; 2] = ["cgroup", "file"];

/// All columns, by which fields are found.
const KNOWN: [&str; COLUMNS.len() + MORE_COLUMNS.len()] = {
    let mut known = [""; COLUMNS.len() + MORE_COLUMNS.len()];
    let mut at = 0;
    while at < known.len() {
        known[at] = match at < COLUMNS.len() {
            true => COLUMNS[at],
            false => MORE_COLUMNS[at - COLUMNS.len()],
        };
        at += 1;
    }
    known
};

/// Which of [`MORE_COLUMNS`] are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct More {
    /// The control group's name, else its number.
    pub cgroup: bool,
    /// The file's name, else its number.
    pub file: bool,
}

/// Columns without which a row is no request.
const REQUIRED: [&str; 4] = ["time_ns", "op", "offset_bytes", "length_bytes"];

/// Name given to the device of rows that name none.
const UNNAMED_DEVICE: &str = "device0";

/// What can be wrong with a CSV.
#[derive(Debug, Error)]
pub enum CsvError {
    /// The bytes are not CSV, or could not be read.
    #[error("{0}")]
    Csv(#[from] ::csv::Error),
    /// The first line does not name the columns.
    #[error(
        "line 1: no column named {missing:?}; the first line must name the columns, of which \
         time_ns, op, offset_bytes and length_bytes are needed (found: {found})"
    )]
    MissingColumn {
        /// The column looked for.
        missing: &'static str,
        /// The first line.
        found: String,
    },
    /// A column that would be lost.
    #[error("line 1: unknown column {name:?}; known are {known}; rename or remove it", known = KNOWN.join(", "))]
    UnknownColumn {
        /// Its name.
        name: String,
    },
    /// A column stands twice.
    #[error("line 1: column {name:?} stands twice")]
    DoubleColumn {
        /// Its name.
        name: &'static str,
    },
    /// A field does not hold what its column says.
    #[error("line {line}, byte {byte}: {column} is {found:?}: {problem}")]
    Field {
        /// Line, from 1.
        line: u64,
        /// Byte offset of the row in the input.
        byte: u64,
        /// Column.
        column: &'static str,
        /// What stands there.
        found: String,
        /// What was expected.
        problem: String,
    },
    /// More devices than a tape can name.
    #[error("line {line}: more than 65,536 different devices")]
    TooManyDevices {
        /// Line, from 1.
        line: u64,
    },
}

/// Writes requests as CSV.
pub struct CsvWriter<W: Write> {
    inner: ::csv::Writer<W>,
    more: More,
    field: Vec<u8>,
}

impl<W: Write> CsvWriter<W> {
    /// Writes the line of column names.
    pub fn new(sink: W, more: More) -> io::Result<Self> {
        let mut inner = ::csv::Writer::from_writer(sink);
        let asked = [(more.cgroup, MORE_COLUMNS[0]), (more.file, MORE_COLUMNS[1])];
        let asked = asked
            .into_iter()
            .filter_map(|(asked, name)| asked.then_some(name));
        inner
            .write_record(COLUMNS.into_iter().chain(asked))
            .map_err(plain)?;
        Ok(CsvWriter {
            inner,
            more,
            field: Vec::with_capacity(32),
        })
    }

    /// Writes one row; `device` is the name of the request's device, `names` are those of control
    /// groups and files.
    pub fn write(&mut self, request: &Request, device: &str, names: &Names) -> io::Result<()> {
        self.number(Some(request.time_ns))?;
        self.text(device)?;
        self.text(request.op.name())?;
        self.display(request.flags)?;
        self.number(Some(request.offset_bytes))?;
        self.number(Some(request.length_bytes))?;
        self.number(request.latency_ns)?;
        self.number(request.queue_ns)?;
        self.number(request.process.as_ref().map(|process| process.pid))?;
        let process = request.process.as_ref();
        self.text(process.map_or("", |process| &*process.name))?;
        self.number(request.cpu)?;
        self.number(request.error)?;
        if self.more.cgroup {
            self.named(NameKind::Cgroup, request.cgroup, names)?;
        }
        if self.more.file {
            self.named(NameKind::File, request.file, names)?;
        }
        self.inner.write_record(None::<&[u8]>).map_err(plain)
    }

    /// A name where there is one, else the number.
    fn named(&mut self, kind: NameKind, id: Option<u64>, names: &Names) -> io::Result<()> {
        match id.and_then(|id| names.get(kind, id)) {
            Some(name) => self.text(name),
            None => self.number(id),
        }
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        self.inner.write_field(text).map_err(plain)
    }

    fn number<N: std::fmt::Display>(&mut self, number: Option<N>) -> io::Result<()> {
        match number {
            Some(number) => self.display(number),
            None => self.text(""),
        }
    }

    fn display(&mut self, value: impl std::fmt::Display) -> io::Result<()> {
        self.field.clear();
        write!(self.field, "{value}")?;
        self.inner.write_field(&self.field).map_err(plain)
    }

    /// Writes out what is buffered.
    pub fn finish(mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// The error of the sink itself, so that its kind is not lost.
fn plain(error: ::csv::Error) -> io::Error {
    match error.into_kind() {
        ::csv::ErrorKind::Io(error) => error,
        kind => io::Error::other(format!("{kind:?}")),
    }
}

/// Reads requests from CSV, with the columns in any order.
pub struct CsvReader<R: Read> {
    inner: ::csv::Reader<R>,
    places: [Option<usize>; KNOWN.len()],
    record: ::csv::StringRecord,
    devices: Vec<String>,
    process_names: SharedNames,
    /// Names of control groups and files so far, and those that nobody has taken yet.
    known: Names,
    new: Vec<Name>,
}

impl<R: Read> CsvReader<R> {
    /// Reads the line of column names.
    pub fn new(source: R) -> Result<Self, CsvError> {
        let mut inner = ::csv::ReaderBuilder::new().from_reader(source);
        let places = places_of_columns(inner.headers()?)?;
        Ok(CsvReader {
            inner,
            places,
            record: ::csv::StringRecord::new(),
            devices: Vec::new(),
            process_names: SharedNames::new(),
            known: Names::default(),
            new: Vec::new(),
        })
    }

    /// Names of the devices met so far; [`Request::device`] is an index into them.
    pub fn devices(&self) -> &[String] {
        &self.devices
    }

    /// The next row, `None` at the end.
    pub fn next_request(&mut self) -> Result<Option<Request>, CsvError> {
        if !self.inner.read_record(&mut self.record)? {
            return Ok(None);
        }
        let device = self.device()?;
        let error = self.optional::<u32>(11)?;
        let request = Request {
            time_ns: self.needed(0)?,
            device,
            op: self.needed(2)?,
            flags: self.optional::<Flags>(3)?.unwrap_or_default(),
            offset_bytes: self.needed(4)?,
            length_bytes: self.needed(5)?,
            latency_ns: self.optional(6)?,
            queue_ns: self.optional(7)?,
            process: self.process()?,
            cgroup: self.named(NameKind::Cgroup, 12),
            cpu: self.optional(10)?,
            error,
            file: self.named(NameKind::File, 13),
        };
        if request.end_bytes().is_none() {
            return Err(self.problem(5, "offset and length reach past the 64-bit byte range"));
        }
        Ok(Some(request))
    }

    fn text(&self, column: usize) -> &str {
        self.places[column]
            .and_then(|place| self.record.get(place))
            .unwrap_or("")
    }

    fn needed<T: std::str::FromStr<Err: std::fmt::Display>>(
        &self,
        column: usize,
    ) -> Result<T, CsvError> {
        self.text(column)
            .parse()
            .map_err(|error: T::Err| self.problem(column, &error))
    }

    fn optional<T: std::str::FromStr<Err: std::fmt::Display>>(
        &self,
        column: usize,
    ) -> Result<Option<T>, CsvError> {
        if self.text(column).is_empty() {
            Ok(None)
        } else {
            self.needed(column).map(Some)
        }
    }

    /// Names of control groups and files that rows have told since the last call.
    pub fn take_names(&mut self) -> Vec<Name> {
        std::mem::take(&mut self.new)
    }

    /// A number as it is; a name gets that of its hash.
    fn named(&mut self, kind: NameKind, column: usize) -> Option<u64> {
        let text = Some(self.text(column)).filter(|text| !text.is_empty())?;
        if let Ok(id) = text.parse() {
            return Some(id);
        }
        let id = name_id(text);
        if self.known.get(kind, id).is_none() {
            let name: Arc<str> = Arc::from(text);
            if self.known.insert(kind, id, &name) {
                self.new.push(Name { kind, id, name });
            }
        }
        Some(id)
    }

    fn device(&mut self) -> Result<DeviceIndex, CsvError> {
        let name = Some(self.text(1))
            .filter(|name| !name.is_empty())
            .unwrap_or(UNNAMED_DEVICE);
        let known = self.devices.iter().position(|device| device == name);
        let position = known.unwrap_or(self.devices.len());
        let Ok(index) = u16::try_from(position) else {
            return Err(CsvError::TooManyDevices { line: self.line() });
        };
        if known.is_none() {
            let name = name.to_owned();
            self.devices.push(name);
        }
        Ok(DeviceIndex(index))
    }

    fn process(&mut self) -> Result<Option<Process>, CsvError> {
        let Some(pid) = self.optional::<u32>(8)? else {
            if self.text(9).is_empty() {
                return Ok(None);
            }
            return Err(self.problem(9, "a process needs its pid in column pid"));
        };
        let name = self.places[9].and_then(|place| self.record.get(place));
        let name = self.process_names.share(name.unwrap_or("").as_bytes());
        Ok(Some(Process { pid, name }))
    }

    fn line(&self) -> u64 {
        self.record.position().map_or(0, ::csv::Position::line)
    }

    fn problem(&self, column: usize, problem: &(impl ToString + ?Sized)) -> CsvError {
        CsvError::Field {
            line: self.line(),
            byte: self.record.position().map_or(0, ::csv::Position::byte),
            column: KNOWN[column],
            found: self.text(column).chars().take(80).collect(),
            problem: problem.to_string(),
        }
    }
}

fn places_of_columns(
    headers: &::csv::StringRecord,
) -> Result<[Option<usize>; KNOWN.len()], CsvError> {
    let mut places = [None; KNOWN.len()];
    for (place, name) in headers.iter().enumerate() {
        let Some(column) = KNOWN.iter().position(|column| *column == name) else {
            if !headers.iter().any(|header| REQUIRED.contains(&header)) {
                break; // no line of names at all: say so, not that its first value is no column
            }
            return Err(CsvError::UnknownColumn {
                name: name.chars().take(80).collect(),
            });
        };
        if places[column].replace(place).is_some() {
            return Err(CsvError::DoubleColumn {
                name: KNOWN[column],
            });
        }
    }
    for missing in REQUIRED {
        let column = KNOWN.iter().position(|column| *column == missing);
        if column.is_none_or(|column| places[column].is_none()) {
            let found = headers
                .iter()
                .collect::<Vec<_>>()
                .join(",")
                .chars()
                .take(200)
                .collect();
            return Err(CsvError::MissingColumn { missing, found });
        }
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Op;

    fn full() -> Request {
        Request {
            time_ns: 17,
            device: DeviceIndex(0),
            op: Op::Write,
            flags: Flags::SYNC | Flags::FUA,
            offset_bytes: 4096,
            length_bytes: 512,
            latency_ns: Some(90),
            queue_ns: Some(3),
            process: Some(Process {
                pid: 42,
                name: "imap, \"x\"".into(),
            }),
            cgroup: None,
            cpu: Some(1),
            error: Some(5),
            file: None,
        }
    }

    fn read(text: &str) -> Result<Vec<Request>, CsvError> {
        let mut reader = CsvReader::new(text.as_bytes())?;
        let mut rows = Vec::new();
        while let Some(row) = reader.next_request()? {
            rows.push(row);
        }
        Ok(rows)
    }

    fn message(text: &str) -> String {
        read(text).unwrap_err().to_string()
    }

    #[test]
    fn a_row_is_written_as_specified() {
        let mut out = Vec::new();
        let mut writer = CsvWriter::new(&mut out, More::default()).unwrap();
        let names = Names::default();
        writer.write(&full(), "sda", &names).unwrap();
        writer
            .write(
                &Request {
                    op: Op::Flush,
                    ..Request::default()
                },
                "sda",
                &names,
            )
            .unwrap();
        writer.finish().unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "time_ns,device,op,flags,offset_bytes,length_bytes,latency_ns,queue_ns,pid,process,cpu,error\n\
             17,sda,write,sync+fua,4096,512,90,3,42,\"imap, \"\"x\"\"\",1,5\n\
             0,sda,flush,,0,0,,,,,,\n"
        );
    }

    #[test]
    fn what_was_written_reads_back_with_columns_in_any_order() {
        let rows = read(
            "process,pid,length_bytes,op,time_ns,offset_bytes,flags,latency_ns,queue_ns,cpu,error,device\n\
             \"imap, \"\"x\"\"\",42,512,write,17,4096,sync+fua,90,3,1,5,sda\n",
        )
        .unwrap();
        assert_eq!(rows, [full()]);
    }

    #[test]
    fn control_groups_and_files_stand_by_name_when_they_are_asked_for() {
        let mut names = Names::default();
        names.insert(NameKind::Cgroup, 9, "/a,b");
        names.insert(NameKind::File, name_id("C:"), "C:");
        let request = |cgroup, file| Request {
            cgroup,
            file,
            ..Request::default()
        };
        let rows = [
            request(Some(9), Some(name_id("C:"))),
            request(Some(8), None),
            request(None, Some(7)),
        ];
        let write = |more| {
            let mut out = Vec::new();
            let mut writer = CsvWriter::new(&mut out, more).unwrap();
            for row in &rows {
                writer.write(row, "d", &names).unwrap();
            }
            writer.finish().unwrap();
            String::from_utf8(out).unwrap()
        };
        let (cgroup, file) = (true, true);
        let both = write(More { cgroup, file });
        let ends: Vec<&str> = both
            .lines()
            .map(|line| line.rsplit_once(",,,").map_or(line, |(_, end)| end))
            .collect();
        assert!(ends[0].ends_with(",cpu,error,cgroup,file"), "{}", ends[0]);
        assert_eq!(ends[1..], ["\"/a,b\",C:", "8,", "7"]);
        let one = write(More {
            file,
            ..More::default()
        });
        assert!(one.starts_with(&format!("{},file\n0,d,read", COLUMNS.join(","))));

        // What has a name gets the number of its name, what has none keeps its own.
        let mut reader = CsvReader::new(both.as_bytes()).unwrap();
        let mut read = || reader.next_request().unwrap().unwrap();
        let expected = [
            request(Some(name_id("/a,b")), Some(name_id("C:"))),
            rows[1].clone(),
            rows[2].clone(),
        ];
        assert_eq!([read(), read(), read()], expected);
        let names: Vec<String> = reader
            .take_names()
            .iter()
            .map(|name| name.name.to_string())
            .collect();
        assert_eq!(names, ["/a,b", "C:"]);
        assert!(reader.take_names().is_empty());
    }

    #[test]
    fn absent_columns_and_empty_fields_are_unknown() {
        let rows = read("time_ns,op,offset_bytes,length_bytes\n5,read,0,4096\n").unwrap();
        let expected = Request {
            time_ns: 5,
            length_bytes: 4096,
            ..Request::default()
        };
        assert_eq!(rows, [expected]);
    }

    #[test]
    fn devices_are_numbered_as_they_come() {
        let text = "time_ns,device,op,offset_bytes,length_bytes\n1,b,read,0,1\n2,a,read,0,1\n3,b,read,0,1\n";
        let mut reader = CsvReader::new(text.as_bytes()).unwrap();
        let mut seen = Vec::new();
        while let Some(row) = reader.next_request().unwrap() {
            seen.push(row.device.0);
        }
        assert_eq!(
            (seen, reader.devices()),
            (vec![0, 1, 0], &["b".to_owned(), "a".to_owned()][..])
        );
    }

    #[test]
    fn errors_say_where_what_and_what_was_expected() {
        let head = "time_ns,op,offset_bytes,length_bytes\n";
        assert_eq!(
            message(&format!("{head}1,read,0,4096\n2,read,x,4096\n")),
            "line 3, byte 51: offset_bytes is \"x\": invalid digit found in string"
        );
        assert!(message(&format!("{head}1,erase,0,1\n")).contains("unknown operation \"erase\""));
        assert!(message(&format!("{head}1,read,18446744073709551615,1\n")).contains("64-bit"));
        assert!(message("time_ns,op,offset_bytes\n").contains("no column named \"length_bytes\""));
        assert!(message("17,sda,write\n").contains("no column named \"time_ns\""));
        assert!(message(&head.replace("op", "op,latency")).contains("unknown column \"latency\""));
        assert!(message(&head.replace("op", "op,op")).contains("stands twice"));
        assert!(message("").contains("no column named"));
    }
}
