//! What the result says about a target.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::fstatfs;

use super::block_device::BlockDevice;
use crate::result;

/// Facts of a block device, or of the one that a file lies on.
pub fn of_device(device: Option<&BlockDevice>) -> result::Target {
    let Some(device) = device else {
        return result::Target::default();
    };
    result::Target {
        model: device.disk_attribute("device/model"),
        firmware: device
            .disk_attribute("device/firmware_rev")
            .or_else(|| device.disk_attribute("device/rev")),
        logical_sector: device.disk_number("queue/logical_block_size"),
        physical_sector: device.disk_number("queue/physical_block_size"),
        scheduler: device
            .disk_attribute("queue/scheduler")
            .map(|list| chosen(&list)),
        write_cache: device.disk_attribute("queue/write_cache"),
        ..result::Target::default()
    }
}

/// Of `mq-deadline [none]` the word in brackets.
fn chosen(list: &str) -> String {
    let inside = list
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(list, |(word, _)| word).to_owned()
}

/// The filesystem of a file.
#[derive(Clone, Debug, Default)]
pub struct Filesystem {
    /// Its name, such as `ext4`.
    pub name: Option<String>,
    /// Whether it keeps its files in memory.
    pub in_memory: bool,
}

/// Numbers of statfs(2).
const TMPFS: i64 = 0x0102_1994;
const RAMFS: i64 = 0x8584_58f6;
const HUGETLBFS: i64 = 0x9584_58f6;

/// Looks up the filesystem that a file or directory lies on.
pub fn filesystem(file: &impl AsFd, path: &Path) -> Filesystem {
    let number = fstatfs(file).map(|stat| stat.f_type).unwrap_or(0);
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    Filesystem {
        name: type_of_mount(&mounts, &path),
        in_memory: [TMPFS, RAMFS, HUGETLBFS].contains(&number),
    }
}

/// The type of the mount whose mount point is the longest prefix of a path; of several on the same
/// point the last hides the others.
fn type_of_mount(mountinfo: &str, path: &Path) -> Option<String> {
    let mut best: Option<(usize, &str)> = None;
    for line in mountinfo.lines() {
        let Some((front, back)) = line.split_once(" - ") else {
            continue;
        };
        let Some(point) = front.split(' ').nth(4) else {
            continue;
        };
        let Some(kind) = back.split(' ').next() else {
            continue;
        };
        let longest = best.is_none_or(|(len, _)| point.len() >= len);
        if longest && path.starts_with(point) {
            best = Some((point.len(), kind));
        }
    }
    best.map(|(_, kind)| kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheduler_in_use_is_the_one_in_brackets() {
        assert_eq!(chosen("none [mq-deadline] kyber"), "mq-deadline");
        assert_eq!(chosen("none"), "none");
    }

    #[test]
    fn the_innermost_mount_gives_the_filesystem() {
        let mounts = "1 0 254:1 / / rw - ext4 /dev/vda1 rw\n\
                      2 1 0:30 / /tmp rw - tmpfs tmpfs rw\n\
                      3 1 0:31 / /tmp rw - xfs /dev/vdb rw\n";
        let of = |path: &str| type_of_mount(mounts, Path::new(path));
        assert_eq!(of("/var/tmp/file").as_deref(), Some("ext4"));
        assert_eq!(of("/tmp/file").as_deref(), Some("xfs"));
        assert_eq!(of("/tmpx").as_deref(), Some("ext4"));
    }
}
