//! Adding up requests, blocks and losses, in bounded memory.

use super::block::Block;
use super::metadata::{Footer, IndexEntry};
use super::model::{Anchor, DeviceExtent, Loss, LossReason, OpTotals, Summary};
use crate::request::{DeviceIndex, Op};

/// Most anchors and most losses that are kept apart.
pub const MAX_LISTED: usize = 4096;
/// Most entries of a tape's index.
pub const MAX_INDEX: usize = 16_384;

impl Summary {
    /// Adds the totals of more requests.
    pub fn merge(&mut self, other: &Summary) {
        if other.requests > 0 {
            let first = if self.requests == 0 {
                other.first_ns
            } else {
                self.first_ns
            };
            self.first_ns = first.min(other.first_ns);
            self.last_ns = self.last_ns.max(other.last_ns);
        }
        self.requests = self.requests.saturating_add(other.requests);
        add_totals(&mut self.by_op, &other.by_op);
        for extent in &other.devices {
            self.extent(extent.device).merge(extent);
        }
        self.counters.add(&other.counters);
        self.id = self.id.combine(other.id);
    }

    /// The extent of a device, new when it has none yet.
    fn extent(&mut self, device: DeviceIndex) -> &mut DeviceExtent {
        let at = self
            .devices
            .binary_search_by_key(&device, |extent| extent.device)
            .unwrap_or_else(|at| {
                self.devices.insert(
                    at,
                    DeviceExtent {
                        device,
                        ..DeviceExtent::default()
                    },
                );
                at
            });
        &mut self.devices[at]
    }

    /// Totals of a block's rows. Without counters and id, which the rows do not hold.
    pub(super) fn of_rows(block: &Block) -> Summary {
        let first = block.times.iter().copied().fold(u64::MAX, u64::min);
        Summary {
            requests: block.len() as u64,
            first_ns: if block.is_empty() { 0 } else { first },
            last_ns: block.times.iter().copied().fold(0, u64::max),
            by_op: totals_by_op(&block.ops, &block.lengths),
            devices: extents(block),
            ..Summary::default()
        }
    }
}

/// Rows are added up in so many sums at once, so that one addition need not wait for another.
const LANES: usize = 4;

fn totals_by_op(ops: &[Op], lengths: &[u64]) -> [OpTotals; Op::ALL.len()] {
    let mut lanes = [[OpTotals::default(); Op::ALL.len()]; LANES];
    for (ops, lengths) in ops.chunks(LANES).zip(lengths.chunks(LANES)) {
        for ((op, length), totals) in ops.iter().zip(lengths).zip(&mut lanes) {
            let totals = &mut totals[usize::from(op.number())];
            totals.requests += 1;
            totals.bytes = totals.bytes.saturating_add(*length);
        }
    }
    let [mut sum, others @ ..] = lanes;
    for lane in &others {
        add_totals(&mut sum, lane);
    }
    sum
}

fn add_totals(sum: &mut [OpTotals; Op::ALL.len()], addend: &[OpTotals; Op::ALL.len()]) {
    for (sum, addend) in sum.iter_mut().zip(addend) {
        sum.requests = sum.requests.saturating_add(addend.requests);
        sum.bytes = sum.bytes.saturating_add(addend.bytes);
    }
}

/// The extents of a block's devices, in the order of their indexes.
fn extents(block: &Block) -> Vec<DeviceExtent> {
    let Some(first) = block.devices.first() else {
        return Vec::new();
    };
    let rows = block.ops.iter().zip(&block.offsets).zip(&block.lengths);
    if block
        .devices
        .iter()
        .fold(true, |same, device| same & (device == first))
    {
        let mut extent = Extent::default();
        rows.for_each(|((op, offset), length)| extent.add(*op, *offset, *length));
        return vec![extent.finish(*first)];
    }
    let highest = block
        .devices
        .iter()
        .max()
        .map_or(0, |device| usize::from(device.0));
    let mut extents = vec![Extent::default(); highest + 1];
    for (device, ((op, offset), length)) in block.devices.iter().zip(rows) {
        extents[usize::from(device.0)].add(*op, *offset, *length);
    }
    let devices = (0..=u16::MAX).map(DeviceIndex).zip(extents);
    devices
        .filter(|(_, extent)| extent.requests > 0)
        .map(|(device, extent)| extent.finish(device))
        .collect()
}

/// An extent in the making, without a branch per request.
#[derive(Clone)]
struct Extent {
    requests: u64,
    min_offset: u64,
    end: u64,
    longest_transfer: u64,
    bits: u64,
}

impl Default for Extent {
    fn default() -> Self {
        Extent {
            requests: 0,
            min_offset: u64::MAX,
            end: 0,
            longest_transfer: 0,
            bits: 0,
        }
    }
}

impl Extent {
    fn add(&mut self, op: Op, offset_bytes: u64, length_bytes: u64) {
        // All ones for a request with a length, and for one that transfers data.
        let sized = u64::from(length_bytes > 0).wrapping_neg();
        let transfers = u64::from(op.transfers_data()).wrapping_neg();
        self.requests += 1;
        self.min_offset = self.min_offset.min(offset_bytes | !sized);
        self.end = self
            .end
            .max(offset_bytes.saturating_add(length_bytes) & sized);
        self.longest_transfer = self.longest_transfer.max(length_bytes & transfers);
        self.bits |= (offset_bytes | length_bytes) & sized;
    }

    fn finish(&self, device: DeviceIndex) -> DeviceExtent {
        DeviceExtent {
            device,
            requests: self.requests,
            // Without a request with a length there is no offset.
            min_offset_bytes: if self.end == 0 { 0 } else { self.min_offset },
            end_bytes: self.end,
            longest_transfer_bytes: self.longest_transfer,
            alignment_bits: self.bits,
        }
    }
}

impl DeviceExtent {
    /// Adds what more requests of the same device span.
    pub fn merge(&mut self, other: &DeviceExtent) {
        self.requests = self.requests.saturating_add(other.requests);
        // An extent that ends at 0 holds no request with a length.
        if other.end_bytes == 0 {
            return;
        }
        let lowest = if self.end_bytes == 0 {
            other.min_offset_bytes
        } else {
            self.min_offset_bytes
        };
        self.min_offset_bytes = lowest.min(other.min_offset_bytes);
        self.end_bytes = self.end_bytes.max(other.end_bytes);
        self.longest_transfer_bytes = self
            .longest_transfer_bytes
            .max(other.longest_transfer_bytes);
        self.alignment_bits |= other.alignment_bits;
    }
}

/// What the records of a tape add up to: the content of its footer.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    footer: Footer,
    /// Every how many anchors one is kept.
    anchor_stride: u64,
    anchors_seen: u64,
    /// How many blocks an index entry covers.
    blocks_per_entry: u32,
}

impl Tally {
    /// Requests in the blocks so far.
    pub fn requests(&self) -> u64 {
        self.footer.summary.requests
    }

    pub fn into_footer(self) -> Footer {
        self.footer
    }

    /// Adds a block whose record starts `offset` bytes into the tape.
    pub fn block(&mut self, offset: u64, summary: &Summary) {
        self.footer.summary.merge(summary);
        self.footer.blocks += 1;
        let entry = IndexEntry {
            offset,
            blocks: 1,
            requests: summary.requests,
            first_ns: summary.first_ns,
            last_ns: summary.last_ns,
        };
        let index = &mut self.footer.index;
        if let Some(last) = index
            .last_mut()
            .filter(|last| last.blocks < self.blocks_per_entry)
        {
            last.extend(&entry);
            return;
        }
        if index.len() == MAX_INDEX {
            join_pairs(index, IndexEntry::extend);
            self.blocks_per_entry = self.blocks_per_entry.max(1).saturating_mul(2);
        }
        index.push(entry);
    }

    /// Adds an anchor. When there are too many, every second one is forgotten.
    pub fn anchor(&mut self, anchor: Anchor) {
        let stride = self.anchor_stride.max(1);
        if self.anchors_seen.is_multiple_of(stride) {
            self.footer.anchors.push(anchor);
        }
        self.anchors_seen += 1;
        if self.footer.anchors.len() > MAX_LISTED {
            join_pairs(&mut self.footer.anchors, |_, _| ());
            self.anchor_stride = stride * 2;
        }
    }

    /// Adds a loss. When there are too many, neighbours are joined: the sum of events stays.
    pub fn loss(&mut self, loss: Loss) {
        self.footer.losses.push(loss);
        if self.footer.losses.len() > MAX_LISTED {
            join_pairs(&mut self.footer.losses, Loss::join);
        }
    }
}

impl IndexEntry {
    fn extend(&mut self, next: &IndexEntry) {
        if next.requests > 0 {
            let first = if self.requests == 0 {
                next.first_ns
            } else {
                self.first_ns
            };
            self.first_ns = first.min(next.first_ns);
            self.last_ns = self.last_ns.max(next.last_ns);
        }
        self.blocks = self.blocks.saturating_add(next.blocks);
        self.requests = self.requests.saturating_add(next.requests);
    }
}

impl Loss {
    fn join(&mut self, next: &Loss) {
        self.from_ns = self.from_ns.min(next.from_ns);
        self.to_ns = self.to_ns.max(next.to_ns);
        self.events = self.events.saturating_add(next.events);
        let both = self.requests.zip(next.requests);
        self.requests = both.map(|(sum, more)| sum.saturating_add(more));
        if self.reason != next.reason {
            self.reason = LossReason::Unknown;
        }
    }
}

/// Replaces each pair of neighbours by its first, which `join` may extend by the second.
fn join_pairs<T: Clone>(list: &mut Vec<T>, join: impl Fn(&mut T, &T)) {
    let joined = list.chunks(2).map(|pair| {
        let mut first = pair[0].clone();
        if let Some(second) = pair.get(1) {
            join(&mut first, second);
        }
        first
    });
    *list = joined.collect();
}
