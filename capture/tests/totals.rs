//! Totals of a load at full rate, against the load's own count, and of a recorder that is too slow.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod common;

use std::collections::BTreeMap;

use common::{LoopDevice, Recorded, have_root_and, options, output, record, run};
use iotape_capture::{Backend, Options, Session, Warning};
use iotape_formats::Op;
use iotape_formats::tape::Layer;
use serde_json::Value;

const DEVICE_BYTES: u64 = 512 << 20;

const JOBS: [&[&str]; 4] = [
    &["--rw=randrw", "--rwmixread=70", "--bs=4k", "--iodepth=32"],
    &["--rw=randrw", "--bsrange=4k-64k", "--iodepth=16"],
    &["--rw=randwrite", "--bs=4k", "--fsync=32", "--iodepth=8"],
    &["--rw=randtrim", "--bs=64k", "--iodepth=4"],
];

/// Runs a job for half a second and returns what fio says of it.
fn fio(device: &LoopDevice, job: &[&str]) -> Value {
    let filename = format!("--filename={}", device.path);
    let mut arguments = vec![
        "--name=load",
        "--ioengine=io_uring",
        "--direct=1",
        "--runtime=500ms",
        "--time_based",
        "--output-format=json",
        &filename,
    ];
    arguments.extend(job);
    let report: Value = serde_json::from_str(&output("fio", &arguments)).unwrap();
    report["jobs"][0].clone()
}

/// Requests and bytes per operation.
type Totals = BTreeMap<Op, (u64, u64)>;

fn of_fio(job: &Value) -> Totals {
    let kinds = [
        ("read", Op::Read),
        ("write", Op::Write),
        ("trim", Op::Discard),
        ("sync", Op::Flush),
    ];
    kinds
        .into_iter()
        .map(|(key, op)| {
            let bytes = job[key]["io_bytes"].as_u64().unwrap_or(0);
            (op, (job[key]["total_ios"].as_u64().unwrap(), bytes))
        })
        .filter(|(_, (requests, _))| *requests > 0)
        .collect()
}

fn of_tape<T>(recorded: &Recorded<T>) -> Totals {
    let by_op = recorded.report.summary.by_op;
    Op::ALL
        .into_iter()
        .map(|op| (op, by_op[usize::from(op.number())]))
        .filter(|(_, totals)| totals.requests > 0)
        .map(|(op, totals)| (op, (totals.requests, totals.bytes)))
        .collect()
}

#[test]
fn the_queue_layer_has_what_fio_did_and_the_device_layer_its_bytes() {
    if !have_root_and(&["losetup", "fio"]) {
        return;
    }
    let device = LoopDevice::new(DEVICE_BYTES);
    for (job, layer) in JOBS
        .iter()
        .flat_map(|job| [(job, Layer::Queue), (job, Layer::Device)])
    {
        let options = Options {
            layer: Some(layer),
            ..options(&device.path)
        };
        let recorded = record(&options, || fio(&device, job));
        let (expected, seen) = (of_fio(&recorded.load), of_tape(&recorded));
        let counters = recorded.report.summary.counters;
        assert_eq!(counters.lost_events, 0, "{job:?} at the {layer} layer");
        if layer == Layer::Queue {
            assert_eq!(seen, expected, "{job:?}");
            continue;
        }
        for op in [Op::Read, Op::Write, Op::Discard] {
            let bytes = |totals: &Totals| totals.get(&op).map(|(_, bytes)| *bytes);
            assert_eq!(bytes(&seen), bytes(&expected), "{op} of {job:?}");
        }
        if let Some((asked, _)) = expected.get(&Op::Flush) {
            let issued = seen[&Op::Flush].0;
            assert!(issued <= *asked);
            // A flush asked for between the decision and the issue of another counts there; over
            // the recording this is one for each such moment.
            let answered = issued + counters.coalesced_flushes;
            assert!(
                answered >= *asked && answered <= asked + issued,
                "{issued} {counters:?}"
            );
        }
    }
}

#[test]
fn what_a_slow_recorder_loses_is_counted_and_falsifies_nothing() {
    if !have_root_and(&["losetup", "fio"]) {
        return;
    }
    let device = LoopDevice::new(DEVICE_BYTES);
    let smallest = Options {
        layer: Some(Layer::Queue),
        ring_bytes: Some(Options::MIN_RING_BYTES),
        ..options(&device.path)
    };
    let session = Session::start(&smallest).unwrap();
    // Nobody drains the rings during the first run.
    let first = fio(&device, JOBS[0]);
    let recorded = run(session, || fio(&device, JOBS[0]));
    let runs = [&first, &recorded.load];
    let counters = recorded.report.summary.counters;
    assert!(counters.lost_events > 0);
    assert!(recorded.report.warnings.contains(&Warning::EventsLost {
        events: counters.lost_events
    }));

    // Each of fio's requests makes two events: one is a request in the tape, the other completes it
    // or is counted. Kernels have been seen to leave out completions that run on top of some
    // threads, without counting them.
    let asked: u64 = runs
        .iter()
        .flat_map(|job| of_fio(job).into_values())
        .map(|of| of.0)
        .sum();
    let requests = recorded.report.summary.requests;
    let completions = requests - counters.unpaired_issues + counters.unpaired_completions;
    let accounted = requests + completions + counters.lost_events;
    assert!(
        accounted <= 2 * asked,
        "{accounted} events of {asked} requests: {counters:?}"
    );
    assert!(
        accounted * 20 >= 2 * asked * 19,
        "{accounted} events of {asked} requests"
    );

    for (op, key) in [(Op::Read, "read"), (Op::Write, "write")] {
        let slowest = runs
            .iter()
            .map(|job| job[key]["lat_ns"]["max"].as_u64().unwrap())
            .max();
        let of_op = recorded.requests.iter().filter(|request| request.op == op);
        let recorded = of_op.filter_map(|request| request.latency_ns).max();
        assert!(
            recorded.is_some() && recorded <= slowest,
            "{op}: {recorded:?} {slowest:?}"
        );
    }
}

#[test]
fn through_ftrace_every_event_is_in_the_tape_or_counted_as_lost() {
    if !have_root_and(&["losetup", "fio"]) {
        return;
    }
    let device = LoopDevice::new(DEVICE_BYTES);
    let smallest = Options {
        backend: Backend::Ftrace,
        layer: Some(Layer::Queue),
        ring_bytes: Some(Options::MIN_RING_BYTES),
        ..options(&device.path)
    };
    let session = Session::start(&smallest).unwrap();
    // Nobody drains the buffers during the first run.
    let first = fio(&device, JOBS[0]);
    let recorded = run(session, || fio(&device, JOBS[0]));
    let counters = recorded.report.summary.counters;
    assert!(counters.lost_events > 0);
    let asked: u64 = [&first, &recorded.load]
        .iter()
        .flat_map(|job| of_fio(job).into_values())
        .map(|of| of.0)
        .sum();
    let requests = recorded.report.summary.requests;
    // In doubt, but seen: only what is given up has no completion.
    let completions = requests - counters.unpaired_issues + counters.unpaired_completions;
    assert_eq!(
        requests + completions + counters.lost_events,
        2 * asked,
        "{counters:?}"
    );
    let slowest = [&first, &recorded.load]
        .iter()
        .flat_map(|job| ["read", "write"].map(|key| job[key]["lat_ns"]["max"].as_u64().unwrap()))
        .max();
    let recorded = recorded
        .requests
        .iter()
        .filter_map(|request| request.latency_ns)
        .max();
    assert!(
        recorded.is_some() && recorded <= slowest,
        "{recorded:?} {slowest:?}"
    );
}
