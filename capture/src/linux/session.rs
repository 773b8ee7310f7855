//! A recording: what is armed, and for how long it runs.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::thread;

use iotape_formats::DeviceIndex;
use iotape_formats::pairing::{DeviceRules, Limits, Pairing};
use iotape_formats::tape::{Anchor, Clock, Device, ErrorCodes, Header, Layer};

use super::arm::{self, Plan};
use super::blktrace;
use super::clock;
use super::devices::{self, BlockDevice};
use super::ftrace::Buffers;
use super::recorder::Recorder;
use super::rights;
use super::rings::Rings;
use super::source::Source;
use super::sys;
use super::tracefs::TraceFs;
use super::writer::Writer;
use crate::segments::Beginning;
use crate::{Backend, CaptureError, Destination, Observer, Options, Report, Warning};

/// A recording that is armed: from here on the kernel collects events.
#[derive(Debug)]
pub struct Session {
    pub(super) options: Options,
    pub(super) devices: Vec<BlockDevice>,
    pub(super) plan: Plan,
    pub(super) source: Box<dyn Source>,
    /// Time 0 of the tape, on the monotonic and the wall clock.
    pub(super) zero: Anchor,
    /// When everything was armed, on the monotonic clock.
    pub(super) start_ns: u64,
    pub(super) warnings: Vec<Warning>,
}

impl Session {
    /// Arms the tracepoints for the devices of `options`.
    ///
    /// # Errors
    /// When a device cannot be recorded, a right is missing, or the kernel lacks something. The
    /// error says which, and what helps.
    pub fn start(options: &Options) -> Result<Session, CaptureError> {
        check(options)?;
        let devices = find_devices(options)?;
        let zero = clock::moment();
        let armed = arm_backend(options, &devices, zero.time_ns)?;
        let warnings = starting_warnings(options, &devices);
        Ok(Session {
            options: Options {
                backend: armed.backend,
                ..options.clone()
            },
            devices,
            plan: armed.plan,
            source: armed.source,
            zero,
            start_ns: clock::monotonic_ns(),
            warnings,
        })
    }

    /// What is known before the recording runs. The report has these too.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// The devices that are recorded, in the order of their indexes.
    pub fn devices(&self) -> Vec<Device> {
        let describe = |(index, device): (u16, &BlockDevice)| device.describe(DeviceIndex(index));
        (0..).zip(&self.devices).map(describe).collect()
    }

    /// Records into `destination` until `stop` is set, the duration is over, a bound is reached, or
    /// the devices are gone.
    ///
    /// `observer` is called on the calling thread, which drains the kernel's rings, and has a long slice
    /// of the scheduler from then on: it is not to keep waiting whom it records. Requests that are
    /// in flight at the end are waited for, up to a second. Whether there is room to begin is the caller's
    /// to ask ([`crate::Bounds::check_space`]), before the tape is made.
    ///
    /// # Errors
    /// When the tape cannot be written. What was written until then is a readable tape.
    pub fn run(
        self,
        destination: &mut impl Destination,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<Report, CaptureError> {
        let bounds = self.options.bounds;
        // Before the writer's thread is started.
        sys::lengthen_slice();
        thread::scope(|scope| {
            let writer = Writer::spawn(scope, destination, bounds, self.beginning());
            self.run_into(writer, stop, observer)
        })
    }

    /// The same without a tape: only the observer sees what happens. Of the report's summary the
    /// requests and the counters are filled in.
    ///
    /// # Errors
    /// None that are known.
    pub fn watch(
        self,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<Report, CaptureError> {
        sys::lengthen_slice();
        thread::scope(|scope| self.run_into(Writer::spawn_without_tape(scope), stop, observer))
    }

    fn run_into(
        self,
        writer: Writer<'_>,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<Report, CaptureError> {
        let pairing = self.pairing();
        let mut recorder = Recorder::new(self, pairing, &writer);
        // If the writer is gone, its own end says more than that.
        let outcome = recorder.record(stop, observer);
        let mut over = recorder.end();
        let (written, written_to) = writer.finish()?;
        let ended = match (outcome, written_to) {
            (_, Some(ended)) | (Ok(ended), None) => ended,
            (Err(_), None) => return Err(CaptureError::WriterEnded),
        };
        let lost = written.summary.counters.lost_events;
        if lost > 0 {
            over.warnings.push(Warning::EventsLost { events: lost });
        }
        Ok(Report {
            summary: written.summary,
            tape_bytes: written.bytes,
            segments: written.segments,
            removed: written.removed,
            lost_requests: over.lost_requests,
            elapsed: over.elapsed,
            ended,
            warnings: over.warnings,
        })
    }

    fn pairing(&self) -> Pairing {
        let rules = |device: &BlockDevice| DeviceRules {
            layer: device.layer,
            scattered_discards: device.scatters_discards(),
            single_queue: device.has_single_queue(),
            busy_at_start: device.is_busy(),
        };
        Pairing::new(
            self.devices.iter().map(rules).collect(),
            Limits::default(),
            self.start_ns - self.zero.time_ns,
            Some(std::process::id()),
        )
    }

    fn beginning(&self) -> Beginning {
        let uname = rustix::system::uname();
        let host = uname.nodename().to_string_lossy().into_owned();
        let release = uname.release().to_string_lossy();
        let mut notes = Vec::new();
        match self.options.backend {
            Backend::Bpf => {}
            Backend::Blktrace => notes.push(
                "control groups are told only while the option blk_cgroup of ftrace's tracer blk is set"
                    .to_owned(),
            ),
            _ => notes.push("the tracepoints do not tell control groups".to_owned()),
        }
        if matches!(self.options.backend, Backend::Ftrace | Backend::Blktrace) {
            notes.push(
                "the thread is recorded: where it ended before its process was looked up, its number \
                 stands for that of the process"
                    .to_owned(),
            );
        }
        if self.devices.iter().any(|device| device.place.is_some()) {
            notes.push(
                "flushes do not tell their partition: a partition has those of its whole disk"
                    .to_owned(),
            );
        }
        notes.extend(stack_notes(&self.devices, &self.warnings));
        for name in &self.plan.missing {
            notes.push(format!(
                "the kernel has no tracepoint {name}: what it counts is missing"
            ));
        }
        let header = Header {
            tool: self.options.tool.clone(),
            host: (!self.options.hide_host).then_some(host),
            os: Some(format!("Linux {release}")),
            clock: Clock {
                source: "CLOCK_MONOTONIC".to_owned(),
                resolution_ns: 1,
            },
            backend: self.options.backend.name().to_owned(),
            options: vec![format!("ring_bytes={}", self.plan.ring_bytes())],
            error_codes: ErrorCodes::Errno,
            notes,
        };
        Beginning {
            header,
            devices: self.devices(),
            anchor: Anchor {
                time_ns: 0,
                ..self.zero
            },
        }
    }
}

/// What collects events from here on.
struct Armed {
    /// The backend that was taken.
    backend: Backend,
    plan: Plan,
    source: Box<dyn Source>,
}

fn arm_backend(
    options: &Options,
    devices: &[BlockDevice],
    now_ns: u64,
) -> Result<Armed, CaptureError> {
    match options.backend {
        Backend::Bpf => return attach_bpf(options, devices, now_ns),
        Backend::Blktrace => {
            let ring_bytes = ring_bytes(options, Backend::Blktrace)?;
            return Ok(Armed {
                backend: Backend::Blktrace,
                plan: Plan::none(ring_bytes, Vec::new()),
                source: Box::new(blktrace::start(devices, ring_bytes)?),
            });
        }
        // Where it does not work, perf may; if that does not either, its error says what helps.
        Backend::Auto if cfg!(feature = "bpf") => {
            if let Ok(armed) = attach_bpf(options, devices, now_ns) {
                return Ok(armed);
            }
        }
        Backend::Auto | Backend::Perf | Backend::Ftrace => {}
    }
    let tracefs = TraceFs::open().map_err(rights::tracefs_error)?;
    let plan = Plan::new(devices, ring_bytes(options, Backend::Perf)?, &tracefs)?;
    let (backend, source): (_, Box<dyn Source>) = match options.backend {
        Backend::Ftrace => (
            Backend::Ftrace,
            Box::new(Buffers::arm(&plan, &tracefs, now_ns)?),
        ),
        _ => (Backend::Perf, Box::new(perf_rings(&plan, now_ns)?)),
    };
    Ok(Armed {
        backend,
        plan,
        source,
    })
}

#[cfg(feature = "bpf")]
fn attach_bpf(
    options: &Options,
    devices: &[BlockDevice],
    now_ns: u64,
) -> Result<Armed, CaptureError> {
    let ring_bytes = ring_bytes(options, Backend::Bpf)?;
    let bpf = super::bpf::Bpf::attach(devices, ring_bytes, now_ns)?;
    Ok(Armed {
        backend: Backend::Bpf,
        plan: Plan::none(ring_bytes, bpf.missing().to_vec()),
        source: Box::new(bpf),
    })
}

#[cfg(not(feature = "bpf"))]
fn attach_bpf(_: &Options, _: &[BlockDevice], _: u64) -> Result<Armed, CaptureError> {
    Err(CaptureError::NotBuilt {
        backend: Backend::Bpf.name(),
    })
}

/// What is asked for, or the backend's default on this machine.
fn ring_bytes(options: &Options, backend: Backend) -> Result<usize, CaptureError> {
    if let Some(bytes) = options.ring_bytes {
        return Ok(bytes);
    }
    let possible = arm::possible_cpus().map_err(|source| CaptureError::System {
        action: "reading the list of processors".to_owned(),
        source,
    })?;
    Ok(backend.default_ring_bytes(possible.len()))
}

/// Opens and arms the tracepoints on all processors.
fn perf_rings(plan: &Plan, now_ns: u64) -> Result<Rings, CaptureError> {
    let cpus = arm::online_cpus().map_err(|source| CaptureError::System {
        action: "reading the list of processors".to_owned(),
        source,
    })?;
    plan.allow_files(cpus.len());
    let opened = cpus
        .iter()
        .map(|cpu| plan.open(*cpu))
        .collect::<Result<Vec<_>, _>>()?;
    let mut rings = Rings::default();
    for opened in opened.into_iter().flatten() {
        opened.arm()?;
        rings.add(opened.cpu, opened.ring, opened.others, now_ns);
    }
    Ok(rings)
}

fn check(options: &Options) -> Result<(), CaptureError> {
    if let Some(bytes) = options.ring_bytes {
        let least = Options::MIN_RING_BYTES;
        if !bytes.is_power_of_two() || bytes < least.max(rustix::param::page_size()) {
            return Err(CaptureError::RingSize { bytes, least });
        }
    }
    options.bounds.check()?;
    if options.devices.is_empty() && !options.all_disks {
        return Err(CaptureError::NoDevice);
    }
    Ok(())
}

/// The kernel's filter expressions are bounded; this many fit on every kernel.
const MOST_DEVICES: usize = 64;

fn find_devices(options: &Options) -> Result<Vec<BlockDevice>, CaptureError> {
    check_number(options.devices.len())?;
    let topology = devices::topology();
    let mut paths: Vec<PathBuf> = Vec::new();
    if options.all_disks {
        paths.extend(topology.leaf_disks().into_iter().map(PathBuf::from));
    }
    for path in &options.devices {
        // A bare name is a device's.
        let is_named = path.parent() == Some(Path::new(""));
        if is_named || !path.is_dir() {
            paths.push(path.clone());
            continue;
        }
        let below = devices::devices_of_file(path);
        if below.is_empty() {
            return Err(CaptureError::NoDeviceBelow { path: path.clone() });
        }
        let leaves = below.iter().flat_map(|name| topology.leaves_of(name));
        paths.extend(leaves.map(PathBuf::from));
    }
    let mut devices: Vec<BlockDevice> = Vec::new();
    for path in &paths {
        let device = BlockDevice::find(path, options.layer)?;
        if !devices.iter().any(|known| known.number == device.number) {
            devices.push(device);
        }
    }
    check_number(devices.len())?;
    if devices.is_empty() {
        return Err(CaptureError::NoDevice);
    }
    Ok(devices)
}

fn check_number(devices: usize) -> Result<(), CaptureError> {
    if devices > MOST_DEVICES {
        return Err(CaptureError::TooManyDevices {
            devices,
            most: MOST_DEVICES,
        });
    }
    Ok(())
}

/// The stacks on the recorded devices, and what is recorded twice, for the tape's header.
fn stack_notes(devices: &[BlockDevice], warnings: &[Warning]) -> Vec<String> {
    let recorded: BTreeSet<String> = devices.iter().map(|device| device.name.clone()).collect();
    let above = devices::topology().above(&recorded);
    let stacks = above
        .into_iter()
        .filter(|(name, _)| !recorded.contains(name))
        .map(|(name, below)| {
            format!(
                "{name}, which is not recorded, is built on {}",
                below.join(", ")
            )
        });
    let twice = warnings.iter().filter_map(|warning| match warning {
        Warning::Stacked { upper, lower } => Some(format!(
            "what reaches {lower} from {upper} is recorded at both: totals of all devices have it twice"
        )),
        _ => None,
    });
    stacks.chain(twice).take(MOST_DEVICES).collect()
}

/// Names of what I/O of a device reaches: what it is built on, and the disks of partitions among that.
fn reached_from(upper: &BlockDevice) -> BTreeSet<String> {
    let mut reached = devices::topology().all_below(&upper.name);
    let disks: Vec<String> = reached
        .iter()
        .filter_map(|name| devices::disk_of(name))
        .collect();
    reached.extend(disks);
    reached.extend(upper.parents.iter().cloned());
    reached
}

fn starting_warnings(options: &Options, devices: &[BlockDevice]) -> Vec<Warning> {
    let mut warnings = Vec::new();
    for device in devices {
        if options.layer.is_none() && device.layer == Layer::Queue {
            warnings.push(Warning::QueueLayerOnly {
                device: device.name.clone(),
            });
        }
        let reached = reached_from(device);
        for lower in devices.iter().filter(|lower| reached.contains(&lower.name)) {
            warnings.push(Warning::Stacked {
                upper: device.name.clone(),
                lower: lower.name.clone(),
            });
        }
    }
    let under_tape = options
        .tape_path
        .as_deref()
        .and_then(|path| under(path).ok());
    for device in devices {
        if under_tape
            .as_ref()
            .is_some_and(|numbers| numbers.contains(&device.number))
        {
            warnings.push(Warning::TapeOnRecordedDevice {
                device: device.name.clone(),
            });
        }
    }
    warnings
}

/// The devices under a file, or under the directory that it will be made in.
fn under(path: &Path) -> io::Result<BTreeSet<devices::Number>> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(_) => match path.parent() {
            Some(directory) if directory != Path::new("") => fs::metadata(directory)?,
            _ => fs::metadata(".")?,
        },
    };
    Ok(devices::below(metadata.dev()))
}
