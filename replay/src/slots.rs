//! Slots: where the operations in flight are remembered.

use crate::engine::Io;
use crate::run::Link;

/// An operation in flight.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flight {
    /// What was submitted.
    pub io: Io,
    /// When.
    pub submitted_ns: u64,
    /// When it was due; of no meaning where nothing is due at a time.
    pub scheduled_ns: u64,
    /// Whether it counts: it was submitted after the warm-up.
    pub counts: bool,
    /// The request that it is a part of, or that it is a whole one.
    pub group: GroupId,
    /// Its place among the requests that others wait for.
    pub link: Link,
}

impl Flight {
    /// Submitted − scheduled.
    #[inline]
    pub fn lag_ns(&self) -> u64 {
        self.submitted_ns.saturating_sub(self.scheduled_ns)
    }
}

/// Which of the requests in flight that have several parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupId(pub u32);

impl GroupId {
    /// Of an operation that is a whole request.
    pub const NONE: GroupId = GroupId(u32::MAX);
}

impl Default for GroupId {
    fn default() -> Self {
        GroupId::NONE
    }
}

/// As many slots as tokens, each free or holding an operation in flight.
#[derive(Debug)]
pub struct Slots {
    flights: Vec<Flight>,
    free: Vec<u32>,
    taken: Vec<bool>,
}

impl Slots {
    /// All free.
    pub fn new(count: u32) -> Self {
        let size = usize::try_from(count).unwrap_or(0);
        Slots {
            flights: vec![Flight::default(); size],
            // Lowest first: few buffers stay in the cache when few are in use.
            free: (0..count).rev().collect(),
            taken: vec![false; size],
        }
    }

    /// Puts an operation into a free slot.
    #[inline]
    pub fn take(&mut self, flight: Flight) -> Option<u32> {
        let slot = self.free.pop()?;
        let index = usize::try_from(slot).ok()?;
        self.flights[index] = flight;
        self.taken[index] = true;
        Some(slot)
    }

    /// What is in flight.
    pub fn in_flight(&self) -> impl Iterator<Item = &Flight> {
        let flights = self.flights.iter().zip(&self.taken);
        flights.filter_map(|(flight, taken)| taken.then_some(flight))
    }

    /// Frees a slot. `None` when nothing is in flight there: an engine that completes what was
    /// never submitted.
    #[inline]
    pub fn give(&mut self, slot: u32) -> Option<Flight> {
        let index = usize::try_from(slot).ok()?;
        let taken = self.taken.get_mut(index)?;
        if !std::mem::take(taken) {
            return None;
        }
        self.free.push(slot);
        Some(self.flights[index])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_given_out_once_and_taken_back_once() {
        let mut slots = Slots::new(2);
        let flight = |submitted_ns| Flight {
            submitted_ns,
            ..Flight::default()
        };
        let first = slots.take(flight(1)).unwrap();
        let second = slots.take(flight(2)).unwrap();
        assert_ne!(first, second);
        assert_eq!(slots.take(flight(3)), None);
        assert_eq!(slots.give(second).unwrap().submitted_ns, 2);
        let left: Vec<u64> = slots
            .in_flight()
            .map(|flight| flight.submitted_ns)
            .collect();
        assert_eq!(left, [1]);
        assert!(slots.give(second).is_none());
        assert!(slots.give(2).is_none());
        assert_eq!(slots.take(flight(4)), Some(second));
        assert_eq!(slots.give(first).unwrap().submitted_ns, 1);
    }
}
