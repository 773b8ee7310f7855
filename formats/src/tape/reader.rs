//! A tape out of a file, or anything else that can be read and sought.

use std::fmt;
use std::io::{Read, Seek};

use super::block::Block;
use super::catalog::{Catalog, Part};
use super::column::Columns;
use super::damage::{BadRecord, Continuity, Damage, Fault};
use super::decode::{BlockDecoder, BlockHeader};
use super::error::{Corrupt, TapeError};
use super::metadata::{self, Footer, Stored};
use super::model::{Anchor, Device, Header, Loss, Name, Summary};
use super::names::Names;
use super::scanner::{Record, Scanner, Step};
use super::seam::Before;
use super::source::{READ_BYTES, Source};
use super::wire::{RECORD_OVERHEAD_BYTES, opcode};
use crate::request::DeviceIndex;

/// Bytes asked of the source at once when only headers are read.
const SKIM_BYTES: usize = 4 << 10;
/// A file without any record in so many bytes is not a tape.
const FOREIGN_BYTES: u64 = 64 << 20;

/// Reads a tape: what it is at once, its requests block by block.
///
/// Damage is no error: damaged records are skipped and counted in [`TapeReader::damage`].
///
/// Tapes joined in one file (`cat a.iotape b.iotape`) read as one: devices that several of them
/// describe alike are one device, and times count from the first anchor of the first.
pub struct TapeReader<R> {
    source: Source<R>,
    scanner: Scanner,
    decoder: BlockDecoder,
    catalog: Catalog,
    /// Totals and lists that [`TapeReader::open`] found.
    footer: Footer,
    has_footer: bool,
    columns: Columns,
    verify_ids: bool,
    damage: Damage,
    continuity: Continuity,
    before: Before,
    /// Names of one part, up to the block that was read last.
    names: Names,
    named_part: usize,
    /// Everything before this offset has been counted in `damage` while reading blocks.
    counted_to: u64,
    started: bool,
}

impl<R: Read + Seek> TapeReader<R> {
    /// Reads what the tape says about itself: from its head and footer, or, when there is no valid
    /// footer, from the headers of all records.
    ///
    /// # Errors
    ///
    /// When the source fails, holds no record of a tape, or needs a later program.
    pub fn open(source: R) -> Result<Self, TapeError> {
        let mut source = Source::new(source);
        let footer = source.footer()?;
        let mut reader = TapeReader {
            source,
            scanner: Scanner::skimming(),
            decoder: BlockDecoder::new().map_err(|error| TapeError::Compress { error })?,
            catalog: Catalog::default(),
            footer: Footer::default(),
            has_footer: false,
            columns: Columns::ALL,
            verify_ids: false,
            damage: Damage::default(),
            continuity: Continuity::default(),
            before: Before::default(),
            names: Names::default(),
            named_part: 0,
            counted_to: 0,
            started: false,
        };
        reader.source.seek(0)?;
        reader.skim(footer)?;
        Ok(reader)
    }

    /// Chooses which columns [`TapeReader::next_block`] decodes. All, unless told otherwise.
    pub fn select(&mut self, columns: Columns) {
        self.columns = columns;
    }

    /// Decodes all columns from here on, and counts a block as damaged when its requests do not
    /// hash to its id.
    pub(super) fn verify_ids(&mut self) {
        self.columns = Columns::ALL;
        self.verify_ids = true;
    }

    /// Where the tape comes from.
    pub fn header(&self) -> &Header {
        &self.catalog.header
    }

    /// The recorded devices, by index. One that requests name and the tape does not describe has
    /// the name `undescribed-N`.
    pub fn devices(&self) -> &[Device] {
        &self.catalog.devices
    }

    /// Moments on both clocks; thinned when there are thousands.
    pub fn anchors(&self) -> &[Anchor] {
        &self.footer.anchors
    }

    /// Losses; neighbours are joined when there are thousands.
    pub fn losses(&self) -> &[Loss] {
        &self.footer.losses
    }

    /// Totals of the tape: from the footer, else from the headers of its blocks.
    ///
    /// The id of joined tapes is the sum of theirs: it is that of the requests as they stand in
    /// their own tapes.
    pub fn summary(&self) -> &Summary {
        &self.footer.summary
    }

    /// Whether the tape was finished: a tape without a footer was cut off.
    pub fn has_footer(&self) -> bool {
        self.has_footer
    }

    /// The tapes that are joined in the file; usually one.
    pub fn parts(&self) -> &[Part] {
        &self.catalog.parts
    }

    /// What was found wrong so far. Right after opening, that is what the search for metadata met;
    /// from the first block on, what reading met.
    pub fn damage(&self) -> &Damage {
        &self.damage
    }

    /// Names of the control groups and files of the block that was read last: what the records
    /// before it say. In joined tapes, those of the block's own tape.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Decodes the next block with requests; `false` at the end of the tape. Damaged blocks are
    /// skipped and counted.
    ///
    /// # Errors
    ///
    /// When the source fails.
    pub fn next_block(&mut self, block: &mut Block) -> Result<bool, TapeError> {
        if !self.started {
            self.start()?;
        }
        loop {
            let arrived = match self.scanner.step() {
                Step::Need(bytes) => {
                    self.source.feed(&mut self.scanner, bytes.max(READ_BYTES))?;
                    continue;
                }
                Step::Seek(offset) => {
                    self.source.seek(offset)?;
                    continue;
                }
                Step::End => {
                    block.clear();
                    return Ok(false);
                }
                Step::Head(_) => {
                    self.before = Before::Other;
                    false
                }
                Step::Tail {
                    offset,
                    footer_bytes,
                } => {
                    let stray = std::mem::take(&mut self.before).trailer(offset, footer_bytes);
                    stray
                        .filter(|bad| bad.offset >= self.counted_to)
                        .into_iter()
                        .for_each(|bad| self.damage.add(bad));
                    false
                }
                Step::Bad(bad) => {
                    self.before = Before::Damage;
                    if bad.offset >= self.counted_to {
                        self.damage.add(bad);
                    }
                    false
                }
                Step::Record(record) => {
                    let at = At::of(&record, record.offset >= self.counted_to);
                    self.before = Before::record(&record);
                    let seen = if record.opcode == opcode::BLOCK {
                        self.decoder
                            .get(record.payload, self.columns, block)
                            .map(|header| Seen::Block(Box::new(header)))
                    } else {
                        look_at(&record)
                    };
                    self.take(&at, seen, block)
                }
            };
            self.counted_to = self.counted_to.max(self.scanner.offset());
            if arrived {
                return Ok(true);
            }
        }
    }

    /// Goes back to the first block.
    pub fn rewind(&mut self) {
        self.started = false;
    }

    fn start(&mut self) -> Result<(), TapeError> {
        if self.counted_to == 0 {
            let undescribed_devices = self.damage.undescribed_devices;
            self.damage = Damage::default();
            self.damage.undescribed_devices = undescribed_devices;
        }
        self.scanner = Scanner::new();
        self.source.seek(0)?;
        self.continuity = Continuity::default();
        self.before = Before::default();
        self.names.clear();
        self.named_part = 0;
        self.started = true;
        Ok(())
    }

    /// Takes what a record turned out to be; `true` when `block` has requests.
    fn take(&mut self, at: &At, seen: Result<Seen, Corrupt>, block: &mut Block) -> bool {
        let part = self.catalog.part_at(at.offset);
        if at.new {
            self.lacking(part, at.offset);
        }
        if part != self.named_part {
            self.names.clear();
            self.named_part = part;
        }
        let within = self.catalog.within(at.offset);
        let taken = within.and(seen).and_then(|seen| match seen {
            Seen::Block(header) => self.arrived(part, block, &header, at.new),
            Seen::Footer(footer) => self.concluded(part, &footer, at),
            Seen::Device(own) => self.catalog.has_number(part, own).map(|()| false),
            Seen::Names(names) => {
                for Name { kind, id, name } in names {
                    self.names.insert(kind, id, &name);
                }
                Ok(false)
            }
            Seen::Other => Ok(false),
            Seen::Unknown => {
                if at.new {
                    self.damage.add_unknown(at.opcode);
                }
                Ok(false)
            }
        });
        taken.unwrap_or_else(|corrupt| {
            self.spoiled(at, corrupt);
            false
        })
    }

    /// Takes a decoded block; `true` when it has requests.
    fn arrived(
        &mut self,
        part: usize,
        block: &mut Block,
        header: &BlockHeader,
        new: bool,
    ) -> Result<bool, Corrupt> {
        if self.verify_ids {
            block.verify_id(header.summary.id)?;
        }
        self.catalog.adopt_block(part, block)?;
        self.damage.undescribed_devices = self.catalog.undescribed;
        let lost = self
            .continuity
            .block(part, header.requests_before, &header.summary)?;
        if new {
            self.damage.unknown_columns += header.unknown_columns();
            self.damage.lose(lost);
        }
        Ok(!block.is_empty())
    }

    /// Takes a part's footer; `false`, since it is no block.
    fn concluded(&mut self, part: usize, footer: &Footer, at: &At) -> Result<bool, Corrupt> {
        let lost = self.continuity.footer(part, &footer.summary);
        if at.new {
            self.damage.lose(lost?);
        }
        let part = self.catalog.parts.get(part);
        part.map_or(Ok(()), |part| part.holds(footer, at.offset))?;
        Ok(false)
    }

    /// Counts what is missing before a part's first record, if that stands at this offset.
    fn lacking(&mut self, part: usize, offset: u64) {
        if let Some(part) = self.catalog.parts.get(part) {
            part.lacking_before(offset)
                .for_each(|bad| self.damage.add(bad));
        }
    }

    /// Counts a record whose checksum is right and whose content is not.
    fn spoiled(&mut self, at: &At, corrupt: Corrupt) {
        if at.new {
            let fault = Fault::Content(corrupt);
            let At {
                offset,
                bytes,
                opcode,
                ..
            } = *at;
            self.damage.add(BadRecord {
                offset,
                bytes,
                opcode: Some(opcode),
                fault,
                requests: None,
            });
        }
    }

    /// Reads the metadata before the first block, and without a footer everything but columns.
    fn skim(&mut self, footer: Option<Footer>) -> Result<(), TapeError> {
        let mut records = 0u64;
        loop {
            match self.scanner.step() {
                Step::Need(bytes) => {
                    if records == 0 && self.scanner.offset() > FOREIGN_BYTES {
                        break;
                    }
                    self.source.feed(&mut self.scanner, bytes.max(SKIM_BYTES))?;
                }
                Step::Seek(offset) => self.source.seek(offset)?,
                Step::Head(offset) => {
                    self.before = Before::Other;
                    drop(self.catalog.head(offset));
                }
                Step::Tail {
                    offset,
                    footer_bytes,
                } => match std::mem::take(&mut self.before).trailer(offset, footer_bytes) {
                    Some(stray) => self.damage.add(stray),
                    None => self.catalog.tail(),
                },
                Step::Bad(bad) => {
                    self.before = Before::Damage;
                    self.catalog.damaged();
                    self.damage.add(bad);
                }
                Step::End => break,
                Step::Record(record) => {
                    records += 1;
                    self.before = Before::record(&record);
                    let enough = |footer: &Footer| self.catalog.describes(&footer.summary);
                    let is_block = record.opcode == opcode::BLOCK && self.catalog.begun();
                    if is_block && footer.as_ref().is_some_and(enough) {
                        break;
                    }
                    let noted = self.catalog.note(&record);
                    let at = At::of(&record, true);
                    self.noted(&at, noted)?;
                }
            }
        }
        if records == 0 {
            return Err(self.source.not_a_tape(self.scanner.offset()));
        }
        self.conclude(footer);
        Ok(())
    }

    /// Counts what is wrong with a record that the catalog has taken up.
    fn noted(&mut self, at: &At, noted: Result<bool, Corrupt>) -> Result<(), TapeError> {
        self.lacking(self.catalog.parts.len().saturating_sub(1), at.offset);
        match noted {
            Ok(true) => (),
            Ok(false) => self.damage.add_unknown(at.opcode),
            Err(Corrupt::Version { what, found, known })
                if at.opcode == opcode::HEADER && found > known =>
            {
                return Err(TapeError::TooNew {
                    what,
                    offset: at.offset,
                    found,
                    known,
                });
            }
            Err(corrupt) => self.spoiled(at, corrupt),
        }
        Ok(())
    }

    /// Settles what the tape says about itself.
    fn conclude(&mut self, footer: Option<Footer>) {
        if self.catalog.parts.is_empty() {
            drop(self.catalog.head(0));
        }
        self.has_footer = footer.is_some() || self.catalog.finished();
        let found = std::mem::take(&mut self.catalog.tally).into_footer();
        self.footer = footer.unwrap_or(found);
        // Only names devices: the totals are those of the file already.
        let mut totals = self.footer.summary.clone();
        if self.catalog.parts.len() == 1 {
            drop(self.catalog.adopt(0, &mut totals));
        }
        self.damage.undescribed_devices = self.catalog.undescribed;
    }
}

impl<R> fmt::Debug for TapeReader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TapeReader")
            .field("summary", &self.footer.summary)
            .field("damage", &self.damage)
            .finish_non_exhaustive()
    }
}

/// Where a record stands.
struct At {
    offset: u64,
    bytes: u64,
    opcode: u8,
    /// Whether its damage has not been counted yet.
    new: bool,
}

impl At {
    fn of(record: &Record<'_>, new: bool) -> At {
        let bytes = record
            .payload_bytes
            .saturating_add(RECORD_OVERHEAD_BYTES as u64);
        At {
            offset: record.offset,
            bytes,
            opcode: record.opcode,
            new,
        }
    }
}

/// What a record turned out to be.
enum Seen {
    Block(Box<BlockHeader>),
    Device(DeviceIndex),
    Footer(Box<Footer>),
    Names(Vec<Name>),
    Other,
    Unknown,
}

/// Looks whether the content of a record can be used.
fn look_at(record: &Record<'_>) -> Result<Seen, Corrupt> {
    fn known<T: Stored>(record: &Record<'_>) -> Result<Seen, Corrupt> {
        metadata::get::<T>(record.payload).map(|_| Seen::Other)
    }
    match record.opcode {
        opcode::HEADER => known::<Header>(record),
        opcode::DEVICE => metadata::get::<Device>(record.payload).map(|d| Seen::Device(d.index)),
        opcode::ANCHOR => known::<Anchor>(record),
        opcode::LOSS => known::<Loss>(record),
        opcode::NAMES => metadata::get(record.payload).map(Seen::Names),
        opcode::FOOTER => {
            metadata::get(record.payload).map(|footer| Seen::Footer(Box::new(footer)))
        }
        _ => Ok(Seen::Unknown),
    }
}
