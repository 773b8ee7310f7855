//! Whole runs on simulated devices, of which every figure can be computed by hand.

use std::time::Duration;

use iotape_formats::{Flags, Op};

use super::*;
use crate::options::TargetSpec;
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
