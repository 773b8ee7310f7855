//! The blktrace backend where it may run, and what it says and leaves where it may not.
//!
//! `tests/vm` compares it with blktrace and with the other backends.

#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod common;

use common::fio::Fio;
use common::{Ended, LoopDevice, have_root_and, iotape};

#[test]
fn it_records_or_says_what_does_and_leaves_no_trace() {
    if !have_root_and(&["losetup", "fio"]) {
        return;
    }
    let device = LoopDevice::new(64 << 20);
    let folder = tempfile::tempdir().unwrap();
    // Twice: a trace that the first one left would be in the way of the second.
    for attempt in ["first", "second"] {
        let tape = folder.path().join(attempt);
        let mut record = iotape(["record", device.name(), "--backend", "blktrace", "--quiet"]);
        record.args(["--json", "--for", "2s", "-o"]).arg(&tape);
        let record = record
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(500));
        let load = ["--ioengine=psync", "--rw=read", "--bs=4k", "--size=1M"];
        Fio::start(device.name(), &load).done();
        let ended = Ended::from(record.wait_with_output().unwrap());
        if ended.status == 0 {
            let info = ended.json();
            assert_eq!(info["backend"], "blktrace");
            assert_eq!(info["by_op"]["read"]["bytes"], 1 << 20);
            continue;
        }
        assert!(!tape.exists(), "{}", ended.stderr);
        let said = &ended.stderr;
        assert!(!said.contains("has a block trace already"), "{said}");
        assert!(said.contains("--backend perf"), "{said}");
        let known = ["lockdown", "CONFIG_BLK_DEV_IO_TRACE", "tracer blk"];
        assert!(known.iter().any(|cause| said.contains(cause)), "{said}");
        eprintln!("skipped: no block traces here: {}", said.trim());
    }
}
