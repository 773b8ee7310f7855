//! Any bytes as an event trace log: what is imported can be read back, and no latency or range is
//! impossible.
#![no_main]

#[path = "../reads_back.rs"]
mod reads_back;

use std::io::Cursor;

use iotape_formats::import::etl::{Options, import};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let options = Options::default();
    let Ok((tape, report)) = import(Cursor::new(data), &options, Vec::new(), &mut |_| ()) else {
        return;
    };
    report.warnings();
    reads_back::check(tape, &report.summary);
});
