//! A tape out of a file, or anything else that can be read and sought.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use super::block::Block;
use super::columns::Columns;
use super::damage::{BadRecord, Damage, Fault};
use super::decode::{BlockHeader, get_block};
use super::error::{Corrupt, TapeError};
use super::metadata::{self, Footer, Stored};
use super::model::{Anchor, Device, Header, Loss, Summary};
use super::scanner::{Record, Scanner, Step};
use super::tally::Tally;
use super::wire::{
    HEAD_MAGIC, MAX_METADATA_BYTES, RECORD_OVERHEAD_BYTES, TRAILER_BYTES, opcode, parse_trailer,
};
use crate::request::DeviceIndex;

/// Least bytes asked of the source at once when everything is read, and when only headers are.
const READ_BYTES: usize = 256 << 10;
const SKIM_BYTES: usize = 4 << 10;

/// Reads a tape: what it is at once, its requests block by block.
///
/// Damage is no error: damaged records are skipped and counted in [`TapeReader::damage`].
#[derive(Debug)]
pub struct TapeReader<R> {
    source: Source<R>,
    scanner: Scanner,
    header: Header,
    devices: Vec<Device>,
    described: Vec<bool>,
    footer: Footer,
    has_footer: bool,
    columns: Columns,
    damage: Damage,
    /// Everything before this offset is already counted in `damage`.
    counted_to: u64,
    started: bool,
    requests_read: u64,
}

impl<R: Read + Seek> TapeReader<R> {
    /// Reads what the tape says about itself: from its head and footer, or, when there is no valid
    /// footer, from the headers of all records.
    ///
    /// # Errors
    ///
    /// When the source fails, holds no record of a tape, or needs a later program.
    pub fn open(source: R) -> Result<Self, TapeError> {
        let mut source = Source {
            inner: source,
            buffer: Vec::new(),
        };
        let footer = source.footer()?;
        let mut reader = TapeReader {
            source,
            scanner: Scanner::skimming(),
            header: Header::default(),
            devices: Vec::new(),
            described: Vec::new(),
            has_footer: footer.is_some(),
            footer: Footer::default(),
            columns: Columns::ALL,
            damage: Damage::default(),
            counted_to: 0,
            started: false,
            requests_read: 0,
        };
        reader.source.seek(0)?;
        reader.skim(footer)?;
        Ok(reader)
    }

    /// Chooses which columns [`TapeReader::next_block`] decodes. All, unless told otherwise.
    pub fn select(&mut self, columns: Columns) {
        self.columns = columns;
    }

    /// Where the tape comes from.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The recorded devices, by index. One that requests name and the tape does not describe has
    /// the name `undescribed-N`.
    pub fn devices(&self) -> &[Device] {
        &self.devices
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
    pub fn summary(&self) -> &Summary {
        &self.footer.summary
    }

    /// Whether the tape was finished: a tape without a footer was cut off.
    pub fn has_footer(&self) -> bool {
        self.has_footer
    }

    /// What was found wrong so far. Right after opening, that is what the scan for headers met;
    /// from the first block on, what reading met.
    pub fn damage(&self) -> &Damage {
        &self.damage
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
            let counted = self.scanner.offset() < self.counted_to;
            match self.scanner.step() {
                Step::Need(bytes) => self.source.feed(&mut self.scanner, bytes.max(READ_BYTES))?,
                Step::Seek(offset) => self.source.seek(offset)?,
                Step::Head(_) => (),
                Step::Bad(bad) => {
                    if bad.offset >= self.counted_to {
                        self.damage.add(bad);
                    }
                }
                Step::Record(record) if record.opcode == opcode::BLOCK => {
                    let decoded = get_block(record.payload, self.columns, block);
                    let (offset, bytes) = (record.offset, whole(&record));
                    match decoded {
                        Ok(()) if block.is_empty() => (),
                        Ok(()) => {
                            self.requests_read += block.len() as u64;
                            self.describe_devices(block.summary());
                            return Ok(true);
                        }
                        Err(corrupt) => self.spoiled(offset, bytes, opcode::BLOCK, corrupt),
                    }
                }
                Step::Record(record) => {
                    if !counted {
                        let (offset, bytes, opcode) =
                            (record.offset, whole(&record), record.opcode);
                        let result = check_metadata(&record);
                        match result {
                            Ok(true) => (),
                            Ok(false) => self.damage.add_unknown(opcode),
                            Err(corrupt) => self.spoiled(offset, bytes, opcode, corrupt),
                        }
                    }
                }
                Step::End => {
                    self.counted_to = self.counted_to.max(self.scanner.offset());
                    let told = self.footer.summary.requests;
                    self.damage.lost_requests = told.saturating_sub(self.requests_read);
                    return Ok(false);
                }
            }
            self.counted_to = self.counted_to.max(self.scanner.offset());
        }
    }

    /// Goes back to the first block.
    pub fn rewind(&mut self) {
        self.started = false;
    }

    fn start(&mut self) -> Result<(), TapeError> {
        if self.counted_to == 0 {
            let undescribed_devices = self.damage.undescribed_devices;
            self.damage = Damage {
                undescribed_devices,
                ..Damage::default()
            };
        }
        self.scanner = Scanner::new();
        self.source.seek(0)?;
        self.requests_read = 0;
        self.started = true;
        Ok(())
    }

    /// Counts a record whose checksum is right and whose content is not.
    fn spoiled(&mut self, offset: u64, bytes: u64, opcode: u8, corrupt: Corrupt) {
        if offset >= self.counted_to {
            let fault = Fault::Content(corrupt);
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
        let mut tally = Tally::default();
        let mut records = 0u64;
        loop {
            match self.scanner.step() {
                Step::Need(bytes) => self.source.feed(&mut self.scanner, bytes.max(SKIM_BYTES))?,
                Step::Seek(offset) => self.source.seek(offset)?,
                Step::Head(_) => self.has_footer = footer.is_some(),
                Step::Bad(bad) => self.damage.add(bad),
                Step::End => break,
                Step::Record(record) => {
                    records += 1;
                    if record.opcode == opcode::BLOCK && footer.is_some() {
                        break;
                    }
                    let (offset, bytes, opcode) = (record.offset, whole(&record), record.opcode);
                    let noted = note(
                        &record,
                        &mut self.header,
                        &mut self.devices,
                        &mut self.described,
                        &mut tally,
                    );
                    match noted {
                        Ok(true) => self.has_footer |= opcode == opcode::FOOTER,
                        Ok(false) => self.damage.add_unknown(opcode),
                        Err(Corrupt::Version { what, found, known })
                            if opcode == opcode::HEADER =>
                        {
                            return Err(TapeError::TooNew {
                                what,
                                offset,
                                found,
                                known,
                            });
                        }
                        Err(corrupt) => {
                            let fault = Fault::Content(corrupt);
                            self.damage.add(BadRecord {
                                offset,
                                bytes,
                                opcode: Some(opcode),
                                fault,
                                requests: None,
                            });
                        }
                    }
                }
            }
        }
        if records == 0 {
            return Err(self.not_a_tape()?);
        }
        self.footer = footer.unwrap_or_else(|| tally.into_footer());
        let summary = self.footer.summary.clone();
        self.describe_devices(&summary);
        Ok(())
    }

    fn not_a_tape(&mut self) -> Result<TapeError, TapeError> {
        let bytes = self.source.bytes()?;
        self.source.seek(0)?;
        let mut found = Vec::new();
        let front = (&mut self.source.inner)
            .take(HEAD_MAGIC.len() as u64)
            .read_to_end(&mut found);
        front.map_err(|error| TapeError::Io { offset: 0, error })?;
        Ok(TapeError::NotATape { bytes, found })
    }

    /// Makes an entry for each device that requests name and no record describes.
    fn describe_devices(&mut self, summary: &Summary) {
        for extent in &summary.devices {
            place_device(&mut self.devices, &mut self.described, extent.device);
            let slot = usize::from(extent.device.0);
            if !self.described[slot] {
                self.described[slot] = true;
                self.damage.undescribed_devices += 1;
            }
        }
    }
}

impl TapeReader<BufReader<File>> {
    /// Opens a tape by its path.
    ///
    /// # Errors
    ///
    /// As [`TapeReader::open`], and when the file cannot be opened.
    pub fn open_path(path: &Path) -> Result<Self, TapeError> {
        let file = File::open(path).map_err(|error| TapeError::Io { offset: 0, error })?;
        TapeReader::open(BufReader::new(file))
    }
}

#[derive(Debug)]
struct Source<R> {
    inner: R,
    buffer: Vec<u8>,
}

impl<R: Read + Seek> Source<R> {
    fn bytes(&mut self) -> Result<u64, TapeError> {
        self.inner
            .seek(SeekFrom::End(0))
            .map_err(|error| TapeError::Io { offset: 0, error })
    }

    fn seek(&mut self, offset: u64) -> Result<(), TapeError> {
        self.inner
            .seek(SeekFrom::Start(offset))
            .map_err(|error| TapeError::Io { offset, error })?;
        Ok(())
    }

    /// Feeds up to `bytes` bytes, or the end.
    fn feed(&mut self, scanner: &mut Scanner, bytes: usize) -> Result<(), TapeError> {
        self.buffer.resize(bytes.min(READ_BYTES), 0);
        loop {
            match self.inner.read(&mut self.buffer) {
                Ok(0) => scanner.end(),
                Ok(count) => scanner.feed(&self.buffer[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
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
    fn footer(&mut self) -> Result<Option<Footer>, TapeError> {
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
        let Step::Record(Record {
            opcode: opcode::FOOTER,
            payload,
            ..
        }) = scanner.step()
        else {
            return Ok(None);
        };
        let footer: Option<Footer> = metadata::get(payload).ok();
        Ok(footer.filter(|footer| footer.tape_bytes == footer_at))
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

/// Takes up what a record says; `false` when its number is unknown.
fn note(
    record: &Record<'_>,
    header: &mut Header,
    devices: &mut Vec<Device>,
    described: &mut Vec<bool>,
    tally: &mut Tally,
) -> Result<bool, Corrupt> {
    match record.opcode {
        opcode::HEADER => *header = metadata::get(record.payload)?,
        opcode::DEVICE => {
            let device: Device = metadata::get(record.payload)?;
            let slot = usize::from(device.index.0);
            place_device(devices, described, device.index);
            described[slot] = true;
            devices[slot] = device;
        }
        opcode::ANCHOR => tally.anchor(metadata::get(record.payload)?),
        opcode::LOSS => tally.loss(metadata::get(record.payload)?),
        opcode::BLOCK => tally.block(record.offset, &BlockHeader::parse(record.payload)?.summary),
        opcode::FOOTER => drop(metadata::get::<Footer>(record.payload)?),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Whether a record's number is known; an error when its content cannot be used.
fn check_metadata(record: &Record<'_>) -> Result<bool, Corrupt> {
    fn decodes<T: Stored>(record: &Record<'_>) -> Result<bool, Corrupt> {
        metadata::get::<T>(record.payload).map(|_| true)
    }
    match record.opcode {
        opcode::HEADER => decodes::<Header>(record),
        opcode::DEVICE => decodes::<Device>(record),
        opcode::ANCHOR => decodes::<Anchor>(record),
        opcode::LOSS => decodes::<Loss>(record),
        opcode::FOOTER => decodes::<Footer>(record),
        _ => Ok(false),
    }
}

/// Makes room for a device, with stand-ins before it.
fn place_device(devices: &mut Vec<Device>, described: &mut Vec<bool>, index: DeviceIndex) {
    while devices.len() <= usize::from(index.0) {
        let index = DeviceIndex(devices.len() as u16);
        devices.push(Device {
            index,
            name: format!("undescribed-{}", index.0),
            ..Device::default()
        });
        described.push(false);
    }
}

fn whole(record: &Record<'_>) -> u64 {
    record.payload_bytes + RECORD_OVERHEAD_BYTES as u64
}
