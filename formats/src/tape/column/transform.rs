//! Transforms: values as small numbers.

use super::super::error::Corrupt;
use super::stream::{get_byte, get_varint, put_varint};

/// What a value is the distance from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Prediction {
    /// From zero.
    None = 0,
    /// From the value before it.
    Previous = 1,
    /// From where the request before it ended: its value plus its length.
    PreviousEnd = 2,
}

/// How distances became the numbers that are stored:
/// distance = `base` + `step` × number, modulo 2^64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transform {
    /// What a distance counts from.
    pub prediction: Prediction,
    /// Whether numbers are signed: 0, -1, 1, -2, … are stored as 0, 1, 2, 3, …
    pub signed: bool,
    /// What the first value is the distance from, unless from zero.
    pub start: u64,
    /// The distance of number 0.
    pub base: u64,
    /// The distance between neighbouring numbers; never 0.
    pub step: u64,
}

/// Which numbers stand for distances to both sides of zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signs {
    /// Signed ones, so that what is near zero is small.
    Folded,
    /// Unsigned ones, from the lowest distance on.
    Ascending,
}

/// Values of a column and the lengths of their requests, in the column's order.
pub trait Sequence: Iterator<Item = (u64, u64)> + Clone {}

impl<I: Iterator<Item = (u64, u64)> + Clone> Sequence for I {}

impl Transform {
    /// Turns values into numbers, and finds the parameters that make them small.
    pub fn find(
        prediction: Prediction,
        signs: Signs,
        values: impl Sequence,
        numbers: &mut Vec<u64>,
    ) -> Transform {
        numbers.clear();
        let start = distances(prediction, values, numbers);
        let first = numbers.first().copied().unwrap_or(0);
        let (mut lowest, mut highest) = (first as i64, first as i64);
        let (mut bits, mut differences) = (0, 0);
        for number in numbers.iter() {
            lowest = lowest.min(*number as i64);
            highest = highest.max(*number as i64);
            bits |= number;
            differences |= number ^ first;
        }
        let signed = signs == Signs::Folded && lowest < 0 && lowest != highest;
        let base = if signed { 0 } else { lowest as u64 };
        let step = if signed {
            let magnitude = |number: &u64| (*number as i64).unsigned_abs();
            common_divisor(bits, numbers.iter().map(magnitude))
        } else {
            common_divisor(
                differences,
                numbers.iter().map(|number| number.wrapping_sub(base)),
            )
        };
        let divide = ExactDivision::by(step);
        if signed {
            for number in numbers.iter_mut() {
                *number = zigzag(divide.signed(*number as i64));
            }
        } else if (base, step) != (0, 1) {
            for number in numbers.iter_mut() {
                *number = divide.unsigned(number.wrapping_sub(base));
            }
        }
        Transform {
            prediction,
            signed,
            start,
            base,
            step,
        }
    }

    /// Appends the parameters.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.push(self.prediction as u8);
        out.push(u8::from(self.signed));
        for parameter in [self.start, self.base, self.step] {
            put_varint(parameter, out);
        }
    }

    /// Takes the parameters off the front of `bytes`.
    pub fn get(bytes: &mut &[u8]) -> Result<Transform, Corrupt> {
        let short = Corrupt::Short {
            what: "transform",
            bytes: bytes.len(),
        };
        let prediction = match get_byte(bytes).ok_or(short.clone())? {
            0 => Prediction::None,
            1 => Prediction::Previous,
            2 => Prediction::PreviousEnd,
            number => return Err(Corrupt::number("prediction", number)),
        };
        let signed = match get_byte(bytes).ok_or(short.clone())? {
            0 => false,
            1 => true,
            number => return Err(Corrupt::number("sign", number)),
        };
        let mut parameter = || get_varint(bytes).ok_or(short.clone());
        let (start, base, step) = (parameter()?, parameter()?, parameter()?);
        if step == 0 {
            return Err(Corrupt::number("step", step));
        }
        Ok(Transform {
            prediction,
            signed,
            start,
            base,
            step,
        })
    }

    /// Turns numbers back into distances.
    pub fn restore_distances(&self, numbers: &mut [u64]) {
        let Transform { base, step, .. } = *self;
        if self.signed {
            for number in numbers {
                *number = (unzigzag(*number) as u64)
                    .wrapping_mul(step)
                    .wrapping_add(base);
            }
        } else if (base, step) != (0, 1) {
            for number in numbers {
                *number = number.wrapping_mul(step).wrapping_add(base);
            }
        }
    }
}

/// Appends each value's distance; returns what the first one counts from, chosen so that the first
/// two distances are the same, unless it would wrap.
fn distances(prediction: Prediction, values: impl Sequence, distances: &mut Vec<u64>) -> u64 {
    if prediction == Prediction::None {
        distances.extend(values.map(|(value, _)| value));
        return 0;
    }
    let before = |(value, length): (u64, u64)| match prediction {
        Prediction::PreviousEnd => value.wrapping_add(length),
        _ => value,
    };
    let mut values = values;
    let Some(first) = values.next() else { return 0 };
    let second = values.clone().next();
    let distance = second.map_or(0, |(second, _)| second.wrapping_sub(before(first)));
    let start = first.0.checked_add_signed((distance as i64).wrapping_neg());
    distances.push(first.0.wrapping_sub(start.unwrap_or(first.0)));
    let mut end = before(first);
    distances.extend(values.map(|(value, length)| {
        value.wrapping_sub(std::mem::replace(&mut end, before((value, length))))
    }));
    start.unwrap_or(first.0)
}

fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// Division of multiples of a number, without a division: what is odd of it has an inverse modulo
/// 2^64.
#[derive(Clone, Copy)]
struct ExactDivision {
    inverse: u64,
    zeros: u32,
}

impl ExactDivision {
    /// By a number that is not 0.
    fn by(divisor: u64) -> ExactDivision {
        let zeros = divisor.trailing_zeros();
        let odd = divisor >> zeros;
        // Right to 3 bits, and each step doubles them.
        let mut inverse = odd;
        for _ in 0..5 {
            inverse = inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse)));
        }
        ExactDivision { inverse, zeros }
    }

    fn unsigned(self, multiple: u64) -> u64 {
        (multiple >> self.zeros).wrapping_mul(self.inverse)
    }

    fn signed(self, multiple: i64) -> i64 {
        ((multiple >> self.zeros) as u64).wrapping_mul(self.inverse) as i64
    }
}

/// The greatest number that divides all, 1 when all are 0. `bits` ends with as many zeros as all the
/// numbers have in common.
fn common_divisor(bits: u64, numbers: impl Iterator<Item = u64>) -> u64 {
    if bits == 0 {
        return 1;
    }
    let zeros = bits.trailing_zeros();
    // What of it is odd, and the highest quotient that a multiple has.
    let (mut odd, mut divide, mut most) = (0, ExactDivision::by(1), u64::MAX);
    for number in numbers {
        // Multiples, and they alone, have a quotient that is not too high.
        if number == 0 || odd != 0 && divide.unsigned(number >> zeros) <= most {
            continue;
        }
        let (mut a, mut b) = (odd, number >> zeros);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        odd = a >> a.trailing_zeros();
        if odd == 1 {
            break;
        }
        (divide, most) = (ExactDivision::by(odd), u64::MAX / odd);
    }
    odd << zeros
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn find(prediction: Prediction, values: &[(u64, u64)]) -> (Transform, Vec<u64>) {
        find_with(prediction, Signs::Folded, values)
    }

    fn find_with(
        prediction: Prediction,
        signs: Signs,
        values: &[(u64, u64)],
    ) -> (Transform, Vec<u64>) {
        let mut numbers = Vec::new();
        let values = values.iter().copied();
        let transform = Transform::find(prediction, signs, values, &mut numbers);
        let mut stored = Vec::new();
        transform.put(&mut stored);
        let mut rest = &stored[..];
        assert_eq!(Transform::get(&mut rest).unwrap(), transform);
        assert!(rest.is_empty());
        (transform, numbers)
    }

    #[test]
    fn even_steps_become_zeroes() {
        let (transform, numbers) = find(Prediction::Previous, &[(7000, 0), (8000, 0), (9000, 0)]);
        assert_eq!(
            (transform.start, transform.base, transform.step),
            (6000, 1000, 1)
        );
        assert_eq!((transform.signed, &numbers[..]), (false, &[0, 0, 0][..]));
        let backwards = find(Prediction::Previous, &[(9000, 0), (8000, 0), (7000, 0)]);
        assert_eq!(
            (backwards.0.base as i64, backwards.1),
            (-1000, vec![0, 0, 0])
        );
    }

    #[test]
    fn sequential_requests_become_zeroes_and_jumps_are_divided() {
        let requests = [(0, 4096), (4096, 8192), (12288, 4096), (0, 4096)];
        let (transform, numbers) = find(Prediction::PreviousEnd, &requests);
        // The last request starts 16,384 before the end of the one before it.
        assert_eq!(
            (transform.start, transform.base, transform.step),
            (0, 0, 16_384)
        );
        assert_eq!((transform.signed, &numbers[..]), (true, &[0, 0, 0, 1][..]));
    }

    #[test]
    fn ascending_numbers_count_from_the_lowest_distance() {
        let requests = [(0, 4096), (4096, 8192), (12288, 4096), (0, 4096), (8192, 0)];
        let (transform, numbers) = find_with(Prediction::PreviousEnd, Signs::Ascending, &requests);
        // Distances 0, 0, 0, -16,384 and 4096: from the lowest on in steps of 4096.
        assert_eq!(
            (transform.signed, transform.base as i64, transform.step),
            (false, -16_384, 4096)
        );
        assert_eq!(numbers, [4, 4, 4, 0, 5]);
    }

    #[test]
    fn plain_values_count_from_the_lowest() {
        let (transform, numbers) = find(Prediction::None, &[(512, 0), (4096, 0), (1536, 0)]);
        assert_eq!((transform.base, transform.step), (512, 512));
        assert_eq!(numbers, [0, 7, 2]);
        assert!(find(Prediction::None, &[]).1.is_empty());
    }

    #[test]
    fn extremes_survive() {
        let values = [(u64::MAX, 0), (0, 0), (1 << 63, 0), (1, 0)];
        for prediction in [
            Prediction::None,
            Prediction::Previous,
            Prediction::PreviousEnd,
        ] {
            for signs in [Signs::Folded, Signs::Ascending] {
                let (transform, mut numbers) = find_with(prediction, signs, &values);
                transform.restore_distances(&mut numbers);
                let mut before = transform.start;
                for ((value, _), distance) in values.iter().zip(&numbers) {
                    let origin = if prediction == Prediction::None {
                        0
                    } else {
                        before
                    };
                    assert_eq!(
                        origin.wrapping_add(*distance),
                        *value,
                        "{prediction:?} {signs:?}"
                    );
                    before = *value;
                }
            }
        }
    }

    fn divisor(numbers: &[u64]) -> u64 {
        let bits = numbers.iter().fold(0, |bits, number| bits | number);
        common_divisor(bits, numbers.iter().copied())
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn multiples_are_divided_exactly(divisor in 1u64.., zeros in 0u32..64, number: u64) {
            let divisor = (divisor << zeros).max(1);
            let divide = ExactDivision::by(divisor);
            let quotient = number / divisor;
            prop_assert_eq!(divide.unsigned(quotient * divisor), quotient);
            let multiple = (quotient / 2 * divisor) as i64;
            let divisor = divisor as i64;
            if divisor > 0 {
                prop_assert_eq!(divide.signed(-multiple), -multiple / divisor);
            }
        }

        /// By Euclid's algorithm over all of them.
        #[test]
        fn the_greatest_common_divisor_is_found(
            factor in 1u64..1 << 40,
            zeros in 0u32..16,
            quotients in proptest::collection::vec(0u64..256, 0..20),
        ) {
            let numbers: Vec<u64> = quotients.iter().map(|quotient| (quotient * factor) << zeros).collect();
            let expected = numbers.iter().fold(0, |mut a, b| {
                let mut b = *b;
                while b != 0 {
                    (a, b) = (b, a % b);
                }
                a
            });
            prop_assert_eq!(divisor(&numbers), expected.max(1));
        }
    }

    #[test]
    fn the_greatest_divisors_are_found() {
        assert_eq!(divisor(&[1 << 63, 0]), 1 << 63);
        assert_eq!(divisor(&[u64::MAX; 2]), u64::MAX);
        assert_eq!(divisor(&[0; 2]), 1);
    }
}
