//! Version and byte order of a file, from its magic number.

use std::fmt;

use crate::layout;

/// Byte order of the kernel that wrote the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

impl ByteOrder {
    /// The order of this machine.
    pub const NATIVE: ByteOrder = if cfg!(target_endian = "big") {
        ByteOrder::Big
    } else {
        ByteOrder::Little
    };
}

/// Version of the record's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// 48 bytes, categories in 16 bits.
    V7,
    /// 64 bytes, categories in 48 bits (Linux 6.19 and later).
    V8,
}

impl Version {
    /// The number in the magic.
    pub fn number(self) -> u8 {
        match self {
            Version::V7 => 7,
            Version::V8 => 8,
        }
    }
}

/// Version and byte order: all records of a file have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Format {
    /// Version of the header.
    pub version: Version,
    /// Byte order of the numbers.
    pub order: ByteOrder,
}

impl Format {
    /// Every format that this crate knows.
    pub const ALL: [Format; 4] = [
        Format::new(Version::V7, ByteOrder::Little),
        Format::new(Version::V8, ByteOrder::Little),
        Format::new(Version::V7, ByteOrder::Big),
        Format::new(Version::V8, ByteOrder::Big),
    ];

    /// A format.
    pub const fn new(version: Version, order: ByteOrder) -> Format {
        Format { version, order }
    }

    /// The format of a file that begins with these bytes (4 suffice), if it is blktrace's.
    pub fn detect(start: &[u8]) -> Option<Format> {
        Format::ALL
            .into_iter()
            .find(|format| start.starts_with(&format.magic()))
    }

    /// The four bytes at the start of each record.
    pub fn magic(self) -> [u8; 4] {
        let magic = layout::MAGIC | u32::from(self.version.number());
        match self.order {
            ByteOrder::Little => magic.to_le_bytes(),
            ByteOrder::Big => magic.to_be_bytes(),
        }
    }

    /// Length of a record without its payload.
    pub fn header_bytes(self) -> usize {
        match self.version {
            Version::V7 => layout::v7::HEADER,
            Version::V8 => layout::v8::HEADER,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = match self.order {
            ByteOrder::Little => "little-endian",
            ByteOrder::Big => "big-endian",
        };
        write!(f, "version {}, {order}", self.version.number())
    }
}

/// The version in a magic number of either byte order, known or not.
pub(crate) fn version_of(start: &[u8]) -> Option<u8> {
    let bytes: [u8; 4] = start.get(..4)?.try_into().ok()?;
    [u32::from_le_bytes(bytes), u32::from_be_bytes(bytes)]
        .into_iter()
        .find(|magic| magic & !0xff == layout::MAGIC)
        .map(|magic| (magic & 0xff) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_magic_tells_version_and_byte_order() {
        let cases: [(&[u8], _); 6] = [
            (
                b"\x07tae",
                Some(Format::new(Version::V7, ByteOrder::Little)),
            ),
            (b"eat\x07", Some(Format::new(Version::V7, ByteOrder::Big))),
            (
                b"\x08tae\0",
                Some(Format::new(Version::V8, ByteOrder::Little)),
            ),
            (b"eat\x08\0", Some(Format::new(Version::V8, ByteOrder::Big))),
            (b"\x06tae", None),
            (b"\x07ta", None),
        ];
        for (bytes, format) in cases {
            assert_eq!(Format::detect(bytes), format, "{bytes:?}");
        }
        assert_eq!(version_of(b"\x06tae"), Some(6));
        assert_eq!(version_of(b"eat\x09"), Some(9));
        assert_eq!(version_of(b"meat"), None);
    }
}
