//! What cannot be recorded is refused with its reason, and what changes a tape is said.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod common;

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use common::{LoopDevice, have_root_and, is_root, options, output, record, skip};
use iotape_capture::{
    CaptureError, Ended, Options, Progress, Session, Single, Status, Warning, doctor,
};
use iotape_formats::tape::{Layer, TapeError};

const MIB: u64 = 1 << 20;

#[test]
fn options_that_cannot_be_honoured_are_refused() {
    let start = |options: Options| Session::start(&options).map(|_| ());
    let none = Options::new(Vec::new());
    assert!(matches!(start(none), Err(CaptureError::NoDevice)));
    for bytes in [0, 4096, 3 << 20] {
        let ring = Options {
            ring_bytes: Some(bytes),
            ..options("sda")
        };
        let refused =
            matches!(start(ring), Err(CaptureError::RingSize { bytes: at, .. }) if at == bytes);
        assert!(refused, "a ring of {bytes} bytes");
    }
    let many = Options::new(vec!["sda".into(); 65]);
    assert!(matches!(
        start(many),
        Err(CaptureError::TooManyDevices {
            devices: 65,
            most: 64
        })
    ));
    let null = start(options("/dev/null"));
    assert!(matches!(null, Err(CaptureError::NotABlockDevice { .. })));
    let nothing = start(options("no-such-disk"));
    assert!(matches!(nothing, Err(CaptureError::UnknownDevice { .. })));
}

#[test]
fn without_rights_the_error_names_what_is_missing() {
    if is_root() {
        eprintln!("skipped: root has every right");
        return;
    }
    let block = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let with_medium = |disk: &fs::DirEntry| {
        fs::read_to_string(disk.path().join("size")).is_ok_and(|size| size.trim() != "0")
    };
    let Some(disk) = block.into_iter().find(with_medium) else {
        return skip("no block device with a medium");
    };
    match Session::start(&options(disk.file_name().to_str().unwrap())) {
        Err(error @ CaptureError::Permission { .. }) => {
            let text = error.to_string();
            assert!(text.contains("CAP_") && text.contains("sudo"), "{text}");
        }
        other => panic!("expected a missing permission: {other:?}"),
    }
    let missing = doctor()
        .into_iter()
        .filter(|finding| finding.status == Status::Missing);
    assert!(missing.into_iter().all(|finding| finding.remedy.is_some()));
}

#[test]
fn a_device_without_a_medium_is_refused() {
    if !have_root_and(&["losetup"]) {
        return;
    }
    let device = LoopDevice::numbered(4_000, MIB);
    output("losetup", &["--detach", &device.path]);
    let refused = Session::start(&options(&device.path)).map(|_| ());
    assert!(
        matches!(refused, Err(CaptureError::NoMedium { .. })),
        "{}: {refused:?}",
        device.path
    );
}

#[test]
fn a_device_that_goes_away_ends_the_recording() {
    if !have_root_and(&["losetup"]) {
        return;
    }
    let device = LoopDevice::numbered(4_001, 16 * MIB);
    let long = Options {
        duration: Some(Duration::from_secs(60)),
        ..options(&device.path)
    };
    let session = Session::start(&long).unwrap();
    output("losetup", &["--detach", &device.path]);
    let report = session
        .run(
            &mut Single::new(Vec::new()),
            &AtomicBool::new(false),
            &mut |_: &Progress| {},
        )
        .unwrap();
    assert_eq!(report.ended, Ended::DevicesGone);
    let gone = Warning::DeviceGone {
        device: device.name().to_owned(),
    };
    assert!(report.warnings.contains(&gone), "{:?}", report.warnings);
}

/// A file system without space.
struct Full;

impl Write for Full {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_tape_that_cannot_be_written_ends_the_recording_with_its_error() {
    if !have_root_and(&["losetup"]) {
        return;
    }
    let device = LoopDevice::new(16 * MIB);
    let session = Session::start(&options(&device.path)).unwrap();
    let result = session.run(
        &mut Single::new(Full),
        &AtomicBool::new(true),
        &mut |_: &Progress| {},
    );
    match result {
        Err(CaptureError::Tape(TapeError::Io { offset: 0, error })) => {
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        }
        other => panic!("expected the sink's error: {other:?}"),
    }
}

#[test]
fn a_tape_on_the_recorded_disk_is_said() {
    if !have_root_and(&[]) {
        return;
    }
    let dev = fs::metadata("/var/tmp").unwrap().dev();
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let Ok(disk) = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")) else {
        return skip("/var/tmp lies on a file system without a device");
    };
    let disk = match disk.join("partition").exists() {
        true => disk.parent().unwrap().to_owned(),
        false => disk,
    };
    let name = disk.file_name().unwrap().to_str().unwrap();
    let tape_path = Some("/var/tmp/not-there-yet.iotape".into());
    let session = Session::start(&Options {
        tape_path,
        ..options(name)
    })
    .unwrap();
    let expected = Warning::TapeOnRecordedDevice {
        device: name.to_owned(),
    };
    assert!(
        session.warnings().contains(&expected),
        "{:?}",
        session.warnings()
    );
}

/// A zram device of our own.
struct Zram(String);

impl Zram {
    fn new() -> Option<Zram> {
        let number = fs::read_to_string("/sys/class/zram-control/hot_add").ok()?;
        let zram = Zram(format!("zram{}", number.trim()));
        fs::write(format!("/sys/block/{}/disksize", zram.0), "16M").ok()?;
        Some(zram)
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        let number = self.0.trim_start_matches("zram");
        let _ = fs::write("/sys/class/zram-control/hot_remove", number);
    }
}

#[test]
fn a_device_without_requests_is_recorded_at_the_queue_layer() {
    if !have_root_and(&["dd"]) {
        return;
    }
    let Some(zram) = Zram::new() else {
        return skip("no zram device can be added");
    };
    let refused = Session::start(&Options {
        layer: Some(Layer::Device),
        ..options(&zram.0)
    });
    assert!(
        matches!(refused, Err(CaptureError::NoDeviceLayer { .. })),
        "{refused:?}"
    );

    let recorded = record(&options(&zram.0), || {
        let to = format!("of=/dev/{}", zram.0);
        let dd = [
            "if=/dev/zero",
            &to,
            "bs=4096",
            "count=3",
            "seek=1",
            "oflag=direct",
        ];
        assert!(
            Command::new("dd")
                .args(dd)
                .output()
                .unwrap()
                .status
                .success()
        );
    });
    let said = Warning::QueueLayerOnly {
        device: zram.0.clone(),
    };
    assert!(recorded.report.warnings.contains(&said));
    let places: Vec<u64> = recorded
        .requests
        .iter()
        .map(|request| request.offset_bytes / 4096)
        .collect();
    assert_eq!(places, [1, 2, 3]);
    for request in &recorded.requests {
        assert_eq!((request.error, request.queue_ns), (Some(0), None));
        assert!(request.latency_ns.is_some());
    }
}

#[test]
fn the_doctor_finds_what_a_recording_needs() {
    let findings = doctor();
    let of = |subject: &str| {
        findings
            .iter()
            .find(|finding| finding.subject == subject)
            .unwrap()
    };
    if !have_root_and(&[]) {
        return;
    }
    for subject in [
        "tracefs",
        "block tracepoints",
        "perf events",
        "ftrace instance",
    ] {
        assert_eq!(of(subject).status, Status::Ready, "{:?}", of(subject));
    }
}
