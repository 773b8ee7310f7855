//! Where the requests of a replay come from.

use std::error::Error;
use std::fmt;
use std::io::{Read, Seek};

use iotape_formats::tape::{Block, Columns, Device, Summary, TapeError, TapeReader};
use iotape_formats::{DeviceIndex, Flags, Op};
use thiserror::Error;

/// What a replay needs of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// When it was recorded.
    pub time_ns: u64,
    /// On which device.
    pub device: DeviceIndex,
    /// What it does.
    pub op: Op,
    /// How it asks to be treated.
    pub flags: Flags,
    /// First byte on its device.
    pub offset_bytes: u64,
    /// How long.
    pub length_bytes: u64,
    /// How long it took when it was recorded.
    pub latency_ns: Option<u64>,
    /// Who asked, where [`Source::select_submitters`] was told to look.
    pub pid: Option<u32>,
}

/// The tape cannot be read on.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct SourceError(pub Box<dyn Error + Send + Sync>);

impl From<TapeError> for SourceError {
    fn from(error: TapeError) -> Self {
        SourceError(Box::new(error))
    }
}

/// A tape as the replay sees it: known totals, and blocks of rows that can be read any number of
/// times. Read on a thread of its own.
pub trait Source: Send {
    /// Totals of all requests.
    fn summary(&self) -> &Summary;

    /// The recorded devices.
    fn devices(&self) -> &[Device];

    /// Whether the recording was ended cleanly.
    fn finished(&self) -> bool;

    /// Damage met so far, in words; `None` when there was none.
    fn damage(&self) -> Option<String>;

    /// Reads the next block and returns how many rows it has; `None` at the end.
    ///
    /// # Errors
    /// When nothing more can be read.
    fn next_block(&mut self) -> Result<Option<usize>, SourceError>;

    /// A row of the block read last, `index` counting from 0.
    fn row(&self, index: usize) -> Row;

    /// Goes back to the first block.
    fn rewind(&mut self);

    /// Whether rows are to say who asked.
    fn select_submitters(&mut self, select: bool);
}

/// What a replay needs of a tape.
fn columns(submitters: bool) -> Columns {
    let always = Columns::CORE | Columns::LATENCY;
    if submitters {
        always | Columns::PROCESS
    } else {
        always
    }
}

/// A tape file, of which only the columns that a replay needs are decoded.
pub struct TapeSource<R> {
    reader: TapeReader<R>,
    block: Block,
    submitters: bool,
}

impl<R: Read + Seek> TapeSource<R> {
    /// Reads a tape from its first block.
    pub fn new(mut reader: TapeReader<R>) -> Self {
        reader.select(columns(false));
        reader.rewind();
        TapeSource {
            reader,
            block: Block::new(),
            submitters: false,
        }
    }

    fn pid(&self, row: usize) -> Option<u32> {
        let entry = usize::try_from(self.block.processes().get(row)?).ok()?;
        Some(self.block.process_table().get(entry)?.pid)
    }

    /// The reader, for what it says about the tape.
    pub fn reader(&self) -> &TapeReader<R> {
        &self.reader
    }
}

impl<R> fmt::Debug for TapeSource<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TapeSource").finish_non_exhaustive()
    }
}

impl<R: Read + Seek + Send> Source for TapeSource<R> {
    fn summary(&self) -> &Summary {
        self.reader.summary()
    }

    fn devices(&self) -> &[Device] {
        self.reader.devices()
    }

    fn finished(&self) -> bool {
        self.reader.has_footer()
    }

    fn damage(&self) -> Option<String> {
        let damage = self.reader.damage();
        (!damage.is_clean()).then(|| {
            format!(
                "the tape is damaged: {} records unusable, {} bytes skipped, {} requests lost",
                damage.bad_records, damage.skipped_bytes, damage.lost_requests
            )
        })
    }

    fn next_block(&mut self) -> Result<Option<usize>, SourceError> {
        Ok(self
            .reader
            .next_block(&mut self.block)?
            .then(|| self.block.len()))
    }

    #[inline]
    fn row(&self, index: usize) -> Row {
        let block = &self.block;
        Row {
            time_ns: block.times_ns()[index],
            device: block.devices()[index],
            op: block.ops()[index],
            flags: block.flags()[index],
            offset_bytes: block.offsets_bytes()[index],
            length_bytes: block.lengths_bytes()[index],
            latency_ns: block.latencies_ns().get(index),
            pid: self.submitters.then(|| self.pid(index)).flatten(),
        }
    }

    fn rewind(&mut self) {
        self.reader.rewind();
    }

    fn select_submitters(&mut self, select: bool) {
        self.reader.select(columns(select));
        self.submitters = select;
    }
}

/// Requests in memory, for tests.
#[cfg(test)]
pub mod testing {
    use iotape_formats::tape::{DeviceExtent, OpTotals};

    use super::*;

    /// A source of rows in memory, in blocks of [`Rows::BLOCK`].
    #[derive(Clone, Debug)]
    pub struct Rows {
        rows: Vec<Row>,
        summary: Summary,
        devices: Vec<Device>,
        start: usize,
        next: usize,
        /// Fails at this row.
        pub broken_at: Option<usize>,
        /// What [`Source::damage`] says.
        pub damage: Option<String>,
        /// What [`Source::finished`] says.
        pub finished: bool,
    }

    impl Rows {
        const BLOCK: usize = 1_000;

        pub fn new(rows: Vec<Row>) -> Self {
            let mut summary = Summary {
                requests: rows.len() as u64,
                ..Summary::default()
            };
            for row in &rows {
                let totals: &mut OpTotals = &mut summary.by_op[usize::from(row.op.number())];
                totals.requests += 1;
                totals.bytes += row.length_bytes;
                let index = usize::from(row.device.0);
                while summary.devices.len() <= index {
                    let device = DeviceIndex(summary.devices.len() as u16);
                    summary.devices.push(DeviceExtent {
                        device,
                        min_offset_bytes: u64::MAX,
                        ..DeviceExtent::default()
                    });
                }
                let extent = &mut summary.devices[index];
                extent.requests += 1;
                extent.min_offset_bytes = extent.min_offset_bytes.min(row.offset_bytes);
                extent.end_bytes = extent.end_bytes.max(row.offset_bytes + row.length_bytes);
                if row.op.transfers_data() {
                    extent.longest_transfer_bytes =
                        extent.longest_transfer_bytes.max(row.length_bytes);
                }
                extent.alignment_bits |= row.offset_bytes | row.length_bytes;
            }
            let devices = summary.devices.iter().map(|extent| Device {
                index: extent.device,
                name: format!("sd{}", extent.device.0),
                ..Device::default()
            });
            let devices = devices.collect();
            Rows {
                rows,
                summary,
                devices,
                start: 0,
                next: 0,
                broken_at: None,
                damage: None,
                finished: true,
            }
        }

        pub fn summary_mut(&mut self) -> &mut Summary {
            &mut self.summary
        }
    }

    impl Source for Rows {
        fn summary(&self) -> &Summary {
            &self.summary
        }

        fn devices(&self) -> &[Device] {
            &self.devices
        }

        fn finished(&self) -> bool {
            self.finished
        }

        fn damage(&self) -> Option<String> {
            self.damage.clone()
        }

        fn next_block(&mut self) -> Result<Option<usize>, SourceError> {
            self.start = self.next;
            self.next = self.rows.len().min(self.start + Self::BLOCK);
            if self.broken_at.is_some_and(|at| at < self.next) {
                return Err(SourceError("input/output error at byte 12345".into()));
            }
            Ok((self.start < self.next).then_some(self.next - self.start))
        }

        fn row(&self, index: usize) -> Row {
            self.rows[self.start + index]
        }

        fn rewind(&mut self) {
            (self.start, self.next) = (0, 0);
        }

        fn select_submitters(&mut self, _select: bool) {}
    }
}
