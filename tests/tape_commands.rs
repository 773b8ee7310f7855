//! import, export, info and check, through the command.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod common;

use std::ffi::OsStr;
use std::path::Path;

use common::{CSV_HEAD, exported, info_of, run, tape_of_rows};
use serde_json::json;

const ROWS: &str = "\
1000,sda,read,sync,4096,8192,250000,1000,17,imap,0,0
2000,sdb,write,sync+fua+preflush,0,4096,,,,,,
2500,sda,read,meta+readahead,1048576,4096,90000,,17,imap,1,0
3000,sda,flush,sync,0,0,1500000,,20,jbd2/sda-8,1,0
5000,sda,discard,,65536,1048576,4000,,,,0,5
9000,sdb,write_zeroes,nowait,0,65536,,,,,,
";

fn path(path: &Path) -> &OsStr {
    path.as_os_str()
}

#[test]
fn what_was_imported_is_exported_to_the_letter() {
    let folder = tempfile::tempdir().unwrap();
    let tape = tape_of_rows(folder.path(), "rows", ROWS);
    assert_eq!(exported(&tape, "csv"), format!("{CSV_HEAD}{ROWS}"));
}

#[test]
fn info_counts_per_operation_and_device() {
    let folder = tempfile::tempdir().unwrap();
    let tape = tape_of_rows(folder.path(), "rows", ROWS);
    let info = info_of(&tape).expect(0).json();
    assert_eq!(info["requests"], 6);
    assert_eq!(info["bytes"], 8192 + 4096 + 4096);
    assert_eq!(info["duration_ns"], 8000);
    let by_op = json!({
        "read": {"requests": 2, "bytes": 12_288},
        "write": {"requests": 1, "bytes": 4096},
        "flush": {"requests": 1, "bytes": 0},
        "discard": {"requests": 1, "bytes": 1_048_576},
        "write_zeroes": {"requests": 1, "bytes": 65_536},
    });
    assert_eq!(info["by_op"], by_op);
    assert_eq!(info["devices"][0]["name"], "sda");
    assert_eq!(info["devices"][0]["requests"], 4);
    assert_eq!(info["devices"][0]["end_bytes"], 65_536 + 1_048_576);
    assert_eq!(info["devices"][0]["alignment_bytes"], 4096);
    assert_eq!(info["devices"][1]["name"], "sdb");
    assert_eq!(info["lost_events"], 0);
    assert_eq!(info["complete"], true);
}

#[test]
fn the_id_depends_on_the_requests_alone() {
    let folder = tempfile::tempdir().unwrap();
    let id = |name: &str, rows: &str| {
        let tape = tape_of_rows(folder.path(), name, rows);
        let info = info_of(&tape).expect(0).json();
        info["id"].as_str().unwrap().to_owned()
    };
    let first = id("first", ROWS);
    assert_eq!(first.len(), 32);
    assert_eq!(first, id("again", ROWS));
    assert_ne!(first, id("other", &ROWS.replace("8192", "4096")));
}

#[test]
fn tables_fit_80_columns() {
    let folder = tempfile::tempdir().unwrap();
    let tape = tape_of_rows(folder.path(), "rows", ROWS);
    for args in [vec!["info"], vec!["check"]] {
        let ended = run(args.iter().map(OsStr::new).chain([path(&tape)])).expect(0);
        let longest = ended.stdout.lines().map(|line| line.chars().count()).max();
        assert!(longest <= Some(80), "{longest:?}\n{}", ended.stdout);
    }
}

#[test]
fn an_existing_tape_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let tape = tape_of_rows(folder.path(), "rows", ROWS);
    let before = std::fs::read(&tape).unwrap();
    let csv = folder.path().join("rows.csv");
    let ended = run([
        OsStr::new("import"),
        path(&csv),
        OsStr::new("-o"),
        path(&tape),
    ])
    .expect(1);
    assert!(ended.stderr.contains("exists already"), "{}", ended.stderr);
    assert_eq!(std::fs::read(&tape).unwrap(), before);
}

#[test]
fn a_tape_is_replaced_only_by_a_whole_one() {
    let folder = tempfile::tempdir().unwrap();
    let tape = tape_of_rows(folder.path(), "rows", ROWS);
    let before = exported(&tape, "csv");
    let bad = folder.path().join("bad.csv");
    std::fs::write(&bad, format!("{CSV_HEAD}nonsense\n")).unwrap();
    let into = |verb: &'static str, from: &Path| {
        let words = [OsStr::new(verb), path(from), OsStr::new("-o"), path(&tape)];
        run(words.into_iter().chain([OsStr::new("--force")]))
    };
    into("import", &bad).expect(1);
    assert_eq!(
        exported(&tape, "csv"),
        before,
        "a failed import keeps what was there"
    );
    into("edit", &tape).expect(0);
    assert_eq!(
        exported(&tape, "csv"),
        before,
        "a tape can be edited onto itself"
    );
    let names = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = names
        .filter(|name| name.to_string_lossy().contains("partial"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[cfg(unix)]
#[test]
fn what_is_no_file_is_written_to_and_never_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let bad = folder.path().join("bad.csv");
    std::fs::write(&bad, "nonsense\n").unwrap();
    let null = Path::new("/dev/null");
    for (source, status) in [(&bad, 1), (&folder.path().join("good.csv"), 0)] {
        if status == 0 {
            std::fs::write(source, format!("{CSV_HEAD}{ROWS}")).unwrap();
        }
        let words = [
            OsStr::new("import"),
            path(source),
            OsStr::new("-o"),
            path(null),
        ];
        run(words.into_iter().chain([OsStr::new("--force")])).expect(status);
        let kind = std::fs::metadata(null).unwrap().file_type();
        assert!(std::os::unix::fs::FileTypeExt::is_char_device(&kind));
    }
}

#[cfg(unix)]
#[test]
fn tapes_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let tape = tape_of_rows(folder.path(), "rows", ROWS);
    assert_eq!(
        std::fs::metadata(&tape).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

#[test]
fn a_csv_that_is_none_names_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("bad.csv");
    std::fs::write(
        &csv,
        format!("{CSV_HEAD}1,sda,read,,0,4096,,,,,,\n2,sda,reed,,0,1,,,,,,\n"),
    )
    .unwrap();
    let tape = folder.path().join("bad.iotape");
    let ended = run([
        OsStr::new("import"),
        path(&csv),
        OsStr::new("-o"),
        path(&tape),
    ])
    .expect(1);
    assert!(ended.stderr.contains("line 3"), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("unknown operation \"reed\""),
        "{}",
        ended.stderr
    );
    assert!(!tape.exists(), "a failed import leaves no tape");
}

#[test]
fn what_is_no_tape_file_is_named_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("nosuch");
    for verb in ["info", "check"] {
        let ended = run([OsStr::new(verb), path(&missing)]).expect(1);
        let start = format!("iotape: error: {}: ", missing.display());
        let reason = ended.stderr.strip_prefix(&start).unwrap();
        assert!(!reason.contains("at byte"), "{verb}: {}", ended.stderr);
        if cfg!(unix) {
            assert!(reason.starts_with("No such file"), "{verb}: {reason}");
            let ended = run([OsStr::new(verb), path(folder.path())]).expect(1);
            let expected = format!(
                "iotape: error: {}: is a directory; expected a tape\n",
                folder.path().display()
            );
            assert_eq!(ended.stderr, expected, "{verb}");
        }
    }
}

#[test]
fn a_path_in_an_error_does_not_control_the_terminal() {
    let ended = run(["info", "no\u{1b}[2Jsuch\u{7}\u{9b}1m"]).expect(1);
    assert!(
        ended
            .stderr
            .starts_with("iotape: error: no\\u{1b}[2Jsuch\\u{7}\\u{9b}1m: "),
        "{}",
        ended.stderr
    );
    assert_eq!(ended.stderr.matches(char::is_control).count(), 1, "a line");
}

#[test]
fn an_export_replaces_a_file_only_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let tape = tape_of_rows(folder.path(), "rows", ROWS);
    let output = folder.path().join("rows.jsonl");
    std::fs::write(&output, "kept").unwrap();
    let export = |to: &str, more: &[&str]| {
        let args = ["export", "--to", to, "-o"].map(OsStr::new);
        let more = more.iter().map(OsStr::new);
        run(args
            .into_iter()
            .chain([path(&output), path(&tape)])
            .chain(more))
    };
    let refused = export("jsonl", &[]).expect(1);
    assert!(
        refused.stderr.contains("exists already"),
        "{}",
        refused.stderr
    );
    assert_eq!(std::fs::read(&output).unwrap(), b"kept");
    export("jsonl", &["--force"]).expect(0);
    let lines = std::fs::read_to_string(&output).unwrap();
    assert_eq!(lines.lines().count(), ROWS.lines().count());
    // A set of files is not replaced: what is left of the old one would be read with the new one.
    let refused = export("blktrace", &["--force"]).expect(2);
    assert!(refused.stderr.contains("--force"), "{}", refused.stderr);
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let tape = tape_of_rows(folder.path(), "rows", &ROWS.repeat(20_000));
    for verb in [
        "export --to csv",
        "export --to jsonl",
        "export --to fio",
        "info",
    ] {
        let (verb, rest) = verb.split_once(' ').unwrap_or((verb, ""));
        let program = env!("CARGO_BIN_EXE_iotape");
        let line = format!(
            "set -o pipefail; {program} {verb} {} {rest} | true",
            tape.display()
        );
        let output = std::process::Command::new("bash")
            .args(["-c", &line])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("error"), "{verb}: {said}");
    }
}

#[test]
fn wrong_usage_exits_with_2() {
    for args in [
        &["replay"][..],
        &["frobnicate"],
        &["info"],
        &["export", "x", "--to", "tar"],
    ] {
        run(args).expect(2);
    }
    // What no machine can do, whether or not this one lets us record.
    let record = ["record", "sda", "-o", "never-made.iotape"];
    for options in [
        &["--ring", "3MiB"][..],
        &["--rotate", "1"],
        &["--rotate", "1MiB", "--keep", "0"],
        &["--max-bytes", "1000"],
    ] {
        run(record.iter().chain(options)).expect(2);
    }
    assert!(!std::path::Path::new("never-made.iotape").exists());
    for verb in [
        "record", "info", "export", "import", "check", "replay", "compare", "doctor",
    ] {
        let help = run([verb, "--help"]).expect(0);
        assert!(help.stdout.contains("Exit status"), "{verb}");
    }
}
