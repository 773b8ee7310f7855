use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use iotape_formats::{DeviceIndex, Flags};

use super::*;
use crate::options::{Arrangement, DeviceTarget, MappingMode, TargetSpec};
use crate::result::{LoopKind, Run, TargetKind, WriteMode};
use crate::source::Row;
use crate::source::testing::Rows;
#[cfg(target_os = "linux")]
use crate::testing::LoopDevice;

const PAGE: u64 = 4096;

fn row(op: Op, flags: Flags, page: u64, pages: u64) -> Row {
    Row {
        op,
        flags,
        offset_bytes: page * PAGE,
        length_bytes: pages * PAGE,
        latency_ns: Some(100_000 + page),
        ..Row::default()
    }
}

fn read(page: u64, pages: u64) -> Row {
    row(Op::Read, Flags::NONE, page, pages)
}

fn flush() -> Row {
    row(Op::Flush, Flags::NONE, 0, 0)
}

/// 2,500 rows: 1,500 reads of one or two pages, 500 writes of a page (a third with FUA, a third
/// with PREFLUSH), 500 flushes.
fn mixed() -> Vec<Row> {
    let flags = [Flags::NONE, Flags::FUA, Flags::PREFLUSH];
    (0..2_500u64)
        .map(|n| match n % 5 {
            0..3 => read(n % 200, 1 + n % 2),
            3 => row(Op::Write, flags[(n / 5 % 3) as usize], n % 200, 1),
            _ => flush(),
        })
        .collect()
}

/// A file of pages, each full of its number.
fn file(dir: &Path, pages: u64) -> PathBuf {
    let path = dir.join("target");
    let content: Vec<u8> = (0..pages * PAGE).map(|at| (at / PAGE) as u8).collect();
    fs::write(&path, content).unwrap();
    path
}

fn on(path: &Path, overwrite: bool) -> Options {
    let mut options = Options::new(TargetSpec::Path(path.to_owned()));
    if overwrite {
        options.write_policy = WritePolicy::Overwrite(vec![path.to_owned()]);
    }
    options
}

fn prepare(rows: Vec<Row>, options: Options) -> Result<Replay<Rows>, ReplayError> {
    Replay::prepare(
        Rows::new(rows),
        options,
        &AtomicBool::new(false),
        &mut |_| {},
    )
}

fn play(replay: &mut Replay<Rows>, options: &RunOptions) -> Run {
    replay
        .run(options, &AtomicBool::new(false), &mut |_| {})
        .unwrap()
}

fn light() -> RunOptions {
    RunOptions::new("test", Profile::light())
}

#[test]
fn every_request_is_replayed_once_by_each_engine() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), 256);
    for choice in [EngineChoice::Auto, EngineChoice::Threads] {
        let options = Options {
            engine: choice,
            ..on(&path, true)
        };
        let mut replay = prepare(mixed(), options).unwrap();
        for depth in [1, 8, 48] {
            let run = play(&mut replay, &RunOptions::new("test", Profile::depth(depth)));
            let count = |op: &str| (run.by_op[op].requests, run.by_op[op].bytes);
            assert_eq!(run.errors, []);
            assert_eq!(run.requests, 2_500);
            // n % 5 of 0, 1, 2 by even and odd tens: 750 of one page and 750 of two.
            assert_eq!(count("read"), (1_500, 2_250 * PAGE));
            assert_eq!(count("write"), (500, 500 * PAGE));
            assert_eq!(count("flush"), (500, 0));
            assert_eq!(run.bytes, 2_750 * PAGE);
            assert_eq!(
                (run.passes, run.depth_cap, run.write_mode),
                (1, depth, WriteMode::Overwrite)
            );
            assert_eq!(run.loop_kind, LoopKind::Closed);
            assert!(run.outstanding.max <= depth && run.outstanding.max > 0);
            assert!(run.outstanding.mean <= f64::from(depth));
            assert_eq!(run.service_ns.unwrap().count, 2_500);
            assert_eq!(run.response_ns, run.service_ns);
            assert_eq!(run.recorded_ns.unwrap().count, 2_500);
            assert_eq!(run.intervals.iter().map(|i| i.requests).sum::<u64>(), 2_500);
            assert!(
                run.tool.littles_law_error < 1e-9,
                "{}",
                run.tool.littles_law_error
            );
            let rate = run.bytes as f64 / 1e6 / (run.elapsed_ns as f64 / 1e9);
            assert!((run.throughput_mb_s / rate - 1.0).abs() < 1e-9);
            let names: Vec<&String> = run.histograms.keys().collect();
            assert_eq!(names, ["all", "flush", "read", "write"]);
            assert!(
                run.notes.iter().any(|note| note.starts_with("short:")),
                "{:?}",
                run.notes
            );
        }
    }
}

#[test]
fn the_null_target_does_nothing_and_says_so() {
    let mut replay = prepare(mixed(), Options::new(TargetSpec::Null)).unwrap();
    let run = play(&mut replay, &light());
    assert_eq!((run.engine.as_str(), run.requests), ("null", 2_500));
    assert_eq!(run.targets[0].kind, TargetKind::Null);
    assert!(run.valid, "{:?}", run.reasons);
    assert!(run.notes[0].starts_with("null target"), "{:?}", run.notes);
}

#[test]
fn skipping_writes_opens_read_only_and_counts_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), 256);
    let before = fs::read(&path).unwrap();
    let mut permissions = fs::metadata(&path).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&path, permissions).unwrap();
    let mut rows = mixed();
    rows.push(row(Op::Discard, Flags::NONE, 0, 10));
    rows.push(row(Op::WriteZeroes, Flags::NONE, 0, 10));
    let options = Options {
        write_policy: WritePolicy::SkipWrites,
        ..on(&path, false)
    };
    let run = play(&mut prepare(rows, options).unwrap(), &light());
    // Windows flushes only what is open for writing.
    let flushed = if cfg!(windows) { 0 } else { 500 };
    assert_eq!(
        (run.requests, run.write_mode),
        (1_500 + flushed, WriteMode::SkipWrites)
    );
    let skipped: Vec<_> = run
        .skipped
        .iter()
        .map(|s| (s.op.as_str(), s.requests, s.bytes))
        .filter(|skipped| *skipped != ("flush", 500, 0))
        .collect();
    assert_eq!(
        skipped,
        [
            ("write", 500, 500 * PAGE),
            ("discard", 1, 10 * PAGE),
            ("write_zeroes", 1, 10 * PAGE)
        ]
    );
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn what_cannot_be_replayed_is_skipped_counted_and_noted() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), 256);
    let rows = vec![
        read(0, 1),
        row(Op::ZoneReset, Flags::NONE, 0, 1),
        row(Op::Other, Flags::NONE, 0, 0),
    ];
    let run = play(&mut prepare(rows, on(&path, false)).unwrap(), &light());
    assert_eq!(run.requests, 1);
    assert_eq!(run.skipped.len(), 2);
    assert!(
        run.notes
            .iter()
            .any(|note| note.starts_with("left out: 1 zone_reset")),
        "{:?}",
        run.notes
    );
    let nothing = prepare(vec![row(Op::Other, Flags::NONE, 0, 0)], on(&path, false));
    assert!(matches!(
        nothing,
        Err(ReplayError::NothingToReplay { requests: 1, .. })
    ));
}

#[test]
fn a_tape_larger_than_the_target_needs_wrapping() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), 10);
    let rows = vec![read(9, 1), read(9, 2), read(10, 1), read(25, 1)];
    let error = prepare(rows.clone(), on(&path, false)).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("40960 bytes") && text.contains("106496"),
        "{text}"
    );
    assert!(text.contains("--map wrap"), "{text}");

    let options = Options {
        mapping: MappingMode::Wrap,
        ..on(&path, false)
    };
    let run = play(&mut prepare(rows, options.clone()).unwrap(), &light());
    assert_eq!((run.requests, run.errors.len()), (4, 0));
    assert!((run.mapping.remapped_share - 0.75).abs() < 1e-12);

    let longer = prepare(vec![read(0, 11)], options).unwrap_err();
    assert!(matches!(
        longer,
        ReplayError::RequestLongerThanTarget {
            request_bytes: 45_056,
            ..
        }
    ));
}

#[test]
fn devices_of_a_tape_share_a_target_side_by_side() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), 258);
    let second = |page| Row {
        device: DeviceIndex(1),
        ..read(page, 1)
    };
    let run = play(
        &mut prepare(vec![read(0, 1), second(0), second(1)], on(&path, false)).unwrap(),
        &light(),
    );
    assert_eq!((run.requests, run.errors.len()), (3, 0));
    assert!((run.mapping.remapped_share - 2.0 / 3.0).abs() < 1e-12);
    assert!(
        run.notes.iter().any(|note| note.contains("2 devices")),
        "{:?}",
        run.notes
    );
    let beyond = prepare(vec![read(0, 1), second(2)], on(&path, false));
    assert!(
        matches!(beyond, Err(ReplayError::TooSmall { tape_bytes, .. }) if tape_bytes == 259 * PAGE)
    );
}

#[cfg(target_os = "linux")]
#[test]
fn the_first_request_that_is_not_aligned_is_named() {
    let Some(device) = LoopDevice::of_size(1 << 20) else {
        return;
    };
    let mut rows = vec![read(0, 1); 1_500];
    rows[1_200].offset_bytes = 1_024;
    rows[1_200].length_bytes = 1_000;
    rows[1_300].offset_bytes = 1;
    let text = prepare(rows, on(device.path(), false))
        .unwrap_err()
        .to_string();
    assert!(text.contains("sectors have 512 bytes"), "{text}");
    assert!(
        text.contains("request 1200 (read of 1000 bytes at 1024)"),
        "{text}"
    );
    // Not aligned, but not replayed either.
    let unaligned_write = Row {
        offset_bytes: 1,
        ..row(Op::Write, Flags::NONE, 0, 1)
    };
    let options = Options {
        write_policy: WritePolicy::SkipWrites,
        ..on(device.path(), false)
    };
    assert!(prepare(vec![read(0, 1), unaligned_write], options).is_ok());
}

#[test]
fn overwriting_must_name_the_target() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), 256);
    assert!(matches!(
        prepare(mixed(), on(&path, false)),
        Err(ReplayError::OverwriteNeeded { writes: 500, .. })
    ));
    let other = PathBuf::from("/dev/other");
    let options = Options {
        write_policy: WritePolicy::Overwrite(vec![other]),
        ..on(&path, false)
    };
    assert!(matches!(
        prepare(mixed(), options),
        Err(ReplayError::OverwriteNamesNoTarget { .. })
    ));
    let none = Options {
        write_policy: WritePolicy::Overwrite(vec![]),
        ..on(&path, false)
    };
    assert!(matches!(
        prepare(mixed(), none),
        Err(ReplayError::OverwriteNeeded { .. })
    ));
}

#[test]
fn buffers_beyond_the_limit_are_refused_with_both_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), 256);
    let options = Options {
        buffer_limit_bytes: 1 << 20,
        ..on(&path, false)
    };
    let mut replay = prepare(vec![read(0, 200)], options).unwrap();
    let error = replay
        .run(&light(), &AtomicBool::new(false), &mut |_| {})
        .unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("819200 bytes") && text.contains("depth 8"),
        "{text}"
    );
    let zero = RunOptions::new("test", Profile::depth(0));
    assert!(matches!(
        replay.run(&zero, &AtomicBool::new(false), &mut |_| {}),
        Err(ReplayError::Depth { depth: 0, .. })
    ));
}

#[test]
fn a_scratch_file_is_wrapped_onto_whatever_the_mapping() {
    let dir = tempfile::tempdir().unwrap();
    let directory = Some(dir.path().to_owned());
    let options = Options::new(TargetSpec::Scratch { directory });
    let mut replay = prepare(mixed(), options).unwrap();
    for profile in [Profile::light(), Profile::heavy()] {
        let run = play(&mut replay, &RunOptions::new("scratch", profile));
        assert_eq!((run.requests, run.errors.len()), (2_500, 0));
        assert_eq!(run.targets[0].kind, TargetKind::Scratch);
        assert_eq!(run.mapping.mode, MappingMode::Wrap);
        assert_eq!(run.write_mode, WriteMode::Overwrite);
    }
}

#[test]
fn repeating_goes_on_until_the_time_is_up() {
    let mut replay = prepare(mixed(), Options::new(TargetSpec::Null)).unwrap();
    let options = RunOptions {
        repeat_for: Some(Duration::from_millis(300)),
        warmup: Duration::from_millis(100),
        interval: Duration::from_millis(50),
        ..light()
    };
    let run = play(&mut replay, &options);
    assert!(run.passes > 1);
    assert!(run.warmup_ns >= 100_000_000);
    assert!(run.elapsed_ns <= 400_000_000, "{}", run.elapsed_ns);
    assert!(run.intervals.len() >= 5, "{}", run.intervals.len());
    assert_eq!(
        run.intervals.iter().map(|i| i.requests).sum::<u64>(),
        run.requests
    );
    assert_eq!(run.service_ns.unwrap().count, run.requests);
    assert_eq!(run.recorded_ns.unwrap().count, run.requests);
}

#[test]
fn a_tape_that_ends_within_the_warm_up_measures_nothing() {
    let mut replay = prepare(mixed(), Options::new(TargetSpec::Null)).unwrap();
    let run = play(
        &mut replay,
        &RunOptions {
            warmup: Duration::from_secs(60),
            ..light()
        },
    );
    assert_eq!((run.requests, run.service_ns), (0, None));
    assert!(
        run.reasons.iter().any(|reason| reason.contains("warm-up")),
        "{:?}",
        run.reasons
    );
}

#[test]
fn a_stop_gives_what_was_measured_so_far() {
    let mut replay = prepare(mixed(), Options::new(TargetSpec::Null)).unwrap();
    let stop = AtomicBool::new(false);
    let options = RunOptions {
        repeat_for: Some(Duration::from_secs(3_600)),
        ..light()
    };
    let run = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        replay.run(&options, &stop, &mut |_| {}).unwrap()
    });
    assert!(run.requests > 0);
    assert!(
        run.reasons
            .iter()
            .any(|reason| reason.contains("interrupted")),
        "{:?}",
        run.reasons
    );
}

#[test]
fn what_is_wrong_with_the_tape_makes_the_run_invalid() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), 256);
    let mut rows = Rows::new(mixed());
    rows.broken_at = Some(1_500);
    rows.damage = Some("the tape is damaged: 1 records unusable".to_owned());
    rows.finished = false;
    rows.summary_mut().counters.lost_events = 17;
    let stop = AtomicBool::new(false);
    let mut replay = Replay::prepare(rows, on(&path, true), &stop, &mut |_| {}).unwrap();
    let run = replay.run(&light(), &stop, &mut |_| {}).unwrap();
    // Blocks of a thousand: the second is not read.
    assert_eq!(run.requests, 1_000);
    assert!(!run.valid);
    for part in ["17 events were lost", "1 records unusable", "byte 12345"] {
        assert!(
            run.reasons.iter().any(|reason| reason.contains(part)),
            "{part}: {:?}",
            run.reasons
        );
    }
    assert!(
        run.notes.iter().any(|note| note.contains("no footer")),
        "{:?}",
        run.notes
    );
}

#[test]
fn a_target_that_shrinks_gives_counted_errors_and_an_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), 4_096);
    let rows: Vec<Row> = (0..4_000).map(|n| read(n, 1)).collect();
    for engine in [EngineChoice::Auto, EngineChoice::Threads] {
        let mut replay = prepare(
            rows.clone(),
            Options {
                engine,
                ..on(&path, false)
            },
        )
        .unwrap();
        fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(100 * PAGE)
            .unwrap();
        let run = play(&mut replay, &light());
        fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(4_096 * PAGE)
            .unwrap();
        let failed: u64 = run.errors.iter().map(|error| error.count).sum();
        // Given up after a thousand in a row; a few more fail before the last one that succeeds.
        assert!((1_000..3_900).contains(&failed), "{failed}");
        assert_eq!(run.errors[0].op, "read");
        assert_eq!(run.by_op["read"].bytes, 100 * PAGE);
        assert!(
            run.reasons.iter().any(|reason| reason.contains("given up")),
            "{:?}",
            run.reasons
        );
    }
}

fn two_files(dir: &Path) -> Vec<PathBuf> {
    ["first", "second"]
        .iter()
        .map(|name| {
            let path = dir.join(name);
            fs::write(&path, vec![0; 64 * PAGE as usize]).unwrap();
            path
        })
        .collect()
}

fn on_both(paths: &[PathBuf], arrangement: Arrangement) -> Options {
    Options {
        targets: paths.iter().cloned().map(TargetSpec::Path).collect(),
        arrangement,
        write_policy: WritePolicy::Overwrite(paths.to_vec()),
        ..Options::new(TargetSpec::Null)
    }
}

#[test]
fn stripes_share_a_tape_between_targets() {
    let dir = tempfile::tempdir().unwrap();
    let paths = two_files(dir.path());
    let stripe_bytes = 2 * PAGE;
    // Pages 0 to 127 in stripes of two: a write of page n, then one across stripes, and a flush.
    let mut rows: Vec<Row> = (0..128)
        .map(|n| row(Op::Write, Flags::NONE, n, 1))
        .collect();
    rows.push(row(Op::Write, Flags::PREFLUSH, 3, 6));
    rows.push(flush());
    for engine in [EngineChoice::Auto, EngineChoice::Threads] {
        let options = Options {
            engine,
            ..on_both(&paths, Arrangement::Striped { stripe_bytes })
        };
        let mut replay = prepare(rows.clone(), options).unwrap();
        // At depth 1 the parts run in turn.
        for depth in [1, 8] {
            let run = play(&mut replay, &RunOptions::new("test", Profile::depth(depth)));
            assert_eq!((run.requests, run.errors.len()), (130, 0));
            assert_eq!(run.bytes, (128 + 6) * PAGE);
            assert!(run.outstanding.max <= depth);
            assert!(run.tool.littles_law_error < 1e-9);
            // 64 pages each at 0 to 63; two flushes each; page 3 and 8 are on the second and the
            // first, 4 5 on the first at 2 3, 6 7 on the second at 2 3.
            let figures: Vec<_> = run
                .targets
                .iter()
                .map(|t| (t.operations, t.bytes / PAGE, t.offset_sum / PAGE))
                .collect();
            let pages = 63 * 64 / 2;
            assert_eq!(
                figures,
                [
                    (64 + 2 + 2, 64 + 3, pages + 2 + 4),
                    (64 + 2 + 2, 64 + 3, pages + 1 + 2)
                ]
            );
        }
    }
    for path in paths {
        let content = fs::read(path).unwrap();
        assert!(
            content
                .chunks(512)
                .all(|sector| sector.iter().any(|&byte| byte != 0)),
            "a sector was not written"
        );
    }
}

#[test]
fn each_device_of_a_tape_goes_where_it_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let paths = two_files(dir.path());
    let on_second = |page| Row {
        device: DeviceIndex(1),
        ..row(Op::Write, Flags::NONE, page, 1)
    };
    let rows = vec![
        row(Op::Write, Flags::NONE, 5, 1),
        on_second(7),
        on_second(9),
        Row {
            device: DeviceIndex(1),
            ..flush()
        },
    ];
    let device = |device: &str, target| DeviceTarget {
        device: device.to_owned(),
        target,
    };
    let swapped = Arrangement::Devices(vec![device("0", 1), device("sd1", 0)]);
    let run = play(
        &mut prepare(rows.clone(), on_both(&paths, swapped)).unwrap(),
        &light(),
    );
    let figures: Vec<_> = run
        .targets
        .iter()
        .map(|t| (t.operations, t.bytes / PAGE, t.offset_sum / PAGE))
        .collect();
    assert_eq!(figures, [(3, 2, 16), (1, 1, 5)]);
    assert_eq!(run.mapping.remapped_share, 0.0);
    assert_eq!(
        run.notes.iter().filter(|n| n.contains("devices")).count(),
        0
    );

    let refusal = |devices: Vec<DeviceTarget>| {
        let options = on_both(&paths, Arrangement::Devices(devices));
        prepare(rows.clone(), options).unwrap_err()
    };
    assert!(matches!(
        refusal(vec![device("0", 0)]),
        ReplayError::DeviceWithoutTarget {
            device: 1,
            requests: 3
        }
    ));
    assert!(matches!(
        refusal(vec![device("0", 0), device("0", 1)]),
        ReplayError::DeviceTwice { .. }
    ));
    let text = refusal(vec![device("sdq", 0)]).to_string();
    assert!(
        text.contains("no such device; it has 0 (sd0), 1 (sd1)"),
        "{text}"
    );
}

#[test]
fn targets_must_suit_their_arrangement() {
    let dir = tempfile::tempdir().unwrap();
    let paths = two_files(dir.path());
    let striped = |stripe_bytes| Arrangement::Striped { stripe_bytes };
    let error = |paths: &[PathBuf], arrangement: Arrangement| {
        prepare(vec![read(0, 1)], on_both(paths, arrangement))
            .unwrap_err()
            .to_string()
    };
    let said = error(&paths, Arrangement::Single);
    assert!(
        said.starts_with("2 targets: expected one") && said.contains("--stripe"),
        "{said}"
    );
    let said = error(&paths[..1], striped(4096));
    assert!(
        said.starts_with("1 targets: expected at least two"),
        "{said}"
    );
    for wrong in [0, 512, 4097, 2 << 30] {
        let said = error(&paths, striped(wrong));
        assert!(
            said.starts_with(&format!("stripe of {wrong} bytes")),
            "{said}"
        );
    }
    let twice = [paths[0].clone(), dir.path().join("./first")];
    let said = error(&twice, striped(4096));
    assert!(said.contains("are the same target"), "{said}");
    // One named, the other not.
    let options = Options {
        write_policy: WritePolicy::Overwrite(paths[..1].to_vec()),
        ..on_both(&paths, striped(4096))
    };
    assert!(matches!(
        prepare(mixed(), options),
        Err(ReplayError::OverwriteNeeded { path, .. }) if path == paths[1]
    ));
}

#[cfg(target_os = "linux")]
#[test]
fn requests_off_the_sectors_are_widened_on_request() {
    let Some(device) = LoopDevice::of_size(1 << 20) else {
        return;
    };
    let bytes = |offset_bytes, length_bytes| Row {
        offset_bytes,
        length_bytes,
        ..read(0, 1)
    };
    // Sectors of 512: one before, one before and one behind, none, the last byte of the device.
    let rows = vec![
        bytes(1_000, 24),
        bytes(511, 2),
        bytes(4_096, 512),
        bytes((1 << 20) - 1, 1),
    ];
    let options = Options {
        align: true,
        ..on(device.path(), false)
    };
    let run = play(&mut prepare(rows, options).unwrap(), &light());
    assert_eq!((run.requests, run.errors.len()), (4, 0));
    assert!(run.valid, "{:?}", run.reasons);
    assert_eq!(run.bytes, 512 + 1_024 + 512 + 512);
    assert_eq!(run.mapping.widened_requests, 3);
    assert_eq!(run.mapping.widened_bytes, 488 + 1_022 + 511);
    assert_eq!(run.targets[0].offset_sum, 512 + 4_096 + (1 << 20) - 512);
    assert!(
        run.notes.iter().any(|note| note.contains("widened")),
        "{:?}",
        run.notes
    );
}

#[test]
fn a_tape_is_shifted_scaled_or_scattered_onto_a_target() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), 1_024);
    // 2,048 pages; the target has 1,024, which are four regions of 1 MiB against eight.
    let rows: Vec<Row> = (0..2_048).map(|n| read(n, 1)).collect();
    let mapped = |mapping, rows: &[Row]| {
        let options = Options {
            mapping,
            map_offset_bytes: -(1_024 * PAGE.cast_signed()),
            ..on(&path, false)
        };
        prepare(rows.to_vec(), options).map(|mut replay| play(&mut replay, &light()))
    };
    let pages = 1_023 * 1_024 / 2;
    for mode in [MappingMode::Scale, MappingMode::Hash, MappingMode::Wrap] {
        let run = mapped(mode, &rows).unwrap();
        assert_eq!((run.requests, run.errors.len()), (2_048, 0), "{mode}");
        // Each page of the target twice.
        assert_eq!(run.targets[0].offset_sum / PAGE, 2 * pages, "{mode}");
    }
    let run = mapped(MappingMode::Offset, &rows[1_024..]).unwrap();
    assert_eq!(run.targets[0].offset_sum / PAGE, pages);
    assert_eq!(run.mapping.offset_bytes, Some(-4 << 20));
    let before = mapped(MappingMode::Offset, &rows[1_000..]).unwrap_err();
    assert!(
        matches!(before, ReplayError::BeforeStart { first_bytes, .. } if first_bytes == -24 * 4_096),
        "{before}"
    );
    let text = mapped(MappingMode::Identity, &rows)
        .unwrap_err()
        .to_string();
    for option in ["--map wrap", "--map scale", "--map hash", "--map offset"] {
        assert!(text.contains(option), "{text}");
    }
}

#[test]
fn what_is_written_is_checked_and_a_corrupted_byte_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), 256);
    for engine in [EngineChoice::Auto, EngineChoice::Threads] {
        let options = Options {
            verify: true,
            engine,
            ..on(&path, true)
        };
        // Overlaps in plenty: reads of two pages among writes of a page.
        let mut replay = prepare(mixed(), options).unwrap();
        let run = play(&mut replay, &light());
        let verified = run.verified.clone().unwrap();
        assert_eq!(
            (
                verified.wrong,
                verified.untracked_bytes,
                verified.unread_bytes
            ),
            (0, 0, 0)
        );
        // n % 5 == 3 and n % 200: 40 pages are written, and all of them read back at the end.
        assert!(verified.bytes >= 40 * PAGE, "{}", verified.bytes);
        assert_eq!((run.payload.kind.as_str(), run.errors.len()), ("tagged", 0));
        assert_eq!(run.outstanding.cap, 8);
    }
}

#[test]
fn corruption_between_write_and_read_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), 256);
    let at = |time_ns, row: Row| Row { time_ns, ..row };
    let rows = vec![
        at(0, row(Op::Write, Flags::NONE, 5, 4)),
        at(1_500_000_000, read(7, 1)),
    ];
    let options = Options {
        verify: true,
        ..on(&path, true)
    };
    let mut replay = prepare(rows, options).unwrap();
    let timed = RunOptions {
        timing: crate::options::Timing::Recorded,
        ..light()
    };
    let run = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            let mut file = fs::File::options()
                .read(true)
                .write(true)
                .open(&path)
                .unwrap();
            let place = SeekFrom::Start(7 * PAGE + 1_234);
            let mut byte = [0];
            file.seek(place).unwrap();
            file.read_exact(&mut byte).unwrap();
            byte[0] ^= 0x10;
            file.seek(place).unwrap();
            file.write_all(&byte).unwrap();
            file.sync_all().unwrap();
        });
        play(&mut replay, &timed)
    });
    let verified = run.verified.unwrap();
    // By the tape's read, and once more at the end.
    assert_eq!(verified.wrong, 2);
    assert_eq!(verified.bytes, 5 * PAGE);
    let named = format!("{}: byte {} is 0x", path.display(), 7 * PAGE + 1_234);
    assert!(verified.first_wrong.unwrap().starts_with(&named));
    let told = |reason: &String| reason.contains("not what was written");
    assert!(
        !run.valid && run.reasons.iter().any(told),
        "{:?}",
        run.reasons
    );
}

#[test]
fn overlaps_are_counted_and_kept_in_order_on_request() {
    let rows: Vec<Row> = (0..1_000)
        .map(|n| match n % 2 {
            0 => row(Op::Write, Flags::NONE, 3, 1),
            _ => read(3 + n % 3, 1),
        })
        .collect();
    let run = |order_overlaps| {
        let options = Options {
            order_overlaps,
            ..Options::new(TargetSpec::Sim("servers=8,service=1ms".parse().unwrap()))
        };
        play(&mut prepare(rows.clone(), options).unwrap(), &light())
    };
    // Eight start and end together. All four writes are of page 3, so that three of them overlap,
    // as do the reads of it: 3, 9, … 999.
    let free = run(false);
    assert_eq!(
        (free.outstanding.max, free.overlapping),
        (8, Some(125 * 3 + 167))
    );
    let ordered = run(true);
    // A write waits for the one before it: a millisecond each.
    assert!(ordered.elapsed_ns >= 500_000_000, "{}", ordered.elapsed_ns);
    assert!(
        ordered.overlapping.unwrap() >= 499,
        "{:?}",
        ordered.overlapping
    );
    let reads = play(
        &mut prepare(vec![read(1, 1); 10], Options::new(TargetSpec::Null)).unwrap(),
        &light(),
    );
    assert_eq!(reads.overlapping, None);
}

#[test]
fn the_payload_is_as_compressible_as_asked() {
    let dir = tempfile::tempdir().unwrap();
    let zeros = |compressible, duplicate| {
        let path = file(dir.path(), 256);
        let rows: Vec<Row> = (0..256)
            .map(|n| row(Op::Write, Flags::NONE, n, 1))
            .collect();
        let options = Options {
            compressible,
            duplicate,
            ..on(&path, true)
        };
        let run = play(&mut prepare(rows, options).unwrap(), &light());
        assert_eq!(run.payload.compressible_percent, compressible);
        let content = fs::read(path).unwrap();
        let count = content.iter().filter(|byte| **byte == 0).count();
        let mut pages: Vec<&[u8]> = content.chunks(PAGE as usize).collect();
        pages.sort_unstable();
        pages.dedup();
        (count as f64 / content.len() as f64, pages.len())
    };
    // A random byte is zero once in 256.
    for (asked, least, most) in [(0, 0.003, 0.006), (50, 0.49, 0.52), (90, 0.89, 0.92)] {
        let (share, pages) = zeros(asked, 0);
        assert!((least..most).contains(&share), "{asked}: {share}");
        assert!(pages > 200, "{pages}");
    }
    // Half of 256 are the same, with a deviation of 8.
    let (_, pages) = zeros(0, 50);
    assert!((97..=161).contains(&pages), "{pages}");
    assert_eq!(zeros(0, 100).1, 1);
}

#[test]
fn content_that_cannot_be_is_refused() {
    let error = |options| prepare(mixed(), options).unwrap_err().to_string();
    let null = || Options::new(TargetSpec::Null);
    let said = error(Options {
        verify: true,
        ..null()
    });
    assert!(
        said.starts_with("--verify: this target stores nothing"),
        "{said}"
    );
    let said = error(Options {
        compressible: 101,
        ..null()
    });
    assert!(said.starts_with("--compressible"), "{said}");
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), 256);
    let said = error(Options {
        verify: true,
        duplicate: 1,
        ..on(&path, true)
    });
    assert!(said.contains("--duplicate"), "{said}");
}
