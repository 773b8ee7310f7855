//! From the rows of a block to its payload.

use std::io;

use super::block::{Block, Optional};
use super::column::choice::{Chooser, Task};
use super::column::order::Keys;
use super::column::sequence::Values;
use super::column::stream::put_varint;
use super::column::{number, op_flags};
use super::encoder::Level;
use super::error::TapeError;
use super::metadata::{self, BlockHeaderV1, ColumnV1, Stored};
use super::model::Summary;
use super::pause::Pause;
use super::wire::MAX_METADATA_BYTES;

/// Version of the payload of a block.
pub const BLOCK_VERSION: u16 = 1;
/// Every row has a value.
pub const PRESENT_ALL: u8 = 0;
/// A bitmap says which rows have one.
pub const PRESENT_BITMAP: u8 = 1;

/// Encodes blocks.
pub struct BlockEncoder {
    chooser: Chooser,
    keys: Keys,
    wide: Vec<u64>,
    bodies: Vec<u8>,
    several_devices: bool,
    processes: bool,
}

impl BlockEncoder {
    /// An encoder for a level.
    pub fn new(level: Level) -> io::Result<BlockEncoder> {
        Ok(BlockEncoder {
            chooser: Chooser::new(level)?,
            keys: Keys::default(),
            wide: Vec::new(),
            bodies: Vec::new(),
            several_devices: false,
            processes: false,
        })
    }

    /// Offers `pause` between pieces of the work.
    pub fn pause_with(&mut self, pause: Pause) {
        self.chooser.pause = pause;
    }

    /// Appends the payload of a block that has `requests_before` requests before it in its tape.
    pub fn put(
        &mut self,
        block: &Block,
        summary: &Summary,
        requests_before: u64,
        out: &mut Vec<u8>,
    ) -> Result<(), TapeError> {
        self.bodies.clear();
        self.chooser.pause.offer();
        self.take_keys(block, summary);
        let mut columns = Vec::new();
        for column in 0..number::COUNT as u8 {
            let start = self.bodies.len();
            if !block.is_empty() {
                self.put_column(block, column)
                    .map_err(|error| TapeError::Compress { error })?;
            }
            let bytes = (self.bodies.len() - start) as u32;
            if bytes > 0 {
                columns.push(ColumnV1 { column, bytes });
            }
        }
        let form = BlockHeaderV1 {
            requests_before,
            summary: summary.to_form(),
            columns,
        };
        put_header(&form, out)?;
        out.extend_from_slice(&self.bodies);
        Ok(())
    }

    fn take_keys(&mut self, block: &Block, summary: &Summary) {
        self.keys.clear();
        let pairs = block.ops.iter().zip(&block.flags);
        self.keys
            .op_flags
            .extend(pairs.map(|(op, flags)| op_flags(*op, *flags)));
        self.keys
            .devices
            .extend(block.devices.iter().map(|device| u64::from(device.0)));
        let key = |row: usize| block.process.get(row).map_or(0, |at| u64::from(at) + 1);
        self.keys.processes.extend((0..block.len()).map(key));
        self.several_devices = summary.devices.len() > 1;
        self.processes = block.process.count > 0;
    }

    fn put_column(&mut self, block: &Block, column: u8) -> io::Result<()> {
        match column {
            number::TIME => self.put_core(column, &block.times, &[]),
            number::OP_FLAGS => {
                let values = self.keys.op_flags.clone();
                self.put_core(column, &values, &[])
            }
            number::DEVICE => {
                let values = self.keys.devices.clone();
                self.put_core(column, &values, &[])
            }
            number::OFFSET => self.put_core(column, &block.offsets, &block.lengths),
            number::LENGTH => self.put_core(column, &block.lengths, &[]),
            number::LATENCY => self.put_optional(column, &block.latency, None),
            number::QUEUE => self.put_optional(column, &block.queue, None),
            number::PROCESS => self.put_optional(column, &block.process, Some(block)),
            number::CGROUP => self.put_optional(column, &block.cgroup, None),
            number::CPU => self.put_optional(column, &block.cpu, None),
            number::ERROR => self.put_optional(column, &block.error, None),
            number::FILE => self.put_optional(column, &block.file, None),
            _ => Ok(()),
        }
    }

    fn put_core(&mut self, column: u8, values: &[u64], lengths: &[u64]) -> io::Result<()> {
        self.bodies.push(PRESENT_ALL);
        self.put_sequence(
            column,
            Values {
                values,
                lengths,
                present: &[],
            },
        )
    }

    /// Nothing, when no row has a value. `table` is the block whose process table goes before.
    fn put_optional<T: Copy + Into<u64>>(
        &mut self,
        column: u8,
        optional: &Optional<T>,
        table: Option<&Block>,
    ) -> io::Result<()> {
        if optional.count == 0 {
            return Ok(());
        }
        let all = optional.present.is_empty();
        self.bodies
            .push(if all { PRESENT_ALL } else { PRESENT_BITMAP });
        if !all {
            let mut bitmap = vec![0u8; optional.present.len().div_ceil(8)];
            for (row, _) in optional
                .present
                .iter()
                .enumerate()
                .filter(|(_, present)| **present)
            {
                bitmap[row / 8] |= 1 << (row % 8);
            }
            self.chooser.packer().put(&bitmap, &mut self.bodies)?;
        }
        if let Some(block) = table {
            self.put_processes(block)?;
        }
        let mut values = std::mem::take(&mut self.wide);
        values.clear();
        values.extend(optional.values.iter().map(|value| (*value).into()));
        let present = if all { &[][..] } else { &optional.present };
        let result = self.put_sequence(
            column,
            Values {
                values: &values,
                lengths: &[],
                present,
            },
        );
        self.wide = values;
        result
    }

    fn put_processes(&mut self, block: &Block) -> io::Result<()> {
        let mut table = Vec::new();
        for process in &block.process_table {
            put_varint(u64::from(process.pid), &mut table);
            put_varint(process.name.len() as u64, &mut table);
            table.extend_from_slice(process.name.as_bytes());
        }
        put_varint(block.process_table.len() as u64, &mut self.bodies);
        put_varint(table.len() as u64, &mut self.bodies);
        self.chooser.packer().put(&table, &mut self.bodies)
    }

    fn put_sequence(&mut self, column: u8, values: Values<'_>) -> io::Result<()> {
        let BlockEncoder {
            several_devices,
            processes,
            ..
        } = *self;
        let processes = processes && column != number::PROCESS;
        let task = Task {
            column,
            values,
            several_devices,
            processes,
        };
        self.chooser.put(&task, &mut self.keys, &mut self.bodies)
    }
}

/// Appends the part of a block's payload before its columns: version, length, header, checksum.
pub fn put_header(form: &BlockHeaderV1, out: &mut Vec<u8>) -> Result<(), TapeError> {
    let mut header = Vec::new();
    metadata::put_fields("block header", form, MAX_METADATA_BYTES, &mut header)?;
    let start = out.len();
    out.extend_from_slice(&BLOCK_VERSION.to_le_bytes());
    out.extend_from_slice(&(header.len() as u32).to_le_bytes());
    out.extend_from_slice(&header);
    let crc = crc32c::crc32c(&out[start..]);
    out.extend_from_slice(&crc.to_le_bytes());
    Ok(())
}
