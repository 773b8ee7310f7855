//! What holds of every tape that an import of a trace makes.

use std::io::Cursor;

use iotape_formats::tape::{Block, Summary, TapeReader};

/// It reads back whole, no latency or range is impossible, and it holds what the report says.
pub fn check(tape: Vec<u8>, expected: &Summary) {
    let mut tape = TapeReader::open(Cursor::new(tape)).expect("a tape");
    let mut block = Block::new();
    let mut requests = 0;
    while tape.next_block(&mut block).expect("a tape") {
        for request in block.requests() {
            requests += 1;
            assert!(request.end_bytes().is_some());
            let done_ns = request.time_ns.checked_add(request.latency_ns.unwrap_or(0));
            assert!(done_ns.is_some());
        }
    }
    assert!(tape.has_footer() && tape.damage().is_clean());
    assert_eq!(requests, expected.requests);
    assert_eq!(tape.summary(), expected);
}
