//! Records of the Linux block tracepoints, as perf events and ftrace carry them.
//!
//! The layout of a record differs between kernels: it is read from the text that the kernel gives
//! for each tracepoint (`events/block/NAME/format` in tracefs, also stored in `perf.data`), and no
//! offset is assumed. What comes out is what the record says in the program's own words; it becomes
//! an [`crate::event::Event`] when device and time are added.

use std::ops::Range;

use thiserror::Error;

use crate::byte_order::ByteOrder;
use crate::event::{Event, SECTOR_BYTES, Step, parse_rwbs};
use crate::request::{DeviceIndex, Flags, Op};

/// The block tracepoints that pairing makes use of, and the step that each reports.
pub const BLOCK_TRACEPOINTS: [(&str, Step); 9] = [
    ("block_bio_queue", Step::Queued),
    ("block_rq_issue", Step::Issued),
    ("block_rq_complete", Step::RequestCompleted),
    ("block_bio_complete", Step::BioCompleted),
    ("block_rq_requeue", Step::Requeued),
    ("block_bio_backmerge", Step::BioMerged),
    ("block_bio_frontmerge", Step::BioMerged),
    ("block_rq_merge", Step::RequestsMerged),
    ("block_split", Step::Split),
];

/// Why a tracepoint's format cannot be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum FormatError {
    /// No line gives its number.
    #[error("its format has no line \"ID: <number>\"")]
    NoId,
    /// A field that pairing needs is not there.
    #[error("its format has no field {0:?}")]
    NoField(&'static str),
    /// A field has a size that it cannot have.
    #[error("its field {name:?} has {found} bytes, expected {expected}")]
    FieldSize {
        /// Name of the field.
        name: &'static str,
        /// Size in the format.
        found: usize,
        /// Size that it must have.
        expected: usize,
    },
}

/// What one record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRecord<'a> {
    /// Which step of the operation.
    pub step: Step,
    /// The kernel's device number: major number << 20 | minor number.
    pub dev: u32,
    /// What the operation does.
    pub op: Op,
    /// How it asks to be treated.
    pub flags: Flags,
    /// First byte; 0 where the operation has none.
    pub offset_bytes: u64,
    /// Length.
    pub length_bytes: u64,
    /// Errno of a completion, positive; 0 for success.
    pub error: Option<u32>,
    /// Name of the thread that ran when the record was made, without trailing NULs.
    pub comm: &'a [u8],
    /// Number of that thread; `None` where the record does not say.
    pub thread: Option<u32>,
}

impl BlockRecord<'_> {
    /// The event that the record reports, of a device yet to be found and nobody's.
    pub fn event(&self, time_ns: u64, cpu: Option<u32>) -> Event {
        Event {
            time_ns,
            step: self.step,
            device: DeviceIndex::default(),
            op: self.op,
            flags: self.flags,
            offset_bytes: self.offset_bytes,
            length_bytes: self.length_bytes,
            cpu,
            error: self.error,
            process: None,
            cgroup: None,
        }
    }
}

/// The layout of one block tracepoint's records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockTracepoint {
    order: ByteOrder,
    id: u16,
    step: Step,
    dev: usize,
    sector: usize,
    sectors: Option<usize>,
    bytes: Option<usize>,
    error: Option<usize>,
    rwbs: Range<usize>,
    comm: Range<usize>,
    thread: Option<usize>,
    length: usize,
}

impl BlockTracepoint {
    /// Reads the layout from this machine's kernel's text for the tracepoint.
    ///
    /// # Errors
    /// If the text has no number, or lacks a field that a block tracepoint has on every kernel.
    pub fn parse(step: Step, format: &str) -> Result<BlockTracepoint, FormatError> {
        BlockTracepoint::parse_of(ByteOrder::NATIVE, step, format)
    }

    /// The same of a kernel whose numbers have this byte order.
    ///
    /// # Errors
    /// As [`BlockTracepoint::parse`].
    pub fn parse_of(
        order: ByteOrder,
        step: Step,
        format: &str,
    ) -> Result<BlockTracepoint, FormatError> {
        let fields: Vec<Field> = format.lines().filter_map(Field::parse).collect();
        let id = format
            .lines()
            .find_map(|line| line.trim().strip_prefix("ID:")?.trim().parse().ok())
            .ok_or(FormatError::NoId)?;
        let range = |name| find(&fields, name).map(|field| field.range());
        let number = |name, size| sized(&fields, name, size);
        let mut layout = BlockTracepoint {
            order,
            id,
            step,
            dev: required("dev", number("dev", 4)?)?,
            sector: required("sector", number("sector", 8)?)?,
            sectors: number("nr_sector", 4)?,
            bytes: number("bytes", 4)?,
            error: number("error", 4)?.or(number("errors", 4)?),
            rwbs: required("rwbs", range("rwbs"))?,
            comm: range("comm").unwrap_or(0..0),
            thread: number("common_pid", 4)?,
            length: 0,
        };
        if layout.sectors.is_none() && step != Step::Split {
            return Err(FormatError::NoField("nr_sector"));
        }
        layout.length = layout.least_length();
        Ok(layout)
    }

    /// The number that each record of this tracepoint begins with.
    pub fn id(&self) -> u16 {
        self.id
    }

    /// Reads a record. `None` if it is shorter than its layout, or names an operation or a sector
    /// that cannot be.
    pub fn decode<'a>(&self, record: &'a [u8]) -> Option<BlockRecord<'a>> {
        let record = record.get(..self.length)?;
        let number = |at| self.order.u32_at(record, at);
        let sector = self.order.u64_at(record, self.sector)?;
        let sectors = match self.sectors {
            Some(at) => u64::from(number(at)?),
            None => 0,
        };
        // Requests without a place on the device carry the highest sector: flushes and
        // pass-through commands.
        let placeless = sector == u64::MAX;
        let length_bytes = sectors * SECTOR_BYTES;
        let told_bytes = if placeless { 0 } else { length_bytes };
        let (op, flags) = parse_rwbs(&record[self.rwbs.clone()], told_bytes)?;
        Some(BlockRecord {
            step: self.step,
            dev: number(self.dev)?,
            op,
            flags,
            offset_bytes: if placeless {
                0
            } else {
                sector.checked_mul(SECTOR_BYTES)?
            },
            length_bytes: match (op, self.bytes) {
                (Op::Other, Some(at)) => u64::from(number(at)?),
                _ => length_bytes,
            },
            error: match self.error {
                Some(at) => Some(number(at)?.cast_signed().unsigned_abs()),
                None => None,
            },
            comm: until_nul(&record[self.comm.clone()]),
            thread: match self.thread {
                Some(at) => u32::try_from(number(at)?.cast_signed()).ok(),
                None => None,
            },
        })
    }

    fn least_length(&self) -> usize {
        let ends = [
            self.dev + 4,
            self.sector + 8,
            self.sectors.map_or(0, |at| at + 4),
            self.bytes.map_or(0, |at| at + 4),
            self.error.map_or(0, |at| at + 4),
            self.thread.map_or(0, |at| at + 4),
            self.rwbs.end,
            self.comm.end,
        ];
        ends.into_iter().max().unwrap_or(0)
    }
}

/// The number of the tracepoint that a record belongs to: `common_type`, the first field of every
/// record.
pub fn record_id(record: &[u8]) -> Option<u16> {
    ByteOrder::NATIVE.u16_at(record, 0)
}

struct Field<'a> {
    name: &'a str,
    offset: usize,
    size: usize,
}

impl<'a> Field<'a> {
    /// Reads a line that begins with `field:` and gives declaration, offset and size, each ended
    /// by a semicolon.
    fn parse(line: &'a str) -> Option<Field<'a>> {
        let mut parts = line
            .trim()
            .strip_prefix("field:")?
            .split(';')
            .map(str::trim);
        let declaration = parts.next()?;
        let name = declaration.rsplit([' ', '*']).next()?;
        let (mut offset, mut size) = (None, None);
        for part in parts {
            match part.split_once(':') {
                Some(("offset", value)) => offset = value.parse::<u16>().ok(),
                Some(("size", value)) => size = value.parse::<u16>().ok(),
                _ => {}
            }
        }
        Some(Field {
            name: name.split('[').next()?,
            offset: usize::from(offset?),
            size: usize::from(size?),
        })
    }

    fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.size
    }
}

fn find<'a>(fields: &'a [Field<'a>], name: &str) -> Option<&'a Field<'a>> {
    fields.iter().find(|field| field.name == name)
}

/// Offset of a number, if the record has it.
fn sized(
    fields: &[Field<'_>],
    name: &'static str,
    expected: usize,
) -> Result<Option<usize>, FormatError> {
    match find(fields, name) {
        Some(field) if field.size == expected => Ok(Some(field.offset)),
        Some(field) => Err(FormatError::FieldSize {
            name,
            found: field.size,
            expected,
        }),
        None => Ok(None),
    }
}

fn required<T>(name: &'static str, value: Option<T>) -> Result<T, FormatError> {
    value.ok_or(FormatError::NoField(name))
}

fn until_nul(text: &[u8]) -> &[u8] {
    let end = text
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(text.len());
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Linux 6.18 prints it, without the lines that are not read.
    const COMPLETE: &str = "name: block_rq_complete
ID: 2107
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;
\tfield:sector_t sector;\toffset:16;\tsize:8;\tsigned:0;
\tfield:unsigned int nr_sector;\toffset:24;\tsize:4;\tsigned:0;
\tfield:int error;\toffset:28;\tsize:4;\tsigned:1;
\tfield:unsigned short ioprio;\toffset:32;\tsize:2;\tsigned:0;
\tfield:char rwbs[10];\toffset:34;\tsize:10;\tsigned:0;
\tfield:__data_loc char[] cmd;\toffset:44;\tsize:4;\tsigned:0;

print fmt: \"%d,%d %s (%s) %llu + %u\"
";

    /// An older layout: `rwbs` of 8 bytes, `bytes` and `comm`, in another order.
    const ISSUE: &str = "ID: 9
\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;
\tfield:dev_t dev;\toffset:24;\tsize:4;\tsigned:0;
\tfield:char rwbs[8];\toffset:28;\tsize:8;\tsigned:0;
\tfield:unsigned int nr_sector;\toffset:36;\tsize:4;\tsigned:0;
\tfield:unsigned int bytes;\toffset:40;\tsize:4;\tsigned:0;
\tfield:sector_t sector;\toffset:48;\tsize:8;\tsigned:0;
";

    fn complete(sector: u64, sectors: u32, error: i32, rwbs: &[u8]) -> Vec<u8> {
        let mut record = vec![0; 48];
        record[0..2].copy_from_slice(&2107u16.to_ne_bytes());
        record[4..8].copy_from_slice(&4711i32.to_ne_bytes());
        record[8..12].copy_from_slice(&(7u32 << 20 | 3).to_ne_bytes());
        record[16..24].copy_from_slice(&sector.to_ne_bytes());
        record[24..28].copy_from_slice(&sectors.to_ne_bytes());
        record[28..32].copy_from_slice(&error.to_ne_bytes());
        record[34..34 + rwbs.len()].copy_from_slice(rwbs);
        record
    }

    fn issue(sector: u64, sectors: u32, bytes: u32, rwbs: &[u8]) -> Vec<u8> {
        let mut record = vec![0; 56];
        record[8..12].copy_from_slice(b"dd\0x");
        record[24..28].copy_from_slice(&(8u32 << 20).to_ne_bytes());
        record[28..28 + rwbs.len()].copy_from_slice(rwbs);
        record[36..40].copy_from_slice(&sectors.to_ne_bytes());
        record[40..44].copy_from_slice(&bytes.to_ne_bytes());
        record[48..56].copy_from_slice(&sector.to_ne_bytes());
        record
    }

    #[test]
    fn a_completion_is_read_where_its_format_says() {
        let layout = BlockTracepoint::parse(Step::RequestCompleted, COMPLETE).unwrap();
        let record = complete(252_968, 8, -5, b"WS");
        assert_eq!(record_id(&record), Some(2107));
        assert_eq!(layout.id(), 2107);
        let expected = BlockRecord {
            step: Step::RequestCompleted,
            dev: 0x70_0003,
            op: Op::Write,
            flags: Flags::SYNC,
            offset_bytes: 129_519_616,
            length_bytes: 4096,
            error: Some(5),
            comm: b"",
            thread: Some(4711),
        };
        assert_eq!(layout.decode(&record), Some(expected));
    }

    #[test]
    fn a_kernel_of_the_other_byte_order_is_read() {
        let big = BlockTracepoint::parse_of(ByteOrder::Big, Step::Issued, ISSUE).unwrap();
        let mut record = vec![0; 56];
        record[24..28].copy_from_slice(&(8u32 << 20 | 1).to_be_bytes());
        record[28] = b'W';
        record[36..40].copy_from_slice(&3u32.to_be_bytes());
        record[48..56].copy_from_slice(&2u64.to_be_bytes());
        let issue = big.decode(&record).unwrap();
        assert_eq!((issue.dev, issue.op), (0x80_0001, Op::Write));
        assert_eq!((issue.offset_bytes, issue.length_bytes), (1024, 1536));
    }

    #[test]
    fn another_kernels_layout_is_followed() {
        let layout = BlockTracepoint::parse(Step::Issued, ISSUE).unwrap();
        let record = issue(16, 2, 1024, b"RA");
        let expected = BlockRecord {
            step: Step::Issued,
            dev: 0x80_0000,
            op: Op::Read,
            flags: Flags::READAHEAD,
            offset_bytes: 8192,
            length_bytes: 1024,
            error: None,
            comm: b"dd",
            thread: None,
        };
        assert_eq!(layout.decode(&record), Some(expected));
    }

    #[test]
    fn a_placeless_request_has_offset_0() {
        let layout = BlockTracepoint::parse(Step::RequestCompleted, COMPLETE).unwrap();
        let flush = complete(u64::MAX, 0, 0, b"FF");
        let flush = layout.decode(&flush).unwrap();
        assert_eq!(
            (flush.op, flush.offset_bytes, flush.length_bytes),
            (Op::Flush, 0, 0)
        );
        // A pass-through command with data is not a write-zeroes.
        let command = complete(u64::MAX, 8, 0, b"N");
        let command = layout.decode(&command).unwrap();
        assert_eq!(
            (command.op, command.offset_bytes, command.length_bytes),
            (Op::Other, 0, 4096)
        );
    }

    #[test]
    fn a_pass_through_command_has_its_length_in_bytes() {
        let layout = BlockTracepoint::parse(Step::Issued, ISSUE).unwrap();
        let record = issue(0, 0, 96, b"N");
        let command = layout.decode(&record).unwrap();
        assert_eq!((command.op, command.length_bytes), (Op::Other, 96));
    }

    #[test]
    fn what_cannot_be_is_not_decoded() {
        let layout = BlockTracepoint::parse(Step::RequestCompleted, COMPLETE).unwrap();
        let record = complete(u64::MAX / 512 + 1, 8, 0, b"W");
        assert_eq!(
            layout.decode(&record),
            None,
            "a sector beyond 64 bits of bytes"
        );
        let record = complete(0, 8, 0, b"?");
        assert_eq!(layout.decode(&record), None, "an unknown operation");
        let record = complete(0, 8, 0, b"W");
        for length in 0..44 {
            assert_eq!(
                layout.decode(&record[..length]),
                None,
                "cut to {length} bytes"
            );
        }
        assert!(
            layout.decode(&record[..44]).is_some(),
            "the last field that is read ends at 44"
        );
    }

    #[test]
    fn a_format_without_what_is_needed_is_refused() {
        let parse = |text: &str| BlockTracepoint::parse(Step::RequestCompleted, text);
        assert_eq!(parse(""), Err(FormatError::NoId));
        assert_eq!(parse("ID: 1"), Err(FormatError::NoField("dev")));
        let without = COMPLETE.replace("rwbs", "flags");
        assert_eq!(parse(&without), Err(FormatError::NoField("rwbs")));
        let without = COMPLETE.replace("nr_sector", "n");
        assert_eq!(parse(&without), Err(FormatError::NoField("nr_sector")));
        let narrow = COMPLETE.replace("offset:16;\tsize:8", "offset:16;\tsize:4");
        let expected = FormatError::FieldSize {
            name: "sector",
            found: 4,
            expected: 8,
        };
        assert_eq!(parse(&narrow), Err(expected));
    }
}
