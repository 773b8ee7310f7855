//! Refusals that need a real block device, and so root.

use std::path::Path;
use std::process::Command;

use super::{Access, open};
use crate::error::ReplayError;
use crate::testing::LoopDevice;

const SIZE: usize = 16 << 20;

/// Runs a command; `false`, having said why, when it does not work here.
fn works(program: &str, arguments: &[&str]) -> bool {
    match Command::new(program).args(arguments).output() {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            eprintln!("skipped: {program} {arguments:?}: {}", why.trim());
            false
        }
        Err(error) => {
            eprintln!("skipped: {program}: {error}");
            false
        }
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The error for reading and for overwriting, which must be the same.
fn refusal(path: &Path) -> ReplayError {
    let reading = open(path, Access::Read).unwrap_err();
    let overwriting = open(path, Access::Overwrite).unwrap_err();
    assert_eq!(reading.to_string(), overwriting.to_string());
    reading
}

fn content(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

#[test]
fn a_free_device_is_opened_for_this_program_alone() {
    let Some(device) = LoopDevice::of_size(SIZE) else {
        return;
    };
    let target = open(device.path(), Access::Overwrite).unwrap();
    assert!(target.block_device && target.cached.is_none());
    assert_eq!((target.size_bytes, target.sector_bytes), (SIZE as u64, 512));
    assert_eq!(
        target.facts.scheduler.as_deref().map(|s| s.contains('[')),
        Some(false)
    );
    assert!(target.facts.write_cache.is_some());
    assert!(matches!(refusal(device.path()), ReplayError::Busy { .. }));
    drop(target);
    open(device.path(), Access::Read).unwrap();
}

#[test]
fn a_filesystem_is_refused_and_then_its_mount() {
    let Some(device) = LoopDevice::of_size(SIZE) else {
        return;
    };
    if !works("mkfs.ext4", &["-q", text(device.path())]) {
        return;
    }
    let before = content(device.path());
    let error = refusal(device.path());
    assert!(
        matches!(
            error,
            ReplayError::Signature {
                offset_bytes: 1080,
                ..
            }
        ),
        "{error}"
    );
    open(device.path(), Access::SkipWrites).unwrap();
    assert_eq!(content(device.path()), before);

    let dir = tempfile::tempdir().unwrap();
    if !works(
        "mount",
        &["-o", "ro,noload", text(device.path()), text(dir.path())],
    ) {
        return;
    }
    let error = refusal(device.path());
    let lenient = open(device.path(), Access::SkipWrites);
    assert!(works("umount", &[text(dir.path())]));
    assert!(
        matches!(&error, ReplayError::Mounted { mount_point, .. } if mount_point == text(dir.path())),
        "{error}"
    );
    assert!(lenient.is_ok(), "{lenient:?}");
    assert_eq!(content(device.path()), before);
}

#[test]
fn swap_is_refused_before_and_while_it_is_in_use() {
    let Some(device) = LoopDevice::of_size(SIZE) else {
        return;
    };
    if !works("mkswap", &[text(device.path())]) {
        return;
    }
    let error = refusal(device.path());
    assert!(
        matches!(
            error,
            ReplayError::Signature {
                what: "swap space",
                ..
            }
        ),
        "{error}"
    );
    if !works("swapon", &[text(device.path())]) {
        return;
    }
    let error = refusal(device.path());
    assert!(works("swapoff", &[text(device.path())]));
    assert!(matches!(error, ReplayError::Swap { .. }), "{error}");
}

#[test]
fn a_partition_table_is_refused() {
    let Some(device) = LoopDevice::of_size(SIZE) else {
        return;
    };
    for (label, expected) in [
        ("gpt", "a GPT partition table"),
        ("dos", "an MBR partition table"),
    ] {
        let script = format!(
            "printf 'label: {label}\\n,4M\\n' | sfdisk -q {}",
            text(device.path())
        );
        if !works("sh", &["-c", &script]) {
            return;
        }
        let error = refusal(device.path());
        assert!(
            matches!(error, ReplayError::Signature { what, .. } if what == expected),
            "{error}"
        );
        assert!(works("wipefs", &["-q", "-a", text(device.path())]));
    }
    open(device.path(), Access::Read).unwrap();
}

#[test]
fn a_device_under_device_mapper_is_held() {
    let Some(device) = LoopDevice::of_size(SIZE) else {
        return;
    };
    let name = format!("iotape-test-{}", std::process::id());
    let table = format!("0 {} linear {} 0", SIZE / 512, text(device.path()));
    if !works("dmsetup", &["create", &name, "--table", &table]) {
        return;
    }
    let error = refusal(device.path());
    assert!(works("dmsetup", &["remove", "--retry", &name]));
    assert!(
        matches!(&error, ReplayError::Held { holder, .. } if holder.starts_with("dm-")),
        "{error}"
    );
}

#[test]
fn a_read_only_device_is_only_read() {
    let Some(device) = LoopDevice::of_size(SIZE) else {
        return;
    };
    if !works("blockdev", &["--setro", text(device.path())]) {
        return;
    }
    let error = open(device.path(), Access::Overwrite).unwrap_err();
    let reading = open(device.path(), Access::Read);
    // Outlives the file behind the device otherwise.
    assert!(works("blockdev", &["--setrw", text(device.path())]));
    assert!(matches!(error, ReplayError::ReadOnly { .. }), "{error}");
    assert!(reading.is_ok(), "{reading:?}");
}

#[test]
fn a_file_behind_a_loop_device_is_held() {
    let Some(device) = LoopDevice::of_size(SIZE) else {
        return;
    };
    let error = refusal(device.backing());
    let name = device.path().file_name().unwrap().to_str().unwrap();
    assert!(
        matches!(&error, ReplayError::Held { holder, .. } if holder == name),
        "{error}"
    );
}

#[test]
fn a_device_with_large_sectors_says_so() {
    let Some(device) = LoopDevice::of_size(SIZE) else {
        return;
    };
    if !works("losetup", &["--sector-size", "4096", text(device.path())]) {
        return;
    }
    let target = open(device.path(), Access::Read).unwrap();
    assert_eq!(target.sector_bytes, 4096);
    assert_eq!(target.facts.logical_sector, Some(4096));
}
