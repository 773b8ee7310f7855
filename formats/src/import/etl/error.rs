//! What stops an import.

use thiserror::Error;

use super::providers::Tally;
use super::storports::StorPortCounts;
use crate::tape::TapeError;

/// Why a trace cannot be imported. Damage inside it is no error: it is skipped and reported.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The file cannot be read, or is no event trace log.
    #[error(transparent)]
    Read(#[from] etl_parse::Error),
    /// The trace was not of disks.
    #[error(
        "no disk I/O in this file: {tally}; its session lost {lost_events} events. Disk I/O is recorded \
         by a kernel session with DISK_IO, such as: xperf -on \
         PROC_THREAD+LOADER+DISK_IO+DISK_IO_INIT, or: wpr -start DiskIO"
    )]
    NoDiskIo {
        /// What it holds.
        tally: Box<Tally>,
        /// How many events the session lost.
        lost_events: u64,
    },
    /// The port driver's events do not say where requests went.
    #[error(
        "no request can be told from the StorPort events of this file: {} completions (event 201) lack a \
         dispatch (202 to 207) with the place on the disk, {} dispatches lack a completion, {} are \
         other commands, {} are of a version other than 2. Record \
         Microsoft-Windows-StorPort with keywords 0x7f00000, or the kernel's DISK_IO",
        counts.without_place, counts.unfinished, counts.other_commands, counts.other_version
    )]
    StorPortWithoutPlace {
        /// What was met.
        counts: StorPortCounts,
    },
    /// The tape cannot be written.
    #[error(transparent)]
    Tape(#[from] TapeError),
}
