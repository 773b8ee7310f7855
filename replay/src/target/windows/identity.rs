//! What makes two paths the same target.

use std::path::Path;

use super::names::{Name, classify};
use crate::sys::{self, Opening};

/// Of a disk its number, of a file its volume and number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    Disk(u32),
    File(u32, u64),
}

/// Looks a target up; `None` where there is nothing of this name, which is an error once it is
/// opened.
pub fn identity(path: &Path) -> Option<Identity> {
    match classify(&path.to_string_lossy()) {
        Name::Disk(number) => Some(Identity::Disk(number)),
        Name::File => {
            let file = sys::open(path, Opening::default()).ok()?;
            let (volume, number) = sys::file_facts(&file).ok()?.identity;
            Some(Identity::File(volume, number))
        }
        Name::Volume | Name::Device => None,
    }
}
