//! How large a scratch file is made.

/// Largest scratch file.
const LARGEST_BYTES: u64 = 1 << 30;
/// Written at once, and what sizes are rounded to.
pub const CHUNK_BYTES: u64 = 1 << 20;

/// What a tape asks of a scratch file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScratchNeeds {
    /// How far the tape reaches.
    pub span_bytes: u64,
    /// Its longest request.
    pub longest_bytes: u64,
}

/// The span of the tape, but no more than [`LARGEST_BYTES`] or a quarter of what is free.
pub fn size_of(needs: ScratchNeeds, free_bytes: u64) -> Option<u64> {
    let span = needs
        .span_bytes
        .checked_next_multiple_of(CHUNK_BYTES)
        .unwrap_or(LARGEST_BYTES);
    let size = span.min(LARGEST_BYTES).min(free_bytes / 4);
    let size = size - size % CHUNK_BYTES;
    (size >= smallest(needs)).then_some(size)
}

/// The smallest file that the tape can be wrapped onto.
pub fn smallest(needs: ScratchNeeds) -> u64 {
    needs
        .longest_bytes
        .max(1)
        .checked_next_multiple_of(CHUNK_BYTES)
        .unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    fn needs(span_bytes: u64, longest_bytes: u64) -> ScratchNeeds {
        ScratchNeeds {
            span_bytes,
            longest_bytes,
        }
    }

    #[test]
    fn size_is_the_least_of_span_limit_and_a_quarter_of_the_free_space() {
        assert_eq!(size_of(needs(5 * MIB + 1, 4096), 100 * GIB), Some(6 * MIB));
        assert_eq!(size_of(needs(500 * GIB, 4096), 100 * GIB), Some(GIB));
        assert_eq!(size_of(needs(u64::MAX, 4096), 100 * GIB), Some(GIB));
        assert_eq!(size_of(needs(GIB, 4096), GIB), Some(GIB / 4));
        assert_eq!(size_of(needs(GIB, 4096), 4 * MIB - 1), None);
        assert_eq!(size_of(needs(GIB, 3 * MIB + 1), 15 * MIB), None);
        assert_eq!(size_of(needs(GIB, 3 * MIB + 1), 16 * MIB), Some(4 * MIB));
    }
}
