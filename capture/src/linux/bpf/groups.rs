//! Which control groups have turned up: each is told once, as soon as a request of it is done.

use std::collections::HashSet;

/// Groups that are kept in mind. If there are more, some are told again.
const MOST: usize = 4096;

/// Control groups by number.
#[derive(Debug, Default)]
pub(super) struct SeenGroups {
    seen: HashSet<u64>,
    new: Vec<u64>,
    latest: u64,
}

impl SeenGroups {
    /// A request is of this group; 0 is none.
    pub fn notice(&mut self, id: u64) {
        // Mostly it is the same as before.
        if id == self.latest || id == 0 {
            return;
        }
        self.latest = id;
        if self.seen.len() >= MOST {
            self.seen.clear();
        }
        if self.seen.insert(id) {
            self.new.push(id);
        }
    }

    /// Hands over those that are new since the last time.
    pub fn take_new(&mut self, each: &mut dyn FnMut(u64)) {
        self.new.drain(..).for_each(each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_group_is_told_once_in_bounded_memory() {
        let mut groups = SeenGroups::default();
        let mut told = Vec::new();
        for id in [0, 5, 5, 6, 0, 5, 6] {
            groups.notice(id);
        }
        groups.take_new(&mut |id| told.push(id));
        groups.take_new(&mut |id| told.push(id));
        assert_eq!(told, [5, 6]);
        for id in 0..100_000 {
            groups.notice(id);
            assert!(groups.seen.len() <= MOST);
        }
    }
}
