//! Whether somebody uses a target: mounts, swap, devices built on it.

use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

use super::block_device::{BlockDevice, Relative};
use crate::error::ReplayError;

/// Refuses a block device that is in use, or whose partitions or disk are.
///
/// # Errors
/// [`ReplayError::Mounted`], [`ReplayError::Swap`] or [`ReplayError::Held`].
pub fn check_block_device(path: &Path, device: &BlockDevice) -> Result<(), ReplayError> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    check_relatives(
        path,
        &device.relatives(),
        &parse_mounts(&mounts),
        &parse_swaps(&swaps),
    )
}

fn check_relatives(
    path: &Path,
    relatives: &[Relative],
    mounts: &[Mount],
    swaps: &[PathBuf],
) -> Result<(), ReplayError> {
    for relative in relatives {
        let path = path.to_owned();
        let device = relative.name.clone();
        if let Some(mount) = mounts.iter().find(|mount| mount.is_of(relative)) {
            let mount_point = mount.point.clone();
            return Err(ReplayError::Mounted {
                path,
                device,
                mount_point,
            });
        }
        if swaps
            .iter()
            .any(|swap| device_number(swap).as_ref() == Some(&relative.number))
        {
            return Err(ReplayError::Swap { path, device });
        }
        if let Some(holder) = relative.holders.first() {
            return Err(ReplayError::Held {
                path,
                device,
                holder: holder.clone(),
            });
        }
    }
    Ok(())
}

/// Refuses a regular file that a loop device or swap uses.
///
/// # Errors
/// [`ReplayError::Swap`] or [`ReplayError::Held`].
pub fn check_file(path: &Path) -> Result<(), ReplayError> {
    let Ok(wanted) = fs::metadata(path) else {
        return Ok(());
    };
    let same = |other: &Path| {
        fs::metadata(other)
            .is_ok_and(|other| (other.dev(), other.ino()) == (wanted.dev(), wanted.ino()))
    };
    let name = path.display().to_string();
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    if parse_swaps(&swaps).iter().any(|swap| same(swap)) {
        return Err(ReplayError::Swap {
            path: path.to_owned(),
            device: name,
        });
    }
    for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let Ok(backing) = fs::read_to_string(entry.path().join("loop/backing_file")) else {
            continue;
        };
        if same(Path::new(backing.trim_end_matches('\n'))) {
            let holder = entry.file_name().to_string_lossy().into_owned();
            return Err(ReplayError::Held {
                path: path.to_owned(),
                device: name,
                holder,
            });
        }
    }
    Ok(())
}

/// A mounted filesystem.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    /// `major:minor` of the filesystem, which for some (btrfs) is of no device.
    number: String,
    point: String,
    source: PathBuf,
}

impl Mount {
    fn is_of(&self, device: &Relative) -> bool {
        self.number == device.number || device_number(&self.source).as_ref() == Some(&device.number)
    }
}

/// Lines of proc_pid_mountinfo(5): `id parent major:minor root point options tags - type source …`.
fn parse_mounts(text: &str) -> Vec<Mount> {
    text.lines()
        .filter_map(|line| {
            let (front, back) = line.split_once(" - ")?;
            let front: Vec<&str> = front.split(' ').collect();
            Some(Mount {
                number: (*front.get(2)?).to_owned(),
                point: unescape(front.get(4)?).to_string_lossy().into_owned(),
                source: unescape(back.split(' ').nth(1)?),
            })
        })
        .collect()
}

/// Lines of proc_swaps(5), the first of which is a heading; the first column is a path.
fn parse_swaps(text: &str) -> Vec<PathBuf> {
    text.lines()
        .skip(1)
        .filter_map(|line| line.split_ascii_whitespace().next())
        .map(unescape)
        .collect()
}

/// The kernel writes blanks and backslashes in paths as octal `\NNN`.
fn unescape(text: &str) -> PathBuf {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let octal = text
            .get(at + 1..at + 4)
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match (bytes[at], octal) {
            (b'\\', Some(byte)) => {
                out.push(byte);
                at += 4;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(out))
}

/// `major:minor` of a device file.
fn device_number(path: &Path) -> Option<String> {
    let stat = rustix::fs::stat(path).ok()?;
    let is_block = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_block_device();
    is_block.then(|| format!("{}:{}", major(stat.st_rdev), minor(stat.st_rdev)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 254:1 / / rw,relatime - ext4 /dev/vda1 rw
30 22 0:25 / /mnt/with\\040blank rw shared:5 master:1 - btrfs /dev/none rw,space_cache
";

    fn relative(name: &str, number: &str, holders: &[&str]) -> Relative {
        Relative {
            name: name.to_owned(),
            number: number.to_owned(),
            holders: holders.iter().map(|&holder| holder.to_owned()).collect(),
        }
    }

    #[test]
    fn mounts_are_read_with_escapes_and_optional_fields() {
        let mounts = parse_mounts(MOUNTS);
        assert_eq!(mounts[0].number, "254:1");
        assert_eq!(mounts[0].source, Path::new("/dev/vda1"));
        assert_eq!(mounts[1].point, "/mnt/with blank");
        assert_eq!(mounts[1].source, Path::new("/dev/none"));
    }

    #[test]
    fn a_mounted_partition_makes_the_disk_in_use() {
        let disk = [
            relative("vda", "254:0", &[]),
            relative("vda1", "254:1", &[]),
        ];
        let error =
            check_relatives(Path::new("/dev/vda"), &disk, &parse_mounts(MOUNTS), &[]).unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("/dev/vda: vda1 is mounted on /;"),
            "{text}"
        );
        check_relatives(
            Path::new("/dev/vdb"),
            &[relative("vdb", "254:16", &[])],
            &parse_mounts(MOUNTS),
            &[],
        )
        .unwrap();
    }

    #[test]
    fn a_holder_is_named() {
        let disk = [
            relative("sda", "8:0", &[]),
            relative("sda2", "8:2", &["dm-3"]),
        ];
        let error = check_relatives(Path::new("/dev/sda"), &disk, &[], &[]).unwrap_err();
        assert!(
            matches!(&error, ReplayError::Held { device, holder, .. } if device == "sda2" && holder == "dm-3")
        );
    }

    #[test]
    fn swaps_are_the_first_column() {
        let text = "Filename\tType\tSize\n/dev/dm-1  partition 1 0 -2\n/my\\040swap file 1 0 -3\n";
        assert_eq!(
            parse_swaps(text),
            [Path::new("/dev/dm-1"), Path::new("/my swap")]
        );
        assert!(parse_swaps("").is_empty());
    }
}
