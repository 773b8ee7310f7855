//! Opens a disk or a file that the user named, once everything has been checked.

use std::io;
use std::path::Path;
use std::sync::Arc;

use windows_sys::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_FILE_NOT_FOUND, ERROR_INVALID_PARAMETER, ERROR_PATH_NOT_FOUND,
    ERROR_SHARING_VIOLATION, ERROR_WRITE_PROTECT,
};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_ATTRIBUTE_COMPRESSED, FILE_ATTRIBUTE_ENCRYPTED, FILE_ATTRIBUTE_SPARSE_FILE,
};

use super::in_use;
use super::names::{Name, classify};
use crate::engine::Unsplit;
use crate::error::ReplayError;
use crate::result::{self, TargetKind};
use crate::sys::{self, DiskFacts, File, FileFacts, Opening};
use crate::target::{Access, Target, fit};

/// Opens a target and checks it. Nothing is written.
///
/// # Errors
/// A distinct [`ReplayError`] for each reason why it cannot or should not be replayed against.
pub fn open(path: &Path, access: Access) -> Result<Target, ReplayError> {
    let target = match classify(&path.to_string_lossy()) {
        Name::Disk(number) => open_disk(path, access, number)?,
        Name::File => open_file(path, access)?,
        Name::Volume | Name::Device => {
            return Err(ReplayError::NoDiskOrFile {
                path: path.to_owned(),
            });
        }
    };
    fit::check(&target, access)?;
    Ok(target)
}

fn open_disk(path: &Path, access: Access, number: u32) -> Result<Target, ReplayError> {
    let failed = |action, error| failed(path, access, action, error);
    // First, so that one without the right to it is told so, and no volume is locked.
    let opening = Opening {
        write: access.writes(),
        direct: true,
        temporary: false,
    };
    let mut disk = sys::open(path, opening).map_err(|error| failed("open it", error))?;
    let facts = sys::disk_facts(&disk).map_err(|error| failed("find its size", error))?;
    if !access.lenient() {
        claim_volumes(path, access, number, &mut disk)?;
    }
    if access.writes() && facts.read_only {
        return Err(ReplayError::ReadOnly {
            path: path.to_owned(),
        });
    }
    Ok(describe_disk(disk, path, facts))
}

/// Refuses a disk in use, and locks what lies on one that is not.
fn claim_volumes(
    path: &Path,
    access: Access,
    number: u32,
    disk: &mut File,
) -> Result<(), ReplayError> {
    let failed = |error| failed(path, access, "find out which volumes lie on it", error);
    let volumes = sys::volumes().map_err(failed)?;
    let system = std::env::var("SystemRoot").unwrap_or_else(|_| r"C:\Windows".to_owned());
    let mut claims = Vec::new();
    for volume in in_use::check_disk(path, number, &volumes, &system)? {
        let claim = sys::claim(&volume.name, access.writes()).map_err(|_| ReplayError::Busy {
            path: path.to_owned(),
        });
        claims.push(claim?);
    }
    disk.keep(claims);
    Ok(())
}

fn describe_disk(disk: File, path: &Path, facts: DiskFacts) -> Target {
    let (logical, physical) = facts.sectors.unwrap_or((512, 512));
    let sector_bytes = logical.max(1);
    let size_bytes = facts.size_bytes;
    Target {
        path: path.to_owned(),
        size_bytes: size_bytes - size_bytes % u64::from(sector_bytes),
        sector_bytes,
        memory_alignment: sector_bytes,
        block_device: true,
        discards: facts.trims != Some(false),
        zeroes: false,
        flushes: disk.writable(),
        cached: None,
        unsplit: Unsplit::ANY,
        queue_requests: None,
        facts: result::Target {
            path: Some(path.display().to_string()),
            kind: TargetKind::Block,
            size_bytes: Some(size_bytes),
            direct: true,
            model: facts.model,
            firmware: facts.firmware,
            logical_sector: Some(sector_bytes),
            physical_sector: Some(physical),
            write_cache: facts.write_cache.map(|on| {
                let name = if on { "write back" } else { "write through" };
                name.to_owned()
            }),
            ..result::Target::default()
        },
        notes: Vec::new(),
        file: Arc::new(disk),
    }
}

fn open_file(path: &Path, access: Access) -> Result<Target, ReplayError> {
    let failed = |action, error| failed(path, access, action, error);
    if path.is_dir() {
        return Err(ReplayError::Directory {
            path: path.to_owned(),
        });
    }
    let read_only = std::fs::metadata(path).is_ok_and(|found| found.permissions().readonly());
    if access.writes() && read_only {
        return Err(ReplayError::ReadOnly {
            path: path.to_owned(),
        });
    }
    let opening = |direct| Opening {
        write: access.writes(),
        direct,
        temporary: false,
    };
    let (file, direct) = match sys::open(path, opening(true)) {
        Err(error) if has_code(&error, ERROR_INVALID_PARAMETER) => {
            (sys::open(path, opening(false)), false)
        }
        other => (other, true),
    };
    let file = file.map_err(|error| failed("open it", error))?;
    let facts = sys::file_facts(&file).map_err(|error| failed("examine it", error))?;
    match facts.kind {
        "disk" => Ok(describe_file(file, path, &facts, direct, TargetKind::File)),
        "character" => Err(ReplayError::CharacterDevice {
            path: path.to_owned(),
            hint: String::new(),
        }),
        kind => Err(ReplayError::NotSeekable {
            path: path.to_owned(),
            kind,
        }),
    }
}

/// What is to be known of an open file.
pub(super) fn describe_file(
    file: File,
    path: &Path,
    facts: &FileFacts,
    direct: bool,
    kind: TargetKind,
) -> Target {
    let name = facts.filesystem.as_deref().unwrap_or("its filesystem");
    let packed = FILE_ATTRIBUTE_COMPRESSED | FILE_ATTRIBUTE_ENCRYPTED;
    let cached = if !direct {
        Some(format!(
            "{name} refuses unbuffered I/O, requests go through the system's cache"
        ))
    } else if facts.attributes & packed != 0 {
        Some("the file is compressed or encrypted, its data is unpacked in memory".to_owned())
    } else {
        None
    };
    // Where nobody says, a page is a multiple of any sector.
    let (logical, physical) = match facts.sectors {
        Some((logical, physical)) => (Some(logical.max(1)), Some(physical)),
        None => (None, None),
    };
    let sector_bytes = match (&cached, logical) {
        (Some(_), _) => 1,
        (None, logical) => logical.unwrap_or(4096),
    };
    let mut notes = Vec::new();
    let holes = facts.allocated_bytes < facts.size_bytes;
    if holes && facts.attributes & FILE_ATTRIBUTE_SPARSE_FILE != 0 {
        notes.push(format!(
            "the file has holes: only {} of its {} bytes are allocated; reads of the rest reach no device",
            facts.allocated_bytes, facts.size_bytes
        ));
    }
    Target {
        path: path.to_owned(),
        size_bytes: facts.size_bytes - facts.size_bytes % u64::from(sector_bytes),
        sector_bytes,
        memory_alignment: sector_bytes,
        block_device: false,
        discards: true,
        zeroes: true,
        flushes: file.writable(),
        queue_requests: None,
        unsplit: Unsplit::ANY,
        facts: result::Target {
            path: Some(path.display().to_string()),
            kind,
            size_bytes: Some(facts.size_bytes),
            direct: cached.is_none(),
            filesystem: facts.filesystem.clone(),
            logical_sector: logical,
            physical_sector: physical,
            ..result::Target::default()
        },
        cached,
        notes,
        file: Arc::new(file),
    }
}

fn has_code(error: &io::Error, code: u32) -> bool {
    error.raw_os_error() == Some(code.cast_signed())
}

/// The error that a failed system call stands for.
fn failed(path: &Path, access: Access, action: &'static str, error: io::Error) -> ReplayError {
    let path = path.to_owned();
    match error.raw_os_error().map(i32::cast_unsigned) {
        Some(ERROR_FILE_NOT_FOUND | ERROR_PATH_NOT_FOUND) => ReplayError::NotFound { path },
        Some(ERROR_ACCESS_DENIED) => ReplayError::PermissionDenied {
            path,
            access: if access.writes() {
                "reading and writing"
            } else {
                "reading"
            },
        },
        Some(ERROR_WRITE_PROTECT) => ReplayError::ReadOnly { path },
        Some(ERROR_SHARING_VIOLATION) => ReplayError::Busy { path },
        _ => ReplayError::Target {
            path,
            action,
            source: error,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const FORBIDDEN: Access = Access::Forbidden {
        writes: 3,
        discards: 2,
        write_zeroes: 1,
    };

    #[test]
    fn each_unfit_path_has_its_own_error() {
        let dir = tempfile::tempdir().unwrap();
        let empty = dir.path().join("empty");
        fs::write(&empty, "").unwrap();
        let error = |path: &Path| open(path, Access::Read).unwrap_err();
        let missing = error(&dir.path().join("no"));
        assert!(matches!(missing, ReplayError::NotFound { .. }), "{missing}");
        let found = error(dir.path());
        assert!(matches!(found, ReplayError::Directory { .. }), "{found}");
        assert!(matches!(error(&empty), ReplayError::Empty { .. }));
        for device in ["C:", r"\\.\CdRom0"] {
            let found = error(Path::new(device));
            assert!(matches!(found, ReplayError::NoDiskOrFile { .. }), "{found}");
        }
        let found = error(Path::new(r"\\.\PhysicalDrive77"));
        assert!(matches!(found, ReplayError::NotFound { .. }), "{found}");
    }

    #[test]
    fn a_file_with_a_signature_is_only_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let mut content = vec![0; 1 << 20];
        content[3..11].copy_from_slice(b"NTFS    ");
        fs::write(&path, &content).unwrap();
        for access in [Access::Read, Access::Overwrite, FORBIDDEN] {
            let error = open(&path, access).unwrap_err();
            let named = matches!(
                error,
                ReplayError::Signature {
                    offset_bytes: 3,
                    ..
                }
            );
            assert!(named, "{error}");
        }
        let target = open(&path, Access::SkipWrites).unwrap();
        assert_eq!(target.size_bytes, 1 << 20);
        assert!(!target.flushes);
        drop(target);
        assert_eq!(fs::read(&path).unwrap(), content);
    }

    #[test]
    fn a_tape_that_changes_data_needs_permission_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, vec![7; 8192]).unwrap();
        let text = open(&path, FORBIDDEN).unwrap_err().to_string();
        assert!(
            text.contains("3 writes, 2 discards, 1 write-zeroes"),
            "{text}"
        );
        let target = open(&path, Access::Overwrite).unwrap();
        assert_eq!(target.facts.kind, TargetKind::File);
        assert!(target.flushes);
    }

    #[test]
    fn a_file_that_is_written_protected_or_open_elsewhere_is_refused() {
        use std::os::windows::fs::OpenOptionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, vec![7; 8192]).unwrap();
        let alone = fs::File::options()
            .read(true)
            .share_mode(0)
            .open(&path)
            .unwrap();
        let error = open(&path, Access::Read).unwrap_err();
        assert!(matches!(error, ReplayError::Busy { .. }), "{error}");
        drop(alone);
        let mut permissions = fs::metadata(&path).unwrap().permissions();
        permissions.set_readonly(true);
        fs::set_permissions(&path, permissions).unwrap();
        let error = open(&path, Access::Overwrite).unwrap_err();
        assert!(matches!(error, ReplayError::ReadOnly { .. }), "{error}");
        assert!(open(&path, Access::Read).is_ok());
    }
}
