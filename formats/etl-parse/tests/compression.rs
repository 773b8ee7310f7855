//! The three compressions: what was compressed comes back, a peer decodes the same, and damage is
//! an error.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::io::Write;
use std::process::{Command, Stdio};

use etl_parse::encode::compress;
use etl_parse::{Compression, DecompressError, decompress};

const ALL: [Compression; 3] = [
    Compression::Lznt1,
    Compression::Xpress,
    Compression::XpressHuffman,
];

/// Numbers without a pattern, the same in every run.
fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// Noise, runs, text and repetitions, over the sizes at which the formats change.
fn inputs() -> Vec<Vec<u8>> {
    let text = b"Microsoft-Windows-Kernel-Disk reads and writes, and writes and reads again. ";
    let mut inputs = vec![vec![], vec![7], vec![7, 7], b"abcabcabcabcabc".to_vec()];
    for bytes in [
        15, 16, 17, 4095, 4096, 4097, 65_464, 65_535, 65_536, 65_537, 200_000,
    ] {
        inputs.push(noise(bytes as u64, bytes));
        inputs.push(vec![0; bytes]);
        inputs.push(text.iter().copied().cycle().take(bytes).collect());
        // Half noise, half repetition of it from afar.
        let half = noise(1, bytes / 2);
        inputs.push([half.clone(), vec![9; bytes % 300], half].concat());
        // Few symbols of very different frequency: long codes.
        let rare = noise(2, bytes).into_iter();
        inputs.push(rare.map(|byte| byte.leading_zeros() as u8 * 31).collect());
    }
    inputs
}

#[test]
fn what_was_compressed_comes_back() {
    let mut output = Vec::new();
    for input in inputs() {
        for compression in ALL {
            let packed = compress(compression, &input);
            let result = decompress(compression, &packed, input.len(), &mut output);
            assert_eq!(result, Ok(()), "{compression:?} of {} bytes", input.len());
            assert!(output == input, "{compression:?} of {} bytes", input.len());
        }
    }
}

#[test]
fn output_is_never_longer_than_asked_for() {
    let input = inputs().pop().unwrap();
    let mut output = Vec::new();
    for compression in ALL {
        let packed = compress(compression, &input);
        for bytes in [0, 1, 100, 4097, 70_000] {
            decompress(compression, &packed, bytes, &mut output).unwrap();
            assert!(output == input[..bytes], "{compression:?} {bytes}");
            assert!(output.capacity() <= 2 * input.len());
        }
    }
}

#[test]
fn a_cut_input_gives_what_stands_before_the_cut() {
    let input = &inputs().pop().unwrap()[..30_000];
    let mut output = Vec::new();
    for compression in ALL {
        let packed = compress(compression, input);
        let cut = &packed[..packed.len() / 2];
        let error = decompress(compression, cut, input.len(), &mut output).unwrap_err();
        assert!(
            matches!(
                error,
                DecompressError::Ends {
                    expected: 30_000,
                    ..
                }
            ),
            "{error}"
        );
        // The last few bits of a cut Huffman stream are read as zeroes.
        let sure = output.len().saturating_sub(16);
        assert!(
            sure > 5_000 && output[..sure] == input[..sure],
            "{compression:?}"
        );
    }
}

#[test]
fn damage_is_an_error_that_says_where() {
    let mut output = Vec::new();
    // A match before any byte.
    let xpress = [0, 0, 0, 0x80, 0x08, 0x00];
    let error = decompress(Compression::Xpress, &xpress, 9, &mut output).unwrap_err();
    assert_eq!(
        error.to_string(),
        "compressed byte 6: a match 2 bytes back, where only 0 bytes stand"
    );
    // A long length of 3, which a short one could say.
    let xpress = [0, 0, 0, 0x40, b'x', 0x07, 0x00, 0x0f, 0xff, 0x03, 0x00];
    let error = decompress(Compression::Xpress, &xpress, 9, &mut output).unwrap_err();
    assert!(
        matches!(error, DecompressError::Malformed { input: 11, .. }),
        "{error}"
    );
    let lznt1 = [0x02, 0xb0, 0x01, 0x00, 0x00];
    let error = decompress(Compression::Lznt1, &lznt1, 9, &mut output).unwrap_err();
    assert!(
        matches!(error, DecompressError::Malformed { input: 3, .. }),
        "{error}"
    );
    // A table of 512 codes of one bit.
    let error = decompress(Compression::XpressHuffman, &[0x11; 300], 9, &mut output);
    assert!(matches!(
        error,
        Err(DecompressError::Malformed { input: 0, .. })
    ));
    let error = decompress(Compression::XpressHuffman, &[0; 300], 9, &mut output);
    assert!(matches!(
        error,
        Err(DecompressError::Malformed { input: 0, .. })
    ));
}

/// Decodes with dissect.util, if it is there.
fn by_peer(compression: Compression, packed: &[u8]) -> Option<Vec<u8>> {
    let module = match compression {
        Compression::Lznt1 => "lznt1",
        Compression::Xpress => "lzxpress",
        Compression::XpressHuffman => "lzxpress_huffman",
    };
    let script = format!(
        "import sys; from dissect.util.compression import {module} as m; \
         sys.stdout.buffer.write(m.decompress(sys.stdin.buffer.read()))"
    );
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let mut child = Command::new(python)
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let written = child.stdin.take()?.write_all(packed);
    let output = child.wait_with_output().ok()?;
    (written.is_ok() && output.status.success()).then_some(output.stdout)
}

#[test]
fn a_peer_decodes_what_was_compressed_here() {
    if by_peer(Compression::Lznt1, &compress(Compression::Lznt1, b"aaaa")).is_none() {
        eprintln!("skipped: python3 has no dissect.util (pip install dissect.util)");
        return;
    }
    let inputs = inputs();
    for input in inputs.iter().filter(|input| input.len() > 100).step_by(3) {
        for compression in ALL {
            if compression == Compression::XpressHuffman && input.len() == 65_537 {
                // The peer stops where the input ends, even if it has not used its last bits: it
                // makes nothing of a last block of one byte.
                continue;
            }
            let output = by_peer(compression, &compress(compression, input)).unwrap();
            assert!(
                output.starts_with(input),
                "{compression:?} of {} bytes",
                input.len()
            );
        }
    }
}
