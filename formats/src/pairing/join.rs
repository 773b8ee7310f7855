//! Joins an issued request with the operations that were queued for it.

use crate::event::Event;
use crate::request::{Flags, Process, Request};

use super::ranges::{Bytes, Entry, Key};
use super::{Pairing, point};

/// What was queued and waits to be issued.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting {
    pub queued_ns: Option<u64>,
    pub process: Option<Process>,
    pub cgroup: Option<u64>,
    /// The request that the driver gave back.
    pub returned: Option<Box<Returned>>,
}

/// A request that the driver gave back.
#[derive(Clone, Debug)]
pub(super) struct Returned {
    pub request: Request,
    pub hidden: bool,
    pub doubtful: bool,
    pub then_flush: bool,
}

impl Waiting {
    /// Nothing that is known of it is certain any more.
    pub fn forget(&mut self) {
        self.queued_ns = None;
        self.process = None;
        self.cgroup = None;
    }
}

/// What is known of the operations that became one request.
#[derive(Default)]
pub(super) struct Joined {
    pub queued_ns: Option<u64>,
    pub process: Option<Process>,
    pub cgroup: Option<u64>,
    /// One of them asked for durability.
    pub fua: bool,
    pub returned: Vec<Returned>,
    /// How many operations were taken, those of returned requests not counted.
    pub taken: u32,
    /// The submitter, if all of them have the same.
    agreed: Option<Process>,
}

impl Joined {
    /// The request is the doing of the operation that was queued first.
    fn add(&mut self, waiting: &Waiting) {
        let earlier = match (self.queued_ns, waiting.queued_ns) {
            (Some(so_far), Some(queued)) => queued < so_far,
            (None, _) => true,
            (Some(_), None) => false,
        };
        if earlier {
            self.queued_ns = waiting.queued_ns;
            self.process.clone_from(&waiting.process);
            self.cgroup = waiting.cgroup;
        }
    }

    /// Which of several operations it was is not certain.
    fn doubt(&mut self) {
        self.queued_ns = None;
        self.cgroup = None;
        self.process = self.agreed.take();
    }
}

impl Pairing {
    /// Takes the operations in a request's range.
    pub(super) fn join_range(&mut self, event: &Event, range: &Bytes) -> Joined {
        let mut hits = std::mem::take(&mut self.hits);
        let scattered = self.is_scattered(event);
        self.waiting.finish(
            event.device,
            event.op,
            range,
            event.time_ns,
            scattered,
            &mut hits,
        );
        let joined = self.take_hits(&hits.touched, &hits.whole, hits.ambiguous);
        self.hits = hits;
        joined
    }

    /// Takes the oldest operation that a request without a range may come from.
    pub(super) fn join_point(&mut self, event: &Event) -> Joined {
        let mut keys = std::mem::take(&mut self.keys);
        point::candidates(&self.waiting, event, &mut keys);
        let oldest = &keys[..keys.len().min(1)];
        let joined = self.take_hits(&keys, oldest, keys.len() > 1);
        self.keys = keys;
        joined
    }

    /// Takes everything that waits for a flush: one flush answers it all.
    pub(super) fn join_flush(&mut self, event: &Event) -> Joined {
        let mut keys = std::mem::take(&mut self.keys);
        point::candidates(&self.waiting, event, &mut keys);
        let joined = self.take_hits(&keys, &keys, keys.len() > 1);
        self.keys = keys;
        joined
    }

    fn take_hits(&mut self, touched: &[Key], whole: &[Key], ambiguous: bool) -> Joined {
        if let ([only], [whole], false) = (touched, whole, ambiguous)
            && only == whole
        {
            return self.take_only(*only);
        }
        let mut joined = Joined {
            agreed: self.agreed(touched),
            ..Joined::default()
        };
        let mut certain = !ambiguous;
        for entry in touched.iter().filter_map(|key| self.waiting.get(*key)) {
            certain &= !entry.doubtful;
            joined.fua |= entry.flags.contains(Flags::FUA);
            joined.add(&entry.payload);
        }
        if !certain {
            joined.doubt();
        }
        for key in whole {
            match self
                .waiting
                .remove(*key)
                .and_then(|entry| entry.payload.returned)
            {
                Some(returned) => joined.returned.push(*returned),
                None => joined.taken += 1,
            }
        }
        joined
    }

    /// What [`Pairing::take_hits`] does where a request is just one operation.
    fn take_only(&mut self, key: Key) -> Joined {
        let Some(entry) = self.waiting.remove(key) else {
            return Joined::default();
        };
        let waiting = entry.payload;
        let mut joined = Joined {
            queued_ns: waiting.queued_ns,
            process: waiting.process,
            cgroup: waiting.cgroup,
            fua: entry.flags.contains(Flags::FUA),
            ..Joined::default()
        };
        if entry.doubtful {
            // Its submitter is that of all there are.
            joined.agreed = joined.process.take();
            joined.doubt();
        }
        match waiting.returned {
            Some(returned) => joined.returned.push(*returned),
            None => joined.taken = 1,
        }
        joined
    }

    fn agreed(&self, keys: &[Key]) -> Option<Process> {
        let submitter = |key: &Key| self.waiting.get(*key)?.payload.process.as_ref();
        let (first, rest) = keys.split_first()?;
        let process = submitter(first)?;
        rest.iter()
            .all(|key| submitter(key) == Some(process))
            .then(|| process.clone())
    }

    /// Gives up what was queued before `before_ns` and never issued. What the driver gave back was
    /// a request once: it is kept.
    pub(super) fn give_up_waiting(&mut self, before_ns: u64) {
        for key in self.waiting.keys_where(|entry| entry.time_ns < before_ns) {
            let Some(Entry { payload, .. }) = self.waiting.remove(key) else {
                continue;
            };
            let Some(returned) = payload.returned.filter(|returned| !returned.hidden) else {
                continue;
            };
            self.counters.unpaired_issues += 1;
            let ticket = self.window.begin(Key::MAX, returned.request);
            self.window.done(ticket);
        }
    }
}
