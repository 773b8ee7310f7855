//! Little-endian numbers at a place in bytes; `None` where the bytes end before.

macro_rules! reader {
    ($name:ident, $number:ty) => {
        #[inline]
        pub(crate) fn $name(bytes: &[u8], at: usize) -> Option<$number> {
            const SIZE: usize = size_of::<$number>();
            let field = bytes.get(at..)?.first_chunk::<SIZE>()?;
            Some(<$number>::from_le_bytes(*field))
        }
    };
}

reader!(u8_at, u8);
reader!(u16_at, u16);
reader!(u32_at, u32);
reader!(u64_at, u64);
reader!(i64_at, i64);

/// A pointer of the traced system.
#[inline]
pub(crate) fn pointer_at(bytes: &[u8], at: usize, width: PointerWidth) -> Option<u64> {
    match width {
        PointerWidth::Bits32 => u32_at(bytes, at).map(u64::from),
        PointerWidth::Bits64 => u64_at(bytes, at),
    }
}

/// Width of the pointers in an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PointerWidth {
    /// 32 bits.
    Bits32,
    /// 64 bits.
    #[default]
    Bits64,
}

impl PointerWidth {
    /// Bytes of a pointer.
    pub const fn bytes(self) -> usize {
        match self {
            PointerWidth::Bits32 => 4,
            PointerWidth::Bits64 => 8,
        }
    }
}

/// UTF-16 from `at` to its NUL or to the end of `bytes`; what is no UTF-16 becomes `U+FFFD`.
pub(crate) fn utf16_at(bytes: &[u8], at: usize) -> (String, usize) {
    let tail = bytes.get(at..).unwrap_or_default();
    let units = tail.chunks_exact(2);
    let units = units.map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
    let text: Vec<u16> = units.take_while(|unit| *unit != 0).collect();
    let end = at.saturating_add(2 * (text.len() + 1));
    (String::from_utf16_lossy(&text), end)
}
