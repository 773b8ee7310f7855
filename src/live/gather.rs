//! Adding up what the recorder sees, on its own thread.

use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use iotape_capture::{Observer, Progress, Report};
use iotape_formats::tape::OpTotals;
use iotape_formats::{Op, Request};

use super::latencies::Latencies;
use super::top_processes::TopProcesses;

/// Sums of an interval.
#[derive(Debug)]
pub struct Gathered {
    /// In the order of the devices' indexes.
    pub devices: Vec<DeviceSums>,
    pub processes: TopProcesses,
    /// As it was at the end of the interval.
    pub progress: Progress,
}

/// Sums of a device.
#[derive(Clone, Debug)]
pub struct DeviceSums {
    pub by_op: [OpTotals; Op::ALL.len()],
    pub latencies: Latencies,
}

impl DeviceSums {
    pub fn new() -> DeviceSums {
        DeviceSums {
            by_op: Default::default(),
            latencies: Latencies::new(),
        }
    }

    pub fn add(&mut self, other: &DeviceSums) {
        for (ours, theirs) in self.by_op.iter_mut().zip(&other.by_op) {
            ours.requests += theirs.requests;
            ours.bytes = ours.bytes.saturating_add(theirs.bytes);
        }
        self.latencies.add(&other.latencies);
    }

    fn clear(&mut self) {
        self.by_op = Default::default();
        self.latencies.clear();
    }
}

impl Gathered {
    pub fn new(devices: usize) -> Gathered {
        Gathered {
            devices: vec![DeviceSums::new(); devices],
            processes: TopProcesses::default(),
            progress: Progress::default(),
        }
    }

    /// Empties the sums and keeps their memory.
    pub fn clear(&mut self) {
        self.devices.iter_mut().for_each(DeviceSums::clear);
        self.processes.clear();
    }

    pub fn add(&mut self, request: &Request) {
        let Some(device) = self.devices.get_mut(usize::from(request.device.0)) else {
            return;
        };
        let totals = &mut device.by_op[usize::from(request.op.number())];
        totals.requests += 1;
        totals.bytes = totals.bytes.saturating_add(request.length_bytes);
        if let Some(latency_ns) = request.latency_ns {
            device.latencies.record(latency_ns);
        }
        if let Some(process) = &request.process {
            let bytes = match request.op.transfers_data() {
                true => request.length_bytes,
                false => 0,
            };
            self.processes.add(process, bytes);
        }
    }
}

/// Adds up, and hands sums over when the last ones have been shown.
pub struct Gatherer {
    interval: Duration,
    current: Box<Gathered>,
    full: Sender<Box<Gathered>>,
    empty: Receiver<Box<Gathered>>,
}

impl Gatherer {
    pub fn new(
        interval: Duration,
        devices: usize,
        full: Sender<Box<Gathered>>,
        empty: Receiver<Box<Gathered>>,
    ) -> Gatherer {
        Gatherer {
            interval,
            current: Box::new(Gathered::new(devices)),
            full,
            empty,
        }
    }

    /// Hands over what is left, with the recording's final figures.
    pub fn finish(mut self, report: Option<&Report>) {
        let Some(report) = report else {
            return;
        };
        self.current.progress = Progress {
            elapsed: report.elapsed,
            requests: report.summary.requests,
            lost_events: report.summary.counters.lost_events,
            lost_requests: report.lost_requests,
            tape_bytes: report.tape_bytes,
            segments: report.segments,
            in_flight_by_device: vec![0; self.current.devices.len()],
            ..Progress::default()
        };
        let _ = self.full.send(self.current);
    }
}

impl Observer for Gatherer {
    fn interval(&self) -> Duration {
        self.interval
    }

    fn requests(&mut self, requests: &[Request]) {
        for request in requests {
            self.current.add(request);
        }
    }

    fn progress(&mut self, progress: &Progress) {
        // While the last sums are still being shown, these go on.
        let Ok(empty) = self.empty.try_recv() else {
            return;
        };
        let mut full = std::mem::replace(&mut self.current, empty);
        full.progress = progress.clone();
        let _ = self.full.send(full);
    }
}
