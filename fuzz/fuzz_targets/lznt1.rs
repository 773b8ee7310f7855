//! Any bytes as compressed data, and as data to compress.
#![no_main]

#[path = "../decompress.rs"]
mod decompress;

use etl_parse::Compression;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| decompress::check(Compression::Lznt1, data));
