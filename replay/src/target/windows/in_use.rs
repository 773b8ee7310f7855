//! Whether somebody uses a disk: what lies on it, told from the list of all volumes.

use std::path::Path;

use crate::error::ReplayError;

/// A volume of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// `\\?\Volume{…}\`.
    pub name: String,
    /// Numbers of the disks that it lies on.
    pub disks: Vec<u32>,
    /// Drive letters and directories.
    pub mount_points: Vec<String>,
    /// Name of its filesystem; `None` where the system knows none.
    pub filesystem: Option<String>,
}

impl Volume {
    /// Whether a path lies on it. Mount points end with a backslash.
    fn holds(&self, path: &str) -> bool {
        self.mount_points.iter().any(|point| {
            path.get(..point.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(point))
        })
    }
}

/// Refuses a disk that the system runs from, or with a filesystem on it. What remains are volumes
/// without one, to be locked before the disk is used.
///
/// # Errors
/// [`ReplayError::SystemDisk`] or [`ReplayError::Mounted`].
pub fn check_disk<'a>(
    path: &Path,
    disk: u32,
    volumes: &'a [Volume],
    system_directory: &str,
) -> Result<Vec<&'a Volume>, ReplayError> {
    let on_disk = || volumes.iter().filter(|volume| volume.disks.contains(&disk));
    if on_disk().any(|volume| volume.holds(system_directory)) {
        return Err(ReplayError::SystemDisk {
            path: path.to_owned(),
            directory: system_directory.to_owned(),
        });
    }
    if let Some(volume) = on_disk().find(|volume| volume.filesystem.is_some()) {
        let filesystem = volume.filesystem.as_deref().unwrap_or_default();
        return Err(ReplayError::Mounted {
            path: path.to_owned(),
            device: format!("{} ({filesystem})", volume.name),
            mount_point: match volume.mount_points.first() {
                Some(point) => point.clone(),
                None => "no drive letter".to_owned(),
            },
        });
    }
    Ok(on_disk().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(name: &str, disks: &[u32], point: &str, filesystem: &str) -> Volume {
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Volume {
            name: format!(r"\\?\Volume{{{name}}}\"),
            disks: disks.to_vec(),
            mount_points: some(point).into_iter().collect(),
            filesystem: some(filesystem),
        }
    }

    /// A machine with Windows on disk 0, data on 1, a volume over 1 and 2, a raw one on 3.
    fn machine() -> Vec<Volume> {
        vec![
            volume("efi", &[0], "", "FAT32"),
            volume("system", &[0], r"C:\", "NTFS"),
            volume("data", &[1], r"D:\", "NTFS"),
            volume("spanned", &[1, 2], r"E:\mount\", "ReFS"),
            volume("raw", &[3], r"F:\", ""),
            volume("cd", &[], r"G:\", "CDFS"),
        ]
    }

    fn check(disk: u32) -> Result<Vec<String>, String> {
        let path = format!(r"\\.\PhysicalDrive{disk}");
        let machine = machine();
        check_disk(Path::new(&path), disk, &machine, r"c:\WINDOWS")
            .map(|claims| claims.iter().map(|volume| volume.name.clone()).collect())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_system_disk_is_refused_before_anything_else() {
        let text = check(0).unwrap_err();
        assert!(
            text.starts_with(r"\\.\PhysicalDrive0: Windows runs from it (c:\WINDOWS)"),
            "{text}"
        );
    }

    #[test]
    fn a_disk_with_a_filesystem_is_refused_by_the_volume_and_where_it_is_mounted() {
        let text = check(1).unwrap_err();
        assert!(
            text.contains(r"\\?\Volume{data}\ (NTFS) is mounted on D:\"),
            "{text}"
        );
        let text = check(2).unwrap_err();
        assert!(text.contains(r"(ReFS) is mounted on E:\mount\"), "{text}");
        let hidden = [volume("recovery", &[7], "", "NTFS")];
        let error = check_disk(Path::new("x"), 7, &hidden, r"C:\Windows").unwrap_err();
        assert!(error.to_string().contains("no drive letter"), "{error}");
    }

    #[test]
    fn volumes_without_a_filesystem_are_to_be_locked() {
        assert_eq!(check(3).unwrap(), [r"\\?\Volume{raw}\"]);
        assert_eq!(check(4).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_system_directory_shorter_than_a_mount_point_lies_elsewhere() {
        let mount = volume("m", &[1], r"C:\mount\here\", "NTFS");
        assert!(!mount.holds(r"C:\"));
        assert!(!mount.holds("C:\\mount\\h\u{e4}re\\x"));
    }
}
