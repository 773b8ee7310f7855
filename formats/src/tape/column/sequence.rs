//! A sequence: the values of a column, through order, prediction, layout and codec.

use std::io;

use super::super::error::Corrupt;
use super::layout::{self, Layout, Scratch};
use super::order::{Keys, Order};
use super::stream::{Packer, Unpacker, get_byte};
use super::transform::{Prediction, Signs, Transform};

/// The values of a column before they are encoded: one entry per row of the block.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    /// The values; anything where a row has none.
    pub values: &'a [u64],
    /// Lengths of the requests, for offsets; may be empty for other columns.
    pub lengths: &'a [u64],
    /// Which rows have a value; all when empty.
    pub present: &'a [bool],
}

impl Values<'_> {
    /// The numbers that a plan makes of the values.
    pub fn numbers(
        &self,
        order: Order,
        prediction: Prediction,
        signs: Signs,
        keys: &mut Keys,
        numbers: &mut Vec<u64>,
    ) -> Result<Transform, Corrupt> {
        let lengths = |row: usize| self.lengths.get(row).copied().unwrap_or(0);
        let at = |row: usize| (self.values[row], lengths(row));
        if order == Order::Tape && self.present.is_empty() {
            return Ok(Transform::find(
                prediction,
                signs,
                (0..self.values.len()).map(at),
                numbers,
            ));
        }
        let rows = keys
            .rows(order, self.values.len())?
            .iter()
            .map(|row| *row as usize);
        let rows = rows.filter(|row| self.present.get(*row).copied().unwrap_or(true));
        Ok(Transform::find(prediction, signs, rows.map(at), numbers))
    }
}

/// Appends a sequence. A layout that cannot hold the numbers gives way to planes.
pub fn put(
    order: Order,
    transform: &Transform,
    layout: Layout,
    numbers: &[u64],
    packer: &mut Packer,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    out.push(order as u8);
    transform.put(out);
    if !layout.put(numbers, packer, out)? {
        Layout::Planes.put(numbers, packer, out)?;
    }
    Ok(())
}

/// The order of a sequence, before it is taken.
pub fn peek_order(bytes: &[u8]) -> Result<Order, Corrupt> {
    Order::from_number(*bytes.first().ok_or(Corrupt::Short {
        what: "sequence",
        bytes: 0,
    })?)
}

/// Where a sequence's values go: one entry per row of the block.
pub struct Target<'a> {
    /// Number of rows.
    pub rows: usize,
    /// Which rows have a value; all when empty.
    pub present: &'a [bool],
    /// How many rows have a value.
    pub count: usize,
    /// Lengths of the requests, for offsets; may be empty for other columns.
    pub lengths: &'a [u64],
    /// The values; 0 where a row has none.
    pub values: &'a mut Vec<u64>,
}

/// Decodes sequences.
pub struct Decoder {
    /// Decompresses their streams.
    pub unpacker: Unpacker,
    scratch: Scratch,
    numbers: Vec<u64>,
}

impl Decoder {
    /// A decoder.
    pub fn new() -> io::Result<Decoder> {
        Ok(Decoder {
            unpacker: Unpacker::new()?,
            scratch: Scratch::default(),
            numbers: Vec::new(),
        })
    }

    /// Takes a sequence off the front of `bytes`.
    pub fn get(
        &mut self,
        bytes: &mut &[u8],
        keys: &mut Keys,
        target: &mut Target<'_>,
    ) -> Result<(), Corrupt> {
        let order = Order::from_number(get_byte(bytes).ok_or(Corrupt::Short {
            what: "sequence",
            bytes: 0,
        })?)?;
        let transform = Transform::get(bytes)?;
        if transform.prediction == Prediction::PreviousEnd && target.lengths.len() != target.rows {
            return Err(Corrupt::Inconsistent {
                what: "a column other than offset is predicted from ends",
            });
        }
        layout::get(
            bytes,
            target.count,
            &mut self.unpacker,
            &mut self.scratch,
            &mut self.numbers,
        )?;
        transform.restore_distances(&mut self.numbers);
        if order == Order::Tape && target.present.is_empty() {
            add_up(&transform, &mut self.numbers, target.lengths);
            std::mem::swap(target.values, &mut self.numbers);
            return Ok(());
        }
        let rows = keys
            .rows(order, target.rows)?
            .iter()
            .map(|row| *row as usize);
        target.values.clear();
        target.values.resize(target.rows, 0);
        if target.present.is_empty() {
            scatter(
                &transform,
                &self.numbers,
                rows,
                target.lengths,
                target.values,
            );
        } else {
            let rows = rows.filter(|row| target.present[*row]);
            scatter(
                &transform,
                &self.numbers,
                rows,
                target.lengths,
                target.values,
            );
        }
        Ok(())
    }
}

/// Turns distances into values in place, for rows as they come.
fn add_up(transform: &Transform, distances: &mut [u64], lengths: &[u64]) {
    let mut before = transform.start;
    match transform.prediction {
        Prediction::None => (),
        Prediction::Previous => {
            for distance in distances {
                before = before.wrapping_add(*distance);
                *distance = before;
            }
        }
        Prediction::PreviousEnd => {
            for (distance, length) in distances.iter_mut().zip(lengths) {
                *distance = distance.wrapping_add(before);
                before = distance.wrapping_add(*length);
            }
        }
    }
}

/// Turns distances into values, each in its row.
fn scatter(
    transform: &Transform,
    distances: &[u64],
    rows: impl Iterator<Item = usize>,
    lengths: &[u64],
    values: &mut [u64],
) {
    let mut before = transform.start;
    let pairs = distances.iter().zip(rows);
    match transform.prediction {
        Prediction::None => pairs.for_each(|(distance, row)| values[row] = *distance),
        Prediction::Previous => pairs.for_each(|(distance, row)| {
            before = before.wrapping_add(*distance);
            values[row] = before;
        }),
        Prediction::PreviousEnd => pairs.for_each(|(distance, row)| {
            values[row] = before.wrapping_add(*distance);
            before = values[row].wrapping_add(lengths[row]);
        }),
    }
}
