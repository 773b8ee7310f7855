//! Which tracepoints a recording needs, and opening them on a processor.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

use iotape_formats::event::Step;
use iotape_formats::tape::Layer;
use iotape_formats::tracepoint::{BLOCK_TRACEPOINTS, BlockTracepoint};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::devices::BlockDevice;
use super::rights;
use super::sys::{Ring, TracepointEvent};
use super::tracefs::TraceFs;
use crate::CaptureError;

/// Part of a ring that fills before we are woken.
const WATERMARK_PART: usize = 4;

/// The tracepoints of a recording.
#[derive(Debug)]
pub(super) struct Plan {
    tracepoints: Vec<Planned>,
    /// Tracepoints that the kernel does not have and that only count something.
    pub missing: Vec<&'static str>,
    ring_bytes: usize,
}

#[derive(Debug)]
struct Planned {
    name: &'static str,
    /// Whether each of its records begins a request of the tape.
    begins_requests: bool,
    layout: BlockTracepoint,
    filter: String,
}

/// A processor's tracepoints, opened and not armed.
#[derive(Debug)]
pub(super) struct Opened {
    pub cpu: u32,
    pub ring: Ring,
    pub others: Vec<TracepointEvent>,
}

impl Plan {
    /// No tracepoints: a backend that knows them itself.
    pub fn none(ring_bytes: usize, missing: Vec<&'static str>) -> Plan {
        Plan {
            tracepoints: Vec::new(),
            missing,
            ring_bytes,
        }
    }

    /// Decides on the tracepoints for these devices and reads their layouts.
    pub fn new(
        devices: &[BlockDevice],
        ring_bytes: usize,
        tracefs: &TraceFs,
    ) -> Result<Plan, CaptureError> {
        let mut plan = Plan {
            tracepoints: Vec::new(),
            missing: Vec::new(),
            ring_bytes,
        };
        // Completions are armed first, so that nothing that is seen to begin ends unseen.
        let order = [
            Step::RequestCompleted,
            Step::BioCompleted,
            Step::Requeued,
            Step::Issued,
        ];
        let place = |step: &Step| {
            order
                .iter()
                .position(|first| first == step)
                .unwrap_or(order.len())
        };
        let mut tracepoints = BLOCK_TRACEPOINTS;
        tracepoints.sort_by_key(|(_, step)| place(step));
        for (name, step) in tracepoints {
            let Some(filter) = filter(devices, step) else {
                continue;
            };
            match layout(tracefs, name, step) {
                Ok(layout) => plan.tracepoints.push(Planned {
                    name,
                    begins_requests: begins_requests(devices, step),
                    layout,
                    filter,
                }),
                Err(CaptureError::NoTracepoint { .. }) if only_counts(step) => {
                    plan.missing.push(name);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(plan)
    }

    /// Names of the tracepoints and the filter of each, in the order of arming.
    pub fn tracepoints(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let tracepoints = self.tracepoints.iter();
        tracepoints.map(|planned| (planned.name, planned.filter.as_str()))
    }

    /// Size of a processor's ring.
    pub fn ring_bytes(&self) -> usize {
        self.ring_bytes
    }

    /// The layout of the tracepoint of this number.
    pub fn layout(&self, id: u16) -> Option<&BlockTracepoint> {
        self.tracepoints
            .iter()
            .map(|planned| &planned.layout)
            .find(|layout| layout.id() == id)
    }

    /// Opens the tracepoints on a processor. `None` if the processor is offline.
    pub fn open(&self, cpu: u32) -> Result<Option<Opened>, CaptureError> {
        let mut opened: Option<Opened> = None;
        for planned in &self.tracepoints {
            let watermark = u32::try_from(self.ring_bytes / WATERMARK_PART).unwrap_or(u32::MAX);
            let mut event = match TracepointEvent::open(planned.layout.id(), cpu, watermark) {
                Ok(event) => event,
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(None),
                Err(error) => return Err(rights::perf_error(planned.name, error)),
            };
            event.begins_requests = planned.begins_requests;
            event
                .filter(&planned.filter)
                .map_err(|source| system("filtering events", source))?;
            match &mut opened {
                None => {
                    let ring = Ring::map(event, self.ring_bytes)
                        .map_err(|error| rights::ring_error(self.ring_bytes, error))?;
                    opened = Some(Opened {
                        cpu,
                        ring,
                        others: Vec::new(),
                    });
                }
                Some(opened) => {
                    event
                        .output_to(&opened.ring)
                        .map_err(|source| system("sharing a ring between events", source))?;
                    opened.others.push(event);
                }
            }
        }
        Ok(opened)
    }

    /// Allows as many open files as the events of `cpus` processors need, where that is possible.
    pub fn allow_files(&self, cpus: usize) {
        let files = (cpus * self.tracepoints.len()) as u64 + 256;
        let limit = getrlimit(Resource::Nofile);
        if limit.current.is_some_and(|current| current < files) {
            let current = limit.maximum.map_or(files, |maximum| maximum.min(files));
            // Without it, opening fails later and says so.
            let _ = setrlimit(
                Resource::Nofile,
                Rlimit {
                    current: Some(current),
                    ..limit
                },
            );
        }
    }
}

impl Opened {
    /// Arms the tracepoints, completions first.
    pub fn arm(&self) -> Result<(), CaptureError> {
        let mut events = [self.ring.event()].into_iter().chain(&self.others);
        events
            .try_for_each(TracepointEvent::enable)
            .map_err(|source| system("arming a tracepoint", source))
    }
}

const ONLINE: &str = "/sys/devices/system/cpu/online";

/// Online processors.
pub(super) fn online_cpus() -> io::Result<Vec<u32>> {
    cpus(ONLINE)
}

/// The list of online processors, which stays open for those who look often.
#[derive(Debug, Default)]
pub(super) struct OnlineCpus(Option<File>);

impl OnlineCpus {
    /// Online processors now.
    pub fn read(&mut self) -> io::Result<Vec<u32>> {
        let file = match &mut self.0 {
            Some(file) => file,
            none => none.insert(File::open(ONLINE)?),
        };
        let mut text = [0; 512];
        let count = file.read_at(&mut text, 0)?;
        if count < text.len() {
            return parse(&String::from_utf8_lossy(&text[..count]));
        }
        online_cpus()
    }
}

/// Processors that are or may come online.
pub(super) fn possible_cpus() -> io::Result<Vec<u32>> {
    cpus("/sys/devices/system/cpu/possible")
}

fn cpus(file: &str) -> io::Result<Vec<u32>> {
    parse(&fs::read_to_string(file)?)
}

fn parse(text: &str) -> io::Result<Vec<u32>> {
    cpu_list(text).ok_or_else(|| io::Error::other(format!("not a list of processors: {text:?}")))
}

/// Reads a list such as `0-3,8`.
fn cpu_list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(first.parse::<u32>().ok()?..=last.parse().ok()?);
    }
    Some(cpus)
}

/// The devices whose events of this kind are wanted, as the kernel's filter expression.
fn filter(devices: &[BlockDevice], step: Step) -> Option<String> {
    let wanted = |device: &&BlockDevice| match (device.layer, step) {
        (_, Step::Queued | Step::BioCompleted) => true,
        (Layer::Queue, Step::RequestCompleted) => device.has_requests,
        (Layer::Queue, _) => false,
        (Layer::Device, _) => true,
    };
    // Several partitions of a disk are reported with one number.
    let numbers: BTreeSet<u32> = devices
        .iter()
        .filter(wanted)
        .map(|device| device.reported.in_kernel())
        .collect();
    let terms: Vec<String> = numbers
        .iter()
        .map(|number| format!("dev == {number}"))
        .collect();
    (!terms.is_empty()).then(|| terms.join(" || "))
}

/// Whether this step begins a request. Where both layers are recorded at once, what is queued may be
/// of either: only what is issued is certain.
fn begins_requests(devices: &[BlockDevice], step: Step) -> bool {
    let only = |layer| devices.iter().all(|device| device.layer == layer);
    match step {
        Step::Queued => only(Layer::Queue),
        Step::Issued => true,
        _ => false,
    }
}

/// Whether the tracepoint of this step only adds to counters.
pub(super) fn only_counts(step: Step) -> bool {
    matches!(step, Step::BioMerged | Step::RequestsMerged | Step::Split)
}

fn layout(
    tracefs: &TraceFs,
    name: &'static str,
    step: Step,
) -> Result<BlockTracepoint, CaptureError> {
    let format = match tracefs.format(name) {
        Ok(format) => format,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(CaptureError::NoTracepoint { name });
        }
        Err(error) => return Err(rights::tracefs_error(error)),
    };
    BlockTracepoint::parse(step, &format).map_err(|error| CaptureError::TracepointFormat {
        name,
        reason: error.to_string(),
    })
}

fn system(action: &str, source: io::Error) -> CaptureError {
    CaptureError::System {
        action: action.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_stays_open() {
        let mut online = OnlineCpus::default();
        for _ in 0..2 {
            assert_eq!(online.read().unwrap(), online_cpus().unwrap());
        }
    }

    #[test]
    fn lists_of_processors() {
        assert_eq!(cpu_list("0\n"), Some(vec![0]));
        assert_eq!(cpu_list("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(cpu_list(""), None);
        assert_eq!(cpu_list("0-x"), None);
    }
}
