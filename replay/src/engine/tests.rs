//! One test body for every engine.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::null::NullEngine;
use super::sim::SimEngine;
use super::threads::ThreadsEngine;
use super::{Action, Completion, Disk, Engine, Io, Medium, Unsplit, Wait};
use crate::sys::{self, Buffers, code};

#[cfg(target_os = "linux")]
use self::linux::{engines, open};
#[cfg(windows)]
use self::windows::{engines, open};

const DEPTH: u32 = 4;
const SECTOR: usize = 4096;
const SECTORS: usize = 64;
const PAYLOAD_SECTORS: usize = 8;

/// Buffers with a known payload, for a target of [`SECTORS`], each full of its own number.
fn medium(file: sys::File, block_device: bool) -> Medium {
    let mut buffers = Buffers::new(DEPTH as usize, 2 * SECTOR, PAYLOAD_SECTORS * SECTOR).unwrap();
    fastrand::Rng::with_seed(5).fill(buffers.payload_bytes());
    Medium {
        disks: Arc::new([disk(file, block_device)]),
        buffers: Arc::new(buffers),
    }
}

fn disk(file: sys::File, block_device: bool) -> Disk {
    Disk {
        file: Arc::new(file),
        block_device,
        unsplit: Unsplit::ANY,
    }
}

fn content() -> Vec<u8> {
    (0..SECTORS * SECTOR)
        .map(|at| (at / SECTOR) as u8)
        .collect()
}

fn file_medium() -> (tempfile::NamedTempFile, Medium) {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), content()).unwrap();
    let medium = medium(open(file.path(), true), false);
    (file, medium)
}

fn io(action: Action, sector: usize, sectors: usize) -> Io {
    Io {
        action,
        offset: (sector * SECTOR) as u64,
        length: (sectors * SECTOR) as u64,
        ..Io::default()
    }
}

/// Turns until `count` operations are done; their outcomes by slot.
fn complete(engine: &mut impl Engine, count: usize) -> Vec<Completion> {
    let mut done = Vec::new();
    while done.len() < count {
        engine.turn(Wait::Tick, &mut done).unwrap();
    }
    assert_eq!(done.len(), count, "{done:?}");
    done.sort_by_key(|completion| completion.slot);
    done
}

fn one(engine: &mut impl Engine, slot: u32, io: Io) -> i64 {
    engine.queue(slot, &io);
    let done = complete(engine, 1);
    assert_eq!(done[0].slot, slot);
    done[0].outcome
}

/// What every engine does, whether or not there is a target behind it.
fn completes_each_operation_once(engine: &mut impl Engine) {
    let mut done = Vec::new();
    engine.turn(Wait::No, &mut done).unwrap();
    engine.turn(Wait::Tick, &mut done).unwrap();
    assert_eq!(done, []);
    for round in 0..50 {
        for slot in 0..DEPTH {
            let sector = (round + slot as usize) % (SECTORS - 1);
            engine.queue(slot, &io(Action::Read, sector, 1 + slot as usize % 2));
        }
        let done = complete(engine, DEPTH as usize);
        let slots: Vec<u32> = done.iter().map(|completion| completion.slot).collect();
        assert_eq!(slots, [0, 1, 2, 3]);
        let outcomes: Vec<i64> = done.iter().map(|completion| completion.outcome).collect();
        assert_eq!(outcomes, [4096, 8192, 4096, 8192]);
    }
    let times: Vec<u64> = (0..10).map(|_| engine.now_ns()).collect();
    assert!(times.is_sorted());
    waits_as_long_as_told(engine);
}

/// A turn without anything to do is over at once when its time is past; otherwise not before it.
/// One that only looks finds what is done, sooner or later.
fn waits_as_long_as_told(engine: &mut impl Engine) {
    let mut done = Vec::new();
    let end_ns = engine.now_ns() + 3_000_000;
    engine.turn(Wait::Until(0), &mut done).unwrap();
    while engine.now_ns() < end_ns {
        engine.turn(Wait::Until(end_ns), &mut done).unwrap();
    }
    assert_eq!(done, []);
    engine.queue(0, &io(Action::Read, 1, 1));
    engine.turn(Wait::No, &mut done).unwrap();
    while done.is_empty() {
        let soon_ns = engine.now_ns() + 10_000;
        engine.turn(Wait::Until(soon_ns), &mut done).unwrap();
        engine.turn(Wait::No, &mut done).unwrap();
    }
    assert_eq!((done.len(), done[0].slot), (1, 0));
}

/// A turn that only looks finds completions, though nothing else enters the kernel.
fn finds_completions_by_looking(engine: &mut impl Engine) {
    let mut done = Vec::new();
    engine.queue(1, &io(Action::Read, 2, 1));
    let patience = Instant::now() + Duration::from_secs(60);
    while done.is_empty() {
        assert!(Instant::now() < patience, "the read was never seen to end");
        engine.turn(Wait::No, &mut done).unwrap();
    }
    assert_eq!(done[0].outcome, 4096);
}

/// What every engine with a target does.
fn performs_operations(engine: &mut impl Engine, medium: &Medium) {
    completes_each_operation_once(engine);
    finds_completions_by_looking(engine);
    let sector_of = |slot: u32| medium.buffers.copy_of_slot(slot, SECTOR);

    assert_eq!(one(engine, 2, io(Action::Read, 7, 1)), 4096);
    assert_eq!(sector_of(2), vec![7; SECTOR]);

    let mut payload = vec![0; PAYLOAD_SECTORS * SECTOR];
    fastrand::Rng::with_seed(5).fill(&mut payload);
    let kinds = [(false, false), (true, false), (false, true), (true, true)];
    for (number, (fua, preflush)) in kinds.into_iter().enumerate() {
        let from = (number + 1) * SECTOR;
        let write = Io {
            payload: from as u32,
            fua,
            preflush,
            ..io(Action::Write, 10 + number, 1)
        };
        assert_eq!(
            one(engine, 0, write),
            4096,
            "fua {fua}, preflush {preflush}"
        );
        assert_eq!(one(engine, 1, io(Action::Read, 10 + number, 1)), 4096);
        assert_eq!(sector_of(1), payload[from..from + SECTOR]);
    }
    assert_eq!(one(engine, 3, io(Action::Flush, 0, 0)), 0);
    for (action, sector) in [(Action::Discard, 20), (Action::WriteZeroes, 30)] {
        match one(engine, 3, io(action, sector, 2)) {
            0 => {
                assert_eq!(one(engine, 0, io(Action::Read, sector + 1, 1)), 4096);
                // What Windows discards in a file may keep its content.
                if action == Action::WriteZeroes || !cfg!(windows) {
                    assert_eq!(sector_of(0), vec![0; SECTOR]);
                }
                assert_eq!(one(engine, 0, io(Action::Read, sector + 2, 1)), 4096);
                assert_eq!(sector_of(0), vec![sector as u8 + 2; SECTOR]);
            }
            outcome => {
                assert_eq!(outcome, -i64::from(code::UNSUPPORTED));
                eprintln!("skipped: {action:?} is not supported by the temporary directory");
            }
        }
    }
}

/// How every engine with a target reports what fails.
fn reports_failures(engine: &mut impl Engine) {
    assert_eq!(one(engine, 0, io(Action::Read, SECTORS, 1)), 0);
    let efault = -i64::from(code::BAD_BUFFER);
    assert_eq!(one(engine, 0, io(Action::Read, 0, 3)), efault);
    let beyond_payload = Io {
        payload: (PAYLOAD_SECTORS * SECTOR) as u32,
        ..io(Action::Write, 0, 1)
    };
    assert_eq!(one(engine, 1, beyond_payload), efault);
    let preflushed = Io {
        preflush: true,
        ..beyond_payload
    };
    assert_eq!(one(engine, 1, preflushed), efault);
    let negative = Io {
        offset: u64::MAX - 4095,
        ..io(Action::Read, 0, 1)
    };
    assert_eq!(one(engine, 2, negative), -i64::from(code::INVALID));
    // And works on after all that.
    assert_eq!(one(engine, 2, io(Action::Read, 9, 1)), 4096);
}

/// Only what reads succeeds on a file that is open for reading.
fn is_refused_writes(engine: &mut impl Engine) {
    let ebadf = -i64::from(code::NOT_WRITABLE);
    for preflush in [false, true] {
        let write = Io {
            preflush,
            ..io(Action::Write, 0, 1)
        };
        assert_eq!(one(engine, 0, write), ebadf);
    }
    assert_eq!(one(engine, 0, io(Action::Discard, 0, 1)), ebadf);
    assert_eq!(one(engine, 0, io(Action::WriteZeroes, 0, 1)), ebadf);
    // Windows wants the right to write.
    let flushed = if cfg!(windows) { ebadf } else { 0 };
    assert_eq!(one(engine, 0, io(Action::Flush, 0, 0)), flushed);
    assert_eq!(one(engine, 0, io(Action::Read, 0, 1)), 4096);
}

fn whole_body<E: Engine>(make: impl Fn(Medium) -> Option<E>) {
    let (file, medium) = file_medium();
    let Some(mut engine) = make(medium.clone()) else {
        return;
    };
    performs_operations(&mut engine, &medium);
    reports_failures(&mut engine);

    let read_only = Medium {
        disks: Arc::new([disk(open(file.path(), false), false)]),
        ..medium
    };
    is_refused_writes(&mut make(read_only).unwrap());
}

#[test]
fn null_engine() {
    completes_each_operation_once(&mut NullEngine::default());
}

#[test]
fn simulated_engine() {
    let spec = "servers=2,service=1ms".parse().unwrap();
    completes_each_operation_once(&mut SimEngine::new(DEPTH, &spec));
}

#[test]
fn threads_engine() {
    whole_body(|medium| Some(ThreadsEngine::new(DEPTH, medium).unwrap()));
}

#[test]
fn system_engine_with_and_without_each_feature() {
    for make in engines() {
        whole_body(make);
    }
}

#[test]
fn an_engine_dropped_in_flight_leaves_nothing_behind_that_is_written_to() {
    let (_file, medium) = file_medium();
    let buffers = Arc::clone(&medium.buffers);
    for _ in 0..20 {
        for make in engines() {
            if let Some(mut engine) = make(medium.clone()) {
                start_and_leave(&mut engine);
            }
        }
        start_and_leave(&mut ThreadsEngine::new(DEPTH, medium.clone()).unwrap());
    }
    assert!(buffers.slot(0, 1).is_some());
}

fn start_and_leave(engine: &mut impl Engine) {
    for slot in 0..DEPTH {
        engine.queue(slot, &io(Action::Read, 1, 2));
    }
    engine.turn(Wait::No, &mut Vec::new()).unwrap();
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs::File;

    use super::*;
    use crate::engine::uring::UringEngine;
    use crate::sys::{RingError, RingOptions};
    use crate::testing::LoopDevice;

    pub fn open(path: &Path, write: bool) -> sys::File {
        let file = File::options().read(true).write(write).open(path);
        file.unwrap().into()
    }

    fn uring(medium: Medium, options: RingOptions) -> Option<UringEngine> {
        match UringEngine::new(DEPTH, medium, options) {
            Ok(engine) => Some(engine),
            Err(RingError::Unavailable(why)) => {
                eprintln!("skipped: {why}");
                None
            }
            Err(RingError::Io(error)) => panic!("{error}"),
        }
    }

    /// The newest kernel's features, each of them taken away, and none at all.
    fn option_sets() -> [RingOptions; 6] {
        let all = RingOptions::ALL;
        [
            all,
            RingOptions {
                task_work: false,
                ..all
            },
            RingOptions {
                fixed_files: false,
                ..all
            },
            RingOptions {
                fixed_buffers: false,
                ..all
            },
            RingOptions {
                discard_command: false,
                ..all
            },
            RingOptions {
                task_work: false,
                fixed_files: false,
                fixed_buffers: false,
                discard_command: false,
            },
        ]
    }

    /// With the newest kernel's features, each of them taken away, and none at all.
    pub fn engines() -> impl Iterator<Item = impl Fn(Medium) -> Option<UringEngine>> {
        let of = |options| move |medium| uring(medium, options);
        option_sets().into_iter().map(of)
    }

    #[test]
    fn engines_on_a_block_device() {
        let Some(device) = LoopDevice::with_content(&content()) else {
            return;
        };
        let fresh = || medium(open(device.path(), true), true);
        let medium = fresh();
        performs_operations(
            &mut ThreadsEngine::new(DEPTH, medium.clone()).unwrap(),
            &medium,
        );
        for make in engines() {
            device.fill(&content());
            let medium = fresh();
            if let Some(mut engine) = make(medium.clone()) {
                performs_operations(&mut engine, &medium);
            }
        }
    }
}

#[cfg(windows)]
mod windows {
    use super::*;
    use crate::engine::iocp::IocpEngine;
    use crate::sys::{Opening, PortOptions};

    pub fn open(path: &Path, write: bool) -> sys::File {
        let opening = Opening {
            write,
            direct: true,
            ..Opening::default()
        };
        sys::open(path, opening).unwrap()
    }

    /// With and without packets for what is done at once.
    pub fn engines() -> impl Iterator<Item = impl Fn(Medium) -> Option<IocpEngine>> {
        [true, false].into_iter().map(|skip_on_success| {
            let options = PortOptions { skip_on_success };
            move |medium| Some(IocpEngine::new(DEPTH, medium, options).unwrap())
        })
    }
}
