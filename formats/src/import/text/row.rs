//! What the tables have in common: rows, devices by name, names of processes.

use std::collections::HashMap;
use std::sync::Arc;

use super::error::TextError;
use crate::import::sorted::WINDOW_NS;
use crate::request::{DeviceIndex, Process, Request};

/// Times from the start of a trace that are believed: 36 years.
pub(super) const MAX_TIME_NS: i64 = 1 << 60;
/// Longest line that is read.
pub(super) const MAX_LINE_BYTES: u64 = 64 << 10;
/// Process names kept for sharing.
const SHARED_NAMES: usize = 4096;

/// A request of a table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub device: String,
    /// When it was issued, on the table's clock.
    pub time_ns: i64,
    /// Without time and device.
    pub request: Request,
}

/// A table under way. What it says of itself is asked before the first row.
pub(super) trait Rows {
    /// Name of the format.
    fn name(&self) -> &'static str;
    /// The next request.
    fn next_row(&mut self) -> Result<Option<Row>, TextError>;
    /// Line that was read last.
    fn line(&self) -> u64;
    /// What the table does not tell.
    fn notes(&self) -> Vec<String>;
    /// Smallest step of its times.
    fn resolution_ns(&self) -> u32;
    /// Time of day at the zero of its clock.
    fn start_wall_ns(&self) -> Option<i128> {
        None
    }
    /// How far apart in time neighbours may stand in the wrong order.
    fn window_ns(&self) -> u64 {
        WINDOW_NS
    }
    /// The host that it was recorded on.
    fn host(&self) -> Option<String> {
        None
    }
    /// Lines that were left out.
    fn other_lines(&self) -> u64 {
        0
    }
    /// Requests that began and were not seen to end.
    fn unfinished(&self) -> u64 {
        0
    }
}

/// Devices by name, in the order in which they come.
#[derive(Debug, Default)]
pub(super) struct Devices {
    indexes: HashMap<String, DeviceIndex>,
}

impl Devices {
    /// Index of a device, and whether it is new.
    pub fn index(&mut self, name: &str, line: u64) -> Result<(DeviceIndex, bool), TextError> {
        if let Some(index) = self.indexes.get(name) {
            return Ok((*index, false));
        }
        let Ok(index) = u16::try_from(self.indexes.len()) else {
            return Err(TextError::TooManyDevices { line });
        };
        self.indexes.insert(name.to_owned(), DeviceIndex(index));
        Ok((DeviceIndex(index), true))
    }
}

/// Processes as Windows' tools write them.
#[derive(Debug, Default)]
pub(super) struct Processes {
    names: HashMap<String, Arc<str>>,
}

impl Processes {
    /// Reads `name.exe (1234)`; `None` where the process is not known: `Unknown (-1)`, or no number.
    pub fn parse(&mut self, text: &str) -> Option<Process> {
        let (name, pid) = text.trim().strip_suffix(')')?.rsplit_once('(')?;
        let pid = pid.trim().parse().ok()?;
        let name = name.trim();
        if let Some(shared) = self.names.get(name) {
            let name = Arc::clone(shared);
            return Some(Process { pid, name });
        }
        if self.names.len() == SHARED_NAMES {
            self.names.clear();
        }
        let shared: Arc<str> = Arc::from(name);
        self.names.insert(name.to_owned(), Arc::clone(&shared));
        Some(Process { pid, name: shared })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes() {
        let mut processes = Processes::default();
        let mut read = |text| processes.parse(text).map(|found| (found.pid, found.name));
        assert_eq!(read("p0 (11008)"), Some((11008, "p0".into())));
        assert_eq!(
            read(" svchost (x86).exe ( 4) "),
            Some((4, "svchost (x86).exe".into()))
        );
        assert_eq!(read("(7)"), Some((7, "".into())));
        assert_eq!(read("Unknown (-1)"), None);
        assert_eq!(read("System"), None);
    }
}
