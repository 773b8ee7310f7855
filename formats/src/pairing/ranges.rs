//! Open operations by the range they cover: what a completion of a range could belong to.
//!
//! Events name a range, not an operation. A completion's range may be one operation, several (they
//! were merged), or a part of one (it was split, or is done in parts). As long as the open
//! operations that it touches do not overlap each other, which of them are done is certain. Where
//! they overlap it is not, and those that were in question stay in doubt until they are done.

use std::ops::Range;
use std::slice;

use super::starts::Starts;
use crate::request::{DeviceIndex, Flags, Op};

/// Bytes of a device, from its start.
pub(super) type Bytes = Range<u64>;

/// An open operation.
#[derive(Debug)]
pub(super) struct Entry<T> {
    pub device: DeviceIndex,
    pub op: Op,
    pub flags: Flags,
    /// What it covers.
    pub range: Bytes,
    /// When it was opened.
    pub time_ns: u64,
    /// Something else may have been taken for it, or it for something else.
    pub doubtful: bool,
    /// First error of its parts.
    pub error: u32,
    /// What belongs to it.
    pub payload: T,
    rest: Rest,
}

/// What is still to be done of an operation.
#[derive(Debug)]
enum Rest {
    All,
    Parts(Vec<Bytes>),
}

impl<T> Entry<T> {
    pub fn new(
        device: DeviceIndex,
        op: Op,
        flags: Flags,
        range: Bytes,
        time_ns: u64,
        payload: T,
    ) -> Entry<T> {
        Entry {
            device,
            op,
            flags,
            range,
            time_ns,
            doubtful: false,
            error: 0,
            payload,
            rest: Rest::All,
        }
    }

    /// Whether some of `range` is still to be done.
    fn touches(&self, range: &Bytes) -> bool {
        match &self.rest {
            Rest::All => overlap(&self.range, range),
            Rest::Parts(parts) => parts.iter().any(|part| overlap(part, range)),
        }
    }

    /// Takes `range` from what is to be done.
    fn finish(&mut self, range: &Bytes) -> Taken {
        if matches!(self.rest, Rest::All)
            && range.start <= self.range.start
            && self.range.end <= range.end
        {
            self.rest = Rest::Parts(Vec::new());
            let bytes = self.range.end - self.range.start;
            return Taken { bytes, whole: true };
        }
        let whole = [self.range.clone()];
        let parts = match &self.rest {
            Rest::All => &whole[..],
            Rest::Parts(parts) => parts,
        };
        let rest: Vec<Bytes> = parts
            .iter()
            .flat_map(|part| {
                [
                    part.start..part.end.min(range.start),
                    part.start.max(range.end)..part.end,
                ]
            })
            .filter(|part| part.start < part.end)
            .collect();
        let taken = Taken {
            bytes: total(parts) - total(&rest),
            whole: rest.is_empty(),
        };
        self.rest = Rest::Parts(rest);
        taken
    }

    /// What of `range` is not to be done here.
    fn without_rest(&self, range: &Bytes) -> Vec<Bytes> {
        let rest = match &self.rest {
            Rest::All => slice::from_ref(&self.range),
            Rest::Parts(parts) => parts,
        };
        rest.iter().fold(vec![range.clone()], |outside, part| {
            outside
                .iter()
                .flat_map(|piece| minus(piece, part))
                .collect()
        })
    }

    /// The smallest range that holds what is to be done.
    pub fn remaining(&self) -> Bytes {
        match &self.rest {
            Rest::All => self.range.clone(),
            Rest::Parts(parts) => match (parts.first(), parts.last()) {
                (Some(first), Some(last)) => first.start..last.end,
                _ => self.range.end..self.range.end,
            },
        }
    }
}

/// What was taken from an entry.
struct Taken {
    bytes: u64,
    /// Nothing remains.
    whole: bool,
}

fn total(parts: &[Bytes]) -> u64 {
    parts.iter().map(|part| part.end - part.start).sum()
}

/// `range` without `taken`: what lies before and behind it.
fn minus(range: &Bytes, taken: &Bytes) -> impl Iterator<Item = Bytes> + use<> {
    let before = range.start..range.end.min(taken.start);
    let behind = range.start.max(taken.end)..range.end;
    [before, behind]
        .into_iter()
        .filter(|piece| piece.start < piece.end)
}

fn overlap(one: &Bytes, other: &Bytes) -> bool {
    one.start < other.end && other.start < one.end
}

/// Number of an entry in its table.
pub(super) type Key = u32;

/// Open operations of all devices.
#[derive(Debug)]
pub(super) struct Ranges<T> {
    entries: Vec<Option<Entry<T>>>,
    free: Vec<Key>,
    lanes: Vec<[Lane; Op::ALL.len()]>,
}

/// The open operations of one kind on one device, by where they start.
#[derive(Debug, Default)]
struct Lane {
    starts: Starts,
    /// Longest range since the lane was empty: how far before a place an entry may start that
    /// reaches it.
    longest: u64,
}

/// What an event's range hits.
#[derive(Debug, Default)]
pub(super) struct Hits {
    /// Entries that it touches, in the order of their starts.
    pub touched: Vec<Key>,
    /// Those of which nothing remains.
    pub whole: Vec<Key>,
    /// Which of the touched ones it belongs to is not certain: all are in doubt now.
    pub ambiguous: bool,
    /// Some of it belongs to nothing that is open.
    pub uncovered: bool,
}

impl<T> Ranges<T> {
    pub fn new(devices: usize) -> Ranges<T> {
        Ranges {
            entries: Vec::new(),
            free: Vec::new(),
            lanes: (0..devices).map(|_| Default::default()).collect(),
        }
    }

    pub fn add_device(&mut self) {
        self.lanes.push(Default::default());
    }

    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// The key that the next [`Ranges::insert`] gives.
    pub fn next_key(&self) -> Key {
        self.free
            .last()
            .copied()
            .unwrap_or(self.entries.len() as Key)
    }

    pub fn insert(&mut self, entry: Entry<T>) -> Key {
        let key = self.next_key();
        if let Some(lane) = lane(&mut self.lanes, entry.device, entry.op) {
            lane.starts.insert(entry.range.start, key);
            lane.longest = lane.longest.max(entry.range.end - entry.range.start);
        }
        match self.free.pop() {
            Some(_) => self.entries[key as usize] = Some(entry),
            None => self.entries.push(Some(entry)),
        }
        key
    }

    pub fn get(&self, key: Key) -> Option<&Entry<T>> {
        self.entries.get(key as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, key: Key) -> Option<&mut Entry<T>> {
        self.entries.get_mut(key as usize)?.as_mut()
    }

    pub fn remove(&mut self, key: Key) -> Option<Entry<T>> {
        self.unlink(key);
        self.entries.get_mut(key as usize)?.take()
    }

    /// Removes an entry where it is: moving it takes longer than what is done with it.
    pub fn discard(&mut self, key: Key) {
        self.unlink(key);
        if let Some(entry) = self.entries.get_mut(key as usize) {
            *entry = None;
        }
    }

    /// Frees the key of an entry that is about to go.
    fn unlink(&mut self, key: Key) {
        let Some(Some(entry)) = self.entries.get(key as usize) else {
            return;
        };
        self.free.push(key);
        if let Some(lane) = lane(&mut self.lanes, entry.device, entry.op) {
            lane.starts.remove(entry.range.start, key);
            if lane.starts.is_empty() {
                lane.longest = 0;
            }
        }
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry<T>> {
        self.entries.iter_mut().flatten()
    }

    /// Keys of all entries that `chosen` names.
    pub fn keys_where(&self, chosen: impl Fn(&Entry<T>) -> bool) -> Vec<Key> {
        let keyed = self.entries.iter().enumerate();
        keyed
            .filter(|(_, entry)| entry.as_ref().is_some_and(&chosen))
            .map(|(key, _)| key as Key)
            .collect()
    }

    /// How many are open of one kind on one device.
    pub fn open_of(&self, device: DeviceIndex, op: Op) -> usize {
        self.lanes
            .get(usize::from(device.0))
            .map_or(0, |lanes| lanes[usize::from(op.number())].starts.len())
    }

    /// All entries of one kind on one device, in the order of their starts.
    pub fn all_of(&self, device: DeviceIndex, op: Op, keys: &mut Vec<Key>) {
        keys.clear();
        if let Some(lanes) = self.lanes.get(usize::from(device.0)) {
            keys.extend(lanes[usize::from(op.number())].starts.keys());
        }
    }

    /// Entries that were opened by `until_ns` and of which some of `range` is to be done.
    fn touched(
        &self,
        device: DeviceIndex,
        op: Op,
        range: &Bytes,
        until_ns: u64,
        keys: &mut Vec<Key>,
    ) {
        keys.clear();
        let Some(lanes) = self.lanes.get(usize::from(device.0)) else {
            return;
        };
        let lane = &lanes[usize::from(op.number())];
        let from = range.start.saturating_sub(lane.longest);
        let reach = lane.starts.between(from, range.end);
        keys.extend(reach.filter(|key| {
            self.get(*key)
                .is_some_and(|entry| entry.time_ns <= until_ns && entry.touches(range))
        }));
    }

    /// Entries of which just `range` is to be done, oldest first.
    pub fn remaining_is(
        &self,
        device: DeviceIndex,
        op: Op,
        range: &Bytes,
        until_ns: u64,
        keys: &mut Vec<Key>,
    ) {
        self.touched(device, op, range, until_ns, keys);
        keys.retain(|key| {
            self.get(*key)
                .is_some_and(|entry| entry.remaining() == *range)
        });
        keys.sort_by_key(|key| self.get(*key).map(|entry| entry.time_ns));
    }

    /// `range` is done: takes it from the entries that it belongs to. They stay in the table.
    ///
    /// `scattered`: the range only gives start and length of an operation that may cover others
    /// too (a discard of several ranges); it is certain only for an entry of just that range.
    pub fn finish(
        &mut self,
        device: DeviceIndex,
        op: Op,
        range: &Bytes,
        at_ns: u64,
        scattered: bool,
        hits: &mut Hits,
    ) {
        hits.whole.clear();
        self.touched(device, op, range, at_ns, &mut hits.touched);
        let fits = |key: &Key| {
            self.get(*key)
                .is_some_and(|entry| entry.remaining() == *range)
        };
        hits.ambiguous = if scattered {
            let fitting = hits
                .touched
                .iter()
                .copied()
                .filter(fits)
                .collect::<Vec<_>>();
            if let [only] = fitting[..] {
                hits.touched = vec![only];
            }
            fitting.len() != 1 && self.open_of(device, op) > 1
        } else {
            hits.touched.len() > 1 && self.any_overlap(&hits.touched, range)
        };
        if hits.ambiguous {
            hits.uncovered = false;
            self.finish_likely(device, op, range, scattered, hits);
            return;
        }
        let mut uncovered = range.end - range.start;
        for key in &hits.touched {
            let Some(entry) = self.entries[*key as usize].as_mut() else {
                continue;
            };
            let taken = entry.finish(range);
            uncovered -= taken.bytes;
            if taken.whole {
                hits.whole.push(*key);
            }
        }
        hits.uncovered = uncovered > 0;
    }

    /// The rows must not pile up although it is uncertain which are done: the oldest that fit
    /// best are taken, and all that could be meant are in doubt.
    fn finish_likely(
        &mut self,
        device: DeviceIndex,
        op: Op,
        range: &Bytes,
        scattered: bool,
        hits: &mut Hits,
    ) {
        let mut keys = hits.touched.clone();
        keys.sort_by_key(|key| {
            self.get(*key)
                .map(|entry| (entry.remaining() != *range, entry.time_ns))
        });
        let mut left = vec![range.clone()];
        for key in keys {
            let Some(entry) = self.entries[key as usize].as_mut() else {
                continue;
            };
            entry.doubtful = true;
            let mut whole = false;
            let mut next = Vec::new();
            for part in &left {
                next.extend(entry.without_rest(part));
                whole |= entry.finish(part).whole;
            }
            left = next;
            if whole {
                hits.whole.push(key);
            }
        }
        if scattered {
            let mut all = Vec::new();
            self.all_of(device, op, &mut all);
            for key in all {
                if let Some(entry) = self.get_mut(key) {
                    entry.doubtful = true;
                }
            }
        }
    }

    /// Whether any two of these, which are in the order of their starts, overlap within `range`.
    fn any_overlap(&self, keys: &[Key], range: &Bytes) -> bool {
        let mut covered_to = range.start;
        for entry in keys.iter().filter_map(|key| self.get(*key)) {
            let remaining = entry.remaining();
            if remaining.start.max(range.start) < covered_to {
                return true;
            }
            covered_to = covered_to.max(remaining.end.min(range.end));
        }
        false
    }
}

fn lane(lanes: &mut [[Lane; Op::ALL.len()]], device: DeviceIndex, op: Op) -> Option<&mut Lane> {
    Some(&mut lanes.get_mut(usize::from(device.0))?[usize::from(op.number())])
}
