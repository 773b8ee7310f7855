//! Where the requests of a replay come from.

use std::error::Error;

use iotape_formats::tape::{Device, Summary};
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
}

/// The tape cannot be read on.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct SourceError(pub Box<dyn Error + Send + Sync>);

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
}
