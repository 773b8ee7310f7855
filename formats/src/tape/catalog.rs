//! What the metadata records say, over all the tapes that may be joined in one file.

use std::collections::{BTreeSet, HashMap};

use super::block::Block;
use super::damage::{BadRecord, Fault};
use super::decode::BlockHeader;
use super::error::Corrupt;
use super::metadata::{self, Footer};
use super::model::{Anchor, Device, DeviceExtent, Header, Name, Summary};
use super::scanner::Record;
use super::seam::Seam;
use super::tally::Tally;
use super::wire::opcode;
use crate::request::DeviceIndex;

/// Most tapes that may be joined in one file.
const MAX_PARTS: usize = 65_536;
/// Most devices of one name that are compared.
const NAMESAKES: usize = 64;
/// Most devices of a file.
const MAX_DEVICES: usize = 1 << u16::BITS;

/// One of the tapes that are joined in a file, one behind the other. A file usually holds one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Where it starts, in bytes from the start of the file.
    pub offset: u64,
    /// Added to its times, so that they count from the first anchor of the file.
    pub shift_ns: u64,
    /// Whether the shift was found from the clock anchors; otherwise the part simply follows the
    /// latest request before it.
    pub by_clock: bool,
    /// Whether a magic stands at `offset`; else the first record does.
    has_magic: bool,
    /// What is missing before its first record without damage that explains it, and where.
    lacking: Vec<BadRecord>,
    /// The file's index of each of its devices.
    devices: Vec<Option<DeviceIndex>>,
}

/// What is known of the part that is being read.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    seam: Seam,
    finished: bool,
    /// Whether `shift_ns` has been settled.
    placed: bool,
    anchor: Option<Anchor>,
}

/// What the metadata records of a file say.
#[derive(Debug, Default)]
pub struct Catalog {
    pub header: Header,
    pub devices: Vec<Device>,
    described: Vec<bool>,
    by_name: HashMap<String, BTreeSet<DeviceIndex>>,
    /// Devices that requests name and no record describes.
    pub undescribed: u64,
    pub parts: Vec<Part>,
    pub tally: Tally,
    progress: Progress,
    /// Whether a part other than the last was cut off.
    cut_before: bool,
    /// Where the first tape starts that is one too many.
    beyond: Option<u64>,
    /// Whether the record that comes next stands right behind damage.
    damaged_before: bool,
    first_anchor: Option<Anchor>,
    last_ns: u64,
}

impl Catalog {
    /// Takes it that a tape starts here.
    pub fn head(&mut self, offset: u64) -> Result<(), Corrupt> {
        if self.parts.len() == MAX_PARTS {
            self.beyond.get_or_insert(offset);
        }
        self.within(offset)?;
        self.cut_before |= !self.parts.is_empty() && !self.progress.finished;
        self.parts.push(Part {
            offset,
            by_clock: true,
            has_magic: true,
            ..Part::default()
        });
        self.progress = Progress {
            placed: self.parts.len() == 1,
            ..Progress::default()
        };
        Ok(())
    }

    /// Whether this offset is in a tape that is not one too many.
    pub fn within(&self, offset: u64) -> Result<(), Corrupt> {
        match self.beyond {
            Some(beyond) if offset >= beyond => Err(Corrupt::Excess {
                what: "joined tapes",
                found: MAX_PARTS as u64 + 1,
                max: MAX_PARTS as u64,
            }),
            _ => Ok(()),
        }
    }

    /// Takes it that something could not be used here.
    pub fn damaged(&mut self) {
        self.damaged_before = true;
    }

    /// Takes it that the trailer of a tape stands here.
    pub fn tail(&mut self) {
        self.progress.finished = self.progress.seam.concluded();
    }

    /// Whether each part has a footer and a trailer.
    pub fn finished(&self) -> bool {
        self.progress.finished && !self.cut_before
    }

    /// The part in which an offset lies.
    pub fn part_at(&self, offset: u64) -> usize {
        self.parts
            .partition_point(|part| part.offset <= offset)
            .saturating_sub(1)
    }

    /// Takes up what a record says. `false` when its number is unknown.
    pub fn note(&mut self, record: &Record<'_>) -> Result<bool, Corrupt> {
        self.within(record.offset)?;
        if self.parts.is_empty() || self.progress.seam.precedes(record) {
            self.head(record.offset)?;
            if let Some(part) = self.parts.last_mut() {
                part.has_magic = false;
            }
        }
        if !self.progress.seam.begun() {
            self.begin(record);
        }
        self.damaged_before = false;
        self.progress.seam.take(record);
        match record.opcode {
            opcode::HEADER => {
                let header = metadata::get(record.payload)?;
                if self.parts.len() == 1 {
                    self.header = header;
                }
            }
            opcode::DEVICE => self.device(metadata::get(record.payload)?)?,
            opcode::ANCHOR => self.anchor(metadata::get(record.payload)?),
            opcode::LOSS => {
                let mut loss = metadata::get::<super::Loss>(record.payload)?;
                let shift = self.place();
                loss.from_ns = loss.from_ns.saturating_add(shift);
                loss.to_ns = loss.to_ns.saturating_add(shift);
                self.tally.loss(loss);
            }
            opcode::BLOCK => self.block(record)?,
            opcode::FOOTER => {
                let footer = metadata::get::<Footer>(record.payload)?;
                let part = self.parts.last();
                part.map_or(Ok(()), |part| part.holds(&footer, record.offset))?;
            }
            opcode::NAMES => drop(metadata::get::<Vec<Name>>(record.payload)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Takes it that this is the current part's first record.
    fn begin(&mut self, record: &Record<'_>) {
        let Some(part) = self.parts.last_mut().filter(|_| !self.damaged_before) else {
            return;
        };
        let lacking = [
            (!part.has_magic, Fault::NoMagic),
            (record.opcode != opcode::HEADER, Fault::NoHeader),
        ];
        part.lacking = lacking
            .into_iter()
            .filter(|(lacks, _)| *lacks)
            .map(|(_, fault)| BadRecord::lack(record.offset, fault))
            .collect();
    }

    /// Whether the last tape has a record.
    pub fn begun(&self) -> bool {
        self.progress.seam.begun()
    }

    fn block(&mut self, record: &Record<'_>) -> Result<(), Corrupt> {
        let mut summary = BlockHeader::parse(record.payload)?.summary;
        self.place();
        self.adopt(self.parts.len() - 1, &mut summary)?;
        self.last_ns = self.last_ns.max(summary.last_ns);
        self.tally.block(record.offset, &summary);
        Ok(())
    }

    fn anchor(&mut self, anchor: Anchor) {
        self.progress.anchor.get_or_insert(anchor);
        let shift = self.place();
        let time_ns = anchor.time_ns.saturating_add(shift);
        self.first_anchor.get_or_insert(anchor);
        self.tally.anchor(Anchor { time_ns, ..anchor });
    }

    /// Settles the current part's shift, and returns it.
    fn place(&mut self) -> u64 {
        let Some(part) = self.parts.last_mut() else {
            return 0;
        };
        if !self.progress.placed {
            self.progress.placed = true;
            let wall = |anchor: Anchor| i128::from(anchor.wall_ns) - i128::from(anchor.time_ns);
            let shift = self
                .progress
                .anchor
                .zip(self.first_anchor)
                .map(|(own, first)| wall(own) - wall(first));
            let shift = shift.and_then(|shift| u64::try_from(shift).ok());
            part.by_clock = shift.is_some();
            part.shift_ns = shift.unwrap_or(self.last_ns);
        }
        part.shift_ns
    }

    /// Takes up a device of the current part: one that an earlier part had is the same device.
    fn device(&mut self, device: Device) -> Result<(), Corrupt> {
        let own = device.index;
        let index = if self.parts.len() == 1 {
            own
        } else {
            self.same_device(&device)
                .map_or_else(|| self.next_index(), Ok)?
        };
        self.make_room(index);
        let slot = usize::from(index.0);
        self.by_name
            .entry(device.name.clone())
            .or_default()
            .insert(index);
        self.devices[slot] = Device { index, ..device };
        self.described[slot] = true;
        if let Some(part) = self.parts.last_mut() {
            part.assign(own, index);
        }
        Ok(())
    }

    /// A device of an earlier part that differs from this one in nothing but its index, and is not
    /// yet one of the current part.
    fn same_device(&self, device: &Device) -> Option<DeviceIndex> {
        let taken = self.parts.last().map_or(&[][..], |part| &part.devices);
        let alike = |index: &&DeviceIndex| {
            let known = &self.devices[usize::from(index.0)];
            *known
                == Device {
                    index: **index,
                    ..device.clone()
                }
                && !taken.contains(&Some(**index))
        };
        self.by_name
            .get(&device.name)?
            .iter()
            .take(NAMESAKES)
            .find(alike)
            .copied()
    }

    fn next_index(&self) -> Result<DeviceIndex, Corrupt> {
        let next = u16::try_from(self.devices.len());
        next.map(DeviceIndex).map_err(|_| too_many_devices())
    }

    /// Whether a number was left for this device of a part.
    pub fn has_number(&self, part: usize, own: DeviceIndex) -> Result<(), Corrupt> {
        let later = self.parts.get(part).filter(|_| part > 0);
        if later.is_some_and(|part| part.number(own).is_none()) {
            return Err(too_many_devices());
        }
        Ok(())
    }

    /// Makes room for a device, with stand-ins up to it.
    fn make_room(&mut self, index: DeviceIndex) {
        while self.devices.len() <= usize::from(index.0) {
            let index = DeviceIndex(self.devices.len() as u16);
            let name = format!("undescribed-{}", index.0);
            self.devices.push(Device {
                index,
                name,
                ..Device::default()
            });
            self.described.push(false);
        }
    }

    /// Changes the totals of a part's requests into those that the file gives them: device
    /// indexes and times. Devices without a description get a stand-in.
    pub fn adopt(&mut self, part: usize, summary: &mut Summary) -> Result<(), Corrupt> {
        for extent in &summary.devices {
            self.name_device(part, extent.device)?;
        }
        let Some(part) = self.parts.get(part).filter(|part| !part.is_plain()) else {
            return Ok(());
        };
        summary.first_ns = part.shift(summary.first_ns)?;
        summary.last_ns = part.shift(summary.last_ns)?;
        for extent in &mut summary.devices {
            extent.device = part.device(extent.device);
        }
        summary
            .devices
            .sort_by_key(|extent: &DeviceExtent| extent.device);
        Ok(())
    }

    /// Changes a block of a part into what the file makes of it.
    pub fn adopt_block(&mut self, part: usize, block: &mut Block) -> Result<(), Corrupt> {
        self.adopt(part, &mut block.summary)?;
        let Some(part) = self.parts.get(part).filter(|part| !part.is_plain()) else {
            return Ok(());
        };
        // The latest time fits, and so do the others.
        block
            .times
            .iter_mut()
            .for_each(|time| *time += part.shift_ns);
        block
            .devices
            .iter_mut()
            .for_each(|device| *device = part.device(*device));
        Ok(())
    }

    /// Makes sure that a device of a part, which requests name, is in the list.
    fn name_device(&mut self, part: usize, own: DeviceIndex) -> Result<(), Corrupt> {
        let known = self.parts.get(part).and_then(|part| part.number(own));
        let index = match known {
            Some(index) => index,
            None if part == 0 => own,
            None => self.next_index()?,
        };
        self.make_room(index);
        if known.is_none() {
            self.undescribed += u64::from(!self.described[usize::from(index.0)]);
            if let Some(part) = self.parts.get_mut(part) {
                part.assign(own, index);
            }
        }
        Ok(())
    }

    /// Whether all devices of these totals have been described.
    pub fn describes(&self, summary: &Summary) -> bool {
        let described =
            |extent: &DeviceExtent| self.described.get(usize::from(extent.device.0)).copied();
        summary
            .devices
            .iter()
            .all(|extent| described(extent) == Some(true))
    }
}

fn too_many_devices() -> Corrupt {
    Corrupt::Excess {
        what: "devices",
        found: MAX_DEVICES as u64 + 1,
        max: MAX_DEVICES as u64,
    }
}

impl Part {
    /// What is missing before the record at this offset, when that is the part's first.
    pub(super) fn lacking_before(&self, offset: u64) -> impl Iterator<Item = BadRecord> {
        let here = self.lacking.iter().filter(move |bad| bad.offset == offset);
        here.cloned()
    }

    /// Whether a footer at this offset says how far it is from the part's magic.
    pub(super) fn holds(&self, footer: &Footer, offset: u64) -> Result<(), Corrupt> {
        let found = offset.saturating_sub(self.offset);
        let expected = footer.tape_bytes;
        if self.has_magic && found != expected {
            return Err(Corrupt::Displaced { found, expected });
        }
        Ok(())
    }

    /// Whether requests are in the file as they are in the part.
    fn is_plain(&self) -> bool {
        let identical =
            |(own, index): (u16, &Option<DeviceIndex>)| index.is_none_or(|index| index.0 == own);
        self.shift_ns == 0 && (0..=u16::MAX).zip(&self.devices).all(identical)
    }

    fn assign(&mut self, own: DeviceIndex, index: DeviceIndex) {
        let slot = usize::from(own.0);
        if self.devices.len() <= slot {
            self.devices.resize(slot + 1, None);
        }
        self.devices[slot] = Some(index);
    }

    /// The file's index of a device, if it has one.
    fn number(&self, own: DeviceIndex) -> Option<DeviceIndex> {
        self.devices.get(usize::from(own.0)).copied().flatten()
    }

    fn device(&self, own: DeviceIndex) -> DeviceIndex {
        self.number(own).unwrap_or(own)
    }

    fn shift(&self, time_ns: u64) -> Result<u64, Corrupt> {
        let past = Corrupt::Excess {
            what: "time in a joined tape",
            found: time_ns,
            max: u64::MAX - self.shift_ns,
        };
        time_ns.checked_add(self.shift_ns).ok_or(past)
    }
}
