//! Operations that are not found by their range: flushes and other operations without data, and
//! zone appends, which are done elsewhere than they were sent.

use crate::event::{Event, SECTOR_BYTES};
use crate::request::Op;

use super::Pairing;
use super::ranges::{Entry, Key, Ranges};

/// Whether the completion of such an event is found here and not by its range.
pub(super) fn is_point(event: &Event) -> bool {
    match event.op {
        Op::Flush | Op::Other | Op::ZoneAppend => true,
        _ => event.length_bytes == 0,
    }
}

/// Open entries that the event may belong to, oldest first.
pub(super) fn candidates<T>(table: &Ranges<T>, event: &Event, keys: &mut Vec<Key>) {
    table.all_of(event.device, event.op, keys);
    keys.retain(|key| table.get(*key).is_some_and(|entry| may_be(entry, event)));
    keys.sort_by_key(|key| table.get(*key).map(|entry| entry.time_ns));
}

fn may_be<T>(entry: &Entry<T>, event: &Event) -> bool {
    if entry.time_ns > event.time_ns {
        return false;
    }
    let length_bytes = entry.range.end - entry.range.start;
    match event.op {
        Op::Flush => true,
        // A completion tells the length in whole sectors.
        Op::Other => length_bytes / SECTOR_BYTES == event.length_bytes / SECTOR_BYTES,
        // Sent to the start of a zone, done wherever the zone's end was.
        Op::ZoneAppend => {
            entry.range.start <= event.offset_bytes && length_bytes == event.length_bytes
        }
        _ => entry.range.start == event.offset_bytes,
    }
}

impl Pairing {
    /// An operation without a range of its own is done.
    pub(super) fn complete_point(&mut self, event: &Event) {
        let mut keys = std::mem::take(&mut self.keys);
        candidates(&self.open, event, &mut keys);
        match self.oldest_of(&keys) {
            Some(key) => {
                self.note_error(key, event);
                self.close(key, event.time_ns);
            }
            None => self.counters.unpaired_completions += 1,
        }
        self.keys = keys;
    }

    /// The oldest of several open requests, all of which are in doubt if it is not the only one.
    pub(super) fn oldest_of(&mut self, keys: &[Key]) -> Option<Key> {
        if keys.len() > 1 {
            for key in keys {
                if let Some(entry) = self.open.get_mut(*key) {
                    entry.doubtful = true;
                }
            }
        }
        keys.first().copied()
    }

    /// Keeps the first error of a request's parts.
    pub(super) fn note_error(&mut self, key: Key, event: &Event) {
        if let Some(entry) = self.open.get_mut(key)
            && entry.error == 0
        {
            entry.error = event.error.unwrap_or(0);
        }
    }
}
