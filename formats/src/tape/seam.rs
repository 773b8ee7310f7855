//! Where one of the tapes that are joined in a file ends, when nothing whole is left of its end and
//! of the next one's start.

use super::decode::BlockHeader;
use super::metadata;
use super::model::Device;
use super::scanner::Record;
use super::wire::opcode;
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

fn device(record: &Record<'_>) -> Option<DeviceIndex> {
    metadata::get::<Device>(record.payload)
        .ok()
        .map(|device| device.index)
}
