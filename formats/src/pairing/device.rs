//! The device layer: a request is what the driver got.
//!
//! What was queued waits in a table of its own until a request is issued that covers it: so the
//! request learns when it was queued and by whom. A request that the driver gives back waits there
//! again, with what was known of it.
//!
//! Flushes are the kernel's: it answers everything that waits for one with a single flush. Each
//! wish for a flush waits under [`Op::Flush`], and the next flush takes all of them.

use crate::event::{Event, Step};
use crate::request::{DeviceIndex, Flags, Op, Process, Request};

use super::join::{Joined, Returned, Waiting};
use super::ranges::{Bytes, Entry, Key};
use super::{Pairing, point, range_of};

/// Wishes for a flush against flushes.
///
/// A wish may be taken by the flush before the one that answers it, when it comes between the
/// kernel's decision to flush and the issue of the flush. Over both of them the sum is right, so
/// that only what exceeds the highest sum so far is counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FlushBalance {
    /// Wishes taken, less flushes issued.
    saved: i64,
    counted: i64,
}

impl FlushBalance {
    /// A flush was issued for so many wishes. Returns how many more flushes were saved.
    fn flush(&mut self, wishes: u32) -> u64 {
        self.saved += i64::from(wishes) - 1;
        let more = u64::try_from(self.saved - self.counted).unwrap_or(0);
        self.counted = self.counted.max(self.saved);
        more
    }
}

impl Pairing {
    pub(super) fn device_layer(&mut self, event: Event) {
        match event.step {
            Step::Queued => self.wait(event),
            Step::Issued => self.issued(&event),
            Step::Requeued => self.requeued(&event),
            Step::RequestCompleted => self.request_completed(&event),
            Step::BioCompleted => self.waited_in_vain(&event),
            Step::BioMerged | Step::RequestsMerged => self.counters.merges += 1,
            Step::Split => self.counters.splits += 1,
        }
    }

    fn wait(&mut self, event: Event) {
        let Some(range) = range_of(&event) else {
            self.counters.undecodable += 1;
            return;
        };
        let waiting = Waiting {
            queued_ns: Some(event.time_ns),
            process: event.process,
            cgroup: event.cgroup,
            returned: None,
        };
        let entry = |op, range, waiting| {
            Entry::new(event.device, op, event.flags, range, event.time_ns, waiting)
        };
        if event.op == Op::Flush || event.flags.contains(Flags::PREFLUSH) {
            self.insert_waiting(entry(Op::Flush, 0..0, waiting.clone()));
        }
        if event.op != Op::Flush {
            self.insert_waiting(entry(event.op, range, waiting));
        }
    }

    fn insert_waiting(&mut self, entry: Entry<Waiting>) {
        // Above the limit a request merely does not learn when it was queued and by whom.
        if self.waiting.len() < self.limits.open || entry.payload.returned.is_some() {
            self.waiting.insert(entry);
        }
    }

    fn issued(&mut self, event: &Event) {
        let Some(range) = range_of(event) else {
            self.counters.undecodable += 1;
            return;
        };
        if event.op == Op::Flush && self.devices[usize::from(event.device.0)].single_queue {
            self.give_up_flushes(event.device);
        }
        let joined = match event.op {
            Op::Flush => self.join_flush(event),
            _ if point::is_point(event) => self.join_point(event),
            _ => self.join_range(event, &range),
        };
        if event.op == Op::Flush && joined.returned.is_empty() {
            let balance = &mut self.flush_balance[usize::from(event.device.0)];
            self.counters.coalesced_flushes += balance.flush(joined.taken);
        }
        let doubtful = joined.returned.iter().any(|returned| returned.doubtful);
        let then_flush = joined.fua && !event.flags.contains(Flags::FUA)
            || joined.returned.iter().any(|returned| returned.then_flush);
        self.begin(issued_request(event, joined), range, doubtful, then_flush);
    }

    /// The completion of these flushes was not seen, but is certain.
    fn give_up_flushes(&mut self, device: DeviceIndex) {
        let mut keys = std::mem::take(&mut self.keys);
        self.open.all_of(device, Op::Flush, &mut keys);
        for key in &keys {
            self.give_up(*key);
        }
        self.keys = keys;
    }

    /// The driver gave a request back: it waits again, with what is known of it.
    fn requeued(&mut self, event: &Event) {
        self.counters.requeues += 1;
        let Some(range) = range_of(event) else { return };
        let mut keys = std::mem::take(&mut self.keys);
        if point::is_point(event) {
            point::candidates(&self.open, event, &mut keys);
        } else {
            self.open
                .remaining_is(event.device, event.op, &range, event.time_ns, &mut keys);
        }
        let key = self.oldest_of(&keys);
        self.keys = keys;
        if let Some(entry) = key.and_then(|key| self.take_open(key)) {
            self.return_to_waiting(entry, range, event.time_ns);
        }
    }

    fn return_to_waiting(&mut self, entry: Entry<super::Row>, range: Bytes, time_ns: u64) {
        let row = entry.payload;
        let Some(request) = self.window.withdraw(row.ticket) else {
            return;
        };
        let waiting = Waiting {
            queued_ns: request
                .queue_ns
                .and_then(|queue_ns| request.time_ns.checked_sub(queue_ns)),
            process: request.process.clone(),
            cgroup: request.cgroup,
            returned: Some(Box::new(Returned {
                request,
                hidden: row.hidden,
                doubtful: entry.doubtful,
                then_flush: row.then_flush,
            })),
        };
        let range = if entry.op == Op::Flush { 0..0 } else { range };
        self.insert_waiting(Entry::new(
            entry.device,
            entry.op,
            entry.flags,
            range,
            time_ns,
            waiting,
        ));
    }

    fn request_completed(&mut self, event: &Event) {
        // The end of a flush sequence: its flushes and its data were requests of their own.
        if event.op == Op::Write && event.length_bytes == 0 {
            return;
        }
        if point::is_point(event) {
            return self.complete_point(event);
        }
        let Some(range) = range_of(event) else {
            self.counters.undecodable += 1;
            return;
        };
        let hits = self.finish_range(event, &range);
        for key in &hits.touched {
            self.note_error(*key, event);
        }
        for key in &hits.whole {
            self.request_done(*key, event);
        }
        self.hits = hits;
    }

    /// A request is done. If it stands for a durable write on a device that has no FUA, a flush is
    /// wished for now.
    fn request_done(&mut self, key: Key, event: &Event) {
        let row = self.open.get(key).map(|entry| &entry.payload);
        if let Some(ticket) = row.filter(|row| row.then_flush).map(|row| row.ticket) {
            let request = self.window.open_mut(ticket);
            let process = request.and_then(|request| request.process.clone());
            self.wish_flush(event.device, event.time_ns, process);
        }
        self.close(key, event.time_ns);
    }

    fn wish_flush(&mut self, device: DeviceIndex, time_ns: u64, process: Option<Process>) {
        let waiting = Waiting {
            queued_ns: Some(time_ns),
            process,
            ..Waiting::default()
        };
        self.insert_waiting(Entry::new(
            device,
            Op::Flush,
            Flags::NONE,
            0..0,
            time_ns,
            waiting,
        ));
    }

    /// An operation was done or failed without becoming a request.
    fn waited_in_vain(&mut self, event: &Event) {
        let Some(range) = range_of(event) else { return };
        let mut keys = std::mem::take(&mut self.keys);
        if point::is_point(event) {
            point::candidates(&self.waiting, event, &mut keys);
        } else {
            let (device, op) = (event.device, event.op);
            self.waiting
                .remaining_is(device, op, &range, event.time_ns, &mut keys);
        }
        if let Some(key) = keys.first() {
            self.waiting.remove(*key);
        }
        self.keys = keys;
    }
}

/// The request that was issued, with what is known of the operations in it. A request that was
/// given back keeps the range that it had when it was issued first, also if a part of it was done.
fn issued_request(event: &Event, joined: Joined) -> Request {
    let returned = joined.returned.iter().map(|returned| &returned.request);
    let start = returned.clone().map(|request| request.offset_bytes).min();
    let end = returned.filter_map(Request::end_bytes).max();
    let event_end = event.offset_bytes + event.length_bytes;
    let offset_bytes = start.map_or(event.offset_bytes, |start| start.min(event.offset_bytes));
    Request {
        time_ns: event.time_ns,
        device: event.device,
        op: event.op,
        flags: event.flags,
        offset_bytes,
        length_bytes: end.map_or(event_end, |end| end.max(event_end)) - offset_bytes,
        queue_ns: joined
            .queued_ns
            .and_then(|queued_ns| event.time_ns.checked_sub(queued_ns)),
        process: joined.process,
        cgroup: joined.cgroup,
        cpu: event.cpu,
        ..Request::default()
    }
}
