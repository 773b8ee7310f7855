//! Names of processes, each kept once.

use std::sync::Arc;

use foldhash::HashMap;
use iotape_formats::Process;

/// A thread's name as the kernel has it.
const NAME_BYTES: usize = 16;
/// Processes that are remembered; above it, all are forgotten and learned again.
const REMEMBERED: usize = 16 << 10;

/// Processes that are found without a search, by their number.
const RECENT: usize = 16;

type Name = [u8; NAME_BYTES];

/// Processes seen so far.
#[derive(Debug, Default)]
pub(super) struct Processes {
    known: HashMap<(u32, Name), Process>,
    recent: [Option<(Name, Process)>; RECENT],
}

impl Processes {
    /// The process of this number and name. Bytes of the name that are not UTF-8 are replaced.
    pub fn get(&mut self, pid: u32, name: &[u8]) -> Process {
        let mut key = Name::default();
        let length = name.len().min(NAME_BYTES);
        key[..length].copy_from_slice(&name[..length]);
        let slot = pid as usize % RECENT;
        if let Some((name, process)) = &self.recent[slot]
            && (process.pid, name) == (pid, &key)
        {
            return process.clone();
        }
        if self.known.len() >= REMEMBERED {
            self.known.clear();
        }
        let new = || Process {
            pid,
            name: Arc::from(String::from_utf8_lossy(&name[..length])),
        };
        let process = self.known.entry((pid, key)).or_insert_with(new).clone();
        self.recent[slot] = Some((key, process.clone()));
        process
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_process_is_kept_once() {
        let mut processes = Processes::default();
        let first = processes.get(7, b"fio");
        let other = processes.get(8, b"fio");
        let again = processes.get(7, b"fio");
        assert!(Arc::ptr_eq(&first.name, &again.name));
        assert_eq!((other.pid, &*other.name), (8, "fio"));
        assert_eq!(
            &*processes.get(7, b"a name of more than 16").name,
            "a name of more t"
        );
        assert_eq!(&*processes.get(7, b"\xffx").name, "\u{fffd}x");
    }

    #[test]
    fn memory_is_bounded() {
        let mut processes = Processes::default();
        for pid in 0..3 * REMEMBERED as u32 {
            processes.get(pid, b"sh");
        }
        assert!(processes.known.len() <= REMEMBERED);
    }
}
