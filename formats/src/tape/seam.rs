//! Where one of the tapes that are joined in a file ends, when nothing whole is left of its end and
//! of the next one's start.

use super::damage::{BadRecord, Fault};
use super::decode::BlockHeader;
use super::metadata;
use super::model::Device;
use super::scanner::Record;
use super::wire::{RECORD_OVERHEAD_BYTES, TRAILER_BYTES, opcode};
use crate::request::DeviceIndex;

/// Follows the records of a part, to know which one cannot be of the same part.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seam {
    begun: bool,
    concluded: bool,
    last_device: Option<DeviceIndex>,
    /// Requests up to the end of the last block.
    requests: u64,
}

impl Seam {
    /// Whether the part has a record.
    pub fn begun(&self) -> bool {
        self.begun
    }

    /// Whether the part has its footer.
    pub fn concluded(&self) -> bool {
        self.concluded
    }

    /// Whether another part starts with this record: it cannot follow those taken so far.
    pub fn precedes(&self, record: &Record<'_>) -> bool {
        if self.concluded {
            return true;
        }
        match record.opcode {
            opcode::HEADER => self.begun,
            opcode::DEVICE => self
                .last_device
                .zip(device(record))
                .is_some_and(|(last, index)| index <= last),
            opcode::BLOCK => {
                BlockHeader::parse(record.payload).is_ok_and(|b| b.requests_before < self.requests)
            }
            _ => false,
        }
    }

    /// Takes a record of the part.
    pub fn take(&mut self, record: &Record<'_>) {
        self.begun = true;
        match record.opcode {
            opcode::DEVICE => self.last_device = device(record).or(self.last_device),
            opcode::BLOCK => {
                if let Ok(block) = BlockHeader::parse(record.payload) {
                    let end = block.requests_before.saturating_add(block.summary.requests);
                    self.requests = end;
                }
            }
            opcode::FOOTER => self.concluded = true,
            _ => (),
        }
    }
}

/// What stands right before a place, to know whether a trailer belongs there.
#[derive(Clone, Copy, Debug, Default)]
pub enum Before {
    /// A footer record of so many bytes, up to this offset.
    Footer { bytes: u64, end: u64 },
    /// Something that could not be used, and may have been a footer.
    Damage,
    #[default]
    Other,
}

impl Before {
    pub fn record(record: &Record<'_>) -> Before {
        let bytes = record
            .payload_bytes
            .saturating_add(RECORD_OVERHEAD_BYTES as u64);
        if record.opcode == opcode::FOOTER {
            let end = record.offset.saturating_add(bytes);
            Before::Footer { bytes, end }
        } else {
            Before::Other
        }
    }

    /// What is wrong with a trailer at this offset, which tells the footer's size.
    pub fn trailer(self, offset: u64, footer_bytes: u64) -> Option<BadRecord> {
        let right = match self {
            Before::Footer { bytes, end } => (bytes, end) == (footer_bytes, offset),
            Before::Damage => true,
            Before::Other => false,
        };
        (!right).then_some(BadRecord {
            offset,
            bytes: TRAILER_BYTES as u64,
            opcode: None,
            fault: Fault::StrayTrailer { footer_bytes },
            requests: None,
        })
    }
}

fn device(record: &Record<'_>) -> Option<DeviceIndex> {
    metadata::get::<Device>(record.payload)
        .ok()
        .map(|device| device.index)
}
