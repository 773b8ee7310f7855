//! Names of threads: most records of the block layer have them, those of some kernels have not.

use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};

/// Most threads whose names are remembered.
const MAX_REMEMBERED: usize = 1 << 16;

/// What threads are called, at the moment of the event at hand.
#[derive(Debug)]
pub(super) struct Names {
    of_threads: HashMap<u32, Arc<str>>,
    unnamed: Arc<str>,
}

impl Names {
    pub fn new() -> Names {
        Names {
            of_threads: HashMap::new(),
            unnamed: Arc::from(""),
        }
    }

    /// A thread is called so from now on.
    pub fn called(&mut self, thread: u32, name: Arc<str>) {
        if self.of_threads.len() < MAX_REMEMBERED || self.of_threads.contains_key(&thread) {
            self.of_threads.insert(thread, name);
        }
    }

    /// A thread begins with the name of the one that made it.
    pub fn forked(&mut self, parent: u32, child: u32) {
        if let Some(name) = self.of_threads.get(&parent) {
            self.called(child, Arc::clone(name));
        }
    }

    /// What a thread is called; empty if that is not known.
    pub fn of(&self, thread: u32) -> Arc<str> {
        Arc::clone(self.of_threads.get(&thread).unwrap_or(&self.unnamed))
    }
}
