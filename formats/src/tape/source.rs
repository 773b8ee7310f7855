//! Reading and seeking, on behalf of a scanner.

use std::io::{ErrorKind, Read, Seek, SeekFrom};

use super::error::TapeError;
use super::metadata::{self, Footer};
use super::scanner::{Record, Scanner, Step};
use super::seam::Before;
use super::wire::{
    HEAD_MAGIC, MAX_METADATA_BYTES, RECORD_OVERHEAD_BYTES, TRAILER_BYTES, opcode, parse_trailer,
};

/// Most bytes read at once.
pub const READ_BYTES: usize = 256 << 10;

/// What a tape is read from.
#[derive(Debug)]
pub struct Source<R> {
    inner: R,
    buffer: Vec<u8>,
}

impl<R: Read + Seek> Source<R> {
    pub fn new(inner: R) -> Source<R> {
        Source {
            inner,
            buffer: Vec::new(),
        }
    }

    /// Size of the source.
    pub fn bytes(&mut self) -> Result<u64, TapeError> {
        self.inner
            .seek(SeekFrom::End(0))
            .map_err(|error| TapeError::Io { offset: 0, error })
    }

    pub fn seek(&mut self, offset: u64) -> Result<(), TapeError> {
        self.inner
            .seek(SeekFrom::Start(offset))
            .map_err(|error| TapeError::Io { offset, error })?;
        Ok(())
    }

    /// Feeds some bytes, at most `bytes`, or the end.
    pub fn feed(&mut self, scanner: &mut Scanner, bytes: usize) -> Result<(), TapeError> {
        let bytes = bytes.min(READ_BYTES);
        if self.buffer.len() < bytes {
            self.buffer = vec![0; bytes];
        }
        loop {
            match self.inner.read(&mut self.buffer[..bytes]) {
                Ok(0) => scanner.end(),
                Ok(count) => scanner.feed(&self.buffer[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    return Err(TapeError::Io {
                        offset: scanner.offset(),
                        error,
                    });
                }
            }
            return Ok(());
        }
    }

    /// The footer of a tape that starts with the source and ends with it.
    pub fn footer(&mut self) -> Result<Option<Footer>, TapeError> {
        let bytes = self.bytes()?;
        let Some(trailer_at) = bytes.checked_sub(TRAILER_BYTES as u64) else {
            return Ok(None);
        };
        let trailer = self.read_at(trailer_at, TRAILER_BYTES)?;
        let Some(footer_bytes) = parse_trailer(&trailer) else {
            return Ok(None);
        };
        if footer_bytes > MAX_METADATA_BYTES + RECORD_OVERHEAD_BYTES as u64 {
            return Ok(None);
        }
        let Some(footer_at) = trailer_at.checked_sub(footer_bytes) else {
            return Ok(None);
        };
        let record = self.read_at(footer_at, footer_bytes as usize)?;
        let mut scanner = Scanner::new();
        scanner.feed(&record);
        scanner.end();
        let Step::Record(record) = scanner.step() else {
            return Ok(None);
        };
        let Record {
            opcode: opcode::FOOTER,
            payload,
            ..
        } = record
        else {
            return Ok(None);
        };
        if Before::record(&record)
            .trailer(footer_bytes, footer_bytes)
            .is_some()
        {
            return Ok(None);
        }
        let footer: Option<Footer> = metadata::get(payload).ok();
        Ok(footer.filter(|footer| footer.tape_bytes == footer_at))
    }

    /// The error for a source that holds no record in its first `bytes` bytes.
    pub fn not_a_tape(&mut self, bytes: u64) -> TapeError {
        let front = usize::try_from(bytes)
            .unwrap_or(usize::MAX)
            .min(HEAD_MAGIC.len());
        match self.read_at(0, front) {
            Ok(found) => TapeError::NotATape { bytes, found },
            Err(error) => error,
        }
    }

    fn read_at(&mut self, offset: u64, bytes: usize) -> Result<Vec<u8>, TapeError> {
        self.seek(offset)?;
        let mut buffer = vec![0; bytes];
        self.inner
            .read_exact(&mut buffer)
            .map_err(|error| TapeError::Io { offset, error })?;
        Ok(buffer)
    }
}
