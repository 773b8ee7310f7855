//! Numbers at a place in bytes, in either byte order.

/// The order of the bytes of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Lowest first.
    Little,
    /// Highest first.
    Big,
}

macro_rules! reader {
    ($name:ident, $number:ty) => {
        /// The number at `at`; `None` where the bytes end before.
        #[inline]
        pub fn $name(self, bytes: &[u8], at: usize) -> Option<$number> {
            let field = *bytes.get(at..)?.first_chunk()?;
            Some(match self {
                ByteOrder::Little => <$number>::from_le_bytes(field),
                ByteOrder::Big => <$number>::from_be_bytes(field),
            })
        }
    };
}

impl ByteOrder {
    /// That of this machine.
    pub const NATIVE: ByteOrder = if cfg!(target_endian = "big") {
        ByteOrder::Big
    } else {
        ByteOrder::Little
    };

    reader!(u16_at, u16);
    reader!(u32_at, u32);
    reader!(u64_at, u64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_end_with_the_bytes() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9];
        assert_eq!(
            ByteOrder::Little.u64_at(&bytes, 1),
            Some(0x0908_0706_0504_0302)
        );
        assert_eq!(
            ByteOrder::Big.u64_at(&bytes, 1),
            Some(0x0203_0405_0607_0809)
        );
        assert_eq!(ByteOrder::Big.u32_at(&bytes, 6), None);
        assert_eq!(ByteOrder::Little.u16_at(&bytes, 7), Some(0x0908));
        assert_eq!(ByteOrder::Little.u16_at(&bytes, usize::MAX), None);
    }
}
