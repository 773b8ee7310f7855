//! The stored form of metadata: versioned structs in the bincode encoding.

mod convert;
mod forms;
#[cfg(test)]
mod tests;

use wincode::config::{Configuration, PREALLOCATION_SIZE_LIMIT_DISABLED};
use wincode::{SchemaRead, SchemaWrite};

pub use forms::{BlockHeaderV1, ColumnV1};

use super::error::{Corrupt, TapeError};
use super::model::{Anchor, Loss, Summary};
use super::wire::{FIELDS_AT, MAX_METADATA_BYTES, VERSION_AT, read_u16};

/// Version of every struct that ends in `V1`.
const V1: u16 = 1;
/// Version of every struct that ends in `V2`.
const V2: u16 = 2;

/// A list may ask for this much memory before its elements have been seen.
const PREALLOCATION_BYTES: usize = MAX_METADATA_BYTES as usize;
const _: () = assert!(PREALLOCATION_BYTES < PREALLOCATION_SIZE_LIMIT_DISABLED);

/// Fixed-width little-endian integers, `u64` lengths, one byte for the presence of an optional.
type Encoding = Configuration<true, PREALLOCATION_BYTES>;

/// Some neighbouring blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// Where the first block's record starts, from the start of the tape.
    pub offset: u64,
    /// How many blocks.
    pub blocks: u32,
    /// How many requests they hold.
    pub requests: u64,
    /// Earliest request.
    pub first_ns: u64,
    /// Latest request.
    pub last_ns: u64,
}

/// What the footer holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Footer {
    /// From the head magic to the footer's record.
    pub tape_bytes: u64,
    /// Totals of the tape.
    pub summary: Summary,
    /// Moments on both clocks.
    pub anchors: Vec<Anchor>,
    /// Losses, neighbours merged when there are many.
    pub losses: Vec<Loss>,
    /// How many block records the tape has.
    pub blocks: u64,
    /// Where they are.
    pub index: Vec<IndexEntry>,
}

/// A metadata value with a stored form.
///
/// Its first version is written wherever that holds all that the value has, so that programs of
/// before a later version can read as much as ever.
pub trait Stored: Sized {
    /// The stored form of version 1.
    type Form: for<'de> SchemaRead<'de, Encoding, Dst = Self::Form>
        + SchemaWrite<Encoding, Src = Self::Form>;
    /// Name of the record, for messages.
    const NAME: &'static str;
    /// The latest version.
    const LATEST: u16 = V1;

    /// The stored form of the value, in version 1.
    fn to_form(&self) -> Self::Form;
    /// The value of a stored form, if its numbers are assigned.
    fn from_form(form: Self::Form) -> Result<Self, Corrupt>;
    /// Appends version and fields, of at most `max` bytes, if the value has more than version 1
    /// holds; `false` otherwise.
    fn put_later(&self, _max: u64, _out: &mut Vec<u8>) -> Result<bool, TapeError> {
        Ok(false)
    }
    /// The value in the fields of a version above 1, if there is such a version.
    fn get_later(_version: u16, _fields: &[u8]) -> Option<Result<Self, Corrupt>> {
        None
    }
}

/// Appends the version and the fields of a value.
pub fn put<T: Stored>(value: &T, out: &mut Vec<u8>) -> Result<(), TapeError> {
    let max = MAX_METADATA_BYTES - FIELDS_AT as u64;
    if value.put_later(max, out)? {
        return Ok(());
    }
    out.extend_from_slice(&V1.to_le_bytes());
    put_fields(T::NAME, &value.to_form(), max, out)
}

/// The value in a payload.
pub fn get<T: Stored>(payload: &[u8]) -> Result<T, Corrupt> {
    let version = read_u16(payload, VERSION_AT).ok_or(Corrupt::Short {
        what: T::NAME,
        bytes: payload.len(),
    })?;
    let stored = &payload[FIELDS_AT..];
    if version == V1 {
        return T::from_form(fields(T::NAME, stored)?);
    }
    let unknown = Corrupt::Version {
        what: T::NAME,
        found: version,
        known: T::LATEST,
    };
    T::get_later(version, stored).unwrap_or(Err(unknown))
}

/// Appends a struct without a version, of at most `max` bytes.
pub fn put_fields<F>(
    what: &'static str,
    form: &F,
    max: u64,
    out: &mut Vec<u8>,
) -> Result<(), TapeError>
where
    F: SchemaWrite<Encoding, Src = F>,
{
    let fields = wincode::config::serialize(form, Encoding::new()).map_err(|error| {
        TapeError::NotStorable {
            what,
            reason: error.to_string(),
        }
    })?;
    let bytes = fields.len() as u64;
    if bytes > max {
        return Err(TapeError::MetadataTooLong { what, bytes, max });
    }
    out.extend_from_slice(&fields);
    Ok(())
}

/// A struct without a version; every byte must belong to it.
pub fn fields<F>(what: &'static str, bytes: &[u8]) -> Result<F, Corrupt>
where
    F: for<'de> SchemaRead<'de, Encoding, Dst = F>,
{
    wincode::config::deserialize_exact(bytes, Encoding::new()).map_err(|error| Corrupt::Fields {
        what,
        reason: error.to_string(),
    })
}
