//! Attributes: what was recorded, and which fields a sample of it has (`struct perf_event_attr`).
//!
//! | at | field | |
//! |---|---|---|
//! | 00 | u32 type | 2: a tracepoint |
//! | 04 | u32 size | of the attribute |
//! | 18 | u64 sample_type | fields of a sample, and of what stands behind other records |
//! | 20 | u64 read_format | fields of the counts in a sample |
//! | 28 | u64 | flags; bit 18 sample_id_all, bit 25 use_clockid |
//! | 5c | i32 clockid | whose times the records have, with use_clockid |

use std::collections::HashMap;

use crate::byte_order::ByteOrder;

/// Most ids of one attribute: one for each processor.
pub(super) const MAX_IDS: usize = 1 << 16;
/// Most ids in all.
const MAX_ALL_IDS: usize = 1 << 20;

/// Fields of a sample, `PERF_SAMPLE_…`.
pub(super) mod field {
    pub const IP: u64 = 1 << 0;
    pub const TID: u64 = 1 << 1;
    pub const TIME: u64 = 1 << 2;
    pub const ADDR: u64 = 1 << 3;
    pub const READ: u64 = 1 << 4;
    pub const CALLCHAIN: u64 = 1 << 5;
    pub const ID: u64 = 1 << 6;
    pub const CPU: u64 = 1 << 7;
    pub const PERIOD: u64 = 1 << 8;
    pub const STREAM_ID: u64 = 1 << 9;
    pub const RAW: u64 = 1 << 10;
    pub const IDENTIFIER: u64 = 1 << 16;
}

/// What was recorded in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attr {
    pub is_tracepoint: bool,
    pub sample_type: u64,
    pub read_format: u64,
    /// Whether every record ends with the fields that say whose it is.
    pub sample_id_all: bool,
    /// The clock of the times, by the kernel's number.
    pub clock: Option<i32>,
}

impl Attr {
    /// Bytes of the first version of the structure.
    pub const MIN_BYTES: u64 = 64;

    fn parse(bytes: &[u8], order: ByteOrder) -> Option<Attr> {
        const TRACEPOINT: u32 = 2;
        let flags = order.u64_at(bytes, 0x28)?;
        // Bit fields begin with the highest bit on machines whose numbers begin with the highest byte.
        let flags = match order {
            ByteOrder::Little => flags,
            ByteOrder::Big => flags.reverse_bits(),
        };
        let clock = order.u32_at(bytes, 0x5c).map(u32::cast_signed);
        Some(Attr {
            is_tracepoint: order.u32_at(bytes, 0)? == TRACEPOINT,
            sample_type: order.u64_at(bytes, 0x18)?,
            read_format: order.u64_at(bytes, 0x20)?,
            sample_id_all: flags >> 18 & 1 == 1,
            clock: clock.filter(|_| flags >> 25 & 1 == 1),
        })
    }

    pub fn has(&self, field: u64) -> bool {
        self.sample_type & field != 0
    }

    /// Where a sample has its id.
    fn id_at(&self) -> Option<usize> {
        if self.has(field::IDENTIFIER) {
            return Some(0);
        }
        let before = [field::IP, field::TID, field::TIME, field::ADDR];
        let before = before.iter().filter(|field| self.has(**field)).count();
        self.has(field::ID).then_some(8 * before)
    }
}

/// All that was recorded.
#[derive(Debug, Default)]
pub(super) struct Attrs {
    all: Vec<Attr>,
    by_id: HashMap<u64, usize>,
    /// Where every sample has its id, if that is the same for all.
    id_at: Option<usize>,
    /// Whether all samples have the same fields.
    are_alike: bool,
}

impl Attrs {
    /// Adds an attribute and its ids; one that is too short is left out.
    pub fn add(&mut self, attr: &[u8], ids: &[u8], order: ByteOrder) {
        let Some(attr) = Attr::parse(attr, order) else {
            return;
        };
        let index = self.all.len();
        let numbers = ids.chunks_exact(8).take(MAX_IDS);
        for id in numbers.filter_map(|id| order.u64_at(id, 0)) {
            if self.by_id.len() < MAX_ALL_IDS {
                self.by_id.insert(id, index);
            }
        }
        self.all.push(attr);
        let first = self.all[0];
        let alike = |attr: &Attr| {
            (attr.sample_type, attr.read_format) == (first.sample_type, first.read_format)
        };
        self.are_alike = self.all.iter().all(alike);
        let id_at = first.id_at();
        self.id_at = id_at.filter(|_| self.all.iter().all(|attr| attr.id_at() == id_at));
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether it can be told which fields a sample has.
    pub fn can_be_told_apart(&self) -> bool {
        self.are_alike || self.id_at.is_some()
    }

    /// Whether something of the kernel's tracepoints was recorded.
    pub fn have_tracepoints(&self) -> bool {
        self.all.iter().any(|attr| attr.is_tracepoint)
    }

    /// The clock of the times, if it is told.
    pub fn clock(&self) -> Option<i32> {
        self.all.iter().find_map(|attr| attr.clock)
    }

    /// The attribute of a sample.
    #[inline]
    pub fn of_sample(&self, body: &[u8], order: ByteOrder) -> Option<&Attr> {
        let id = self.id_at.and_then(|at| order.u64_at(body, at));
        let by_id = id.and_then(|id| self.by_id.get(&id));
        match by_id {
            Some(index) => self.all.get(*index),
            None => self.all.first().filter(|_| self.are_alike),
        }
    }

    /// The attribute of another record, by what stands at its end.
    pub fn of_record(&self, body: &[u8], order: ByteOrder) -> Option<&Attr> {
        let first = self.all.first()?;
        if !first.has(field::IDENTIFIER) {
            return Some(first);
        }
        let id = order.u64_at(body, body.len().checked_sub(8)?)?;
        // Records that perf made up have none.
        let index = self.by_id.get(&id).copied().unwrap_or_default();
        self.all.get(index)
    }
}
