//! The stored form of metadata: versioned structs in the bincode encoding.
//!
//! A struct here is never edited, since tapes hold its bytes: a change is a new struct with the
//! next version. The tests keep the bytes of every version.

use wincode::config::{Configuration, PREALLOCATION_SIZE_LIMIT_DISABLED};
use wincode::{SchemaRead, SchemaWrite};

use super::error::{Corrupt, TapeError};
use super::id::TapeId;
use super::model::{
    Anchor, Clock, Counters, Device, DeviceExtent, ErrorCodes, Header, Layer, Loss, LossReason,
    OpTotals, Summary,
};
use super::wire::{FIELDS_AT, MAX_METADATA_BYTES, VERSION_AT, read_u16};
use crate::request::{DeviceIndex, Op};

/// Version of every struct that ends in `V1`.
const V1: u16 = 1;

/// A list may ask for this much memory before its elements have been seen.
const PREALLOCATION_BYTES: usize = MAX_METADATA_BYTES as usize;
const _: () = assert!(PREALLOCATION_BYTES < PREALLOCATION_SIZE_LIMIT_DISABLED);

/// Fixed-width little-endian integers, `u64` lengths, one byte for the presence of an optional.
type Encoding = Configuration<true, PREALLOCATION_BYTES>;

/// [`Header`] as stored.
#[derive(Clone, Debug, PartialEq, SchemaRead, SchemaWrite)]
pub struct HeaderV1 {
    tool: String,
    host: Option<String>,
    os: Option<String>,
    clock_source: String,
    clock_resolution_ns: u32,
    backend: String,
    options: Vec<String>,
    error_codes: u8,
    notes: Vec<String>,
}

/// [`Device`] as stored.
#[derive(Clone, Debug, PartialEq, SchemaRead, SchemaWrite)]
pub struct DeviceV1 {
    index: u16,
    name: String,
    layer: u8,
    size_bytes: Option<u64>,
    logical_sector_bytes: Option<u32>,
    physical_sector_bytes: Option<u32>,
    model: Option<String>,
    rotational: Option<bool>,
    parents: Vec<String>,
}

/// [`Anchor`] as stored.
#[derive(Clone, Debug, PartialEq, SchemaRead, SchemaWrite)]
pub struct AnchorV1 {
    time_ns: u64,
    wall_ns: i64,
}

/// [`Loss`] as stored.
#[derive(Clone, Debug, PartialEq, SchemaRead, SchemaWrite)]
pub struct LossV1 {
    from_ns: u64,
    to_ns: u64,
    events: u64,
    reason: u8,
}

/// [`OpTotals`] of one operation as stored.
#[derive(Clone, Debug, PartialEq, SchemaRead, SchemaWrite)]
pub struct OpTotalsV1 {
    op: u8,
    requests: u64,
    bytes: u64,
}

/// [`DeviceExtent`] as stored.
#[derive(Clone, Debug, PartialEq, SchemaRead, SchemaWrite)]
pub struct DeviceExtentV1 {
    device: u16,
    requests: u64,
    min_offset_bytes: u64,
    end_bytes: u64,
    longest_transfer_bytes: u64,
    alignment_bits: u64,
}

/// [`Counters`] as stored.
#[derive(Clone, Debug, PartialEq, SchemaRead, SchemaWrite)]
pub struct CountersV1 {
    lost_events: u64,
    unpaired_issues: u64,
    unpaired_completions: u64,
    ambiguous: u64,
    late: u64,
    merges: u64,
    splits: u64,
    requeues: u64,
    coalesced_flushes: u64,
    undecodable: u64,
}

/// [`Summary`] as stored: operations and devices without requests are left out, and so are
/// counters that are all zero.
#[derive(Clone, Debug, PartialEq, SchemaRead, SchemaWrite)]
pub struct SummaryV1 {
    requests: u64,
    first_ns: u64,
    last_ns: u64,
    ops: Vec<OpTotalsV1>,
    devices: Vec<DeviceExtentV1>,
    counters: Option<CountersV1>,
    id: u128,
}

/// Where a column of a block stands.
#[derive(Clone, Debug, PartialEq, SchemaRead, SchemaWrite)]
pub struct ColumnV1 {
    /// Number of the column.
    pub column: u8,
    /// Size of its stored form.
    pub bytes: u32,
}

/// A block's header as stored.
#[derive(Clone, Debug, PartialEq, SchemaRead, SchemaWrite)]
pub struct BlockHeaderV1 {
    /// How many requests the tape has before this block: a gap tells how many are lost.
    pub requests_before: u64,
    /// Totals of the block's requests, and what was counted since the block before.
    pub summary: SummaryV1,
    /// The columns, in the order of their bodies.
    pub columns: Vec<ColumnV1>,
}

/// One or more neighbouring blocks in the footer's index.
#[derive(Clone, Debug, PartialEq, SchemaRead, SchemaWrite)]
pub struct IndexEntryV1 {
    offset: u64,
    blocks: u32,
    requests: u64,
    first_ns: u64,
    last_ns: u64,
}

/// The footer as stored.
#[derive(Clone, Debug, PartialEq, SchemaRead, SchemaWrite)]
pub struct FooterV1 {
    tape_bytes: u64,
    summary: SummaryV1,
    anchors: Vec<AnchorV1>,
    losses: Vec<LossV1>,
    blocks: u64,
    index: Vec<IndexEntryV1>,
}

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
pub trait Stored: Sized {
    /// The stored form of this version of the program.
    type Form: for<'de> SchemaRead<'de, Encoding, Dst = Self::Form>
        + SchemaWrite<Encoding, Src = Self::Form>;
    /// Name of the record, for messages.
    const NAME: &'static str;

    /// The stored form of the value.
    fn to_form(&self) -> Self::Form;
    /// The value of a stored form, if its numbers are assigned.
    fn from_form(form: Self::Form) -> Result<Self, Corrupt>;
}

/// Appends the version and the fields of a value.
pub fn put<T: Stored>(value: &T, out: &mut Vec<u8>) -> Result<(), TapeError> {
    let fields = wincode::config::serialize(&value.to_form(), Encoding::new())
        .map_err(|_| too_long::<T>(0))?;
    let bytes = (fields.len() + FIELDS_AT) as u64;
    if bytes > MAX_METADATA_BYTES {
        return Err(too_long::<T>(bytes));
    }
    out.extend_from_slice(&V1.to_le_bytes());
    out.extend_from_slice(&fields);
    Ok(())
}

/// The value in a payload.
pub fn get<T: Stored>(payload: &[u8]) -> Result<T, Corrupt> {
    let version = read_u16(payload, VERSION_AT).ok_or(Corrupt::Short {
        what: T::NAME,
        bytes: payload.len(),
    })?;
    if version != V1 {
        return Err(Corrupt::Version {
            what: T::NAME,
            found: version,
            known: V1,
        });
    }
    T::from_form(fields(T::NAME, &payload[FIELDS_AT..])?)
}

/// Appends a struct without a version.
pub fn put_fields<F: SchemaWrite<Encoding, Src = F>>(
    form: &F,
    out: &mut Vec<u8>,
) -> Result<(), TapeError> {
    let fields = wincode::config::serialize(form, Encoding::new()).map_err(|_| {
        TapeError::MetadataTooLong {
            what: "block header",
            bytes: 0,
            max: MAX_METADATA_BYTES,
        }
    })?;
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

fn too_long<T: Stored>(bytes: u64) -> TapeError {
    TapeError::MetadataTooLong {
        what: T::NAME,
        bytes,
        max: MAX_METADATA_BYTES,
    }
}

impl Stored for Header {
    type Form = HeaderV1;
    const NAME: &'static str = "header";

    fn to_form(&self) -> HeaderV1 {
        HeaderV1 {
            tool: self.tool.clone(),
            host: self.host.clone(),
            os: self.os.clone(),
            clock_source: self.clock.source.clone(),
            clock_resolution_ns: self.clock.resolution_ns,
            backend: self.backend.clone(),
            options: self.options.clone(),
            error_codes: match self.error_codes {
                ErrorCodes::Errno => 0,
                ErrorCodes::NtStatus => 1,
            },
            notes: self.notes.clone(),
        }
    }

    fn from_form(form: HeaderV1) -> Result<Header, Corrupt> {
        Ok(Header {
            tool: form.tool,
            host: form.host,
            os: form.os,
            clock: Clock {
                source: form.clock_source,
                resolution_ns: form.clock_resolution_ns,
            },
            backend: form.backend,
            options: form.options,
            error_codes: match form.error_codes {
                0 => ErrorCodes::Errno,
                1 => ErrorCodes::NtStatus,
                number => return Err(Corrupt::number("error code set", number)),
            },
            notes: form.notes,
        })
    }
}

impl Stored for Device {
    type Form = DeviceV1;
    const NAME: &'static str = "device";

    fn to_form(&self) -> DeviceV1 {
        DeviceV1 {
            index: self.index.0,
            name: self.name.clone(),
            layer: match self.layer {
                Layer::Queue => 0,
                Layer::Device => 1,
            },
            size_bytes: self.size_bytes,
            logical_sector_bytes: self.logical_sector_bytes,
            physical_sector_bytes: self.physical_sector_bytes,
            model: self.model.clone(),
            rotational: self.rotational,
            parents: self.parents.clone(),
        }
    }

    fn from_form(form: DeviceV1) -> Result<Device, Corrupt> {
        Ok(Device {
            index: DeviceIndex(form.index),
            name: form.name,
            layer: match form.layer {
                0 => Layer::Queue,
                1 => Layer::Device,
                number => return Err(Corrupt::number("layer", number)),
            },
            size_bytes: form.size_bytes,
            logical_sector_bytes: form.logical_sector_bytes,
            physical_sector_bytes: form.physical_sector_bytes,
            model: form.model,
            rotational: form.rotational,
            parents: form.parents,
        })
    }
}

impl Stored for Anchor {
    type Form = AnchorV1;
    const NAME: &'static str = "anchor";

    fn to_form(&self) -> AnchorV1 {
        AnchorV1 {
            time_ns: self.time_ns,
            wall_ns: self.wall_ns,
        }
    }

    fn from_form(form: AnchorV1) -> Result<Anchor, Corrupt> {
        Ok(Anchor {
            time_ns: form.time_ns,
            wall_ns: form.wall_ns,
        })
    }
}

impl Stored for Loss {
    type Form = LossV1;
    const NAME: &'static str = "loss";

    fn to_form(&self) -> LossV1 {
        LossV1 {
            from_ns: self.from_ns,
            to_ns: self.to_ns,
            events: self.events,
            reason: match self.reason {
                LossReason::Unknown => 0,
                LossReason::RingFull => 1,
                LossReason::Throttled => 2,
                LossReason::SequenceGap => 3,
            },
        }
    }

    fn from_form(form: LossV1) -> Result<Loss, Corrupt> {
        Ok(Loss {
            from_ns: form.from_ns,
            to_ns: form.to_ns,
            events: form.events,
            reason: match form.reason {
                1 => LossReason::RingFull,
                2 => LossReason::Throttled,
                3 => LossReason::SequenceGap,
                // A reason of a later version: the count matters more.
                _ => LossReason::Unknown,
            },
        })
    }
}

impl Stored for Counters {
    type Form = CountersV1;
    const NAME: &'static str = "counters";

    fn to_form(&self) -> CountersV1 {
        CountersV1 {
            lost_events: self.lost_events,
            unpaired_issues: self.unpaired_issues,
            unpaired_completions: self.unpaired_completions,
            ambiguous: self.ambiguous,
            late: self.late,
            merges: self.merges,
            splits: self.splits,
            requeues: self.requeues,
            coalesced_flushes: self.coalesced_flushes,
            undecodable: self.undecodable,
        }
    }

    fn from_form(form: CountersV1) -> Result<Counters, Corrupt> {
        Ok(Counters {
            lost_events: form.lost_events,
            unpaired_issues: form.unpaired_issues,
            unpaired_completions: form.unpaired_completions,
            ambiguous: form.ambiguous,
            late: form.late,
            merges: form.merges,
            splits: form.splits,
            requeues: form.requeues,
            coalesced_flushes: form.coalesced_flushes,
            undecodable: form.undecodable,
        })
    }
}

impl Stored for Summary {
    type Form = SummaryV1;
    const NAME: &'static str = "summary";

    fn to_form(&self) -> SummaryV1 {
        let totals = |op: &Op| {
            let OpTotals { requests, bytes } = self.by_op[usize::from(op.number())];
            (requests > 0).then_some(OpTotalsV1 {
                op: op.number(),
                requests,
                bytes,
            })
        };
        SummaryV1 {
            requests: self.requests,
            first_ns: self.first_ns,
            last_ns: self.last_ns,
            ops: Op::ALL.iter().filter_map(totals).collect(),
            devices: self.devices.iter().map(extent_to_form).collect(),
            counters: (self.counters != Counters::default()).then(|| self.counters.to_form()),
            id: self.id.0,
        }
    }

    fn from_form(form: SummaryV1) -> Result<Summary, Corrupt> {
        let mut summary = Summary {
            requests: form.requests,
            first_ns: form.first_ns,
            last_ns: form.last_ns,
            devices: form.devices.iter().map(extent_from_form).collect(),
            counters: form
                .counters
                .map(Counters::from_form)
                .transpose()?
                .unwrap_or_default(),
            id: TapeId(form.id),
            ..Summary::default()
        };
        for OpTotalsV1 {
            op,
            requests,
            bytes,
        } in form.ops
        {
            let totals = summary
                .by_op
                .get_mut(usize::from(op))
                .ok_or(Corrupt::number("operation", op))?;
            *totals = OpTotals { requests, bytes };
        }
        if !summary.devices.is_sorted_by(|a, b| a.device < b.device) {
            return Err(Corrupt::Inconsistent {
                what: "devices of a summary are not in order",
            });
        }
        Ok(summary)
    }
}

fn extent_to_form(extent: &DeviceExtent) -> DeviceExtentV1 {
    DeviceExtentV1 {
        device: extent.device.0,
        requests: extent.requests,
        min_offset_bytes: extent.min_offset_bytes,
        end_bytes: extent.end_bytes,
        longest_transfer_bytes: extent.longest_transfer_bytes,
        alignment_bits: extent.alignment_bits,
    }
}

fn extent_from_form(form: &DeviceExtentV1) -> DeviceExtent {
    DeviceExtent {
        device: DeviceIndex(form.device),
        requests: form.requests,
        min_offset_bytes: form.min_offset_bytes,
        end_bytes: form.end_bytes,
        longest_transfer_bytes: form.longest_transfer_bytes,
        alignment_bits: form.alignment_bits,
    }
}

impl Stored for IndexEntry {
    type Form = IndexEntryV1;
    const NAME: &'static str = "index entry";

    fn to_form(&self) -> IndexEntryV1 {
        IndexEntryV1 {
            offset: self.offset,
            blocks: self.blocks,
            requests: self.requests,
            first_ns: self.first_ns,
            last_ns: self.last_ns,
        }
    }

    fn from_form(form: IndexEntryV1) -> Result<IndexEntry, Corrupt> {
        Ok(IndexEntry {
            offset: form.offset,
            blocks: form.blocks,
            requests: form.requests,
            first_ns: form.first_ns,
            last_ns: form.last_ns,
        })
    }
}

impl Stored for Footer {
    type Form = FooterV1;
    const NAME: &'static str = "footer";

    fn to_form(&self) -> FooterV1 {
        FooterV1 {
            tape_bytes: self.tape_bytes,
            summary: self.summary.to_form(),
            anchors: self.anchors.iter().map(Stored::to_form).collect(),
            losses: self.losses.iter().map(Stored::to_form).collect(),
            blocks: self.blocks,
            index: self.index.iter().map(Stored::to_form).collect(),
        }
    }

    fn from_form(form: FooterV1) -> Result<Footer, Corrupt> {
        Ok(Footer {
            tape_bytes: form.tape_bytes,
            summary: Summary::from_form(form.summary)?,
            anchors: form
                .anchors
                .into_iter()
                .map(Anchor::from_form)
                .collect::<Result<_, _>>()?,
            losses: form
                .losses
                .into_iter()
                .map(Loss::from_form)
                .collect::<Result<_, _>>()?,
            blocks: form.blocks,
            index: form
                .index
                .into_iter()
                .map(IndexEntry::from_form)
                .collect::<Result<_, _>>()?,
        })
    }
}
