//! Recordings from a session that is played: its log files are real ones, written by an encoder.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Cursor};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use etl_parse::encode::{Encoder, payload, usual_header};
use etl_parse::kernel::{DiskTransfer, ProcessInfo, Response, ThreadInfo, hook};
use etl_parse::{Event, EventId, HeaderKind, PointerWidth};
use iotape_formats::tape::{Anchor, Block, Device, Header, LossReason, TapeReader};
use iotape_formats::{DeviceIndex, Op, Process, Request};

use super::{Control, Disk, Lost, Recording};
use crate::{Bounds, CaptureError, Ended, Progress, Report, Single, Warning};

/// The session's clock at its start, in ticks of 100 ns.
const START: i64 = 600_000_000;
const WIDTH: PointerWidth = PointerWidth::Bits64;

/// An event of the played session: ticks since its start, and what happens.
#[derive(Clone)]
enum Happens {
    /// Ticks that it took, disk, offset, whether it is a write. By thread 78.
    Done(u64, u32, u64, bool),
    /// Process 77 of this name, with thread 78.
    Process(&'static str),
}

use Happens::{Done, Process as Begins};

/// A log file of the session.
enum Log {
    /// These events.
    Of(Vec<(i64, Happens)>),
    /// It is gone when it is to be read.
    Missing,
    /// It holds no trace.
    Foreign,
}

/// A session that goes through given log files; it is stopped by itself when it begins the last.
struct Played<'a> {
    folder: tempfile::TempDir,
    logs: VecDeque<Log>,
    /// What was lost by the end of each.
    lost: VecDeque<Lost>,
    known: Lost,
    number: u32,
    stop: &'a AtomicBool,
    /// Fails to go on after so many files.
    breaks_after: Option<u32>,
    stopped: u32,
}

impl Played<'_> {
    fn next(&mut self) -> io::Result<PathBuf> {
        self.number += 1;
        let path = self.folder.path().join(format!("{}.etl", self.number));
        self.known = self.lost.pop_front().unwrap_or(self.known);
        match self.logs.pop_front().unwrap_or(Log::Of(Vec::new())) {
            Log::Missing => {}
            Log::Foreign => fs::write(&path, [7; 5000])?,
            Log::Of(events) => write_log(File::create(&path)?, &events)?,
        }
        if self.logs.len() <= 1 {
            self.stop.store(true, Ordering::Relaxed);
        }
        Ok(path)
    }
}

impl Control for Played<'_> {
    fn roll(&mut self) -> io::Result<PathBuf> {
        if self.breaks_after.is_some_and(|files| self.number >= files) {
            return Err(io::Error::other("the session is gone"));
        }
        self.next()
    }

    fn stop(&mut self) -> io::Result<Option<PathBuf>> {
        self.stopped += 1;
        self.next().map(Some)
    }

    fn lost(&mut self) -> io::Result<Lost> {
        Ok(self.known)
    }
}

fn write_log(file: File, events: &[(i64, Happens)]) -> io::Result<()> {
    let mut encoder = Encoder::start(file, &usual_header(), None)?;
    for (at, happens) in events {
        match happens {
            Done(took, disk, offset, is_write) => {
                let done = DiskTransfer {
                    is_write: *is_write,
                    disk: *disk,
                    irp_flags: 0,
                    bytes: 4096,
                    offset: *offset,
                    file_object: 0,
                    irp: Some(0x1000),
                    response: Response::PerfTicks(*took),
                    thread_id: Some(78),
                };
                let hook = if *is_write {
                    hook::DISK_WRITE
                } else {
                    hook::DISK_READ
                };
                let bytes = payload::disk_transfer(&done, 3, WIDTH);
                push(&mut encoder, *at, hook, 3, &bytes)?;
            }
            Begins(name) => {
                let process = ProcessInfo {
                    process_id: 77,
                    image: (*name).to_owned(),
                    is_end: false,
                };
                let thread = ThreadInfo {
                    thread_id: 78,
                    process_id: 77,
                };
                let bytes = payload::process(&process, 4, WIDTH);
                push(&mut encoder, *at, hook::PROCESS_START, 4, &bytes)?;
                let bytes = payload::thread(&thread, 3, WIDTH);
                push(&mut encoder, *at, hook::THREAD_START, 3, &bytes)?;
            }
        }
    }
    encoder.finish().map(drop)
}

fn push(
    encoder: &mut Encoder<File>,
    at: i64,
    hook: u16,
    version: u8,
    bytes: &[u8],
) -> io::Result<()> {
    encoder.push(&Event {
        kind: HeaderKind::PerfInfo,
        id: EventId::Kernel { hook },
        version,
        ticks: Some(START + at),
        processor: 0,
        process_id: None,
        thread_id: None,
        pointers: WIDTH,
        payload: bytes,
        extended: &[],
    })
}

/// What came of a played session that recorded disk 4.
struct Recorded {
    result: Result<Report, CaptureError>,
    requests: Vec<Request>,
    anchors: Vec<Anchor>,
    losses: Vec<(u64, u64, u64, LossReason)>,
    /// How often the session was stopped, and files that it left.
    left: (u32, usize),
}

fn record(
    logs: Vec<Log>,
    lost: &[(u64, u64)],
    setup: impl FnOnce(&mut Recording<'_, Played<'_>>),
) -> Recorded {
    let stop = AtomicBool::new(false);
    let lost = lost.iter().map(|(events, buffers)| Lost {
        events: *events,
        buffers: *buffers,
    });
    let mut played = Played {
        folder: tempfile::tempdir().unwrap(),
        logs: logs.into(),
        lost: lost.collect(),
        known: Lost::default(),
        number: 0,
        stop: &stop,
        breaks_after: None,
        stopped: 0,
    };
    let device = Device {
        index: DeviceIndex(0),
        name: "PhysicalDrive4".to_owned(),
        ..Device::default()
    };
    let mut recording = Recording {
        control: &mut played,
        header: Header::default(),
        disks: vec![Disk { number: 4, device }],
        roll_every: Duration::ZERO,
        duration: None,
        fail_on_loss: false,
        bounds: Bounds::default(),
        warnings: Vec::new(),
    };
    setup(&mut recording);
    let mut tape = Vec::new();
    let result = recording.run(&mut Single::new(&mut tape), &stop, &mut |_: &Progress| {});
    let left = fs::read_dir(played.folder.path()).unwrap().count();
    let mut reader = TapeReader::open(Cursor::new(&tape)).unwrap();
    let mut requests = Vec::new();
    let mut block = Block::new();
    while reader.next_block(&mut block).unwrap() {
        requests.extend(block.requests());
    }
    assert!(reader.damage().is_clean());
    Recorded {
        result,
        requests,
        anchors: reader.anchors().to_vec(),
        losses: reader
            .losses()
            .iter()
            .map(|loss| (loss.from_ns, loss.to_ns, loss.events, loss.reason))
            .collect(),
        left: (played.stopped, left),
    }
}

fn request(time_ns: u64, latency_ns: u64, offset_bytes: u64, op: Op) -> Request {
    Request {
        time_ns,
        op,
        offset_bytes,
        length_bytes: 4096,
        latency_ns: Some(latency_ns),
        process: Some(Process {
            pid: 77,
            name: "store.exe".into(),
        }),
        ..Request::default()
    }
}

#[test]
fn log_files_become_one_tape_in_the_order_of_issue() {
    let logs = vec![
        Log::Of(vec![
            (0, Begins("store.exe")),
            (50, Done(20, 4, 8192, false)),
            (60, Done(10, 5, 0, false)),
        ]),
        // Issued at 40, between those of the file before.
        Log::Of(vec![(90, Done(50, 4, 4096, true))]),
        Log::Of(vec![(200, Done(100, 4, 0, false))]),
        // What the session writes after it was told to stop.
        Log::Of(vec![(300, Done(5, 4, 12288, true))]),
    ];
    let recorded = record(logs, &[], |_| {});
    let report = recorded.result.unwrap();
    let expected = [
        request(3_000, 2_000, 8192, Op::Read),
        request(4_000, 5_000, 4096, Op::Write),
        request(10_000, 10_000, 0, Op::Read),
        request(29_500, 500, 12288, Op::Write),
    ];
    assert_eq!(recorded.requests, expected);
    assert_eq!(report.summary.requests, 4);
    assert_eq!(report.ended, Ended::Stopped);
    assert_eq!(
        recorded.left,
        (1, 0),
        "the session is stopped once, its files are removed"
    );
    // 132,000,000,600,000,000 * 100 ns after 1601 are so many after 1970.
    let wall_ns = 1_555_526_460_000_000_000;
    assert_eq!(
        recorded.anchors,
        [Anchor {
            time_ns: 0,
            wall_ns
        }]
    );
    assert!(recorded.losses.is_empty() && report.warnings.is_empty());
}

#[test]
fn what_was_issued_before_the_session_has_no_place() {
    let logs = vec![
        Log::Of(vec![(0, Begins("a")), (10, Done(11, 4, 0, false))]),
        Log::Of(Vec::new()),
    ];
    let recorded = record(logs, &[], |_| {});
    let report = recorded.result.unwrap();
    assert!(recorded.requests.is_empty());
    assert_eq!(report.summary.counters.unpaired_completions, 1);
}

#[test]
fn losses_of_the_session_are_told_once_and_where() {
    let one = |at: i64| Log::Of(vec![(at, Done(10, 4, 0, false))]);
    let logs = vec![one(100), one(200), one(300), one(400)];
    // By the end of each file; the second and the third lose.
    let lost = [(0, 0), (7, 0), (9, 1), (9, 1)];
    let recorded = record(logs, &lost, |_| {});
    let report = recorded.result.unwrap();
    let (full, gap) = (LossReason::RingFull, LossReason::SequenceGap);
    let expected = [
        (10_000, 20_000, 7, full),
        (20_000, 30_000, 2, full),
        (20_000, 30_000, 1, gap),
    ];
    assert_eq!(recorded.losses, expected);
    assert_eq!(report.summary.counters.lost_events, 10);
    assert_eq!(report.warnings, [Warning::EventsLost { events: 10 }]);
    assert_eq!(recorded.requests.len(), 4);
}

#[test]
fn a_log_file_that_cannot_be_read_is_a_loss_and_the_rest_is_kept() {
    for bad in [Log::Missing, Log::Foreign] {
        let logs = vec![
            Log::Of(vec![(100, Done(10, 4, 0, false))]),
            bad,
            Log::Of(vec![(300, Done(10, 4, 0, false))]),
            Log::Of(Vec::new()),
        ];
        let recorded = record(logs, &[], |_| {});
        assert_eq!(recorded.requests.len(), 2);
        assert_eq!(recorded.losses, [(10_000, 10_000, 1, LossReason::Unknown)]);
        assert_eq!(recorded.result.unwrap().summary.counters.lost_events, 1);
        assert_eq!(recorded.left, (1, 0));
    }
}

#[test]
fn it_ends_at_a_loss_if_asked() {
    let one = |at: i64| Log::Of(vec![(at, Done(10, 4, 0, false))]);
    let logs = vec![one(100), one(200), one(300), one(400), one(500)];
    let recorded = record(logs, &[(0, 0), (7, 0)], |recording| {
        recording.fail_on_loss = true;
    });
    assert_eq!(recorded.result.unwrap().ended, Ended::Lost);
    assert_eq!(
        recorded.requests.len(),
        3,
        "up to the loss, and what stopping left"
    );
}

#[test]
fn what_is_issued_after_the_time_is_over_is_left_out() {
    let logs = vec![
        Log::Of(vec![
            (100, Done(10, 4, 0, false)),
            (9_000, Done(10, 4, 0, false)),
        ]),
        Log::Of(Vec::new()),
        Log::Of(Vec::new()),
    ];
    let duration = Duration::from_micros(500);
    let recorded = record(logs, &[], |recording| recording.duration = Some(duration));
    assert_eq!(recorded.requests.len(), 1);
}

#[test]
fn a_session_that_somebody_ends_leaves_a_whole_tape() {
    let one = |at: i64| Log::Of(vec![(at, Done(10, 4, 0, false))]);
    let logs = vec![one(100), one(200), one(300), one(400)];
    let recorded = record(logs, &[], |recording| {
        recording.control.breaks_after = Some(2);
    });
    let error = recorded.result.unwrap_err();
    assert!(error.to_string().contains("the session is gone"), "{error}");
    assert_eq!(recorded.requests.len(), 2);
}
