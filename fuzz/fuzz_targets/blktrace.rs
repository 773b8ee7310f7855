//! Any bytes as a blktrace file: no panic, every byte accounted for, the same whatever the size of
//! the pieces, and what can be encoded again decodes to the same.
#![no_main]

use blktrace_parse::{Decoder, Format, Payload, Reader, Record, SequenceTracker, Step, encode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((chunk, file)) = data.split_first() else {
        return;
    };
    let whole = decode(file.len(), file);
    assert_eq!(decode(usize::from(*chunk) + 1, file), whole);
    assert_eq!(read(file), whole);
});

/// What a file says: how many records with what sum, and its damage. `None`: not blktrace's.
type Outcome = Option<(u64, u64, String)>;

fn decode(chunk: usize, file: &[u8]) -> Outcome {
    let mut decoder = Decoder::new();
    let mut seen = Seen::default();
    let mut end = 0;
    loop {
        let start = decoder.offset() as usize;
        let (step, used) = decoder.step(&file[start..end], end == file.len()).ok()?;
        match step {
            Step::Record(record) => seen.take(&record),
            Step::Skipped => assert_ne!(used, 0),
            Step::More(wanted) => {
                assert!(wanted > end - start && used == 0);
                end = file.len().min(end + chunk);
            }
            Step::End => break,
        }
    }
    assert_eq!(decoder.offset(), file.len() as u64);
    Some((seen.records, seen.sum, format!("{:?}", decoder.damage())))
}

fn read(file: &[u8]) -> Outcome {
    let mut reader = Reader::with_buffer(file, 0);
    let mut seen = Seen::default();
    while let Some(record) = reader.next_record().ok()? {
        seen.take(&record);
    }
    Some((seen.records, seen.sum, format!("{:?}", reader.damage())))
}

#[derive(Default)]
struct Seen {
    records: u64,
    sum: u64,
    tracker: SequenceTracker,
}

impl Seen {
    fn take(&mut self, record: &Record<'_>) {
        self.records += 1;
        let payload = match record.payload() {
            Payload::Unplugged(number) | Payload::SplitAt(number) => number,
            Payload::Process(name) => name.len() as u64,
            _ => 0,
        };
        let fields = [
            record.time_ns,
            record.sector,
            record.action.0,
            u64::from(record.sequence),
            record.pdu.len() as u64,
            payload,
        ];
        for field in fields {
            self.sum = self.sum.rotate_left(7).wrapping_add(field);
        }
        self.tracker.observe(record);
        again(record);
    }
}

/// Encodes and decodes a record.
fn again(record: &Record<'_>) {
    for format in Format::ALL {
        let mut bytes = Vec::new();
        if encode(record, format, &mut bytes).is_err() {
            continue;
        }
        let mut decoder = Decoder::new();
        let (step, used) = decoder.step(&bytes, true).expect("a valid record");
        let Step::Record(copy) = step else {
            panic!("{step:?}")
        };
        // A payload that holds a header is cut there: it cannot be told from a damaged length.
        if used == bytes.len() {
            if !matches!(record.payload(), Payload::Malformed(_)) {
                assert_eq!(copy.payload(), record.payload());
            }
            assert_eq!(copy.cgroup, record.cgroup);
            assert_eq!((copy.action, copy.time_ns), (record.action, record.time_ns));
        }
    }
}
