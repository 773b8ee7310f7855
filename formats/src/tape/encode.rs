//! From the rows of a block to its payload.

use super::block::{Block, Optional};
use super::columns::number;
use super::error::TapeError;
use super::metadata::{self, BlockHeaderV1, ColumnV1, Stored};
use super::model::Summary;
use super::sequence::{put_numbers, put_stream, put_varint};

const VERSION: u16 = 1;
/// Every row has a value.
pub const PRESENT_ALL: u8 = 0;
/// A bitmap says which rows have one.
pub const PRESENT_BITMAP: u8 = 1;

/// Appends the payload of a block.
pub fn put_block(
    block: &Block,
    summary: &Summary,
    level: i32,
    out: &mut Vec<u8>,
) -> Result<(), TapeError> {
    let mut bodies = Vec::new();
    let mut columns = Vec::new();
    for column in 0..number::COUNT as u8 {
        let start = bodies.len();
        put_column(block, column, level, &mut bodies)
            .map_err(|error| TapeError::Io { offset: 0, error })?;
        let bytes = (bodies.len() - start) as u32;
        if bytes > 0 {
            columns.push(ColumnV1 { column, bytes });
        }
    }
    let start = out.len();
    let mut header = Vec::new();
    metadata::put_fields(
        &BlockHeaderV1 {
            summary: summary.to_form(),
            columns,
        },
        &mut header,
    )?;
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&(header.len() as u32).to_le_bytes());
    out.extend_from_slice(&header);
    let crc = crc32c::crc32c(&out[start..]);
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(&bodies);
    Ok(())
}

fn put_column(block: &Block, column: u8, level: i32, out: &mut Vec<u8>) -> std::io::Result<()> {
    if block.is_empty() {
        return Ok(());
    }
    let core = |values: Vec<u64>, out: &mut Vec<u8>| put_numbers(&values, level, out);
    match column {
        number::TIME => core(block.times.clone(), out),
        number::OP_FLAGS => {
            let pairs = block.ops.iter().zip(&block.flags);
            core(
                pairs
                    .map(|(op, flags)| u64::from(op.number()) | u64::from(flags.bits()) << 8)
                    .collect(),
                out,
            )
        }
        number::DEVICE => core(
            block
                .devices
                .iter()
                .map(|device| u64::from(device.0))
                .collect(),
            out,
        ),
        number::OFFSET => core(block.offsets.clone(), out),
        number::LENGTH => core(block.lengths.clone(), out),
        number::LATENCY => put_optional(&block.latency, level, out),
        number::QUEUE => put_optional(&block.queue, level, out),
        number::PROCESS => put_process(block, level, out),
        number::CGROUP => put_optional(&block.cgroup, level, out),
        number::CPU => put_optional(&block.cpu, level, out),
        number::ERROR => put_optional(&block.error, level, out),
        _ => Ok(()),
    }
}

fn put_process(block: &Block, level: i32, out: &mut Vec<u8>) -> std::io::Result<()> {
    if block.process.count == 0 {
        return Ok(());
    }
    let mut table = Vec::new();
    for process in &block.process_table {
        put_varint(u64::from(process.pid), &mut table);
        put_varint(process.name.len() as u64, &mut table);
        table.extend_from_slice(process.name.as_bytes());
    }
    put_varint(block.process_table.len() as u64, out);
    put_varint(table.len() as u64, out);
    put_stream(&table, level, out)?;
    put_optional(&block.process, level, out)
}

fn put_optional<T: Copy + Into<u64>>(
    values: &Optional<T>,
    level: i32,
    out: &mut Vec<u8>,
) -> std::io::Result<()> {
    if values.count == 0 {
        return Ok(());
    }
    if values.count == values.values.len() {
        out.push(PRESENT_ALL);
    } else {
        out.push(PRESENT_BITMAP);
        let mut bitmap = vec![0u8; values.present.len().div_ceil(8)];
        for (row, _) in values
            .present
            .iter()
            .enumerate()
            .filter(|(_, present)| **present)
        {
            bitmap[row / 8] |= 1 << (row % 8);
        }
        put_stream(&bitmap, level, out)?;
    }
    let pairs = values
        .values
        .iter()
        .zip(&values.present)
        .filter(|(_, present)| **present);
    let dense: Vec<u64> = pairs.map(|(value, _)| (*value).into()).collect();
    put_numbers(&dense, level, out)
}
