//! From events to requests.
//!
//! In: [`Event`]s of one or more devices, about in the order of time. Out: [`Request`]s in the order
//! in which they began, each with its latency if that is known. No I/O, bounded memory, and the
//! same for a live recorder and for a trace that another tool wrote.
//!
//! # What makes a request
//! At the **queue layer**, what a submitter handed over ([`Step::Queued`]); it is done when its whole
//! range is, however the kernel merged or split it on its way. At the **device layer**, what the
//! driver got ([`Step::Issued`], the last time if the driver gave it back); time in the queue and
//! submitter are those of the operations queued for its range.
//!
//! # What is certain
//! Events name a range and not an operation. Where a completion fits several open operations that
//! overlap, which of them is done cannot be known: all of them are kept, none of them gets a
//! latency, and [`Counters::ambiguous`] counts them. The same holds for everything that is open
//! when the source lost events. A latency that is given is right.
//!
//! Flushes have no range at all. One that is alone is certain; of several that are open at once
//! none is. After a loss, and at the start unless nothing was in flight, a flush that nobody saw
//! begin may still be under way: for [`FLUSH_DOUBT_NS`] flushes get no latency.

mod device;
mod join;
mod point;
mod queue;
mod ranges;
mod starts;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use crate::event::Event;
#[cfg(doc)]
use crate::event::Step;
use crate::order::{OrderWindow, Ticket};
use crate::request::{Op, Process, Request};
use crate::tape::{Counters, Layer};

use device::FlushBalance;
use join::Waiting;
use ranges::{Bytes, Entry, Hits, Key, Ranges};

/// For how long after a loss a flush may be one that nobody saw begin.
pub const FLUSH_DOUBT_NS: u64 = 5_000_000_000;

/// What is known about a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRules {
    /// Where its requests are seen.
    pub layer: Layer,
    /// Whether one discard request may hold several ranges. Its events only tell the start of the
    /// first and the length of all, so that on such a device only whole discards are certain.
    pub scattered_discards: bool,
    /// Whether the device has a single queue to its driver. The kernel has one flush at a time in
    /// each: there, a flush that is issued proves that the one before is done.
    pub single_queue: bool,
    /// Whether something may be in flight when the events begin.
    pub busy_at_start: bool,
}

/// Bounds of memory and waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For how long a request that is not done may hold back later ones.
    pub hold_ns: u64,
    /// After what time a request is given up: kept without latency.
    pub give_up_ns: u64,
    /// How many requests may be open; above it the oldest is given up. The ordering window holds
    /// as many again.
    pub open: usize,
}

impl Default for Limits {
    /// One second, one minute, and 256 Ki requests, which is up to about 80 MB.
    fn default() -> Limits {
        Limits {
            hold_ns: 1_000_000_000,
            give_up_ns: 60_000_000_000,
            open: 256 << 10,
        }
    }
}

/// Turns events into requests.
#[derive(Debug)]
pub struct Pairing {
    devices: Vec<DeviceRules>,
    limits: Limits,
    own_pid: Option<u32>,
    /// What began and is not done.
    open: Ranges<Row>,
    /// Device layer: what was queued and not issued.
    waiting: Ranges<Waiting>,
    /// Queue layer: writes whose data is done and whose flush is not, by device and start of the part.
    flushing: BTreeSet<(u16, u64, Key)>,
    flush_balance: Vec<FlushBalance>,
    window: OrderWindow,
    counters: Counters,
    /// Open requests that will be in the output and are not in doubt since a loss, of each device.
    in_flight: Vec<usize>,
    in_gap: bool,
    flush_doubt_until_ns: Vec<u64>,
    end_ns: u64,
    swept_ns: u64,
    hits: Hits,
    keys: Vec<Key>,
}

/// A request that began.
#[derive(Debug)]
struct Row {
    ticket: Ticket,
    /// Paired like the others, but not in the output.
    hidden: bool,
    /// Among those in flight.
    counted: bool,
    /// Parts whose data is done and which end with a flush of their own (queue layer).
    flushing: Vec<Bytes>,
    /// A flush follows it on behalf of its submitter (device layer).
    then_flush: bool,
}

/// What is needed of a request that ended.
struct Ended {
    ticket: Ticket,
    hidden: bool,
    doubtful: bool,
    error: u32,
}

impl Pairing {
    /// Pairs the events of these devices, which begin at `start_ns`. Requests of the process
    /// `own_pid` are left out.
    pub fn new(
        devices: Vec<DeviceRules>,
        limits: Limits,
        start_ns: u64,
        own_pid: Option<u32>,
    ) -> Pairing {
        let doubt = |rules: &DeviceRules| match rules.busy_at_start {
            true => start_ns.saturating_add(FLUSH_DOUBT_NS),
            false => start_ns,
        };
        Pairing {
            flush_doubt_until_ns: devices.iter().map(doubt).collect(),
            flush_balance: vec![FlushBalance::default(); devices.len()],
            open: Ranges::new(devices.len()),
            waiting: Ranges::new(devices.len()),
            in_flight: vec![0; devices.len()],
            devices,
            limits,
            own_pid,
            flushing: BTreeSet::new(),
            window: OrderWindow::new(limits.hold_ns, limits.open),
            counters: Counters::default(),
            in_gap: false,
            end_ns: u64::MAX,
            swept_ns: start_ns,
            hits: Hits::default(),
            keys: Vec::new(),
        }
    }

    /// Adds a device that turned up at `now_ns`; its index is the next one.
    pub fn add_device(&mut self, rules: DeviceRules, now_ns: u64) {
        self.flush_doubt_until_ns.push(match rules.busy_at_start {
            true => now_ns.saturating_add(FLUSH_DOUBT_NS),
            false => now_ns,
        });
        self.flush_balance.push(FlushBalance::default());
        self.open.add_device();
        self.waiting.add_device();
        self.in_flight.push(0);
        self.devices.push(rules);
    }

    /// Takes the next event. Events of devices that are not known are left out.
    pub fn event(&mut self, event: Event) {
        match self
            .devices
            .get(usize::from(event.device.0))
            .map(|rules| rules.layer)
        {
            Some(Layer::Queue) => self.queue_layer(event),
            Some(Layer::Device) => self.device_layer(event),
            None => {}
        }
    }

    /// The source may be losing events from here until [`Pairing::gap_ends`]: completions in
    /// between prove nothing.
    pub fn gap_begins(&mut self) {
        self.in_gap = true;
    }

    /// The gap is over. If events were lost, [`Pairing::lost`] comes first.
    pub fn gap_ends(&mut self) {
        self.in_gap = false;
    }

    /// The source lost events until `at_ns`: what is open stays open, but in doubt.
    pub fn lost(&mut self, at_ns: u64) {
        for entry in self.open.iter_mut() {
            entry.doubtful = true;
            // Its completion may be among what was lost: it would count for long.
            if std::mem::take(&mut entry.payload.counted) {
                self.in_flight[usize::from(entry.device.0)] -= 1;
            }
        }
        for entry in self.waiting.iter_mut() {
            entry.doubtful = true;
            entry.payload.forget();
        }
        for until_ns in &mut self.flush_doubt_until_ns {
            *until_ns = at_ns.saturating_add(FLUSH_DOUBT_NS).max(*until_ns);
        }
    }

    /// The recording ends here: what begins later is paired, so that it is not taken for something
    /// earlier, but left out.
    pub fn end_at(&mut self, end_ns: u64) {
        self.end_ns = end_ns;
    }

    /// How many requests of the output are open. Those that were open when events were lost are left
    /// out: whether they still are is not known.
    pub fn in_flight(&self) -> usize {
        self.in_flight.iter().sum()
    }

    /// How many of them each device has, in the order of the devices' indexes.
    pub fn in_flight_by_device(&self) -> &[usize] {
        &self.in_flight
    }

    /// What was counted since the last call.
    pub fn take_counters(&mut self) -> Counters {
        std::mem::take(&mut self.counters)
    }

    /// Lets out the requests that need not wait any longer at `now_ns`.
    pub fn release(&mut self, now_ns: u64, out: &mut Vec<Request>) {
        let given_up_ns = now_ns.saturating_sub(self.limits.give_up_ns);
        while let Some(key) = self.window.oldest_before(given_up_ns) {
            self.give_up(key);
        }
        if now_ns.saturating_sub(self.swept_ns) >= self.limits.hold_ns {
            self.swept_ns = now_ns;
            self.give_up_waiting(given_up_ns);
        }
        self.counters.late += self.window.release(now_ns, out);
    }

    /// No more events come: lets out everything, what is open without latency.
    pub fn finish(&mut self, out: &mut Vec<Request>) {
        for key in self.open.keys_where(|_| true) {
            self.give_up(key);
        }
        self.give_up_waiting(u64::MAX);
        self.counters.late += self.window.release(u64::MAX, out);
    }

    /// Takes off what a completion says is done of `range`. The hits are put back into
    /// [`Pairing::hits`] by whoever has gone through them, so that their room is used again.
    fn finish_range(&mut self, event: &Event, range: &Bytes) -> Hits {
        let mut hits = std::mem::take(&mut self.hits);
        let scattered =
            event.op == Op::Discard && self.devices[usize::from(event.device.0)].scattered_discards;
        self.open.finish(
            event.device,
            event.op,
            range,
            event.time_ns,
            scattered,
            &mut hits,
        );
        self.counters.unpaired_completions += u64::from(hits.uncovered);
        hits
    }

    fn is_scattered(&self, event: &Event) -> bool {
        event.op == Op::Discard && self.devices[usize::from(event.device.0)].scattered_discards
    }

    /// A request begins. `range` is what its completions will name.
    fn begin(&mut self, request: Request, range: Bytes, doubtful: bool, then_flush: bool) {
        if self.open.len() >= self.limits.open
            && let Some(oldest) = self.window.oldest()
        {
            self.give_up(oldest);
        }
        let hidden = request.time_ns > self.end_ns || self.is_own(request.process.as_ref());
        let (device, op, flags) = (request.device, request.op, request.flags);
        self.in_flight[usize::from(device.0)] += usize::from(!hidden);
        let time_ns = request.time_ns;
        let unseen_flush =
            op == Op::Flush && time_ns < self.flush_doubt_until_ns[usize::from(device.0)];
        let ticket = self.window.begin(self.open.next_key(), request);
        let row = Row {
            ticket,
            hidden,
            counted: !hidden,
            flushing: Vec::new(),
            then_flush,
        };
        let mut entry = Entry::new(device, op, flags, range, time_ns, row);
        entry.doubtful = doubtful || unseen_flush;
        self.open.insert(entry);
    }

    fn is_own(&self, process: Option<&Process>) -> bool {
        self.own_pid.is_some() && process.map(|process| process.pid) == self.own_pid
    }

    /// A request is done.
    fn close(&mut self, key: Key, at_ns: u64) {
        let Some(ended) = self.end(key) else {
            return;
        };
        if ended.hidden {
            self.window.withdraw(ended.ticket);
            return;
        }
        if ended.doubtful || self.in_gap {
            self.counters.ambiguous += 1;
        } else if let Some(request) = self.window.open_mut(ended.ticket) {
            request.latency_ns = at_ns.checked_sub(request.time_ns);
            request.error = Some(ended.error);
        }
        self.window.done(ended.ticket);
    }

    /// A request will not be seen to be done.
    fn give_up(&mut self, key: Key) {
        let Some(ended) = self.end(key) else {
            return;
        };
        if ended.hidden {
            self.window.withdraw(ended.ticket);
        } else {
            self.counters.unpaired_issues += 1;
            self.window.done(ended.ticket);
        }
    }

    /// A request is not open any more.
    fn end(&mut self, key: Key) -> Option<Ended> {
        self.leave(key);
        let entry = self.open.get(key)?;
        let ended = Ended {
            ticket: entry.payload.ticket,
            hidden: entry.payload.hidden,
            doubtful: entry.doubtful,
            error: entry.error,
        };
        self.open.discard(key);
        Some(ended)
    }

    fn take_open(&mut self, key: Key) -> Option<Entry<Row>> {
        self.leave(key);
        self.open.remove(key)
    }

    /// Forgets what is kept of an open request beside its entry.
    fn leave(&mut self, key: Key) {
        let Some(entry) = self.open.get(key) else {
            return;
        };
        for part in &entry.payload.flushing {
            self.flushing.remove(&(entry.device.0, part.start, key));
        }
        self.in_flight[usize::from(entry.device.0)] -= usize::from(entry.payload.counted);
    }
}

/// The range of an event, `None` if it ends beyond 64 bits.
fn range_of(event: &Event) -> Option<Bytes> {
    Some(event.offset_bytes..event.offset_bytes.checked_add(event.length_bytes)?)
}
