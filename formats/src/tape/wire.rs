//! The byte map of a tape: what stands where, shared with `docs/format.md`.
//!
//! Each offset is the one before plus its size.

/// First bytes of a tape.
pub const HEAD_MAGIC: [u8; 8] = *b"\x89IOTAPE\n";
/// Last bytes of a finished tape: the first ones in reverse.
pub const TAIL_MAGIC: [u8; 8] = *b"\nEPATOI\x89";
/// First bytes of every record. All differ, so that no shifted copy overlaps the marker itself.
pub const SYNC: [u8; 8] = [0xb1, 0x6f, 0x0c, 0xe7, 0x52, 0x9d, 0x38, 0xfa];

const SYNC_AT: usize = 0;
const OPCODE_AT: usize = SYNC_AT + SYNC.len();
const LENGTH_AT: usize = OPCODE_AT + size_of::<u8>();
const HEADER_CRC_AT: usize = LENGTH_AT + size_of::<u64>();
/// Size of a record's header: marker, opcode, payload length, checksum.
pub const RECORD_HEADER_BYTES: usize = HEADER_CRC_AT + size_of::<u32>();
/// Size of the checksum behind each payload.
pub const PAYLOAD_CRC_BYTES: usize = size_of::<u32>();
/// What a record takes besides its payload.
pub const RECORD_OVERHEAD_BYTES: usize = RECORD_HEADER_BYTES + PAYLOAD_CRC_BYTES;

const DISTANCE_AT: usize = 0;
const TRAILER_CRC_AT: usize = DISTANCE_AT + size_of::<u64>();
/// Position of the magic in the trailer.
pub const TRAILER_MAGIC_AT: usize = TRAILER_CRC_AT + size_of::<u32>();
/// Size of the trailer: bytes of the footer record, checksum, magic.
pub const TRAILER_BYTES: usize = TRAILER_MAGIC_AT + TAIL_MAGIC.len();

/// Position of the version in every known payload.
pub const VERSION_AT: usize = 0;
/// Position of a metadata payload's fields, behind the version.
pub const FIELDS_AT: usize = VERSION_AT + size_of::<u16>();
/// Position of the length of a block's header.
pub const BLOCK_HEADER_LENGTH_AT: usize = VERSION_AT + size_of::<u16>();
/// Position of a block's header.
pub const BLOCK_HEADER_AT: usize = BLOCK_HEADER_LENGTH_AT + size_of::<u32>();

/// Longest payload of a metadata record, in bytes.
pub const MAX_METADATA_BYTES: u64 = 4 << 20;
/// Longest payload of a block record, in bytes.
pub const MAX_BLOCK_BYTES: u64 = 16 << 20;
/// Most requests in a block.
pub const MAX_BLOCK_REQUESTS: usize = 65_536;
/// Longest name of a process, control group or file, in bytes.
pub const MAX_NAME_BYTES: usize = 4096;

/// Numbers of the records. 0 is never assigned; 0x80 and above are private.
pub mod opcode {
    /// Where the tape comes from.
    pub const HEADER: u8 = 0x01;
    /// A device.
    pub const DEVICE: u8 = 0x02;
    /// A moment on both clocks.
    pub const ANCHOR: u8 = 0x03;
    /// Lost events.
    pub const LOSS: u8 = 0x04;
    /// Requests.
    pub const BLOCK: u8 = 0x05;
    /// Index and summary.
    pub const FOOTER: u8 = 0x06;
    /// Names of control groups and files.
    pub const NAMES: u8 = 0x07;
    /// First of the numbers that a later version gives to records which hold requests or change
    /// their meaning.
    pub const FIRST_ESSENTIAL: u8 = 0x40;
    /// First private number.
    pub const FIRST_PRIVATE: u8 = 0x80;
}

/// What a record of this number is called, such as `block`, or `record 0x41`.
pub fn record_name(opcode: u8) -> String {
    let name = match opcode {
        opcode::HEADER => "header",
        opcode::DEVICE => "device",
        opcode::ANCHOR => "anchor",
        opcode::LOSS => "loss",
        opcode::BLOCK => "block",
        opcode::FOOTER => "footer",
        opcode::NAMES => "names",
        _ => return format!("record {opcode:#04x}"),
    };
    name.to_owned()
}

/// A record's header, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// Which record.
    pub opcode: u8,
    /// Length of its payload, in bytes.
    pub length: u64,
}

impl RecordHeader {
    /// Size of the whole record, or `None` when it does not fit 64 bits.
    pub fn record_bytes(self) -> Option<u64> {
        self.length.checked_add(RECORD_OVERHEAD_BYTES as u64)
    }

    /// The header as stored.
    pub fn to_bytes(self) -> [u8; RECORD_HEADER_BYTES] {
        let mut bytes = [0; RECORD_HEADER_BYTES];
        bytes[SYNC_AT..OPCODE_AT].copy_from_slice(&SYNC);
        bytes[OPCODE_AT] = self.opcode;
        bytes[LENGTH_AT..HEADER_CRC_AT].copy_from_slice(&self.length.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..HEADER_CRC_AT]);
        bytes[HEADER_CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The header at the start of `bytes`, if one stands there and its checksum is right.
    pub fn parse(bytes: &[u8]) -> Option<RecordHeader> {
        let bytes = bytes.get(..RECORD_HEADER_BYTES)?;
        if bytes[SYNC_AT..OPCODE_AT] != SYNC {
            return None;
        }
        if read_u32(bytes, HEADER_CRC_AT)? != crc32c::crc32c(&bytes[..HEADER_CRC_AT]) {
            return None;
        }
        Some(RecordHeader {
            opcode: bytes[OPCODE_AT],
            length: read_u64(bytes, LENGTH_AT)?,
        })
    }
}

/// Appends a record whose payload `write` appends; returns the payload's length.
pub fn put_record<E>(
    out: &mut Vec<u8>,
    opcode: u8,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<u64, E> {
    let start = out.len();
    out.resize(start + RECORD_HEADER_BYTES, 0);
    if let Err(error) = write(out) {
        out.truncate(start);
        return Err(error);
    }
    let payload = start + RECORD_HEADER_BYTES;
    let length = (out.len() - payload) as u64;
    let crc = crc32c::crc32c(&out[payload..]);
    out.extend_from_slice(&crc.to_le_bytes());
    out[start..payload].copy_from_slice(&RecordHeader { opcode, length }.to_bytes());
    Ok(length)
}

/// The trailer behind a footer record of `footer_bytes`.
pub fn trailer(footer_bytes: u64) -> [u8; TRAILER_BYTES] {
    let mut bytes = [0; TRAILER_BYTES];
    bytes[DISTANCE_AT..TRAILER_CRC_AT].copy_from_slice(&footer_bytes.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..TRAILER_CRC_AT]);
    bytes[TRAILER_CRC_AT..TRAILER_MAGIC_AT].copy_from_slice(&crc.to_le_bytes());
    bytes[TRAILER_MAGIC_AT..].copy_from_slice(&TAIL_MAGIC);
    bytes
}

/// The size of the footer record, if `bytes` starts with a valid trailer.
pub fn parse_trailer(bytes: &[u8]) -> Option<u64> {
    let bytes = bytes.get(..TRAILER_BYTES)?;
    if bytes[TRAILER_MAGIC_AT..] != TAIL_MAGIC {
        return None;
    }
    let crc = crc32c::crc32c(&bytes[..TRAILER_CRC_AT]);
    (read_u32(bytes, TRAILER_CRC_AT)? == crc).then(|| read_u64(bytes, DISTANCE_AT))?
}

/// The little-endian `u16` at `at`.
pub fn read_u16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The little-endian `u32` at `at`.
pub fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The little-endian `u64` at `at`.
pub fn read_u64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
