//! A seeded permutation of `0..count`, computed and not stored.
//!
//! Four rounds of a Feistel network over the smallest even number of bits that holds `count`
//! values; what falls outside of `0..count` goes through it again, until it does not. The round
//! function is SplitMix64's finaliser of the half and the round's key; the keys are the first four
//! values of SplitMix64 from the seed.

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permutation {
    count: u64,
    half_bits: u32,
    keys: [u64; 4],
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

impl Permutation {
    /// A permutation of `0..count`; the same for the same seed.
    pub fn new(count: u64, seed: u64) -> Self {
        let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
        let mut keys = [0; 4];
        let mut state = seed;
        for key in &mut keys {
            state = state.wrapping_add(GOLDEN);
            *key = mix(state);
        }
        Permutation {
            count,
            half_bits: bits.div_ceil(2),
            keys,
        }
    }

    /// Where a value goes. What is not below `count` stays.
    pub fn of(&self, value: u64) -> u64 {
        if value >= self.count {
            return value;
        }
        let mut to = value;
        loop {
            to = self.once(to);
            if to < self.count {
                return to;
            }
        }
    }

    fn once(&self, value: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for key in self.keys {
            (left, right) = (right, left ^ (mix(right ^ key) & mask));
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_value_is_hit_once_and_the_seed_decides_where() {
        for count in [0u64, 1, 2, 3, 5, 16, 17, 1_000, 4_097] {
            let to: Vec<u64> = (0..count)
                .map(|v| Permutation::new(count, 7).of(v))
                .collect();
            assert_eq!(
                to.iter().copied().collect::<BTreeSet<_>>(),
                (0..count).collect()
            );
        }
        let places = |seed| {
            (0..1_000)
                .map(|v| Permutation::new(1_000, seed).of(v))
                .collect::<Vec<_>>()
        };
        assert_eq!(places(1), places(1));
        let same = places(1)
            .iter()
            .zip(places(2))
            .filter(|(a, b)| **a == *b)
            .count();
        // One of a thousand on average.
        assert!(same < 12, "{same}");
        let stays = places(1)
            .iter()
            .zip(0..)
            .filter(|(to, from)| **to == *from)
            .count();
        assert!(stays < 12, "{stays}");
    }

    #[test]
    fn the_largest_counts_work() {
        let all = Permutation::new(u64::MAX >> 20, 3);
        assert!(all.of((u64::MAX >> 20) - 1) < u64::MAX >> 20);
    }
}
