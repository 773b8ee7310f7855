//! Names of control groups: the kernel tells a group by its number, which is that of its folder where
//! the hierarchy is mounted.
//!
//! Folders are looked through when a number turns up that has no name yet, at most once a second,
//! and by the thread that writes: the one that drains the kernel does not wait for it. A group that
//! is gone by then keeps its number.

use std::collections::HashSet;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use iotape_formats::tape::{Name, NameKind};

/// How often folders are looked through.
const REST: Duration = Duration::from_secs(1);
/// Most numbers that wait for a look.
const MOST_WANTED: usize = 4096;
/// Most folders that one look goes through.
const MOST_FOLDERS: usize = 65_536;

/// Control groups that have no name yet.
#[derive(Debug, Default)]
pub(super) struct Groups {
    wanted: HashSet<u64>,
    looked: Option<Instant>,
}

impl Groups {
    /// Takes numbers whose names are to be found.
    pub fn want(&mut self, ids: &[u64]) {
        let room = MOST_WANTED.saturating_sub(self.wanted.len());
        self.wanted.extend(ids.iter().take(room));
    }

    /// When the next look is due; `None` if nothing is wanted.
    pub fn patience(&self) -> Option<Duration> {
        let rest = |looked: Instant| REST.saturating_sub(looked.elapsed());
        (!self.wanted.is_empty()).then(|| self.looked.map_or(Duration::ZERO, rest))
    }

    /// Names of what is wanted, if a look is due. Each number is looked for once.
    pub fn look_if_due(&mut self) -> Vec<Name> {
        match self.patience() {
            Some(Duration::ZERO) => self.look(),
            _ => Vec::new(),
        }
    }

    /// Names of what is wanted, now.
    pub fn look(&mut self) -> Vec<Name> {
        let mut wanted = std::mem::take(&mut self.wanted);
        if wanted.is_empty() {
            return Vec::new();
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let names = Hierarchy::of_block_io(&mounts).map(|hierarchy| hierarchy.find(&mut wanted));
        self.looked = Some(Instant::now());
        names.unwrap_or_default()
    }
}

/// Where a hierarchy is mounted, and which of its groups stands there.
#[derive(Debug, PartialEq, Eq)]
struct Hierarchy {
    root: String,
    point: PathBuf,
}

impl Hierarchy {
    /// The one that charges block I/O: version 1 with the controller, else version 2. Numbers of
    /// another one mean other groups.
    fn of_block_io(mounts: &str) -> Option<Hierarchy> {
        let of_version = |version: u8| {
            let mounted = mounts.lines().filter_map(|line| mounted(line, version));
            mounted.min_by_key(|hierarchy| hierarchy.root.len())
        };
        of_version(1).or_else(|| of_version(2))
    }

    /// Names of groups, which are no longer wanted then.
    fn find(&self, wanted: &mut HashSet<u64>) -> Vec<Name> {
        let mut names = Vec::new();
        let mut take = |id: u64, path: &str| {
            let found = wanted.remove(&id);
            if found {
                names.push(Name {
                    kind: NameKind::Cgroup,
                    id,
                    name: Arc::from(if path.is_empty() { "/" } else { path }),
                });
            }
            !wanted.is_empty()
        };
        let root = self.root.trim_end_matches('/');
        let mut more = fs::metadata(&self.point).is_ok_and(|point| take(point.ino(), root));
        let mut waiting = vec![(self.point.clone(), root.to_owned())];
        let mut folders = 0;
        while let Some((folder, name)) = waiting.pop()
            && more
        {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                if !entry.file_type().is_ok_and(|kind| kind.is_dir()) || folders == MOST_FOLDERS {
                    continue;
                }
                folders += 1;
                let name = format!("{name}/{}", entry.file_name().to_string_lossy());
                more = take(entry.ino(), &name);
                waiting.push((entry.path(), name));
            }
        }
        names
    }
}

/// What a line of mountinfo (proc(5)) says of a hierarchy for block I/O of this version.
fn mounted(line: &str, version: u8) -> Option<Hierarchy> {
    let (mount, filesystem) = line.split_once(" - ")?;
    let mut filesystem = filesystem.split(' ');
    let (kind, options) = (filesystem.next()?, filesystem.nth(1)?);
    let is_it = match version {
        1 => kind == "cgroup" && options.split(',').any(|option| option == "blkio"),
        _ => kind == "cgroup2",
    };
    let mut fields = mount.split(' ').skip(3).map(unescaped);
    let (root, point) = (fields.next()?, fields.next()?);
    is_it.then(|| Hierarchy {
        root: String::from_utf8_lossy(&root).into_owned(),
        point: PathBuf::from(std::ffi::OsString::from_vec(point)),
    })
}

/// Spaces and the like stand as a backslash and three octal digits.
fn unescaped(field: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let [first, behind @ ..] = rest {
        let digits = behind
            .get(..3)
            .and_then(|digits| str::from_utf8(digits).ok());
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        let (byte, length) = match escaped.filter(|_| *first == b'\\') {
            Some(byte) => (byte, 4),
            None => (*first, 1),
        };
        bytes.push(byte);
        rest = &rest[length..];
    }
    bytes
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]
mod tests {
    use super::*;

    fn hierarchy(root: &str, point: &str) -> Option<Hierarchy> {
        Some(Hierarchy {
            root: root.to_owned(),
            point: PathBuf::from(point),
        })
    }

    #[test]
    fn the_hierarchy_is_the_one_that_charges_block_io() {
        let unified =
            "41 31 0:38 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
        let cpu = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n";
        let part = "38 31 0:35 /a/b /srv/blk rw - cgroup cgroup rw,blkio\n";
        let whole = r"39 31 0:35 / /sys/fs/my\040\134groups rw - cgroup cgroup rw,net,blkio";
        let of = |lines: &[&str]| Hierarchy::of_block_io(&lines.concat());
        assert_eq!(
            of(&[unified, cpu]),
            hierarchy("/", "/sys/fs/cgroup/unified")
        );
        assert_eq!(of(&[unified, part]), hierarchy("/a/b", "/srv/blk"));
        assert_eq!(
            of(&[unified, part, whole]),
            hierarchy("/", r"/sys/fs/my \groups")
        );
        assert_eq!(of(&[cpu, "torn - cgroup2", "\n"]), None);
    }

    #[test]
    fn groups_are_found_by_the_numbers_of_their_folders() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("mail.slice/dovecot");
        fs::create_dir_all(&inner).unwrap();
        fs::create_dir(folder.path().join("other")).unwrap();
        fs::write(folder.path().join("cgroup.procs"), "").unwrap();
        let id = |path: &std::path::Path| fs::metadata(path).unwrap().ino();
        let file = id(&folder.path().join("cgroup.procs"));
        for (root, names) in [
            ("/", ["/", "/mail.slice/dovecot"]),
            ("/box", ["/box", "/box/mail.slice/dovecot"]),
        ] {
            let hierarchy = hierarchy(root, folder.path().to_str().unwrap()).unwrap();
            let mut wanted = HashSet::from([id(folder.path()), id(&inner), file]);
            let found = hierarchy.find(&mut wanted);
            let found: Vec<_> = found.iter().map(|name| (name.id, &*name.name)).collect();
            assert_eq!(
                found,
                [(id(folder.path()), names[0]), (id(&inner), names[1])]
            );
            assert_eq!(wanted, HashSet::from([file]));
        }
    }

    #[test]
    fn a_number_is_looked_for_once_and_looks_are_apart() {
        let mut groups = Groups::default();
        assert_eq!(groups.patience(), None);
        groups.want(&[u64::MAX]);
        assert_eq!(groups.patience(), Some(Duration::ZERO));
        assert!(groups.look_if_due().is_empty());
        assert_eq!(groups.patience(), None);
        groups.want(&[u64::MAX - 1]);
        assert!(groups.patience().is_some_and(|left| !left.is_zero()));
        let many: Vec<u64> = (0..5000).collect();
        groups.want(&many);
        assert_eq!(groups.wanted.len(), MOST_WANTED);
    }
}
