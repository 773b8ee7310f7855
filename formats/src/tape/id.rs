//! The identity of a tape's requests: a hash that does not depend on order or packing.

use std::fmt;
use std::iter::Sum;
use std::str::FromStr;

use thiserror::Error;
use xxhash_rust::xxh3::xxh3_128;

use crate::request::{Process, Request};

/// A hash of the requests: the sum, modulo 2^128, of the XXH3-128 of each.
///
/// A sum does not depend on the order, so the id is the same however the requests were arranged
/// and packed, and the ids of blocks add up to that of the tape. Shown as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TapeId(pub u128);

const LATENCY: u16 = 1 << 0;
const QUEUE: u16 = 1 << 1;
const PROCESS: u16 = 1 << 2;
const CGROUP: u16 = 1 << 3;
const CPU: u16 = 1 << 4;
const ERROR: u16 = 1 << 5;

const PRESENCE_AT: usize = 0;
const OP_AT: usize = PRESENCE_AT + size_of::<u16>();
const DEVICE_AT: usize = OP_AT + size_of::<u8>();
const FLAGS_AT: usize = DEVICE_AT + size_of::<u16>();
const TIME_AT: usize = FLAGS_AT + size_of::<u32>();
const OFFSET_AT: usize = TIME_AT + size_of::<u64>();
const LENGTH_AT: usize = OFFSET_AT + size_of::<u64>();
const LATENCY_AT: usize = LENGTH_AT + size_of::<u64>();
const QUEUE_AT: usize = LATENCY_AT + size_of::<u64>();
const CGROUP_AT: usize = QUEUE_AT + size_of::<u64>();
const PID_AT: usize = CGROUP_AT + size_of::<u64>();
const CPU_AT: usize = PID_AT + size_of::<u32>();
const ERROR_AT: usize = CPU_AT + size_of::<u32>();
/// Size of the canonical form without the process's name.
const FIXED_BYTES: usize = ERROR_AT + size_of::<u32>();
/// Longest name that is hashed without asking for memory.
const SHORT_NAME: usize = 59;

/// A canonical form with a short name.
type Form = [u8; FIXED_BYTES + SHORT_NAME];

impl TapeId {
    /// The id of a tape that holds just this request.
    pub fn of(request: &Request) -> TapeId {
        let mut sum = IdSum::default();
        sum.add(request, name_of(request.process.as_ref()));
        sum.take()
    }

    /// The id of this tape's requests and another's together.
    pub fn combine(self, other: TapeId) -> TapeId {
        TapeId(self.0.wrapping_add(other.0))
    }
}

/// Forms that wait to be hashed.
const BATCH: usize = 16;

/// Adds up the ids of requests.
///
/// A hash reads the form in other pieces than it was written in, for which a processor has to wait
/// while the writes are under way. So some forms are written before the first of them is hashed.
#[derive(Clone)]
pub(super) struct IdSum {
    forms: [Form; BATCH],
    sizes: [usize; BATCH],
    waiting: usize,
    sum: TapeId,
}

impl Default for IdSum {
    fn default() -> IdSum {
        IdSum {
            forms: [[0; FIXED_BYTES + SHORT_NAME]; BATCH],
            sizes: [0; BATCH],
            waiting: 0,
            sum: TapeId::default(),
        }
    }
}

impl IdSum {
    /// Adds the id of a request, whose process's name may be a copy.
    pub fn add(&mut self, request: &Request, name: &str) {
        let form = &mut self.forms[self.waiting];
        put_fixed_part(request, form);
        let size = FIXED_BYTES + name.len();
        if let Some(room) = form.get_mut(FIXED_BYTES..size) {
            room.copy_from_slice(name.as_bytes());
            self.sizes[self.waiting] = size;
            self.waiting += 1;
            if self.waiting == BATCH {
                self.hash();
            }
        } else {
            let mut bytes = form[..FIXED_BYTES].to_vec();
            bytes.extend_from_slice(name.as_bytes());
            self.sum = self.sum.combine(TapeId(xxh3_128(&bytes)));
        }
    }

    /// The sum so far, which begins anew.
    pub fn take(&mut self) -> TapeId {
        self.hash();
        std::mem::take(&mut self.sum)
    }

    fn hash(&mut self) {
        let forms = self.forms[..self.waiting].iter().zip(&self.sizes);
        self.sum = forms.fold(self.sum, |sum, (form, size)| {
            sum.combine(TapeId(xxh3_128(&form[..*size])))
        });
        self.waiting = 0;
    }
}

/// The name of a process, empty without one.
pub(super) fn name_of(process: Option<&Process>) -> &str {
    process.map_or("", |process| &process.name)
}

/// The canonical form: all fields, little-endian, absent ones as zero; the name follows it.
fn put_fixed_part(request: &Request, form: &mut Form) {
    fn put<const N: usize>(form: &mut Form, at: usize, field: [u8; N]) {
        form[at..at + N].copy_from_slice(&field);
    }
    let pid = request.process.as_ref().map_or(0, |process| process.pid);
    put(form, PRESENCE_AT, presence(request).to_le_bytes());
    put(form, OP_AT, [request.op.number()]);
    put(form, DEVICE_AT, request.device.0.to_le_bytes());
    put(form, FLAGS_AT, request.flags.bits().to_le_bytes());
    put(form, TIME_AT, request.time_ns.to_le_bytes());
    put(form, OFFSET_AT, request.offset_bytes.to_le_bytes());
    put(form, LENGTH_AT, request.length_bytes.to_le_bytes());
    put(
        form,
        LATENCY_AT,
        request.latency_ns.unwrap_or(0).to_le_bytes(),
    );
    put(form, QUEUE_AT, request.queue_ns.unwrap_or(0).to_le_bytes());
    put(form, CGROUP_AT, request.cgroup.unwrap_or(0).to_le_bytes());
    put(form, PID_AT, pid.to_le_bytes());
    put(form, CPU_AT, request.cpu.unwrap_or(0).to_le_bytes());
    put(form, ERROR_AT, request.error.unwrap_or(0).to_le_bytes());
}

fn presence(request: &Request) -> u16 {
    let bit = |present, bit| if present { bit } else { 0 };
    bit(request.latency_ns.is_some(), LATENCY)
        | bit(request.queue_ns.is_some(), QUEUE)
        | bit(request.process.is_some(), PROCESS)
        | bit(request.cgroup.is_some(), CGROUP)
        | bit(request.cpu.is_some(), CPU)
        | bit(request.error.is_some(), ERROR)
}

impl Sum for TapeId {
    fn sum<I: Iterator<Item = TapeId>>(ids: I) -> TapeId {
        ids.fold(TapeId::default(), TapeId::combine)
    }
}

impl fmt::Display for TapeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Text that is not a tape's id.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{0:?} is not a tape id, expected 32 hexadecimal digits")]
pub struct InvalidTapeId(pub String);

impl FromStr for TapeId {
    type Err = InvalidTapeId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let hexadecimal = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        match u128::from_str_radix(text, 16) {
            Ok(id) if hexadecimal => Ok(TapeId(id)),
            _ => Err(InvalidTapeId(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{DeviceIndex, Flags, Op};

    fn requests() -> [Request; 3] {
        let plain = Request {
            time_ns: 1000,
            offset_bytes: 4096,
            length_bytes: 8192,
            ..Request::default()
        };
        let full = Request {
            time_ns: u64::MAX,
            device: DeviceIndex(u16::MAX),
            op: Op::Other,
            flags: Flags::from_bits(u32::MAX),
            offset_bytes: 1 << 63,
            length_bytes: 1,
            latency_ns: Some(0),
            queue_ns: Some(2),
            process: Some(Process {
                pid: 4242,
                name: "imap".into(),
            }),
            cgroup: Some(99),
            cpu: Some(3),
            error: Some(5),
            // No part of the id.
            file: Some(77),
        };
        let long_name = Request {
            time_ns: 5,
            device: DeviceIndex(1),
            op: Op::Flush,
            flags: Flags::PREFLUSH,
            process: Some(Process {
                pid: 1,
                name: "x".repeat(100).into(),
            }),
            ..Request::default()
        };
        [plain, full, long_name]
    }

    /// The values are those of Python's `struct` and `xxhash` over the same fields.
    #[test]
    fn ids_are_the_sum_of_xxh3_over_the_canonical_form() {
        let expected = [
            "969b7d92f2b795f8bb394c3fa58a23b2",
            "857953b1f2eb9db042808de307491452",
            "9ea3766a322722ab34e26b238443b573",
        ];
        for (request, expected) in requests().iter().zip(expected) {
            assert_eq!(TapeId::of(request).to_string(), expected);
        }
        let sum: TapeId = requests().iter().map(TapeId::of).sum();
        assert_eq!(sum.to_string(), "bab847af17ca5654329c45463116ed77");
        let backwards: TapeId = requests().iter().rev().map(TapeId::of).sum();
        assert_eq!(backwards, sum);
    }

    #[test]
    fn a_missing_value_is_not_a_zero() {
        let absent = Request::default();
        let zero = Request {
            latency_ns: Some(0),
            ..Request::default()
        };
        assert_ne!(TapeId::of(&absent), TapeId::of(&zero));
    }

    #[test]
    fn ids_are_32_digits() {
        let id = TapeId(0xab);
        assert_eq!(id.to_string(), "000000000000000000000000000000ab");
        assert_eq!(id.to_string().parse(), Ok(id));
        for text in [
            "",
            "ab",
            "0000000000000000000000000000000g",
            "+00000000000000000000000000000ab",
        ] {
            assert_eq!(text.parse::<TapeId>(), Err(InvalidTapeId(text.into())));
        }
    }
}
