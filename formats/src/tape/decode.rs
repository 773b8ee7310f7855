//! From the payload of a block to its rows. Every count is checked before it is believed.

use std::sync::Arc;

use super::block::{Block, Optional};
use super::columns::{Columns, number};
use super::encode::{PRESENT_ALL, PRESENT_BITMAP};
use super::error::Corrupt;
use super::metadata::{self, BlockHeaderV1, Stored};
use super::model::Summary;
use super::sequence::{get_numbers, get_stream, get_varint};
use super::wire::{
    BLOCK_HEADER_AT, BLOCK_HEADER_LENGTH_AT, MAX_BLOCK_REQUESTS, MAX_METADATA_BYTES,
    MAX_NAME_BYTES, VERSION_AT, read_u16, read_u32,
};
use crate::request::{DeviceIndex, Flags, Op, Process};

const VERSION: u16 = 1;
const CRC_BYTES: usize = size_of::<u32>();

/// How many bytes of a block's payload hold its header, from its first bytes.
///
/// `None` when `payload` is too short to say.
pub fn header_bytes(payload: &[u8]) -> Option<Result<usize, Corrupt>> {
    let length = read_u32(payload, BLOCK_HEADER_LENGTH_AT)?;
    if u64::from(length) > MAX_METADATA_BYTES {
        let found = u64::from(length);
        return Some(Err(Corrupt::Excess {
            what: "block header",
            found,
            max: MAX_METADATA_BYTES,
        }));
    }
    Some(Ok(BLOCK_HEADER_AT + length as usize + CRC_BYTES))
}

/// The header of a block.
pub struct BlockHeader {
    pub summary: Summary,
    /// Number and size of each column.
    columns: Vec<(u8, usize)>,
    /// Where the first column starts.
    bodies_at: usize,
}

impl BlockHeader {
    /// Reads and checks the header at the start of a payload.
    pub fn parse(payload: &[u8]) -> Result<BlockHeader, Corrupt> {
        let short = Corrupt::Short {
            what: "block",
            bytes: payload.len(),
        };
        let version = read_u16(payload, VERSION_AT).ok_or(short.clone())?;
        if version != VERSION {
            return Err(Corrupt::Version {
                what: "block",
                found: version,
                known: VERSION,
            });
        }
        let bodies_at = header_bytes(payload).ok_or(short.clone())??;
        let crc_at = bodies_at - CRC_BYTES;
        let stored = read_u32(payload, crc_at).ok_or(short)?;
        let computed = crc32c::crc32c(&payload[..crc_at]);
        if stored != computed {
            return Err(Corrupt::BlockHeaderChecksum { stored, computed });
        }
        let form: BlockHeaderV1 =
            metadata::fields("block header", &payload[BLOCK_HEADER_AT..crc_at])?;
        let summary = Summary::from_form(form.summary)?;
        if summary.requests > MAX_BLOCK_REQUESTS as u64 {
            let max = MAX_BLOCK_REQUESTS as u64;
            return Err(Corrupt::Excess {
                what: "requests in a block",
                found: summary.requests,
                max,
            });
        }
        let columns = form
            .columns
            .iter()
            .map(|column| (column.column, column.bytes as usize))
            .collect();
        Ok(BlockHeader {
            summary,
            columns,
            bodies_at,
        })
    }
}

/// Decodes a block's payload; on an error `block` is left empty.
pub fn get_block(payload: &[u8], columns: Columns, block: &mut Block) -> Result<(), Corrupt> {
    let result = decode(payload, columns, block);
    if result.is_err() {
        block.clear();
    }
    result
}

fn decode(payload: &[u8], wanted: Columns, block: &mut Block) -> Result<(), Corrupt> {
    let header = BlockHeader::parse(payload)?;
    block.clear();
    block.columns = wanted;
    let rows = header.summary.requests as usize;
    let mut bodies = &payload[header.bodies_at..];
    let mut seen = 0u16;
    for (column, bytes) in header.columns {
        let (mut body, rest) = bodies.split_at_checked(bytes).ok_or(Corrupt::Short {
            what: "column",
            bytes: bodies.len(),
        })?;
        bodies = rest;
        if wanted.has(column) {
            if seen & 1 << column != 0 {
                return Err(Corrupt::Inconsistent {
                    what: "a column stands twice in a block",
                });
            }
            seen |= 1 << column;
            get_column(block, column, &mut body, rows)?;
            if !body.is_empty() {
                return Err(Corrupt::Inconsistent {
                    what: "a column has bytes left over",
                });
            }
        }
    }
    if !bodies.is_empty() {
        return Err(Corrupt::Inconsistent {
            what: "a block has bytes left over",
        });
    }
    fill_absent(block, seen, rows);
    block.summary = header.summary;
    verify(block, rows)
}

fn get_column(block: &mut Block, column: u8, body: &mut &[u8], rows: usize) -> Result<(), Corrupt> {
    match column {
        number::TIME => block.times = get_numbers(body, rows, column)?,
        number::OP_FLAGS => {
            for pair in get_numbers(body, rows, column)? {
                let op =
                    Op::from_number(pair as u8).ok_or(Corrupt::number("operation", pair & 0xff))?;
                block.ops.push(op);
                block
                    .flags
                    .push(Flags::from_bits(narrow("flags", pair >> 8)?));
            }
        }
        number::DEVICE => {
            for device in get_numbers(body, rows, column)? {
                block.devices.push(DeviceIndex(narrow("device", device)?));
            }
        }
        number::OFFSET => block.offsets = get_numbers(body, rows, column)?,
        number::LENGTH => block.lengths = get_numbers(body, rows, column)?,
        number::LATENCY => get_optional(&mut block.latency, body, rows, column)?,
        number::QUEUE => get_optional(&mut block.queue, body, rows, column)?,
        number::PROCESS => get_process(block, body, rows)?,
        number::CGROUP => get_optional(&mut block.cgroup, body, rows, column)?,
        number::CPU => get_optional(&mut block.cpu, body, rows, column)?,
        number::ERROR => get_optional(&mut block.error, body, rows, column)?,
        _ => (),
    }
    Ok(())
}

fn narrow<T: TryFrom<u64>>(what: &'static str, value: u64) -> Result<T, Corrupt> {
    T::try_from(value).map_err(|_| Corrupt::Number {
        what,
        number: value,
    })
}

fn get_process(block: &mut Block, body: &mut &[u8], rows: usize) -> Result<(), Corrupt> {
    let short = Corrupt::Short {
        what: "process table",
        bytes: body.len(),
    };
    let count = get_varint(body).ok_or(short.clone())?;
    let bytes = get_varint(body).ok_or(short.clone())?;
    for (what, found, max) in [
        ("processes", count, MAX_BLOCK_REQUESTS as u64),
        ("process table", bytes, MAX_METADATA_BYTES),
    ] {
        if found > max {
            return Err(Corrupt::Excess { what, found, max });
        }
    }
    let table = get_stream(body, bytes as usize, number::PROCESS)?;
    let mut table = &table[..];
    for _ in 0..count {
        let pid = narrow("process", get_varint(&mut table).ok_or(short.clone())?)?;
        let length = get_varint(&mut table).ok_or(short.clone())?;
        if length > MAX_NAME_BYTES as u64 {
            return Err(Corrupt::Excess {
                what: "process name",
                found: length,
                max: MAX_NAME_BYTES as u64,
            });
        }
        let (name, rest) = table
            .split_at_checked(length as usize)
            .ok_or(short.clone())?;
        table = rest;
        let name = std::str::from_utf8(name).map_err(|_| Corrupt::Inconsistent {
            what: "a process name is not UTF-8",
        })?;
        block.process_table.push(Process {
            pid,
            name: Arc::from(name),
        });
    }
    if !table.is_empty() {
        return Err(Corrupt::Inconsistent {
            what: "the process table has bytes left over",
        });
    }
    get_optional(&mut block.process, body, rows, number::PROCESS)?;
    let highest = block.process.values.iter().max().copied().unwrap_or(0);
    if block.process.count > 0 && highest as usize >= block.process_table.len() {
        return Err(Corrupt::number("process table entry", highest));
    }
    Ok(())
}

fn get_optional<T>(
    values: &mut Optional<T>,
    body: &mut &[u8],
    rows: usize,
    column: u8,
) -> Result<(), Corrupt>
where
    T: Copy + Default + TryFrom<u64>,
{
    let (presence, rest) = body.split_first().ok_or(Corrupt::Short {
        what: "column",
        bytes: 0,
    })?;
    *body = rest;
    match *presence {
        PRESENT_ALL => values.present.resize(rows, true),
        PRESENT_BITMAP => {
            let bitmap = get_stream(body, rows.div_ceil(8), column)?;
            values
                .present
                .extend((0..rows).map(|row| bitmap[row / 8] & 1 << (row % 8) != 0));
        }
        number => return Err(Corrupt::number("presence", number)),
    }
    values.count = values.present.iter().filter(|present| **present).count();
    let mut dense = get_numbers(body, values.count, column)?.into_iter();
    for present in &values.present {
        let value = if *present {
            narrow("value", dense.next().unwrap_or(0))?
        } else {
            T::default()
        };
        values.values.push(value);
    }
    Ok(())
}

fn fill_absent(block: &mut Block, seen: u16, rows: usize) {
    let absent = |column: u8| seen & 1 << column == 0;
    if absent(number::LATENCY) {
        block.latency.set_absent(rows);
    }
    if absent(number::QUEUE) {
        block.queue.set_absent(rows);
    }
    if absent(number::PROCESS) {
        block.process.set_absent(rows);
    }
    if absent(number::CGROUP) {
        block.cgroup.set_absent(rows);
    }
    if absent(number::CPU) {
        block.cpu.set_absent(rows);
    }
    if absent(number::ERROR) {
        block.error.set_absent(rows);
    }
}

/// The rows must be what the header says they are.
fn verify(block: &Block, rows: usize) -> Result<(), Corrupt> {
    let lengths = [
        block.times.len(),
        block.ops.len(),
        block.devices.len(),
        block.offsets.len(),
        block.lengths.len(),
    ];
    if lengths.iter().any(|length| *length != rows) {
        return Err(Corrupt::Inconsistent {
            what: "a block lacks a column that every request has",
        });
    }
    if block
        .offsets
        .iter()
        .zip(&block.lengths)
        .any(|(offset, length)| offset.checked_add(*length).is_none())
    {
        return Err(Corrupt::Inconsistent {
            what: "a request ends beyond 2^64 bytes",
        });
    }
    let of_rows = Summary::of_rows(block);
    let told = &block.summary;
    let same = (
        of_rows.first_ns,
        of_rows.last_ns,
        &of_rows.by_op,
        &of_rows.devices,
    ) == (told.first_ns, told.last_ns, &told.by_op, &told.devices);
    if !same {
        return Err(Corrupt::Inconsistent {
            what: "a block's requests do not add up to its header",
        });
    }
    Ok(())
}
