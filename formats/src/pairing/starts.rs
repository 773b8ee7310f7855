//! A set of places and keys, in order: a sorted array while it is small, which it nearly always is,
//! and a tree above, where moving half an array would cost more.

use std::collections::BTreeSet;

use super::ranges::Key;

/// Most that the array holds.
const FEW: usize = 512;

/// Where operations start, and their keys.
#[derive(Debug, Default)]
pub(super) struct Starts {
    few: Vec<(u64, Key)>,
    /// All of them, when they are many; then the array is empty.
    many: BTreeSet<(u64, Key)>,
}

impl Starts {
    pub fn len(&self) -> usize {
        self.few.len() + self.many.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    pub fn insert(&mut self, start: u64, key: Key) {
        let item = (start, key);
        if self.many.is_empty() && self.few.len() < FEW {
            let index = self.few.partition_point(|other| *other < item);
            self.few.insert(index, item);
        } else {
            self.many.extend(self.few.drain(..));
            self.many.insert(item);
        }
    }

    #[inline]
    pub fn remove(&mut self, start: u64, key: Key) {
        let item = (start, key);
        if self.many.is_empty() {
            if let Ok(index) = self.few.binary_search(&item) {
                self.few.remove(index);
            }
            return;
        }
        self.many.remove(&item);
        if self.many.len() < FEW / 2 {
            self.few.extend(std::mem::take(&mut self.many));
        }
    }

    /// Keys of those from `from` up to but without `to`.
    #[inline]
    pub fn between(&self, from: u64, to: u64) -> impl Iterator<Item = Key> {
        let begin = self.few.partition_point(|(start, _)| *start < from);
        let few = self.few[begin..]
            .iter()
            .take_while(move |(start, _)| *start < to);
        let many = (!self.many.is_empty() && from < to)
            .then(|| self.many.range((from, 0)..(to, 0)))
            .into_iter()
            .flatten();
        few.chain(many).map(|(_, key)| *key)
    }

    /// All keys.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        self.few.iter().chain(&self.many).map(|(_, key)| *key)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_an_ordered_set_whatever_its_size(
            steps in proptest::collection::vec((0u8..4, 0u64..2_000, 0u64..50), 0..3_000),
        ) {
            let mut starts = Starts::default();
            let mut expected = BTreeSet::new();
            for (step, place, length) in steps {
                let key = place as Key;
                if step == 0 {
                    starts.remove(place, key);
                    expected.remove(&(place, key));
                } else if expected.insert((place, key)) {
                    starts.insert(place, key);
                }
                prop_assert_eq!(starts.len(), expected.len());
                let between = expected.range((place, 0)..(place + length, 0));
                let between: Vec<Key> = between.map(|(_, key)| *key).collect();
                prop_assert_eq!(starts.between(place, place + length).collect::<Vec<_>>(), between);
            }
            let keys: Vec<Key> = expected.iter().map(|(_, key)| *key).collect();
            prop_assert_eq!(starts.keys().collect::<Vec<_>>(), keys);
            for (place, key) in expected {
                starts.remove(place, key);
            }
            prop_assert!(starts.is_empty());
        }
    }
}
