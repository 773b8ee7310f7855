//! Traces of every form, made by the encoder: what is decoded is what was encoded.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::io::Cursor;

use etl_parse::encode::{Encoder, payload, usual_header};
use etl_parse::kernel::{
    DiskFlush, DiskInit, DiskIo, DiskTransfer, KERNEL_DISK, LogDisk, PhyDisk, ProcessInfo,
    Response, ThreadInfo, class, hook,
};
use etl_parse::storport::{self, Completion, Dispatch, ScsiAddress, StorPort};
use etl_parse::{
    ClockType, Compression, Event, EventId, Guid, HeaderKind, LogHeader, PointerWidth, Reader,
};

const COMPRESSIONS: [Option<Compression>; 4] = [
    None,
    Some(Compression::Lznt1),
    Some(Compression::Xpress),
    Some(Compression::XpressHuffman),
];
const WIDTHS: [PointerWidth; 2] = [PointerWidth::Bits32, PointerWidth::Bits64];
const KINDS: [HeaderKind; 6] = [
    HeaderKind::System,
    HeaderKind::Compact,
    HeaderKind::PerfInfo,
    HeaderKind::Full,
    HeaderKind::Instance,
    HeaderKind::Event,
];

/// Addresses that fit pointers of either width.
fn address(width: PointerWidth, number: u64) -> u64 {
    match width {
        PointerWidth::Bits32 => 0x8a00_0000 + 0x40 * number,
        PointerWidth::Bits64 => 0xffff_fa83_0047_e8f0 + 0x40 * number,
    }
}

fn transfer(number: u64, version: u8, width: PointerWidth) -> DiskTransfer {
    DiskTransfer {
        is_write: number.is_multiple_of(3),
        disk: (number % 2) as u32,
        irp_flags: 0x2_0043,
        bytes: 512 << (number % 8),
        offset: 0x12_3456_7000 + number * 4096,
        file_object: address(width, 1000 + number),
        irp: (version >= 2).then(|| address(width, number)),
        response: match version {
            0 => Response::Unknown,
            _ => Response::PerfTicks(777 + (number << 33)),
        },
        thread_id: (version >= 3).then_some(44 + number as u32),
    }
}

fn flush(number: u64, version: u8, width: PointerWidth) -> DiskFlush {
    DiskFlush {
        disk: 1,
        irp_flags: 0x6_0000,
        irp: address(width, number),
        response: Response::PerfTicks(5 + number),
        thread_id: (version >= 3).then_some(45),
    }
}

/// Disk events of a version, with the hooks that say which they are.
fn disk_events(version: u8, width: PointerWidth) -> Vec<(u16, DiskIo, Vec<u8>)> {
    let mut events = Vec::new();
    for number in 0..40 {
        let done = transfer(number, version, width);
        let hook = if done.is_write {
            hook::DISK_WRITE
        } else {
            hook::DISK_READ
        };
        let bytes = payload::disk_transfer(&done, version, width);
        if version >= 2 {
            let init = DiskInit {
                irp: address(width, number),
                thread_id: done.thread_id,
            };
            let bytes = payload::disk_init(&init, version, width);
            let hook = if done.is_write {
                hook::DISK_WRITE_INIT
            } else {
                hook::DISK_READ_INIT
            };
            events.push((hook, DiskIo::Init(init), bytes));
        }
        events.push((hook, DiskIo::Transfer(done), bytes));
        if version >= 2 {
            let done = flush(number, version, width);
            let bytes = payload::disk_flush(&done, version, width);
            events.push((hook::DISK_FLUSH, DiskIo::Flush(done), bytes));
        }
    }
    events
}

/// The id of a disk event behind such a header.
fn id(kind: HeaderKind, hook: u16) -> EventId {
    let event_type = hook as u8;
    match kind {
        HeaderKind::Full | HeaderKind::Instance => EventId::Class {
            class: class::DISK_IO,
            event_type,
        },
        HeaderKind::Event => EventId::Provider {
            provider: class::DISK_IO,
            id: 0,
            opcode: event_type,
            keyword: 0,
        },
        _ => EventId::Kernel { hook },
    }
}

fn event(
    kind: HeaderKind,
    id: EventId,
    version: u8,
    ticks: i64,
    pointers: PointerWidth,
    payload: &[u8],
) -> Event<'_> {
    let has_thread = kind != HeaderKind::PerfInfo;
    Event {
        kind,
        id,
        version,
        ticks: Some(ticks),
        processor: (ticks % 3) as u16,
        process_id: has_thread.then_some(100),
        thread_id: has_thread.then_some(200),
        pointers,
        payload,
        extended: &[],
    }
}

fn written(header: &LogHeader, compression: Option<Compression>, events: &[Event<'_>]) -> Vec<u8> {
    let mut encoder = Encoder::start(Vec::new(), header, compression).unwrap();
    for event in events {
        encoder.push(event).unwrap();
    }
    encoder.finish().unwrap()
}

fn small_buffers(pointers: PointerWidth) -> LogHeader {
    LogHeader {
        buffer_size: 1024,
        pointers,
        start_ticks: 0,
        ..usual_header()
    }
}

/// Reads a trace behind its header event and holds each event against those that were written.
#[track_caller]
fn assert_reads(bytes: Vec<u8>, expected: &[Event<'_>], what: &str) {
    let mut trace = Reader::open(Cursor::new(bytes)).unwrap();
    let first = trace.next_event().unwrap().unwrap();
    assert_eq!(first.hook(), Some(hook::LOG_HEADER), "{what}");
    for expected in expected {
        assert_eq!(
            trace.next_event().unwrap().as_ref(),
            Some(expected),
            "{what}"
        );
    }
    assert_eq!(trace.next_event().unwrap(), None, "{what}");
    assert!(trace.damage().is_none(), "{what}: {:?}", trace.damage());
    assert!(trace.losses().is_none(), "{what}: {:?}", trace.losses());
    assert_eq!(trace.bytes_read(), trace.file_bytes());
}

#[test]
fn disk_events_of_every_version_width_header_and_compression() {
    let mut forms = 0;
    for version in 0..=3 {
        for width in WIDTHS {
            let disk_events = disk_events(version, width);
            for kind in KINDS {
                let events: Vec<Event<'_>> = disk_events
                    .iter()
                    .zip(1_000_000..)
                    .map(|((hook, _, payload), ticks)| {
                        event(kind, id(kind, *hook), version, ticks, width, payload)
                    })
                    .collect();
                for (read, (_, decoded, _)) in events.iter().zip(&disk_events) {
                    assert_eq!(DiskIo::parse(read).as_ref(), Some(decoded));
                }
                for compression in COMPRESSIONS {
                    let what = format!("v{version} {width:?} {kind:?} {compression:?}");
                    let header = small_buffers(width);
                    assert_reads(written(&header, compression, &events), &events, &what);
                    forms += 1;
                }
            }
        }
    }
    assert_eq!(forms, 4 * 2 * 6 * 4);
}

/// By the sizes in Microsoft's documentation and `ntwmi.h`: read and write, flush, Init.
#[test]
fn payloads_have_the_documented_sizes() {
    let sizes = [
        (0, PointerWidth::Bits64, 32, None),
        (1, PointerWidth::Bits64, 40, None),
        (2, PointerWidth::Bits64, 48, Some((24, 8))),
        (3, PointerWidth::Bits64, 52, Some((28, 12))),
        (0, PointerWidth::Bits32, 28, None),
        (1, PointerWidth::Bits32, 36, None),
        (2, PointerWidth::Bits32, 40, Some((20, 4))),
        (3, PointerWidth::Bits32, 44, Some((24, 8))),
    ];
    for (version, width, transfer_bytes, others) in sizes {
        let done = payload::disk_transfer(&transfer(1, version, width), version, width);
        assert_eq!(done.len(), transfer_bytes, "{version} {width:?}");
        let Some((flush_bytes, init_bytes)) = others else {
            continue;
        };
        let flush = payload::disk_flush(&flush(1, version, width), version, width);
        let thread_id = (version >= 3).then_some(1);
        let init = payload::disk_init(&DiskInit { irp: 1, thread_id }, version, width);
        assert_eq!((flush.len(), init.len()), (flush_bytes, init_bytes));
    }
}

/// The bytes of a write of version 3 as a real trace has them, by hand.
#[test]
fn a_write_byte_by_byte() {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&[0x01, 0, 0, 0]); // disk 1
    bytes.extend_from_slice(&[0x43, 0x00, 0x02, 0x00]); // flags
    bytes.extend_from_slice(&[0x00, 0x10, 0, 0]); // 4096 bytes
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&[0x00, 0x70, 0x56, 0x34, 0x12, 0, 0, 0]); // offset
    bytes.extend_from_slice(&[0x50, 0xfc, 0x5f, 0x04, 0xa0, 0xf8, 0xff, 0xff]); // file
    bytes.extend_from_slice(&[0xf0, 0xe8, 0x47, 0x00, 0x83, 0xfa, 0xff, 0xff]); // Irp
    bytes.extend_from_slice(&[0x44, 0x24, 0, 0, 0, 0, 0, 0]); // 9284 ticks
    bytes.extend_from_slice(&[0x2c, 0, 0, 0]); // thread 44
    let id = EventId::Kernel {
        hook: hook::DISK_WRITE,
    };
    let event = event(HeaderKind::PerfInfo, id, 3, 5, PointerWidth::Bits64, &bytes);
    let expected = DiskTransfer {
        is_write: true,
        disk: 1,
        irp_flags: 0x2_0043,
        bytes: 4096,
        offset: 0x12_3456_7000,
        file_object: 0xffff_f8a0_045f_fc50,
        irp: Some(0xffff_fa83_0047_e8f0),
        response: Response::PerfTicks(9284),
        thread_id: Some(44),
    };
    assert_eq!(DiskIo::parse(&event), Some(DiskIo::Transfer(expected)));
    for cut in 0..bytes.len() {
        let event = Event {
            payload: &bytes[..cut],
            ..event
        };
        assert_eq!(DiskIo::parse(&event), Some(DiskIo::Malformed), "{cut}");
    }
    let mut negative = bytes.clone();
    negative[0x17] = 0x80;
    let event = Event {
        payload: &negative,
        ..event
    };
    assert_eq!(DiskIo::parse(&event), Some(DiskIo::Malformed));
}

#[test]
fn events_of_kernel_disk_are_of_version_2() {
    let width = PointerWidth::Bits64;
    let done = transfer(3, 2, width);
    let bytes = payload::disk_transfer(&done, 2, width);
    let id = EventId::Provider {
        provider: KERNEL_DISK,
        id: 11,
        opcode: 0,
        keyword: 0x20,
    };
    let written_event = event(HeaderKind::Event, id, 0, 9, width, &bytes);
    assert_eq!(
        DiskIo::parse_kernel_disk(&written_event),
        Some(DiskIo::Transfer(done))
    );
    assert_eq!(DiskIo::parse(&written_event), None);
    assert_reads(
        written(&small_buffers(width), None, &[written_event]),
        &[written_event],
        "Kernel-Disk",
    );
}

/// The bytes of a dispatch and of its completion, by hand, from the fields of the manifest.
#[test]
fn storport_byte_by_byte() {
    let irp = [0xf0, 0xe8, 0x47, 0x00, 0x83, 0xfa, 0xff, 0xff];
    let mut dispatch = irp.to_vec();
    dispatch.push(0x2a); // WRITE(10)
    dispatch.extend([8, 0, 0, 0, 0, 0, 0, 0]); // blocks
    dispatch.extend([0x00, 0x01, 0x02, 0, 0, 0, 0, 0]); // LBA
    dispatch.extend([0xee; 8]); // OriginalIrp
    dispatch.push(1);
    assert_eq!(dispatch.len(), 34);
    let mut done = vec![0x10, 0x27, 0, 0, 0, 0, 0, 0]; // 1 ms
    done.extend(irp);
    done.extend([0x2a, 0x81]);
    done.extend([0xee; 8]);
    done.extend([4, 3, 2, 1, 0]); // port, bus, target, LUN, ScsiStatus
    done.extend([0x00, 0x10, 0, 0]);
    done.extend([0xdd; 16]);
    assert_eq!(done.len(), 51);
    let dispatched = Dispatch {
        irp: 0xffff_fa83_0047_e8f0,
        command: 0x2a,
        blocks: 8,
        lba: 0x2_0100,
    };
    let completed = Completion {
        duration_100ns: 10_000,
        irp: 0xffff_fa83_0047_e8f0,
        command: 0x2a,
        srb_status: 0x81,
        scsi_status: 0,
        device: ScsiAddress {
            port: 4,
            bus: 3,
            target: 2,
            lun: 1,
        },
        bytes: 4096,
    };
    assert!(completed.is_success());
    for (id, bytes, expected) in [
        (203, dispatch, StorPort::Dispatch(dispatched)),
        (201, done, StorPort::Completion(completed)),
    ] {
        let read = storport_event(id, 2, PointerWidth::Bits64, &bytes);
        assert_eq!(StorPort::parse(&read), Some(expected));
        assert_eq!(DiskIo::parse(&read), None);
        let other = Event { version: 3, ..read };
        assert_eq!(StorPort::parse(&other), Some(StorPort::OtherVersion));
        for cut in 0..bytes.len() {
            let payload = &bytes[..cut];
            let cut_short = Event { payload, ..read };
            assert_eq!(StorPort::parse(&cut_short), Some(StorPort::Malformed));
        }
    }
    for id in [200, 208, 210, 211] {
        let read = storport_event(id, 2, PointerWidth::Bits64, &[0; 64]);
        assert_eq!(StorPort::parse(&read), None, "{id}");
    }
}

#[test]
fn storport_is_written_as_it_is_read() {
    for (width, sizes) in [
        (PointerWidth::Bits64, (34, 51)),
        (PointerWidth::Bits32, (26, 43)),
    ] {
        let dispatch = Dispatch {
            irp: address(width, 5),
            command: 0x88,
            blocks: 1 << 40,
            lba: u64::MAX,
        };
        let done = Completion {
            duration_100ns: 77,
            irp: address(width, 5),
            command: 0x88,
            srb_status: 4,
            scsi_status: 2,
            device: ScsiAddress {
                port: 1,
                bus: 2,
                target: 3,
                lun: 4,
            },
            bytes: u32::MAX,
        };
        let dispatch_bytes = payload::storport_dispatch(&dispatch, width);
        let done_bytes = payload::storport_completion(&done, width);
        assert_eq!((dispatch_bytes.len(), done_bytes.len()), sizes);
        let events = [
            storport_event(202, 2, width, &dispatch_bytes),
            storport_event(201, 2, width, &done_bytes),
        ];
        assert_eq!(
            events.map(|event| StorPort::parse(&event)),
            [
                Some(StorPort::Dispatch(dispatch)),
                Some(StorPort::Completion(done))
            ]
        );
        assert!(!done.is_success());
        assert_reads(
            written(&small_buffers(width), None, &events),
            &events,
            "StorPort",
        );
    }
}

fn storport_event(id: u16, version: u8, width: PointerWidth, payload: &[u8]) -> Event<'_> {
    let id = EventId::Provider {
        provider: storport::PROVIDER,
        id,
        opcode: 0,
        keyword: 0,
    };
    event(HeaderKind::Event, id, version, 9, width, payload)
}

#[test]
fn processes_threads_and_disks_of_every_version() {
    for width in WIDTHS {
        for version in 0..=4 {
            let info = ProcessInfo {
                process_id: 4242,
                image: "sqlservr.exe".to_owned(),
                is_end: false,
            };
            let bytes = payload::process(&info, version, width);
            let id = EventId::Kernel {
                hook: hook::PROCESS_RUNDOWN_START,
            };
            let read = event(HeaderKind::PerfInfo, id, version, 1, width, &bytes);
            assert_eq!(ProcessInfo::parse(&read), Some(info), "{version} {width:?}");
            let info = ThreadInfo {
                thread_id: 12,
                process_id: 34,
            };
            let bytes = payload::thread(&info, version, width);
            let id = EventId::Kernel {
                hook: hook::THREAD_START,
            };
            let read = event(HeaderKind::System, id, version, 1, width, &bytes);
            assert_eq!(ThreadInfo::parse(&read), Some(info), "{version} {width:?}");
        }
        let disk = PhyDisk {
            disk: 3,
            sector_bytes: 4096,
            sectors_per_track: 63,
            tracks_per_cylinder: 255,
            cylinders: 1000,
            address: Some(ScsiAddress {
                port: 2,
                bus: 1,
                target: 9,
                lun: 3,
            }),
            model: "NVMe Übergröße".to_owned(),
            partitions: 4,
            write_cache: true,
        };
        let bytes = payload::phy_disk(&disk, width);
        assert_eq!(bytes.len(), 568);
        let id = EventId::Kernel {
            hook: hook::PHY_DISK,
        };
        let read = event(HeaderKind::System, id, 2, 1, width, &bytes);
        assert_eq!(PhyDisk::parse(&read), Some(disk));
        let partition = LogDisk {
            start_offset: 1 << 20,
            bytes: 1 << 40,
            disk: 3,
            letter: "D:".to_owned(),
        };
        let bytes = payload::log_disk(&partition, width);
        assert_eq!(bytes.len(), 112);
        let id = EventId::Kernel {
            hook: hook::LOG_DISK,
        };
        let read = event(HeaderKind::System, id, 2, 1, width, &bytes);
        assert_eq!(LogDisk::parse(&read), Some(partition));
    }
}

#[test]
fn what_the_trace_says_about_itself() {
    for width in WIDTHS {
        let header = LogHeader {
            events_lost: 41,
            buffers_lost: 3,
            buffers_written: 17,
            ..small_buffers(width)
        };
        let trace = Reader::open(Cursor::new(written(&header, None, &[]))).unwrap();
        assert_eq!(trace.header(), &header);
        assert_eq!((trace.losses().events, trace.losses().buffers), (41, 3));
    }
}

#[test]
fn clocks() {
    // Type, frequency, MHz, ticks of one second.
    let clocks = [
        (1, 3_579_545, 0, 3_579_545, ClockType::PerformanceCounter),
        (2, 3_579_545, 0, 10_000_000, ClockType::SystemTime),
        (3, 3_579_545, 2400, 2_400_000_000, ClockType::CycleCounter),
    ];
    for (clock_type, perf_frequency, cpu_mhz, second, expected) in clocks {
        let header = LogHeader {
            clock_type,
            perf_frequency,
            cpu_mhz,
            ..usual_header()
        };
        let id = EventId::Kernel { hook: 0x0f00 };
        let ticks = header.start_ticks + 5 * second;
        let event = event(HeaderKind::System, id, 0, ticks, PointerWidth::Bits64, &[]);
        let mut trace = Reader::open(Cursor::new(written(&header, None, &[event]))).unwrap();
        trace.next_event().unwrap();
        let ticks = trace.next_event().unwrap().unwrap().ticks.unwrap();
        let clock = trace.clock();
        assert_eq!(clock.clock_type(), expected);
        assert_eq!(clock.since_start_ns(ticks), 5_000_000_000);
        // Responses are in ticks of the performance counter, whatever the clock is.
        assert_eq!(clock.perf_span_ns(3_579_545), Some(1_000_000_000));
        // 132,000,000,600,000,000 * 100 ns after 1601 are 1,555,526,460 s after 1970.
        assert_eq!(clock.start_wall_ns(), 1_555_526_460_000_000_000);
    }
}

#[test]
fn messages_performance_counters_and_extended_items() {
    let guid = Guid::from_bytes(*b"0123456789abcdef");
    let message = Event {
        process_id: Some(7),
        thread_id: Some(8),
        ..event(
            HeaderKind::Message,
            EventId::Message {
                source: Some(guid),
                number: 12,
            },
            0,
            3,
            PointerWidth::Bits64,
            b"arguments",
        )
    };
    // Type 12, one item: length of the traits, name.
    let traits = [0, 0, 12, 0, 0, 0, 7, 0, 7, 0, b'T', b'e', b's', b't', 0, 0];
    let described = Event {
        extended: &traits,
        ..event(
            HeaderKind::Event,
            EventId::Provider {
                provider: guid,
                id: 1,
                opcode: 2,
                keyword: 3,
            },
            4,
            6,
            PointerWidth::Bits32,
            b"payload",
        )
    };
    assert_eq!(described.provider_name().as_deref(), Some("Test"));
    let bytes = written(
        &small_buffers(PointerWidth::Bits64),
        None,
        &[message, described],
    );
    assert_reads(bytes, &[message, described], "message and provider");

    // Two counters and the index of a PEBS record between header and payload.
    let id = EventId::Kernel { hook: 0x0f2e };
    let payload = [[1u8; 24].as_slice(), b"rest"].concat();
    let counted = event(HeaderKind::System, id, 2, 3, PointerWidth::Bits64, &payload);
    let mut bytes = written(&small_buffers(PointerWidth::Bits64), None, &[counted]);
    let version_at = 1024 + 72;
    bytes[version_at + 1] = 0x82;
    let expected = Event {
        payload: b"rest",
        ..counted
    };
    assert_reads(bytes, &[expected], "counters");
}

#[test]
fn the_buffers_of_an_idle_processor_are_merged_from_the_end_of_the_file() {
    let id = EventId::Kernel { hook: 0x0524 };
    let header = small_buffers(PointerWidth::Bits64);
    let mut encoder = Encoder::start(Vec::new(), &header, None).unwrap();
    let mut expected = Vec::new();
    let start = header.start_ticks;
    for number in 0..60_000i64 {
        // Processor 1 has an event now and then, and writes its buffer at the end.
        let idle = number % 10_000 == 0;
        let one = Event {
            processor: u16::from(idle),
            ..event(
                HeaderKind::System,
                id,
                0,
                start + number,
                PointerWidth::Bits64,
                b"",
            )
        };
        encoder.push(&one).unwrap();
        expected.push((start + number, u16::from(idle)));
    }
    let bytes = encoder.finish().unwrap();
    let last_buffer = &bytes[bytes.len() - 1024..];
    assert_eq!(
        last_buffer[0x28], 1,
        "the idle processor's buffer is the last"
    );
    let mut trace = Reader::open(Cursor::new(bytes)).unwrap();
    // More buffers of a processor than a reader keeps places of.
    assert!(trace.buffers() > 1500);
    trace.next_event().unwrap();
    let mut read = Vec::new();
    while let Some(event) = trace.next_event().unwrap() {
        read.push((event.ticks.unwrap(), event.processor));
    }
    assert!(read == expected);
    assert!(trace.damage().is_none() && trace.losses().is_none());
}

#[test]
fn a_circular_file_is_read_from_its_oldest_buffer() {
    let id = EventId::Kernel { hook: 0x0524 };
    let header = LogHeader {
        mode: 2,
        ..small_buffers(PointerWidth::Bits64)
    };
    let start = header.start_ticks;
    let events: Vec<Event<'_>> = (0..2000i64)
        .map(|number| {
            event(
                HeaderKind::System,
                id,
                0,
                start + number,
                PointerWidth::Bits64,
                b"",
            )
        })
        .collect();
    let whole = written(&header, None, &events);
    let buffers: Vec<&[u8]> = whole.chunks(1024).collect();
    // Twenty buffers fit: the newest stand before the oldest of those that are left.
    let kept = &buffers[buffers.len() - 20..];
    let (old, new) = kept.split_at(13);
    let circular = [&[buffers[0]], new, old].concat().concat();
    let mut trace = Reader::open(Cursor::new(circular)).unwrap();
    trace.next_event().unwrap();
    let (mut last, mut count) = (0, 0);
    while let Some(event) = trace.next_event().unwrap() {
        assert!(event.ticks.unwrap() > last);
        (last, count) = (event.ticks.unwrap(), count + 1);
    }
    assert_eq!(last, start + 1999);
    assert!(count > 400, "{count}");
    assert!(
        trace.damage().is_none() && trace.losses().is_none(),
        "{:?}",
        trace.losses()
    );
}
