//! Any bytes as an event trace log: what is imported can be read back, and no latency or range is
//! impossible.
#![no_main]

use std::io::Cursor;

use iotape_formats::import::etl::{Options, import};
use iotape_formats::tape::{Block, TapeReader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let options = Options::default();
    let Ok((tape, report)) = import(Cursor::new(data), &options, Vec::new(), &mut |_| ()) else {
        return;
    };
    report.warnings();
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
    assert_eq!(requests, report.summary.requests);
    assert_eq!(tape.summary(), &report.summary);
});
