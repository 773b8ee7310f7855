//! blktrace's files through the command, beside blkparse on the same files.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use common::{have, run, tool};
use serde_json::Value;

/// Requests and sectors per operation, in blkparse's letters.
type Totals = BTreeMap<String, (u64, u64)>;

fn samples() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/samples/blktrace");
    if folder.is_dir() {
        return Some(folder);
    }
    // They are not part of the repository.
    eprintln!("skipped: no samples in {}", folder.display());
    None
}

fn add(totals: &mut Totals, letters: String, sectors: u64) {
    let total = totals.entry(letters).or_default();
    total.0 += 1;
    total.1 += sectors;
}

/// What blkparse says of one action.
fn by_blkparse(set: &Path, action: &str) -> Totals {
    let text = tool(
        "blkparse",
        ["-i", set.to_str().unwrap(), "-f", "%a %d %n\n"],
    );
    let mut totals = Totals::new();
    for line in text.lines() {
        if let [found, letters, sectors] = line.split(' ').collect::<Vec<_>>()[..]
            && found == action
        {
            add(&mut totals, letters.to_owned(), sectors.parse().unwrap());
        }
    }
    totals
}

/// What the tape says of its requests.
fn by_iotape(first_file: &Path, layer: &str) -> Totals {
    let tape = first_file.with_extension(layer);
    let (from, to) = (first_file.to_str().unwrap(), tape.to_str().unwrap());
    run(["import", from, "-o", to, "--layer", layer]).expect(0);
    let lines = run(["export", to, "--to", "jsonl"]).expect(0).stdout;
    let mut totals = Totals::new();
    for line in lines.lines() {
        let request: Value = serde_json::from_str(line).unwrap();
        let flags = request["flags"].as_str().unwrap_or_default();
        let letters = letters(request["op"].as_str().unwrap(), flags);
        let length_bytes = request["length_bytes"].as_u64().unwrap();
        add(&mut totals, letters, length_bytes / 512);
    }
    totals
}

/// Operation and flags as blkparse writes them.
fn letters(op: &str, flags: &str) -> String {
    let has = |flag: &str| flags.split('+').any(|found| found == flag);
    let mut letters = match op {
        "read" => "R",
        "write" => "W",
        "discard" => "D",
        "flush" => "FN",
        other => panic!("{other}"),
    }
    .to_owned();
    if has("preflush") {
        letters.insert(0, 'F');
    }
    for (flag, letter) in [
        ("fua", 'F'),
        ("readahead", 'A'),
        ("sync", 'S'),
        ("meta", 'M'),
    ] {
        if has(flag) {
            letters.push(letter);
        }
    }
    letters
}

#[test]
fn requests_and_sectors_per_operation_equal_blkparse() {
    let Some(samples) = samples() else { return };
    if !have(&["blkparse"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let copy = |from: &str, to: &str| {
        fs::copy(samples.join(from), folder.path().join(to)).unwrap();
    };
    copy("sda.blktrace.0", "sda.blktrace.0");
    copy("sda.blktrace.1", "sda.blktrace.1");
    // blkparse drops records whose CPU is not that of their file, and wants the files before it.
    copy("sample-cpu-mismatch.blktrace.0", "mismatch.blktrace.1");
    fs::write(folder.path().join("mismatch.blktrace.0"), "").unwrap();
    for (set, requests) in [("sda", 109), ("mismatch", 963)] {
        let set = folder.path().join(set);
        let first = set.with_extension("blktrace.0");
        let issued = by_blkparse(&set, "D");
        assert_eq!(issued.values().map(|total| total.0).sum::<u64>(), requests);
        assert_eq!(by_iotape(&first, "device"), issued);
        assert_eq!(by_iotape(&first, "queue"), by_blkparse(&set, "Q"));
    }
    // As it came, under the other name.
    let original = folder.path().join("x.blktrace.0");
    copy("sample-cpu-mismatch.blktrace.0", "x.blktrace.0");
    let renamed = by_blkparse(&folder.path().join("mismatch"), "D");
    assert_eq!(by_iotape(&original, "device"), renamed);
}

#[test]
fn a_name_without_files_is_told_what_was_looked_for() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("nosuch");
    let tape = folder.path().join("t.iotape");
    let ended = run([
        "import",
        name.to_str().unwrap(),
        "-o",
        tape.to_str().unwrap(),
    ])
    .expect(1);
    let expected = format!("{}.blktrace.0", name.display());
    assert!(ended.stderr.contains(&expected), "{}", ended.stderr);
    assert!(!tape.exists());
}
