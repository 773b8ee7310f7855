//! What the tape says about where it comes from.

use etl_parse::{Clock as TraceClock, ClockType, LogHeader};

use super::Options;
use super::requests::Origin;
use super::survey::Survey;
use crate::tape::{Clock, ErrorCodes, Header};

/// Most disks and partitions that are described.
const MAX_NOTES: usize = 64;

/// The tape's header.
pub(super) fn header(
    options: &Options,
    trace: &LogHeader,
    clock: &TraceClock,
    survey: &Survey,
    origin: Option<Origin>,
) -> Header {
    Header {
        tool: options.tool.clone(),
        host: survey.host.clone(),
        os: system_of(trace),
        clock: Clock {
            source: source_of(clock.clock_type()).to_owned(),
            resolution_ns: clock.resolution_ns(),
        },
        backend: "import:etl".to_owned(),
        options: vec![format!("log_file_mode={:#x}", trace.mode)],
        error_codes: ErrorCodes::NtStatus,
        notes: notes(survey, origin),
    }
}

/// The traced system.
pub(super) fn system_of(trace: &LogHeader) -> Option<String> {
    let (major, minor) = trace.os_version;
    let build = trace.os_build;
    (major > 0).then(|| format!("Windows {major}.{minor} build {build}"))
}

fn source_of(clock_type: ClockType) -> &'static str {
    match clock_type {
        ClockType::PerformanceCounter => "QueryPerformanceCounter",
        ClockType::SystemTime => "GetSystemTimeAsFileTime",
        ClockType::CycleCounter => "CPU cycle counter",
    }
}

fn notes(survey: &Survey, origin: Option<Origin>) -> Vec<String> {
    let mut notes = vec![
        "imported from an event trace log of Windows, which does not tell sizes of disks, the \
         outcome of requests and the time that they waited in queues above the disk driver"
            .to_owned(),
    ];
    if origin == Some(Origin::KernelDisk) {
        notes.push(
            "from events of Microsoft-Windows-Kernel-Disk, which do not tell who asked".to_owned(),
        );
    }
    if origin == Some(Origin::StorPort) {
        notes.push(
            "from events of Microsoft-Windows-StorPort, which do not tell who asked; latencies are \
             those below the port driver"
                .to_owned(),
        );
    }
    for disk in survey.disks.values().take(MAX_NOTES) {
        let cache = if disk.write_cache { "on" } else { "off" };
        let at_least = disk.geometry_bytes().unwrap_or(0);
        notes.push(format!(
            "PhysicalDrive{}: at least {at_least} bytes, write cache {cache}",
            disk.disk
        ));
    }
    for partition in survey.partitions.iter().take(MAX_NOTES) {
        notes.push(format!(
            "{} is PhysicalDrive{} from byte {}, {} bytes",
            partition.letter, partition.disk, partition.start_offset, partition.bytes
        ));
    }
    notes
}
