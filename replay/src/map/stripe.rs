//! Stripes: one range of bytes laid over several targets in turn, as RAID 0 does.

use crate::engine::{Action, Io};

/// Stripe 0 lies at the start of the first target, stripe 1 at the start of the second, and so on
/// in turn; stripe `n` of `n` targets is the second of the first target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Striping {
    /// Length of a stripe; not 0.
    pub stripe_bytes: u64,
    /// Targets; not 0.
    pub targets: u8,
}

impl Striping {
    /// Bytes that fit when the smallest target has `smallest_bytes`.
    pub fn capacity(&self, smallest_bytes: u64) -> u64 {
        let whole = smallest_bytes - smallest_bytes % self.stripe_bytes;
        whole.saturating_mul(u64::from(self.targets))
    }

    /// Turns a striped operation into one on a target, if it touches one stripe only.
    pub fn lay(&self, io: Io) -> Io {
        if self.parts(&io) == 1 {
            self.part(&io, 0)
        } else {
            io
        }
    }

    /// How many operations on targets a striped one becomes.
    pub fn parts(&self, io: &Io) -> u32 {
        match io.action {
            Action::Flush => u32::from(self.targets),
            Action::Read | Action::Write => self.stripes(io) + self.flushes(io),
            // One range of each target, whatever the number of stripes.
            Action::Discard | Action::WriteZeroes => self.stripes(io).min(u32::from(self.targets)),
        }
    }

    /// One of them, counted from 0.
    pub fn part(&self, io: &Io, number: u32) -> Io {
        let flushes = self.flushes(io);
        match io.action {
            Action::Flush => flush(number),
            Action::Read | Action::Write if number < flushes => flush(number),
            Action::Read | Action::Write => self.stripe_of(*io, number - flushes),
            Action::Discard | Action::WriteZeroes => self.range_of(*io, number),
        }
    }

    /// Where an operation on a target that touches one stripe only lies in the whole range.
    pub fn position(&self, io: &Io) -> u64 {
        let stripe = io.offset / self.stripe_bytes * u64::from(self.targets) + u64::from(io.target);
        stripe * self.stripe_bytes + io.offset % self.stripe_bytes
    }

    /// Whether a part may only start when the parts before it are done.
    pub fn waits(&self, io: &Io, number: u32) -> bool {
        number > 0 && number == self.flushes(io)
    }

    /// A write with a preflush: every target is flushed before it.
    fn flushes(&self, io: &Io) -> u32 {
        if io.preflush {
            u32::from(self.targets)
        } else {
            0
        }
    }

    fn first_stripe(&self, io: &Io) -> u64 {
        io.offset / self.stripe_bytes
    }

    fn last_stripe(&self, io: &Io) -> u64 {
        (io.offset + io.length.max(1) - 1) / self.stripe_bytes
    }

    fn stripes(&self, io: &Io) -> u32 {
        let count = self.last_stripe(io) - self.first_stripe(io) + 1;
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    fn stripe_of(&self, io: Io, number: u32) -> Io {
        let stripe = self.first_stripe(&io) + u64::from(number);
        let start = io.offset.max(stripe * self.stripe_bytes);
        let end = (io.offset + io.length).min((stripe + 1) * self.stripe_bytes);
        let payload = u32::try_from(start - io.offset).unwrap_or(0);
        Io {
            offset: self.row(stripe) * self.stripe_bytes + start % self.stripe_bytes,
            length: end - start,
            payload: if io.action == Action::Write {
                io.payload + payload
            } else {
                0
            },
            target: self.target(stripe),
            preflush: false,
            ..io
        }
    }

    /// The bytes of a range on one target: neighbours there, though not in the range.
    fn range_of(&self, io: Io, number: u32) -> Io {
        let (first, last) = (self.first_stripe(&io), self.last_stripe(&io));
        let from = first + u64::from(number);
        // The last stripe on the same target.
        let to = last - (last - from) % u64::from(self.targets);
        let end = io.offset + io.length;
        let start_at = self.row(from) * self.stripe_bytes
            + if from == first {
                io.offset % self.stripe_bytes
            } else {
                0
            };
        let end_at = self.row(to) * self.stripe_bytes
            + if to == last {
                (end - 1) % self.stripe_bytes + 1
            } else {
                self.stripe_bytes
            };
        Io {
            offset: start_at,
            length: end_at - start_at,
            target: self.target(from),
            ..io
        }
    }

    fn row(&self, stripe: u64) -> u64 {
        stripe / u64::from(self.targets)
    }

    fn target(&self, stripe: u64) -> u8 {
        u8::try_from(stripe % u64::from(self.targets)).unwrap_or(0)
    }
}

fn flush(target: u32) -> Io {
    Io {
        action: Action::Flush,
        target: u8::try_from(target).unwrap_or(0),
        ..Io::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn io(action: Action, offset: u64, length: u64) -> Io {
        Io {
            action,
            offset,
            length,
            target: Io::STRIPED,
            ..Io::default()
        }
    }

    fn parts(striping: &Striping, io: Io) -> Vec<(u8, u64, u64)> {
        let laid = striping.lay(io);
        let place = |io: Io| (io.target, io.offset, io.length);
        if laid.target != Io::STRIPED {
            return vec![place(laid)];
        }
        (0..striping.parts(&laid))
            .map(|number| place(striping.part(&laid, number)))
            .collect()
    }

    const PAIR: Striping = Striping {
        stripe_bytes: 100,
        targets: 2,
    };

    #[test]
    fn requests_are_cut_at_stripes() {
        let read = |offset, length| parts(&PAIR, io(Action::Read, offset, length));
        assert_eq!(read(0, 100), [(0, 0, 100)]);
        assert_eq!(read(130, 20), [(1, 30, 20)]);
        assert_eq!(read(250, 20), [(0, 150, 20)]);
        assert_eq!(
            read(50, 300),
            [(0, 50, 50), (1, 0, 100), (0, 100, 100), (1, 100, 50)]
        );
    }

    #[test]
    fn ranges_without_data_are_one_piece_on_each_target() {
        let discard = |offset, length| parts(&PAIR, io(Action::Discard, offset, length));
        assert_eq!(discard(50, 300), [(0, 50, 150), (1, 0, 150)]);
        assert_eq!(discard(150, 50), [(1, 50, 50)]);
        assert_eq!(discard(150, 100), [(1, 50, 50), (0, 100, 50)]);
    }

    #[test]
    fn a_flush_goes_to_every_target_and_a_preflush_before_any_write() {
        assert_eq!(
            parts(&PAIR, io(Action::Flush, 0, 0)),
            [(0, 0, 0), (1, 0, 0)]
        );
        let write = PAIR.lay(Io {
            preflush: true,
            fua: true,
            payload: 4_096,
            ..io(Action::Write, 80, 40)
        });
        assert_eq!(PAIR.parts(&write), 4);
        let all: Vec<Io> = (0..4).map(|number| PAIR.part(&write, number)).collect();
        let actions: Vec<_> = all.iter().map(|part| (part.action, part.target)).collect();
        assert_eq!(
            actions,
            [
                (Action::Flush, 0),
                (Action::Flush, 1),
                (Action::Write, 0),
                (Action::Write, 1)
            ]
        );
        let waits: Vec<bool> = (0..4).map(|number| PAIR.waits(&write, number)).collect();
        assert_eq!(waits, [false, false, true, false]);
        assert_eq!((all[2].payload, all[3].payload), (4_096, 4_096 + 20));
        assert!(all[3].fua && !all[3].preflush);
    }

    #[test]
    fn what_fits_is_the_smallest_targets_whole_stripes() {
        assert_eq!(PAIR.capacity(250), 400);
        assert_eq!(PAIR.capacity(99), 0);
    }

    proptest! {
        /// Byte by byte against the definition.
        #[test]
        fn parts_cover_a_request_once(
            stripe_bytes in 1u64..40,
            targets in 1u8..6,
            offset in 0u64..500,
            length in 1u64..300,
            whole_ranges: bool,
        ) {
            let striping = Striping { stripe_bytes, targets };
            let action = if whole_ranges { Action::Discard } else { Action::Read };
            let mut found = BTreeSet::new();
            for (target, start, length) in parts(&striping, io(action, offset, length)) {
                for at in start..start + length {
                    prop_assert!(found.insert((target, at)), "twice");
                }
            }
            let expected: BTreeSet<(u8, u64)> = (offset..offset + length)
                .map(|at| {
                    let (stripe, inside) = (at / stripe_bytes, at % stripe_bytes);
                    let count = u64::from(targets);
                    ((stripe % count) as u8, stripe / count * stripe_bytes + inside)
                })
                .collect();
            prop_assert_eq!(found, expected);
        }
    }
}
