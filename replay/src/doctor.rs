//! What this machine offers a replay, and what would give it the rest.

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at.
    pub subject: &'static str,
    /// Whether it is there in full; a replay works without it too, in another way.
    pub ready: bool,
    /// What was found, with the numbers.
    pub detail: String,
    /// What provides the rest.
    pub remedy: Option<String>,
}

/// Looks at the engines, the lockable memory and the place of scratch files.
#[cfg(target_os = "linux")]
pub fn doctor() -> Vec<Finding> {
    vec![
        linux::io_uring(),
        linux::lockable_memory(),
        linux::scratch(),
    ]
}

/// Nothing can be replayed on this operating system.
#[cfg(not(any(target_os = "linux", windows)))]
pub fn doctor() -> Vec<Finding> {
    vec![Finding {
        subject: "engines",
        ready: false,
        detail: crate::ReplayError::UnsupportedPlatform.to_string(),
        remedy: None,
    }]
}

/// Looks at the completion ports, the right to open disks and the place of scratch files.
#[cfg(windows)]
pub fn doctor() -> Vec<Finding> {
    vec![windows::ports(), windows::disks(), windows::scratch()]
}

#[cfg(windows)]
#[path = "windows/doctor.rs"]
mod windows;

#[cfg(target_os = "linux")]
mod linux {
    use std::sync::Arc;

    use rustix::fs::{Mode, OFlags, fstatvfs};
    use rustix::process::{Resource, getrlimit};

    use super::Finding;
    use crate::options::Profile;
    use crate::sys::{Buffers, Ring, RingError, RingOptions};
    use crate::target::{default_directory, filesystem};

    /// What the buffers of a heavy replay of 1 MiB requests take.
    const USUAL_BUFFERS_BYTES: u64 = 49 << 20;

    pub fn io_uring() -> Finding {
        let (ready, detail) = match probe() {
            Ok(notes) if notes.is_empty() => (true, "works, with registered buffers".to_owned()),
            Ok(notes) => (true, format!("works; {}", notes.join("; "))),
            Err(error) => (false, format!("{error}; replays use the threads engine")),
        };
        let sysctl = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
        let disabled = sysctl.is_ok_and(|value| value.trim() != "0");
        let remedy = match (ready, disabled) {
            (true, _) => None,
            (false, true) => Some("sudo sysctl kernel.io_uring_disabled=0".to_owned()),
            (false, false) => Some(
                "a kernel from 5.6 on, outside a container whose seccomp profile forbids io_uring"
                    .to_owned(),
            ),
        };
        Finding {
            subject: "io_uring",
            ready,
            detail,
            remedy,
        }
    }

    fn probe() -> Result<Vec<String>, RingError> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::open("/dev/null", flags, Mode::empty())
            .map_err(|error| RingError::Io(error.into()))?;
        let buffers = Arc::new(Buffers::new(1, 4096, 0)?);
        let options = RingOptions {
            discard_command: false,
            ..RingOptions::ALL
        };
        Ok(Ring::new(
            Profile::heavy().depth,
            vec![Arc::new(file)],
            buffers,
            options,
        )?
        .take_notes())
    }

    pub fn lockable_memory() -> Finding {
        let limit = getrlimit(Resource::Memlock).current;
        let root = rustix::process::geteuid().is_root();
        let ready = root || limit.is_none_or(|limit| limit >= USUAL_BUFFERS_BYTES);
        let limit = match limit {
            _ if root => "unlimited for root".to_owned(),
            Some(limit) => format!("{} KiB", limit >> 10),
            None => "unlimited".to_owned(),
        };
        let detail = if ready {
            limit
        } else {
            format!("{limit}: buffers of long requests are used unregistered, at some cost")
        };
        let remedy = (!ready).then(|| "ulimit -l unlimited (as root)".to_owned());
        Finding {
            subject: "lockable memory",
            ready,
            detail,
            remedy,
        }
    }

    pub fn scratch() -> Finding {
        let directory = default_directory();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(&directory, flags, Mode::empty());
        let (ready, detail) = match &opened {
            Ok(opened) => {
                let filesystem = filesystem(opened, &directory);
                let name = filesystem.name.as_deref().unwrap_or("unknown filesystem");
                let free = fstatvfs(opened)
                    .map_or(0, |space| space.f_bavail.saturating_mul(space.f_frsize));
                let place = format!("{} ({name}, {} MiB free)", directory.display(), free >> 20);
                match filesystem.in_memory {
                    true => (
                        false,
                        format!("{place}: in memory, no device is measured there"),
                    ),
                    false => (true, place),
                }
            }
            Err(error) => (false, format!("{}: {error}", directory.display())),
        };
        let remedy = (!ready).then(|| "set TMPDIR to a directory on a device".to_owned());
        Finding {
            subject: "scratch files",
            ready,
            detail,
            remedy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_comes_with_its_remedy() {
        for finding in doctor() {
            assert!(finding.ready || finding.remedy.is_some(), "{finding:?}");
            assert!(!finding.detail.is_empty());
        }
    }
}
