//! Orders: in which sequence a column takes the rows of a block.

use super::super::error::Corrupt;

/// What the rows are grouped by. Within a group they keep their sequence; groups stand in the
/// order of their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Order {
    /// As they come.
    Tape = 0,
    /// By operation.
    Op = 1,
    /// By operation and flags.
    OpFlags = 2,
    /// By device.
    Device = 3,
    /// By device, then operation.
    DeviceOp = 4,
    /// By process; rows without one first.
    Process = 5,
    /// By process, then operation.
    ProcessOp = 6,
}

impl Order {
    /// All orders, by their numbers.
    pub const ALL: [Order; 7] = [
        Order::Tape,
        Order::Op,
        Order::OpFlags,
        Order::Device,
        Order::DeviceOp,
        Order::Process,
        Order::ProcessOp,
    ];

    /// The order of a number.
    pub fn from_number(number: u8) -> Result<Order, Corrupt> {
        Order::ALL
            .get(usize::from(number))
            .copied()
            .ok_or(Corrupt::number("order", number))
    }

    /// Whether the process column must be known first.
    pub fn needs_process(self) -> bool {
        matches!(self, Order::Process | Order::ProcessOp)
    }
}

/// Bits of a combined key that hold the operation.
const OP_BITS: u32 = 8;
/// Keys below this are sorted by counting.
const COUNTED: u64 = 1 << 18;

/// The columns that rows can be grouped by, and the rows in each order that was asked for.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    /// Operation in the low byte, flags above it; one entry per row, or none while unknown.
    pub op_flags: Vec<u64>,
    /// Devices, likewise.
    pub devices: Vec<u64>,
    /// Place in the process table plus one, 0 for a row without a process, likewise.
    pub processes: Vec<u64>,
    sorted: [Vec<u32>; Order::ALL.len()],
    counts: Vec<u32>,
}

impl Keys {
    /// Forgets the rows.
    pub fn clear(&mut self) {
        self.op_flags.clear();
        self.devices.clear();
        self.processes.clear();
        self.sorted.iter_mut().for_each(Vec::clear);
    }

    /// The keys of the first rows.
    pub fn front(&self, rows: usize) -> Keys {
        let front = |keys: &[u64]| keys[..rows.min(keys.len())].to_vec();
        Keys {
            op_flags: front(&self.op_flags),
            devices: front(&self.devices),
            processes: front(&self.processes),
            ..Keys::default()
        }
    }

    /// The rows from 0 to `count` in an order.
    pub fn rows(&mut self, order: Order, count: usize) -> Result<&[u32], Corrupt> {
        let slot = order as usize;
        if self.sorted[slot].len() != count {
            let mut sorted = std::mem::take(&mut self.sorted[slot]);
            let keys = self.keys(order, count);
            if keys.len() != count {
                self.give_back(order, keys);
                return Err(Corrupt::Inconsistent {
                    what: "a column is grouped by one that is not known before it",
                });
            }
            sort(&keys, &mut self.counts, &mut sorted);
            self.give_back(order, keys);
            self.sorted[slot] = sorted;
        }
        Ok(&self.sorted[slot])
    }

    /// The key of each row; to be given back.
    fn keys(&mut self, order: Order, count: usize) -> Vec<u64> {
        let op = |op_flags: &u64| op_flags & ((1 << OP_BITS) - 1);
        let with_op = |(key, op_flags): (&u64, &u64)| key << OP_BITS | op(op_flags);
        match order {
            Order::Tape => vec![0; count],
            Order::Op => self.op_flags.iter().map(op).collect(),
            Order::OpFlags => std::mem::take(&mut self.op_flags),
            Order::Device => std::mem::take(&mut self.devices),
            Order::DeviceOp => self
                .devices
                .iter()
                .zip(&self.op_flags)
                .map(with_op)
                .collect(),
            Order::Process => std::mem::take(&mut self.processes),
            Order::ProcessOp => self
                .processes
                .iter()
                .zip(&self.op_flags)
                .map(with_op)
                .collect(),
        }
    }

    fn give_back(&mut self, order: Order, keys: Vec<u64>) {
        match order {
            Order::OpFlags => self.op_flags = keys,
            Order::Device => self.devices = keys,
            Order::Process => self.processes = keys,
            Order::Tape | Order::Op | Order::DeviceOp | Order::ProcessOp => (),
        }
    }
}

/// Puts the rows in the order of their keys.
fn sort(keys: &[u64], counts: &mut Vec<u32>, rows: &mut Vec<u32>) {
    // At least the highest key, and found without comparing.
    let highest = keys.iter().fold(0, |bits, key| bits | key);
    rows.clear();
    if highest >= COUNTED {
        rows.extend(0..keys.len() as u32);
        rows.sort_by_key(|row| keys[*row as usize]);
        return;
    }
    counts.clear();
    counts.resize(highest as usize + 1, 0);
    for key in keys {
        counts[*key as usize] += 1;
    }
    let mut start = 0;
    for count in counts.iter_mut() {
        start += std::mem::replace(count, start);
    }
    rows.resize(keys.len(), 0);
    for (row, key) in (0..).zip(keys) {
        let place = &mut counts[*key as usize];
        rows[*place as usize] = row;
        *place += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_stand_by_key_and_keep_their_sequence() {
        let mut keys = Keys {
            op_flags: vec![0x101, 0x000, 0x001, 0x100],
            devices: vec![1, 0, 0, 1],
            processes: vec![COUNTED, 0, 1, 0],
            ..Keys::default()
        };
        let expected = [
            (Order::Tape, [0, 1, 2, 3]),
            (Order::Op, [1, 3, 0, 2]),
            (Order::OpFlags, [1, 2, 3, 0]),
            (Order::Device, [1, 2, 0, 3]),
            (Order::DeviceOp, [1, 2, 3, 0]),
            (Order::Process, [1, 3, 2, 0]),
            (Order::ProcessOp, [1, 3, 2, 0]),
        ];
        for (order, rows) in expected {
            assert_eq!(keys.rows(order, 4).unwrap(), rows, "{order:?}");
        }
    }

    #[test]
    fn an_unknown_key_is_an_error() {
        let mut keys = Keys {
            op_flags: vec![0, 1],
            ..Keys::default()
        };
        assert_eq!(keys.rows(Order::Op, 2).unwrap(), [0, 1]);
        assert!(matches!(
            keys.rows(Order::Device, 2),
            Err(Corrupt::Inconsistent { .. })
        ));
        assert!(matches!(
            keys.rows(Order::DeviceOp, 2),
            Err(Corrupt::Inconsistent { .. })
        ));
        assert!(Order::from_number(7).is_err());
    }
}
