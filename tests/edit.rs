//! `iotape edit` against the same operation done to the CSV by a short script.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod common;

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{CSV_HEAD, exported, info_of, run, skip, tape_of_rows};

/// Two devices, four operations, three processes, over two blocks.
fn rows() -> String {
    let mut text = String::new();
    for row in 0..70_000u64 {
        let device = ["sda", "sdb"][usize::from(row % 3 == 0)];
        let op = ["read", "write", "discard", "read"][(row / 7 % 4) as usize];
        let process = ["imap", "smtpd", "lmtp"][(row % 5 % 3) as usize];
        let offset = 10_000_000_000 + row * 7919 % 100_000 * 4096;
        let pid = 100 + row % 5;
        writeln!(
            text,
            "{},{device},{op},,{offset},4096,{},,{pid},{process},0,0",
            row * 1000,
            row % 977
        )
        .unwrap();
        if row % 1000 == 0 {
            writeln!(text, "{},{device},flush,sync,0,0,,,,,,", row * 1000 + 1).unwrap();
        }
    }
    text
}

fn python(operation: &[&str], csv: &str) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/edit_csv.py");
    let mut child = Command::new("python3")
        .arg(script)
        .args(operation)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let csv = csv.to_owned();
    let feed = std::thread::spawn(move || stdin.write_all(csv.as_bytes()));
    let output = child.wait_with_output().unwrap();
    feed.join().unwrap().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

fn edited(tapes: &[&Path], options: &[&str]) -> (PathBuf, String) {
    let output = tapes[0].with_extension("edited");
    let mut args: Vec<&OsStr> = vec![OsStr::new("edit")];
    args.extend(tapes.iter().map(|tape| tape.as_os_str()));
    args.extend([OsStr::new("--force"), OsStr::new("-o"), output.as_os_str()]);
    args.extend(options.iter().map(|option| OsStr::new(*option)));
    run(args).expect(0);
    let csv = exported(&output, "csv");
    (output, csv)
}

fn id(tape: &Path) -> String {
    info_of(tape).expect(0).json()["id"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[test]
fn every_operation_equals_that_of_the_script() {
    if Command::new("python3").arg("--version").output().is_err() {
        return skip("needs python3");
    }
    let folder = tempfile::tempdir().unwrap();
    let rows = rows();
    let tape = tape_of_rows(folder.path(), "original", &rows);
    let csv = format!("{CSV_HEAD}{rows}");
    let cases: [(&[&str], &[&str]); 9] = [
        (
            &["--from", "20ms", "--to", "60ms"],
            &["times", "20000000", "60000000"],
        ),
        (&["--op", "read,flush"], &["op", "read", "flush"]),
        (&["--device", "sdb"], &["device", "sdb"]),
        (&["--process", "imap"], &["process", "imap"]),
        (&["--process", "103"], &["pid", "103"]),
        (
            &["--from-offset", "10000001024", "--to-offset", "10100000256"],
            &["offsets", "10000001024", "10100000256"],
        ),
        (&["--speed", "2.5"], &["speed", "2.5"]),
        (&["--speed", "0.3"], &["speed", "0.3"]),
        (&["--anonymize"], &["anonymize"]),
    ];
    for (options, operation) in cases {
        let (_, edited) = edited(&[&tape], options);
        let expected = python(operation, &csv);
        assert!(
            expected.lines().count() > 100,
            "{operation:?} leaves nothing to compare"
        );
        assert!(edited == expected, "{options:?} differs from {operation:?}");
    }
}

#[test]
fn recompressing_keeps_the_requests_and_saves_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let tape = tape_of_rows(folder.path(), "original", &rows());
    let (smaller, _) = edited(&[&tape], &[]);
    assert_eq!(id(&smaller), id(&tape));
    let bytes = |path: &Path| std::fs::metadata(path).unwrap().len();
    assert!(
        bytes(&smaller) <= bytes(&tape),
        "{} {}",
        bytes(&smaller),
        bytes(&tape)
    );
}

#[test]
fn tapes_without_a_wall_clock_are_not_merged() {
    let folder = tempfile::tempdir().unwrap();
    let one = tape_of_rows(folder.path(), "one", "1,sda,read,,0,512,,,,,,\n");
    let other = tape_of_rows(folder.path(), "other", "1,sda,read,,0,512,,,,,,\n");
    let output = folder.path().join("both.iotape");
    let args = [
        "edit",
        one.to_str().unwrap(),
        other.to_str().unwrap(),
        "-o",
        output.to_str().unwrap(),
    ];
    let ended = run(args).expect(1);
    assert!(
        ended.stderr.contains("no wall-clock anchor"),
        "{}",
        ended.stderr
    );
    assert!(!output.exists());
}

#[test]
fn names_of_control_groups_and_files_outlive_editing_repairing_and_joining() {
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("named.csv");
    let head = CSV_HEAD.trim_end();
    let row = |time: u64, named: &str| format!("{time}000000,sda,read,,4096,512,,,,,,,{named}\n");
    let rows = [
        row(
            1,
            r"/system.slice/postfix.service,\Device\HarddiskVolume2\mail.db",
        ),
        row(2, "7,"),
        row(3, r"/b,\Device\HarddiskVolume2\mail.db"),
        row(4, ",99"),
    ];
    fs::write(&csv, format!("{head},cgroup,file\n{}", rows.concat())).unwrap();
    let tape = folder.path().join("named.iotape");
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    run(["import", &path(&csv), "-o", &path(&tape)]).expect(0);
    let with_names = |tape: &Path| {
        let options = ["--to", "csv", "--with", "cgroup,file"];
        run([&["export", &path(tape)], &options[..]].concat())
            .expect(0)
            .stdout
    };
    let whole = fs::read_to_string(&csv).unwrap();
    assert_eq!(with_names(&tape), whole);

    // Repaired after its end was lost, edited, and joined with itself.
    let torn = folder.path().join("torn.iotape");
    let bytes = fs::read(&tape).unwrap();
    fs::write(&torn, &bytes[..bytes.len() - 30]).unwrap();
    let repaired = folder.path().join("repaired.iotape");
    let repair = ["check", &path(&torn), "--repair", &path(&repaired)].map(str::to_owned);
    run(&repair).expect(3);
    assert_eq!(with_names(&repaired), whole);
    let (cut, _) = edited(&[&repaired], &["--from", "2ms"]);
    let kept: String = rows[1..].concat();
    assert_eq!(with_names(&cut), format!("{head},cgroup,file\n{kept}"));
    let joined = folder.path().join("joined.iotape");
    let both = [fs::read(&cut).unwrap(), fs::read(&cut).unwrap()].concat();
    fs::write(&joined, both).unwrap();
    let text = with_names(&joined);
    assert_eq!(
        text.matches(r"/b,\Device\HarddiskVolume2\mail.db").count(),
        2
    );
    // The cut tape does not even mention what only the first request used.
    assert!(!String::from_utf8_lossy(&fs::read(&cut).unwrap()).contains("postfix"));

    for option in ["--strip-names", "--anonymize"] {
        let (stripped, _) = edited(&[&tape], &[option]);
        let text = with_names(&stripped);
        let ends: Vec<&str> = text
            .lines()
            .skip(1)
            .map(|line| line.rsplit_once(",,").unwrap().1)
            .collect();
        // Numbers that are made from names go with them.
        assert_eq!(ends, ["", "7,", "", ""], "{option}: {text}");
        let bytes = fs::read(&stripped).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains("postfix") && !text.contains("mail.db"));
    }
}
