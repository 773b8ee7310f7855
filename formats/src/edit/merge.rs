//! Several tapes on one clock: requests of all in the order of wall-clock time.

use std::collections::HashMap;
use std::io::{Read, Seek};

use thiserror::Error;

use crate::request::{DeviceIndex, Request};
use crate::tape::{
    Anchor, Block, Counters, Device, DeviceExtent, Layer, Loss, NameKind, Names, TapeError,
    TapeReader, name_id,
};

/// Why tapes cannot be merged.
#[derive(Debug, Error)]
pub enum MergeError {
    /// A tape does not say when it was recorded.
    #[error(
        "tape {number} has no wall-clock anchor, so its place among the others is unknown; only a single such tape can be edited"
    )]
    NoAnchor {
        /// Its place in the list, from 1.
        number: usize,
    },
    /// The tapes together name more devices than a tape can.
    #[error("the tapes name more than 65,536 devices together")]
    TooManyDevices,
    /// A tape could not be read.
    #[error(transparent)]
    Tape(#[from] TapeError),
}

/// One of the tapes.
#[derive(Debug)]
struct Input<R> {
    reader: TapeReader<R>,
    block: Block,
    row: usize,
    /// Added to its times.
    shift_ns: u64,
    /// The merged index of each of its devices.
    devices: Vec<DeviceIndex>,
}

/// Tapes that are read as one.
///
/// Devices of the same host, name and layer are the same device; where names clash between hosts,
/// the host's name is put before them. A control group whose number has another name in another tape
/// gets a number of its own, that of its name.
#[derive(Debug)]
pub struct Merged<R> {
    inputs: Vec<Input<R>>,
    devices: Vec<Device>,
    owners: Vec<Option<String>>,
    /// Which device has this host, name and layer.
    known: HashMap<(Option<String>, String, Layer), DeviceIndex>,
    counters: Counters,
    names: Names,
    several_hosts: bool,
}

impl<R: Read + Seek> Merged<R> {
    /// Brings these tapes onto the clock of the one that began first.
    ///
    /// # Errors
    /// When one of several tapes has no anchor, or there are too many devices.
    pub fn new(readers: Vec<TapeReader<R>>) -> Result<Self, MergeError> {
        let shifts = shifts(&readers)?;
        let mut merged = Merged {
            inputs: Vec::new(),
            devices: Vec::new(),
            owners: Vec::new(),
            known: HashMap::new(),
            counters: Counters::default(),
            names: Names::default(),
            several_hosts: several_hosts(&readers),
        };
        for (reader, shift_ns) in readers.into_iter().zip(shifts) {
            let (block, devices) = (Block::default(), Vec::new());
            merged.inputs.push(Input {
                reader,
                block,
                row: 0,
                shift_ns,
                devices,
            });
            merged.adopt(merged.inputs.len() - 1)?;
        }
        Ok(merged)
    }

    /// Takes up the devices that a tape has named since the last time.
    fn adopt(&mut self, place: usize) -> Result<(), MergeError> {
        let input = &mut self.inputs[place];
        let host = &input.reader.header().host;
        for device in input.reader.devices().iter().skip(input.devices.len()) {
            let key = (host.clone(), device.name.clone(), device.layer);
            let index = match self.known.get(&key) {
                Some(index) => *index,
                None => {
                    let next = u16::try_from(self.devices.len());
                    let index = DeviceIndex(next.map_err(|_| MergeError::TooManyDevices)?);
                    self.devices.push(Device {
                        index,
                        ..device.clone()
                    });
                    self.owners.push(host.clone());
                    self.known.insert(key, index);
                    index
                }
            };
            input.devices.push(index);
        }
        Ok(())
    }

    /// The devices of all tapes. A damaged tape may name more of them while it is read.
    pub fn devices(&self) -> Vec<Device> {
        let mut bearers: HashMap<&str, usize> = HashMap::new();
        for device in &self.devices {
            *bearers.entry(&device.name).or_default() += 1;
        }
        let clashes = |device: &Device| bearers.get(&*device.name).is_some_and(|count| *count > 1);
        let named = self
            .devices
            .iter()
            .zip(&self.owners)
            .map(|(device, owner)| match owner {
                Some(host) if clashes(device) => Device {
                    name: format!("{host}:{}", device.name),
                    ..device.clone()
                },
                _ => device.clone(),
            });
        named.collect()
    }

    /// The tapes themselves, for their headers and damage.
    pub fn readers(&self) -> impl Iterator<Item = &TapeReader<R>> {
        self.inputs.iter().map(|input| &input.reader)
    }

    /// Anchors of all tapes on the common clock, in order.
    pub fn anchors(&self) -> Vec<Anchor> {
        let mut anchors: Vec<Anchor> = self
            .inputs
            .iter()
            .flat_map(|input| {
                input.reader.anchors().iter().map(|anchor| Anchor {
                    time_ns: anchor.time_ns.saturating_add(input.shift_ns),
                    ..*anchor
                })
            })
            .collect();
        anchors.sort_by_key(|anchor| anchor.time_ns);
        anchors
    }

    /// Losses of all tapes on the common clock, in order.
    pub fn losses(&self) -> Vec<Loss> {
        let mut losses: Vec<Loss> = self
            .inputs
            .iter()
            .flat_map(|input| {
                input.reader.losses().iter().map(|loss| Loss {
                    from_ns: loss.from_ns.saturating_add(input.shift_ns),
                    to_ns: loss.to_ns.saturating_add(input.shift_ns),
                    ..*loss
                })
            })
            .collect();
        losses.sort_by_key(|loss| loss.from_ns);
        losses
    }

    /// What each device's requests span, over all tapes that have it.
    pub fn extents(&self) -> Vec<DeviceExtent> {
        let mut extents: Vec<DeviceExtent> = Vec::new();
        for input in &self.inputs {
            for extent in &input.reader.summary().devices {
                let Some(device) = input.devices.get(usize::from(extent.device.0)) else {
                    continue;
                };
                let extent = DeviceExtent {
                    device: *device,
                    ..*extent
                };
                match extents.iter_mut().find(|known| known.device == *device) {
                    Some(known) => known.merge(&extent),
                    None => extents.push(extent),
                }
            }
        }
        extents
    }

    /// What the capture counted in the blocks read since the last call.
    pub fn take_counters(&mut self) -> Counters {
        std::mem::take(&mut self.counters)
    }

    /// Names of control groups and files of the requests so far.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// The number that what a tape tells by `id` has in the merged one; takes up its name.
    fn number(&mut self, place: usize, kind: NameKind, id: u64) -> u64 {
        let reader = &self.inputs[place].reader;
        let own = reader.names().get(kind, id);
        let own_id = match (own, self.names.get(kind, id)) {
            (None, None) => return id,
            (Some(name), Some(known)) if name != known => name_id(name),
            // A name of another host's is not this one's.
            (None, Some(_)) if self.several_hosts => {
                let host = reader.header().host.as_deref().unwrap_or_default();
                return name_id(&format!("{host}:{id}"));
            }
            _ => id,
        };
        if let Some(name) = own {
            self.names.insert(kind, own_id, name);
        }
        own_id
    }

    /// The next request of all tapes; `None` at their end.
    ///
    /// # Errors
    /// When a tape cannot be read.
    pub fn next_request(&mut self) -> Result<Option<Request>, MergeError> {
        let mut earliest: Option<(usize, u64)> = None;
        for place in 0..self.inputs.len() {
            if let Some(time_ns) = self.peek(place)?
                && earliest.is_none_or(|(_, earlier_ns)| time_ns < earlier_ns)
            {
                earliest = Some((place, time_ns));
            }
        }
        let Some((place, time_ns)) = earliest else {
            return Ok(None);
        };
        let input = &mut self.inputs[place];
        let mut request = input.block.request(input.row);
        input.row += 1;
        request.time_ns = time_ns;
        if let Some(device) = input.devices.get(usize::from(request.device.0)) {
            request.device = *device;
        }
        let mut number = |kind, id: Option<u64>| id.map(|id| self.number(place, kind, id));
        request.cgroup = number(NameKind::Cgroup, request.cgroup);
        request.file = number(NameKind::File, request.file);
        Ok(Some(request))
    }

    /// Time of an input's next request on the common clock; reads its next block when needed.
    fn peek(&mut self, place: usize) -> Result<Option<u64>, MergeError> {
        let input = &mut self.inputs[place];
        if input.row >= input.block.len() {
            input.row = 0;
            if !input.reader.next_block(&mut input.block)? {
                input.block = Block::default();
                return Ok(None);
            }
            self.counters.add(&input.block.summary().counters);
            self.adopt(place)?;
        }
        let input = &self.inputs[place];
        Ok(Some(
            input.block.times_ns()[input.row].saturating_add(input.shift_ns),
        ))
    }
}

fn several_hosts<R: Read + Seek>(readers: &[TapeReader<R>]) -> bool {
    let hosts = || readers.iter().map(|reader| &reader.header().host);
    hosts()
        .zip(hosts().skip(1))
        .any(|(host, next)| host != next)
}

/// What each tape's times need to be on the clock of the one that began first.
fn shifts<R: Read + Seek>(readers: &[TapeReader<R>]) -> Result<Vec<u64>, MergeError> {
    if readers.len() <= 1 {
        return Ok(vec![0; readers.len()]);
    }
    let start = |(place, reader): (usize, &TapeReader<R>)| {
        let anchor = reader
            .anchors()
            .first()
            .ok_or(MergeError::NoAnchor { number: place + 1 })?;
        Ok(i128::from(anchor.wall_ns) - i128::from(anchor.time_ns))
    };
    let starts: Vec<i128> = readers
        .iter()
        .enumerate()
        .map(start)
        .collect::<Result<_, MergeError>>()?;
    let first = starts.iter().copied().min().unwrap_or(0);
    Ok(starts
        .iter()
        .map(|start| u64::try_from(start - first).unwrap_or(u64::MAX))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tape::{Header, Level, TapeWriter};
    use std::io::Cursor;

    fn tape(host: &str, wall_ns: Option<i64>, times_ns: &[u64]) -> TapeReader<Cursor<Vec<u8>>> {
        let header = Header {
            host: Some(host.to_owned()),
            ..Header::default()
        };
        let device = Device {
            name: "sda".to_owned(),
            ..Device::default()
        };
        let mut writer = TapeWriter::create(Vec::new(), &header, &[device], Level::Live).unwrap();
        if let Some(wall_ns) = wall_ns {
            writer
                .anchor(Anchor {
                    time_ns: 0,
                    wall_ns,
                })
                .unwrap();
        }
        for time_ns in times_ns {
            writer
                .push(&Request {
                    time_ns: *time_ns,
                    ..Request::default()
                })
                .unwrap();
        }
        writer.count(&Counters {
            merges: 3,
            ..Counters::default()
        });
        TapeReader::open(Cursor::new(writer.finish().unwrap().0)).unwrap()
    }

    fn all(merged: &mut Merged<Cursor<Vec<u8>>>) -> Vec<(u64, u16)> {
        std::iter::from_fn(|| merged.next_request().unwrap())
            .map(|request| (request.time_ns, request.device.0))
            .collect()
    }

    #[test]
    fn tapes_meet_on_the_wall_clock_of_the_first() {
        let later = tape("b", Some(1_000_500), &[0, 100]);
        let first = tape("a", Some(1_000_000), &[10, 550, 900]);
        let mut merged = Merged::new(vec![later, first]).unwrap();
        let names: Vec<String> = merged
            .devices()
            .into_iter()
            .map(|device| device.name)
            .collect();
        assert_eq!(names, ["b:sda", "a:sda"]);
        assert_eq!(
            all(&mut merged),
            [(10, 1), (500, 0), (550, 1), (600, 0), (900, 1)]
        );
        assert_eq!(merged.take_counters().merges, 6);
    }

    #[test]
    fn segments_of_one_host_keep_one_device() {
        let segments = [tape("a", Some(5000), &[1]), tape("a", Some(6000), &[2])];
        let mut merged = Merged::new(segments.into()).unwrap();
        assert_eq!(merged.devices().len(), 1);
        assert_eq!(all(&mut merged), [(1, 0), (1002, 0)]);
    }

    #[test]
    fn without_a_wall_clock_only_one_tape_can_be_read() {
        let single = Merged::new(vec![tape("a", None, &[7])]);
        assert_eq!(all(&mut single.unwrap()), [(7, 0)]);
        let two = vec![tape("a", Some(0), &[7]), tape("b", None, &[7])];
        assert!(matches!(
            Merged::new(two),
            Err(MergeError::NoAnchor { number: 2 })
        ));
    }
}
