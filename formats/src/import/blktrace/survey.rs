//! What the beginnings of the files tell: the tape says it before its first request.

use std::collections::BTreeMap;
use std::io::{Chain, Cursor, Read};

use blktrace_parse::{DeviceNumber, Error, Kind, Payload, Reader, Record, Version};

use super::origins::Origins;
use super::{ImportError, MAX_DEVICES, Source};
use crate::tape::Layer;

/// How much of all files together is looked at.
const SURVEY_BYTES: usize = 8 << 20;
/// How much of one file is looked at.
const FILE_BYTES: usize = 1 << 20;
/// How much of each file is looked at, however many there are.
const MIN_FILE_BYTES: usize = 16 << 10;

const BUFFER_BYTES: usize = 64 << 10;
/// How much later the next record of a file may be.
const FAR_NS: u64 = 3600 * 1_000_000_000;

/// A file whose beginning was read.
pub(super) type Rewound<R> = Chain<Cursor<Vec<u8>>, R>;

/// The files, and what their beginnings tell.
pub(super) struct Surveyed<R> {
    pub sources: Vec<Source<Rewound<R>>>,
    pub survey: Survey,
}

/// What was seen of a device.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub queued: u64,
    pub issued: u64,
    /// Name of the files that it was seen in, if they are of one set.
    pub set: Option<String>,
}

impl Seen {
    /// The layer at which its requests can be seen.
    pub fn layer(&self) -> Layer {
        if self.issued == 0 && self.queued > 0 {
            Layer::Queue
        } else {
            Layer::Device
        }
    }
}

/// What the beginnings tell.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// Time of the earliest record.
    pub start_ns: u64,
    pub version_7: bool,
    pub devices: BTreeMap<DeviceNumber, Seen>,
    pub origins: Origins,
    /// Whether any record has a number.
    pub numbered: bool,
}

/// Reads the beginnings of all files; gives the files back as if they had not been read.
pub(super) fn survey<R: Read>(sources: Vec<Source<R>>) -> Result<Surveyed<R>, ImportError> {
    let limit = (SURVEY_BYTES / sources.len().max(1)).clamp(MIN_FILE_BYTES, FILE_BYTES);
    let files = sources.len();
    let mut survey = Survey {
        start_ns: u64::MAX,
        ..Survey::default()
    };
    let mut rewound = Vec::with_capacity(files);
    for mut source in sources {
        let beginning = survey.look_at(&mut source, limit).map_err(|error| {
            let file = source.name.clone();
            ImportError::Read { file, error }
        })?;
        rewound.push(Source {
            name: source.name,
            reader: Cursor::new(beginning).chain(source.reader),
        });
    }
    if survey.start_ns == u64::MAX {
        return Err(ImportError::Empty { files });
    }
    Ok(Surveyed {
        sources: rewound,
        survey,
    })
}

impl Survey {
    /// Reads the beginning of a file, and returns it.
    fn look_at<R: Read>(&mut self, source: &mut Source<R>, limit: usize) -> Result<Vec<u8>, Error> {
        let mut beginning = Vec::with_capacity(limit);
        let mut part = source.reader.by_ref().take(limit as u64);
        if let Err(source) = part.read_to_end(&mut beginning) {
            let offset = beginning.len() as u64;
            return Err(Error::Read { offset, source });
        }
        let mut reader = Reader::with_buffer(beginning.as_slice(), BUFFER_BYTES);
        let set = source.set();
        let mut before_ns = None;
        while let Some(record) = reader.next_record()? {
            self.begins_at(before_ns.replace(record.time_ns), record.time_ns);
            self.take(&record, set);
        }
        let version = reader.format().map(|format| format.version);
        self.version_7 |= version == Some(Version::V7);
        Ok(beginning)
    }

    /// Takes two times that follow each other in a file. A time far before the one behind it is
    /// damaged, unless it is the file's first.
    fn begins_at(&mut self, before_ns: Option<u64>, time_ns: u64) {
        match before_ns {
            None => self.start_ns = self.start_ns.min(time_ns),
            Some(before_ns) if before_ns.saturating_add(FAR_NS) < time_ns => {}
            Some(before_ns) => self.start_ns = self.start_ns.min(before_ns),
        }
    }

    fn take(&mut self, record: &Record<'_>, set: Option<&str>) {
        self.numbered |= record.sequence != 0;
        let kind = record.action.kind();
        if let Payload::Remap { from, to, .. } = record.payload() {
            self.origins.add(from, to);
        }
        if !matches!(kind, Kind::Queue | Kind::Issue | Kind::Complete) {
            return;
        }
        let is_new = !self.devices.contains_key(&record.device);
        if is_new && self.devices.len() >= MAX_DEVICES {
            return;
        }
        let seen = self.devices.entry(record.device).or_default();
        seen.queued += u64::from(kind == Kind::Queue);
        seen.issued += u64::from(kind == Kind::Issue);
        if is_new {
            seen.set = set.map(str::to_owned);
        } else if seen.set.as_deref() != set {
            seen.set = None;
        }
    }
}
