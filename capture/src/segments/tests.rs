use std::collections::VecDeque;
use std::io::Cursor;
use std::sync::{Mutex, PoisonError};

use iotape_formats::edit::Merged;
use iotape_formats::tape::{Block, LossReason, Name, NameKind, TapeReader, check};
use iotape_formats::{DeviceIndex, Flags, Op, Process};

use super::*;

const KIB: u64 = 1 << 10;

/// Tapes in memory, on a file system of a given size.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Held>>);

#[derive(Default)]
struct Held {
    tapes: VecDeque<Vec<u8>>,
    free: Option<u64>,
    most: u64,
}

impl Memory {
    fn with<T>(&self, act: impl FnOnce(&mut Held) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn tapes(&self) -> Vec<Vec<u8>> {
        self.with(|held| held.tapes.iter().cloned().collect())
    }
}

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.with(|held| {
            // A full file system takes what fits, and then nothing.
            let room = held.free.map_or(bytes.len(), |free| {
                bytes.len().min(usize::try_from(free).unwrap_or(usize::MAX))
            });
            if room == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            held.free = held.free.map(|free| free - room as u64);
            if let Some(tape) = held.tapes.back_mut() {
                tape.extend_from_slice(&bytes[..room]);
            }
            let sum = held.tapes.iter().map(|tape| tape.len() as u64).sum();
            held.most = held.most.max(sum);
            Ok(room)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Destination for Memory {
    type Sink = Memory;

    fn begin(&mut self) -> io::Result<Memory> {
        self.with(|held| held.tapes.push_back(Vec::new()));
        Ok(self.clone())
    }

    fn end(&mut self, bytes: u64) -> io::Result<()> {
        self.with(|held| {
            if let Some(tape) = held.tapes.back_mut() {
                tape.truncate(bytes as usize);
            }
        });
        Ok(())
    }

    fn remove_oldest(&mut self) -> io::Result<()> {
        self.with(|held| {
            let removed = held.tapes.pop_front().map_or(0, |tape| tape.len() as u64);
            held.free = held.free.map(|free| free + removed);
        });
        Ok(())
    }

    fn free_bytes(&self) -> Option<u64> {
        self.with(|held| held.free)
    }
}

fn beginning() -> Beginning {
    Beginning {
        header: Header::default(),
        devices: vec![Device {
            name: "sda".to_owned(),
            ..Device::default()
        }],
        anchor: Anchor {
            time_ns: 0,
            wall_ns: 1_700_000_000_000_000_000,
        },
    }
}

/// A request that no compressor makes smaller, with a process of its own.
fn random(number: u64, dice: &mut u64) -> Request {
    let mut roll = || {
        // xorshift64
        *dice ^= *dice << 13;
        *dice ^= *dice >> 7;
        *dice ^= *dice << 17;
        *dice
    };
    Request {
        time_ns: number * 1_000_000 + roll() % 1_000_000,
        op: Op::Write,
        flags: Flags::from_bits((roll() & 0x7f) as u32),
        device: DeviceIndex(0),
        offset_bytes: roll() >> 1,
        length_bytes: roll() >> 40,
        latency_ns: Some(roll()),
        queue_ns: Some(roll()),
        process: Some(Process {
            pid: roll() as u32,
            name: format!("{:016x}", roll()).into(),
        }),
        cgroup: Some(roll()),
        cpu: Some(roll() as u32 & 0xffff),
        error: Some(roll() as u32),
        file: None,
    }
}

fn requests(count: u64) -> Vec<Request> {
    let mut dice = 0x9e37_79b9_7f4a_7c15;
    (0..count).map(|number| random(number, &mut dice)).collect()
}

/// Nothing but segments of at most this size.
fn rotated(bytes: u64) -> Bounds {
    Bounds {
        rotate: Some(Rotate::Bytes(bytes)),
        ..Bounds::default()
    }
}

fn begin(destination: &mut Memory, bounds: Bounds) -> Segments<'_, Memory> {
    Segments::begin(destination, bounds, beginning(), Arc::default()).unwrap()
}

/// What was written, and why it ended before all was.
fn write(
    memory: &Memory,
    bounds: Bounds,
    requests: &[Request],
) -> Result<(Written, Option<Ended>), Stop> {
    let mut destination = memory.clone();
    let mut segments = begin(&mut destination, bounds);
    for request in requests {
        match segments.push(request) {
            Ok(()) => {}
            Err(Stop::Bound(ended)) => return Ok((segments.finish()?, Some(ended))),
            Err(failed) => return Err(failed),
        }
    }
    Ok((segments.finish()?, None))
}

fn read(tape: &[u8]) -> Vec<Request> {
    let mut reader = TapeReader::open(Cursor::new(tape)).unwrap();
    assert!(reader.has_footer());
    let (mut block, mut all) = (Block::new(), Vec::new());
    while reader.next_block(&mut block).unwrap() {
        all.extend(block.requests());
    }
    all
}

#[test]
fn segments_of_the_worst_requests_keep_their_size_and_join_without_a_seam() {
    let all = requests(30_000);
    let whole = Memory::default();
    write(&whole, Bounds::default(), &all).unwrap();
    for size in [64 * KIB, 300 * KIB] {
        let memory = Memory::default();
        let (written, _) = write(&memory, rotated(size), &all).unwrap();
        let tapes = memory.tapes();
        let sizes: Vec<u64> = tapes.iter().map(|tape| tape.len() as u64).collect();
        assert!(
            sizes.iter().all(|bytes| *bytes <= size),
            "{size}: {sizes:?}"
        );
        // All but the last are used well.
        let used = &sizes[..sizes.len() - 1];
        assert!(
            used.iter().all(|bytes| *bytes >= size * 3 / 4),
            "{size}: {sizes:?}"
        );
        assert_eq!(written.bytes, sizes.iter().sum::<u64>());
        assert_eq!(written.segments as usize, tapes.len());
        let joined: Vec<Request> = tapes.iter().flat_map(|tape| read(tape)).collect();
        assert_eq!(joined, all);

        let open = |tape: &Vec<u8>| TapeReader::open(Cursor::new(tape.clone())).unwrap();
        let single = open(&whole.tapes()[0]);
        assert_eq!(written.summary.id, single.summary().id);
        let mut merged = Merged::new(tapes.iter().rev().map(open).collect()).unwrap();
        let merged: Vec<Request> = std::iter::from_fn(|| merged.next_request().unwrap()).collect();
        assert_eq!(merged, all, "merged in whatever order they are named");
        // As `cat` joins them.
        let cat = tapes.concat();
        let report = check(Cursor::new(cat)).unwrap();
        assert!(report.is_clean());
        assert_eq!(report.id, single.summary().id);
    }
}

#[test]
fn as_many_segments_are_kept_as_asked() {
    let all = requests(30_000);
    let (memory, bounds) = (
        Memory::default(),
        Bounds {
            max_bytes: Some(1024 * KIB),
            rotate: Some(Rotate::Bytes(128 * KIB)),
            keep: Some(4),
            min_free_bytes: 0,
        },
    );
    let (written, _) = write(&memory, bounds, &all).unwrap();
    assert_eq!(memory.tapes().len(), 4);
    assert_eq!(written.segments - written.removed, 4);
    assert!(memory.with(|held| held.most) <= 4 * 128 * KIB);
    let kept: Vec<Request> = memory.tapes().iter().flat_map(|tape| read(tape)).collect();
    assert_eq!(kept, all[all.len() - kept.len()..], "the newest");
    assert_eq!(written.summary.requests, 30_000, "removed ones included");
}

#[test]
fn a_bound_on_all_bytes_ends_the_recording_with_whole_tapes() {
    let all = requests(30_000);
    for rotate in [None, Some(Rotate::Bytes(200 * KIB))] {
        let (memory, bounds) = (
            Memory::default(),
            Bounds {
                max_bytes: Some(1000 * KIB),
                rotate,
                ..Bounds::default()
            },
        );
        let (written, ended) = write(&memory, bounds, &all).unwrap();
        assert_eq!(ended, Some(Ended::MaxBytes));
        let bytes = memory.with(|held| held.most);
        assert!((750 * KIB..=1000 * KIB).contains(&bytes), "{bytes}");
        let kept: Vec<Request> = memory.tapes().iter().flat_map(|tape| read(tape)).collect();
        assert_eq!(kept, all[..kept.len()], "the oldest");
        assert_eq!(written.summary.requests, kept.len() as u64);
    }
}

#[test]
fn losses_and_anchors_stay_within_bounds_too() {
    let memory = Memory::default();
    let mut destination = memory.clone();
    let mut segments = begin(&mut destination, rotated(64 * KIB));
    for number in 0..5000u64 {
        let loss = Loss {
            from_ns: number * 10,
            to_ns: number * 10 + 5,
            events: 3,
            requests: None,
            reason: LossReason::RingFull,
        };
        segments.loss(loss).unwrap();
        let anchor = Anchor {
            time_ns: number * 10,
            wall_ns: number as i64,
        };
        segments.anchor(anchor).unwrap();
    }
    let written = segments.finish().unwrap();
    assert_eq!(written.summary.counters.lost_events, 15_000);
    let tapes = memory.tapes();
    let lost = |tape: &Vec<u8>| {
        let reader = TapeReader::open(Cursor::new(tape.clone())).unwrap();
        assert!(tape.len() as u64 <= 64 * KIB, "{}", tape.len());
        assert_eq!(reader.anchors()[0], beginning().anchor);
        reader.losses().iter().map(|loss| loss.events).sum::<u64>()
    };
    assert_eq!(tapes.iter().map(lost).sum::<u64>(), 15_000);
    assert!(tapes.len() > 5);
}

#[test]
fn each_segment_names_the_control_groups_of_its_own_requests() {
    // Ten groups, with names that take more than the requests do.
    let group = |number: u64| format!("/{number}/{}", "x".repeat(4000));
    let mut all = requests(3000);
    for (number, request) in (0u64..).zip(&mut all) {
        request.cgroup = (number % 11 > 0).then_some(number % 11);
    }
    let memory = Memory::default();
    let mut destination = memory.clone();
    let mut segments = begin(&mut destination, rotated(64 * KIB));
    // Group 10 has no name.
    for id in 1..10 {
        segments
            .name(&Name {
                kind: NameKind::Cgroup,
                id,
                name: group(id).into(),
            })
            .unwrap();
    }
    for request in &all {
        segments.push(request).unwrap();
    }
    segments.finish().unwrap();
    let tapes = memory.tapes();
    assert!(tapes.len() > 5, "{}", tapes.len());
    let mut seen = 0;
    for tape in tapes {
        assert!(tape.len() as u64 <= 64 * KIB, "{}", tape.len());
        let mut reader = TapeReader::open(Cursor::new(tape)).unwrap();
        let mut block = Block::new();
        while reader.next_block(&mut block).unwrap() {
            for request in block.requests() {
                let name = |id| reader.names().get(NameKind::Cgroup, id);
                let expected = request.cgroup.filter(|id| *id < 10).map(group);
                assert_eq!(
                    request.cgroup.and_then(name).map(|name| &**name),
                    expected.as_deref()
                );
                seen += 1;
            }
        }
        assert!(reader.damage().is_clean());
    }
    assert_eq!(seen, 3000);
}

#[test]
fn a_name_that_is_found_late_stands_before_the_block_all_the_same() {
    let memory = Memory::default();
    let mut destination = memory.clone();
    let mut segments = begin(&mut destination, Bounds::default());
    let mut request = requests(1).remove(0);
    request.cgroup = Some(7);
    segments.push(&request).unwrap();
    for id in [7, 8] {
        let name = Name {
            kind: NameKind::Cgroup,
            id,
            name: format!("/g{id}").into(),
        };
        segments.name(&name).unwrap();
    }
    segments.finish().unwrap();
    let mut reader = TapeReader::open(Cursor::new(memory.tapes().remove(0))).unwrap();
    let mut block = Block::new();
    assert!(reader.next_block(&mut block).unwrap());
    let name = |id| reader.names().get(NameKind::Cgroup, id).map(|name| &**name);
    // Nothing was of group 8.
    assert_eq!((name(7), name(8)), (Some("/g7"), None));
}

#[test]
fn the_floor_of_free_space_removes_the_oldest_or_ends() {
    let all = requests(30_000);
    let rotate = Some(Rotate::Bytes(128 * KIB));
    for keep in [Some(100), None] {
        let memory = Memory::default();
        memory.with(|held| held.free = Some(1000 * KIB));
        let bounds = Bounds {
            rotate,
            keep,
            min_free_bytes: 400 * KIB,
            max_bytes: None,
        };
        let (written, ended) = write(&memory, bounds, &all).unwrap();
        let kept: Vec<Request> = memory.tapes().iter().flat_map(|tape| read(tape)).collect();
        let most = memory.with(|held| held.most);
        assert!(most < 740 * KIB && most > 500 * KIB, "{most}");
        if keep.is_some() {
            assert_eq!((ended, written.removed > 0), (None, true));
            assert_eq!(kept, all[all.len() - kept.len()..]);
        } else {
            assert_eq!((ended, written.removed), (Some(Ended::LowSpace), 0));
            assert_eq!(kept, all[..kept.len()]);
        }
    }
}

#[test]
fn a_full_file_system_in_the_midst_of_a_block_leaves_whole_records() {
    let all = requests(30_000);
    let memory = Memory::default();
    memory.with(|held| held.free = Some(500 * KIB));
    let mut destination = memory.clone();
    let mut segments = begin(&mut destination, rotated(4096 * KIB));
    let mut pushed = 0;
    let failed = loop {
        // Blocks of a thousand, so that some are written before.
        if pushed % 1000 == 999
            && let Err(failed) = segments.close_block()
        {
            break failed;
        }
        segments.push(&all[pushed]).unwrap();
        pushed += 1;
    };
    assert!(matches!(failed, Stop::Failed(TapeError::Io { .. })));
    let waiting = segments.give_up();
    let tape = memory.tapes().remove(0);
    let report = check(Cursor::new(tape)).unwrap();
    assert_eq!(report.requests as usize + waiting, pushed);
    assert!(waiting > 0 && report.requests > 0);
    assert!(report.damage.is_clean(), "no torn record is left");
}
