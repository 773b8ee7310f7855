//! What the kernel told, on its way to requests: placed on the recorded devices, paired, counted.

use iotape_formats::event::{Event, Step};
use iotape_formats::pairing::Pairing;
use iotape_formats::tape::{Counters, Loss};
use iotape_formats::tracepoint::record_id;
use iotape_formats::{DeviceIndex, Process, Request};

use super::arm::Plan;
use super::devices::BlockDevice;
use super::processes::Processes;
use super::source::{Decoded, Finished, Lost, Sample, Source, Told};
use super::threads::Threads;
use crate::Warning;

/// What the samples go through.
pub(super) struct Intake {
    devices: Vec<BlockDevice>,
    pub gone: Vec<bool>,
    pub pairing: Pairing,
    processes: Processes,
    threads: Threads,
    pub counters: Counters,
    pub losses: Vec<Loss>,
    /// Requests that a backend paired itself.
    pub finished: Vec<Request>,
    /// Control groups that turned up.
    pub groups: Vec<u64>,
    own_pid: u32,
    /// When the recording ended for its requests, on the tape's clock.
    end_ns: u64,
    /// Requests whose beginning was lost, as long as the kernel tells.
    pub lost_requests: Option<u64>,
    /// Time 0 of the tape on the monotonic clock.
    pub zero_ns: u64,
    /// What is older belongs to the time before everything was armed.
    start_ns: u64,
}

/// Who queued something, as far as the kernel told.
struct Submitter<'a> {
    /// The process (thread group).
    pid: Option<u32>,
    thread: Option<u32>,
    comm: &'a [u8],
}

impl Intake {
    pub fn new(devices: Vec<BlockDevice>, pairing: Pairing, zero_ns: u64, start_ns: u64) -> Intake {
        Intake {
            gone: vec![false; devices.len()],
            devices,
            pairing,
            processes: Processes::default(),
            threads: Threads::default(),
            counters: Counters::default(),
            losses: Vec::new(),
            finished: Vec::new(),
            groups: Vec::new(),
            own_pid: std::process::id(),
            end_ns: u64::MAX,
            lost_requests: Some(0),
            zero_ns,
            start_ns,
        }
    }

    pub fn take(&mut self, plan: &Plan, told: Told<'_>) {
        match told {
            Told::Sample(sample) => self.sample(plan, &sample),
            Told::Event(decoded) => self.decoded(&decoded),
            Told::Request(request) => self.finished(&request),
            Told::Group(id) => self.groups.push(id),
            Told::Counted(counters) => self.counters.add(&counters),
            Told::GapBegins => self.pairing.gap_begins(),
            Told::GapEnds => self.pairing.gap_ends(),
            Told::Lost(lost) => self.lost(lost),
        }
    }

    fn sample(&mut self, plan: &Plan, sample: &Sample<'_>) {
        if sample.time_ns < self.start_ns {
            return;
        }
        let layout = record_id(sample.record).and_then(|id| plan.layout(id));
        let Some(record) = layout.and_then(|layout| layout.decode(sample.record)) else {
            self.counters.undecodable += 1;
            return;
        };
        let event = record.event(sample.time_ns, Some(sample.cpu));
        let submitter = Submitter {
            pid: sample.pid,
            thread: record.thread,
            comm: record.comm,
        };
        self.place(record.dev, &event, &submitter);
    }

    fn decoded(&mut self, decoded: &Decoded<'_>) {
        if decoded.event.time_ns < self.start_ns {
            return;
        }
        let submitter = Submitter {
            pid: None,
            thread: Some(decoded.thread),
            comm: decoded.comm,
        };
        self.place(decoded.dev, &decoded.event, &submitter);
    }

    /// Gives an event of the kernel's device `dev` to the recorded devices that it belongs to.
    fn place(&mut self, dev: u32, reported: &Event, submitter: &Submitter<'_>) {
        let mut process = None;
        for index in 0..self.devices.len() {
            let device = &self.devices[index];
            if device.reported.in_kernel() != dev {
                continue;
            }
            let offset = device.offset_of(reported.offset_bytes, reported.length_bytes);
            let (Some(offset_bytes), Ok(index)) = (offset, u16::try_from(index)) else {
                continue;
            };
            if reported.step == Step::Queued && process.is_none() {
                process = self.process_of(submitter, reported.time_ns);
            }
            self.pairing.event(Event {
                time_ns: reported.time_ns - self.zero_ns,
                device: DeviceIndex(index),
                offset_bytes,
                process: process.clone(),
                ..reported.clone()
            });
        }
    }

    /// Takes a request that is paired already, for each recorded device that it is on.
    fn finished(&mut self, seen: &Finished<'_>) {
        if seen.time_ns < self.start_ns {
            // Its beginning was not recorded.
            self.counters.unpaired_completions += u64::from(seen.latency_ns.is_some());
            return;
        }
        let time_ns = seen.time_ns - self.zero_ns;
        let pid = seen.process.map(|(pid, _)| pid);
        if time_ns > self.end_ns || pid == Some(self.own_pid) {
            return;
        }
        for index in 0..self.devices.len() {
            let device = &self.devices[index];
            if device.reported.in_kernel() != seen.dev {
                continue;
            }
            let offset = device.offset_of(seen.offset_bytes, seen.length_bytes);
            let (Some(offset_bytes), Ok(index)) = (offset, u16::try_from(index)) else {
                continue;
            };
            self.counters.unpaired_issues += u64::from(seen.latency_ns.is_none());
            self.finished.push(Request {
                time_ns,
                device: DeviceIndex(index),
                op: seen.op,
                flags: seen.flags,
                offset_bytes,
                length_bytes: seen.length_bytes,
                latency_ns: seen.latency_ns,
                queue_ns: seen.queue_ns,
                process: seen
                    .process
                    .map(|(pid, name)| self.processes.get(pid, name)),
                cgroup: seen.cgroup,
                cpu: Some(seen.cpu),
                error: seen.error,
                file: None,
            });
        }
    }

    /// Requests of each device that began and are not done, also those that `source` pairs itself.
    pub fn in_flight(&self, source: &mut dyn Source) -> Vec<u64> {
        let paired_here = self.pairing.in_flight_by_device();
        let mut in_flight: Vec<u64> = paired_here.iter().map(|open| *open as u64).collect();
        source.in_flight(&mut |place| {
            for (device, open) in self.devices.iter().zip(&mut in_flight) {
                let is_there = device.reported.in_kernel() == place.dev
                    && device
                        .offset_of(place.offset_bytes, place.length_bytes)
                        .is_some();
                *open += u64::from(is_there);
            }
        });
        in_flight
    }

    /// What begins later is not recorded.
    pub fn end_at(&mut self, end_ns: u64) {
        self.end_ns = end_ns;
        self.pairing.end_at(end_ns);
    }

    fn process_of(&mut self, submitter: &Submitter<'_>, time_ns: u64) -> Option<Process> {
        let pid = match (submitter.pid, submitter.thread) {
            (Some(pid), _) => pid,
            (None, Some(thread)) => self.threads.process_of(thread, time_ns),
            (None, None) => return None,
        };
        Some(self.processes.get(pid, submitter.comm))
    }

    pub fn lost(&mut self, lost: Lost) {
        let (from_ns, to_ns) = (
            lost.from_ns.saturating_sub(self.zero_ns),
            lost.to_ns.saturating_sub(self.zero_ns),
        );
        self.pairing.lost(to_ns);
        let requests = self.lost_requests.zip(lost.requests);
        self.lost_requests = requests.map(|(sum, more)| sum + more);
        self.losses.push(Loss {
            from_ns,
            to_ns,
            events: lost.events,
            requests: lost.requests,
            reason: lost.reason,
        });
    }

    /// Looks for devices that went away.
    pub fn find_gone(&mut self, warnings: &mut Vec<Warning>) {
        for (device, gone) in self.devices.iter().zip(&mut self.gone) {
            if !*gone && device.is_gone() {
                *gone = true;
                warnings.push(Warning::DeviceGone {
                    device: device.name.clone(),
                });
            }
        }
    }
}
