//! Processes and threads: `Process_V0_TypeGroup1` to `V4`, `Thread_V0_TypeGroup1` to `V3`.

use crate::bytes::{u8_at, u32_at};
use crate::event::Event;

use super::hook;

/// Longest name of an image that is believed.
const MAX_NAME_BYTES: usize = 260;

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Its id.
    pub process_id: u32,
    /// Name of its image, such as `sqlservr.exe`; the kernel cuts it to 15 bytes in some versions.
    pub image: String,
    /// Whether it ends or has ended with this event.
    pub is_end: bool,
}

/// A thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadInfo {
    /// Its id.
    pub thread_id: u32,
    /// Id of its process.
    pub process_id: u32,
}

impl ProcessInfo {
    /// Reads a process event; `None` if the event is none or too short.
    ///
    /// Fields of the versions: 0 has process and parent as pointers; 1 and later a pointer, then
    /// u32 process, parent, session, exit status; 3 adds a pointer, 4 a u32 of flags. Then come the
    /// SID of the owner and the name of the image, in the system's code page up to a NUL.
    pub fn parse(event: &Event<'_>) -> Option<ProcessInfo> {
        let hook = event.hook()?;
        if !(hook::PROCESS_START..=hook::PROCESS_RUNDOWN_END).contains(&hook) {
            return None;
        }
        let pointer = event.pointers.bytes();
        let (id_at, sid_at) = match event.version {
            0 => (0, 2 * pointer),
            1 | 2 => (pointer, pointer + 16),
            3 => (pointer, 2 * pointer + 16),
            _ => (pointer, 2 * pointer + 16 + 4),
        };
        let image_at = end_of_sid(event.payload, sid_at, pointer)?;
        let image = event.payload.get(image_at..)?;
        let length = image
            .iter()
            .take(MAX_NAME_BYTES)
            .take_while(|byte| **byte != 0);
        let image = image.get(..length.count())?;
        Some(ProcessInfo {
            process_id: u32_at(event.payload, id_at)?,
            image: String::from_utf8_lossy(image).into_owned(),
            is_end: hook == hook::PROCESS_END,
        })
    }
}

/// The owner is a u32 of 0, or a `TOKEN_USER` (two pointers) and the SID behind it: revision, number
/// of parts, six bytes, four for each part.
fn end_of_sid(payload: &[u8], at: usize, pointer: usize) -> Option<usize> {
    if u32_at(payload, at)? == 0 {
        return Some(at + 4);
    }
    let sid_at = at + 2 * pointer;
    let parts = usize::from(u8_at(payload, sid_at + 1)?);
    Some(sid_at + 8 + 4 * parts)
}

impl ThreadInfo {
    /// Reads a thread event; `None` if the event is none or too short.
    pub fn parse(event: &Event<'_>) -> Option<ThreadInfo> {
        let hook = event.hook()?;
        if !(hook::THREAD_START..=hook::THREAD_RUNDOWN_END).contains(&hook) {
            return None;
        }
        let (first, second) = (u32_at(event.payload, 0)?, u32_at(event.payload, 4)?);
        let (process_id, thread_id) = match event.version {
            0 => (second, first),
            _ => (first, second),
        };
        Some(ThreadInfo {
            thread_id,
            process_id,
        })
    }
}
