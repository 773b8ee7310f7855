//! Windows event trace logs through the command, beside what they are known to hold.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod common;
#[path = "../formats/etl-parse/tests/support/samples.rs"]
mod samples;

use std::fs;
use std::path::Path;

use common::run;
use samples::sample;

/// Nanoseconds from 1601, where FILETIMEs begin, to 1970.
const FILETIME_EPOCH_NS: i128 = 11_644_473_600_000_000_000;

/// Issue (ns since 1970), disk, offset, operation, bytes, latency (ns), pid, processor of issue is
/// not in the golden table.
type Row = (i128, String, u64, String, u64, u64, u32);

/// The golden table: completion as a FILETIME, response in ticks of 100 ns.
fn golden() -> Option<Vec<Row>> {
    let text = String::from_utf8(sample("golden.x64.csv.xz")?).unwrap();
    let row = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let (complete, response): (i128, u64) =
            (fields[2].parse().unwrap(), fields[3].parse().unwrap());
        let op = match fields[0] {
            "R" => "read",
            "W" => "write",
            "F" => "flush",
            other => panic!("{other}"),
        };
        let issue_ns = (complete - i128::from(response)) * 100 - FILETIME_EPOCH_NS;
        (
            issue_ns,
            format!("PhysicalDrive{}", fields[6]),
            fields[7].parse().unwrap_or(0),
            op.to_owned(),
            fields[8].parse().unwrap_or(0),
            response * 100,
            fields[14].parse().unwrap(),
        )
    };
    let mut rows: Vec<Row> = text.lines().skip(1).map(row).collect();
    rows.sort();
    Some(rows)
}

/// The rows that `export --to csv` prints. Times count from the trace's first anchor.
fn exported(tape: &Path, zero_ns: i128) -> Vec<Row> {
    let tape = tape.to_str().unwrap();
    let text = run(["export", tape, "--to", "csv"]).expect(0).stdout;
    assert_eq!(
        text.lines().next().unwrap(),
        "time_ns,device,op,flags,offset_bytes,length_bytes,latency_ns,queue_ns,pid,process,cpu,error"
    );
    let row = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        (
            zero_ns + fields[0].parse::<i128>().unwrap(),
            fields[1].to_owned(),
            fields[4].parse().unwrap(),
            fields[2].to_owned(),
            fields[5].parse().unwrap(),
            fields[6].parse().unwrap(),
            fields[8].parse().unwrap(),
        )
    };
    let mut rows: Vec<Row> = text.lines().skip(1).map(row).collect();
    rows.sort();
    rows
}

#[test]
fn traces_of_disks_export_the_golden_table() {
    let Some(golden) = golden() else { return };
    let count = |op| golden.iter().filter(|row| row.3 == op).count();
    assert_eq!(
        (count("read"), count("write"), count("flush")),
        (1208, 21, 2)
    );
    // StartTime of the trace's header, and a first issue that is later.
    let zero_ns = 132_404_548_206_236_167_i128 * 100 - FILETIME_EPOCH_NS;
    let folder = tempfile::tempdir().unwrap();
    for name in ["disk-only.x64.etl.xz", "net.4.5.2.x64.etl.zip"] {
        let Some(bytes) = sample(name) else { return };
        let (trace, tape) = (folder.path().join("trace"), folder.path().join(name));
        fs::write(&trace, bytes).unwrap();
        let (from, to) = (trace.to_str().unwrap(), tape.to_str().unwrap());
        let said = run(["import", from, "-o", to]).expect(0);
        assert!(
            said.stdout
                .contains("1,231 requests, 0 unpaired, 0 out of order, 0 events lost"),
            "{}",
            said.stdout
        );
        assert_eq!(exported(&tape, zero_ns), golden, "{name}");
        run(["check", to]).expect(0);
        let info = run(["info", to, "--json"]).expect(0).json();
        assert_eq!(info["devices"][0]["name"], "PhysicalDrive0");
        assert_eq!(info["devices"][0]["model"], "Virtual HD ATA Device");
    }
}

#[test]
fn traces_without_disks_are_refused_with_what_they_hold() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        (
            "AMSITrace.etl",
            "21 events: 19 of AmsiTrace {8e805eb3-6a8f-4a1e-90fa-a831d94e54a1}",
            3,
        ),
        (
            "SelfDescribingSingleEvent.etl",
            "1 of MySource {a61ea624-4944-55fc-c2a8-37838829438d}",
            0,
        ),
        (
            "WindowsUpdate.20251008.140245.443.8.etl",
            "80 of WUTraceLogging {0b7a6f19",
            41,
        ),
        (
            "lxcore_kernel.etl",
            "2 of Microsoft.Windows.Subsystem.LxCore {0cd1c309",
            0,
        ),
        (
            "gcevents.etl.zip",
            "69 of Microsoft-Windows-DotNETRuntime {e13c0d23",
            0,
        ),
    ];
    for (name, held, lost) in cases {
        let Some(bytes) = sample(name) else { return };
        let (trace, tape) = (folder.path().join("trace"), folder.path().join("tape"));
        fs::write(&trace, bytes).unwrap();
        let (from, to) = (trace.to_str().unwrap(), tape.to_str().unwrap());
        let said = run(["import", from, "-o", to]).expect(1).stderr;
        assert!(said.contains("no disk I/O in this file"), "{name}: {said}");
        assert!(said.contains(held), "{name}: {said}");
        assert!(
            said.contains(&format!("its session lost {lost} events")),
            "{name}: {said}"
        );
        assert!(!tape.exists());
    }
}
