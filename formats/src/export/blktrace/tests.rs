//! The files, read back record by record.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use blktrace_parse::{Payload, Reader, SequenceTracker};

use super::*;
use crate::request::{DeviceIndex, Flags, Op, Process};
use crate::tape::Layer;

/// Files in memory, by CPU.
type Shared = Rc<RefCell<BTreeMap<u32, Vec<u8>>>>;

struct File(Shared, u32);

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut files = self.0.borrow_mut();
        files.entry(self.1).or_default().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A record as the tests look at it: time on the tape's clock, action, process id, and what a note
/// says.
type Line = (i64, String, u32, String);

struct Trace {
    files: BTreeMap<u32, Vec<Line>>,
    report: Report,
}

impl Trace {
    /// The times of a CPU's events of one kind, on the tape's clock.
    fn times(&self, cpu: u32, kind: Kind) -> Vec<i64> {
        let kind = format!("{kind:?}");
        let lines = self.files[&cpu].iter();
        lines
            .filter(|line| line.1 == kind)
            .map(|line| line.0)
            .collect()
    }
}

fn device(layer: Layer) -> Device {
    Device {
        name: "8,0".to_owned(),
        layer,
        ..Device::default()
    }
}

fn trace_of(survey: Survey, layer: Layer, anchor: Option<Anchor>, requests: &[Request]) -> Trace {
    let devices = [device(layer)];
    let source = Source {
        devices: &devices,
        anchor,
        ..Source::default()
    };
    let files = Shared::default();
    let shared = Rc::clone(&files);
    let open = |cpu| {
        shared.borrow_mut().insert(cpu, Vec::new());
        Ok(File(Rc::clone(&shared), cpu))
    };
    let mut survey = survey;
    requests.iter().for_each(|request| survey.look_at(request));
    let mut writer = BlktraceWriter::new(open, survey, &source).unwrap();
    for request in requests {
        writer.write(request).unwrap();
    }
    let report = writer.finish().unwrap();
    let files = files.borrow();
    let read = files.iter().map(|(cpu, bytes)| (*cpu, read(*cpu, bytes)));
    Trace {
        files: read.collect(),
        report,
    }
}

fn trace(layer: Layer, requests: &[Request]) -> Trace {
    trace_of(Survey::new(), layer, None, requests)
}

/// Reads a file, and holds what must be true of each.
fn read(cpu: u32, bytes: &[u8]) -> Vec<Line> {
    let mut reader = Reader::new(bytes);
    let mut tracker = SequenceTracker::new();
    let mut lines = Vec::new();
    let mut before_ns = 0;
    while let Some(record) = reader.next_record().unwrap() {
        assert_eq!(record.cpu, cpu);
        assert!(record.time_ns >= before_ns, "{record:?} after {before_ns}");
        before_ns = record.time_ns;
        assert_eq!(tracker.observe(&record), Default::default());
        let says = match record.payload() {
            Payload::Process(name) => String::from_utf8(name.to_vec()).unwrap(),
            Payload::WallClock {
                seconds,
                nanoseconds,
            } => format!("{seconds}.{nanoseconds:09}"),
            _ => String::new(),
        };
        let time_ns = record.time_ns as i64 - START_NS as i64;
        let kind = format!("{:?}", record.action.kind());
        lines.push((time_ns, kind, record.pid, says));
    }
    assert_eq!(tracker.numbering(), Default::default());
    lines
}

fn request(time_ns: u64, queue_ns: u64, latency_ns: u64, cpu: u32) -> Request {
    Request {
        time_ns,
        queue_ns: Some(queue_ns),
        latency_ns: Some(latency_ns),
        length_bytes: 4096,
        cpu: Some(cpu),
        ..Request::default()
    }
}

#[test]
fn each_event_has_its_time_and_its_cpu() {
    let requests = [request(500, 400, 2000, 2), request(700, 100, 100, 0)];
    let trace = trace(Layer::Device, &requests);
    let on = |cpu| {
        let lines = trace.files[&cpu].iter();
        lines
            .map(|line| (line.0, line.1.as_str()))
            .collect::<Vec<_>>()
    };
    let steps = |queued, issued, done| {
        [
            (queued, "Queue"),
            (queued, "GetRequest"),
            (queued, "Insert"),
            (issued, "Issue"),
            (done, "Complete"),
        ]
    };
    assert_eq!(on(2), steps(100, 500, 2500));
    assert_eq!(on(0), steps(600, 700, 800));
    assert_eq!(on(1), [], "tools stop at the first number that is missing");
    assert_eq!(trace.report, Report::default());
}

#[test]
fn requests_leave_in_the_order_in_which_they_were_queued() {
    let requests = [
        request(500, 0, 50, 0),
        request(510, 500, 10, 0),
        request(520, 15, 5, 0),
    ];
    let trace = trace(Layer::Device, &requests);
    assert_eq!(trace.times(0, Kind::Queue), [10, 500, 505]);
    assert_eq!(trace.times(0, Kind::Issue), [500, 510, 520]);
    assert_eq!(trace.times(0, Kind::Complete), [520, 525, 550]);
}

#[test]
fn one_that_stands_far_from_its_place_begins_the_trace_in_time() {
    // Held back are two: the fifth row is found by the first pass only.
    let mut requests: Vec<Request> = (1..=20).map(|n| request(100 * n, 0, 10, 0)).collect();
    requests.insert(15, request(250, 100, 5000, 0));
    let survey = Survey::with_look_ahead(2);
    let trace = trace_of(survey, Layer::Device, None, &requests);
    let mut expected: Vec<i64> = (1..=20).map(|n| 100 * n).collect();
    expected.insert(1, 150);
    assert_eq!(trace.times(0, Kind::Queue), expected);
    expected.remove(1);
    expected.insert(2, 250);
    assert_eq!(trace.times(0, Kind::Issue), expected);
    assert_eq!(trace.times(0, Kind::Complete).last(), Some(&5250));
    assert!(trace.report.losses.is_empty());
}

#[test]
fn a_tape_in_disorder_is_kept_in_order_and_the_moves_are_counted() {
    // As the second pass meets it when more than the first can keep are out of place.
    let survey = Survey::with_look_ahead(0);
    let devices = [device(Layer::Device)];
    let source = Source {
        devices: &devices,
        ..Source::default()
    };
    let mut schedule = Schedule::new(survey, &source);
    let mut times = Vec::new();
    let mut emit = |event: &Event<'_>| {
        times.push(event.record.time_ns - START_NS);
        Ok(())
    };
    schedule.push(&request(500, 0, 10, 0), &mut emit).unwrap();
    schedule.push(&request(100, 0, 10, 0), &mut emit).unwrap();
    let report = schedule.finish(&mut emit).unwrap();
    assert!(times.is_sorted(), "{times:?}");
    assert_eq!(times.len(), 10);
    let losses: Vec<_> = report.losses.iter().map(|(_, requests)| requests).collect();
    assert_eq!(losses, [1]);
}

#[test]
fn what_was_queued_before_the_tape_begins_the_trace() {
    let anchor = Anchor {
        time_ns: 0,
        wall_ns: 1_700_000_000_000_000_007,
    };
    let requests = [request(10, 300, 50, 0)];
    let trace = trace_of(Survey::new(), Layer::Device, Some(anchor), &requests);
    // 290 ns before the tape's zero.
    let clock = &trace.files[&0][0];
    assert_eq!((clock.0, clock.3.as_str()), (0, "1699999999.999999717"));
    assert_eq!(trace.times(0, Kind::Queue), [0]);
    assert_eq!(trace.times(0, Kind::Issue), [300]);
}

#[test]
fn the_wall_clock_is_that_of_the_start() {
    let clock = |time_ns, wall_ns| {
        let anchor = Anchor { time_ns, wall_ns };
        let trace = trace_of(Survey::new(), Layer::Device, Some(anchor), &[]);
        let lines = trace.files[&0].iter();
        lines.map(|line| line.3.clone()).collect::<Vec<_>>()
    };
    assert_eq!(
        clock(0, 1_700_000_000_000_000_007),
        ["1700000000.000000007"]
    );
    assert_eq!(
        clock(8, 1_700_000_000_000_000_007),
        ["1699999999.999999999"]
    );
    assert!(clock(0, -1).is_empty());
}

#[test]
fn a_process_is_noted_before_its_first_event_and_when_its_name_changes() {
    let of = |time_ns, pid, name: &str| Request {
        process: Some(Process {
            pid,
            name: name.into(),
        }),
        ..request(time_ns, 0, 5, 0)
    };
    let requests = [
        of(10, 7, "sh"),
        of(20, 8, ""),
        of(30, 7, "sh"),
        of(40, 7, "cat"),
    ];
    let trace = trace(Layer::Device, &requests);
    let lines = trace.files[&0].iter();
    let begun: Vec<_> = lines
        .filter(|line| line.1 == "Process" || line.1 == "Queue")
        .map(|line| (line.0, line.2, line.3.as_str()))
        .collect();
    assert_eq!(
        begun,
        [
            (10, 7, "sh"),
            (10, 7, ""),
            (20, 8, ""),
            (30, 7, ""),
            (40, 7, "cat"),
            (40, 7, ""),
        ]
    );
}

#[test]
fn at_the_queue_layer_an_issue_is_added_and_counted() {
    let requests = [
        request(10, 0, 5, 0),
        Request {
            op: Op::Flush,
            flags: Flags::SYNC,
            length_bytes: 0,
            ..request(20, 0, 5, 0)
        },
    ];
    let trace = trace(Layer::Queue, &requests);
    let lines = trace.files[&0].iter();
    let events: Vec<_> = lines.map(|line| (line.0, line.1.as_str())).collect();
    assert_eq!(
        events,
        [
            (10, "Queue"),
            (10, "Issue"),
            (15, "Complete"),
            (20, "Queue"),
            (20, "Issue"),
            (25, "Complete"),
            (25, "Complete"),
        ]
    );
    let additions: Vec<_> = trace
        .report
        .additions
        .iter()
        .map(|(_, count)| count)
        .collect();
    assert_eq!((additions, trace.report.losses.is_empty()), (vec![2], true));
}

#[test]
fn a_request_without_latency_has_no_completion() {
    let requests = [Request {
        latency_ns: None,
        queue_ns: None,
        ..request(10, 0, 0, 0)
    }];
    let trace = trace(Layer::Device, &requests);
    assert_eq!(trace.times(0, Kind::Issue), [10]);
    assert_eq!(trace.times(0, Kind::Queue), [10]);
    assert!(trace.times(0, Kind::Complete).is_empty());
    assert!(trace.report.losses.is_empty());
    assert_eq!(trace.report.additions.iter().count(), 1);
}

#[test]
fn more_in_flight_than_can_be_kept_lose_their_completions() {
    let requests: Vec<Request> = (0..(1 << 18) + 10)
        .map(|n| request(n, 0, 1 << 40, 0))
        .collect();
    let trace = trace(Layer::Device, &requests);
    assert_eq!(trace.times(0, Kind::Issue).len(), (1 << 18) + 10);
    assert_eq!(trace.times(0, Kind::Complete).len(), 1 << 18);
    let losses: Vec<_> = trace
        .report
        .losses
        .iter()
        .map(|(_, requests)| requests)
        .collect();
    assert_eq!(losses, [10]);
}

#[test]
fn times_beyond_64_bits_are_left_out_and_counted() {
    let requests = [
        request(10, 0, u64::MAX, 0),
        request(u64::MAX, 0, 5, 0),
        Request {
            device: DeviceIndex(1),
            ..request(20, 0, 5, 0)
        },
    ];
    let trace = trace(Layer::Device, &requests);
    assert_eq!(trace.times(0, Kind::Issue), [10]);
    assert!(trace.times(0, Kind::Complete).is_empty());
    assert_eq!(trace.report.losses.iter().count(), 3);
}
