//! What sysfs says about a block device.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{Dev, major, minor};

/// A block device in sysfs.
#[derive(Clone, Debug)]
pub struct BlockDevice {
    /// Its directory.
    directory: PathBuf,
    /// That of the disk it is a partition of, else its own.
    disk: PathBuf,
}

impl BlockDevice {
    /// The device of this number; `None` where sysfs does not know it.
    pub fn of(number: Dev) -> Option<Self> {
        Self::under(Path::new("/sys/dev/block"), number)
    }

    /// The same under another root, for tests.
    pub(super) fn under(root: &Path, number: Dev) -> Option<Self> {
        let link = root.join(format!("{}:{}", major(number), minor(number)));
        let directory = fs::canonicalize(link).ok()?;
        let disk = if directory.join("partition").exists() {
            directory.parent()?.to_owned()
        } else {
            directory.clone()
        };
        Some(BlockDevice { directory, disk })
    }

    /// Text of one of its own attributes.
    pub fn attribute(&self, name: &str) -> Option<String> {
        read_line(&self.directory.join(name))
    }

    /// Text of an attribute of its disk: queue limits and model are the disk's.
    pub fn disk_attribute(&self, name: &str) -> Option<String> {
        read_line(&self.disk.join(name))
    }

    /// A number among the attributes of its disk.
    pub fn disk_number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.disk_attribute(name)?.parse().ok()
    }

    /// The device, its partitions, and the disk that it is a partition of: whatever shares its
    /// bytes. As (name, `major:minor`, holders).
    pub fn relatives(&self) -> Vec<Relative> {
        let mut relatives = vec![Relative::of(&self.directory)];
        if self.disk != self.directory {
            relatives.push(Relative::of(&self.disk));
        }
        let entries = fs::read_dir(&self.directory)
            .into_iter()
            .flatten()
            .flatten();
        for entry in entries {
            if entry.path().join("partition").exists() {
                relatives.push(Relative::of(&entry.path()));
            }
        }
        relatives
    }
}

/// A device that shares bytes with the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relative {
    /// The kernel's name.
    pub name: String,
    /// `major:minor`.
    pub number: String,
    /// Names of the devices built on it.
    pub holders: Vec<String>,
}

impl Relative {
    fn of(directory: &Path) -> Self {
        let holders = fs::read_dir(directory.join("holders"))
            .into_iter()
            .flatten()
            .flatten();
        Relative {
            name: name_of(directory),
            number: read_line(&directory.join("dev")).unwrap_or_default(),
            holders: holders
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect(),
        }
    }
}

fn name_of(directory: &Path) -> String {
    directory
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn read_line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.trim();
    (!line.is_empty()).then(|| line.to_owned())
}
