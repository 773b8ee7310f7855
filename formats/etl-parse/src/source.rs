//! Bytes at a place of a file.

use std::io::{ErrorKind, Read, Seek, SeekFrom};

use crate::buffer::{BufferHeader, HEADER_BYTES};
use crate::error::Error;

/// A file, and where it was read last.
#[derive(Debug)]
pub(crate) struct Source<R> {
    inner: R,
    /// Where the next read begins; `None` when that is not known.
    at: Option<u64>,
    len: u64,
}

impl<R: Read + Seek> Source<R> {
    pub fn new(mut inner: R) -> Result<Source<R>, Error> {
        let len = inner.seek(SeekFrom::End(0));
        let len = len.map_err(|source| Error::Read { offset: 0, source })?;
        Ok(Source {
            inner,
            at: None,
            len,
        })
    }

    /// Length of the file when it was opened.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Reads into `buffer` from `offset`, and returns how many bytes there were.
    pub fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, Error> {
        let failed = |at: usize, source| Error::Read {
            offset: offset + at as u64,
            source,
        };
        if self.at.take() != Some(offset) {
            let seek = self.inner.seek(SeekFrom::Start(offset));
            seek.map_err(|source| failed(0, source))?;
        }
        let mut filled = 0;
        while let Some(free) = buffer.get_mut(filled..).filter(|free| !free.is_empty()) {
            match self.inner.read(free) {
                Ok(0) => break,
                Ok(bytes) => filled += bytes.min(free.len()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => return Err(failed(filled, source)),
            }
        }
        self.at = Some(offset + filled as u64);
        Ok(filled)
    }

    /// Reads `bytes` bytes from `offset` in place of what is in `buffer`; there may be less.
    pub fn read_to(
        &mut self,
        offset: u64,
        bytes: usize,
        buffer: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let left = self.len.saturating_sub(offset);
        let bytes = usize::try_from(left).unwrap_or(usize::MAX).min(bytes);
        buffer.reserve_exact(bytes.saturating_sub(buffer.len()));
        // What stands in it is overwritten: only what grows is cleared.
        buffer.resize(bytes, 0);
        let filled = self.read_at(offset, buffer)?;
        buffer.truncate(filled);
        Ok(())
    }

    /// The header at `offset`; `None` if the file ends inside it.
    pub fn header_at(&mut self, offset: u64) -> Result<Option<BufferHeader>, Error> {
        let mut bytes = [0; HEADER_BYTES];
        let filled = self.read_at(offset, &mut bytes)?;
        Ok(match filled {
            HEADER_BYTES => BufferHeader::parse(&bytes),
            _ => None,
        })
    }
}
