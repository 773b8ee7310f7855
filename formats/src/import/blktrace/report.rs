//! What an import met, for the user.

use blktrace_parse::{Damage, DeviceNumber, Format, Numbering};

use crate::import::warn_of_counts;
use crate::tape::{Layer, Summary};

/// How many warnings of a kind are written out.
const MAX_LISTED: usize = 4;

/// What was imported.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The tape's totals.
    pub summary: Summary,
    /// Records read, notes included.
    pub records: u64,
    /// The files, in the order they were given.
    pub files: Vec<FileReport>,
    /// The tape's devices.
    pub devices: Vec<DeviceReport>,
    /// How bios reached the traced devices.
    pub remaps: Vec<Remap>,
    /// Records of actions that are not known. They are left out.
    pub unknown_actions: u64,
    /// Records that contradict themselves: a range beyond 64 bits, a payload too short for its
    /// kind. They are left out.
    pub malformed: u64,
    /// Records older than the beginning of the trace. They are left out.
    pub before_start: u64,
    /// Records that were older than the one before them, and came late.
    pub out_of_order: u64,
    /// Messages of schedulers, drivers or the user. They are left out.
    pub messages: u64,
    /// Whether the trace says what time of day it was.
    pub has_wall_clock: bool,
}

/// One file.
#[derive(Clone, Debug)]
pub struct FileReport {
    /// Its name.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// Version and byte order; `None` if it has no record.
    pub format: Option<Format>,
    /// What was no record in it.
    pub damage: Damage,
    /// What the numbers of its records tell.
    pub numbering: Numbering,
    /// Records with an impossible time. They are left out.
    pub damaged_times: u64,
}

/// One device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceReport {
    /// Its number on the traced host.
    pub number: DeviceNumber,
    /// Its name in the tape.
    pub name: String,
    /// Where its requests were seen.
    pub layer: Layer,
    /// Its Q events.
    pub queued: u64,
    /// Its D events.
    pub issued: u64,
    /// Its C events.
    pub completed: u64,
}

/// A way by which bios went from one device to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remap {
    /// Where they were sent: a partition, dm, md.
    pub from: DeviceNumber,
    /// Where they went on.
    pub to: DeviceNumber,
    /// How many.
    pub bios: u64,
}

impl Report {
    /// What the user should know besides the totals: losses, damage, surprises; a sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        self.warn_of_files(&mut warnings);
        self.warn_of_devices(&mut warnings);
        let left_out = [
            (
                self.unknown_actions,
                "records of unknown actions are left out",
            ),
            (
                self.malformed,
                "records that contradict themselves are left out",
            ),
            (
                self.before_start,
                "records older than the beginning of the trace are left out",
            ),
        ];
        warn_of_counts(&mut warnings, &left_out);
        if self.out_of_order > 0 {
            warnings.push(format!(
                "{} records are older than the one before them: the files are not in order of \
                 time, and requests may lack their completion",
                self.out_of_order
            ));
        }
        if !self.has_wall_clock {
            warnings.push("the trace does not say what time of day it was".to_owned());
        }
        warnings
    }

    fn warn_of_files(&self, warnings: &mut Vec<String>) {
        let all: Vec<(&str, Vec<String>)> = self
            .files
            .iter()
            .map(|file| (file.name.as_str(), file.warnings()))
            .filter(|(_, list)| !list.is_empty())
            .collect();
        for (name, list) in all.iter().take(MAX_LISTED) {
            warnings.push(format!("{name}: {}", list.join("; ")));
        }
        if all.len() > MAX_LISTED {
            warnings.push(format!(
                "{} more files are damaged or incomplete",
                all.len() - MAX_LISTED
            ));
        }
    }

    fn warn_of_devices(&self, warnings: &mut Vec<String>) {
        for device in &self.devices {
            let name = &device.name;
            match device.layer {
                Layer::Device if device.issued == 0 => warnings.push(format!(
                    "{name} has {} queued and no issued requests: at the device layer there is \
                     nothing of it; its requests are at the queue layer",
                    device.queued
                )),
                Layer::Queue if device.queued == 0 => warnings.push(format!(
                    "{name} has {} issued and no queued requests: at the queue layer there is \
                     nothing of it; its requests are at the device layer",
                    device.issued
                )),
                _ => {}
            }
        }
    }
}

impl FileReport {
    fn warnings(&self) -> Vec<String> {
        let mut list = Vec::new();
        let (damage, numbering) = (&self.damage, &self.numbering);
        if numbering.lost > 0 {
            list.push(format!("{} records were lost", numbering.lost));
        }
        if numbering.missing_before_first > 0 {
            list.push(format!(
                "its first {} records are missing",
                numbering.missing_before_first
            ));
        }
        if numbering.unnumbered > 0 {
            list.push("its records have no numbers: losses cannot be seen".to_owned());
        }
        if numbering.confused_cpus > 0 {
            list.push("several traces are mixed in it: losses cannot be told".to_owned());
        }
        if damage.skipped_bytes > 0 {
            let first = damage.regions.first().map_or(0, |region| region.offset);
            list.push(format!(
                "{} bytes in {} places are no records, the first at byte {first}",
                damage.skipped_bytes, damage.skipped_regions
            ));
        }
        if let Some(cut) = damage.truncated {
            list.push(format!(
                "it ends inside the record at byte {}, after {} of {} bytes",
                cut.offset, cut.found_bytes, cut.expected_bytes
            ));
        }
        if let Some(tail) = damage.zero_tail {
            list.push(format!(
                "from byte {} on it is empty: the recorder was killed, and the last records are \
                 missing",
                tail.offset
            ));
        }
        let damaged = damage.cut_payloads + numbering.damaged + self.damaged_times;
        if damaged > 0 {
            list.push(format!(
                "{damaged} records have a damaged length, number or time"
            ));
        }
        list
    }
}
