//! Who moves the most bytes, in memory of a fixed size.
//!
//! The space-saving algorithm (Metwally, Agrawal, El Abbadi, 2005): while all entries are taken, a
//! process that has none gets that of the one with the fewest bytes, and inherits its bytes. Whoever
//! moves more than one part in [`ENTRIES`] of all bytes is surely among them, and by how much its bytes
//! may be too high is known.

use std::collections::HashMap;
use std::sync::Arc;

use iotape_formats::Process;

/// Processes that are told apart at a time.
pub const ENTRIES: usize = 256;

/// A process and what it did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub process: Process,
    /// Requests since it has this entry.
    pub requests: u64,
    pub bytes: u64,
    /// By how much `bytes` may be too high, at most.
    pub over_bytes: u64,
}

/// Sums by process.
#[derive(Debug, Default)]
pub struct TopProcesses {
    entries: Vec<Entry>,
    places: HashMap<Process, usize>,
    last: usize,
}

impl TopProcesses {
    /// Adds a request of this process.
    pub fn add(&mut self, process: &Process, bytes: u64) {
        let place = self.place_of(process);
        self.last = place;
        let entry = &mut self.entries[place];
        entry.requests += 1;
        entry.bytes = entry.bytes.saturating_add(bytes);
    }

    /// Those with the most bytes, then the most requests.
    pub fn top(&self, count: usize) -> Vec<Entry> {
        let mut entries = self.entries.clone();
        entries.sort_by(|left, right| {
            (right.bytes, right.requests, left.process.pid).cmp(&(
                left.bytes,
                left.requests,
                right.process.pid,
            ))
        });
        entries.truncate(count);
        entries
    }

    /// Forgets everybody.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.places.clear();
    }

    fn place_of(&mut self, process: &Process) -> usize {
        // Mostly it is the same as before, and its name is kept once.
        if let Some(Entry { process: last, .. }) = self.entries.get(self.last)
            && last.pid == process.pid
            && Arc::ptr_eq(&last.name, &process.name)
        {
            return self.last;
        }
        if let Some(place) = self.places.get(process) {
            return *place;
        }
        let place = match self.entries.len() {
            0..ENTRIES => {
                self.entries.push(Entry {
                    process: process.clone(),
                    requests: 0,
                    bytes: 0,
                    over_bytes: 0,
                });
                self.entries.len() - 1
            }
            _ => self.replace_least(process),
        };
        self.places.insert(process.clone(), place);
        place
    }

    fn replace_least(&mut self, process: &Process) -> usize {
        let least = self.entries.iter().enumerate();
        let least = least.min_by_key(|(_, entry)| entry.bytes);
        let place = least.map_or(0, |(place, _)| place);
        let entry = &mut self.entries[place];
        self.places.remove(&entry.process);
        entry.process = process.clone();
        entry.requests = 0;
        entry.over_bytes = entry.bytes;
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32) -> Process {
        Process {
            pid,
            name: Arc::from("p"),
        }
    }

    #[test]
    fn few_processes_are_exact() {
        let mut top = TopProcesses::default();
        for (pid, bytes) in [(1, 10), (2, 30), (1, 5), (3, 0)] {
            top.add(&process(pid), bytes);
        }
        let found: Vec<_> = top
            .top(2)
            .into_iter()
            .map(|entry| (entry.process.pid, entry.requests, entry.bytes))
            .collect();
        assert_eq!(found, [(2, 1, 30), (1, 2, 15)]);
        top.clear();
        assert!(top.top(9).is_empty());
        top.add(&process(2), 1);
        assert_eq!(top.top(9)[0].bytes, 1);
    }

    #[test]
    fn the_heavy_ones_stay_among_thousands_of_others() {
        let mut top = TopProcesses::default();
        let mut all = 0;
        for round in 0..10_000 {
            // A tenth of all bytes, and as many others as there are rounds.
            top.add(&process(7), 1_000);
            top.add(&process(100 + round), 9_000);
            all += 10_000;
        }
        assert_eq!(top.entries.len(), ENTRIES);
        assert_eq!(top.places.len(), ENTRIES);
        let heavy = top.top(ENTRIES);
        let heavy = heavy.iter().find(|entry| entry.process.pid == 7).unwrap();
        let truth = 10_000 * 1_000;
        assert!(heavy.bytes >= truth && heavy.bytes - heavy.over_bytes <= truth);
        assert!(heavy.over_bytes <= all / ENTRIES as u64);
    }
}
