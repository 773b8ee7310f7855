//! Block devices as sysfs describes them.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use iotape_formats::tape::{Device, Layer};

use super::topology::Topology;
use crate::CaptureError;

/// Number of a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Number {
    major: u32,
    minor: u32,
}

impl Number {
    pub fn of_dev(dev: u64) -> Number {
        Number {
            major: rustix::fs::major(dev),
            minor: rustix::fs::minor(dev),
        }
    }

    /// As the kernel keeps it and its tracepoints report it.
    pub fn in_kernel(self) -> u32 {
        self.major << 20 | self.minor
    }

    fn sysfs(self) -> PathBuf {
        Path::new("/sys/dev/block").join(self.to_string())
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

impl FromStr for Number {
    type Err = io::Error;

    fn from_str(text: &str) -> io::Result<Number> {
        let number = |text: &str| text.trim().parse().map_err(io::Error::other);
        let (major, minor) = text.split_once(':').ok_or(io::ErrorKind::InvalidData)?;
        Ok(Number {
            major: number(major)?,
            minor: number(minor)?,
        })
    }
}

/// A device to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BlockDevice {
    /// Its own number.
    pub number: Number,
    /// The number that its I/O is reported with: a partition's is its disk's.
    pub reported: Number,
    pub name: String,
    /// Where its requests are seen.
    pub layer: Layer,
    /// Whether it has requests, and not only bios.
    pub has_requests: bool,
    /// Names of the devices that it is built on.
    pub parents: Vec<String>,
    /// Where it lies on its disk, in bytes, if it is a partition.
    pub place: Option<Range<u64>>,
    /// Its own folder in sysfs, and that of its queue: a partition's disk.
    own: PathBuf,
    sys: PathBuf,
}

impl BlockDevice {
    /// Finds the device of a path or name and decides at which layer it is recorded.
    pub fn find(path: &Path, layer: Option<Layer>) -> Result<BlockDevice, CaptureError> {
        let number = number_of(path)?;
        let unknown = |source| CaptureError::UnknownDevice {
            path: path.to_owned(),
            source,
        };
        let sys = fs::canonicalize(number.sysfs()).map_err(unknown)?;
        let name = device_name(&sys);
        if read_number(&sys, "size").unwrap_or(0) == 0 {
            return Err(CaptureError::NoMedium { device: name });
        }
        let own = sys.clone();
        let (sys, reported, place) = match sys.join("partition").exists() {
            true => partition(&sys).map_err(unknown)?,
            false => (sys, number, None),
        };
        let has_requests = sys.join("mq").exists();
        if layer == Some(Layer::Device) && !has_requests {
            return Err(CaptureError::NoDeviceLayer { device: name });
        }
        let default = if has_requests {
            Layer::Device
        } else {
            Layer::Queue
        };
        Ok(BlockDevice {
            number,
            name,
            layer: layer.unwrap_or(default),
            has_requests,
            parents: match &place {
                Some(_) => vec![device_name(&sys)],
                None => entries(&sys.join("slaves")),
            },
            reported,
            place,
            own,
            sys,
        })
    }

    /// What the tape says about it.
    pub fn describe(&self, index: iotape_formats::DeviceIndex) -> Device {
        let queue = |name: &str| read_number(&self.sys, &format!("queue/{name}"));
        let sector = |name| queue(name).and_then(|bytes| u32::try_from(bytes).ok());
        Device {
            index,
            name: self.name.clone(),
            layer: self.layer,
            size_bytes: read_number(&self.own, "size").and_then(|size| size.checked_mul(512)),
            logical_sector_bytes: sector("logical_block_size"),
            physical_sector_bytes: sector("physical_block_size"),
            model: read_text(&self.sys, "device/model"),
            rotational: queue("rotational").map(|rotational| rotational != 0),
            parents: self.parents.clone(),
        }
    }

    /// Where a range that was reported for [`BlockDevice::reported`] begins on this device; `None` if it
    /// is not all on it. What has no place, such as a flush, is everywhere.
    pub fn offset_of(&self, offset_bytes: u64, length_bytes: u64) -> Option<u64> {
        let Some(place) = &self.place else {
            return Some(offset_bytes);
        };
        if (offset_bytes, length_bytes) == (0, 0) {
            return Some(0);
        }
        let end = offset_bytes.checked_add(length_bytes)?;
        (offset_bytes >= place.start && end <= place.end).then(|| offset_bytes - place.start)
    }

    /// Name of the disk that reports its I/O: its own, or that of the disk it is a partition of.
    pub fn disk_name(&self) -> String {
        device_name(&self.sys)
    }

    /// Whether one discard request may cover several ranges.
    pub fn scatters_discards(&self) -> bool {
        read_number(&self.sys, "queue/max_discard_segments").is_some_and(|most| most > 1)
    }

    /// Whether it has a single queue to its driver.
    pub fn has_single_queue(&self) -> bool {
        self.has_requests && entries(&self.sys.join("mq")).len() == 1
    }

    /// Whether it makes a single write durable (FUA).
    #[cfg(feature = "bpf")]
    pub fn has_fua(&self) -> bool {
        read_number(&self.sys, "queue/fua") == Some(1)
    }

    /// Whether something may be in flight right now.
    pub fn is_busy(&self) -> bool {
        if read_number(&self.sys, "queue/iostats") != Some(1) {
            return true;
        }
        let counts = read_text(&self.sys, "inflight").unwrap_or_default();
        let mut counts = counts.split_whitespace().map(str::parse::<u64>);
        !matches!((counts.next(), counts.next()), (Some(Ok(0)), Some(Ok(0))))
    }

    /// Whether it went away, or lost its medium.
    pub fn is_gone(&self) -> bool {
        read_number(&self.own, "size").unwrap_or(0) == 0
    }
}

/// The disk of a partition: its folder and number, and where the partition lies on it.
fn partition(own: &Path) -> io::Result<(PathBuf, Number, Option<Range<u64>>)> {
    let disk = own.parent().ok_or(io::ErrorKind::NotFound)?;
    let bytes = |name| read_number(own, name).and_then(|sectors| sectors.checked_mul(512));
    let start = bytes("start").ok_or(io::ErrorKind::InvalidData)?;
    let end = bytes("size").and_then(|size| start.checked_add(size));
    let number = read_text(disk, "dev")
        .ok_or(io::ErrorKind::NotFound)?
        .parse()?;
    let place = start..end.ok_or(io::ErrorKind::InvalidData)?;
    Ok((disk.to_owned(), number, Some(place)))
}

/// The devices that a file on `dev` lies on, down to the last.
///
/// `dev` is the device number that `stat` gives. File systems without a device of their own
/// (btrfs, overlay) are looked up among the mounts.
pub(super) fn below(dev: u64) -> BTreeSet<Number> {
    let mut found = BTreeSet::new();
    let mut next = devices_of_filesystem(Number::of_dev(dev));
    while let Some(number) = next.pop() {
        if !found.insert(number) {
            continue;
        }
        let Ok(sys) = fs::canonicalize(number.sysfs()) else {
            continue;
        };
        next.extend(
            entries(&sys.join("slaves"))
                .iter()
                .filter_map(|name| number_of_name(name).ok()),
        );
        if sys.join("partition").exists() {
            next.extend(
                sys.parent()
                    .and_then(|disk| read_text(disk, "dev")?.parse::<Number>().ok()),
            );
        }
        let backing = read_text(&sys, "loop/backing_file");
        if let Some(file) = backing.and_then(|path| fs::metadata(path).ok()) {
            next.extend(devices_of_filesystem(Number::of_dev(file.dev())));
        }
    }
    found
}

/// Names of the devices that the file system of a file, or of a folder, lies on.
pub(super) fn devices_of_file(path: &Path) -> Vec<String> {
    let Ok(metadata) = fs::metadata(path) else {
        return Vec::new();
    };
    let numbers = devices_of_filesystem(Number::of_dev(metadata.dev()));
    let mut names: Vec<String> = numbers
        .into_iter()
        .filter_map(|number| fs::canonicalize(number.sysfs()).ok())
        .filter_map(|sys| Some(sys.file_name()?.to_string_lossy().into_owned()))
        .collect();
    // A btrfs of several devices names one of them as its source.
    let systems = fs::read_dir("/sys/fs/btrfs")
        .into_iter()
        .flatten()
        .flatten();
    for system in systems {
        let members = entries(&system.path().join("devices"));
        if members.iter().any(|member| names.contains(member)) {
            names.extend(members);
        }
    }
    names.sort();
    names.dedup();
    names
}

/// What this system's devices are built on.
pub(super) fn topology() -> Topology<'static> {
    Topology::new(PathBuf::from(CLASS), &devices_of_file)
}

/// The disk that a device is a partition of.
pub(super) fn disk_of(name: &str) -> Option<String> {
    let own = fs::canonicalize(Path::new(CLASS).join(name)).ok()?;
    own.join("partition").exists().then_some(())?;
    Some(own.parent()?.file_name()?.to_string_lossy().into_owned())
}

/// Where sysfs has a folder for each device.
const CLASS: &str = "/sys/class/block";

fn devices_of_filesystem(number: Number) -> Vec<Number> {
    if number.major != 0 {
        return vec![number];
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let source = |line: &str| -> Option<Number> {
        let (mount, filesystem) = line.split_once(" - ")?;
        if mount.split(' ').nth(2)?.parse::<Number>().ok()? != number {
            return None;
        }
        let device = fs::metadata(filesystem.split(' ').nth(1)?).ok()?;
        device
            .file_type()
            .is_block_device()
            .then(|| Number::of_dev(device.rdev()))
    };
    mounts.lines().filter_map(source).collect()
}

fn number_of(path: &Path) -> Result<Number, CaptureError> {
    let unknown = |source| CaptureError::UnknownDevice {
        path: path.to_owned(),
        source,
    };
    if path.parent() == Some(Path::new("")) {
        let name = path.to_string_lossy().replace('/', "!");
        return number_of_name(&name).map_err(unknown);
    }
    let metadata = fs::metadata(path).map_err(unknown)?;
    if !metadata.file_type().is_block_device() {
        return Err(CaptureError::NotABlockDevice {
            path: path.to_owned(),
        });
    }
    Ok(Number::of_dev(metadata.rdev()))
}

fn number_of_name(name: &str) -> io::Result<Number> {
    fs::read_to_string(Path::new("/sys/class/block").join(name).join("dev"))?.parse()
}

/// sysfs writes `!` for the `/` in names such as `cciss/c0d0`.
fn device_name(sys: &Path) -> String {
    sys.file_name()
        .unwrap_or(OsStr::new("?"))
        .to_string_lossy()
        .replace('!', "/")
}

fn entries(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn read_text(sys: &Path, name: &str) -> Option<String> {
    let text = fs::read_to_string(sys.join(name)).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn read_number(sys: &Path, name: &str) -> Option<u64> {
    read_text(sys, name)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_sysfs_and_as_the_kernel_have_them() {
        let number: Number = "259:3\n".parse().unwrap();
        assert_eq!(number.to_string(), "259:3");
        assert_eq!(number.in_kernel(), 271_581_187);
        assert!("259".parse::<Number>().is_err());
        assert!("a:b".parse::<Number>().is_err());
    }

    #[test]
    fn a_partition_has_what_lies_in_its_range() {
        let device = BlockDevice {
            number: "8:1".parse().unwrap(),
            reported: "8:0".parse().unwrap(),
            name: "sda1".to_owned(),
            layer: Layer::Device,
            has_requests: true,
            parents: vec!["sda".to_owned()],
            place: Some(4096..12_288),
            own: PathBuf::new(),
            sys: PathBuf::new(),
        };
        assert_eq!(device.offset_of(4096, 8192), Some(0));
        assert_eq!(device.offset_of(8192, 4096), Some(4096));
        assert_eq!(device.offset_of(8192, 4608), None, "beyond its end");
        assert_eq!(device.offset_of(0, 4096), None);
        assert_eq!(device.offset_of(0, 0), Some(0), "a flush");
        assert_eq!(
            device.offset_of(8192, 0),
            Some(4096),
            "the end of a flush sequence"
        );
        assert_eq!(device.offset_of(u64::MAX, 4096), None);
        let disk = BlockDevice {
            place: None,
            ..device
        };
        assert_eq!(disk.offset_of(8192, 4096), Some(8192));
    }

    #[test]
    fn what_is_no_block_device_is_refused() {
        let find = |path: &str| BlockDevice::find(Path::new(path), None);
        assert!(matches!(
            find("/dev/null"),
            Err(CaptureError::NotABlockDevice { .. })
        ));
        assert!(matches!(
            find("/proc"),
            Err(CaptureError::NotABlockDevice { .. })
        ));
        assert!(matches!(
            find("/dev/no-such-disk"),
            Err(CaptureError::UnknownDevice { .. })
        ));
        assert!(matches!(
            find("no-such-disk"),
            Err(CaptureError::UnknownDevice { .. })
        ));
    }

    #[test]
    fn a_file_lies_on_the_device_that_stat_names() {
        let file = fs::metadata("/proc/self/exe").unwrap();
        let number = Number::of_dev(file.dev());
        if number.major == 0 {
            eprintln!("skipped: the test's own file lies on a file system without a device");
            return;
        }
        assert!(below(file.dev()).contains(&number));
    }
}
