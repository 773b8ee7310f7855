//! The queue layer: a request is what its submitter handed over.
//!
//! On a device with a request queue, completions come from requests, whose ranges need not be those
//! of the submissions. A write that asks for a flush before it, or for durability on a device that
//! has no FUA, runs as a *flush sequence*: flush, data, flush. The kernel reports its data as done and
//! later, with an empty range at the same place, the end of the sequence, which is when the
//! submitter learns of it. The flushes that the kernel makes up for such sequences are nobody's
//! submission.

use crate::event::{Event, Step, without};
use crate::request::{Flags, Op, Request};

use super::ranges::{Bytes, Key};
use super::{Pairing, point, range_of};

impl Pairing {
    pub(super) fn queue_layer(&mut self, event: Event) {
        match event.step {
            Step::Queued => self.queued(event),
            Step::RequestCompleted => match event.op {
                // The kernel's own flush, or a command that was never submitted as a bio.
                Op::Flush | Op::Other => {}
                Op::Write if event.length_bytes == 0 => self.sequence_done(&event),
                _ if point::is_point(&event) => self.complete_point(&event),
                _ => self.complete_range(&event),
            },
            Step::BioCompleted if point::is_point(&event) => self.complete_point(&event),
            Step::BioCompleted => self.complete_range(&event),
            Step::Issued
            | Step::Requeued
            | Step::BioMerged
            | Step::RequestsMerged
            | Step::Split => {}
        }
    }

    fn queued(&mut self, event: Event) {
        let Some(range) = range_of(&event) else {
            self.counters.undecodable += 1;
            return;
        };
        let request = Request {
            time_ns: event.time_ns,
            device: event.device,
            op: event.op,
            flags: event.flags,
            offset_bytes: event.offset_bytes,
            length_bytes: event.length_bytes,
            process: event.process,
            cgroup: event.cgroup,
            cpu: event.cpu,
            ..Request::default()
        };
        self.begin(request, range, false, false);
    }

    fn complete_range(&mut self, event: &Event) {
        let Some(range) = range_of(event) else {
            self.counters.undecodable += 1;
            return;
        };
        let hits = self.finish_range(event, &range);
        for key in &hits.touched {
            self.note_error(*key, event);
            self.await_flush(*key, event, &range);
        }
        for key in &hits.whole {
            if self
                .open
                .get_mut(*key)
                .is_some_and(|entry| entry.payload.flushing.is_empty())
            {
                self.close(*key, event.time_ns);
            }
        }
        self.hits = hits;
    }

    /// The data of a part is done: if it runs as a flush sequence, the part is not.
    fn await_flush(&mut self, key: Key, event: &Event, range: &Bytes) {
        let Some(entry) = self.open.get_mut(key) else {
            return;
        };
        let preflush = entry.flags.contains(Flags::PREFLUSH);
        let made_durable_by_flush =
            entry.flags.contains(Flags::FUA) && !event.flags.contains(Flags::FUA);
        if event.step != Step::RequestCompleted || !(preflush || made_durable_by_flush) {
            return;
        }
        let part = entry.range.start.max(range.start)..entry.range.end.min(range.end);
        self.flushing.insert((event.device.0, part.start, key));
        entry.payload.flushing.push(part);
    }

    /// A flush sequence ended: a flush, or a part of a write whose data is done already.
    fn sequence_done(&mut self, event: &Event) {
        let mut keys = std::mem::take(&mut self.keys);
        self.sequences_at(event, &mut keys);
        match self.oldest_of(&keys) {
            Some(key) => {
                self.note_error(key, event);
                self.end_sequence(key, event);
            }
            None => self.counters.unpaired_completions += 1,
        }
        self.keys = keys;
    }

    fn end_sequence(&mut self, key: Key, event: &Event) {
        let Some(entry) = self.open.get_mut(key) else {
            return;
        };
        let parts = &mut entry.payload.flushing;
        if let Some(index) = parts
            .iter()
            .position(|part| part.start == event.offset_bytes)
        {
            parts.swap_remove(index);
            self.flushing
                .remove(&(event.device.0, event.offset_bytes, key));
        }
        if entry.payload.flushing.is_empty() && entry.remaining().is_empty() {
            self.close(key, event.time_ns);
        }
    }

    /// What the end of a flush sequence at this place may belong to, oldest first.
    fn sequences_at(&mut self, event: &Event, keys: &mut Vec<Key>) {
        self.open.all_of(event.device, Op::Flush, keys);
        keys.retain(|key| {
            self.open
                .get_mut(*key)
                .is_some_and(|entry| entry.range.start == event.offset_bytes)
        });
        let place = (event.device.0, event.offset_bytes);
        let flushing = self
            .flushing
            .range((place.0, place.1, 0)..=(place.0, place.1, Key::MAX));
        keys.extend(flushing.map(|(_, _, key)| *key));
        // The kernel takes these flags off the request, or adds them, on its way.
        let sequence = Flags::PREFLUSH | Flags::FUA | Flags::SYNC;
        keys.retain(|key| {
            self.open.get_mut(*key).is_some_and(|entry| {
                entry.time_ns <= event.time_ns
                    && without(entry.flags, sequence) == without(event.flags, sequence)
            })
        });
        keys.sort_by_key(|key| self.open.get_mut(*key).map(|entry| entry.time_ns));
    }
}
