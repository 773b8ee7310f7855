//! Values on the command line: times, sizes, targets.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use iotape_capture::Rotate;
use iotape_replay::{SimSpecError, TargetSpec};

/// Bound on durations, far from every overflow.
const LONGEST: Duration = Duration::from_secs(1000 * 86_400);

/// Reads `90s`, `1.5h`, `250ms`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let expected = "expected a number and a unit (ms, s, m, h or d), such as 90s";
    let (number, unit) = split_number(text).ok_or(expected)?;
    let seconds = match unit {
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(expected.to_owned()),
    };
    match Duration::try_from_secs_f64(number * seconds) {
        Ok(duration) if duration.is_zero() => Err("must be longer than nothing".to_owned()),
        Ok(duration) if duration > LONGEST => Err("must be at most 1000d".to_owned()),
        Ok(duration) => Ok(duration),
        Err(_) => Err(expected.to_owned()),
    }
}

/// Reads how often a view changes.
pub fn interval(text: &str) -> Result<Duration, String> {
    const FROM: Duration = Duration::from_millis(100);
    const TO: Duration = Duration::from_secs(3600);
    match duration(text)? {
        interval if (FROM..=TO).contains(&interval) => Ok(interval),
        _ => Err("must be from 100ms to 1h".to_owned()),
    }
}

/// Reads a size or a duration: their units differ.
pub fn rotate(text: &str) -> Result<Rotate, String> {
    let by_size = size(text).map(Rotate::Bytes);
    by_size
        .or_else(|_| duration(text).map(Rotate::Every))
        .map_err(|_| "expected a size such as 100MiB, or a duration such as 1h".to_owned())
}

/// Reads a size that may be 0.
pub fn size_or_nothing(text: &str) -> Result<u64, String> {
    match text {
        "0" => Ok(0),
        text => size(text),
    }
}

/// Reads a positive factor.
pub fn speed(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(factor) if (1e-6..=1e6).contains(&factor) => Ok(factor),
        _ => Err("expected a number from 0.000001 to 1000000".to_owned()),
    }
}

/// Reads a path, or a simulated device behind `sim:`.
pub fn target(text: &OsStr) -> Result<TargetSpec, SimSpecError> {
    match text.to_str() {
        Some(text) if text.starts_with("sim:") => text.parse().map(TargetSpec::Sim),
        _ => Ok(TargetSpec::Path(PathBuf::from(text))),
    }
}

/// Reads `4MiB`, `64KiB`, `4096`.
pub fn size(text: &str) -> Result<u64, String> {
    let expected = "expected bytes, or a number with KiB, MiB or GiB, such as 4MiB";
    let (number, unit) = split_number(text).ok_or(expected)?;
    let bytes = match unit {
        "" | "B" => 1.0,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(expected.to_owned()),
    } * number;
    if bytes.fract() != 0.0 || !(1.0..=1e15).contains(&bytes) {
        return Err(expected.to_owned());
    }
    Ok(bytes as u64)
}

/// Reads `-1MiB`, `4096`.
pub fn shift(text: &str) -> Result<i64, String> {
    let (sign, number) = match text.strip_prefix('-') {
        Some(number) => (-1, number),
        None => (1, text),
    };
    // At most 10^15.
    Ok(sign * size(number)?.cast_signed())
}

/// Reads `sda=/dev/sdb`.
pub fn device_target(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((device, target)) if !device.is_empty() && !target.is_empty() => {
            Ok((device.to_owned(), PathBuf::from(target)))
        }
        _ => Err("expected a device of the tape, =, and a target, such as sda=/dev/sdb".to_owned()),
    }
}

fn split_number(text: &str) -> Option<(f64, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1.5h"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        for wrong in [
            "",
            "90",
            "s",
            "-1s",
            "1e9s",
            "0s",
            "99999999d",
            "nan",
            "1.2.3s",
        ] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_interval_is_neither_too_short_nor_too_long() {
        assert_eq!(interval("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(interval("1h"), Ok(Duration::from_secs(3600)));
        for wrong in ["99ms", "2h", "1", ""] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_device_and_its_target_are_split_at_the_first_sign() {
        let split = device_target("0=/dev/disk/by-id/a=b").unwrap();
        assert_eq!(
            split,
            ("0".to_owned(), PathBuf::from("/dev/disk/by-id/a=b"))
        );
        for wrong in ["sda", "=x", "sda=", ""] {
            assert!(device_target(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_segment_ends_by_size_or_by_time() {
        assert_eq!(rotate("1MiB"), Ok(Rotate::Bytes(1 << 20)));
        assert_eq!(rotate("1048576"), Ok(Rotate::Bytes(1 << 20)));
        assert_eq!(rotate("10m"), Ok(Rotate::Every(Duration::from_secs(600))));
        for wrong in ["", "1M", "0", "0s", "m"] {
            assert!(rotate(wrong).is_err(), "{wrong}");
        }
        assert_eq!(size_or_nothing("0"), Ok(0));
    }

    #[test]
    fn sizes_are_binary() {
        assert_eq!(size("4MiB"), Ok(4 << 20));
        assert_eq!(size("65536"), Ok(65_536));
        assert_eq!(size("0.5KiB"), Ok(512));
        assert_eq!((shift("-1MiB"), shift("4096")), (Ok(-1 << 20), Ok(4096)));
        assert!(shift("--1").is_err() && shift("-").is_err());
        for wrong in ["", "4MB", "0", "-4", "1.5", "9999999GiB"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
