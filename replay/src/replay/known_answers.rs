//! Whole runs on simulated devices, of which every figure can be computed by hand.

use std::time::Duration;

use iotape_formats::{Flags, Op};

use super::*;
use crate::options::{TargetSpec, Timing};
use crate::result::{Run, TargetKind};
use crate::source::Row;
use crate::source::testing::Rows;

fn reads(count: u64) -> Vec<Row> {
    let row = |n: u64| Row {
        time_ns: n,
        op: Op::Read,
        flags: Flags::NONE,
        offset_bytes: n % 1_000 * 4096,
        length_bytes: 4096,
        ..Row::default()
    };
    (0..count).map(row).collect()
}

fn play(rows: Vec<Row>, device: &str, options: &RunOptions) -> Run {
    let target = TargetSpec::Sim(device.parse().unwrap());
    let stop = AtomicBool::new(false);
    let mut replay =
        Replay::prepare(Rows::new(rows), Options::new(target), &stop, &mut |_| {}).unwrap();
    replay.run(options, &stop, &mut |_| {}).unwrap()
}

#[track_caller]
fn near(found: f64, exact: f64, part: f64, context: &str) {
    assert!(
        (found / exact - 1.0).abs() <= part,
        "{context}: {found} for {exact}"
    );
}

#[test]
fn throughput_and_response_follow_from_servers_cap_and_service_time() {
    for servers in [1u32, 3, 8, 64] {
        for depth in [1u32, 2, 8, 48] {
            for service_us in [20u32, 100, 7_000] {
                let busy = f64::from(servers.min(depth));
                let service_s = f64::from(service_us) * 1e-6;
                let run = play(
                    reads(60_000),
                    &format!("sim:servers={servers},service={service_us}us"),
                    &RunOptions {
                        // The first requests meet an idle device.
                        warmup: Duration::from_secs_f64(service_s * 100.0),
                        ..RunOptions::new("test", Profile::depth(depth))
                    },
                );
                let context = format!("c {servers}, d {depth}, s {service_us} us");
                let throughput = busy / service_s;
                near(run.iops, throughput, 1e-3, &context);
                let response = run.response_ns.unwrap().mean / 1e9;
                near(response, f64::from(depth) / throughput, 1e-3, &context);
                assert!(run.outstanding.max == depth, "{context}");
                assert!(run.tool.littles_law_error < 1e-12, "{context}");
                assert!(run.valid, "{context}: {:?}", run.reasons);
            }
        }
    }
}

#[test]
fn a_run_on_a_simulated_device_is_the_same_each_time() {
    let again = || {
        let device = "sim:servers=3,service=80us,dist=exp,seed=11,stall=30ms@50ms";
        let mut run = play(
            reads(30_000),
            device,
            &RunOptions::new("test", Profile::light()),
        );
        // What the tool itself used is not simulated.
        run.tool = result::ToolUse::default();
        run
    };
    let run = again();
    assert_eq!(run, again());
    assert_eq!(
        (run.engine.as_str(), run.targets[0].kind),
        ("sim", TargetKind::Sim)
    );
}

#[test]
fn a_tape_that_reaches_behind_a_simulated_device_is_refused() {
    let target = TargetSpec::Sim("service=1us,size=1MiB".parse().unwrap());
    let error = Replay::prepare(
        Rows::new(reads(1_000)),
        Options::new(target),
        &AtomicBool::new(false),
        &mut |_| {},
    );
    assert!(matches!(error, Err(ReplayError::TooSmall { .. })));
}

const MS: u64 = 1_000_000;

fn timed(timing: Timing, speed: &str, depth: u32) -> RunOptions {
    RunOptions {
        timing,
        speed: speed.parse().unwrap(),
        ..RunOptions::new("test", Profile::depth(depth))
    }
}

/// A read of a page, 4,096 pages apart from the next.
fn read(time_ns: u64, pid: u32, latency_ns: u64) -> Row {
    Row {
        time_ns,
        pid: Some(pid),
        latency_ns: Some(latency_ns),
        offset_bytes: time_ns / 1_000 % 1_000 * 4096,
        length_bytes: 4096,
        ..Row::default()
    }
}

#[test]
fn requests_are_submitted_at_the_times_of_the_tape() {
    // A thousand milliseconds after the tape's own start, 20 us apart.
    let rows = || {
        (0..100_000)
            .map(|n| read(1_000 * MS + n * 20_000, 1, 9_000))
            .collect::<Vec<_>>()
    };
    for (speed, nominal_ns) in [
        ("1", 1_999_980_000),
        ("2", 999_990_000),
        ("0.3", 6_666_600_000),
    ] {
        let device = "sim:servers=8,service=10us";
        let run = play(rows(), device, &timed(Timing::Recorded, speed, 8));
        assert_eq!(run.elapsed_ns, nominal_ns + 10_000, "{speed}");
        assert_eq!(run.loop_kind, result::LoopKind::Open);
        assert_eq!(run.lag_ns.unwrap().max, 0);
        assert_eq!(run.response_ns.unwrap(), run.service_ns.unwrap());
        let schedule = run.schedule.unwrap();
        assert_eq!((schedule.end_drift_ns, schedule.total_lag_ns), (0, 0));
        assert!(schedule.delayed_by_cap_share == 0.0);
        assert!(run.valid, "{:?}", run.reasons);
    }
}

#[test]
fn a_stall_shows_in_the_response_of_all_whom_it_made_wait() {
    // 1,000 a second for 10 s, 10 us of service, a stall of 100 ms at 5 s: the 100 requests that
    // are due in it respond in 100, 99, … 1 ms and 10 us.
    let rows = (0..10_000).map(|n| read(n * MS, 1, 9_000)).collect();
    let device = "sim:servers=1,service=10us,stall=100ms@5s";
    let run = play(rows, device, &timed(Timing::Recorded, "1", 8));
    let response = run.response_ns.unwrap();
    assert_eq!(response.count, 10_000);
    assert_eq!((response.min, response.max), (10_000, 100 * MS + 10_000));
    // The service times: the first request is hit by all of it, the next seven by what was left
    // when they came; the rest waits for tokens, which is lag and not service.
    let service = run.service_ns.unwrap();
    assert_eq!(service.max, 100 * MS + 10_000);
    // Sums: 10 us each, Σ 100 to 1 ms, and 10 us for each that is served before in the burst,
    // which the request due at its end meets whole, and the next one the last of.
    let waits_ns: u64 = (0..100).map(|n| (100 - n) * MS + n * 10_000).sum();
    let burst_ns = waits_ns + 100 * 10_000 + 10_000;
    near(
        response.mean,
        (10_000 * 10_000 + burst_ns) as f64 / 10_000.0,
        1e-9,
        "mean response",
    );
    // 1 % of the requests waited: the 99th percentile is at the edge, the 99.5th is 50 ms.
    assert!(response.p50 < 20_000 && response.p90 < 20_000);
    near(response.p99_9 as f64, 90.0 * MS as f64, 0.02, "p99.9");
    let slow = run
        .intervals
        .iter()
        .filter(|i| i.response_ns.unwrap().max > MS);
    let slow: Vec<u64> = slow.map(|i| i.elapsed_ns / MS).collect();
    assert_eq!(slow, [6_000], "only the second after 5 s");
    let second = &run.intervals[5];
    near(
        second.response_ns.unwrap().p99 as f64,
        90.0 * MS as f64,
        0.02,
        "p99 of the second",
    );
    let delayed = run.schedule.unwrap().delayed_by_cap_share;
    near(
        delayed,
        93.0 / 10_000.0,
        1e-9,
        "share that waited for a token",
    );
    assert!(run.tool.littles_law_error < 1e-12);
    // The service times show only the eight that were at the device: 0.08 % of all.
    assert!(service.p99 < 100_000 && service.p99_9 < 100_000);
    assert!(service.p99_99 > 93 * MS);
}

#[test]
fn rows_out_of_order_are_put_in_order_and_counted() {
    // Pairs swapped: 501 ms in all, as recorded.
    let rows = (0..502u64).map(|n| read((n ^ 1) * MS, 1, 9_000)).collect();
    let device = "sim:servers=8,service=10us";
    let run = play(rows, device, &timed(Timing::Recorded, "1", 8));
    assert_eq!(run.elapsed_ns, 501 * MS + 10_000);
    let schedule = run.schedule.unwrap();
    assert_eq!((schedule.out_of_order, schedule.out_of_place), (251, 0));
    assert_eq!(run.lag_ns.unwrap().max, 0);
}

#[test]
fn what_is_left_out_leaves_its_gap() {
    let rows: Vec<Row> = (0..4_000u64)
        .map(|n| Row {
            op: if n % 2 == 0 { Op::Write } else { Op::Read },
            ..read(n * MS, 1, 9_000)
        })
        .collect();
    let options = |change: &dyn Fn(&mut Options)| {
        let mut options = Options::new(TargetSpec::Sim("service=10us".parse().unwrap()));
        change(&mut options);
        options
    };
    let run = |options| {
        let stop = AtomicBool::new(false);
        let source = Rows::new(rows.clone());
        let mut replay = Replay::prepare(source, options, &stop, &mut |_| {}).unwrap();
        let run = timed(Timing::Recorded, "1", 8);
        replay.run(&run, &stop, &mut |_| {}).unwrap()
    };
    let skipping = run(options(&|o| o.write_policy = WritePolicy::SkipWrites));
    // From the read at 1 ms to the one at 3,999 ms.
    assert_eq!(
        (skipping.requests, skipping.elapsed_ns),
        (2_000, 3_998 * MS + 10_000)
    );
    let only = run(options(&|o| o.only = vec![Op::Write]));
    assert_eq!(
        (only.requests, only.elapsed_ns),
        (2_000, 3_998 * MS + 10_000)
    );
    assert_eq!(only.skipped[0].reason, "it was not asked for (--only)");
    let part = run(options(&|o| {
        o.only = vec![Op::Read];
        o.from = Some(Duration::from_millis(1_000));
        o.to = Some(Duration::from_millis(2_000));
    }));
    assert_eq!((part.requests, part.elapsed_ns), (500, 998 * MS + 10_000));
    assert_eq!(part.skipped.iter().map(|s| s.requests).sum::<u64>(), 3_500);
    for run in [skipping, only, part] {
        assert!(run.valid, "{:?}", run.reasons);
        assert_eq!(run.lag_ns.unwrap().max, 0);
    }
}

/// Three submitters on a device of 1 ms: one at a time with 2 ms of thinking; two at a time with
/// 1 ms of thinking each; one that begins after 500 ms, without thinking.
fn known_chains() -> Vec<Row> {
    let mut rows: Vec<Row> = (0..1_000).map(|n| read(n * 3 * MS, 1, MS)).collect();
    for n in 0..1_000 {
        rows.push(read(n * 2 * MS, 2, MS));
        rows.push(read(n * 2 * MS + MS / 2, 2, MS));
    }
    rows.extend((0..1_500).map(|n| read(500 * MS + n * MS, 3, MS)));
    rows.sort_by_key(|row| row.time_ns);
    rows
}

#[test]
fn a_dependent_replay_stretches_and_shrinks_with_the_device() {
    // Servers enough for all, so that a chain of n takes n services and n - 1 thoughts.
    for (service_us, speed, expected_ms) in [
        // 1,000 x 1 + 999 x 2; 1,000 + 999 (from 0.5); 500 + 1,500.
        (1_000, "1", 2_998.0),
        // 1,000 x 0.5 + 999 x 2.
        (500, "1", 2_498.0),
        // 1,000 x 2 + 999 x 2; of the others 500 + 1,500 x 2.
        (2_000, "1", 3_998.0),
        // Thinking takes half as long: 1,000 x 1 + 999 x 1.
        (1_000, "2", 1_999.0),
    ] {
        let device = format!("sim:servers=16,service={service_us}us");
        let run = play(
            known_chains(),
            &device,
            &timed(Timing::Dependent, speed, 16),
        );
        let elapsed_ms = run.elapsed_ns as f64 / MS as f64;
        near(elapsed_ms, expected_ms, 1e-9, &device);
        assert_eq!(run.loop_kind, result::LoopKind::Dependent);
        assert_eq!((run.requests, run.lag_ns.unwrap().max), (4_500, 0));
        // All but the first of each chain.
        let share = run.schedule.unwrap().dependent_share;
        near(share, 4_496.0 / 4_500.0, 1e-9, "dependent share");
        assert!(run.valid, "{:?}", run.reasons);
    }
}

#[test]
fn a_slow_stream_does_not_hold_up_the_others() {
    // One submitter that waits for a device 100 times as slow as recorded, and one that does not
    // wait at all: its requests overlap.
    let mut rows: Vec<Row> = (0..100).map(|n| read(n * 10 * MS, 1, 9 * MS)).collect();
    rows.extend((0..1_000).map(|n| read(n * MS, 2, 2_000 * MS)));
    rows.sort_by_key(|row| row.time_ns);
    let run = play(
        rows,
        "sim:servers=4096,service=900ms",
        &timed(Timing::Dependent, "1", 4_096),
    );
    // 100 services and 99 thoughts of a millisecond.
    assert_eq!(run.elapsed_ns, 100 * 900 * MS + 99 * MS);
    assert_eq!(run.lag_ns.unwrap().max, 0);
    // 999 ms and the service: by then the second submitter is through.
    let done: u64 = run.intervals[..2].iter().map(|i| i.requests).sum();
    assert_eq!(done, 1_000 + 2);
}

#[test]
fn passes_of_a_timed_replay_follow_each_other() {
    let rows = (0..100).map(|n| read(n * MS, 1, MS / 2)).collect();
    let options = RunOptions {
        repeat_for: Some(Duration::from_secs(1)),
        ..timed(Timing::Recorded, "1", 8)
    };
    let run = play(rows, "sim:servers=8,service=10us", &options);
    // A pass is 100 ms with the gap behind it; the eleventh begins when the time is up.
    assert_eq!((run.requests, run.passes), (1_000, 10));
    assert_eq!(run.lag_ns.unwrap().max, 0);
}
