//! Windows event traces become tapes. The traces are made in memory, with known values.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod common;

use std::io::Cursor;

use common::read_back;
use etl_parse::encode::{Encoder, payload, usual_header};
use etl_parse::kernel::{
    DiskFlush, DiskInit, DiskTransfer, FileName, KERNEL_DISK, PhyDisk, ProcessInfo, Response,
    ThreadInfo, hook,
};
use etl_parse::storport::{self, Completion, Dispatch, ScsiAddress};
use etl_parse::{Compression, Event, EventId, HeaderKind, LogHeader, PointerWidth};
use iotape_formats::import::etl::{ImportError, Options, Report, import};
use iotape_formats::tape::{
    Anchor, ErrorCodes, Layer, Loss, LossReason, NameKind, TapeReader, name_id,
};
use iotape_formats::{Flags, Op, Process, Request};

/// Ticks of 100 ns from the start of the trace.
const START: i64 = 600_000_000;
const WIDTH: PointerWidth = PointerWidth::Bits64;
/// 132,000,000,600,000,000 * 100 ns after 1601, in ns after 1970.
const START_WALL_NS: i64 = 1_555_526_460_000_000_000;

/// A trace under way, in compressed buffers of 4 KiB.
struct Trace(Encoder<Vec<u8>>);

impl Trace {
    fn new(header: &LogHeader) -> Trace {
        let compression = Some(Compression::Xpress);
        Trace(Encoder::start(Vec::new(), header, compression).unwrap())
    }

    fn push(&mut self, at: i64, hook: u16, version: u8, payload: &[u8]) -> &mut Trace {
        self.event(
            at,
            EventId::Kernel { hook },
            HeaderKind::PerfInfo,
            version,
            payload,
        )
    }

    fn event(
        &mut self,
        at: i64,
        id: EventId,
        kind: HeaderKind,
        version: u8,
        payload: &[u8],
    ) -> &mut Trace {
        let event = Event {
            kind,
            id,
            version,
            ticks: Some(START + at),
            processor: 1,
            process_id: Some(77),
            thread_id: Some(78),
            pointers: WIDTH,
            payload,
            extended: &[],
        };
        self.0.push(&event).unwrap();
        self
    }

    /// An Init of process 77 on processor 1.
    fn init(&mut self, at: i64, irp: u64) -> &mut Trace {
        let init = DiskInit {
            irp,
            thread_id: Some(78),
        };
        let id = EventId::Kernel {
            hook: hook::DISK_WRITE_INIT,
        };
        let payload = payload::disk_init(&init, 3, WIDTH);
        self.event(at, id, HeaderKind::System, 3, &payload)
    }

    fn done(&mut self, at: i64, version: u8, done: &DiskTransfer) -> &mut Trace {
        let hook = if done.is_write {
            hook::DISK_WRITE
        } else {
            hook::DISK_READ
        };
        self.push(
            at,
            hook,
            version,
            &payload::disk_transfer(done, version, WIDTH),
        )
    }

    fn process(&mut self, at: i64, hook: u16, process_id: u32, image: &str) -> &mut Trace {
        let process = ProcessInfo {
            process_id,
            image: image.to_owned(),
            is_end: false,
        };
        self.push(at, hook, 4, &payload::process(&process, 4, WIDTH))
    }

    fn kernel_disk(&mut self, at: i64, id: u16, payload: &[u8]) -> &mut Trace {
        let id = EventId::Provider {
            provider: KERNEL_DISK,
            id,
            opcode: 0,
            keyword: 0x20,
        };
        self.event(at, id, HeaderKind::Event, 0, payload)
    }

    fn finish(self) -> Vec<u8> {
        self.0.finish().unwrap()
    }
}

fn small_header() -> LogHeader {
    LogHeader {
        buffer_size: 4096,
        ..usual_header()
    }
}

fn trace() -> Trace {
    Trace::new(&small_header())
}

/// A write of 4 KiB that took `ticks`.
fn write(irp: u64, offset: u64, ticks: u64) -> DiskTransfer {
    DiskTransfer {
        is_write: true,
        disk: 2,
        irp_flags: 0,
        bytes: 4096,
        offset,
        file_object: 5,
        irp: Some(irp),
        response: Response::PerfTicks(ticks),
        thread_id: Some(900),
    }
}

fn phy_disk(disk: u32, address: Option<ScsiAddress>) -> Vec<u8> {
    let disk = PhyDisk {
        disk,
        sector_bytes: 4096,
        sectors_per_track: 63,
        tracks_per_cylinder: 255,
        cylinders: 10,
        address,
        model: "ACME Disk".to_owned(),
        partitions: 1,
        write_cache: true,
    };
    payload::phy_disk(&disk, WIDTH)
}

struct Imported {
    report: Report,
    tape: TapeReader<Cursor<Vec<u8>>>,
    requests: Vec<Request>,
}

fn try_import(bytes: Vec<u8>) -> Result<Imported, ImportError> {
    let options = Options {
        tool: "test 1".to_owned(),
        ..Options::default()
    };
    import_with(bytes, &options)
}

fn import_with(bytes: Vec<u8>, options: &Options) -> Result<Imported, ImportError> {
    let (bytes, report) = import(Cursor::new(bytes), options, Vec::new(), &mut |_| ())?;
    let (tape, requests) = read_back(bytes);
    assert_eq!(tape.summary(), &report.summary);
    Ok(Imported {
        report,
        tape,
        requests,
    })
}

fn import_of(trace: Trace) -> Imported {
    try_import(trace.finish()).unwrap()
}

fn process(pid: u32, name: &str) -> Option<Process> {
    Some(Process {
        pid,
        name: name.into(),
    })
}

#[test]
fn a_completion_is_a_request_that_was_issued_its_response_earlier() {
    let mut trace = trace();
    trace.process(1, hook::PROCESS_RUNDOWN_START, 77, "imapd.exe");
    trace.init(1000, 0xa0).done(
        1500,
        3,
        &DiskTransfer {
            irp_flags: 0x2_0043,
            ..write(0xa0, 8192, 498)
        },
    );
    let imported = import_of(trace);
    let expected = Request {
        time_ns: 100_200,
        op: Op::Write,
        flags: Flags::SYNC | Flags::PAGING | Flags::BACKGROUND,
        offset_bytes: 8192,
        length_bytes: 4096,
        latency_ns: Some(49_800),
        process: process(77, "imapd.exe"),
        cpu: Some(1),
        ..Request::default()
    };
    assert_eq!(imported.requests, [expected]);
    let report = &imported.report;
    assert_eq!((report.inits_agreed, report.inits_contradicted), (1, 0));
    assert!(
        !report.is_flawed() && report.warnings().is_empty(),
        "{:?}",
        report.warnings()
    );
    let anchor = Anchor {
        time_ns: 0,
        wall_ns: START_WALL_NS,
    };
    assert_eq!(imported.tape.anchors(), [anchor]);
    let header = imported.tape.header();
    assert_eq!(
        (header.backend.as_str(), header.error_codes),
        ("import:etl", ErrorCodes::NtStatus)
    );
    assert_eq!(header.os.as_deref(), Some("Windows 10.0 build 20348"));
    assert_eq!(header.clock.source, "QueryPerformanceCounter");
    assert_eq!(header.clock.resolution_ns, 100);
}

#[test]
fn requests_leave_in_the_order_of_their_issues() {
    let mut trace = trace();
    // The slow one is issued first and done last; a flush is in between.
    let flush = DiskFlush {
        disk: 2,
        irp_flags: 4,
        irp: 0xf0,
        response: Response::PerfTicks(50),
        thread_id: None,
    };
    trace.done(300, 3, &write(1, 0, 10));
    trace.push(
        400,
        hook::DISK_FLUSH,
        2,
        &payload::disk_flush(&flush, 2, WIDTH),
    );
    trace.done(1000, 3, &write(2, 4096, 900));
    let imported = import_of(trace);
    let seen: Vec<(u64, Op, u64, Option<u64>)> = imported
        .requests
        .iter()
        .map(|request| {
            (
                request.time_ns,
                request.op,
                request.offset_bytes,
                request.latency_ns,
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            (10_000, Op::Write, 4096, Some(90_000)),
            (29_000, Op::Write, 0, Some(1_000)),
            (35_000, Op::Flush, 0, Some(5_000)),
        ]
    );
    assert_eq!(imported.requests[2].flags, Flags::SYNC);
}

#[test]
fn disks_have_the_names_and_models_that_the_end_of_the_trace_tells() {
    let mut trace = trace();
    for (at, disk) in [(10, 7), (20, 2), (30, 7)] {
        trace.done(
            at,
            3,
            &DiskTransfer {
                disk,
                ..write(1, 0, 1)
            },
        );
    }
    trace.push(40, hook::PHY_DISK, 2, &phy_disk(2, None));
    let imported = import_of(trace);
    let [first, second] = imported.tape.devices() else {
        panic!()
    };
    assert_eq!(
        (first.name.as_str(), first.layer),
        ("PhysicalDrive7", Layer::Device)
    );
    assert_eq!(
        (first.model.as_deref(), first.logical_sector_bytes),
        (None, None)
    );
    assert_eq!(second.name, "PhysicalDrive2");
    assert_eq!(second.model.as_deref(), Some("ACME Disk"));
    assert_eq!(second.logical_sector_bytes, Some(4096));
    let notes = imported.tape.header().notes.join("\n");
    assert!(
        notes.contains("PhysicalDrive2: at least 658022400 bytes, write cache on"),
        "{notes}"
    );
    let devices: Vec<u16> = imported
        .requests
        .iter()
        .map(|request| request.device.0)
        .collect();
    assert_eq!(devices, [0, 1, 0]);
}

#[test]
fn who_asked_is_told_by_the_init_or_else_by_the_thread() {
    let mut trace = trace();
    let thread = ThreadInfo {
        thread_id: 900,
        process_id: 55,
    };
    trace.push(
        1,
        hook::THREAD_START,
        3,
        &payload::thread(&thread, 3, WIDTH),
    );
    trace.init(10, 0xa).done(20, 3, &write(0xa, 0, 10));
    // No Init; one that is of an earlier use of the packet; no thread.
    trace.done(30, 3, &write(0xb, 1, 5));
    trace.init(40, 0xc).done(90_000, 3, &write(0xc, 2, 7));
    trace.done(
        90_010,
        3,
        &DiskTransfer {
            thread_id: Some(901),
            ..write(0xd, 3, 5)
        },
    );
    // A process that is named only when the trace ends.
    trace.process(90_020, hook::PROCESS_RUNDOWN_END, 55, "sqlservr.exe");
    let imported = import_of(trace);
    let processes: Vec<Option<Process>> = imported
        .requests
        .iter()
        .map(|request| request.process.clone())
        .collect();
    let by_thread = process(55, "sqlservr.exe");
    assert_eq!(
        processes,
        [process(77, ""), by_thread.clone(), by_thread, None]
    );
    let cpus: Vec<Option<u32>> = imported
        .requests
        .iter()
        .map(|request| request.cpu)
        .collect();
    assert_eq!(cpus, [Some(1), None, None, None]);
    let report = &imported.report;
    assert_eq!((report.inits_agreed, report.inits_contradicted), (1, 1));
}

#[test]
fn versions_without_a_response_keep_what_they_have() {
    let mut trace = trace();
    trace.done(10, 0, &write(0, 512, 0));
    trace.done(30, 1, &write(0, 1024, 20));
    let imported = import_of(trace);
    let seen: Vec<(u64, Option<u64>)> = imported
        .requests
        .iter()
        .map(|request| (request.time_ns, request.latency_ns))
        .collect();
    assert_eq!(seen, [(1000, None), (1000, Some(2000))]);
    assert_eq!(imported.report.without_latency, 1);
}

#[test]
fn a_response_beyond_belief_is_left_empty() {
    let mut trace = trace();
    trace.init(10, 1).done(30, 3, &write(1, 0, u64::MAX));
    trace.done(50, 3, &write(2, 4096, 40 * 10_000_000 * 3600));
    let imported = import_of(trace);
    let seen: Vec<(u64, Option<u64>)> = imported
        .requests
        .iter()
        .map(|request| (request.time_ns, request.latency_ns))
        .collect();
    // The first has an Init, which tells when it was issued.
    assert_eq!(seen, [(1000, Some(2000)), (5000, None)]);
    assert_eq!(imported.report.without_latency, 1);
}

#[test]
fn the_tape_begins_with_the_first_issue_even_before_the_trace() {
    let mut trace = trace();
    trace.done(100, 3, &write(1, 0, 300));
    trace.done(200, 3, &write(2, 4096, 50));
    trace.done(15_000_000, 3, &write(4, 0, 10));
    // Much later, one that was issued even earlier.
    trace.done(30_000_000, 3, &write(3, 8192, 30_005_000));
    let imported = import_of(trace);
    let seen: Vec<(u64, Option<u64>)> = imported
        .requests
        .iter()
        .map(|request| (request.time_ns, request.latency_ns))
        .collect();
    let expected = [
        (0, Some(30_000)),
        (35_000, Some(5_000)),
        (0, None),
        (1_500_019_000, Some(1_000)),
    ];
    assert_eq!(seen, expected);
    let anchor = Anchor {
        time_ns: 0,
        wall_ns: START_WALL_NS - 20_000,
    };
    assert_eq!(imported.tape.anchors(), [anchor]);
    assert_eq!(
        (
            imported.report.before_zero,
            imported.report.summary.counters.late
        ),
        (1, 1)
    );
}

#[test]
fn losses_are_in_the_tape() {
    let header = LogHeader {
        events_lost: 41,
        buffers_lost: 2,
        ..small_header()
    };
    let mut trace = Trace::new(&header);
    trace
        .done(100, 3, &write(1, 0, 50))
        .done(5000, 3, &write(2, 0, 50));
    let imported = import_of(trace);
    let loss = |events, reason| Loss {
        from_ns: 0,
        to_ns: 500_000,
        events,
        requests: None,
        reason,
    };
    let expected = [
        loss(41, LossReason::RingFull),
        loss(2, LossReason::SequenceGap),
    ];
    assert_eq!(imported.tape.losses(), expected);
    assert_eq!(imported.report.summary.counters.lost_events, 43);
    assert!(imported.report.is_flawed());
    assert_eq!(
        imported.report.warnings(),
        ["the session lost 41 events", "the session lost 2 buffers"]
    );
}

#[test]
fn what_contradicts_itself_is_counted() {
    let mut trace = trace();
    let offset = DiskTransfer {
        offset: i64::MAX as u64,
        bytes: 512,
        ..write(1, 0, 1)
    };
    trace.done(10, 3, &offset).done(20, 3, &write(2, 0, 1));
    trace.push(30, hook::DISK_READ, 3, &[0; 20]);
    trace.init(40, 9);
    let imported = import_of(trace);
    // An offset at the end of 63 bits is odd, but a range.
    assert_eq!(imported.requests.len(), 2);
    assert_eq!(
        (imported.report.malformed, imported.report.unfinished),
        (1, 1)
    );
    let counters = imported.report.summary.counters;
    assert_eq!((counters.undecodable, counters.unpaired_issues), (1, 1));
}

#[test]
fn kernel_disk_is_read_where_the_kernel_logger_is_not() {
    let width = WIDTH;
    let bytes = payload::disk_transfer(&write(1, 4096, 30), 2, width);
    let mut alone = trace();
    alone.kernel_disk(50, 11, &bytes);
    let imported = import_of(alone);
    let [request] = &imported.requests[..] else {
        panic!()
    };
    assert_eq!((request.time_ns, request.latency_ns), (2000, Some(3000)));
    assert_eq!((request.op, request.process.as_ref()), (Op::Write, None));

    let mut both = trace();
    both.kernel_disk(50, 11, &bytes);
    both.done(50, 3, &write(1, 4096, 30));
    let imported = import_of(both);
    assert_eq!(
        (imported.requests.len(), imported.report.other_source),
        (1, 1)
    );
}

#[test]
fn kernel_disk_tells_of_reads_and_flushes_too() {
    let read = DiskTransfer {
        is_write: false,
        ..write(3, 8192, 20)
    };
    let flush = DiskFlush {
        disk: 2,
        irp_flags: 0,
        irp: 4,
        response: Response::PerfTicks(7),
        thread_id: None,
    };
    let mut alone = trace();
    alone.kernel_disk(50, 10, &payload::disk_transfer(&read, 2, WIDTH));
    alone.kernel_disk(60, 14, &payload::disk_flush(&flush, 2, WIDTH));
    let imported = import_of(alone);
    let seen: Vec<_> = imported
        .requests
        .iter()
        .map(|request| (request.op, request.time_ns, request.latency_ns))
        .collect();
    assert_eq!(
        seen,
        [(Op::Read, 3000, Some(2000)), (Op::Flush, 5300, Some(700))]
    );
}

const AT: ScsiAddress = ScsiAddress {
    port: 3,
    bus: 0,
    target: 1,
    lun: 2,
};

impl Trace {
    fn storport(&mut self, at: i64, id: u16, version: u8, payload: &[u8]) -> &mut Trace {
        let id = EventId::Provider {
            provider: storport::PROVIDER,
            id,
            opcode: 0,
            keyword: 0x70_0000,
        };
        self.event(at, id, HeaderKind::Event, version, payload)
    }

    fn dispatch(&mut self, at: i64, irp: u64, command: u8, blocks: u64, lba: u64) -> &mut Trace {
        let dispatch = Dispatch {
            irp,
            command,
            blocks,
            lba,
        };
        self.storport(at, 203, 2, &payload::storport_dispatch(&dispatch, WIDTH))
    }

    fn complete(&mut self, at: i64, done: &Completion) -> &mut Trace {
        self.storport(at, 201, 2, &payload::storport_completion(done, WIDTH))
    }
}

/// WRITE(10) of 4 KiB that took 100 ticks.
fn completion(irp: u64) -> Completion {
    Completion {
        duration_100ns: 100,
        irp,
        command: 0x2a,
        srb_status: 1,
        scsi_status: 0,
        device: AT,
        bytes: 4096,
    }
}

#[test]
fn storport_is_read_where_nobody_else_tells_of_disks() {
    let mut trace = trace();
    // Queued for 50 ticks, then 100 below; a read in 16-byte form; a flush, which has no dispatch.
    trace
        .dispatch(850, 1, 0x2a, 8, 100)
        .complete(1000, &completion(1));
    let read = Completion {
        command: 0x88,
        bytes: 65_536,
        srb_status: 0x81,
        ..completion(2)
    };
    trace
        .dispatch(1900, 2, 0x88, 128, 1 << 40)
        .complete(2000, &read);
    let flush = Completion {
        command: 0x35,
        bytes: 0,
        ..completion(3)
    };
    trace.complete(3000, &flush);
    // Failed: the block's size is known by now.
    let failed = Completion {
        srb_status: 4,
        scsi_status: 2,
        bytes: 0,
        ..completion(4)
    };
    trace.dispatch(3900, 4, 0x2a, 16, 8).complete(4000, &failed);
    let imported = import_of(trace);
    let request = |time_ns, op, offset_bytes, length_bytes, error| Request {
        time_ns,
        op,
        offset_bytes,
        length_bytes,
        latency_ns: Some(10_000),
        error,
        ..Request::default()
    };
    let expected = [
        request(90_000, Op::Write, 51_200, 4096, Some(0)),
        request(190_000, Op::Read, 512 << 40, 65_536, Some(0)),
        request(290_000, Op::Flush, 0, 0, Some(0)),
        request(390_000, Op::Write, 4096, 8192, None),
    ];
    assert_eq!(imported.requests, expected);
    let [device] = imported.tape.devices() else {
        panic!()
    };
    assert_eq!(device.name, "Scsi3:0:1:2");
    let report = &imported.report;
    assert_eq!((report.storport.failed, report.other_source), (1, 0));
    let notes = imported.tape.header().notes.join("\n");
    assert!(notes.contains("Microsoft-Windows-StorPort"), "{notes}");
}

#[test]
fn a_storport_device_is_the_disk_at_its_address() {
    let elsewhere = ScsiAddress { lun: 0, ..AT };
    for (others, name) in [
        (vec![], "PhysicalDrive7"),
        (vec![(8, elsewhere)], "PhysicalDrive7"),
        (vec![(8, AT)], "Scsi3:0:1:2"),
    ] {
        let mut trace = trace();
        trace
            .dispatch(900, 1, 0x2a, 1, 5)
            .complete(1000, &completion(1));
        trace.push(1100, hook::PHY_DISK, 2, &phy_disk(7, Some(AT)));
        for (disk, address) in others {
            trace.push(1100, hook::PHY_DISK, 2, &phy_disk(disk, Some(address)));
        }
        let imported = import_of(trace);
        let device = &imported.tape.devices()[0];
        assert_eq!(device.name, name);
        let is_known = name.starts_with("Physical");
        assert_eq!(device.model.as_deref(), is_known.then_some("ACME Disk"));
        assert_eq!(imported.requests[0].offset_bytes, 5 * 4096);
    }
}

#[test]
fn what_storport_does_not_tell_is_counted() {
    let mut trace = trace();
    trace
        .dispatch(900, 1, 0x2a, 8, 0)
        .complete(1000, &completion(1));
    // No dispatch; one of another command; one that came after the issue; INQUIRY; a length that
    // contradicts; a version 3; a dispatch that does not end; a packet used again.
    trace.complete(2000, &completion(2));
    trace
        .dispatch(2900, 3, 0x28, 8, 0)
        .complete(3000, &completion(3));
    let slow = Completion {
        duration_100ns: 20_000,
        ..completion(4)
    };
    trace
        .dispatch(23_900, 4, 0x2a, 8, 0)
        .complete(24_000, &slow);
    let inquiry = Completion {
        command: 0x12,
        ..completion(5)
    };
    trace.complete(25_000, &inquiry);
    trace
        .dispatch(25_900, 6, 0x2a, 16, 0)
        .complete(26_000, &completion(6));
    trace.storport(
        27_000,
        201,
        3,
        &payload::storport_completion(&completion(7), WIDTH),
    );
    trace.storport(27_000, 201, 2, &[0; 50]);
    trace
        .dispatch(28_000, 8, 0x2a, 8, 0)
        .dispatch(28_001, 8, 0x2a, 8, 0);
    let imported = import_of(trace);
    assert_eq!(imported.requests.len(), 1);
    let report = &imported.report;
    let counts = report.storport;
    assert_eq!(
        (
            counts.without_place,
            counts.other_commands,
            counts.malformed
        ),
        (3, 1, 2)
    );
    assert_eq!((counts.other_version, counts.unfinished), (1, 2));
    assert!(report.is_flawed());
    let counters = report.summary.counters;
    assert_eq!(counters.unpaired_completions, 3);
    assert_eq!(counters.unpaired_issues, 2);
    assert_eq!(counters.undecodable, 3);
}

#[test]
fn a_request_is_not_taken_from_two_sources() {
    let bytes = payload::disk_transfer(&write(1, 4096, 30), 2, WIDTH);
    let storport = |trace: &mut Trace| {
        trace
            .dispatch(900, 1, 0x2a, 8, 8)
            .complete(1000, &completion(1));
    };
    let mut three = trace();
    storport(&mut three);
    three.kernel_disk(1000, 11, &bytes);
    three.done(1001, 3, &write(1, 4096, 30));
    let imported = import_of(three);
    assert_eq!(imported.requests.len(), 1);
    assert_eq!(imported.requests[0].latency_ns, Some(3000));
    assert_eq!(imported.report.other_source, 3);

    let mut two = trace();
    storport(&mut two);
    two.kernel_disk(1000, 11, &bytes);
    let imported = import_of(two);
    assert_eq!(imported.requests.len(), 1);
    assert_eq!(imported.requests[0].latency_ns, Some(3000));
    assert_eq!(imported.report.other_source, 2);
}

#[test]
fn storport_without_places_makes_no_tape_and_says_why() {
    let mut trace = trace();
    trace
        .complete(1000, &completion(1))
        .complete(2000, &completion(2));
    let Err(error) = try_import(trace.finish()) else {
        panic!()
    };
    let text = error.to_string();
    assert!(
        text.contains("2 completions (event 201) lack a dispatch (202 to 207)"),
        "{text}"
    );
}

#[test]
fn a_trace_without_disk_io_says_what_it_holds() {
    let header = LogHeader {
        events_lost: 5,
        ..small_header()
    };
    let mut trace = Trace::new(&header);
    trace
        .process(10, hook::PROCESS_START, 1, "a")
        .process(20, hook::PROCESS_START, 2, "b");
    let Err(error) = try_import(trace.finish()) else {
        panic!()
    };
    let text = error.to_string();
    assert!(
        text.starts_with(
            "no disk I/O in this file: it holds 3 events: 2 of the kernel's Process, 1 of the \
             kernel's EventTrace; its session lost 5 events."
        ),
        "{text}"
    );
}

/// Key 1 is a file that was there; key 2 becomes another one; of key 3 the end says nothing that the
/// beginning can take.
#[test]
fn requests_tell_the_files_that_the_trace_names_if_that_is_asked_for() {
    for pointers in [PointerWidth::Bits32, PointerWidth::Bits64] {
        let header = LogHeader {
            pointers,
            ..small_header()
        };
        let mut trace = Trace::new(&header);
        let put = |trace: &mut Trace, at, hook, version, payload: &[u8]| {
            let event = Event {
                kind: HeaderKind::PerfInfo,
                id: EventId::Kernel { hook },
                version,
                ticks: Some(START + at),
                processor: 1,
                process_id: None,
                thread_id: None,
                pointers,
                payload,
                extended: &[],
            };
            trace.0.push(&event).unwrap();
        };
        let file = |trace: &mut Trace, at, hook, key, name: &str| {
            let name = FileName {
                key,
                name: name.to_owned(),
                begins: false,
            };
            put(trace, at, hook, 2, &payload::file_name(&name, pointers));
        };
        let done = |trace: &mut Trace, at, key| {
            let done = DiskTransfer {
                file_object: key,
                ..write(0xa0 + at as u64, at as u64 * 4096, 1)
            };
            let payload = payload::disk_transfer(&done, 3, pointers);
            put(trace, at, hook::DISK_WRITE, 3, &payload);
        };
        for key in 1..5 {
            done(&mut trace, 10 + key as i64, key);
        }
        file(&mut trace, 20, hook::FILE_DELETE, 2, r"\D\old");
        file(&mut trace, 21, hook::FILE_CREATE, 2, "\\D\\new \u{e9}");
        file(&mut trace, 22, hook::FILE_CREATE, 3, r"\D\made");
        for key in 1..5 {
            done(&mut trace, 30 + key as i64, key);
        }
        file(&mut trace, 40, hook::FILE_RUNDOWN, 1, r"\D\there");
        file(&mut trace, 41, hook::FILE_RUNDOWN, 2, "\\D\\new \u{e9}");
        file(&mut trace, 42, hook::FILE_RUNDOWN, 3, r"\D\made");
        let bytes = trace.finish();

        let silent = try_import(bytes.clone()).unwrap();
        assert!(silent.requests.iter().all(|request| request.file.is_none()));
        assert!(silent.tape.names().is_empty());

        let options = Options {
            file_names: true,
            ..Options::default()
        };
        let imported = import_with(bytes, &options).unwrap();
        let names: Vec<Option<&str>> = imported
            .requests
            .iter()
            .map(|request| {
                let name = imported.tape.names().get(NameKind::File, request.file?)?;
                assert_eq!(name_id(name), request.file?);
                Some(&**name)
            })
            .collect();
        // Key 2 is of two files: which was the first, only its deletion tells, behind the requests.
        let expected = [
            Some(r"\D\there"),
            None,
            None,
            None,
            Some(r"\D\there"),
            Some("\\D\\new \u{e9}"),
            Some(r"\D\made"),
            None,
        ];
        assert_eq!(names, expected, "{pointers:?}");
        let report = &imported.report;
        assert_eq!((report.named_files, report.unnamed_files), (4, 4));
        assert_eq!(report.summary.id, silent.report.summary.id);
    }
}
