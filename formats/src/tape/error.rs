//! What can go wrong with a tape.

use std::io;

use thiserror::Error;

use super::wire::{HEAD_MAGIC, MAX_NAME_BYTES};

/// Why a tape cannot be written or opened.
///
/// Damage inside a tape is not an error: it is skipped and counted
/// ([`Damage`](super::Damage)).
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TapeError {
    /// The file or pipe failed.
    #[error("tape at byte {offset}: {error}")]
    Io {
        /// Position in the tape, in bytes.
        offset: u64,
        /// What the system said.
        #[source]
        error: io::Error,
    },
    /// The compressor failed, for want of memory.
    #[error("compressing a block: {error}")]
    Compress {
        /// What it said.
        #[source]
        error: io::Error,
    },
    /// The sink failed earlier: what was written before stays readable.
    #[error("the tape was given up at byte {offset}, where writing failed")]
    GivenUp {
        /// Position of the failure, in bytes.
        offset: u64,
    },
    /// Nothing in the file is a record of a tape.
    #[error(
        "not a tape: {bytes} bytes without a record; a tape starts with {HEAD_MAGIC:02x?}, found {found:02x?}"
    )]
    NotATape {
        /// Bytes looked at.
        bytes: u64,
        /// The first bytes, at most 8.
        found: Vec<u8>,
    },
    /// A later program wrote a record that this one must understand.
    #[error(
        "{what} at byte {offset} has version {found}, this program knows up to {known}: use a newer iotape"
    )]
    TooNew {
        /// Which record.
        what: &'static str,
        /// Where it is.
        offset: u64,
        /// Its version.
        found: u16,
        /// The latest known version.
        known: u16,
    },
    /// The request's range ends beyond 2^64 bytes: no such range exists.
    #[error(
        "request at {time_ns} ns: offset {offset_bytes} + length {length_bytes} exceeds 2^64 bytes"
    )]
    RangeOverflow {
        /// Its time.
        time_ns: u64,
        /// Its offset.
        offset_bytes: u64,
        /// Its length.
        length_bytes: u64,
    },
    /// The request names a device that the tape does not list.
    #[error("request at {time_ns} ns: device {device} is not among the tape's {devices} devices")]
    UnknownDevice {
        /// Its time.
        time_ns: u64,
        /// Its device.
        device: u16,
        /// How many devices the tape lists.
        devices: usize,
    },
    /// The name of the request's process is too long to store.
    #[error(
        "request at {time_ns} ns: process name of {bytes} bytes, at most {MAX_NAME_BYTES} can be stored"
    )]
    NameTooLong {
        /// Its time.
        time_ns: u64,
        /// Length of the name.
        bytes: usize,
    },
    /// The devices' indexes are not 0, 1, 2, …
    #[error(
        "device {name:?} has index {found}, expected {expected}: indexes count from 0 in order"
    )]
    DeviceOrder {
        /// Its name.
        name: String,
        /// Its index.
        found: u16,
        /// Its place in the list.
        expected: usize,
    },
    /// A metadata record cannot be encoded.
    #[error("{what} cannot be stored: {reason}")]
    NotStorable {
        /// Which record.
        what: &'static str,
        /// What the encoder said.
        reason: String,
    },
    /// A metadata record exceeds what readers accept.
    #[error("{what} of {bytes} bytes: at most {max} bytes can be stored")]
    MetadataTooLong {
        /// Which record.
        what: &'static str,
        /// Its size.
        bytes: u64,
        /// The limit.
        max: u64,
    },
}

/// Why the content of a record with a valid checksum cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Corrupt {
    /// Too few bytes.
    #[error("{what} of only {bytes} bytes")]
    Short {
        /// What was read.
        what: &'static str,
        /// Bytes that are there.
        bytes: usize,
    },
    /// A version that this program does not know.
    #[error("{what} version {found}, known up to {known}")]
    Version {
        /// What was read.
        what: &'static str,
        /// Its version.
        found: u16,
        /// The latest known version.
        known: u16,
    },
    /// The fields do not decode.
    #[error("{what}: {reason}")]
    Fields {
        /// What was read.
        what: &'static str,
        /// What the decoder said.
        reason: String,
    },
    /// A number without a meaning.
    #[error("{what} number {number} is not assigned")]
    Number {
        /// What it numbers.
        what: &'static str,
        /// The number.
        number: u64,
    },
    /// A count or size beyond what can be there.
    #[error("{what}: {found}, at most {max} possible")]
    Excess {
        /// What it counts.
        what: &'static str,
        /// The value.
        found: u64,
        /// Its limit.
        max: u64,
    },
    /// A footer at another distance from the start of its tape than it says.
    #[error(
        "the footer stands {found} bytes into its tape and says {expected}: records before it are missing or too many"
    )]
    Displaced {
        /// Where it stands, in bytes from the head magic.
        found: u64,
        /// Where it says that it stands.
        expected: u64,
    },
    /// Two parts do not agree.
    #[error("{what}")]
    Inconsistent {
        /// Which, in words.
        what: &'static str,
    },
    /// The checksum of a block's header is wrong though the record's is right.
    #[error("block header checksum {stored:#010x}, computed {computed:#010x}")]
    BlockHeaderChecksum {
        /// As stored.
        stored: u32,
        /// As computed.
        computed: u32,
    },
    /// A stream of another length than its rows need.
    #[error("{what} of {found} bytes, expected {expected}")]
    Length {
        /// What was read.
        what: &'static str,
        /// Its length.
        found: usize,
        /// What the rows need.
        expected: usize,
    },
    /// A stream does not decompress.
    #[error("a stream does not decompress: {reason}")]
    Codec {
        /// What the codec said.
        reason: String,
    },
}

impl Corrupt {
    /// An unassigned number.
    pub(super) fn number(what: &'static str, number: impl Into<u64>) -> Corrupt {
        Corrupt::Number {
            what,
            number: number.into(),
        }
    }
}
