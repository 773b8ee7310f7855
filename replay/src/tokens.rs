//! Depth tokens: one pool for all that is outstanding, weighted by time.
//!
//! A token is taken before an operation is submitted and given back when its completion is reaped,
//! so the cap holds by construction and every moment's depth is known.

/// The pool.
#[derive(Clone, Debug)]
pub struct Tokens {
    cap: u32,
    outstanding: u32,
    max: u32,
    changed_ns: u64,
    past: Area,
}

/// Sums over time: differences of two give the means in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Area {
    /// When it was taken.
    pub at_ns: u64,
    /// Σ outstanding × nanoseconds.
    pub token_ns: u128,
    /// Nanoseconds at the cap.
    pub at_cap_ns: u64,
}

impl Area {
    /// What was added since an earlier one.
    pub fn since(self, earlier: Area) -> Area {
        Area {
            at_ns: self.at_ns.saturating_sub(earlier.at_ns),
            token_ns: self.token_ns.saturating_sub(earlier.token_ns),
            at_cap_ns: self.at_cap_ns.saturating_sub(earlier.at_cap_ns),
        }
    }

    /// Mean outstanding of a difference; 0 when no time has passed.
    #[expect(clippy::cast_precision_loss, reason = "a mean")]
    pub fn mean(self) -> f64 {
        if self.at_ns == 0 {
            0.0
        } else {
            self.token_ns as f64 / self.at_ns as f64
        }
    }

    /// Share of time at the cap of a difference; 0 when no time has passed.
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    pub fn at_cap_share(self) -> f64 {
        if self.at_ns == 0 {
            0.0
        } else {
            self.at_cap_ns as f64 / self.at_ns as f64
        }
    }
}

impl Tokens {
    /// A full pool of `cap` tokens at a time.
    pub fn new(cap: u32, now_ns: u64) -> Self {
        Tokens {
            cap,
            outstanding: 0,
            max: 0,
            changed_ns: now_ns,
            past: Area::default(),
        }
    }

    /// Takes tokens, or none of them when there are fewer.
    #[must_use]
    pub fn take(&mut self, count: u32, now_ns: u64) -> bool {
        if count > self.free() {
            return false;
        }
        self.advance(now_ns);
        self.outstanding += count;
        self.max = self.max.max(self.outstanding);
        true
    }

    /// Gives tokens back.
    pub fn give(&mut self, count: u32, now_ns: u64) {
        debug_assert!(
            count <= self.outstanding,
            "more tokens given back than taken"
        );
        self.advance(now_ns);
        self.outstanding = self.outstanding.saturating_sub(count);
    }

    /// Tokens that can be taken.
    pub fn free(&self) -> u32 {
        self.cap - self.outstanding
    }

    /// Tokens taken.
    pub fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Most tokens that were taken at once since the last [`Tokens::restart_max`].
    pub fn max(&self) -> u32 {
        self.max
    }

    /// Begins to look for the maximum anew.
    pub fn restart_max(&mut self) {
        self.max = self.outstanding;
    }

    /// Sums up to a time, which must not lie before the last change.
    pub fn area(&self, now_ns: u64) -> Area {
        let mut to_now = self.clone();
        to_now.advance(now_ns);
        Area {
            at_ns: now_ns,
            ..to_now.past
        }
    }

    fn advance(&mut self, now_ns: u64) {
        let passed = now_ns.saturating_sub(self.changed_ns);
        self.past.token_ns += u128::from(self.outstanding) * u128::from(passed);
        if self.outstanding == self.cap {
            self.past.at_cap_ns += passed;
        }
        self.changed_ns = self.changed_ns.max(now_ns);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn mean_max_and_share_at_the_cap_are_those_of_a_hand_drawn_curve() {
        // Cap 2:  0 until 10, 1 until 30, 2 until 70, 1 until 90, 0 until 100.
        let mut tokens = Tokens::new(2, 0);
        assert!(tokens.take(1, 10));
        assert!(tokens.take(1, 30));
        assert!(!tokens.take(1, 40));
        tokens.give(1, 70);
        tokens.give(1, 90);
        let area = tokens.area(100);
        assert_eq!(area.token_ns, 20 + 2 * 40 + 20);
        assert_eq!(area.at_cap_ns, 40);
        assert!((area.mean() - 1.2).abs() < 1e-12);
        assert!((area.at_cap_share() - 0.4).abs() < 1e-12);
        assert_eq!(tokens.max(), 2);
        let tail = area.since(Area {
            at_ns: 70,
            token_ns: 100,
            at_cap_ns: 40,
        });
        assert_eq!((tail.at_ns, tail.token_ns, tail.at_cap_ns), (30, 20, 0));
    }

    #[test]
    fn a_group_is_taken_whole_or_not_at_all() {
        let mut tokens = Tokens::new(4, 0);
        assert!(tokens.take(3, 0));
        assert!(!tokens.take(2, 0));
        assert_eq!(tokens.outstanding(), 3);
        assert!(tokens.take(1, 0));
    }

    proptest! {
        #[test]
        fn never_above_the_cap_and_all_back_at_the_end(
            cap in 1u32..64,
            steps in proptest::collection::vec((any::<bool>(), 1u32..8, 0u64..1_000), 0..400),
        ) {
            let mut tokens = Tokens::new(cap, 0);
            let (mut out, mut now, mut area, mut at_cap) = (0u32, 0u64, 0u128, 0u64);
            for (take, count, pause) in steps {
                area += u128::from(out) * u128::from(pause);
                at_cap += if out == cap { pause } else { 0 };
                now += pause;
                if take {
                    let fits = out + count <= cap;
                    prop_assert_eq!(tokens.take(count, now), fits);
                    out += if fits { count } else { 0 };
                } else {
                    let back = count.min(out);
                    tokens.give(back, now);
                    out -= back;
                }
                prop_assert_eq!(tokens.outstanding(), out);
                prop_assert!(tokens.max() <= cap);
            }
            tokens.give(out, now);
            prop_assert_eq!(tokens.free(), cap);
            prop_assert_eq!(tokens.area(now), Area { at_ns: now, token_ns: area, at_cap_ns: at_cap });
        }
    }
}
