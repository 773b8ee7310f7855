//! Names of what requests tell by number: control groups and files.

use std::sync::Arc;

use foldhash::HashMap;
use xxhash_rust::xxh3::xxh3_64;

use super::model::{Name, NameKind};
use super::wire::MAX_NAME_BYTES;

/// Names by what they are of, in bounded memory.
///
/// The first name of a number stays. Names beyond [`Names::MOST`] or [`Names::MOST_BYTES`] are left
/// out and counted: what they are of has its number still.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    by_id: HashMap<(NameKind, u64), Arc<str>>,
    bytes: usize,
    left_out: u64,
}

impl Names {
    /// Most names that are kept.
    pub const MOST: usize = 65_536;
    /// Most bytes of names that are kept.
    pub const MOST_BYTES: usize = 16 << 20;
    /// Longest name, in bytes.
    pub const LONGEST: usize = MAX_NAME_BYTES;

    /// Takes a name, unless its number has one. `false` when there is no room for it, or it is
    /// longer than [`Names::LONGEST`].
    pub fn insert(&mut self, kind: NameKind, id: u64, name: &str) -> bool {
        if self.by_id.contains_key(&(kind, id)) {
            return true;
        }
        let bytes = self.bytes + name.len();
        let fits = self.by_id.len() < Names::MOST && bytes <= Names::MOST_BYTES;
        if !fits || name.len() > Names::LONGEST {
            self.left_out = self.left_out.saturating_add(1);
            return false;
        }
        self.bytes = bytes;
        self.by_id.insert((kind, id), Arc::from(name));
        true
    }

    /// The name of a number.
    pub fn get(&self, kind: NameKind, id: u64) -> Option<&Arc<str>> {
        self.by_id.get(&(kind, id))
    }

    /// How many names there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there is no name.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// How often a name was left out for want of room. One that stands in several records counts
    /// each time.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// All names, in no particular sequence.
    pub fn iter(&self) -> impl Iterator<Item = Name> + '_ {
        self.by_id.iter().map(|((kind, id), name)| Name {
            kind: *kind,
            id: *id,
            name: Arc::clone(name),
        })
    }

    pub(super) fn clear(&mut self) {
        *self = Names::default();
    }
}

/// The number of a file in a tape: XXH3-64, seed 0, of its name in UTF-8. A control group that is
/// known by nothing but its name gets such a number, too.
///
/// A number that follows from the name stays the same when tapes are joined, cut and merged.
pub fn name_id(name: &str) -> u64 {
    xxh3_64(name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_name_of_a_number_stays() {
        let mut names = Names::default();
        assert!(names.insert(NameKind::Cgroup, 7, "/system.slice"));
        assert!(names.insert(NameKind::File, 7, "a"));
        assert!(names.insert(NameKind::Cgroup, 7, "/other"));
        let get = |kind| names.get(kind, 7).map(|name| &**name);
        assert_eq!(get(NameKind::Cgroup), Some("/system.slice"));
        assert_eq!(get(NameKind::File), Some("a"));
        assert_eq!((names.len(), names.left_out()), (2, 0));
    }

    #[test]
    fn what_is_beyond_the_bounds_is_left_out_and_counted() {
        let mut names = Names::default();
        assert!(!names.insert(NameKind::File, 0, &"x".repeat(Names::LONGEST + 1)));
        let long = "x".repeat(Names::LONGEST);
        for id in 0..(Names::MOST_BYTES / Names::LONGEST) as u64 {
            assert!(names.insert(NameKind::File, id, &long));
        }
        assert!(!names.insert(NameKind::File, u64::MAX, "x"));
        assert_eq!((names.len(), names.left_out()), (4096, 2));

        let mut names = Names::default();
        for id in 0..Names::MOST as u64 {
            assert!(names.insert(NameKind::Cgroup, id, "x"));
        }
        assert!(!names.insert(NameKind::Cgroup, u64::MAX, "x"));
        assert_eq!((names.len(), names.left_out()), (65_536, 1));
    }

    /// The values are those of Python's `xxhash.xxh3_64_intdigest`.
    #[test]
    fn a_number_of_a_name_is_the_hash_of_its_name() {
        assert_eq!(name_id(""), 0x2d06_8005_38d3_94c2);
        assert_eq!(
            name_id(r"\Device\HarddiskVolume2\pagefile.sys"),
            0xedd2_673d_d56c_b37c
        );
    }
}
