//! Any bytes as a `perf.data`, in a file and in a pipe: what is imported can be read back.
#![no_main]

use std::io::Cursor;

use iotape_formats::import::perf_data::{Options, import, import_stream};
use iotape_formats::tape::{Block, Layer, TapeReader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [layer, data @ ..] = data else {
        return;
    };
    let options = Options {
        layer: [Layer::Queue, Layer::Device][usize::from(*layer) % 2],
        ..Options::default()
    };
    let from_file = import(Cursor::new(data), &options, Vec::new(), &mut |_| ());
    if let Ok((tape, _)) = import_stream(data, &options, Vec::new(), &mut |_| ()) {
        // A pipe's content is read the same way from a file.
        assert!(from_file.as_ref().is_ok_and(|(same, _)| *same == tape));
    }
    let Ok((tape, report)) = from_file else {
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
