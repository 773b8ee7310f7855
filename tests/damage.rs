//! Torn, flipped, empty and foreign tapes, through every command that reads one: an error or a
//! counted warning that names the byte, never a panic, a hang or a wrong row.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod common;

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use common::{Ended, run, tape_of_rows};

/// Rows of a small random-looking load, the same each time.
fn rows(count: u64) -> String {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut text = String::new();
    for row in 0..count {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let (time, offset) = (row * 1000 + (state >> 60), (state >> 40) % 250_000 * 4096);
        let op = if state.is_multiple_of(20) {
            "write"
        } else {
            "read"
        };
        let latency = (state >> 33) % 100_000;
        writeln!(text, "{time},sda,{op},,{offset},4096,{latency},,7,imap,0,0").unwrap();
    }
    text
}

struct Bench {
    folder: tempfile::TempDir,
    original: Vec<u8>,
    rows: HashSet<String>,
}

impl Bench {
    fn new(count: u64) -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let rows = rows(count);
        let tape = tape_of_rows(folder.path(), "original", &rows);
        let original = std::fs::read(tape).unwrap();
        Bench {
            folder,
            original,
            rows: rows.lines().map(str::to_owned).collect(),
        }
    }

    fn write(&self, bytes: &[u8]) -> PathBuf {
        let path = self.folder.path().join("damaged.iotape");
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// Runs all commands on these bytes; answers with how `check` ended.
    fn ordeal(&self, what: &str, bytes: &[u8]) -> Ended {
        let path = self.write(bytes);
        let on_tape = |args: &[&str]| {
            let args = args.iter().map(|arg| {
                if *arg == "TAPE" {
                    path.as_os_str()
                } else {
                    OsStr::new(*arg)
                }
            });
            let ended = run(args);
            assert!(
                [0, 1, 3].contains(&ended.status),
                "{what}: {}\n{}",
                ended.status,
                ended.stderr
            );
            ended
        };
        on_tape(&["info", "TAPE"]);
        let replay = [
            "replay", "TAPE", "--engine", "null", "--depth", "4", "--json",
        ];
        on_tape(&replay);
        let export = on_tape(&["export", "TAPE", "--to", "csv"]);
        let check = on_tape(&["check", "TAPE"]);
        self.only_true_rows(what, &export, &check);
        check
    }

    fn only_true_rows(&self, what: &str, export: &Ended, check: &Ended) {
        let mut seen = 0;
        for row in export.stdout.lines().skip(1) {
            // Where the record that names the device is lost, its requests are not.
            let named = row.replace(",undescribed-0,", ",sda,");
            assert!(
                self.rows.contains(&named),
                "{what}: a row that was never written: {row}"
            );
            seen += 1;
        }
        if export.status == 0 {
            assert_eq!(
                seen,
                self.rows.len(),
                "{what}: rows went missing without a word"
            );
        }
        for ended in [export, check]
            .into_iter()
            .filter(|ended| ended.status != 0)
        {
            let said = format!("{}{}", ended.stdout, ended.stderr);
            assert!(said.contains("byte"), "{what}: no place is named: {said}");
        }
    }
}

#[test]
fn flipped_bits_are_found_and_no_wrong_row_passes() {
    let bench = Bench::new(300);
    let places = 180;
    for place in 0..places {
        let byte = place * bench.original.len() / places;
        let mut bytes = bench.original.clone();
        bytes[byte] ^= 1 << (place % 8);
        let check = bench.ordeal(&format!("bit {} of byte {byte}", place % 8), &bytes);
        assert_ne!(check.status, 0, "a flip in byte {byte} was not found");
    }
}

#[test]
fn torn_tapes_are_read_as_far_as_they_go() {
    let bench = Bench::new(300);
    let places = 100;
    for place in 0..places {
        let length = place * bench.original.len() / places;
        let check = bench.ordeal(&format!("cut at byte {length}"), &bench.original[..length]);
        assert_ne!(check.status, 0, "a cut at byte {length} was not found");
    }
}

#[test]
fn a_torn_tape_of_several_blocks_keeps_the_whole_ones() {
    let bench = Bench::new(140_000);
    let check = bench.ordeal(
        "cut in the last block",
        &bench.original[..bench.original.len() * 24 / 25],
    );
    assert_eq!(check.status, 3, "{}", check.stderr);
    let path = bench.folder.path().join("damaged.iotape");
    let repaired = bench.folder.path().join("repaired.iotape");
    run(words(&[
        "check",
        path.to_str().unwrap(),
        "--repair",
        repaired.to_str().unwrap(),
    ]))
    .expect(3);
    run(words(&["check", repaired.to_str().unwrap()])).expect(0);
    let info = run(words(&["info", repaired.to_str().unwrap(), "--json"]))
        .expect(0)
        .json();
    assert_eq!(
        info["requests"],
        2 * 65_536,
        "two blocks of 65,536 requests are whole"
    );
}

fn words<'a>(words: &[&'a str]) -> Vec<&'a OsStr> {
    words.iter().map(|word| OsStr::new(*word)).collect()
}

#[test]
fn foreign_and_empty_files_are_refused() {
    let bench = Bench::new(10);
    let own_program = std::fs::read(env!("CARGO_BIN_EXE_iotape")).unwrap();
    let doubled: Vec<u8> = bench
        .original
        .iter()
        .flat_map(|byte| [*byte, *byte])
        .collect();
    let foreign: [(&str, &[u8]); 6] = [
        ("empty", b""),
        ("a text", b"time_ns,device,op\n1,sda,read\n"),
        ("zeroes", &[0; 70_000]),
        ("a PNG", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"),
        ("a program", &own_program[..100_000]),
        ("every byte twice", &doubled),
    ];
    for (what, bytes) in foreign {
        let path = bench.write(bytes);
        for verb in ["info", "check", "replay"] {
            let ended = run([OsStr::new(verb), path.as_os_str()]).expect(1);
            assert!(
                ended.stderr.contains("not a tape"),
                "{what}: {}",
                ended.stderr
            );
        }
    }
    refuses_what_is_no_file(bench.folder.path());
}

fn refuses_what_is_no_file(folder: &Path) {
    for path in [folder, &folder.join("missing")] {
        let ended = run([OsStr::new("info"), path.as_os_str()]).expect(1);
        assert!(
            ended.stderr.contains(path.to_str().unwrap()),
            "{}",
            ended.stderr
        );
    }
}
