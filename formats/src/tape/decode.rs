//! From the payload of a block to its rows. Every count is checked before it is believed.

use std::io;
use std::sync::Arc;

use super::block::{Block, Optional};
use super::column::order::Keys;
use super::column::sequence::{self, Decoder, Target};
use super::column::stream::{get_byte, get_varint, skip_stream};
use super::column::{Columns, number, op_flags};
use super::encode::{BLOCK_VERSION, PRESENT_ALL, PRESENT_BITMAP};
use super::error::Corrupt;
use super::metadata::{self, BlockHeaderV1, Stored};
use super::model::Summary;
use super::wire::{
    BLOCK_HEADER_AT, BLOCK_HEADER_LENGTH_AT, MAX_BLOCK_REQUESTS, MAX_METADATA_BYTES,
    MAX_NAME_BYTES, VERSION_AT, read_u16, read_u32,
};
use crate::request::{DeviceIndex, Flags, Op, Process};

const CRC_BYTES: usize = size_of::<u32>();
/// Longest table of processes, in bytes.
const MAX_TABLE_BYTES: u64 = MAX_METADATA_BYTES;

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
#[derive(Debug)]
pub struct BlockHeader {
    /// Totals of the block's requests, and what was counted since the block before.
    pub summary: Summary,
    /// How many requests its tape has before it.
    pub requests_before: u64,
    /// Number and size of each column.
    pub columns: Vec<(u8, usize)>,
    /// Where the first column starts.
    pub bodies_at: usize,
}

impl BlockHeader {
    /// Reads and checks the header at the start of a payload.
    pub fn parse(payload: &[u8]) -> Result<BlockHeader, Corrupt> {
        let short = Corrupt::Short {
            what: "block",
            bytes: payload.len(),
        };
        let found = read_u16(payload, VERSION_AT).ok_or(short.clone())?;
        if found != BLOCK_VERSION {
            return Err(Corrupt::Version {
                what: "block",
                found,
                known: BLOCK_VERSION,
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
            requests_before: form.requests_before,
            columns,
            bodies_at,
        })
    }
}

impl BlockHeader {
    /// How many of its columns are of a later version.
    pub fn unknown_columns(&self) -> u64 {
        let known = number::COUNT as u8..number::FIRST_PRIVATE;
        self.columns
            .iter()
            .filter(|(column, _)| known.contains(column))
            .count() as u64
    }
}

/// Decodes blocks.
pub struct BlockDecoder {
    decoder: Decoder,
    keys: Keys,
    wide: Vec<u64>,
    bytes: Vec<u8>,
}

/// The bodies of a block's columns, by number.
type Bodies<'a> = [Option<&'a [u8]>; number::COUNT];

impl BlockDecoder {
    /// A decoder.
    pub fn new() -> io::Result<BlockDecoder> {
        Ok(BlockDecoder {
            decoder: Decoder::new()?,
            keys: Keys::default(),
            wide: Vec::new(),
            bytes: Vec::new(),
        })
    }

    /// Decodes a block's payload; on an error `block` is left empty.
    pub fn get(
        &mut self,
        payload: &[u8],
        wanted: Columns,
        block: &mut Block,
    ) -> Result<BlockHeader, Corrupt> {
        let result = self.decode(payload, wanted, block);
        if result.is_err() {
            block.clear();
        }
        result
    }

    fn decode(
        &mut self,
        payload: &[u8],
        wanted: Columns,
        block: &mut Block,
    ) -> Result<BlockHeader, Corrupt> {
        let header = BlockHeader::parse(payload)?;
        block.clear();
        block.columns = wanted;
        block.summary.clone_from(&header.summary);
        let bodies = bodies(&header, &payload[header.bodies_at..])?;
        let rows = header.summary.requests as usize;
        if rows == 0 {
            return Ok(header);
        }
        self.keys.clear();
        self.core(&bodies, wanted, rows, block)?;
        let has = |column: u8| {
            wanted
                .has(column)
                .then_some(bodies[usize::from(column)])
                .flatten()
        };
        self.optional(has(number::LATENCY), rows, &mut block.latency)?;
        self.optional(has(number::QUEUE), rows, &mut block.queue)?;
        self.optional(has(number::CGROUP), rows, &mut block.cgroup)?;
        self.optional(has(number::CPU), rows, &mut block.cpu)?;
        self.optional(has(number::ERROR), rows, &mut block.error)?;
        self.optional(has(number::FILE), rows, &mut block.file)?;
        block.verify()?;
        Ok(header)
    }
}

impl BlockDecoder {
    /// Decodes what every request has, each column after those that it may depend on.
    fn core(
        &mut self,
        bodies: &Bodies<'_>,
        wanted: Columns,
        rows: usize,
        block: &mut Block,
    ) -> Result<(), Corrupt> {
        let core = |column: u8| {
            let lacking = Corrupt::Inconsistent {
                what: "a block lacks a column that every request has",
            };
            bodies[usize::from(column)].ok_or(lacking)
        };
        let mut values = std::mem::take(&mut self.keys.devices);
        self.whole(core(number::DEVICE)?, rows, &[], &mut values)?;
        limit("device", bits_of(&values), u64::from(u16::MAX))?;
        block
            .devices
            .extend(values.iter().map(|device| DeviceIndex(*device as u16)));
        self.keys.devices = values;

        let mut values = std::mem::take(&mut self.keys.op_flags);
        self.whole(core(number::OP_FLAGS)?, rows, &[], &mut values)?;
        put_op_flags(&values, block)?;
        self.keys.op_flags = values;

        if let Some(body) = bodies[usize::from(number::PROCESS)] {
            let wanted_for_itself = wanted.has(number::PROCESS);
            if wanted_for_itself || needs_process(bodies, wanted, rows)? {
                self.process(body, wanted_for_itself, rows, block)?;
            }
        }
        self.whole(core(number::LENGTH)?, rows, &[], &mut block.lengths)?;
        self.whole(
            core(number::OFFSET)?,
            rows,
            &block.lengths,
            &mut block.offsets,
        )?;
        self.whole(core(number::TIME)?, rows, &[], &mut block.times)
    }

    /// A column in which every row has a value.
    fn whole(
        &mut self,
        mut body: &[u8],
        rows: usize,
        lengths: &[u64],
        values: &mut Vec<u64>,
    ) -> Result<(), Corrupt> {
        match get_byte(&mut body) {
            Some(PRESENT_ALL) => (),
            Some(number) => return Err(Corrupt::number("presence of a core column", number)),
            None => {
                return Err(Corrupt::Short {
                    what: "column",
                    bytes: 0,
                });
            }
        }
        let mut target = Target {
            rows,
            present: &[],
            count: rows,
            lengths,
            values,
        };
        self.decoder.get(&mut body, &mut self.keys, &mut target)?;
        used_up(body)
    }

    /// A column that may be absent.
    fn optional<T>(
        &mut self,
        body: Option<&[u8]>,
        rows: usize,
        into: &mut Optional<T>,
    ) -> Result<(), Corrupt>
    where
        T: Copy + Default + TryFrom<u64>,
    {
        let Some(mut body) = body else { return Ok(()) };
        self.presence(&mut body, rows, into)?;
        self.present_values(body, rows, into)
    }

    /// Takes the presence of each row off the front of a body.
    fn presence<T>(
        &mut self,
        body: &mut &[u8],
        rows: usize,
        into: &mut Optional<T>,
    ) -> Result<(), Corrupt> {
        match get_byte(body).ok_or(Corrupt::Short {
            what: "column",
            bytes: 0,
        })? {
            PRESENT_ALL => into.count = rows,
            PRESENT_BITMAP => {
                self.decoder
                    .unpacker
                    .get(body, rows.div_ceil(8), &mut self.bytes)?;
                let bits = |byte: &u8| (0..8).map(|bit| byte & 1 << bit != 0).collect::<Vec<_>>();
                into.present
                    .extend(self.bytes.iter().flat_map(bits).take(rows));
                into.count = into.present.iter().filter(|present| **present).count();
            }
            number => return Err(Corrupt::number("presence", number)),
        }
        Ok(())
    }

    fn present_values<T>(
        &mut self,
        mut body: &[u8],
        rows: usize,
        into: &mut Optional<T>,
    ) -> Result<(), Corrupt>
    where
        T: Copy + Default + TryFrom<u64>,
    {
        let mut target = Target {
            rows,
            present: &into.present,
            count: into.count,
            lengths: &[],
            values: &mut self.wide,
        };
        self.decoder.get(&mut body, &mut self.keys, &mut target)?;
        used_up(body)?;
        narrow::<T>("value", bits_of(&self.wide))?;
        into.values.extend(
            self.wide
                .iter()
                .map(|value| T::try_from(*value).unwrap_or_default()),
        );
        Ok(())
    }

    /// Decodes the processes: into the block when `wanted`, in any case for columns that are
    /// grouped by them.
    fn process(
        &mut self,
        mut body: &[u8],
        wanted: bool,
        rows: usize,
        block: &mut Block,
    ) -> Result<(), Corrupt> {
        let mut places = std::mem::take(&mut block.process);
        self.presence(&mut body, rows, &mut places)?;
        let entries = self.process_table(&mut body, wanted.then_some(&mut block.process_table))?;
        self.present_values(body, rows, &mut places)?;
        let key = |row: usize| places.get(row).map_or(0, |at| u64::from(at) + 1);
        self.keys.processes.extend((0..rows).map(key));
        let highest = self.keys.processes.iter().copied().max().unwrap_or(0);
        if highest > entries {
            return Err(Corrupt::number("process table entry", highest - 1));
        }
        if !wanted {
            places.clear();
        }
        block.process = places;
        Ok(())
    }

    /// Takes the table of processes off the front of a body; returns how many entries it has.
    fn process_table(
        &mut self,
        body: &mut &[u8],
        into: Option<&mut Vec<Process>>,
    ) -> Result<u64, Corrupt> {
        let short = Corrupt::Short {
            what: "process table",
            bytes: body.len(),
        };
        let entries = get_varint(body).ok_or(short.clone())?;
        let bytes = get_varint(body).ok_or(short.clone())?;
        limit("processes", entries, MAX_BLOCK_REQUESTS as u64)?;
        limit("process table", bytes, MAX_TABLE_BYTES)?;
        let Some(table) = into else {
            skip_stream(body)?;
            return Ok(entries);
        };
        self.decoder
            .unpacker
            .get(body, bytes as usize, &mut self.bytes)?;
        let mut rest = &self.bytes[..];
        for _ in 0..entries {
            let pid = narrow("process", get_varint(&mut rest).ok_or(short.clone())?)?;
            let length = get_varint(&mut rest).ok_or(short.clone())?;
            limit("process name", length, MAX_NAME_BYTES as u64)?;
            let (name, behind) = rest
                .split_at_checked(length as usize)
                .ok_or(short.clone())?;
            rest = behind;
            let name = std::str::from_utf8(name).map_err(|_| Corrupt::Inconsistent {
                what: "a process name is not UTF-8",
            })?;
            table.push(Process {
                pid,
                name: Arc::from(name),
            });
        }
        used_up(rest)?;
        Ok(entries)
    }
}

/// Finds the columns' bodies behind a block's header.
fn bodies<'a>(header: &BlockHeader, mut bytes: &'a [u8]) -> Result<Bodies<'a>, Corrupt> {
    let mut bodies = Bodies::default();
    for (column, length) in &header.columns {
        let short = Corrupt::Short {
            what: "column",
            bytes: bytes.len(),
        };
        let (body, rest) = bytes.split_at_checked(*length).ok_or(short)?;
        bytes = rest;
        // A column of a later version is left out.
        if let Some(slot) = bodies.get_mut(usize::from(*column))
            && slot.replace(body).is_some()
        {
            return Err(Corrupt::Inconsistent {
                what: "a column stands twice in a block",
            });
        }
    }
    used_up(bytes)?;
    Ok(bodies)
}

/// Whether a wanted column is grouped by process.
fn needs_process(bodies: &Bodies<'_>, wanted: Columns, rows: usize) -> Result<bool, Corrupt> {
    for (column, body) in (0..).zip(bodies) {
        let Some(mut body) = body.filter(|_| wanted.has(column) && column != number::PROCESS)
        else {
            continue;
        };
        if get_byte(&mut body) == Some(PRESENT_BITMAP) {
            skip_stream(&mut body)?;
        }
        if rows > 0 && sequence::peek_order(body)?.needs_process() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn used_up(bytes: &[u8]) -> Result<(), Corrupt> {
    if bytes.is_empty() {
        Ok(())
    } else {
        Err(Corrupt::Inconsistent {
            what: "bytes are left over in a block",
        })
    }
}

fn limit(what: &'static str, found: u64, max: u64) -> Result<(), Corrupt> {
    if found <= max {
        Ok(())
    } else {
        Err(Corrupt::Excess { what, found, max })
    }
}

/// All bits that occur in `values`: found faster than the highest value, and enough to hold them
/// to a number of bits.
fn bits_of(values: &[u64]) -> u64 {
    values.iter().fold(0, |bits, value| bits | value)
}

/// Appends operations and flags.
fn put_op_flags(values: &[u64], block: &mut Block) -> Result<(), Corrupt> {
    const { assert!(Op::ALL.len().is_power_of_two()) };
    let bits = bits_of(values);
    limit(
        "operation and flags",
        bits,
        op_flags(Op::default(), Flags::from_bits(u32::MAX)) | 0xff,
    )?;
    limit("operation", bits & 0xff, Op::ALL.len() as u64 - 1)?;
    block.ops.extend(
        values
            .iter()
            .map(|value| Op::ALL[*value as usize % Op::ALL.len()]),
    );
    block.flags.extend(
        values
            .iter()
            .map(|value| Flags::from_bits((value >> 8) as u32)),
    );
    Ok(())
}

fn narrow<T: TryFrom<u64>>(what: &'static str, value: u64) -> Result<T, Corrupt> {
    T::try_from(value).map_err(|_| Corrupt::number(what, value))
}

#[cfg(test)]
mod tests;
