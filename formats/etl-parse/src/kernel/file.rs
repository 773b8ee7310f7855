//! Names of files: `FileIo_Name`.
//!
//! The payload is a pointer and the name in UTF-16 up to a NUL. The pointer is the key that disk
//! events call FileObject; the kernel gives it to another file when a file is gone. Seen in real
//! 64-bit traces with types 0x20, 0x23 and 0x24; versions differ in nothing.

use crate::bytes::{pointer_at, utf16_at};
use crate::event::Event;

use super::hook;

/// What an event says of a file's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileName {
    /// The key, as in [`DiskTransfer::file_object`](super::DiskTransfer::file_object).
    pub key: u64,
    /// Its name, such as `\Device\HarddiskVolume2\pagefile.sys`.
    pub name: String,
    /// Whether the key has this name from here on, and had another meaning before.
    pub begins: bool,
}

impl FileName {
    /// Reads the name of a file; `None` if the event is another, too short, or names nothing.
    pub fn parse(event: &Event<'_>) -> Option<FileName> {
        let begins = match event.hook()? {
            hook::FILE_NAME | hook::FILE_DELETE | hook::FILE_RUNDOWN => false,
            hook::FILE_CREATE => true,
            _ => return None,
        };
        let key = pointer_at(event.payload, 0, event.pointers)?;
        let (name, _) = utf16_at(event.payload, event.pointers.bytes());
        (!name.is_empty()).then_some(FileName { key, name, begins })
    }
}
