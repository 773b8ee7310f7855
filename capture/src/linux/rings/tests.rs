//! A file stands for the memory that the kernel shares, and the test for the kernel.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, memfd_create};

use super::super::sys::{HEAD_OFFSET, TAIL_OFFSET};
use super::*;

const SIZE: usize = 16 << 10;

/// Writes into a ring as the kernel does.
struct Kernel {
    file: File,
    head: u64,
    dropped: u64,
}

impl Kernel {
    fn add_to(rings: &mut Rings, cpu: u32) -> Kernel {
        let file = File::from(memfd_create("ring", MemfdFlags::CLOEXEC).unwrap());
        file.set_len((SIZE + rustix::param::page_size()) as u64)
            .unwrap();
        let event = TracepointEvent::of_file(file.try_clone().unwrap().into());
        rings.add(cpu, Ring::map(event, SIZE).unwrap(), Vec::new(), 0);
        Kernel {
            file,
            head: 0,
            dropped: 0,
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        let page = rustix::param::page_size() as u64;
        for (index, byte) in (0u64..).zip(bytes) {
            let at = (self.head + index) % SIZE as u64;
            self.file.write_all_at(&[*byte], page + at).unwrap();
        }
        self.head += bytes.len() as u64;
        self.file
            .write_all_at(&self.head.to_ne_bytes(), HEAD_OFFSET as u64)
            .unwrap();
    }

    fn tail(&self) -> u64 {
        let mut tail = [0; 8];
        self.file
            .read_exact_at(&mut tail, TAIL_OFFSET as u64)
            .unwrap();
        u64::from_ne_bytes(tail)
    }

    /// A record of `payload` bytes at a time, or a count of those for which there is no space.
    fn sample(&mut self, time_ns: u64, payload: &[u8]) {
        let lost = lost_record(time_ns, self.dropped);
        let sample = sample_record(time_ns, payload);
        let before = if self.dropped > 0 { lost.len() } else { 0 };
        let used = (self.head - self.tail()) as usize;
        if used + before + sample.len() > SIZE {
            self.dropped += 1;
            return;
        }
        if self.dropped > 0 {
            self.put(&lost);
            self.dropped = 0;
        }
        self.put(&sample);
    }
}

fn record(kind: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = kind.to_ne_bytes().to_vec();
    bytes.extend(0u16.to_ne_bytes());
    bytes.extend((8 + body.len() as u16).to_ne_bytes());
    bytes.extend(body);
    bytes
}

fn sample_record(time_ns: u64, payload: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(7u32.to_ne_bytes());
    body.extend(8u32.to_ne_bytes());
    body.extend(time_ns.to_ne_bytes());
    let padded = (payload.len() + 4).next_multiple_of(8) - 4;
    body.extend((padded as u32).to_ne_bytes());
    body.extend(payload);
    body.resize(20 + padded, 0);
    record(RECORD_SAMPLE, &body)
}

fn lost_record(time_ns: u64, count: u64) -> Vec<u8> {
    let mut body = Vec::new();
    for word in [5, count, 8 << 32 | 7, time_ns] {
        body.extend(u64::to_ne_bytes(word));
    }
    record(RECORD_LOST, &body)
}

/// What the rings tell, in words.
fn drained(rings: &mut Rings, until_ns: u64) -> Vec<String> {
    let mut all = Vec::new();
    rings.drain(until_ns, &mut |told| {
        all.push(match told {
            Told::Sample(sample) => format!("{}@{}", sample.time_ns, sample.cpu),
            Told::GapBegins => "gap".to_owned(),
            Told::GapEnds => "whole".to_owned(),
            Told::Lost(lost) => format!("lost {} {}-{}", lost.events, lost.from_ns, lost.to_ns),
            Told::Event(event) => format!("event {}", event.event.time_ns),
            Told::Request(request) => format!("request {}", request.time_ns),
            Told::Group(id) => format!("group {id}"),
            Told::Counted(counters) => format!("counted {counters:?}"),
        });
    });
    all
}

#[test]
fn rings_are_merged_by_time_up_to_the_moment_of_looking() {
    let mut rings = Rings::default();
    let mut one = Kernel::add_to(&mut rings, 0);
    let mut other = Kernel::add_to(&mut rings, 3);
    for time in [10, 30, 31, 60] {
        one.sample(time, b"x");
    }
    for time in [20, 40, 50] {
        other.sample(time, b"y");
    }
    assert_eq!(
        drained(&mut rings, 50),
        ["10@0", "20@3", "30@0", "31@0", "40@3"]
    );
    assert_eq!(drained(&mut rings, 50), Vec::<String>::new());
    assert_eq!(drained(&mut rings, 100), ["50@3", "60@0"]);
    assert_eq!(one.tail(), one.head);
}

#[test]
fn a_record_that_an_interrupt_overtook_comes_right_behind_it() {
    let mut rings = Rings::default();
    let mut one = Kernel::add_to(&mut rings, 0);
    let mut other = Kernel::add_to(&mut rings, 1);
    for time in [10, 25, 20, 40] {
        one.sample(time, b"x");
    }
    other.sample(30, b"y");
    assert_eq!(
        drained(&mut rings, 100),
        ["10@0", "25@0", "20@0", "30@1", "40@0"]
    );
}

#[test]
fn records_that_wrap_are_whole() {
    let mut rings = Rings::default();
    let mut kernel = Kernel::add_to(&mut rings, 0);
    let payload: Vec<u8> = (0..101).collect();
    for time in 1..=1000 {
        kernel.sample(time, &payload);
        let mut seen = 0;
        rings.drain(u64::MAX, &mut |told| {
            let Told::Sample(sample) = told else {
                panic!("{told:?}")
            };
            assert_eq!((sample.time_ns, sample.pid), (time, Some(7)));
            assert_eq!(sample.record[..101], payload[..]);
            seen += 1;
        });
        assert_eq!(seen, 1);
    }
    assert!(kernel.head > 8 * SIZE as u64, "the ring went round");
}

#[test]
fn a_loss_is_told_with_its_time_and_opens_a_gap() {
    let mut rings = Rings::default();
    let mut kernel = Kernel::add_to(&mut rings, 0);
    let mut other = Kernel::add_to(&mut rings, 1);
    let mut time = 0;
    while kernel.dropped < 3 {
        time += 10;
        kernel.sample(time, &[0; 100]);
    }
    let last = time - 30;
    other.sample(last + 5, b"y");
    // What follows the last record before the loss is in doubt, on every processor.
    let told = drained(&mut rings, time + 1);
    let gap = told.iter().position(|told| told == "gap").unwrap();
    let before = told
        .iter()
        .position(|told| *told == format!("{last}@0"))
        .unwrap();
    let behind = told
        .iter()
        .position(|told| *told == format!("{}@1", last + 5))
        .unwrap();
    assert!(gap < behind && before < behind, "{told:?}");
    assert!(!told.contains(&"whole".to_owned()));
    kernel.sample(time + 100, b"x");
    other.sample(time + 90, b"y");
    let lost = format!("lost 3 {last}-{}", time + 100);
    let expected = [
        format!("{}@1", time + 90),
        lost,
        "whole".into(),
        format!("{}@0", time + 100),
    ];
    assert_eq!(drained(&mut rings, u64::MAX), expected);
}

#[test]
fn a_ring_that_was_full_and_lost_nothing_closes_its_gap() {
    let mut rings = Rings::default();
    let mut kernel = Kernel::add_to(&mut rings, 0);
    let mut time = 0;
    while kernel.head < SIZE as u64 - LARGEST_RECORD / 2 {
        time += 1;
        kernel.sample(time, &[0; 100]);
    }
    let told = drained(&mut rings, u64::MAX);
    assert!(told.contains(&"gap".to_owned()) && !told.contains(&"whole".to_owned()));
    kernel.sample(time + 1, b"x");
    assert_eq!(
        drained(&mut rings, u64::MAX),
        ["whole".to_owned(), format!("{}@0", time + 1)]
    );
}

#[test]
fn the_ring_of_a_dead_processor_is_emptied_first() {
    let mut rings = Rings::default();
    let mut kernel = Kernel::add_to(&mut rings, 2);
    kernel.sample(10, b"x");
    rings.mark_dead(2);
    assert_eq!(rings.cpus().count(), 0);
    assert_eq!(drained(&mut rings, 5), Vec::<String>::new());
    assert_eq!(drained(&mut rings, 100), ["10@2"]);
    assert!(rings.rings.is_empty());
}

#[test]
fn what_is_not_a_record_is_stepped_over() {
    let mut rings = Rings::default();
    let mut kernel = Kernel::add_to(&mut rings, 0);
    kernel.put(&[0; 24]);
    assert_eq!(drained(&mut rings, u64::MAX), Vec::<String>::new());
    kernel.sample(10, b"x");
    assert_eq!(drained(&mut rings, u64::MAX), ["10@0"]);
}
