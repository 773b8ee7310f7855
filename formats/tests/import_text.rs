//! Tables of Windows' tools become tapes with exactly their values.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod common;

use std::fmt::Write as _;

use common::read_back;
use iotape_formats::import::text::{Options, Report, TextFormat, detect, import};
use iotape_formats::tape::{Anchor, Header};
use iotape_formats::{DeviceIndex, Flags, Op, Process, Request};

struct Imported {
    report: Report,
    header: Header,
    anchors: Vec<Anchor>,
    devices: Vec<String>,
    requests: Vec<Request>,
}

fn try_import(text: &[u8], without_offsets: bool) -> Result<Imported, String> {
    let format = detect(&text[..text.len().min(4096)]).expect("a known table");
    let options = Options {
        without_offsets,
        ..Options::default()
    };
    let (bytes, report) = import(text, format, &options, Vec::new(), &mut |_| ())
        .map_err(|error| error.to_string())?;
    let (tape, requests) = read_back(bytes);
    Ok(Imported {
        report,
        header: tape.header().clone(),
        anchors: tape.anchors().to_vec(),
        devices: tape
            .devices()
            .iter()
            .map(|device| device.name.clone())
            .collect(),
        requests,
    })
}

#[track_caller]
fn imported(text: &str) -> Imported {
    try_import(text.as_bytes(), false).unwrap()
}

#[track_caller]
fn error(text: &str) -> String {
    match try_import(text.as_bytes(), false) {
        Ok(_) => panic!("expected an error"),
        Err(error) => error,
    }
}

fn process(pid: u32, name: &str) -> Option<Process> {
    Some(Process {
        pid,
        name: name.into(),
    })
}

/// The header and rows of an Exchange server's trace (SNIA IOTTA), as xperf printed them.
const EXCHANGE: &str = "BeginHeader
               DiskRead,  TimeStamp,     Process Name ( PID),   ThreadID,             IrpPtr,   ByteOffset,     IOSize, ElapsedTime,  DiskNum, IrpFlags, DiskSvcTime, I/O Pri,  VolSnap,         FileObject, FileName
              DiskWrite,  TimeStamp,     Process Name ( PID),   ThreadID,             IrpPtr,   ByteOffset,     IOSize, ElapsedTime,  DiskNum, IrpFlags, DiskSvcTime, I/O Pri,  VolSnap,         FileObject, FileName
           DiskReadInit,  TimeStamp,     Process Name ( PID),   ThreadID,             IrpPtr
              DiskFlush,  TimeStamp,     Process Name ( PID),   ThreadID,             IrpPtr, ElapsedTime,  DiskNum, IrpFlags, DiskSvcTime, I/O Pri
              P-Start,  TimeStamp,     Process Name ( PID),  ParentPID
EndHeader
OS Version: 6.0.6001, Trace Start: 128449568600000000
           DiskReadInit,     718904, p0 (11008),      12260, 0xfffffade691b3010
               DiskRead,     723291, p0 (11008),      12260, 0xfffffade691b3010, 0x4e5ec22e00, 0x00002000,        4388,        4, 0x000901,        4388,       0,  Unknown, 0xfffffade6bd7d7a0, \"Disk6\"
                P-Start,     723292, p1 (12),  4
              DiskWrite,     724000,         System (   4),         44, 0xfffffade691b3010, 0x0000000000, 0x00001000,        1000,        0, 0x000043,        1000, VeryLow,  Unknown, 0xfffffade6bd7d7a0, \"a, b\"
              DiskFlush,     725000,         Unknown (  -1),         44, 0xfffffade691b3010,         500,        0, 0x000004,         500,       0
";

#[test]
fn rows_of_xperf_become_their_requests() {
    let tape = imported(EXCHANGE);
    assert_eq!(tape.devices, ["PhysicalDrive4", "PhysicalDrive0"]);
    let read = Request {
        time_ns: 718_903_000,
        offset_bytes: 0x4e_5ec2_2e00,
        length_bytes: 8192,
        latency_ns: Some(4_388_000),
        process: process(11008, "p0"),
        ..Request::default()
    };
    let write = Request {
        time_ns: 723_000_000,
        device: DeviceIndex(1),
        op: Op::Write,
        flags: Flags::SYNC | Flags::PAGING | Flags::BACKGROUND,
        length_bytes: 4096,
        latency_ns: Some(1_000_000),
        process: process(4, "System"),
        ..Request::default()
    };
    let flush = Request {
        time_ns: 724_500_000,
        device: DeviceIndex(1),
        op: Op::Flush,
        flags: Flags::SYNC,
        latency_ns: Some(500_000),
        ..Request::default()
    };
    assert_eq!(tape.requests, [read, write, flush]);
    assert_eq!(tape.header.backend, "import:xperf");
    assert_eq!(tape.header.clock.resolution_ns, 1000);
    // 128,449,568,600,000,000 * 100 ns after 1601 are 1,200,483,260 s after 1970.
    let anchor = Anchor {
        time_ns: 0,
        wall_ns: 1_200_483_260_000_000_000,
    };
    assert_eq!(tape.anchors, [anchor]);
    // The line of the trace's start and that of a process.
    assert_eq!(tape.report.other_lines, 2);
    assert_eq!(tape.report.summary.counters.unpaired(), 0);
}

/// A dump with the columns in the order of a new or an old xperf, and what it holds.
fn generated(with_cpu: bool) -> (String, Vec<Request>) {
    let cpu_title = if with_cpu { " CPU," } else { "" };
    let mut text = String::from("BeginHeader\n");
    for kind in ["DiskRead", "DiskWrite"] {
        let _ = writeln!(
            text,
            "{kind:>23},  TimeStamp,     Process Name ( PID),   ThreadID,{cpu_title}             IrpPtr,   \
             ByteOffset,     IOSize, ElapsedTime,  DiskNum, IrpFlags, DiskSvcTime, I/O Pri,  VolSnap,         \
             FileObject, FileName"
        );
        let _ = writeln!(
            text,
            "{:>23},  TimeStamp,     Process Name ( PID),   ThreadID,{cpu_title}             IrpPtr",
            format!("{kind}Init")
        );
    }
    text.push_str("EndHeader\n");
    let mut expected = Vec::new();
    for number in 0..500u64 {
        let kind = if number % 4 == 0 {
            "DiskWrite"
        } else {
            "DiskRead"
        };
        let (issue, elapsed) = (1_000 + number * 100, 10 + number % 90);
        let (irp, cpu) = (0xffff_fa80_0000_0000 + number % 7 * 64, number % 16);
        let cpu_field = |cpu: u64| {
            if with_cpu {
                format!("{cpu:>4},")
            } else {
                String::new()
            }
        };
        let _ = writeln!(
            text,
            "{:>23}, {issue:>10}, app{}.exe ({:>4}), {:>10},{} {irp:#018x}",
            format!("{kind}Init"),
            number % 3,
            number % 3,
            900,
            cpu_field(cpu),
        );
        let _ = writeln!(
            text,
            "{kind:>23}, {:>10}, app{}.exe ({:>4}), {:>10},{} {irp:#018x}, {:#012x}, {:#010x}, {elapsed:>11}, \
             {:>8}, {:#08x}, {elapsed:>11}, {:>7},  Unknown, 0xffffe0000, \"C:\\x, y\"",
            issue + elapsed,
            number % 3,
            number % 3,
            900,
            cpu_field(cpu + 1),
            number * 8192,
            512 << (number % 8),
            number % 2,
            0,
            "Normal",
        );
        expected.push(Request {
            time_ns: issue * 1000,
            device: DeviceIndex((number % 2) as u16),
            op: if number % 4 == 0 { Op::Write } else { Op::Read },
            offset_bytes: number * 8192,
            length_bytes: 512 << (number % 8),
            latency_ns: Some(elapsed * 1000),
            process: process((number % 3) as u32, &format!("app{}.exe", number % 3)),
            cpu: with_cpu.then_some(cpu as u32),
            ..Request::default()
        });
    }
    (text, expected)
}

#[test]
fn columns_of_xperf_are_found_by_its_header() {
    for with_cpu in [false, true] {
        let (text, expected) = generated(with_cpu);
        let tape = imported(&text);
        assert_eq!(tape.requests, expected, "with CPU: {with_cpu}");
        assert_eq!(tape.devices, ["PhysicalDrive0", "PhysicalDrive1"]);
        // Windows' line ends.
        assert_eq!(imported(&text.replace('\n', "\r\n")).requests, expected);
    }
}

#[test]
fn lines_of_xperf_that_are_wrong_are_told() {
    let wrong = |from: &str, to: &str| error(&EXCHANGE.replacen(from, to, 1));
    assert_eq!(
        wrong("     723291", "   x723291"),
        "line 10: TimeStamp is \"x723291\": invalid digit found in string"
    );
    assert!(wrong("0x4e5ec22e00", "0x4e5ec2zz00").contains("line 10: ByteOffset is"));
    assert!(wrong("0x4e5ec22e00", "0xffffffffffffffff").contains("64-bit byte range"));
    assert!(wrong("  DiskNum, IrpFlags", "  Disk, IrpFlags").contains("no column named DiskNum"));
    assert!(
        wrong("DiskRead,  TimeStamp", "DiskXead,  TimeStamp").contains("columns are not named")
    );
    let cut = EXCHANGE.split(", \"Disk6\"").next().unwrap();
    let cut = &cut[..cut.len() - 110];
    assert!(error(cut).contains("no column"), "{}", error(cut));
    assert!(error("BeginHeader\nEndHeader\n").contains("no requests in this table (xperf)"));
    let long = format!("{EXCHANGE}DiskRead{}", " ".repeat(70_000));
    assert!(error(&long).contains("too long"));
}

const WPA: &str = "Disk,Process,Thread ID,Path Name,IO Type,Priority,Disk Service Time (µs),IO Time (µs),Size (B),Complete Time (s),Min Offset
0,sqlservr.exe (8876),9468,\"C:\\a, b.mdf\",Write,Normal,5.909,5.909,\"16,384\",1.176567818,\"8,704\"
1,System (4),33868,,Flush,Normal,18.974,18.974,0,1.629490947,0
0,Unknown (-1),1,,Read,Very Low,\"1,234.567\",\"1,234.567\",512,\"1,000.000000001\",0x1f0000000
";

fn wpa_expected() -> [Request; 3] {
    [
        Request {
            time_ns: 1_176_567_818 - 5_909,
            op: Op::Write,
            offset_bytes: 8704,
            length_bytes: 16_384,
            latency_ns: Some(5_909),
            process: process(8876, "sqlservr.exe"),
            ..Request::default()
        },
        Request {
            time_ns: 1_629_490_947 - 18_974,
            device: DeviceIndex(1),
            op: Op::Flush,
            latency_ns: Some(18_974),
            process: process(4, "System"),
            ..Request::default()
        },
        Request {
            time_ns: 1_000_000_000_001 - 1_234_567,
            flags: Flags::BACKGROUND,
            offset_bytes: 0x1_f000_0000,
            length_bytes: 512,
            latency_ns: Some(1_234_567),
            ..Request::default()
        },
    ]
}

/// The same table as a German or French Windows writes it.
fn with_decimal_comma(delimiter: char, thousands: &str) -> String {
    let mut out = String::new();
    for (number, line) in WPA.lines().enumerate() {
        let mut quoted = false;
        for letter in line.chars() {
            match letter {
                '"' => {
                    quoted = !quoted;
                    out.push('"');
                }
                ',' if !quoted => out.push(delimiter),
                ',' if number > 0 && !line.contains("mdf") => out.push_str(thousands),
                '.' if number > 0 && !line.contains("mdf") => out.push(','),
                other => out.push(other),
            }
        }
        out.push_str("\r\n");
    }
    let row = "0;sqlservr.exe (8876);9468;\"C:\\a, b.mdf\";Write;Normal;5,909;5,909;16T384;1,176567818;8T704"
        .replace(';', &delimiter.to_string())
        .replace('T', thousands);
    let lines: Vec<&str> = out.lines().collect();
    // Where the delimiter is a comma, numbers with a comma stand in quotes: not so here.
    [lines[0], &row, lines[2], lines[3], ""].join("\r\n")
}

#[test]
fn rows_of_wpa_are_exact_with_point_and_comma() {
    let tape = imported(WPA);
    assert_eq!(tape.requests, wpa_expected());
    assert_eq!(tape.devices, ["PhysicalDrive0", "PhysicalDrive1"]);
    assert_eq!(
        (tape.header.backend.as_str(), tape.anchors.len()),
        ("import:wpa", 0)
    );
    for delimiter in [';', '\t'] {
        for thousands in [".", "\u{a0}", "\u{202f}", "'"] {
            let text = with_decimal_comma(delimiter, thousands);
            assert_eq!(imported(&text).requests, wpa_expected(), "{text}");
        }
    }
    assert_eq!(imported(&format!("\u{feff}{WPA}")).requests, wpa_expected());
    // As an old code page writes the micro sign.
    let latin1: Vec<u8> = WPA.chars().map(|letter| letter as u8).collect();
    assert_eq!(try_import(&latin1, false).unwrap().requests, wpa_expected());
}

#[test]
fn the_time_of_issue_may_stand_in_a_wpa_table() {
    let text = "Init Time (s);IO Type;Size (B);Min Offset;Complete Time (ms)\n\
                1,000000005;Read;4096;0;1.001,000105\n";
    let tape = imported(text);
    let expected = Request {
        time_ns: 1_000_000_005,
        length_bytes: 4096,
        latency_ns: Some(1_000_100),
        ..Request::default()
    };
    assert_eq!(tape.requests, [expected]);
}

#[test]
fn a_wpa_table_in_any_order_becomes_a_tape_in_the_order_of_time() {
    let mut lines: Vec<&str> = WPA.lines().collect();
    lines[1..].reverse();
    let tape = imported(&lines.join("\n"));
    let times =
        |requests: &[Request]| -> Vec<u64> { requests.iter().map(|one| one.time_ns).collect() };
    assert_eq!(times(&tape.requests), times(&wpa_expected()));
    assert_eq!(tape.report.summary.counters.late, 0);
}

#[test]
fn tables_of_wpa_that_do_not_tell_enough_are_refused() {
    let wrong = |from: &str, to: &str| error(&WPA.replacen(from, to, 1));
    assert!(wrong(",Min Offset", ",Minimum").contains("no column named Min Offset"));
    assert!(wrong("Size (B)", "Size (KB)").contains("no column named Size (B)"));
    assert!(wrong("IO Time (µs)", "IO Time").contains("expected a unit"));
    assert!(wrong("1.176567818", "1.176").contains("expected nine digits"));
    assert!(wrong(",Write,", ",Writ,").contains("line 2: IO Type is \"Writ\""));
    assert!(wrong("5.909,\"16,384\"", "5.9091,\"16,384\"").contains("more digits"));
    let summed = WPA.replacen("Thread ID", "Count", 1);
    assert!(error(&summed).contains("Count is \"9468\": expected 1"));
}

#[test]
fn a_wpa_table_without_offsets_is_taken_when_asked_for() {
    let text = WPA.replacen(",Min Offset", ",Minimum", 1);
    let tape = try_import(text.as_bytes(), true).unwrap();
    let mut expected = wpa_expected();
    for request in &mut expected {
        request.offset_bytes = 0;
    }
    assert_eq!(tape.requests, expected);
    assert!(tape.header.notes[1].contains("the table had no offsets"));
}

#[test]
fn rows_of_msr_become_their_requests() {
    let text = "128166372010810581,mds,0,Write,2654453760,4096,54086\n\
                128166372010800581,mds,1,Read,512,8192,100\n\
                128166372030810582,mds,0,read,0,512,0\n";
    let tape = imported(text);
    let write = Request {
        time_ns: 1_000_000,
        op: Op::Write,
        offset_bytes: 2_654_453_760,
        length_bytes: 4096,
        latency_ns: Some(5_408_600),
        ..Request::default()
    };
    let read = Request {
        device: DeviceIndex(1),
        offset_bytes: 512,
        length_bytes: 8192,
        latency_ns: Some(10_000),
        ..Request::default()
    };
    let last = Request {
        time_ns: 2_001_000_100,
        length_bytes: 512,
        latency_ns: Some(0),
        ..Request::default()
    };
    assert_eq!(tape.requests, [read, write, last]);
    assert_eq!(tape.devices, ["mds_0", "mds_1"]);
    assert_eq!(tape.header.host.as_deref(), Some("mds"));
    // The second row is the first in time: (128166372010800581 - 116444736000000000) * 100.
    let anchor = Anchor {
        time_ns: 0,
        wall_ns: 1_172_163_601_080_058_100,
    };
    assert_eq!(tape.anchors, [anchor]);

    assert_eq!(
        error(&text.replace("Read,512", "Reed,512")),
        "line 2: Type is \"Reed\": expected Read or Write"
    );
    assert!(error(&text.replace(",8192,100", ",8192")).contains("line 2: no column ResponseTime"));
}

#[test]
fn tables_are_told_apart_by_their_first_line() {
    assert_eq!(detect(EXCHANGE.as_bytes()), Some(TextFormat::Xperf));
    assert_eq!(detect(WPA.as_bytes()), Some(TextFormat::Wpa));
    assert_eq!(
        detect(b"128166372010810581,mds,0,Write,0,1,2\n"),
        Some(TextFormat::Msr)
    );
    let others = [
        "time_ns,op,offset_bytes,length_bytes\n1,read,0,1\n",
        "0.000 0 200626176 4096 0\n",
        "1,2,3,4,5,6,7\n",
        "",
        "\0\0\0",
    ];
    for other in others {
        assert_eq!(detect(other.as_bytes()), None, "{other:?}");
    }
}
