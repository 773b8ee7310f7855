//! Processes and threads of the traced system.

use std::sync::Arc;

use etl_parse::Event;
use etl_parse::kernel::{ProcessInfo, ThreadInfo};
use foldhash::{HashMap, HashMapExt};

use crate::request::Process;

/// Most processes that are remembered.
const MAX_PROCESSES: usize = 1 << 16;
/// Most threads that are remembered.
const MAX_THREADS: usize = 1 << 18;

/// Who is who, at the moment of the event at hand.
#[derive(Clone, Debug)]
pub(super) struct People {
    names: HashMap<u32, Arc<str>>,
    threads: HashMap<u32, u32>,
    unnamed: Arc<str>,
}

impl Default for People {
    fn default() -> People {
        People {
            names: HashMap::new(),
            threads: HashMap::new(),
            unnamed: Arc::from(""),
        }
    }
}

impl People {
    /// Takes what an event says of a process or thread; the latest word counts.
    #[inline]
    pub fn learn(&mut self, event: &Event<'_>) {
        const PROCESSES: u16 = 0x03;
        const THREADS: u16 = 0x05;
        match event.hook().map(|hook| hook >> 8) {
            Some(PROCESSES) => {
                if let Some(process) = ProcessInfo::parse(event) {
                    let (id, name) = (process.process_id, process.image.into());
                    insert(&mut self.names, id, name, MAX_PROCESSES);
                }
            }
            Some(THREADS) => {
                if let Some(thread) = ThreadInfo::parse(event) {
                    let (id, process) = (thread.thread_id, thread.process_id);
                    insert(&mut self.threads, id, process, MAX_THREADS);
                }
            }
            _ => {}
        }
    }

    /// The process of an id, without a name if none was heard.
    pub fn process(&self, pid: u32) -> Process {
        Process {
            pid,
            name: Arc::clone(self.names.get(&pid).unwrap_or(&self.unnamed)),
        }
    }

    /// The process of a thread.
    pub fn process_of_thread(&self, thread_id: u32) -> Option<u32> {
        self.threads.get(&thread_id).copied()
    }
}

fn insert<T>(map: &mut HashMap<u32, T>, id: u32, value: T, limit: usize) {
    if map.len() < limit || map.contains_key(&id) {
        map.insert(id, value);
    }
}
