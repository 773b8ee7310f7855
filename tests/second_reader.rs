//! The command beside the second reader, `format_reader.py`, which was written from docs/format.md
//! alone: both must read the same requests from every tape.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use iotape_formats::Request;
use iotape_formats::tape::{
    Device, Header, Level, Loss, LossReason, NameKind, TapeWriter, name_id,
};

use common::{CSV_HEAD, Ended, have, run, skip};

/// Which numbers of the format are used, by what they number.
type Numbers = BTreeMap<String, BTreeSet<u64>>;

/// What the tapes made here use together: every number that the specification assigns and a writer
/// of this version writes, but for [`ELSEWHERE`].
const USED: [(&str, &[u64]); 14] = [
    ("block_versions", &[1]),
    ("class_bits", &[2, 3, 4]),
    ("codecs", &[0, 1, 3]),
    ("columns", &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
    ("flags", &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 31]),
    ("layouts", &[0, 1, 2, 3, 4]),
    ("opcodes", &[1, 2, 3, 4, 5, 6, 7]),
    ("operations", &[0, 1, 2, 3, 4, 5, 6, 7]),
    ("orders", &[0, 1, 2, 3, 4, 5, 6]),
    ("pco_widths", &[1, 2, 4, 8]),
    ("planes", &[0, 1, 2, 3, 4, 5, 6, 7, 8]),
    ("predictions", &[0, 1, 2]),
    ("presences", &[0, 1]),
    ("signed", &[0, 1]),
];

/// What the specification assigns but the tapes made here cannot be made to use, and why.
const ELSEWHERE: [(&str, &[u64], &str); 1] = [(
    "class_bits",
    &[0, 1],
    "readers know them, this version's writer uses 2 to 4",
)];

#[test]
fn both_readers_read_the_same_from_tapes_that_use_every_number() {
    if !have_second_reader() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut used = Numbers::new();
    for (name, rows) in made_rows() {
        let csv = folder.path().join(format!("{name}.csv"));
        fs::write(&csv, format!("{CSV_HEAD}{rows}")).unwrap();
        for level in ["live", "archive"] {
            let read = same(&import(&[&csv], level), 0, &mut used);
            assert!(
                read == format!("{CSV_HEAD}{rows}"),
                "{name}: not what was written"
            );
        }
    }
    let (tape, csv) = worked_example(folder.path());
    assert_eq!(same(&tape, 0, &mut used), csv);
    same(&cut_off(folder.path()), 3, &mut used);
    for (name, requests) in [("known", Some(3)), ("unknown", None)] {
        let tape = folder.path().join(name).with_extension("iotape");
        fs::write(&tape, with_names_and_losses(requests)).unwrap();
        same(&tape, 0, &mut used);
    }

    for (what, numbers, _) in ELSEWHERE {
        used.entry(what.to_owned())
            .or_default()
            .retain(|number| !numbers.contains(number));
    }
    let all = USED.map(|(what, numbers)| (what.to_owned(), numbers.iter().copied().collect()));
    assert_eq!(used, Numbers::from(all));
}

#[test]
fn both_readers_read_the_same_from_real_traces() {
    if !have_second_reader() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for tape in real_tapes(folder.path()) {
        same(&tape, 0, &mut Numbers::new());
    }
}

#[test]
fn the_second_reader_resumes_behind_damage_and_names_its_place() {
    if !have_second_reader() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let tape = folder.path().join("damaged.iotape");
    let whole = fs::read(worked_example(folder.path()).0).unwrap();
    // Where the worked example's records start, and a byte of each.
    for (record, byte) in [
        (0, 3),
        (8, 40),
        (126, 130),
        (126, 160),
        (235, 500),
        (606, 700),
    ] {
        let mut bytes = whole.clone();
        bytes[byte] ^= 0x10;
        fs::write(&tape, bytes).unwrap();
        same_csv(&tape, 3);
        let told = second_reader(&[], &tape).stderr;
        assert!(
            told.contains(&format!("byte {record}:")),
            "byte {byte}: {told}"
        );
    }
    fs::write(&tape, CSV_HEAD).unwrap();
    assert_eq!(
        (export(&tape).status, second_reader(&[], &tape).status),
        (1, 1)
    );
}

#[test]
fn both_readers_notice_records_that_are_missing_or_astray() {
    if !have_second_reader() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let tape = folder.path().join("damaged.iotape");
    let whole = fs::read(worked_example(folder.path()).0).unwrap();
    // The worked example's header, device and anchor, cut out; its trailer, of 20 bytes, put in.
    let (end, trailer) = (whole.len(), &whole[whole.len() - 20..]);
    for (start, resume, put_in) in [
        (8, 126, &b""[..]),
        (126, 192, b""),
        (192, 235, b""),
        (126, 126, trailer),
        (606, 606, trailer),
        (end, end, trailer),
    ] {
        let bytes = [&whole[..start], put_in, &whole[resume..]].concat();
        fs::write(&tape, bytes).unwrap();
        same_csv(&tape, 3);
    }
}

#[test]
fn both_readers_keep_the_devices_of_tapes_whose_seam_is_lost() {
    if !have_second_reader() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let tape_of = |name: &str, device: &str, from: u64| {
        let rows: String = (0..50)
            .map(|row| format!("{row},{device},read,,{},512,,,,,,\n", from + row * 512))
            .collect();
        let csv = folder.path().join(name);
        fs::write(&csv, format!("{CSV_HEAD}{rows}")).unwrap();
        fs::read(import(&[&csv], "live")).unwrap()
    };
    let (first, second) = (tape_of("1.csv", "sda", 0), tape_of("2.csv", "sdb", 1 << 30));
    let joined = [&first[..], &second].concat();
    let sync = &first[8..16];
    let records: Vec<usize> = second
        .windows(8)
        .enumerate()
        .filter(|(_, bytes)| *bytes == sync)
        .map(|(at, _)| at)
        .collect();
    let tape = folder.path().join("damaged.iotape");
    for start in [first.len() - 150, first.len() - 100, first.len() - 20] {
        for end in &records[..3] {
            let bytes = [&joined[..start], &joined[first.len() + end..]].concat();
            fs::write(&tape, bytes).unwrap();
            let csv = same_csv(&tape, 3);
            let of_second = csv.lines().filter(|row| row.contains(",10737"));
            let names: Vec<&str> = of_second.map(|row| fields::<12>(row, ',')[1]).collect();
            let right = |name: &&str| ["sdb", "undescribed-1"].contains(name);
            assert!(
                names.len() == 50 && names.iter().all(right),
                "{start}, {end}: {names:?}"
            );
        }
    }
}

/// A joined tape whose parts name the same numbers differently, with losses of both versions.
fn with_names_and_losses(requests: Option<u64>) -> Vec<u8> {
    let loss = |requests| Loss {
        from_ns: 10,
        to_ns: 20,
        events: 7,
        requests,
        reason: LossReason::RingFull,
    };
    let part = |group: &str| {
        let device = Device::default();
        let mut writer =
            TapeWriter::create(Vec::new(), &Header::default(), &[device], Level::Live).unwrap();
        writer.loss(loss(Some(4))).unwrap();
        for number in 0..300u64 {
            let file = format!("C:\\a, \"{}\"", number % 40);
            let request = Request {
                time_ns: number,
                length_bytes: 512,
                cgroup: (number % 3 > 0).then_some(number % 3),
                file: (number % 5 > 0).then_some(name_id(&file)),
                ..Request::default()
            };
            writer.push(&request).unwrap();
            if number % 5 > 1 {
                writer.name(NameKind::File, name_id(&file), &file).unwrap();
            }
            if number == 150 {
                writer.close_block().unwrap();
                writer.loss(loss(requests)).unwrap();
                // Too late for the first block.
                writer.name(NameKind::Cgroup, 1, group).unwrap();
            }
        }
        writer.finish().unwrap().0
    };
    [part("/a"), part("/b")].concat()
}

/// Whether the second reader can run; says so when not.
fn have_second_reader() -> bool {
    if !have(&["python3"]) {
        return false;
    }
    let packages = "import pcodec, xxhash, zstandard\n\
                    assert [int(n) for n in zstandard.__version__.split('.')[:2]] >= [0, 22]";
    let status = Command::new("python3")
        .args(["-c", packages])
        .stderr(Stdio::null())
        .status();
    let here = status.unwrap().success();
    if !here {
        skip("needs Python's packages: pip install pcodec xxhash 'zstandard>=0.22'");
    }
    here
}

fn second_reader(options: &[&str], tape: &Path) -> Ended {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/format_reader.py");
    let output = Command::new("python3")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg(script)
        .args(options)
        .arg(tape)
        .stdin(Stdio::null())
        .output();
    output.unwrap().into()
}

fn export(tape: &Path) -> Ended {
    run([
        "export".as_ref(),
        tape.as_os_str(),
        "--to".as_ref(),
        "csv".as_ref(),
    ])
}

/// Asserts that both readers print the same CSV and end with this status; answers with the CSV.
#[track_caller]
fn same_csv(tape: &Path, status: i32) -> String {
    let first = export(tape).expect(status);
    let second = second_reader(&[], tape).expect(status);
    let name = tape.display();
    assert!(first.stdout == second.stdout, "{name}: the CSVs differ");
    let named = run([
        "export".as_ref(),
        tape.as_os_str(),
        "--to".as_ref(),
        "csv".as_ref(),
        "--with".as_ref(),
        "cgroup,file".as_ref(),
    ])
    .expect(status);
    let second = second_reader(&["--with-names"], tape).expect(status);
    assert!(named.stdout == second.stdout, "{name}: the names differ");
    first.stdout
}

/// Asserts that both readers also find the same id and totals, and adds what numbers of the format
/// the tape uses.
#[track_caller]
fn same(tape: &Path, status: i32, used: &mut Numbers) -> String {
    let first = run(["info".as_ref(), tape.as_os_str(), "--json".as_ref()])
        .expect(status)
        .json();
    let second = second_reader(&["--info"], tape).expect(status).json();
    for part in ["id", "requests", "by_op", "lost_events", "lost_requests"] {
        assert_eq!(first[part], second[part], "{part} of {}", tape.display());
    }
    let coverage = second_reader(&["--coverage"], tape).expect(status).stdout;
    for (what, numbers) in serde_json::from_str::<Numbers>(&coverage).unwrap() {
        used.entry(what).or_default().extend(numbers);
    }
    same_csv(tape, status)
}

/// Makes a tape of these files; its name is the first one's.
fn import(files: &[&Path], level: &str) -> PathBuf {
    let tape = files[0].with_extension(format!("{level}.iotape"));
    let options = [
        "--level".as_ref(),
        level.as_ref(),
        "-o".as_ref(),
        tape.as_os_str(),
    ];
    let files = files.iter().map(|file| file.as_os_str());
    run(["import".as_ref()].into_iter().chain(files).chain(options)).expect(0);
    tape
}

/// Random numbers, the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) % limit
    }

    fn of_bytes(&mut self, bytes: u32) -> u64 {
        let bits = self.below(1 << 32) << 32 | self.below(1 << 32);
        bits >> (64 - 8 * bytes)
    }
}

/// Rows as the export writes them, so that together every number of the format is used.
fn made_rows() -> Vec<(String, String)> {
    let mut made: Vec<_> = (0..7)
        .map(|order| (format!("order-{order}"), ordered_rows(order)))
        .collect();
    made.push(("empty".to_owned(), String::new()));
    made.push(("everything".to_owned(), rows_with_everything()));
    made.push(("extremes".to_owned(), extreme_rows()));
    made.push(("uneven".to_owned(), uneven_rows()));
    made
}

/// Each operation, device or process goes on where it was before, so that it pays to take the rows
/// in this order. Latencies have one byte more than the order's number: the lowest is random, the
/// highest regular, which only planes make use of. The least is 0, since it is subtracted.
fn ordered_rows(order: u32) -> String {
    let mut random = Random(u64::from(order));
    let (mut text, mut time) = (String::new(), 0);
    let mut ends = BTreeMap::new();
    for row in 0..600 {
        let [device, op, flag, process] =
            [3, 3, 3, 5].map(|choices| random.below(choices) as usize);
        let stream = match order {
            0 => (0, 0),
            1 => (op, 0),
            2 => (op, flag),
            3 => (device, 0),
            4 => (device, op),
            5 => (process, 0),
            _ => (process, op),
        };
        time += 1000 + random.below(50_000);
        let offset = ends
            .entry(stream)
            .or_insert_with(|| random.below(1 << 30) * 4096);
        let length = [4096, 4096, 8192, 65_536][random.below(4) as usize];
        let lowest = if row == 0 { 0 } else { random.below(256) };
        let latency = (row % 4) << (8 * order) | lowest;
        let (device, op) = (
            ["sda", "sdb", "sdc"][device],
            ["read", "write", "discard"][op],
        );
        let flag = ["", "sync", "meta"][flag];
        writeln!(
            text,
            "{time},{device},{op},{flag},{offset},{length},{latency},,{process},p{process},,"
        )
        .unwrap();
        *offset += length;
    }
    text
}

/// Every operation, flag and column; values that are missing here and there; names that a CSV has
/// to quote.
fn rows_with_everything() -> String {
    const OPS: [&str; 8] = [
        "read",
        "write",
        "flush",
        "discard",
        "write_zeroes",
        "zone_append",
        "zone_reset",
        "other",
    ];
    const FLAGS: [&str; 12] = [
        "",
        "sync",
        "fua",
        "preflush",
        "meta",
        "readahead",
        "background",
        "nowait+paging",
        "atomic",
        "secure",
        "bit10+bit31",
        "sync+fua+meta",
    ];
    const PROCESSES: [&str; 7] = [
        ",",
        "0,swapper/0",
        "7,\"a,b\"",
        "8,\"say \"\"x\"\"\"",
        "9,\"two\nlines\"",
        "10, ümläut ",
        "4294967295,",
    ];
    let mut random = Random(1);
    let mut text = String::new();
    for row in 0..3000 {
        let some = |random: &mut Random, value: u64| match random.below(3) {
            0 => String::new(),
            _ => value.to_string(),
        };
        let (op, flags) = (
            OPS[random.below(8) as usize],
            FLAGS[random.below(12) as usize],
        );
        let process = PROCESSES[random.below(7) as usize];
        let (offset, length) = (random.of_bytes(5), [0, 512, 4096][random.below(3) as usize]);
        let latency = random.below(6) * random.below(20) * random.below(20);
        let (latency, queue) = (some(&mut random, latency), random.of_bytes(8));
        let queue = some(&mut random, queue);
        // Every second row: a bitmap of equal bytes.
        let cpu = if row % 2 == 0 { "3" } else { "" };
        let error = ["", "0", "5", "4294967295"][random.below(4) as usize];
        let (time, device) = (row * 1000, random.below(4));
        writeln!(text, "{time},\"d,{device}\",{op},{flags},{offset},{length},{latency},{queue},{process},{cpu},{error}").unwrap();
    }
    text
}

/// Columns of one, two, four and eight bytes that are mostly the same: less than a bit a number,
/// which only pco makes of them.
fn uneven_rows() -> String {
    let mut random = Random(2);
    let mut text = String::new();
    for row in 0..3000 {
        let mut one_of = |numbers: [u64; 3]| match random.below(16) {
            0 => numbers[2],
            1 => numbers[1],
            _ => numbers[0],
        };
        let latency = one_of([5, 6, 5 + (1 << 32)]);
        let queue = one_of([7, 8, 7 + (1 << 16)]);
        let cpu = one_of([3, 0, 255]);
        let error = one_of([0, 5, 701]);
        writeln!(
            text,
            "{row},sda,read,,0,0,{latency},{queue},,,{cpu},{error}"
        )
        .unwrap();
    }
    text
}

/// The least and the greatest that a request can have.
fn extreme_rows() -> String {
    let max = u64::MAX;
    format!(
        "0,x,write,,0,{max},0,0,0,,0,0\n\
         7,y,read,,1,{},,,,,4294967295,\n\
         {max},x,read,bit31,{max},0,{max},{max},4294967295,z,,4294967295\n",
        max - 1
    )
}

/// A tape of two blocks that was cut off in the second.
fn cut_off(folder: &Path) -> PathBuf {
    let mut rows = String::from(CSV_HEAD);
    for row in 0..66_000u64 {
        let offset = row * 7919 % 100_000 * 4096;
        writeln!(
            rows,
            "{},sda,read,,{offset},4096,{},,7,imap,0,0",
            row * 1000,
            row % 977
        )
        .unwrap();
    }
    let csv = folder.join("cut.csv");
    fs::write(&csv, rows).unwrap();
    let tape = import(&[&csv], "live");
    let bytes = fs::read(&tape).unwrap();
    fs::write(&tape, &bytes[..bytes.len() - 500]).unwrap();
    tape
}

/// The tape and the CSV of the specification's worked example.
fn worked_example(folder: &Path) -> (PathBuf, String) {
    let text = include_str!("../docs/format.md");
    let fenced = |kind: &str| {
        let (_, behind) = text.rsplit_once(&format!("```{kind}\n")).unwrap();
        behind.split_once("```").unwrap().0
    };
    let bytes: Vec<u8> = fenced("hex")
        .lines()
        .flat_map(|line| line[4..].split_whitespace().map_while(hex_byte))
        .collect();
    let tape = folder.join("example.iotape");
    fs::write(&tape, bytes).unwrap();
    (tape, fenced("csv").to_owned())
}

fn hex_byte(word: &str) -> Option<u8> {
    (word.len() == 2)
        .then(|| u8::from_str_radix(word, 16).ok())
        .flatten()
}

/// Tapes of what was recorded on real machines, as far as it is here.
fn real_tapes(folder: &Path) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut tapes = Vec::new();
    let recorded = root.join("traces/mail-server.iotape");
    if recorded.exists() {
        tapes.push(recorded);
    } else {
        eprintln!("skipped: no {}", recorded.display());
    }
    let samples = root.join("../shared/samples");
    if !samples.exists() {
        eprintln!("skipped: no samples in {}", samples.display());
        return tapes;
    }
    for (name, rows) in [
        (
            "mqsim",
            rows_of_mqsim(&samples.join("csv/mqsim-tpcc-small.trace")),
        ),
        (
            "maildir",
            rows_of_maildir(&samples.join("csv/selfcap-maildir-ext4-loop.csv.zst")),
        ),
    ] {
        let csv = folder.join(format!("{name}.csv"));
        fs::write(&csv, format!("{CSV_HEAD}{rows}")).unwrap();
        tapes.extend(["live", "archive"].map(|level| import(&[&csv], level)));
    }
    let trace = ["sda.blktrace.0", "sda.blktrace.1"].map(|name| folder.join(name));
    for file in &trace {
        fs::copy(
            samples.join("blktrace").join(file.file_name().unwrap()),
            file,
        )
        .unwrap();
    }
    tapes.push(import(&[&trace[0], &trace[1]], "archive"));
    tapes
}

/// `time device sector sectors type`, the type 0 for a write and 1 for a read.
fn rows_of_mqsim(trace: &Path) -> String {
    let mut text = String::new();
    for line in fs::read_to_string(trace).unwrap().lines() {
        let [time, device, sector, sectors, kind] = fields(line, ' ');
        let op = if kind == "0" { "write" } else { "read" };
        let [offset, length] = [sector, sectors].map(|number| number.parse::<u64>().unwrap() * 512);
        writeln!(text, "{time},d{device},{op},,{offset},{length},,,,,,").unwrap();
    }
    text
}

/// `time_ns,dev,cpu,pid,comm,rwbs,sector,nr_sectors,latency_ns`; the first 20,000.
fn rows_of_maildir(trace: &Path) -> String {
    let unpack = "import sys, zstandard\n\
                  zstandard.ZstdDecompressor().copy_stream(open(sys.argv[1], 'rb'), sys.stdout.buffer)";
    let csv = common::tool(
        "python3",
        ["-c".as_ref(), unpack.as_ref(), trace.as_os_str()],
    );
    let mut text = String::new();
    for line in csv.lines().skip(1).take(20_000) {
        let [
            time,
            device,
            cpu,
            pid,
            process,
            rwbs,
            sector,
            sectors,
            latency,
        ] = fields(line, ',');
        let op = match rwbs.trim_start_matches('F').chars().next() {
            Some('R') => "read",
            Some('W') => "write",
            _ => "flush",
        };
        let flags = if rwbs.contains('S') { "sync" } else { "" };
        let [offset, length] = [sector, sectors].map(|number| number.parse::<u64>().unwrap() * 512);
        writeln!(
            text,
            "{time},{device},{op},{flags},{offset},{length},{latency},,{pid},{process},{cpu},"
        )
        .unwrap();
    }
    text
}

fn fields<const COUNT: usize>(line: &str, separator: char) -> [&str; COUNT] {
    let fields: Vec<&str> = line.split(separator).collect();
    fields.try_into().unwrap()
}
