//! What a file had that is no event, and what its session lost.

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

/// What a reader met besides whole events. Nothing of it stops the reader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Bytes between buffers that are no buffer.
    pub skipped_bytes: u64,
    /// The first 64 places of such bytes.
    pub regions: Vec<Region>,
    /// The last buffer, when the file ends inside it. Its whole events are kept.
    pub torn_tail: Option<Region>,
    /// Zeroes at the end of the file: the session made room that it did not use.
    pub zero_tail: Option<Region>,
    /// Buffers whose size was wrong: the next one begins elsewhere.
    pub wrong_sizes: u64,
    /// Buffers whose end of used bytes was impossible. Their events are kept.
    pub wrong_offsets: u64,
    /// Buffers whose compressed bytes could not be decoded to the end. What was decoded is kept.
    pub bad_compression: u64,
    /// Buffers that were left out: more processors or more memory at once than is believed.
    pub refused_buffers: u64,
    /// Places in buffers where no event could be found; the rest of the buffer is skipped.
    pub bad_events: u64,
    /// Bytes of buffers, before compression, that were skipped for that.
    pub bad_event_bytes: u64,
    /// Events older than one that was given out before.
    pub out_of_order: u64,
}

impl Damage {
    /// Whether anything was skipped or cut. A zero tail alone is a clean stop.
    pub fn is_none(&self) -> bool {
        let clean = Damage {
            zero_tail: self.zero_tail,
            ..Damage::default()
        };
        *self == clean
    }

    /// How many places lost events, or may have: regions as far as they are told one by one.
    pub fn count(&self) -> u64 {
        self.regions.len() as u64
            + u64::from(self.torn_tail.is_some())
            + self.bad_events
            + self.bad_compression
            + self.refused_buffers
    }

    pub(crate) fn skip(&mut self, range: Range<u64>) {
        let bytes = range.end.saturating_sub(range.start);
        if bytes == 0 {
            return;
        }
        self.skipped_bytes += bytes;
        if self.regions.len() < MAX_REGIONS {
            self.regions.push(Region {
                offset: range.start,
                bytes,
            });
        }
    }
}

/// What the session lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Events, by the trace's header.
    pub events: u32,
    /// Buffers, by the trace's header.
    pub buffers: u32,
    /// Numbers that are missing between the lowest and the highest number of a buffer.
    pub missing_numbers: u64,
    /// Buffers that say that something was lost before them.
    pub flagged_buffers: u64,
    /// Between these two times, in ticks, lie all losses that such buffers tell of.
    pub flagged_span: Option<(i64, i64)>,
}

impl Losses {
    /// Whether nothing was lost.
    pub fn is_none(&self) -> bool {
        *self == Losses::default()
    }

    /// Notes a loss between these two times, in ticks.
    pub(crate) fn flag(&mut self, from: i64, to: i64) {
        self.flagged_buffers += 1;
        let (first, last) = self.flagged_span.unwrap_or((from, to));
        self.flagged_span = Some((first.min(from), last.max(to)));
    }
}
