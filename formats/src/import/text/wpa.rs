//! Tables of requests that wpaexporter and Windows Performance Analyzer export as CSV.
//!
//! The first line names the columns, with their units: `Complete Time (s)`, `IO Time (µs)`, `Size (B)`.
//! Which columns there are and in what order is the user's choice; numbers are written as the
//! user's Windows does: `1.176567818` or `1,176567818`, `8,704` or `16.384`, with `,` or `;` between
//! columns. What stands before nine digits in the time of completion is the decimal mark.

use std::io::BufRead;

use super::error::TextError;
use super::number::{Mark, scaled, whole};
use super::row::{MAX_TIME_NS, Processes, Row, Rows};
use crate::request::{Flags, Op, Request};

/// What is read, and under which names it may stand.
const NAMES: [(Field, &[&str]); 9] = [
    (Field::Op, &["IO Type"]),
    (Field::Complete, &["Complete Time"]),
    (Field::Init, &["Init Time", "IO Init Time"]),
    (Field::Duration, &["IO Time"]),
    (Field::Size, &["Size"]),
    (Field::Offset, &["Min Offset", "Offset", "Byte Offset"]),
    (Field::Disk, &["Disk"]),
    (Field::Process, &["Process"]),
    (Field::Priority, &["Priority", "IO Priority"]),
];
/// How many requests a row stands for: must be 1.
const COUNT: &str = "Count";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Op,
    Complete,
    Init,
    Duration,
    Size,
    Offset,
    Disk,
    Process,
    Priority,
}

/// A column of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Column {
    place: usize,
    /// As it stands in the first line.
    title: String,
    /// Digits behind the decimal mark that make whole nanoseconds, if it has a unit of time.
    digits: Option<usize>,
}

/// Whether a file that begins with this line is such a table.
pub(super) fn begins(line: &str) -> bool {
    let titles: Vec<String> = line
        .split(delimiter(line) as char)
        .map(|title| name_of(title).to_ascii_lowercase())
        .collect();
    let has = |name: &str| titles.iter().any(|title| title == name);
    has("io type") && has("size") && (has("complete time") || has("init time"))
}

/// `;` where the decimal mark is a comma.
fn delimiter(line: &str) -> u8 {
    let count = |letter| line.bytes().filter(|byte| *byte == letter).count();
    [b';', b'\t']
        .into_iter()
        .find(|letter| count(*letter) > count(b','))
        .unwrap_or(b',')
}

/// The title without unit and quotes.
fn name_of(title: &str) -> &str {
    let title = title.trim().trim_matches('"');
    title.split(" (").next().unwrap_or(title).trim()
}

/// Digits behind the mark that make nanoseconds of a title's unit.
fn digits_of(title: &str) -> Option<usize> {
    let unit = title
        .trim()
        .trim_matches('"')
        .strip_suffix(')')?
        .rsplit_once('(')?
        .1;
    match unit {
        "s" => Some(9),
        "ms" => Some(6),
        "ns" => Some(0),
        // The letter in front is a micro sign, a Greek letter, or what an encoding made of it.
        _ if unit.ends_with('s') && unit.chars().count() <= 3 => Some(3),
        _ => None,
    }
}

/// A table under way.
pub(super) struct Table<R> {
    reader: ::csv::Reader<R>,
    record: ::csv::ByteRecord,
    fields: Vec<String>,
    columns: Vec<(Field, Column)>,
    count: Option<Column>,
    mark: Option<Mark>,
    processes: Processes,
    line: u64,
}

impl<R: BufRead> Table<R> {
    /// Reads the names of the columns.
    pub fn open(mut source: R, without_offsets: bool) -> Result<Table<R>, TextError> {
        let start = source
            .fill_buf()
            .map_err(|source| TextError::Read { line: 0, source })?;
        let first = start
            .split(|byte| *byte == b'\n')
            .next()
            .unwrap_or_default();
        let delimiter = delimiter(&String::from_utf8_lossy(first));
        let mut reader = ::csv::ReaderBuilder::new()
            .delimiter(delimiter)
            .flexible(true)
            .has_headers(false)
            .from_reader(source);
        let mut record = ::csv::ByteRecord::new();
        reader.read_byte_record(&mut record)?;
        let titles: Vec<String> = record
            .iter()
            .map(|title| {
                String::from_utf8_lossy(title)
                    .trim_start_matches('\u{feff}')
                    .to_owned()
            })
            .collect();
        let (columns, count) = columns_of(&titles);
        let table = Table {
            reader,
            record,
            fields: Vec::new(),
            columns,
            count,
            mark: None,
            processes: Processes::default(),
            line: 1,
        };
        table.check(&titles, without_offsets)?;
        Ok(table)
    }

    /// Whether the columns tell what a tape needs.
    fn check(&self, titles: &[String], without_offsets: bool) -> Result<(), TextError> {
        let missing = |missing, advice| {
            let found: String = titles.join(", ").chars().take(300).collect();
            Err(TextError::MissingColumn {
                line: 1,
                missing,
                advice,
                found,
            })
        };
        let has = |field| self.column(field).is_some();
        if !has(Field::Op) {
            return missing(
                "IO Type",
                "add it to the table in Windows Performance Analyzer",
            );
        }
        if !has(Field::Complete) && !has(Field::Init) {
            return missing(
                "Complete Time (s)",
                "add it, or Init Time (s), to the table",
            );
        }
        if self
            .column(Field::Size)
            .is_none_or(|size| !size.title.ends_with("(B)"))
        {
            return missing("Size (B)", "add it to the table, in bytes");
        }
        if !has(Field::Offset) && !without_offsets {
            return missing(
                "Min Offset",
                "add it to the table; or take the table for its sizes and times alone with \
                 --without-offsets",
            );
        }
        Ok(())
    }

    fn column(&self, field: Field) -> Option<&Column> {
        let known = self.columns.iter().find(|(known, _)| *known == field);
        known.map(|(_, column)| column)
    }

    fn text(&self, column: &Column) -> Result<&str, TextError> {
        let found = self.fields.get(column.place).map(|field| field.trim());
        found.ok_or_else(|| TextError::Short {
            line: self.line,
            column: column.title.clone(),
            fields: self.fields.len(),
            expected: column.place + 1,
        })
    }

    fn wrong(&self, column: &Column, problem: impl std::fmt::Display) -> TextError {
        let found = self.fields.get(column.place).map_or("", String::as_str);
        TextError::field(self.line, &column.title, found, problem)
    }

    /// A time in nanoseconds.
    fn time(&self, field: Field, mark: Mark) -> Result<Option<u64>, TextError> {
        let Some(column) = self.column(field) else {
            return Ok(None);
        };
        let Some(digits) = column.digits else {
            return Err(self.wrong(column, "expected a unit in the column's name, such as (s)"));
        };
        match scaled(self.text(column)?, mark, digits) {
            Ok(time) if time < MAX_TIME_NS as u64 => Ok(Some(time)),
            Ok(_) => Err(self.wrong(column, "36 years")),
            Err(problem) => Err(self.wrong(column, problem)),
        }
    }

    /// The table's decimal mark, from the time in this row if it is not known.
    fn mark(&mut self) -> Result<Mark, TextError> {
        if let Some(mark) = self.mark {
            return Ok(mark);
        }
        let column = self.column(Field::Complete).or(self.column(Field::Init));
        let Some(column) = column else {
            return Ok(Mark::Point);
        };
        let mark = Mark::of(self.text(column)?).ok_or_else(|| {
            self.wrong(
                column,
                "expected nine digits behind a decimal mark, to know it by",
            )
        })?;
        self.mark = Some(mark);
        Ok(mark)
    }

    fn row(&mut self) -> Result<Row, TextError> {
        let mark = self.mark()?;
        self.check_count(mark)?;
        let op = self.op()?;
        let duration = self.time(Field::Duration, mark)?;
        let (complete, init) = (
            self.time(Field::Complete, mark)?,
            self.time(Field::Init, mark)?,
        );
        // All are below 2^60.
        let latency_ns = match (duration, complete, init) {
            (Some(duration), _, _) => Some(duration),
            (None, Some(complete), Some(init)) => complete.checked_sub(init),
            _ => None,
        };
        let time_ns = match (init, complete) {
            (Some(init), _) => init as i64,
            (None, Some(complete)) => complete as i64 - latency_ns.unwrap_or(0) as i64,
            (None, None) => 0,
        };
        let (offset_bytes, length_bytes) = match op {
            Op::Flush => (0, 0),
            _ => (
                self.number(Field::Offset, mark)?,
                self.number(Field::Size, mark)?,
            ),
        };
        if offset_bytes.checked_add(length_bytes).is_none() {
            let size = self
                .column(Field::Size)
                .cloned()
                .unwrap_or_else(|| Column::at(0));
            return Err(self.wrong(&size, "offset and size reach past the 64-bit byte range"));
        }
        Ok(Row {
            device: self.device()?,
            time_ns,
            request: Request {
                op,
                flags: self.flags()?,
                offset_bytes,
                length_bytes,
                latency_ns,
                process: self.process()?,
                ..Request::default()
            },
        })
    }

    /// A row that sums up several requests tells none of them.
    fn check_count(&self, mark: Mark) -> Result<(), TextError> {
        let Some(column) = &self.count else {
            return Ok(());
        };
        match scaled(self.text(column)?, mark, 0) {
            Ok(1) => Ok(()),
            _ => Err(self.wrong(
                column,
                "expected 1: export a table with a row for each request",
            )),
        }
    }

    fn op(&self) -> Result<Op, TextError> {
        let Some(column) = self.column(Field::Op) else {
            return Ok(Op::Other);
        };
        match self.text(column)? {
            "Read" => Ok(Op::Read),
            "Write" => Ok(Op::Write),
            "Flush" => Ok(Op::Flush),
            _ => Err(self.wrong(column, "expected Read, Write or Flush")),
        }
    }

    /// A whole number; 0 if there is no such column.
    fn number(&self, field: Field, mark: Mark) -> Result<u64, TextError> {
        let Some(column) = self.column(field) else {
            return Ok(0);
        };
        let text = self.text(column)?;
        let number = match text.starts_with("0x") {
            true => whole(text),
            false => scaled(text, mark, 0).map_err(str::to_owned),
        };
        number.map_err(|problem| self.wrong(column, problem))
    }

    fn device(&self) -> Result<String, TextError> {
        match self.column(Field::Disk) {
            Some(column) => Ok(format!("PhysicalDrive{}", self.text(column)?)),
            None => Ok("PhysicalDrive0".to_owned()),
        }
    }

    fn flags(&self) -> Result<Flags, TextError> {
        let Some(column) = self.column(Field::Priority) else {
            return Ok(Flags::NONE);
        };
        Ok(match self.text(column)? {
            "Very Low" | "VeryLow" => Flags::BACKGROUND,
            _ => Flags::NONE,
        })
    }

    fn process(&mut self) -> Result<Option<crate::request::Process>, TextError> {
        let Some(column) = self.column(Field::Process) else {
            return Ok(None);
        };
        let text = self.text(column)?.to_owned();
        Ok(self.processes.parse(&text))
    }
}

impl Column {
    fn at(place: usize) -> Column {
        Column {
            place,
            title: String::new(),
            digits: None,
        }
    }
}

/// The columns that are read, and that of the number of requests.
fn columns_of(titles: &[String]) -> (Vec<(Field, Column)>, Option<Column>) {
    let find = |names: &[&str]| {
        let is_one = |title: &String| {
            let name = name_of(title);
            names.iter().any(|known| known.eq_ignore_ascii_case(name))
        };
        let place = titles.iter().position(is_one)?;
        let title = titles.get(place)?.trim().trim_matches('"').to_owned();
        let digits = digits_of(&title);
        Some(Column {
            place,
            title,
            digits,
        })
    };
    let columns = NAMES
        .iter()
        .filter_map(|(field, names)| Some((*field, find(names)?)));
    (columns.collect(), find(&[COUNT]))
}

impl<R: BufRead> Rows for Table<R> {
    fn name(&self) -> &'static str {
        "wpa"
    }

    fn next_row(&mut self) -> Result<Option<Row>, TextError> {
        if !self.reader.read_byte_record(&mut self.record)? {
            return Ok(None);
        }
        self.line = self.record.position().map_or(0, ::csv::Position::line);
        self.fields.clear();
        let fields = self
            .record
            .iter()
            .map(|field| String::from_utf8_lossy(field).into_owned());
        self.fields.extend(fields);
        self.row().map(Some)
    }

    fn line(&self) -> u64 {
        self.line
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = vec![
            "imported from a table of Windows Performance Analyzer, which does not tell the time of \
             day and the sizes of disks"
                .to_owned(),
        ];
        if self.column(Field::Offset).is_none() {
            notes.push(
                "the table had no offsets: 0 stands for every one; sizes and times are real, where \
                 requests went is not"
                    .to_owned(),
            );
        }
        notes
    }

    fn resolution_ns(&self) -> u32 {
        1
    }

    /// A table is in whatever order its user likes: up to 131,071 rows are sorted whole.
    fn window_ns(&self) -> u64 {
        u64::MAX
    }
}
