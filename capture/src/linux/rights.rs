//! Which right is missing when the kernel refuses, and how to get it.

use std::fs;
use std::io;
use std::path::Path;

use rustix::fs::{Mode, OFlags, openat};

use super::tracefs::detached_mount;
use crate::CaptureError;

/// The kernel refused to open a perf event.
pub(super) fn perf_error(tracepoint: &str, source: io::Error) -> CaptureError {
    if is_refusal(&source) {
        let paranoid = paranoid().map_or("unknown".to_owned(), |level| level.to_string());
        return CaptureError::Permission {
            action: "opening perf events",
            missing: format!("CAP_PERFMON (kernel.perf_event_paranoid is {paranoid})"),
            remedy: remedy(),
        };
    }
    if source.raw_os_error() == Some(libc::ENOSYS) {
        let action = "opening perf events (the kernel was built without CONFIG_PERF_EVENTS)";
        return CaptureError::System {
            action: action.to_owned(),
            source,
        };
    }
    CaptureError::System {
        action: format!("opening the perf event block:{tracepoint}"),
        source,
    }
}

/// The kernel refused to map a ring.
pub(super) fn ring_error(ring_bytes: usize, source: io::Error) -> CaptureError {
    if is_refusal(&source) {
        return CaptureError::Permission {
            action: "mapping the rings",
            missing: format!(
                "CAP_IPC_LOCK, or kernel.perf_event_mlock_kb of at least {} KiB",
                ring_bytes / 1024 + 4
            ),
            remedy: format!("{}; or choose a smaller ring", remedy()),
        };
    }
    CaptureError::System {
        action: format!("mapping a ring of {ring_bytes} bytes"),
        source,
    }
}

/// The kernel refused access to tracefs.
pub(super) fn tracefs_error(source: io::Error) -> CaptureError {
    if is_refusal(&source) {
        return CaptureError::Permission {
            action: "reading the tracepoints' formats in tracefs",
            missing: "CAP_DAC_READ_SEARCH where tracefs is mounted, else CAP_SYS_ADMIN".to_owned(),
            remedy: remedy(),
        };
    }
    let action = "reading the tracepoints' formats (tracefs)".to_owned();
    CaptureError::System { action, source }
}

/// Root is needed, which the backend perf does without.
pub(super) fn root_needed(action: &'static str, missing: &str) -> CaptureError {
    CaptureError::Permission {
        action,
        missing: missing.to_owned(),
        remedy: "run it as root (sudo), or record with the backend perf".to_owned(),
    }
}

/// The kernel refused an instance of ftrace.
pub(super) fn ftrace_error(action: &str, source: io::Error) -> CaptureError {
    if is_refusal(&source) {
        return root_needed("making an instance of ftrace", "root (tracefs is written)");
    }
    let action = action.to_owned();
    CaptureError::System { action, source }
}

/// The kernel's type information cannot be read.
#[cfg(feature = "bpf")]
pub(super) fn btf_error(source: io::Error) -> CaptureError {
    CaptureError::System {
        action: format!(
            "reading the kernel's types in {} (it takes a kernel with CONFIG_DEBUG_INFO_BTF; \
             --backend perf does without)",
            super::bpf::VMLINUX
        ),
        source,
    }
}

/// The kernel refused BPF programs, or the object does not fit it.
#[cfg(feature = "bpf")]
pub(super) fn bpf_error(
    action: &'static str,
    error: &(dyn std::error::Error + 'static),
) -> CaptureError {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let refused = causes.clone().any(|error| {
        let system = error.downcast_ref::<io::Error>();
        // EACCES is the verifier's: a program that it does not accept.
        system.is_some_and(|error| error.raw_os_error() == Some(libc::EPERM))
    });
    if refused {
        return CaptureError::Permission {
            action,
            missing: "CAP_BPF and CAP_PERFMON (or the kernel is locked down to confidentiality)"
                .to_owned(),
            remedy: bpf_remedy(),
        };
    }
    let said: Vec<String> = causes.map(ToString::to_string).collect();
    CaptureError::System {
        action: action.to_owned(),
        source: io::Error::other(said.join(": ")),
    }
}

/// How to get the rights that BPF programs need.
pub(super) fn bpf_remedy() -> String {
    format!(
        "run it as root (sudo), or once: setcap cap_bpf,cap_perfmon+ep {}",
        program()
    )
}

/// The way to this program.
fn program() -> String {
    let program = std::env::current_exe().ok();
    let program = program.as_deref().map(|path| path.to_string_lossy());
    program.map_or("PROGRAM".to_owned(), |path| path.into_owned())
}

/// The kernel refused access to debugfs.
pub(super) fn debugfs_error(source: io::Error) -> CaptureError {
    if is_refusal(&source) {
        return root_needed("reading debugfs", "root");
    }
    let action = "mounting debugfs (mount -t debugfs debugfs /sys/kernel/debug)".to_owned();
    CaptureError::System { action, source }
}

/// The kernel refused to open the buffers of a block trace, which root can see.
pub(super) fn relay_error(source: io::Error) -> CaptureError {
    if is_refusal(&source) {
        let state = lockdown().unwrap_or_else(|| "probably: its state is not told".to_owned());
        return CaptureError::LockedDown { state };
    }
    let action = "opening the buffers of a block trace in debugfs".to_owned();
    CaptureError::System { action, source }
}

/// State of kernel lockdown: `none`, `integrity` or `confidentiality`; `None` where it is not told.
pub(super) fn lockdown() -> Option<String> {
    const PATH: &str = "lockdown";
    let text = fs::read_to_string(Path::new("/sys/kernel/security").join(PATH)).or_else(|_| {
        let mount = detached_mount("securityfs")?;
        let file = openat(
            &mount,
            PATH,
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        io::read_to_string(fs::File::from(file))
    });
    let text = text.ok()?;
    let state = text.split(['[', ']']).nth(1).unwrap_or(text.trim());
    Some(state.to_owned())
}

/// Level of `kernel.perf_event_paranoid`.
pub(super) fn paranoid() -> Option<i32> {
    fs::read_to_string("/proc/sys/kernel/perf_event_paranoid")
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// How to get the rights that recording needs.
pub(super) fn remedy() -> String {
    format!(
        "run it as root (sudo), or once: mount -t tracefs tracefs /sys/kernel/tracing; \
         setcap cap_perfmon,cap_dac_read_search,cap_ipc_lock+ep {}",
        program()
    )
}

fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}
