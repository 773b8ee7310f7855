//! Classes of requests by length: powers of two, since a device's latency depends on little else.

/// Number of classes.
pub const SIZES: usize = 10;
/// The classes hold lengths up to 2^12, 2^13, … 2^20, and all above.
const FIRST_SHIFT: u32 = 12;

/// The class of a length.
#[inline]
pub fn size_class(length_bytes: u64) -> usize {
    let shift = u64::BITS - length_bytes.saturating_sub(1).leading_zeros();
    let class = shift.saturating_sub(FIRST_SHIFT);
    usize::try_from(class).map_or(SIZES - 1, |class| class.min(SIZES - 1))
}

/// Longest length in a class; `None`: there is none.
pub fn longest_of(class: usize) -> Option<u64> {
    let shift = FIRST_SHIFT.checked_add(u32::try_from(class).ok()?)?;
    (class + 1 < SIZES)
        .then(|| 1u64.checked_shl(shift))
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_in_the_first_class_that_holds_it() {
        for (length, class) in [
            (0, 0),
            (512, 0),
            (4096, 0),
            (4097, 1),
            (8192, 1),
            (1 << 20, 8),
            ((1 << 20) + 1, 9),
            (u64::MAX, 9),
        ] {
            assert_eq!(size_class(length), class, "{length}");
        }
        let longest: Vec<Option<u64>> = (0..SIZES).map(longest_of).collect();
        assert_eq!(longest[0], Some(4096));
        assert_eq!((longest[8], longest[9]), (Some(1 << 20), None));
        for (class, bytes) in longest.into_iter().flatten().enumerate() {
            assert_eq!(
                (size_class(bytes), size_class(bytes + 1)),
                (class, class + 1)
            );
        }
    }
}
