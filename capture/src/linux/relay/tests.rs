//! Buffers that are files in a folder, with a counter that the test writes.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;

use blktrace_parse::{
    Action, ByteOrder, Categories, DeviceNumber, Format, Kind, Record, Version, encode,
};
use iotape_formats::event::Step;

use super::*;

const DEVICE: u32 = 8 << 20;

/// A trace of two processors.
struct Fake {
    folder: tempfile::TempDir,
    traces: Traces,
    numbers: [u32; 2],
}

impl Fake {
    fn new() -> Fake {
        let folder = tempfile::tempdir().unwrap();
        for name in ["trace0", "trace1"] {
            fs::write(folder.path().join(name), []).unwrap();
        }
        set_dropped(folder.path(), 0);
        let mut traces = Traces {
            buffers: Vec::new(),
            traces: vec![Trace::open(File::open(folder.path()).unwrap().into()).unwrap()],
            _keeper: None,
            names: Names::default(),
            merge: Merge::default(),
            losses: Losses {
                gap: None,
                looked_ns: 0,
            },
            closed: Vec::new(),
        };
        for cpu in [0, 1] {
            traces.open_buffer(0, cpu).unwrap();
        }
        Fake {
            folder,
            traces,
            numbers: [0; 2],
        }
    }

    /// Appends a record as the kernel would.
    fn write(&mut self, cpu: usize, time_ns: u64, kind: Kind, pdu: &[u8], version: Version) {
        let categories = match kind {
            Kind::Process => Categories::NOTE,
            _ => Categories::WRITE | Categories::FS,
        };
        self.numbers[cpu] += 1;
        let record = Record {
            sequence: self.numbers[cpu],
            time_ns,
            sector: 8,
            bytes: 4096,
            action: Action::new(kind, categories, false),
            pid: 7,
            device: DeviceNumber(DEVICE),
            cpu: u32::try_from(cpu).unwrap(),
            error: 0,
            cgroup: None,
            pdu,
            order: ByteOrder::NATIVE,
        };
        let mut bytes = Vec::new();
        encode(&record, Format::new(version, ByteOrder::NATIVE), &mut bytes).unwrap();
        let path = self.folder.path().join(format!("trace{cpu}"));
        let mut file = OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(&bytes).unwrap();
    }

    /// What is told, in words.
    fn drained(&mut self, until_ns: u64) -> Vec<String> {
        let mut all = Vec::new();
        self.traces.drain(until_ns, &mut |told| {
            all.push(match told {
                Told::Event(event) => {
                    assert_eq!((event.dev, event.thread), (DEVICE, 7));
                    assert_eq!(
                        (event.event.offset_bytes, event.event.length_bytes),
                        (4096, 4096)
                    );
                    let letter = match event.event.step {
                        Step::Queued => "Q",
                        Step::Issued => "D",
                        Step::RequestCompleted => "C",
                        _ => "?",
                    };
                    let name = String::from_utf8_lossy(event.comm).into_owned();
                    format!("{letter}{} {name}", event.event.time_ns)
                }
                Told::GapBegins => "gap".to_owned(),
                Told::GapEnds => "whole".to_owned(),
                Told::Lost(lost) => format!("lost {}", lost.events),
                other => format!("{other:?}"),
            });
        });
        all
    }
}

fn set_dropped(folder: &Path, dropped: u64) {
    // The same file, which is open already.
    fs::write(folder.join("dropped"), format!("{dropped}\n")).unwrap();
}

#[test]
fn records_of_all_processors_come_in_the_order_of_time_with_their_threads_names() {
    for version in [Version::V7, Version::V8] {
        let mut fake = Fake::new();
        fake.write(0, 90, Kind::Process, b"fio\0\0\0", version);
        fake.write(0, 100, Kind::Queue, &[], version);
        fake.write(0, 120, Kind::GetRequest, &[], version);
        fake.write(0, 200, Kind::Issue, &[], version);
        fake.write(1, 150, Kind::Complete, &[], version);
        assert_eq!(fake.drained(180), ["Q100 fio", "C150 fio"]);
        // The last record of a processor needs none behind it.
        assert_eq!(fake.drained(201), ["D200 fio"]);
        fake.write(1, 300, Kind::Complete, &[], version);
        assert_eq!(fake.drained(301), ["C300 fio"]);
        assert_eq!(fake.drained(u64::MAX), [] as [String; 0]);
    }
}

#[test]
fn what_the_counter_tells_is_a_gap_until_its_time_is_over() {
    let mut fake = Fake::new();
    let now_ns = clock::monotonic_ns();
    let later_ns = now_ns + 3_600_000_000_000;
    fake.write(0, now_ns, Kind::Issue, &[], Version::V7);
    assert_eq!(fake.drained(now_ns + 1), [format!("D{now_ns} ")]);
    set_dropped(fake.folder.path(), 3);
    fake.write(1, now_ns + 1, Kind::Complete, &[], Version::V7);
    fake.write(1, later_ns, Kind::Issue, &[], Version::V7);
    let told = fake.drained(now_ns + 2);
    assert_eq!(told, ["gap".to_owned(), format!("C{} ", now_ns + 1)]);
    let told = fake.drained(later_ns + 1);
    assert_eq!(
        told,
        [
            "lost 3".to_owned(),
            "whole".to_owned(),
            format!("D{later_ns} ")
        ]
    );
    assert_eq!(fake.drained(u64::MAX), [] as [String; 0], "told once");
}

#[test]
fn at_the_end_nothing_that_was_lost_is_untold() {
    let mut fake = Fake::new();
    // Numbers with a gap, as kernels from 6.17 on have, and a counter that does not tell it.
    fake.write(0, 10, Kind::Issue, &[], Version::V7);
    fake.numbers[0] += 4;
    fake.write(0, 20, Kind::Issue, &[], Version::V7);
    fake.write(0, 30, Kind::Issue, &[], Version::V7);
    fake.drained(u64::MAX);
    let mut lost = Vec::new();
    fake.traces.settle(99, &mut |told| {
        if let Told::Lost(told) = told {
            lost.push((told.events, told.reason));
        }
    });
    assert_eq!(lost, [(4, LossReason::SequenceGap)]);
}
