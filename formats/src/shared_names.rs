//! Names of processes: of few, but of almost every request.

use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};

/// Most names that are kept for sharing; beyond so many they are made anew.
const MAX_NAMES: usize = 4096;

/// Names, each once in memory however often it comes.
#[derive(Debug)]
pub(crate) struct SharedNames {
    names: HashMap<Vec<u8>, Arc<str>>,
}

impl SharedNames {
    pub fn new() -> SharedNames {
        SharedNames {
            names: HashMap::new(),
        }
    }

    /// The name of these bytes; what is no UTF-8 in them is replaced.
    #[inline]
    pub fn share(&mut self, name: &[u8]) -> Arc<str> {
        if let Some(shared) = self.names.get(name) {
            return Arc::clone(shared);
        }
        if self.names.len() >= MAX_NAMES {
            self.names.clear();
        }
        let shared: Arc<str> = Arc::from(String::from_utf8_lossy(name).as_ref());
        self.names.insert(name.to_vec(), Arc::clone(&shared));
        shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_once_in_memory_and_few_are_kept() {
        let mut names = SharedNames::new();
        let first = names.share(b"fio");
        assert!(Arc::ptr_eq(&first, &names.share(b"fio")));
        assert_eq!(&*names.share(b"a\xff"), "a\u{fffd}");
        for number in 0..3 * MAX_NAMES {
            let name = number.to_string();
            assert_eq!(&*names.share(name.as_bytes()), name);
            assert!(names.names.len() <= MAX_NAMES);
        }
        assert_eq!(&*names.share(b"fio"), "fio");
    }
}
