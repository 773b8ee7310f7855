//! Payloads of the kernel's own events.
//!
//! Their classes are documented by Microsoft as MOF classes (`DiskIo_TypeGroup1` and so on); where
//! versions differ, the layout is that of `ntwmi.h` of phnt and of PerfView's parsers, checked against
//! real traces where there are some. Each type here says what it was read from.

mod config;
mod disk_io;
mod file;
mod process;

pub use config::{LogDisk, PhyDisk, host_name};
pub use disk_io::{DiskFlush, DiskInit, DiskIo, DiskTransfer, KERNEL_DISK, Response};
pub use file::FileName;
pub use process::{ProcessInfo, ThreadInfo};

use crate::guid::Guid;

/// Hooks: group in the upper byte, type in the lower.
pub mod hook {
    /// The trace's header.
    pub const LOG_HEADER: u16 = 0x0000;
    /// A disk read is done.
    pub const DISK_READ: u16 = 0x010a;
    /// A disk write is done.
    pub const DISK_WRITE: u16 = 0x010b;
    /// A disk read begins.
    pub const DISK_READ_INIT: u16 = 0x010c;
    /// A disk write begins.
    pub const DISK_WRITE_INIT: u16 = 0x010d;
    /// A flush is done.
    pub const DISK_FLUSH: u16 = 0x010e;
    /// A flush begins.
    pub const DISK_FLUSH_INIT: u16 = 0x010f;
    /// The name of a file.
    pub const FILE_NAME: u16 = 0x0400;
    /// A file begins to be.
    pub const FILE_CREATE: u16 = 0x0420;
    /// A file is gone.
    pub const FILE_DELETE: u16 = 0x0423;
    /// A file that was there when the trace ended.
    pub const FILE_RUNDOWN: u16 = 0x0424;
    /// A process begins.
    pub const PROCESS_START: u16 = 0x0301;
    /// A process ends.
    pub const PROCESS_END: u16 = 0x0302;
    /// A process that was there when the trace began.
    pub const PROCESS_RUNDOWN_START: u16 = 0x0303;
    /// A process that was there when the trace ended.
    pub const PROCESS_RUNDOWN_END: u16 = 0x0304;
    /// A thread begins.
    pub const THREAD_START: u16 = 0x0501;
    /// A thread ends.
    pub const THREAD_END: u16 = 0x0502;
    /// A thread that was there when the trace began.
    pub const THREAD_RUNDOWN_START: u16 = 0x0503;
    /// A thread that was there when the trace ended.
    pub const THREAD_RUNDOWN_END: u16 = 0x0504;
    /// Processors and name of the host.
    pub const CPU: u16 = 0x0b0a;
    /// A physical disk.
    pub const PHY_DISK: u16 = 0x0b0b;
    /// A partition.
    pub const LOG_DISK: u16 = 0x0b0c;
}

/// GUIDs of kernel classes, as events carry them that a user's session copied.
pub mod class {
    use crate::guid::Guid;

    /// `DiskIo`.
    pub const DISK_IO: Guid = Guid::new(0x3d6f_a8d4, 0xfe05, 0x11d0, FE05);
    /// `FileIo`.
    pub const FILE_IO: Guid = Guid::new(
        0x90cb_dc39,
        0x4a3e,
        0x11d1,
        [0x84, 0xf4, 0x00, 0x00, 0xf8, 0x04, 0x64, 0xe3],
    );
    /// `Process`.
    pub const PROCESS: Guid = Guid::new(0x3d6f_a8d0, 0xfe05, 0x11d0, FE05);
    /// `Thread`.
    pub const THREAD: Guid = Guid::new(0x3d6f_a8d1, 0xfe05, 0x11d0, FE05);
    /// `SystemConfig`.
    pub const SYSTEM_CONFIG: Guid = Guid::new(
        0x0185_3a65,
        0x418f,
        0x4f36,
        [0xae, 0xfc, 0xdc, 0x0f, 0x1d, 0x2f, 0xd2, 0x35],
    );
    /// `EventTraceEvent`: the trace's own events.
    pub const EVENT_TRACE: Guid = Guid::new(
        0x68fd_d900,
        0x4a3e,
        0x11d1,
        [0x84, 0xf4, 0x00, 0x00, 0xf8, 0x04, 0x64, 0xe3],
    );
    const FE05: [u8; 8] = [0x9d, 0xda, 0x00, 0xc0, 0x4f, 0xd7, 0xba, 0x7c];
}

/// The kernel's groups of events: upper byte of the hook, and name.
const GROUPS: [(u8, &str); 24] = [
    (0x00, "EventTrace"),
    (0x01, "DiskIo"),
    (0x02, "PageFault"),
    (0x03, "Process"),
    (0x04, "FileIo"),
    (0x05, "Thread"),
    (0x06, "TcpIp"),
    (0x07, "Job"),
    (0x08, "UdpIp"),
    (0x09, "Registry"),
    (0x0a, "DbgPrint"),
    (0x0b, "SystemConfig"),
    (0x0e, "Pool"),
    (0x0f, "PerfInfo"),
    (0x10, "Heap"),
    (0x11, "Object"),
    (0x12, "Power"),
    (0x14, "Image"),
    (0x15, "Dpc"),
    (0x16, "CcMgr"),
    (0x17, "CritSec"),
    (0x18, "StackWalk"),
    (0x1a, "Alpc"),
    (0x1b, "SplitIo"),
];

/// Name of the group of a hook, if it is known.
pub fn group_name(hook: u16) -> Option<&'static str> {
    let group = (hook >> 8) as u8;
    let known = GROUPS.iter().find(|(number, _)| *number == group);
    known.map(|(_, name)| *name)
}

/// The hook of an event that carries the GUID of its class.
pub(crate) fn hook_of(class: Guid, event_type: u8) -> Option<u16> {
    let group = match class {
        class::EVENT_TRACE => 0x0000,
        class::DISK_IO => 0x0100,
        class::PROCESS => 0x0300,
        class::FILE_IO => 0x0400,
        class::THREAD => 0x0500,
        class::SYSTEM_CONFIG => 0x0b00,
        _ => return None,
    };
    Some(group | u16::from(event_type))
}
