//! The fields of a sample, and those at the end of other records.

use super::attr::{Attr, field};
use crate::byte_order::ByteOrder;

/// A sample, as far as it is of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample<'a> {
    pub time: u64,
    pub cpu: Option<u32>,
    /// Thread that ran.
    pub thread: Option<u32>,
    /// The tracepoint's record.
    pub raw: &'a [u8],
}

/// Reads a sample of a tracepoint; `None` if it has no time or no record, or is too short.
pub(super) fn sample<'a>(attr: &Attr, body: &'a [u8], order: ByteOrder) -> Option<Sample<'a>> {
    let mut at = 0usize;
    let mut place = |field: u64| {
        attr.has(field).then(|| {
            at += 8;
            at - 8
        })
    };
    place(field::IDENTIFIER);
    place(field::IP);
    let thread_at = place(field::TID);
    let time_at = place(field::TIME)?;
    for field in [field::ADDR, field::ID, field::STREAM_ID] {
        place(field);
    }
    let cpu_at = place(field::CPU);
    place(field::PERIOD);
    let time = order.u64_at(body, time_at)?;
    if attr.has(field::READ) {
        at = at.checked_add(counts_bytes(attr.read_format, body, at, order)?)?;
    }
    if attr.has(field::CALLCHAIN) {
        let count = usize::try_from(order.u64_at(body, at)?).ok()?;
        at = at.checked_add(8)?.checked_add(count.checked_mul(8)?)?;
    }
    if !attr.has(field::RAW) {
        return None;
    }
    let length = usize::try_from(order.u32_at(body, at)?).ok()?;
    Some(Sample {
        time,
        cpu: cpu_at.and_then(|at| order.u32_at(body, at)),
        // The process stands before the thread.
        thread: thread_at.and_then(|at| order.u32_at(body, at + 4)),
        raw: body.get(at + 4..)?.get(..length)?,
    })
}

/// Bytes of the counts in a sample: `PERF_FORMAT_…`.
fn counts_bytes(read_format: u64, body: &[u8], at: usize, order: ByteOrder) -> Option<usize> {
    const TIMES: u64 = 1 | 2;
    const ID: u64 = 4;
    const GROUP: u64 = 8;
    const LOST: u64 = 16;
    let fields = |bits: u64| (read_format & bits).count_ones() as usize;
    let each = 1 + fields(ID | LOST);
    let all = match read_format & GROUP {
        0 => each,
        _ => {
            let count = usize::try_from(order.u64_at(body, at)?).ok()?;
            count.checked_mul(each)?.checked_add(1)?
        }
    };
    all.checked_add(fields(TIMES))?.checked_mul(8)
}

/// The time at the end of a record that is no sample; `None` if it has none.
pub(super) fn time_of_record(attr: &Attr, body: &[u8], order: ByteOrder) -> Option<u64> {
    if !attr.sample_id_all || !attr.has(field::TIME) {
        return None;
    }
    let behind = [field::ID, field::STREAM_ID, field::CPU, field::IDENTIFIER];
    let behind = behind.iter().filter(|field| attr.has(**field)).count();
    let at = body.len().checked_sub(8 * (behind + 1))?;
    order.u64_at(body, at).filter(|time| *time > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attr(sample_type: u64, read_format: u64) -> Attr {
        Attr {
            is_tracepoint: true,
            sample_type,
            read_format,
            sample_id_all: true,
            clock: None,
        }
    }

    #[test]
    fn every_field_before_the_record_is_passed() {
        let all = ((1 << 11) - 1) | field::IDENTIFIER;
        let mut body = Vec::new();
        let mut put = |numbers: &[u64]| {
            for number in numbers {
                body.extend(number.to_le_bytes());
            }
        };
        // Identifier, ip, process 7 and thread 8, time, addr, id, stream, processor 3, period.
        put(&[1, 2, 8 << 32 | 7, 4, 5, 6, 7, 3, 9]);
        // A group of two: values with ids and losses behind both times.
        put(&[2, 0, 0, 11, 12, 13, 21, 22, 23]);
        put(&[3, 31, 32, 33]); // call chain
        body.extend(4u32.to_le_bytes());
        body.extend(*b"rawx");
        let expected = Sample {
            time: 4,
            cpu: Some(3),
            thread: Some(8),
            raw: b"rawx",
        };
        let attr = attr(all, 0x1f);
        assert_eq!(sample(&attr, &body, ByteOrder::Little), Some(expected));
        for cut in 0..body.len() {
            assert_eq!(
                sample(&attr, &body[..cut], ByteOrder::Little),
                None,
                "{cut}"
            );
        }
    }

    #[test]
    fn impossible_counts_are_no_sample() {
        let read = attr(field::TIME | field::READ | field::RAW, 8);
        let mut body = vec![0xff; 64];
        assert_eq!(sample(&read, &body, ByteOrder::Little), None);
        let chain = attr(field::TIME | field::CALLCHAIN | field::RAW, 0);
        body[8..16].copy_from_slice(&(u64::MAX / 8).to_le_bytes());
        assert_eq!(sample(&chain, &body, ByteOrder::Big), None);
    }

    #[test]
    fn a_records_time_stands_before_what_is_behind_it() {
        let ends = attr(field::TID | field::TIME | field::CPU | field::IDENTIFIER, 0);
        let mut body = vec![9; 4];
        for number in [1u64, 77, 2, 3] {
            body.extend(number.to_be_bytes());
        }
        assert_eq!(time_of_record(&ends, &body, ByteOrder::Big), Some(77));
        assert_eq!(time_of_record(&ends, &body[..20], ByteOrder::Big), None);
    }
}
