//! Intervals for the tests of this module.

use std::sync::Arc;
use std::time::Duration;

use iotape_capture::Progress;
use iotape_formats::tape::Device;
use iotape_formats::{DeviceIndex, Op, Process, Request};

use super::Watched;
use super::gather::Gathered;

pub fn watched(devices: &[&str]) -> Watched {
    let device = |name: &&str| Device {
        name: (*name).to_owned(),
        ..Device::default()
    };
    Watched {
        title: "test".to_owned(),
        devices: devices.iter().map(device).collect(),
        interval: Duration::from_secs(1),
        tape: true,
    }
}

/// Three reads of 4 KiB and a flush on the first device, a write of 8 KiB on the second, until so
/// many milliseconds.
pub fn gathered(until_ms: u64) -> Gathered {
    let mut gathered = Gathered::new(2);
    let request = |device, op, length_bytes, latency_ms: Option<u64>| Request {
        device: DeviceIndex(device),
        op,
        length_bytes,
        latency_ns: latency_ms.map(|ms| ms * 1_000_000),
        process: Some(Process {
            pid: 7,
            name: Arc::from("fi\u{1b}o\u{9b}"),
        }),
        ..Request::default()
    };
    for _ in 0..3 {
        gathered.add(&request(0, Op::Read, 4096, Some(100)));
    }
    gathered.add(&request(0, Op::Flush, 0, None));
    gathered.add(&request(1, Op::Write, 8192, Some(200)));
    gathered.progress = Progress {
        elapsed: Duration::from_millis(until_ms),
        lost_events: 7,
        lost_requests: Some(3),
        in_flight_by_device: vec![2, 3],
        tape_bytes: until_ms * 1000,
        segments: 1,
        ..Progress::default()
    };
    gathered
}
