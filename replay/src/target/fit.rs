//! What is checked of every open target before anything is written to it.

use std::io;
use std::sync::Arc;

use super::signature::{self, REGION_BYTES, Regions};
use super::{Access, Target};
use crate::error::ReplayError;
use crate::sys::{self, Buffers};

/// Refuses a target that is empty, that carries something, or whose data may not be changed as the
/// tape does.
///
/// # Errors
/// [`ReplayError::Empty`], [`ReplayError::Signature`] or [`ReplayError::OverwriteNeeded`].
pub fn check(target: &Target, access: Access) -> Result<(), ReplayError> {
    let path = || target.path.clone();
    if target.size_bytes == 0 {
        return Err(ReplayError::Empty { path: path() });
    }
    if !access.lenient() {
        refuse_signatures(target)?;
    }
    match access {
        Access::Forbidden {
            writes,
            discards,
            write_zeroes,
        } => Err(ReplayError::OverwriteNeeded {
            path: path(),
            writes,
            discards,
            write_zeroes,
        }),
        Access::SkipWrites | Access::Read | Access::Overwrite => Ok(()),
    }
}

/// Reads the beginning and the end, with one request each, and looks for signatures.
fn refuse_signatures(target: &Target) -> Result<(), ReplayError> {
    let read = |start: u64, len: u64| read_region(target, start, len);
    let len = REGION_BYTES.min(target.size_bytes);
    let regions = Regions {
        head: read(0, len)?,
        tail: read(target.size_bytes - len, len)?,
        size_bytes: target.size_bytes,
    };
    match signature::find(&regions) {
        None => Ok(()),
        Some(found) => Err(ReplayError::Signature {
            path: target.path.clone(),
            what: found.what,
            offset_bytes: found.offset_bytes,
        }),
    }
}

fn read_region(target: &Target, start: u64, len: u64) -> Result<Vec<u8>, ReplayError> {
    let failed = |source| ReplayError::Target {
        path: target.path.clone(),
        action: "read its first and last bytes",
        source,
    };
    let len = usize::try_from(len).map_err(|_| failed(io::ErrorKind::OutOfMemory.into()))?;
    let mut buffers = Buffers::new(0, 0, len).map_err(failed)?;
    let piece = buffers
        .payload(0, len)
        .ok_or_else(|| failed(io::ErrorKind::OutOfMemory.into()))?;
    let read = sys::read_at(Arc::as_ref(&target.file), piece, start)
        .map_err(|errno| failed(io::Error::from_raw_os_error(errno)))?;
    Ok(buffers.payload_bytes()[..read.min(len)].to_vec())
}
