//! Files of the traced system.

use std::sync::Arc;

use etl_parse::Event;
use etl_parse::kernel::FileName;
use foldhash::{HashMap, HashSet};

/// Most keys that are remembered.
const MAX_FILES: usize = 1 << 18;
/// Most bytes of their names.
const MAX_BYTES: usize = 64 << 20;

/// Which file a key means, at the moment of the event at hand.
#[derive(Clone, Debug, Default)]
pub(super) struct Files {
    names: HashMap<u64, Arc<str>>,
    bytes: usize,
}

impl Files {
    /// Takes what an event says of a file; the latest word counts.
    pub fn learn(&mut self, event: &Event<'_>) {
        if let Some(file) = FileName::parse(event) {
            self.insert(file.key, &file.name);
        }
    }

    /// The name of a key.
    pub fn name(&self, key: u64) -> Option<&Arc<str>> {
        self.names.get(&key)
    }

    fn insert(&mut self, key: u64, name: &str) {
        let before = self.names.get(&key).map(|name| name.len());
        let bytes = self.bytes - before.unwrap_or(0) + name.len();
        let is_full = before.is_none() && self.names.len() >= MAX_FILES;
        if is_full || bytes > MAX_BYTES {
            // What was known of the key is wrong by now.
            self.remove(key);
            return;
        }
        self.bytes = bytes;
        self.names.insert(key, Arc::from(name));
    }

    fn remove(&mut self, key: u64) {
        let removed = self.names.remove(&key);
        self.bytes -= removed.map_or(0, |name| name.len());
    }
}

/// Names that keys have from the beginning, as far as the ends of a trace tell: a session names the
/// files that are open when it ends. A key that begins in there, or is of two files, says nothing of
/// what was before.
#[derive(Clone, Debug, Default)]
pub(super) struct FirstFiles {
    files: Files,
    /// Keys whose first file is not known.
    doubtful: HashSet<u64>,
}

impl FirstFiles {
    /// Takes what an event says of a file, in any order of events.
    pub fn learn(&mut self, event: &Event<'_>) {
        let Some(file) = FileName::parse(event) else {
            return;
        };
        let known = self.files.name(file.key);
        let differs = known.is_some_and(|name| **name != *file.name);
        if file.begins || differs || self.doubtful.contains(&file.key) {
            self.files.remove(file.key);
            if self.doubtful.len() < MAX_FILES {
                self.doubtful.insert(file.key);
            }
        } else if known.is_none() {
            self.files.insert(file.key, &file.name);
        }
    }

    pub fn into_files(self) -> Files {
        self.files
    }
}
