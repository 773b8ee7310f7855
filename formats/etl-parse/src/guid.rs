//! GUIDs as event traces have them.

use std::fmt;

/// A GUID: the name of a provider, in the byte order of Windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guid([u8; 16]);

impl Guid {
    /// Bytes of a GUID.
    pub const BYTES: usize = 16;

    /// From its parts as they are written: `Guid::new(0x3d6fa8d4, 0xfe05, 0x11d0, [0x9d, …])` is
    /// `3d6fa8d4-fe05-11d0-9d…`.
    pub const fn new(first: u32, second: u16, third: u16, rest: [u8; 8]) -> Guid {
        let (a, b, c) = (
            first.to_le_bytes(),
            second.to_le_bytes(),
            third.to_le_bytes(),
        );
        Guid([
            a[0], a[1], a[2], a[3], b[0], b[1], c[0], c[1], rest[0], rest[1], rest[2], rest[3],
            rest[4], rest[5], rest[6], rest[7],
        ])
    }

    /// From the bytes of a file.
    pub const fn from_bytes(bytes: [u8; 16]) -> Guid {
        Guid(bytes)
    }

    /// The bytes of a file.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    #[inline]
    pub(crate) fn at(bytes: &[u8], at: usize) -> Option<Guid> {
        bytes.get(at..)?.first_chunk::<16>().copied().map(Guid)
    }
}

/// As Windows writes it: `3d6fa8d4-fe05-11d0-9dda-00c04fd7ba7c`.
impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
        for (place, index) in order.into_iter().enumerate() {
            if matches!(place, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{:02x}", self.0[index])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guid_is_written_as_windows_writes_it() {
        let bytes = [
            0xd4, 0xa8, 0x6f, 0x3d, 0x05, 0xfe, 0xd0, 0x11, 0x9d, 0xda, 0x00, 0xc0, 0x4f, 0xd7,
            0xba, 0x7c,
        ];
        let guid = Guid::from_bytes(bytes);
        assert_eq!(guid.to_string(), "3d6fa8d4-fe05-11d0-9dda-00c04fd7ba7c");
        let rest = [0x9d, 0xda, 0x00, 0xc0, 0x4f, 0xd7, 0xba, 0x7c];
        assert_eq!(Guid::new(0x3d6f_a8d4, 0xfe05, 0x11d0, rest), guid);
    }
}
