//! Tapes in other tools' formats, and back: blkparse, btt, iowatcher, btreplay and fio read what
//! `iotape export` writes, and see what is on the tape.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod common;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::recorder::Recorder;
use common::{CSV_HEAD, Ended, LoopDevice, have, have_root_and, run, tool};

/// A row of the CSV.
#[derive(Clone, Debug)]
struct Row {
    time_ns: u64,
    device: String,
    op: &'static str,
    flags: &'static str,
    offset: u64,
    length: u64,
    latency_ns: Option<u64>,
    queue_ns: Option<u64>,
    cpu: u32,
}

impl Row {
    fn csv(&self) -> String {
        let number = |value: Option<u64>| value.map_or_else(String::new, |value| value.to_string());
        let error = match self.latency_ns {
            None => "",
            Some(latency_ns) if latency_ns % 97 == 0 => "5",
            Some(_) => "0",
        };
        let name = ["qemu-kvm", "kworker/0:1", "fifteen_letters"][self.cpu as usize % 3];
        format!(
            "{},\"{}\",{},{},{},{},{},{},{},{name},{},{error}\n",
            self.time_ns,
            self.device,
            self.op,
            self.flags,
            self.offset,
            self.length,
            number(self.latency_ns),
            number(self.queue_ns),
            100 + u64::from(self.cpu) * 10 + self.time_ns % 5,
            self.cpu,
        )
    }

    /// Operation and flags of a D record, in blkparse's letters.
    fn letters(&self) -> String {
        let has = |flag: &str| self.flags.split('+').any(|found| found == flag);
        let operation = match self.op {
            "read" => "R",
            "write" => "W",
            "discard" => "D",
            "flush" => "FN",
            other => panic!("{other}"),
        };
        let mut letters = if has("preflush") { "F" } else { "" }.to_owned();
        letters.push_str(operation);
        let after = [
            ("fua", 'F'),
            ("readahead", 'A'),
            ("sync", 'S'),
            ("meta", 'M'),
        ];
        letters.extend(
            after
                .iter()
                .filter(|(flag, _)| has(flag))
                .map(|(_, letter)| letter),
        );
        letters
    }
}

/// Ten seconds of two devices: about six requests in flight, none of which overlap. Flushes come
/// after five seconds: of those before, an importer cannot know that no other is under way.
fn load(layer: &str) -> Vec<Row> {
    let mut random = 1u64;
    let mut below = move |limit: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % limit
    };
    let journal = match layer {
        "device" => "sync+fua+meta",
        _ => "sync+fua+preflush+meta",
    };
    let rows = (0..2000u64).map(|row| {
        let (op, flags, length) = match row % 10 {
            9 if row > 1000 && row % 50 == 49 => ("flush", "sync", 0),
            0..3 => ("read", "", 4096 << below(5)),
            3 => ("read", "readahead", 131_072),
            4 => ("read", "sync+meta", 1024),
            5 => ("discard", "sync", 262_144),
            6 => ("write", journal, 1024),
            _ => (
                "write",
                ["", "sync"][row as usize % 2],
                512 * (1 + below(128)),
            ),
        };
        let queue_ns = match row % 40 {
            0 => 0,
            21 => 40_000_000,
            _ => below(1_000_000),
        };
        Row {
            time_ns: row * 5_000_000 + if row > 0 { below(1_000_000) } else { 0 },
            device: ["8,16", "8,32"][usize::from(row % 7 == 0)].to_owned(),
            op,
            flags: if op == "flush" && layer == "device" {
                ""
            } else {
                flags
            },
            offset: if op == "flush" { 0 } else { (row + 1) << 20 },
            length,
            latency_ns: (row % 333 != 332).then(|| 20_000 + below(30_000_000)),
            queue_ns: (layer == "device").then_some(queue_ns),
            cpu: [0, 1, 3][below(3) as usize],
        }
    });
    rows.collect()
}

/// Makes a tape of a load; returns it and the CSV.
fn tape_of(folder: &Path, layer: &str, rows: &[Row]) -> (PathBuf, String) {
    let csv: String = rows.iter().map(Row::csv).collect();
    let csv = format!("{CSV_HEAD}{csv}");
    let (from, tape) = (folder.join("load.csv"), folder.join("load.iotape"));
    std::fs::write(&from, &csv).unwrap();
    let args = ["import", text(&from), "-o", text(&tape), "--layer", layer];
    run(args).expect(0);
    (tape, csv)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn export(tape: &Path, to: &str, output: &Path) -> Ended {
    let args = ["export", text(tape), "--to", to, "-o", text(output)];
    run(args).expect(0)
}

/// A tape of one layer as a set of blktrace files.
struct Set {
    folder: tempfile::TempDir,
    rows: Vec<Row>,
    csv: String,
    tape: PathBuf,
    base: PathBuf,
}

impl Set {
    fn of(layer: &str) -> Set {
        let folder = tempfile::tempdir().unwrap();
        let rows = load(layer);
        let (tape, csv) = tape_of(folder.path(), layer, &rows);
        let base = folder.path().join("set");
        let ended = export(&tape, "blktrace", &base);
        let added = ended.stderr.contains("an issue (D) added");
        assert_eq!(added, layer == "queue", "{}", ended.stderr);
        Set {
            folder,
            rows,
            csv,
            tape,
            base,
        }
    }

    fn blkparse(&self, options: &[&str]) -> String {
        let mut args = vec!["-q", "-i", text(&self.base)];
        args.extend(options);
        let printed = tool("blkparse", args);
        let lines = printed
            .lines()
            .filter(|line| !line.starts_with("Input file"));
        lines.map(|line| format!("{line}\n")).collect()
    }
}

/// Requests and sectors per operation.
type Totals = BTreeMap<String, (u64, u64)>;

fn add(totals: &mut Totals, letters: String, sectors: u64) {
    let total = totals.entry(letters).or_default();
    total.0 += 1;
    total.1 += sectors;
}

#[test]
fn blkparse_counts_the_requests_and_sectors_of_the_tape() {
    if !have(&["blkparse"]) {
        return;
    }
    for layer in ["device", "queue"] {
        let set = Set::of(layer);
        let mut issued = Totals::new();
        for line in set.blkparse(&["-f", "%a %d %n\n"]).lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            if let ["D", letters, sectors] = fields[..] {
                add(&mut issued, letters.to_owned(), sectors.parse().unwrap());
            }
        }
        let mut expected = Totals::new();
        for row in &set.rows {
            add(&mut expected, row.letters(), row.length / 512);
        }
        assert_eq!(issued, expected, "{layer}");
    }
}

#[test]
fn the_text_is_that_of_blkparse() {
    if !have(&["blkparse"]) {
        return;
    }
    for layer in ["device", "queue"] {
        let set = Set::of(layer);
        let path = set.folder.path().join("text");
        export(&set.tape, "blkparse", &path);
        let ours = std::fs::read_to_string(path).unwrap();
        let theirs = set.blkparse(&[]);
        // `tool` trims both ends of what was printed.
        assert_eq!(ours.trim(), theirs.trim(), "{layer}");
    }
}

#[test]
fn the_averages_of_btt_are_the_mean_latencies_of_the_tape() {
    if !have(&["blkparse", "btt"]) {
        return;
    }
    for layer in ["device", "queue"] {
        let set = Set::of(layer);
        let dump = set.folder.path().join("dump");
        set.blkparse(&["-O", "-d", text(&dump)]);
        let btt = Command::new("btt")
            .args(["-i", "dump"])
            .current_dir(set.folder.path()) // It leaves files where it runs.
            .output()
            .unwrap();
        let btt = Ended::from(btt).expect(0);
        assert_eq!(btt.stderr, "", "{layer}");
        // btt leaves out what has no data.
        let done: Vec<&Row> = set
            .rows
            .iter()
            .filter(|row| row.length > 0 && row.latency_ns.is_some())
            .collect();
        let mean = |of: &dyn Fn(&Row) -> u64| {
            done.iter().map(|row| of(row)).sum::<u64>() as f64 / done.len() as f64
        };
        let latency = |row: &Row| row.latency_ns.unwrap();
        let expected = [
            ("D2C", mean(&latency)),
            ("Q2C", mean(&|row| latency(row) + row.queue_ns.unwrap_or(0))),
        ];
        for (name, mean_ns) in expected {
            let line = btt.stdout.lines().find(|line| line.starts_with(name));
            let fields: Vec<&str> = line.unwrap().split_whitespace().collect();
            let average_ns = fields[2].parse::<f64>().unwrap() * 1e9;
            // It prints whole nanoseconds.
            assert!(
                (average_ns - mean_ns).abs() <= 1.0,
                "{layer} {name}: {average_ns}, expected {mean_ns}"
            );
            assert_eq!(fields[4], done.len().to_string(), "{layer} {name}");
        }
    }
}

#[test]
fn importing_the_files_gives_the_requests_back() {
    for layer in ["device", "queue"] {
        let set = Set::of(layer);
        let tape = set.folder.path().join("back.iotape");
        let args = [
            "import",
            text(&set.base),
            "-o",
            text(&tape),
            "--layer",
            layer,
        ];
        run(args).expect(0);
        let csv = set.folder.path().join("back.csv");
        export(&tape, "csv", &csv);
        let back = std::fs::read_to_string(csv).unwrap();
        // One without latency stands where it was given up.
        let (csv, back) = (in_order(&set.csv), in_order(&back));
        let different = csv.iter().zip(&back).find(|(row, back)| row != back);
        assert_eq!(different, None, "{layer}");
        assert_eq!(csv.len(), back.len(), "{layer}");
    }
}

/// The lines of a CSV, ordered by time.
fn in_order(csv: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = csv.lines().collect();
    let time = |line: &&str| {
        line.split(',')
            .next()
            .and_then(|time| time.parse::<u64>().ok())
    };
    lines.sort_by_key(time);
    lines
}

#[test]
fn iowatcher_draws_them() {
    if !have(&["blkparse", "iowatcher"]) {
        return;
    }
    let set = Set::of("device");
    let drawn = Command::new("iowatcher")
        .args(["-t", "set", "-o", "set.svg"])
        .current_dir(set.folder.path())
        .output()
        .unwrap();
    Ended::from(drawn).expect(0);
    let svg = std::fs::read_to_string(set.folder.path().join("set.svg")).unwrap();
    assert!(svg.contains("IO Latency") && svg.contains("<path"), "{svg}");
}

#[test]
fn btreplay_replays_them() {
    if !have_root_and(&["losetup", "btrecord", "btreplay"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let device = LoopDevice::new(256 << 20);
    let name = device.name().trim_start_matches("/dev/");
    let row = |row: u64| Row {
        time_ns: row * 1_000_000,
        device: name.to_owned(),
        op: ["read", "write"][row as usize % 2],
        flags: "",
        offset: row << 20,
        length: 4096 << (row % 4),
        latency_ns: Some(100_000),
        queue_ns: Some(10_000),
        cpu: row as u32 % 2,
    };
    let rows: Vec<Row> = (0..200).map(row).collect();
    let (tape, _) = tape_of(folder.path(), "device", &rows);
    export(&tape, "blktrace", &folder.path().join(name));
    let sets = ["-d", text(folder.path())];
    tool(
        "btrecord",
        sets.iter().chain(&["-D", text(folder.path()), name]),
    );
    let seen = folder.path().join("seen.iotape");
    // Of itself, btreplay 1.2.0 hangs about once in ten times, its threads waiting for each other.
    let ended = (0..10).any(|_| {
        let recorder = Recorder::start(device.name(), &seen, &["--layer", "queue", "--force"]);
        let mut btreplay = Command::new("timeout");
        btreplay.args(["--signal=KILL", "10", "btreplay", "-W", "-N"]);
        let status = btreplay.args(sets).arg(name).status().unwrap();
        recorder.stop().expect(0);
        status.success()
    });
    assert!(ended, "btreplay did not come to its end");
    assert_eq!(requests_of(&seen, "btreplay"), expected(&rows));
}

/// How often each operation was done where.
type Multiset = BTreeMap<(String, u64, u64), u64>;

fn expected(rows: &[Row]) -> Multiset {
    let mut all = Multiset::new();
    for row in rows {
        *all.entry((row.op.to_owned(), row.offset, row.length))
            .or_default() += 1;
    }
    all
}

fn requests_of(tape: &Path, process: &str) -> Multiset {
    let mut all = Multiset::new();
    for fields in recorded(tape, process) {
        let number = |at: usize| fields[at].parse().unwrap();
        *all.entry((fields[2].clone(), number(4), number(5)))
            .or_default() += 1;
    }
    all
}

/// The rows of a process, in columns.
fn recorded(tape: &Path, process: &str) -> Vec<Vec<String>> {
    let csv = run(["export", text(tape), "--to", "csv"]).expect(0).stdout;
    let rows = csv.lines().skip(1);
    let fields = rows.map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
    fields.filter(|fields| fields[9] == process).collect()
}

/// Two seconds of a load for fio: a request every 1 to 49 whole milliseconds, with more time behind
/// a flush. No discards: fio 3.33 reads `trim` in a log, prints "bad ddir: 2" and goes on without
/// (its issue 769).
fn spaced(device: &str) -> Vec<Row> {
    let mut at_ms = 0;
    let row = |row: u64| {
        let is_flush = row % 20 == 17;
        let time_ns = at_ms * 1_000_000;
        at_ms += if is_flush { 49 } else { 1 + row * 17 % 49 };
        let op = ["read", "write"][row as usize % 2];
        Row {
            time_ns,
            device: device.to_owned(),
            op: if is_flush { "flush" } else { op },
            flags: "",
            offset: if is_flush { 0 } else { row * 31 % 400 * 65_536 },
            length: if is_flush { 0 } else { 4096 << (row % 4) },
            latency_ns: Some(50_000),
            queue_ns: None,
            cpu: 0,
        }
    };
    (0..80).map(row).collect()
}

/// Plays a log with fio while recording; the time from the first to the last request.
fn played(device: &LoopDevice, log: &Path, seen: &Path, rows: &[Row]) -> u64 {
    let recorder = Recorder::start(device.name(), seen, &["--layer", "queue", "--force"]);
    // With a real-time priority: it is fio's waits that count, not those for a busy machine.
    let fio = Command::new("chrt")
        .args(["--fifo", "10", "fio", "--name=play", "--ioengine=psync"])
        .args(["--direct=1", "--output-format=terse"])
        .arg(format!("--read_iolog={}", log.display()))
        .output()
        .unwrap();
    Ended::from(fio).expect(0);
    recorder.stop().expect(0);
    assert_eq!(requests_of(seen, "fio"), expected(rows));
    let times: Vec<u64> = recorded(seen, "fio")
        .iter()
        .map(|fields| fields[0].parse().unwrap())
        .collect();
    times.iter().max().unwrap() - times.iter().min().unwrap()
}

#[test]
fn fio_does_what_its_log_says_when_it_says() {
    if !have_root_and(&["losetup", "fio", "chrt"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let device = LoopDevice::new(64 << 20);
    let rows = spaced(device.name().trim_start_matches("/dev/"));
    let (tape, _) = tape_of(folder.path(), "queue", &rows);
    let tape_ns = rows.last().unwrap().time_ns;
    for version in ["fio", "fio-v2"] {
        let log = folder.path().join(version);
        export(&tape, version, &log);
        let seen = folder.path().join("seen.iotape");
        let mut off = String::new();
        // The requests must be right each time. Only the time may be another's fault.
        let in_time = (0..8).any(|_| {
            let took_ns = played(&device, &log, &seen, &rows);
            let share = took_ns as f64 / tape_ns as f64 - 1.0;
            writeln!(
                off,
                "{version}: {took_ns} ns for {tape_ns} ns, {:+.3} %",
                share * 100.0
            )
            .unwrap();
            share.abs() < 0.01
        });
        eprint!("{off}");
        assert!(in_time, "{off}");
    }
}

#[test]
fn a_set_is_private_and_replaces_nothing() {
    let set = Set::of("device");
    for cpu in 0..4 {
        let file = set.folder.path().join(format!("set.blktrace.{cpu}"));
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{cpu}");
        assert_eq!(file.metadata().unwrap().len() == 0, cpu == 2, "{cpu}");
    }
    let args = ["export", text(&set.tape), "--to", "blktrace"];
    let unnamed = run(args).expect(2);
    assert!(unnamed.stderr.contains("-o NAME"), "{}", unnamed.stderr);
    // Files of other CPUs would be read as part of the new set.
    let other = set.folder.path().join("other");
    std::fs::write(other.with_extension("blktrace.7"), "kept").unwrap();
    let output = ["-o", text(&other)];
    let refused = run(args.into_iter().chain(output)).expect(1);
    assert!(
        refused.stderr.contains("other.blktrace.7: exists already"),
        "{}",
        refused.stderr
    );
    assert!(!other.with_extension("blktrace.0").exists());
}
