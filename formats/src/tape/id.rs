//! The identity of a tape's requests: a hash that does not depend on order or packing.

use std::fmt;
use std::iter::Sum;
use std::str::FromStr;

use thiserror::Error;
use xxhash_rust::xxh3::xxh3_128;

use crate::request::Request;

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

/// Size of the canonical form without the process's name.
const FIXED_BYTES: usize = 69;

impl TapeId {
    /// The id of a tape that holds just this request.
    pub fn of(request: &Request) -> TapeId {
        let name = request.process.as_ref().map_or("", |process| &process.name);
        let mut stack = [0; FIXED_BYTES + 64];
        if name.len() <= 64 {
            let end = FIXED_BYTES + name.len();
            stack[..FIXED_BYTES].copy_from_slice(&fixed_part(request));
            stack[FIXED_BYTES..end].copy_from_slice(name.as_bytes());
            return TapeId(xxh3_128(&stack[..end]));
        }
        let mut bytes = fixed_part(request).to_vec();
        bytes.extend_from_slice(name.as_bytes());
        TapeId(xxh3_128(&bytes))
    }

    /// The id of this tape's requests and another's together.
    pub fn combine(self, other: TapeId) -> TapeId {
        TapeId(self.0.wrapping_add(other.0))
    }
}

/// The canonical form: all fields, little-endian, absent ones as zero; the name follows it.
fn fixed_part(request: &Request) -> [u8; FIXED_BYTES] {
    let mut bytes = [0; FIXED_BYTES];
    let mut at = 0;
    let mut put = |field: &[u8]| {
        bytes[at..at + field.len()].copy_from_slice(field);
        at += field.len();
    };
    put(&presence(request).to_le_bytes());
    put(&[request.op.number()]);
    put(&request.device.0.to_le_bytes());
    put(&request.flags.bits().to_le_bytes());
    put(&request.time_ns.to_le_bytes());
    put(&request.offset_bytes.to_le_bytes());
    put(&request.length_bytes.to_le_bytes());
    put(&request.latency_ns.unwrap_or(0).to_le_bytes());
    put(&request.queue_ns.unwrap_or(0).to_le_bytes());
    put(&request.cgroup.unwrap_or(0).to_le_bytes());
    put(&request
        .process
        .as_ref()
        .map_or(0, |process| process.pid)
        .to_le_bytes());
    put(&request.cpu.unwrap_or(0).to_le_bytes());
    put(&request.error.unwrap_or(0).to_le_bytes());
    bytes
}

fn presence(request: &Request) -> u16 {
    [
        (request.latency_ns.is_some(), LATENCY),
        (request.queue_ns.is_some(), QUEUE),
        (request.process.is_some(), PROCESS),
        (request.cgroup.is_some(), CGROUP),
        (request.cpu.is_some(), CPU),
        (request.error.is_some(), ERROR),
    ]
    .into_iter()
    .filter(|(present, _)| *present)
    .fold(0, |mask, (_, bit)| mask | bit)
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
    use crate::request::{DeviceIndex, Flags, Op, Process};

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
