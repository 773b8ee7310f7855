//! Adding up requests, blocks and losses, in bounded memory.

use super::block::Block;
use super::metadata::{Footer, IndexEntry};
use super::model::{Anchor, DeviceExtent, Loss, LossReason, Summary};
use crate::request::{DeviceIndex, Op};

/// Most anchors and most losses that are kept apart.
pub const MAX_LISTED: usize = 4096;
/// Most entries of a tape's index.
pub const MAX_INDEX: usize = 16_384;

impl Summary {
    /// Adds the totals of more requests.
    pub(super) fn merge(&mut self, other: &Summary) {
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
        for (sum, addend) in self.by_op.iter_mut().zip(&other.by_op) {
            sum.requests = sum.requests.saturating_add(addend.requests);
            sum.bytes = sum.bytes.saturating_add(addend.bytes);
        }
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
        let mut summary = Summary {
            requests: block.len() as u64,
            ..Summary::default()
        };
        summary.first_ns = block.times.iter().copied().min().unwrap_or(0);
        summary.last_ns = block.times.iter().copied().max().unwrap_or(0);
        for (op, length) in block.ops.iter().zip(&block.lengths) {
            let totals = &mut summary.by_op[usize::from(op.number())];
            totals.requests += 1;
            totals.bytes = totals.bytes.saturating_add(*length);
        }
        let mut slots: Vec<Option<DeviceExtent>> = Vec::new();
        for row in 0..block.len() {
            let device = block.devices[row];
            let slot = usize::from(device.0);
            if slots.len() <= slot {
                slots.resize(slot + 1, None);
            }
            let extent = slots[slot].get_or_insert(DeviceExtent {
                device,
                ..DeviceExtent::default()
            });
            extent.add(block.ops[row], block.offsets[row], block.lengths[row]);
        }
        summary.devices = slots.into_iter().flatten().collect();
        summary
    }
}

impl DeviceExtent {
    fn add(&mut self, op: Op, offset_bytes: u64, length_bytes: u64) {
        self.requests += 1;
        if length_bytes == 0 {
            return;
        }
        let longest_transfer_bytes = if op.transfers_data() { length_bytes } else { 0 };
        self.widen(&DeviceExtent {
            min_offset_bytes: offset_bytes,
            end_bytes: offset_bytes.saturating_add(length_bytes),
            longest_transfer_bytes,
            alignment_bits: offset_bytes | length_bytes,
            ..*self
        });
    }

    /// Adds what more requests of the same device span.
    pub fn merge(&mut self, other: &DeviceExtent) {
        self.requests = self.requests.saturating_add(other.requests);
        self.widen(other);
    }

    fn widen(&mut self, other: &DeviceExtent) {
        // An extent that ends at 0 holds no request with a length.
        if other.end_bytes == 0 {
            return;
        }
        let empty = self.end_bytes == 0;
        let lowest = if empty {
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
