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
    /// Requests that were in the tape and could not be read. Each block and the footer say how many
    /// come before them, so that only a loss at the end of a tape without a footer stays unknown.
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

/// Follows the number of requests that should have been read, to know what is missing.
#[derive(Debug, Default)]
pub struct Continuity {
    part: usize,
    expected: u64,
    /// How many bad records were listed when the last good block was read.
    listed: usize,
}

impl Continuity {
    /// Takes a good block of a part, which says how many requests come before it.
    pub fn block(&mut self, part: usize, before: u64, requests: u64, damage: &mut Damage) {
        self.reach(part, before, damage);
        self.expected = self.expected.saturating_add(requests);
    }

    /// Takes a point of a part that so many requests come before.
    pub fn reach(&mut self, part: usize, before: u64, damage: &mut Damage) {
        if part != self.part {
            self.part = part;
            self.expected = 0;
        }
        let lost = before.saturating_sub(self.expected);
        self.expected = self.expected.max(before);
        damage.lost_requests = damage.lost_requests.saturating_add(lost);
        let since = damage.listed.get_mut(self.listed..).unwrap_or_default();
        attribute(lost, since);
        self.listed = damage.listed.len();
    }
}

/// Says of which bad record the lost requests are, if only one can be meant.
fn attribute(lost: u64, bad: &mut [BadRecord]) {
    let known = bad
        .iter()
        .filter_map(|bad| bad.requests)
        .fold(0u64, u64::saturating_add);
    let mut open = bad.iter_mut().filter(|bad| {
        bad.requests.is_none() && bad.opcode.is_none_or(|opcode| opcode == opcode::BLOCK)
    });
    if let (Some(bad), None) = (open.next(), open.next()) {
        bad.requests = Some(lost.saturating_sub(known));
    }
}
