//! What a reader found wrong with a tape.

use std::collections::BTreeMap;

use super::error::Corrupt;
use super::id::TapeId;
use super::model::Summary;
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

impl BadRecord {
    /// The lack of something where a tape starts.
    pub(super) fn lack(offset: u64, fault: Fault) -> BadRecord {
        BadRecord {
            offset,
            bytes: 0,
            opcode: None,
            fault,
            requests: None,
        }
    }
}

/// What is wrong with a part of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// No record starts here: a damaged header, or bytes that were never part of a tape.
    NoRecord,
    /// A tape's records start without the magic that stands before them.
    NoMagic,
    /// A tape's first record is not its header.
    NoHeader,
    /// A trailer that does not stand right behind a footer record of the size that it tells.
    StrayTrailer {
        /// The size that it tells.
        footer_bytes: u64,
    },
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
    /// Tapes without the magic before their records.
    pub missing_magics: u64,
    /// Tapes whose first record is no header, though nothing before it is damaged.
    pub missing_headers: u64,
    /// The first bad records and skipped parts, in the order of the file.
    pub listed: Vec<BadRecord>,
    /// Records with a number that this program does not know, per number.
    pub unknown: BTreeMap<u8, u64>,
    /// Columns of blocks, with a number that this program does not know.
    pub unknown_columns: u64,
    /// Devices that requests name and no device record describes.
    pub undescribed_devices: u64,
    /// Requests that were in the tape and could not be read. Each block and the footer say how many
    /// come before them, so that only a loss at the end of a tape without a footer stays unknown.
    pub lost_requests: u64,
    /// How many of the listed ones have been told what is lost with them.
    attributed: usize,
}

impl Damage {
    /// Whether every byte of the file was understood or is private.
    pub fn is_clean(&self) -> bool {
        let counts = [
            self.skipped_bytes,
            self.bad_records,
            self.missing_magics,
            self.missing_headers,
            self.undescribed_devices,
            self.lost_requests,
        ];
        counts.iter().all(|count| *count == 0) && !self.lacks_essentials()
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
        if bad.fault == Fault::NoMagic {
            self.missing_magics += 1;
        } else if bad.fault == Fault::NoHeader {
            self.missing_headers += 1;
        } else if bad.opcode.is_none() {
            self.skipped_bytes = self.skipped_bytes.saturating_add(bad.bytes);
        } else {
            self.bad_records += 1;
        }
        if self.listed.len() < MAX_LISTED {
            self.listed.push(bad);
        }
    }

    /// Counts requests as lost since this was called last, and says of which bad record they are if
    /// only one can be meant.
    pub(super) fn lose(&mut self, lost: u64) {
        self.lost_requests = self.lost_requests.saturating_add(lost);
        let bad = self.listed.get_mut(self.attributed..).unwrap_or_default();
        let known = bad
            .iter()
            .filter_map(|bad| bad.requests)
            .fold(0u64, u64::saturating_add);
        let may_hold_requests = |bad: &&mut BadRecord| {
            bad.requests.is_none()
                && bad.bytes > 0
                && bad.opcode.is_none_or(|opcode| opcode == opcode::BLOCK)
        };
        let mut open = bad.iter_mut().filter(may_hold_requests);
        if let (Some(bad), None) = (open.next(), open.next()) {
            bad.requests = Some(lost.saturating_sub(known));
        }
        self.attributed = self.listed.len();
    }

    pub(super) fn add_unknown(&mut self, opcode: u8) {
        *self.unknown.entry(opcode).or_default() += 1;
    }
}

/// Follows the blocks of a part, to know what is missing between them.
#[derive(Debug, Default)]
pub struct Continuity {
    part: usize,
    /// Requests that should have come so far.
    expected: u64,
    /// Requests and id of the blocks that did come.
    read: u64,
    id: TapeId,
}

impl Continuity {
    /// Takes a block of a part, which so many requests should come before; returns how many of
    /// them are missing.
    pub fn block(&mut self, part: usize, before: u64, summary: &Summary) -> Result<u64, Corrupt> {
        self.enter(part);
        let of_another = Corrupt::Inconsistent {
            what: "the block counts fewer requests before it than there are",
        };
        let lost = before.checked_sub(self.expected).ok_or(of_another)?;
        self.expected = before.saturating_add(summary.requests);
        self.read = self.read.saturating_add(summary.requests);
        self.id = self.id.combine(summary.id);
        Ok(lost)
    }

    /// Takes the totals of a part; returns how many requests are missing at its end.
    pub fn footer(&mut self, part: usize, summary: &Summary) -> Result<u64, Corrupt> {
        self.enter(part);
        let differ = self.read == summary.requests && self.id != summary.id;
        if differ || self.read > summary.requests {
            return Err(Corrupt::Inconsistent {
                what: "the footer does not fit the blocks before it",
            });
        }
        let lost = summary.requests.saturating_sub(self.expected);
        self.expected = self.expected.max(summary.requests);
        Ok(lost)
    }

    fn enter(&mut self, part: usize) {
        if part != self.part {
            *self = Continuity {
                part,
                ..Continuity::default()
            };
        }
    }
}
