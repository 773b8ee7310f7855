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
        let signed = |number: &u64| *number as i64;
        let lowest = numbers.iter().map(signed).min().unwrap_or(0);
        let highest = numbers.iter().map(signed).max().unwrap_or(0);
        let signed = signs == Signs::Folded && lowest < 0 && lowest != highest;
        let base = if signed { 0 } else { lowest as u64 };
        let size = |number: u64| {
            let number = number.wrapping_sub(base);
            if signed {
                (number as i64).unsigned_abs()
            } else {
                number
            }
        };
        let step = common_divisor(numbers.iter().map(|number| size(*number)));
        for number in numbers.iter_mut() {
            *number = if signed {
                zigzag(*number as i64 / step as i64)
            } else {
                number.wrapping_sub(base) / step
            };
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

/// The greatest number that divides all, 1 when all are 0. Of magnitudes at most 2^63.
fn common_divisor(numbers: impl Iterator<Item = u64>) -> u64 {
    let mut divisor = 0;
    for number in numbers {
        if divisor == 0 {
            divisor = number;
        } else if !number.is_multiple_of(divisor) {
            let (mut a, mut b) = (divisor, number % divisor);
            while b != 0 {
                (a, b) = (b, a % b);
            }
            divisor = a;
            if divisor == 1 {
                break;
            }
        }
    }
    divisor.max(1)
}

#[cfg(test)]
mod tests {
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
}
