//! From sums to figures: what the view shows, and the JSON object of an interval.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use iotape_capture::Progress;
use iotape_formats::Op;
use iotape_formats::tape::OpTotals;
use serde::Serialize;

use super::Watched;
use super::gather::{DeviceSums, Gathered};
use super::latencies::{Latencies, LatencyFigures};
use crate::render::json::plain_json;

/// Processes that are named.
const PROCESSES: usize = 20;
/// Requests wait for others before they are in order. What is left at the end may be of a longer time
/// than its interval: below this share of an interval, no rates are given.
const LEAST_SHARE: f64 = 0.25;

/// An interval, as docs/capture.md describes its JSON. Times count from the start of the recording.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    #[serde(rename = "type")]
    kind: &'static str,
    pub from_ns: u64,
    pub to_ns: u64,
    #[serde(flatten)]
    pub all: Sums,
    /// Lost in this interval; requests are null where the kernel does not tell.
    pub lost_events: u64,
    pub lost_requests: Option<u64>,
    /// Lost since the start.
    pub lost_events_total: u64,
    pub lost_requests_total: Option<u64>,
    /// Null without a tape.
    pub tape_bytes: Option<u64>,
    pub tape_bytes_per_s: Option<f64>,
    pub segments: Option<u32>,
    pub devices: Vec<DeviceFigures>,
    /// Those that moved the most bytes.
    pub processes: Vec<ProcessFigures>,
}

/// Figures of a device, or of all together.
#[derive(Clone, Debug, Serialize)]
pub struct Sums {
    pub requests: u64,
    /// Bytes that crossed the bus (read, write, zone_append).
    pub bytes: u64,
    pub throughput_mb_s: Option<f64>,
    pub iops: Option<f64>,
    /// Mean length of the requests that have one.
    pub mean_request_bytes: Option<f64>,
    pub by_op: BTreeMap<&'static str, OpFigures>,
    /// Requests in flight at the end of the interval; null where that is not known.
    pub in_flight: Option<u64>,
    /// Mean of the requests in flight: latencies of those that were done, over the interval.
    pub mean_depth: Option<f64>,
    /// Of the requests of the interval that have a latency.
    pub latency_ns: Option<LatencyFigures>,
    /// Of all since the start.
    pub latency_total_ns: Option<LatencyFigures>,
}

/// Requests and bytes of an operation.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct OpFigures {
    pub requests: u64,
    pub bytes: u64,
}

/// Figures of a device.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceFigures {
    pub name: String,
    pub layer: String,
    #[serde(flatten)]
    pub sums: Sums,
}

/// Figures of a process.
#[derive(Clone, Debug, Serialize)]
pub struct ProcessFigures {
    pub pid: u32,
    pub name: String,
    pub requests: u64,
    /// Read and written.
    pub bytes: u64,
    /// By how much `bytes` may be too high, at most: 0 unless more than 256 processes were active.
    pub over_bytes: u64,
}

impl Figures {
    /// One line. Characters that would control a terminal are escaped.
    pub fn to_json(&self) -> io::Result<String> {
        Ok(plain_json(serde_json::to_string(self)?))
    }

    /// How long the interval is.
    pub fn length_ns(&self) -> u64 {
        self.to_ns - self.from_ns
    }
}

/// What is known from earlier intervals.
pub struct History {
    watched: Watched,
    /// Latencies since the start: of all devices, and of each.
    all: Latencies,
    devices: Vec<Latencies>,
    before: Progress,
}

impl History {
    pub fn new(watched: Watched) -> History {
        History {
            all: Latencies::new(),
            devices: vec![Latencies::new(); watched.devices.len()],
            before: Progress {
                lost_requests: Some(0),
                ..Progress::default()
            },
            watched,
        }
    }

    /// The figures of the next interval.
    pub fn take(&mut self, gathered: &Gathered) -> Figures {
        let (now, before) = (&gathered.progress, &self.before);
        let elapsed = now.elapsed.max(before.elapsed);
        let length = elapsed - before.elapsed;
        let seconds = length.as_secs_f64();
        let rated = seconds >= LEAST_SHARE * self.watched.interval.as_secs_f64();
        let seconds = rated.then_some(seconds);

        let mut together = DeviceSums::new();
        for (total, device) in self.devices.iter_mut().zip(&gathered.devices) {
            together.add(device);
            total.add(&device.latencies);
        }
        self.all.add(&together.latencies);
        let known = !now.in_flight_by_device.is_empty();
        let in_flight = known.then(|| now.in_flight());
        let lost_requests = now.lost_requests.zip(before.lost_requests);
        let grown = now.tape_bytes.saturating_sub(before.tape_bytes);
        let tape = self.watched.tape;
        let figures = Figures {
            kind: "interval",
            from_ns: nanos(before.elapsed),
            to_ns: nanos(elapsed),
            all: sums(&together, seconds, in_flight, &self.all),
            lost_events: now.lost_events.saturating_sub(before.lost_events),
            lost_requests: lost_requests.map(|(now, before)| now.saturating_sub(before)),
            lost_events_total: now.lost_events,
            lost_requests_total: now.lost_requests,
            tape_bytes: tape.then_some(now.tape_bytes),
            tape_bytes_per_s: seconds.filter(|_| tape).map(|s| grown as f64 / s),
            segments: tape.then_some(now.segments),
            devices: self.device_figures(gathered, seconds),
            processes: processes(gathered),
        };
        self.before = Progress {
            elapsed,
            ..now.clone()
        };
        figures
    }

    fn device_figures(&self, gathered: &Gathered, seconds: Option<f64>) -> Vec<DeviceFigures> {
        let in_flight = &gathered.progress.in_flight_by_device;
        let devices = self.watched.devices.iter().zip(&gathered.devices);
        devices
            .zip(&self.devices)
            .enumerate()
            .map(|(index, ((device, now), total))| DeviceFigures {
                name: device.name.clone(),
                layer: device.layer.to_string(),
                sums: sums(now, seconds, in_flight.get(index).copied(), total),
            })
            .collect()
    }
}

fn sums(of: &DeviceSums, seconds: Option<f64>, in_flight: Option<u64>, total: &Latencies) -> Sums {
    let present = || {
        let all = Op::ALL.into_iter().zip(&of.by_op);
        all.filter(|(_, totals)| totals.requests > 0)
    };
    let count = |totals: &OpTotals| OpFigures {
        requests: totals.requests,
        bytes: totals.bytes,
    };
    let transfers = || present().filter(|(op, _)| op.transfers_data());
    let requests = present().map(|(_, totals)| totals.requests).sum::<u64>();
    let bytes = transfers().map(|(_, totals)| totals.bytes).sum::<u64>();
    let with_length = || present().filter(|(_, totals)| totals.bytes > 0);
    let lengths = with_length().map(|(_, totals)| totals.bytes).sum::<u64>();
    let those = with_length()
        .map(|(_, totals)| totals.requests)
        .sum::<u64>();
    Sums {
        requests,
        bytes,
        throughput_mb_s: seconds.map(|s| bytes as f64 / 1e6 / s),
        iops: seconds.map(|s| requests as f64 / s),
        mean_request_bytes: (those > 0).then(|| lengths as f64 / those as f64),
        by_op: present()
            .map(|(op, totals)| (op.name(), count(totals)))
            .collect(),
        in_flight,
        mean_depth: seconds.map(|s| of.latencies.sum_ns() as f64 / 1e9 / s),
        latency_ns: of.latencies.figures(),
        latency_total_ns: total.figures(),
    }
}

fn processes(gathered: &Gathered) -> Vec<ProcessFigures> {
    let top = gathered.processes.top(PROCESSES).into_iter();
    top.map(|entry| ProcessFigures {
        pid: entry.process.pid,
        name: entry.process.name.to_string(),
        requests: entry.requests,
        bytes: entry.bytes,
        over_bytes: entry.over_bytes,
    })
    .collect()
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{gathered, watched};
    use super::*;

    #[test]
    fn rates_are_sums_over_the_interval() {
        let mut history = History::new(watched(&["sda", "sdb"]));
        // 3 reads of 4 KiB and a flush on sda, a write of 8,192 bytes on sdb, in half a second.
        let first = history.take(&gathered(500));
        assert_eq!((first.from_ns, first.to_ns), (0, 500_000_000));
        assert_eq!((first.all.requests, first.all.bytes), (5, 20_480));
        assert_eq!(first.all.throughput_mb_s, Some(20_480.0 / 1e6 / 0.5));
        assert_eq!(first.all.iops, Some(10.0));
        assert_eq!(first.all.mean_request_bytes, Some(20_480.0 / 4.0));
        assert_eq!(first.all.in_flight, Some(5));
        // Latencies of 100 ms, 100 ms, 100 ms and 200 ms: half a second of them in half a second.
        assert_eq!(first.all.mean_depth, Some(1.0));
        assert_eq!(first.all.latency_ns.unwrap().count, 4);
        assert_eq!((first.lost_events, first.lost_requests), (7, Some(3)));
        let sda = &first.devices[0];
        assert_eq!((sda.name.as_str(), sda.sums.requests), ("sda", 4));
        assert_eq!(sda.sums.by_op["read"].bytes, 12_288);
        let named = &first.processes[0];
        assert_eq!(
            (named.name.as_str(), named.bytes),
            ("fi\u{1b}o\u{9b}", 20_480)
        );

        let second = history.take(&gathered(1_500));
        assert_eq!(second.all.iops, Some(5.0));
        assert_eq!((second.lost_events, second.lost_events_total), (0, 7));
        assert_eq!(second.all.latency_total_ns.unwrap().count, 8);
        // What is left over at the end is too short for a rate.
        let last = history.take(&gathered(1_501));
        assert_eq!((last.all.requests, last.all.iops), (5, None));
        assert_eq!((last.all.mean_depth, last.tape_bytes_per_s), (None, None));
    }

    #[test]
    fn json_is_one_line_that_cannot_control_a_terminal() {
        let figures = History::new(watched(&["sda", "sdb"])).take(&gathered(1_000));
        let json = figures.to_json().unwrap();
        assert!(!json.contains(char::is_control), "{json}");
        let back: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(back["processes"][0]["name"], "fi\u{1b}o\u{9b}");
        assert_eq!(back["type"], "interval");
        assert_eq!(back["requests"], 5);
    }
}
