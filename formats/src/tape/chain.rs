//! The chain of records that makes a tape, and what its footer will say.

use super::error::TapeError;
use super::metadata::{self, Stored};
use super::model::{Anchor, Loss, Summary};
use super::tally::Tally;
use super::wire::{HEAD_MAGIC, opcode, put_record, trailer};

/// Appends a tape's records to a buffer, and keeps count for the footer.
#[derive(Debug)]
pub struct Chain {
    /// Bytes from the head magic so far.
    position: u64,
    tally: Tally,
}

impl Chain {
    /// Begins a tape: appends its magic.
    pub fn start(out: &mut Vec<u8>) -> Chain {
        out.extend_from_slice(&HEAD_MAGIC);
        Chain {
            position: HEAD_MAGIC.len() as u64,
            tally: Tally::default(),
        }
    }

    /// Requests in the blocks so far.
    pub fn requests(&self) -> u64 {
        self.tally.requests()
    }

    /// Appends a record whose payload `write` appends.
    pub fn put(
        &mut self,
        opcode: u8,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), TapeError>,
    ) -> Result<(), TapeError> {
        let before = out.len();
        put_record(out, opcode, write)?;
        self.position += (out.len() - before) as u64;
        Ok(())
    }

    /// Appends a metadata record that the footer does not repeat.
    pub fn metadata<T: Stored>(
        &mut self,
        opcode: u8,
        value: &T,
        out: &mut Vec<u8>,
    ) -> Result<(), TapeError> {
        self.put(opcode, out, |out| metadata::put(value, out))
    }

    /// Appends an anchor.
    pub fn anchor(&mut self, anchor: Anchor, out: &mut Vec<u8>) -> Result<(), TapeError> {
        self.metadata(opcode::ANCHOR, &anchor, out)?;
        self.tally.anchor(anchor);
        Ok(())
    }

    /// Appends a loss.
    pub fn loss(&mut self, loss: Loss, out: &mut Vec<u8>) -> Result<(), TapeError> {
        self.metadata(opcode::LOSS, &loss, out)?;
        self.tally.loss(loss);
        Ok(())
    }

    /// Appends a block whose payload `write` appends.
    pub fn block(
        &mut self,
        summary: &Summary,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), TapeError>,
    ) -> Result<(), TapeError> {
        let offset = self.position;
        self.put(opcode::BLOCK, out, write)?;
        self.tally.block(offset, summary);
        Ok(())
    }

    /// Appends the footer and the trailer; returns the totals.
    pub fn finish(mut self, out: &mut Vec<u8>) -> Result<Summary, TapeError> {
        let mut footer = std::mem::take(&mut self.tally).into_footer();
        footer.tape_bytes = self.position;
        self.metadata(opcode::FOOTER, &footer, out)?;
        out.extend_from_slice(&trailer(self.position - footer.tape_bytes));
        Ok(footer.summary)
    }
}
