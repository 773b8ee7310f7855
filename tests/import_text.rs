//! Tables of Windows' tools through the command.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod common;

use std::path::Path;

use common::run;

#[test]
fn a_table_of_wpaexporter_without_offsets_is_refused_or_taken_as_asked() {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/samples/csv");
    let table = samples.join("etwanalyzer-Disk_Usage_Utilization_by_Disk.csv");
    if !table.is_file() {
        eprintln!("skipped: no {}", table.display());
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let tape = folder.path().join("tape");
    let (table, tape) = (table.to_str().unwrap(), tape.to_str().unwrap());
    let said = run(["import", table, "-o", tape]).expect(1).stderr;
    assert!(said.contains("no column named Min Offset"), "{said}");
    run(["import", table, "-o", tape, "--without-offsets"]).expect(0);
    let info = run(["info", tape, "--json"]).expect(0).json();
    // Counted by Python's csv module.
    assert_eq!(info["requests"], 600);
    let by_op = |op: &str, what: &str| info["by_op"][op][what].as_u64().unwrap();
    assert_eq!(
        (by_op("read", "requests"), by_op("read", "bytes")),
        (116, 2_031_104)
    );
    assert_eq!(
        (by_op("write", "requests"), by_op("write", "bytes")),
        (456, 17_963_008)
    );
    assert_eq!(
        (by_op("flush", "requests"), info["late"].as_u64().unwrap()),
        (28, 0)
    );
}

#[test]
fn options_that_a_format_does_not_know_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (table, tape) = (folder.path().join("msr.csv"), folder.path().join("tape"));
    std::fs::write(&table, "128166372010810581,mds,0,Write,0,4096,54086\n").unwrap();
    let (table, tape) = (table.to_str().unwrap(), tape.to_str().unwrap());
    run(["import", table, "-o", tape, "--layer", "queue"]).expect(2);
    run(["import", table, "-o", tape, "--without-offsets"]).expect(2);
    let said = run(["import", table, "-o", tape, "--from", "xperf"])
        .expect(1)
        .stderr;
    assert!(said.contains("no requests in this table (xperf)"), "{said}");
    run(["import", table, "-o", tape]).expect(0);
    let csv = run(["export", tape, "--to", "csv"]).expect(0).stdout;
    assert!(
        csv.contains("\n0,mds_0,write,,0,4096,5408600,,,,,\n"),
        "{csv}"
    );
}

#[test]
fn what_is_no_trace_is_named_and_makes_no_tape() {
    let folder = tempfile::tempdir().unwrap();
    let tape = folder.path().join("tape");
    let tape = tape.to_str().unwrap();
    let random: Vec<u8> = (0..5000u32)
        .map(|n| ((n * 7919) >> 3) as u8 | 0x80)
        .collect();
    let files: [(&str, &[u8], &str); 5] = [
        ("empty.etl", b"", "is empty; an .etl begins with a buffer"),
        (
            "random.etl",
            &random,
            "5000 B of an unknown format, beginning with the bytes 80",
        ),
        ("random.iotape", &random, "a tape begins with other bytes"),
        (
            "notes.txt",
            b"Dear all, time flies\n",
            "beginning with \"Dear all, time f\"",
        ),
        (
            "table.csv",
            b"a,b,c\n1,2,3\n",
            "the first line of a CSV names its columns",
        ),
    ];
    for (name, content, expected) in files {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        let said = run(["import", path.to_str().unwrap(), "-o", tape]).expect(1);
        assert!(said.stderr.contains(expected), "{name}: {}", said.stderr);
        assert!(said.stderr.contains("time_ns"), "{name}: {}", said.stderr);
        assert!(!Path::new(tape).exists());
    }
    let said = run(["import", folder.path().to_str().unwrap(), "-o", tape]).expect(1);
    assert!(
        said.stderr.contains("is a directory; expected a file"),
        "{}",
        said.stderr
    );
    let original = common::tape_of_rows(folder.path(), "a", "0,sda,read,,0,512,,,,,,\n");
    let said = run(["import", original.to_str().unwrap(), "-o", tape]).expect(1);
    assert!(said.stderr.contains("is a tape already"), "{}", said.stderr);
}
