//! What holds of every decompressor.

use etl_parse::encode::compress;
use etl_parse::{Compression, decompress};

/// No input makes more than was asked for, and what was compressed comes back.
pub fn check(compression: Compression, data: &[u8]) {
    let [low, middle, high, input @ ..] = data else {
        return;
    };
    // Up to 1 MiB, which is more than a usual buffer.
    let bytes = u32::from_le_bytes([*low, *middle, *high & 0x0f, 0]) as usize;
    let mut output = Vec::new();
    let result = decompress(compression, input, bytes, &mut output);
    assert!(output.len() <= bytes);
    // A vector that grows takes at most twice what it holds.
    assert!(output.capacity() <= (2 * bytes).max(64));
    assert_eq!(result.is_ok(), output.len() == bytes);

    let packed = compress(compression, input);
    decompress(compression, &packed, input.len(), &mut output).expect("it was compressed here");
    assert_eq!(output, input);
}
