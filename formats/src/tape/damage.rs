//! What a reader found wrong with a tape.

use std::collections::BTreeMap;

use super::error::Corrupt;
use super::wire::opcode;

/// Most bad records that are listed one by one; more are only counted.
pub const MAX_LISTED: usize = 1000;

/// A part of the file that could not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRecord {
    /// Where it starts, in bytes from the start of the file.
    pub offset: u64,
    /// Bytes until the next usable record.
    pub bytes: u64,
    /// Number of the record, when its header is whole.
    pub opcode: Option<u8>,
    /// What is wrong.
    pub fault: Fault,
    /// How many requests are lost with it, when that is known.
    pub requests: Option<u64>,
}

/// What is wrong with a part of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// No record starts here: a damaged header, or bytes that were never part of a tape.
    NoRecord,
    /// The file ends within the record, or another record starts within it.
    Truncated {
        /// Bytes that the record should have.
        expected: u64,
        /// Bytes that follow in the file.
        found: u64,
    },
    /// The payload is not what was written.
    Checksum {
        /// As stored behind the payload.
        stored: u32,
        /// As computed over it.
        computed: u32,
    },
    /// The payload is what was written, but cannot be used.
    Content(Corrupt),
}

/// What was found wrong so far: nothing is skipped without being counted here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Bytes that belong to no record.
    pub skipped_bytes: u64,
    /// Records that were found but could not be used.
    pub bad_records: u64,
    /// The first bad records and skipped parts, in the order of the file.
    pub listed: Vec<BadRecord>,
    /// Records with a number that this program does not know, per number.
    pub unknown: BTreeMap<u8, u64>,
    /// Devices that requests name and no device record describes.
    pub undescribed_devices: u64,
    /// Requests that the footer counts and the blocks do not hold. Known at the end of the tape.
    pub lost_requests: u64,
}

impl Damage {
    /// Whether every byte of the file was understood or is private.
    pub fn is_clean(&self) -> bool {
        *self
            == Damage {
                unknown: self.unknown.clone(),
                ..Damage::default()
            }
            && !self.lacks_essentials()
    }

    /// Whether a later version's records, which hold requests or change their meaning, were passed
    /// over.
    pub fn lacks_essentials(&self) -> bool {
        self.unknown
            .range(opcode::FIRST_ESSENTIAL..opcode::FIRST_PRIVATE)
            .next()
            .is_some()
    }

    pub(super) fn add(&mut self, bad: BadRecord) {
        if bad.opcode.is_none() {
            self.skipped_bytes = self.skipped_bytes.saturating_add(bad.bytes);
        } else {
            self.bad_records += 1;
        }
        if self.listed.len() < MAX_LISTED {
            self.listed.push(bad);
        }
    }

    pub(super) fn add_unknown(&mut self, opcode: u8) {
        *self.unknown.entry(opcode).or_default() += 1;
    }
}
