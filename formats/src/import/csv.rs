//! The project's CSV into a tape.

use std::io::{Read, Write};

use thiserror::Error;

use crate::csv::{CsvError, CsvReader};
use crate::request::DeviceIndex;
use crate::sort::TimeSorter;
use crate::tape::{Counters, Device, Header, Layer, Level, Name, Summary, TapeError, TapeWriter};

/// How far apart requests may stand in the file and still be put in order.
const WINDOW_NS: u64 = 1_000_000_000;
/// Most requests that wait for their order.
const WINDOW_REQUESTS: usize = 1 << 18;
/// Requests between two calls of the progress callback.
const PROGRESS_EVERY: u64 = 1 << 16;

/// How to import.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Program and version for the tape's header, such as `iotape 0.1.0`.
    pub tool: String,
    /// Where the requests were seen, which a CSV does not say.
    pub layer: Layer,
    /// How hard to try to make the tape small.
    pub level: Level,
}

/// Why a CSV could not be imported.
#[derive(Debug, Error)]
pub enum ImportError {
    /// The CSV is at fault.
    #[error(transparent)]
    Csv(#[from] CsvError),
    /// The tape could not be written.
    #[error(transparent)]
    Tape(#[from] TapeError),
}

/// Writes the tape of a CSV, in bounded memory. `progress` is told now and then how many requests
/// were read.
///
/// # Errors
///
/// At the first row that is no request, or when the sink fails.
pub fn import<R: Read, W: Write>(
    source: R,
    options: &Options,
    sink: W,
    progress: &mut dyn FnMut(u64),
) -> Result<(W, Summary), ImportError> {
    let mut rows = CsvReader::new(source)?;
    let mut writer = TapeWriter::create(sink, &header(options), &[], options.level)?;
    let mut sorter = TimeSorter::new(WINDOW_NS, WINDOW_REQUESTS);
    let (mut devices, mut read) = (0, 0u64);
    while let Some(request) = rows.next_request()? {
        for name in &rows.devices()[devices..] {
            writer.device(&device(devices, name, options.layer))?;
            devices += 1;
        }
        for Name { kind, id, name } in rows.take_names() {
            writer.name(kind, id, &name)?;
        }
        sorter.push(request);
        while let Some(request) = sorter.pop() {
            writer.push(&request)?;
        }
        read += 1;
        if read.is_multiple_of(PROGRESS_EVERY) {
            progress(read);
        }
    }
    while let Some(request) = sorter.leave() {
        writer.push(&request)?;
    }
    writer.count(&Counters {
        late: sorter.late(),
        ..Counters::default()
    });
    Ok(writer.finish()?)
}

fn header(options: &Options) -> Header {
    Header {
        tool: options.tool.clone(),
        backend: "import:csv".to_owned(),
        notes: vec![format!(
            "imported from CSV, which does not say at which layer its requests were seen, nor its \
             clock and the devices' sizes; the layer was given as {}",
            options.layer
        )],
        ..Header::default()
    }
}

fn device(index: usize, name: &str, layer: Layer) -> Device {
    Device {
        // The reader refuses more devices than fit an index.
        index: DeviceIndex(index as u16),
        name: name.to_owned(),
        layer,
        ..Device::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tape::{Block, TapeReader};
    use std::io::Cursor;

    #[test]
    fn rows_are_put_in_order_and_their_devices_named() {
        let text = "time_ns,device,op,offset_bytes,length_bytes\n\
                    30,b,read,0,512\n10,a,write,0,512\n5000000000,a,read,0,512\n20,b,read,0,512\n";
        let (bytes, summary) = import(
            text.as_bytes(),
            &Options::default(),
            Vec::new(),
            &mut |_| (),
        )
        .unwrap();
        assert_eq!((summary.requests, summary.counters.late), (4, 1));
        let mut reader = TapeReader::open(Cursor::new(bytes)).unwrap();
        let names: Vec<&str> = reader
            .devices()
            .iter()
            .map(|device| &*device.name)
            .collect();
        assert_eq!(names, ["b", "a"]);
        let mut block = Block::new();
        assert!(reader.next_block(&mut block).unwrap());
        assert_eq!(block.times_ns(), [10, 30, 20, 5_000_000_000]);
    }
}
