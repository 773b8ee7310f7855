//! What block devices are built on, as sysfs tells it.
//!
//! A *leaf* is built on no other device: a disk, or a partition. The I/O of a stack (dm, md, multipath,
//! bcache, a loop device over a file) reaches leaves, where each byte is moved once.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The devices of a system.
pub(super) struct Topology<'a> {
    /// The folder that has an entry for each device: `/sys/class/block`.
    root: PathBuf,
    /// Names of the devices that a file lies on.
    devices_of_file: &'a dyn Fn(&Path) -> Vec<String>,
}

impl<'a> Topology<'a> {
    pub fn new(root: PathBuf, devices_of_file: &'a dyn Fn(&Path) -> Vec<String>) -> Topology<'a> {
        Topology {
            root,
            devices_of_file,
        }
    }

    /// All leaves that are disks with a medium: neither partitions, nor paths that multipath hides.
    pub fn leaf_disks(&self) -> Vec<String> {
        let is_one = |name: &String| {
            let folder = self.root.join(name);
            let number = |file| read(&folder.join(file)).and_then(|text| text.parse::<u64>().ok());
            number("size").is_some_and(|sectors| sectors > 0)
                && number("partition").is_none()
                && number("hidden") != Some(1)
                && self.below(name).is_empty()
        };
        self.all().into_iter().filter(is_one).collect()
    }

    /// The leaves that the I/O of a device reaches: itself, if it is one.
    pub fn leaves_of(&self, name: &str) -> Vec<String> {
        let mut reached = self.all_below(name);
        reached.insert(name.to_owned());
        reached.retain(|name| self.below(name).is_empty());
        reached.into_iter().collect()
    }

    /// Everything that a device is built on, down to the leaves.
    pub fn all_below(&self, name: &str) -> BTreeSet<String> {
        let mut reached = BTreeSet::new();
        let mut next = self.below(name);
        while let Some(lower) = next.pop() {
            if reached.insert(lower.clone()) {
                next.extend(self.below(&lower));
            }
        }
        reached
    }

    /// Devices that are built on one of these, each with what it is built on.
    pub fn above(&self, lower: &BTreeSet<String>) -> Vec<(String, Vec<String>)> {
        let is_above = |name: &String| !self.all_below(name).is_disjoint(lower);
        let with_below = |name: String| {
            let below = self.below(&name);
            (name, below)
        };
        self.all()
            .into_iter()
            .filter(is_above)
            .map(with_below)
            .collect()
    }

    /// What a device is built on directly.
    fn below(&self, name: &str) -> Vec<String> {
        let folder = self.root.join(name);
        let slaves = entries(&folder.join("slaves"));
        if !slaves.is_empty() {
            return slaves;
        }
        let backing = read(&folder.join("loop/backing_file"));
        backing.map_or_else(Vec::new, |file| (self.devices_of_file)(Path::new(&file)))
    }

    fn all(&self) -> Vec<String> {
        entries(&self.root)
    }
}

fn entries(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn read(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name, a size in sectors, what it is built on, and further files.
    type Fake = (
        &'static str,
        u64,
        &'static [&'static str],
        &'static [(&'static str, &'static str)],
    );

    const DEVICES: [Fake; 13] = [
        ("sda", 1000, &[], &[]),
        ("sda1", 400, &[], &[("partition", "1\n")]),
        ("sda2", 400, &[], &[("partition", "2\n")]),
        ("sdb", 1000, &[], &[]),
        ("md0", 800, &["sda1", "sdb"], &[]),
        ("dm-0", 700, &["md0"], &[]),
        ("mpatha", 500, &["nvme0c0n1"], &[]),
        ("nvme0c0n1", 500, &[], &[("hidden", "1\n")]),
        ("bcache0", 300, &["sda2", "sdb"], &[]),
        ("loop0", 100, &[], &[("loop/backing_file", "/var/image\n")]),
        (
            "loop1",
            100,
            &[],
            &[("loop/backing_file", "/tmpfs/image\n")],
        ),
        ("loop2", 0, &[], &[]),
        ("zram0", 0, &[], &[]),
    ];

    fn with_topology(check: impl Fn(&Topology<'_>)) {
        let root = tempfile::tempdir().unwrap();
        for (name, size, slaves, files) in DEVICES {
            let folder = root.path().join(name);
            fs::create_dir_all(folder.join("loop")).unwrap();
            fs::write(folder.join("size"), format!("{size}\n")).unwrap();
            for slave in slaves {
                fs::create_dir_all(folder.join("slaves").join(slave)).unwrap();
            }
            for (file, text) in files {
                fs::write(folder.join(file), text).unwrap();
            }
        }
        let on = |file: &Path| match file.to_str() {
            Some("/var/image") => vec!["dm-0".to_owned()],
            _ => Vec::new(),
        };
        check(&Topology::new(root.path().to_owned(), &on));
    }

    #[test]
    fn leaves_are_built_on_nothing() {
        with_topology(|topology| {
            // A loop device over memory is where its I/O ends.
            assert_eq!(topology.leaf_disks(), ["loop1", "sda", "sdb"]);
            let leaves = |name: &str| topology.leaves_of(name);
            assert_eq!(leaves("dm-0"), ["sda1", "sdb"]);
            assert_eq!(leaves("loop0"), ["sda1", "sdb"]);
            assert_eq!(leaves("bcache0"), ["sda2", "sdb"]);
            assert_eq!(leaves("sda1"), ["sda1"]);
            assert_eq!(leaves("mpatha"), ["nvme0c0n1"]);
        });
    }

    #[test]
    fn stacks_are_found_from_below() {
        with_topology(|topology| {
            let above: Vec<String> = topology
                .above(&BTreeSet::from(["sda1".to_owned()]))
                .into_iter()
                .map(|(name, below)| format!("{name}: {}", below.join(" ")))
                .collect();
            assert_eq!(above, ["dm-0: md0", "loop0: dm-0", "md0: sda1 sdb"]);
            let below = topology.all_below("loop0");
            let expected = ["dm-0", "md0", "sda1", "sdb"].map(str::to_owned);
            assert_eq!(below, BTreeSet::from(expected));
        });
    }
}
