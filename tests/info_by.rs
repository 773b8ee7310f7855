//! `iotape info --by` against sums done by hand.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod common;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use common::{CSV_HEAD, run};
use serde_json::{Value, json};

fn by(tape: &Path, options: &[&str]) -> Value {
    let tape = tape.to_str().unwrap();
    let mut report = run([&["info", tape, "--json", "--by"], options].concat())
        .expect(0)
        .json();
    let of = report["requests"].as_u64().unwrap();
    for row in report["rows"].as_array_mut().unwrap() {
        let share = row.as_object_mut().unwrap().remove("share").unwrap();
        let expected = row["requests"].as_u64().unwrap() as f64 / of as f64;
        assert!((share.as_f64().unwrap() - expected).abs() < 1e-9);
    }
    if let Some(others) = report["others"].as_object_mut() {
        others.remove("share");
    }
    report
}

#[test]
fn requests_bytes_and_latencies_of_each() {
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("by.csv");
    let mut rows = format!("{},cgroup,file\n", CSV_HEAD.trim_end());
    // Latencies 1 to 100, and a flush without any.
    for row in 0..100 {
        let (process, group) = [("imap", "/mail"), ("dd", "")][usize::from(row % 4 == 3)];
        let latency = row + 1;
        writeln!(
            rows,
            "{row},sda,read,,0,4096,{latency},,{row},{process},,,{group},/f"
        )
        .unwrap();
    }
    writeln!(rows, "100,sdb,flush,,0,0,,,,,,,,").unwrap();
    fs::write(&csv, rows).unwrap();
    let tape = folder.path().join("by.iotape");
    let (from, to) = (csv.to_str().unwrap(), tape.to_str().unwrap());
    run(["import", from, "-o", to]).expect(0);

    let row = |key: Value, requests: u64, bytes: u64, p50: Value, p99: Value| {
        json!({
            "key": key, "requests": requests, "bytes": bytes,
            "mean_bytes": (bytes > 0).then_some(4096), "latency_p50_ns": p50, "latency_p99_ns": p99,
        })
    };
    // imap has 1 2 3 5 6 7 …, its 38th of 75 is 50 and its 75th 99; dd has 4 8 … 100, its 13th is 52.
    let imap = |key: &str| row(json!(key), 75, 75 * 4096, json!(50), json!(99));
    let dd = |key: Value| row(key, 25, 25 * 4096, json!(52), json!(100));
    let none = row(Value::Null, 1, 0, Value::Null, Value::Null);
    let processes = by(&tape, &["process"]);
    assert_eq!(
        processes,
        json!({"by": "process", "requests": 101, "rows": [imap("imap"), dd(json!("dd")), none], "others": null})
    );
    let first = by(&tape, &["process", "--top", "1"]);
    let rest = row(Value::Null, 26, 25 * 4096, json!(52), json!(100));
    assert_eq!(
        (&first["rows"], &first["others"]),
        (&json!([imap("imap")]), &rest)
    );
    let groups = by(&tape, &["cgroup"]);
    assert_eq!(groups["rows"][0], imap("/mail"));
    assert_eq!(groups["rows"][1]["requests"], 26);
    let files = by(&tape, &["file"]);
    assert_eq!(
        files["rows"][0],
        row(json!("/f"), 100, 409_600, json!(50), json!(99))
    );
    assert_eq!(by(&tape, &["device"])["rows"][1]["key"], "sdb");

    let table = run(["info", to, "--by", "process"]).expect(0).stdout;
    assert!(table.contains("imap"), "{table}");
    run(["info", to, "--top", "3"]).expect(2);
}

/// What comes behind the first 1,024 is counted, not forgotten.
#[test]
fn keys_beyond_the_bound_are_others() {
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("many.csv");
    let mut rows = CSV_HEAD.to_owned();
    for row in 0..1030 {
        writeln!(rows, "{row},sda,read,,0,512,,,{row},p{row},,").unwrap();
    }
    fs::write(&csv, rows).unwrap();
    let tape = folder.path().join("many.iotape");
    let (from, to) = (csv.to_str().unwrap(), tape.to_str().unwrap());
    run(["import", from, "-o", to]).expect(0);
    let all = by(&tape, &["process", "--top", "5000"]);
    assert_eq!(all["rows"].as_array().unwrap().len(), 1024);
    assert_eq!(all["others"]["requests"], 6);
}
