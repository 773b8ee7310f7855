//! A new tape with all that is whole in a damaged one.

use std::io::{Read, Seek, Write};

use super::block::Block;
use super::chain::Chain;
use super::column::Columns;
use super::damage::{BadRecord, Damage, Fault};
use super::decode::BlockDecoder;
use super::encode::put_header;
use super::error::{Corrupt, TapeError};
use super::metadata::{self, BlockHeaderV1, ColumnV1, Stored};
use super::model::{Device, Header, Name};
use super::scanner::{Record, Scanner, Step};
use super::seam::{Before, Seam};
use super::source::{READ_BYTES, Source};
use super::wire::{RECORD_OVERHEAD_BYTES, opcode};
use crate::request::DeviceIndex;

/// What a repair did.
#[derive(Clone, Debug, Default)]
pub struct RepairReport {
    /// Blocks in the new tape.
    pub blocks: u64,
    /// Requests in the new tape.
    pub requests: u64,
    /// Size of the new tape.
    pub bytes: u64,
    /// What was left out. Its `lost_requests` is not counted here: [`check`](super::check) of the
    /// old tape tells it.
    pub left_out: Damage,
}

/// Writes a new tape with all whole records of `source`, which is cut off, damaged or joined from
/// several tapes; joined tapes stay joined, each with its own footer.
///
/// Columns are copied as they are. A header or device that is lost is replaced by a stand-in that
/// says so.
///
/// # Errors
///
/// When the source or the sink fails, or the source holds no record of a tape.
pub fn repair<R: Read + Seek, W: Write>(source: R, sink: W) -> Result<RepairReport, TapeError> {
    let mut source = Source::new(source);
    source.seek(0)?;
    let mut repair = Repair {
        sink,
        out: Vec::new(),
        open: None,
        decoder: BlockDecoder::new().map_err(|error| TapeError::Compress { error })?,
        block: Block::new(),
        report: RepairReport::default(),
    };
    let mut scanner = Scanner::new();
    let mut records = 0u64;
    let mut before = Before::default();
    loop {
        match scanner.step() {
            Step::Need(bytes) => source.feed(&mut scanner, bytes.max(READ_BYTES))?,
            Step::Seek(offset) => source.seek(offset)?,
            Step::Head(_) => {
                before = Before::Other;
                repair.finish_part()?;
            }
            Step::Tail {
                offset,
                footer_bytes,
            } => std::mem::take(&mut before)
                .trailer(offset, footer_bytes)
                .into_iter()
                .for_each(|stray| repair.report.left_out.add(stray)),
            Step::Bad(bad) => {
                before = Before::Damage;
                repair.report.left_out.add(bad);
            }
            Step::End => break,
            Step::Record(record) => {
                records += 1;
                before = Before::record(&record);
                repair.record(&record)?;
            }
        }
        repair.drain()?;
    }
    if records == 0 {
        return Err(source.not_a_tape(scanner.offset()));
    }
    repair.finish_part()?;
    repair.drain()?;
    let flushed = repair.sink.flush();
    flushed.map_err(|error| TapeError::Io {
        offset: repair.report.bytes,
        error,
    })?;
    Ok(repair.report)
}

struct Repair<W> {
    sink: W,
    out: Vec<u8>,
    open: Option<Open>,
    decoder: BlockDecoder,
    block: Block,
    report: RepairReport,
}

/// The tape that is being written.
struct Open {
    chain: Chain,
    /// What of the old tape it is made of.
    seam: Seam,
    /// How many devices it describes: those with the indexes below.
    devices: u32,
}

/// Why a record is not copied.
enum Obstacle {
    /// Its content cannot be used: the repair goes on without it.
    Content(Corrupt),
    /// The repair cannot go on.
    Tape(TapeError),
}

impl From<Corrupt> for Obstacle {
    fn from(corrupt: Corrupt) -> Self {
        Obstacle::Content(corrupt)
    }
}

impl From<TapeError> for Obstacle {
    fn from(error: TapeError) -> Self {
        Obstacle::Tape(error)
    }
}

impl<W: Write> Repair<W> {
    /// Copies a record, unless its content cannot be used.
    fn record(&mut self, record: &Record<'_>) -> Result<(), TapeError> {
        match self.copy(record) {
            Ok(()) => Ok(()),
            Err(Obstacle::Tape(error)) => Err(error),
            Err(Obstacle::Content(corrupt)) => {
                let bytes = record
                    .payload_bytes
                    .saturating_add(RECORD_OVERHEAD_BYTES as u64);
                let (opcode, fault) = (Some(record.opcode), Fault::Content(corrupt));
                self.report.left_out.add(BadRecord {
                    offset: record.offset,
                    bytes,
                    opcode,
                    fault,
                    requests: None,
                });
                Ok(())
            }
        }
    }

    fn copy(&mut self, record: &Record<'_>) -> Result<(), Obstacle> {
        let payload = record.payload;
        let begins = |open: &Open| open.seam.precedes(record);
        if self.open.as_ref().is_none_or(begins) {
            self.finish_part()?;
            if record.opcode != opcode::HEADER {
                self.begin_part(&lost_header())?;
            }
        }
        if record.opcode == opcode::HEADER {
            let header = metadata::get(payload);
            self.begin_part(header.as_ref().unwrap_or(&lost_header()))?;
            self.take(record);
            return Ok(header.map(|_| ())?);
        }
        self.take(record);
        match record.opcode {
            opcode::FOOTER => return Ok(self.finish_part()?),
            opcode::BLOCK => return self.copy_block(payload),
            opcode::DEVICE => return self.copy_device(&metadata::get(payload)?),
            // Copied as they are below: they may name what a later version numbers.
            opcode::NAMES => drop(metadata::get::<Vec<Name>>(payload)?),
            _ => (),
        }
        let Repair {
            open: Some(open),
            out,
            ..
        } = self
        else {
            return Ok(());
        };
        match record.opcode {
            opcode::ANCHOR => open.chain.anchor(metadata::get(payload)?, out)?,
            opcode::LOSS => open.chain.loss(metadata::get(payload)?, out)?,
            opcode if payload.len() as u64 == record.payload_bytes => {
                open.chain.put(opcode, out, |out| {
                    out.extend_from_slice(payload);
                    Ok(())
                })?;
            }
            // Too long to hold.
            opcode => self.report.left_out.add_unknown(opcode),
        }
        Ok(())
    }

    /// Takes it that the open tape is made of this record, too.
    fn take(&mut self, record: &Record<'_>) {
        if let Some(open) = &mut self.open {
            open.seam.take(record);
        }
    }

    /// Copies a device, behind stand-ins for those that should stand before it.
    fn copy_device(&mut self, device: &Device) -> Result<(), Obstacle> {
        self.stand_in(u32::from(device.index.0))?;
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        if open.devices != u32::from(device.index.0) {
            return Err(Obstacle::Content(Corrupt::Inconsistent {
                what: "the device is described behind requests that name it",
            }));
        }
        open.devices += 1;
        let put = open.chain.metadata(opcode::DEVICE, device, &mut self.out);
        Ok(put?)
    }

    /// Describes devices that were not, up to so many.
    fn stand_in(&mut self, devices: u32) -> Result<(), TapeError> {
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        for index in open.devices..devices {
            let device = lost_device(DeviceIndex(index as u16));
            open.chain
                .metadata(opcode::DEVICE, &device, &mut self.out)?;
            self.report.left_out.undescribed_devices += 1;
        }
        open.devices = open.devices.max(devices);
        Ok(())
    }

    /// Copies a block that decodes: its columns as they are, under a header that counts the
    /// requests before it anew.
    fn copy_block(&mut self, payload: &[u8]) -> Result<(), Obstacle> {
        let header = self.decoder.get(payload, Columns::ALL, &mut self.block)?;
        self.block.verify_id(header.summary.id)?;
        let last = header.summary.devices.last();
        self.stand_in(last.map_or(0, |extent| u32::from(extent.device.0) + 1))?;
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        let columns = header.columns.iter().map(|(column, bytes)| ColumnV1 {
            column: *column,
            bytes: *bytes as u32,
        });
        let form = BlockHeaderV1 {
            requests_before: open.chain.requests(),
            summary: header.summary.to_form(),
            columns: columns.collect(),
        };
        open.chain.block(&header.summary, &mut self.out, |out| {
            put_header(&form, out)?;
            out.extend_from_slice(&payload[header.bodies_at..]);
            Ok(())
        })?;
        self.report.blocks += 1;
        self.report.requests += header.summary.requests;
        Ok(())
    }

    fn begin_part(&mut self, header: &Header) -> Result<(), TapeError> {
        let mut chain = Chain::start(&mut self.out);
        chain.metadata(opcode::HEADER, header, &mut self.out)?;
        self.open = Some(Open {
            chain,
            seam: Seam::default(),
            devices: 0,
        });
        Ok(())
    }

    fn finish_part(&mut self) -> Result<(), TapeError> {
        if let Some(open) = self.open.take() {
            open.chain.finish(&mut self.out)?;
        }
        Ok(())
    }

    /// Gives the sink what has been made.
    fn drain(&mut self) -> Result<(), TapeError> {
        let written = self.sink.write_all(&self.out);
        written.map_err(|error| TapeError::Io {
            offset: self.report.bytes,
            error,
        })?;
        self.report.bytes += self.out.len() as u64;
        self.out.clear();
        Ok(())
    }
}

fn lost_header() -> Header {
    Header {
        tool: "unknown".to_owned(),
        notes: vec!["the header of this tape was lost".to_owned()],
        ..Header::default()
    }
}

fn lost_device(index: DeviceIndex) -> Device {
    Device {
        index,
        name: format!("undescribed-{}", index.0),
        ..Device::default()
    }
}
