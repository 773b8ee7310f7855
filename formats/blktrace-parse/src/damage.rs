//! What a file had that is no record.

use std::ops::Range;

/// How many skipped regions are told one by one.
const MAX_REGIONS: usize = 64;

/// Bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The first one's place.
    pub offset: u64,
    /// How many.
    pub bytes: u64,
}

/// A file that ends inside a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncated {
    /// Where the record begins.
    pub offset: u64,
    /// Length of the record by its header, or of the header when even that is cut.
    pub expected_bytes: u64,
    /// How many of them are there.
    pub found_bytes: u64,
}

/// What a decoder met besides whole records. Nothing of it stops the decoder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Bytes that no record could be made of, without the zero tail.
    pub skipped_bytes: u64,
    /// In how many places.
    pub skipped_regions: u64,
    /// The first 64 of these places.
    pub regions: Vec<Region>,
    /// Records whose payload was said to be longer than the room before the next record; kept,
    /// with the payload cut there.
    pub cut_payloads: u64,
    /// The record in which the file ends. It is kept, with what there is of its payload, if its
    /// header is whole.
    pub truncated: Option<Truncated>,
    /// Zeroes from the last record to the end of the file: the recorder was killed.
    pub zero_tail: Option<Region>,
}

impl Damage {
    /// Whether anything was lost or cut. A zero tail alone is a clean stop.
    pub fn is_none(&self) -> bool {
        self.skipped_bytes == 0 && self.cut_payloads == 0 && self.truncated.is_none()
    }

    pub(crate) fn skip(&mut self, range: Range<u64>) {
        let Some(region) = region(range) else {
            return;
        };
        self.skipped_bytes += region.bytes;
        self.skipped_regions += 1;
        if self.regions.len() < MAX_REGIONS {
            self.regions.push(region);
        }
    }

    pub(crate) fn set_zero_tail(&mut self, range: Range<u64>) {
        self.zero_tail = region(range);
    }
}

fn region(range: Range<u64>) -> Option<Region> {
    (!range.is_empty()).then(|| Region {
        offset: range.start,
        bytes: range.end - range.start,
    })
}
