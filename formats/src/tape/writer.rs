//! A tape into a file, or anything else that takes bytes.

use std::io::Write;

use super::encoder::{Encoder, Level};
use super::error::TapeError;
use super::model::{Anchor, Counters, Device, Header, Loss, NameKind, Summary};
use crate::request::Request;

/// Writes a tape. Each record is one write, so that what a dying writer leaves behind is whole
/// records and at most one torn one.
///
/// After the sink has failed, every call answers [`TapeError::GivenUp`]; the tape so far stays
/// readable.
#[derive(Debug)]
pub struct TapeWriter<W> {
    sink: W,
    encoder: Encoder,
    /// Bytes of records that the sink has not got yet.
    out: Vec<u8>,
    written: u64,
    failed: bool,
}

impl<W: Write> TapeWriter<W> {
    /// Begins a tape: writes its header and devices.
    ///
    /// # Errors
    ///
    /// When the devices' indexes do not count from 0, a text is too long, or the sink fails.
    pub fn create(
        sink: W,
        header: &Header,
        devices: &[Device],
        level: Level,
    ) -> Result<Self, TapeError> {
        let mut out = Vec::new();
        let encoder = Encoder::start(header, devices, level, &mut out)?;
        let mut writer = TapeWriter {
            sink,
            encoder,
            out,
            written: 0,
            failed: false,
        };
        writer.drain()?;
        Ok(writer)
    }

    /// Calls `pause` within the making of a block: see [`Encoder::pause_with`].
    pub fn pause_with(&mut self, pause: impl FnMut() + Send + 'static) {
        self.encoder.pause_with(pause);
    }

    /// Adds a device that only turned up later; requests from here on may name it.
    ///
    /// # Errors
    ///
    /// When its index is not the next one, a text is too long, or the sink fails.
    pub fn device(&mut self, device: &Device) -> Result<(), TapeError> {
        self.alive()?;
        self.encoder.device(device, &mut self.out)?;
        self.drain()
    }

    /// Adds a request; writes the block when that fills it.
    ///
    /// # Errors
    ///
    /// When the request cannot be stored (the tape goes on without it), or the sink fails.
    pub fn push(&mut self, request: &Request) -> Result<(), TapeError> {
        self.alive()?;
        self.encoder.push(request, &mut self.out)?;
        self.drain()
    }

    /// Names a control group or a file, for the requests of the open block and of all behind it:
    /// the name is written before that block. Naming it again changes nothing. `false` when the
    /// name is longer than [`Names::LONGEST`](super::Names::LONGEST) or one too many for readers
    /// to keep: it is left out.
    ///
    /// # Errors
    ///
    /// When the sink fails.
    pub fn name(&mut self, kind: NameKind, id: u64, name: &str) -> Result<bool, TapeError> {
        self.alive()?;
        let taken = self.encoder.name(kind, id, name, &mut self.out)?;
        self.drain()?;
        Ok(taken)
    }

    /// Adds to the counters of the open block.
    pub fn count(&mut self, counters: &Counters) {
        self.encoder.count(counters);
    }

    /// Writes a clock anchor. The first one defines time 0.
    ///
    /// # Errors
    ///
    /// When the sink fails.
    pub fn anchor(&mut self, anchor: Anchor) -> Result<(), TapeError> {
        self.alive()?;
        self.encoder.anchor(anchor, &mut self.out)?;
        self.drain()
    }

    /// Writes a loss, and counts its events in the open block's `lost_events`.
    ///
    /// # Errors
    ///
    /// When the sink fails.
    pub fn loss(&mut self, loss: Loss) -> Result<(), TapeError> {
        self.alive()?;
        self.encoder.loss(loss, &mut self.out)?;
        self.drain()
    }

    /// Writes what is open and flushes the sink: a recorder's call when a block gets old.
    ///
    /// # Errors
    ///
    /// When the sink fails.
    pub fn close_block(&mut self) -> Result<(), TapeError> {
        self.alive()?;
        self.encoder.close_block(&mut self.out)?;
        self.drain()
    }

    /// Requests taken so far.
    pub fn requests(&self) -> u64 {
        self.encoder.requests()
    }

    /// Bytes that the sink has got so far.
    pub fn bytes_written(&self) -> u64 {
        self.written
    }

    /// Writes what is open and the footer; returns the sink and the tape's totals.
    ///
    /// # Errors
    ///
    /// When the sink fails.
    pub fn finish(mut self) -> Result<(W, Summary), TapeError> {
        self.alive()?;
        let mut out = std::mem::take(&mut self.out);
        let summary = self.encoder.finish(&mut out)?;
        write(&mut self.sink, &out, self.written)?;
        Ok((self.sink, summary))
    }

    fn alive(&self) -> Result<(), TapeError> {
        if self.failed {
            Err(TapeError::GivenUp {
                offset: self.written,
            })
        } else {
            Ok(())
        }
    }

    /// Gives the sink what has been encoded.
    fn drain(&mut self) -> Result<(), TapeError> {
        if self.out.is_empty() {
            return Ok(());
        }
        let result = write(&mut self.sink, &self.out, self.written);
        self.failed = result.is_err();
        result?;
        self.written += self.out.len() as u64;
        self.out.clear();
        Ok(())
    }
}

fn write(sink: &mut impl Write, bytes: &[u8], offset: u64) -> Result<(), TapeError> {
    let result = sink.write_all(bytes).and_then(|()| sink.flush());
    result.map_err(|error| TapeError::Io { offset, error })
}
