//! What this machine can record, and what would enable the rest.

use std::io;

use iotape_formats::event::Step;
use iotape_formats::tracepoint::{BLOCK_TRACEPOINTS, BlockTracepoint};
use rustix::fs::{Access, AtFlags, OFlags, accessat};

use super::arm;
use super::blktrace;
use super::debugfs::DebugFs;
use super::rights;
use super::sys::{Ring, TracepointEvent};
use super::tracefs::TraceFs;
use crate::{CaptureError, Finding, Options, Status};

/// Where the kernel has its type information.
const VMLINUX: &str = "/sys/kernel/btf/vmlinux";
const MOUNT: &str = "mount -t tracefs tracefs /sys/kernel/tracing";

/// Looks at what recording needs, in the order in which it is needed. Changes nothing.
pub fn doctor() -> Vec<Finding> {
    let tracefs = TraceFs::open();
    let tracepoints = tracefs.as_ref().ok().map(tracepoints);
    vec![
        access(&tracefs),
        tracepoints
            .as_ref()
            .map_or_else(unknown_tracepoints, |(finding, _)| finding.clone()),
        perf_events(tracepoints.and_then(|(_, first)| first)),
        ftrace(&tracefs),
        block_traces(),
        bpf(),
        paranoid(),
        lockdown(),
    ]
}

fn access(tracefs: &io::Result<TraceFs>) -> Finding {
    let subject = "tracefs";
    match tracefs {
        Ok(TraceFs::Mounted(path)) => ready(subject, format!("mounted at {}", path.display())),
        Ok(TraceFs::Detached(_)) => Finding {
            subject,
            status: Status::Ready,
            detail: "not mounted; a mount of our own works as root".to_owned(),
            remedy: Some(MOUNT.to_owned()),
        },
        Err(error) => Finding {
            subject,
            status: Status::Missing,
            detail: format!("cannot be read: {error}"),
            remedy: Some(rights::remedy()),
        },
    }
}

/// Whether the block tracepoints are there, and the first of them.
fn tracepoints(tracefs: &TraceFs) -> (Finding, Option<BlockTracepoint>) {
    let subject = "block tracepoints";
    let mut first = None;
    let mut missing = Vec::new();
    for (name, step) in BLOCK_TRACEPOINTS {
        let format = tracefs.format(name).map_err(|error| error.to_string());
        match format.and_then(|text| BlockTracepoint::parse(step, &text).map_err(|e| e.to_string()))
        {
            Ok(layout) => first = first.or(Some(layout)),
            Err(reason) => missing.push((name, step, reason)),
        }
    }
    let described: Vec<String> = missing
        .iter()
        .map(|(name, _, reason)| format!("{name} ({reason})"))
        .collect();
    let needed = |(_, step, _): &(&str, Step, String)| !arm::only_counts(*step);
    let finding = if missing.is_empty() {
        ready(
            subject,
            format!("all {} are there", BLOCK_TRACEPOINTS.len()),
        )
    } else if missing.iter().any(needed) {
        Finding {
            subject,
            status: Status::Missing,
            detail: format!("not usable: {}", described.join(", ")),
            remedy: Some("a kernel with CONFIG_BLOCK and CONFIG_EVENT_TRACING".to_owned()),
        }
    } else {
        Finding {
            subject,
            status: Status::Limited,
            detail: format!("what these count will be missing: {}", described.join(", ")),
            remedy: None,
        }
    };
    (finding, first)
}

fn unknown_tracepoints() -> Finding {
    Finding {
        subject: "block tracepoints",
        status: Status::Unknown,
        detail: "tracefs cannot be read".to_owned(),
        remedy: None,
    }
}

/// Opens a tracepoint, without arming it, and maps a ring.
fn perf_events(tracepoint: Option<BlockTracepoint>) -> Finding {
    let subject = "perf events";
    let Some(tracepoint) = tracepoint else {
        return Finding {
            subject,
            status: Status::Unknown,
            detail: "no tracepoint to try it with".to_owned(),
            remedy: None,
        };
    };
    match try_perf(&tracepoint) {
        Ok(()) => ready(
            subject,
            format!(
                "can be opened, with a ring of {} KiB: --backend perf works",
                Options::DEFAULT_RING_BYTES / 1024
            ),
        ),
        Err(error) => Finding {
            subject,
            status: Status::Missing,
            detail: error.to_string(),
            remedy: Some(rights::remedy()),
        },
    }
}

fn try_perf(tracepoint: &BlockTracepoint) -> Result<(), CaptureError> {
    let cpus = arm::online_cpus().unwrap_or_default();
    let cpu = cpus.first().copied().unwrap_or(0);
    let event = TracepointEvent::open(tracepoint.id(), cpu, 1 << 16)
        .map_err(|error| rights::perf_error("block_bio_queue", error))?;
    Ring::map(event, Options::DEFAULT_RING_BYTES)
        .map_err(|error| rights::ring_error(Options::DEFAULT_RING_BYTES, error))?;
    Ok(())
}

/// Whether an instance could be made. None is.
fn ftrace(tracefs: &io::Result<TraceFs>) -> Finding {
    let subject = "ftrace instance";
    let missing = |detail: String, remedy: String| Finding {
        subject,
        status: Status::Limited,
        detail: format!("--backend ftrace does not work: {detail}"),
        remedy: Some(remedy),
    };
    let Ok(tracefs) = tracefs else {
        return missing("tracefs cannot be read".to_owned(), rights::remedy());
    };
    let folder = match tracefs.open_at("instances", OFlags::RDONLY | OFlags::DIRECTORY) {
        Ok(folder) => folder,
        Err(error) => {
            let remedy = "a kernel with CONFIG_TRACING, and root (sudo)".to_owned();
            return missing(format!("no folder for instances ({error})"), remedy);
        }
    };
    match accessat(&folder, ".", Access::WRITE_OK, AtFlags::EACCESS) {
        Ok(()) => ready(subject, "can be made: --backend ftrace works".to_owned()),
        Err(error) => missing(
            format!("an instance cannot be made ({error})"),
            "run it as root (sudo)".to_owned(),
        ),
    }
}

/// Whether block traces can be set up and read. None is.
fn block_traces() -> Finding {
    let subject = "block traces";
    let missing = |detail: &str, remedy: &str| Finding {
        subject,
        status: Status::Limited,
        detail: format!("--backend blktrace does not work: {detail}"),
        remedy: Some(remedy.to_owned()),
    };
    let instead = "--backend perf or ftrace, which do the same";
    if blktrace::is_compiled_in() == Some(false) {
        return missing(
            "the kernel was built without CONFIG_BLK_DEV_IO_TRACE",
            instead,
        );
    }
    match rights::lockdown().as_deref() {
        None | Some("none") => {}
        Some(state) => {
            let detail = format!("kernel lockdown ({state}) closes blktrace's relay files");
            let remedy = format!("boot without lockdown (secure boot); or {instead}");
            return missing(&detail, &remedy);
        }
    }
    let readable = DebugFs::open().and_then(|debugfs| debugfs.folder("block"));
    match readable {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            missing("debugfs is root's", "run it as root (sudo)")
        }
        Err(error) => missing(
            &format!("debugfs cannot be read ({error})"),
            "mount -t debugfs debugfs /sys/kernel/debug",
        ),
        Ok(_) if blktrace::refuse_blk_tracer().is_err() => missing(
            "ftrace's tracer blk is on and takes all records",
            "echo nop >/sys/kernel/tracing/current_tracer",
        ),
        Ok(_) => ready(
            subject,
            "can be set up, one on a disk at a time: --backend blktrace works".to_owned(),
        ),
    }
}

/// Whether BPF programs are built in, and what they need.
fn bpf() -> Finding {
    let subject = "BPF programs";
    let limited = |detail: &str, remedy: &str| Finding {
        subject,
        status: Status::Limited,
        detail: format!("--backend bpf does not work: {detail}"),
        remedy: Some(remedy.to_owned()),
    };
    if !cfg!(feature = "bpf") {
        return limited(
            "this program was built without it",
            "apt install clang && cargo build --release --features bpf",
        );
    }
    if !std::path::Path::new(VMLINUX).exists() {
        let detail = format!("no {VMLINUX}");
        return limited(&detail, "boot a kernel with CONFIG_DEBUG_INFO_BTF=y");
    }
    if rights::lockdown().as_deref() == Some("confidentiality") {
        return limited(
            "the kernel is locked down to confidentiality",
            "boot without lockdown=confidentiality",
        );
    }
    if !may_use_bpf() {
        return limited("CAP_BPF and CAP_PERFMON are missing", &rights::bpf_remedy());
    }
    ready(
        subject,
        "built in, and the kernel has types and rights for them: --backend bpf works".to_owned(),
    )
}

fn may_use_bpf() -> bool {
    use rustix::thread::{CapabilitySet, capabilities};
    let has = |needed| {
        let sets = capabilities(None).map(|sets| sets.effective);
        sets.is_ok_and(|effective| effective.contains(needed))
    };
    has(CapabilitySet::BPF | CapabilitySet::PERFMON) || has(CapabilitySet::SYS_ADMIN)
}

fn paranoid() -> Finding {
    let subject = "kernel.perf_event_paranoid";
    match rights::paranoid() {
        Some(level) if level < 0 => ready(subject, format!("{level}: any user may trace")),
        Some(level) => Finding {
            subject,
            status: Status::Limited,
            detail: format!("{level}: recording needs CAP_PERFMON or root"),
            remedy: Some("sysctl kernel.perf_event_paranoid=-1".to_owned()),
        },
        None => Finding {
            subject,
            status: Status::Missing,
            detail: "not there: the kernel was built without CONFIG_PERF_EVENTS".to_owned(),
            remedy: None,
        },
    }
}

/// Lockdown does not forbid this path; the finding says in which state that is known.
fn lockdown() -> Finding {
    let subject = "kernel lockdown";
    let Some(state) = rights::lockdown() else {
        return Finding {
            subject,
            status: Status::Unknown,
            detail: "not told (securityfs is not mounted, or the kernel has no lockdown)"
                .to_owned(),
            remedy: None,
        };
    };
    match state.as_str() {
        "confidentiality" => Finding {
            subject,
            status: Status::Missing,
            detail: "confidentiality: the kernel forbids tracing".to_owned(),
            remedy: Some("boot without lockdown=confidentiality".to_owned()),
        },
        state => ready(subject, format!("{state}: tracepoints are allowed")),
    }
}

fn ready(subject: &'static str, detail: String) -> Finding {
    Finding {
        subject,
        status: Status::Ready,
        detail,
        remedy: None,
    }
}
