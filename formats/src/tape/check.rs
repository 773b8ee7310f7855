//! Checking every byte of a tape.

use std::io::{Read, Seek};

use super::block::Block;
use super::damage::Damage;
use super::error::TapeError;
use super::id::TapeId;
use super::model::Summary;
use super::reader::TapeReader;

/// What checking a tape found.
#[derive(Clone, Debug)]
pub struct CheckReport {
    /// Whether the tape was finished; otherwise it was cut off, and nobody knows what was lost
    /// behind its last record.
    pub finished: bool,
    /// How many tapes are joined in the file.
    pub parts: usize,
    /// Blocks with requests that were read.
    pub blocks: u64,
    /// Requests in them.
    pub requests: u64,
    /// Identity of those requests.
    pub id: TapeId,
    /// Whether the totals that the tape gives are those of the requests that were read. They are
    /// not when some are lost.
    pub totals_agree: bool,
    /// What could not be read.
    pub damage: Damage,
}

impl CheckReport {
    /// Whether the tape is whole: finished, and every byte of it as it was written.
    pub fn is_clean(&self) -> bool {
        self.finished && self.totals_agree && self.damage.is_clean()
    }
}

/// Reads a whole tape and checks everything that it says about itself: each checksum, the totals
/// and the id of each block against its requests, and the footer against the blocks.
///
/// # Errors
///
/// When the source fails, holds no record of a tape, or needs a later program. Damage is no error.
pub fn check<R: Read + Seek>(source: R) -> Result<CheckReport, TapeError> {
    let mut reader = TapeReader::open(source)?;
    reader.verify_ids();
    let mut block = Block::new();
    let mut read = Summary::default();
    let mut blocks = 0;
    while reader.next_block(&mut block)? {
        read.merge(block.summary());
        blocks += 1;
    }
    let told = reader.summary();
    let agree = (
        read.requests,
        read.first_ns,
        read.last_ns,
        read.id,
        &read.by_op,
        &read.devices,
    ) == (
        told.requests,
        told.first_ns,
        told.last_ns,
        told.id,
        &told.by_op,
        &told.devices,
    );
    Ok(CheckReport {
        finished: reader.has_footer(),
        parts: reader.parts().len(),
        blocks,
        requests: read.requests,
        id: read.id,
        totals_agree: agree,
        damage: reader.damage().clone(),
    })
}
