//! The structs behind metadata records, field by field as they are stored.
//!
//! None of them is ever edited, since tapes hold their bytes: a change is a new struct with the
//! next version. The tests keep the bytes of every version.
#![allow(missing_docs, reason = "the fields are those of the types in `model`")]

use wincode::{SchemaRead, SchemaWrite};

/// `Header` as stored.
#[derive(Clone, Debug, PartialEq, SchemaRead, SchemaWrite)]
pub struct HeaderV1 {
    pub tool: String,
    pub host: Option<String>,
    pub os: Option<String>,
    pub clock_source: String,
    pub clock_resolution_ns: u32,
    pub backend: String,
    pub options: Vec<String>,
    pub error_codes: u8,
    pub notes: Vec<String>,
}

/// `Device` as stored.
#[derive(Clone, Debug, PartialEq, SchemaRead, SchemaWrite)]
pub struct DeviceV1 {
    pub index: u16,
    pub name: String,
    pub layer: u8,
    pub size_bytes: Option<u64>,
    pub logical_sector_bytes: Option<u32>,
    pub physical_sector_bytes: Option<u32>,
    pub model: Option<String>,
    pub rotational: Option<bool>,
    pub parents: Vec<String>,
}

/// `Anchor` as stored.
#[derive(Clone, Debug, PartialEq, SchemaRead, SchemaWrite)]
pub struct AnchorV1 {
    pub time_ns: u64,
    pub wall_ns: i64,
}

/// `Loss` as stored.
#[derive(Clone, Debug, PartialEq, SchemaRead, SchemaWrite)]
pub struct LossV1 {
    pub from_ns: u64,
    pub to_ns: u64,
    pub events: u64,
    pub reason: u8,
}

/// `Loss` as stored, with the requests that it took.
#[derive(Clone, Debug, PartialEq, SchemaRead, SchemaWrite)]
pub struct LossV2 {
    pub from_ns: u64,
    pub to_ns: u64,
    pub events: u64,
    pub reason: u8,
    pub requests: Option<u64>,
}

/// `OpTotals` of one operation as stored.
#[derive(Clone, Debug, PartialEq, SchemaRead, SchemaWrite)]
pub struct OpTotalsV1 {
    pub op: u8,
    pub requests: u64,
    pub bytes: u64,
}

/// `DeviceExtent` as stored.
#[derive(Clone, Debug, PartialEq, SchemaRead, SchemaWrite)]
pub struct DeviceExtentV1 {
    pub device: u16,
    pub requests: u64,
    pub min_offset_bytes: u64,
    pub end_bytes: u64,
    pub longest_transfer_bytes: u64,
    pub alignment_bits: u64,
}

/// `Counters` as stored.
#[derive(Clone, Debug, PartialEq, SchemaRead, SchemaWrite)]
pub struct CountersV1 {
    pub lost_events: u64,
    pub unpaired_issues: u64,
    pub unpaired_completions: u64,
    pub ambiguous: u64,
    pub late: u64,
    pub merges: u64,
    pub splits: u64,
    pub requeues: u64,
    pub coalesced_flushes: u64,
    pub undecodable: u64,
}

/// `Summary` as stored: operations and devices without requests are left out, and so are
/// counters that are all zero.
#[derive(Clone, Debug, PartialEq, SchemaRead, SchemaWrite)]
pub struct SummaryV1 {
    pub requests: u64,
    pub first_ns: u64,
    pub last_ns: u64,
    pub ops: Vec<OpTotalsV1>,
    pub devices: Vec<DeviceExtentV1>,
    pub counters: Option<CountersV1>,
    pub id: u128,
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

/// `Name` as stored.
#[derive(Clone, Debug, PartialEq, SchemaRead, SchemaWrite)]
pub struct NameV1 {
    pub kind: u8,
    pub id: u64,
    pub name: String,
}

/// Names as stored.
#[derive(Clone, Debug, PartialEq, SchemaRead, SchemaWrite)]
pub struct NamesV1 {
    pub names: Vec<NameV1>,
}

/// One or more neighbouring blocks in the footer's index.
#[derive(Clone, Debug, PartialEq, SchemaRead, SchemaWrite)]
pub struct IndexEntryV1 {
    pub offset: u64,
    pub blocks: u32,
    pub requests: u64,
    pub first_ns: u64,
    pub last_ns: u64,
}

/// The footer as stored.
#[derive(Clone, Debug, PartialEq, SchemaRead, SchemaWrite)]
pub struct FooterV1 {
    pub tape_bytes: u64,
    pub summary: SummaryV1,
    pub anchors: Vec<AnchorV1>,
    pub losses: Vec<LossV1>,
    pub blocks: u64,
    pub index: Vec<IndexEntryV1>,
}

/// The footer as stored, with losses of version 2.
#[derive(Clone, Debug, PartialEq, SchemaRead, SchemaWrite)]
pub struct FooterV2 {
    pub tape_bytes: u64,
    pub summary: SummaryV1,
    pub anchors: Vec<AnchorV1>,
    pub losses: Vec<LossV2>,
    pub blocks: u64,
    pub index: Vec<IndexEntryV1>,
}
