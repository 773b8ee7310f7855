//! Numbers as tables have them, exactly: no number goes through floating point.

/// How a table writes numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// `1,234.5`
    Point,
    /// `1.234,5`
    Comma,
}

impl Mark {
    /// The mark of a number with a fraction of other than three digits, which only a decimal mark can
    /// stand before. `None` if the number does not tell.
    pub fn of(text: &str) -> Option<Mark> {
        let at = text.rfind(['.', ','])?;
        let (whole, fraction) = text.split_at(at);
        let mark = match fraction.starts_with(',') {
            true => Mark::Comma,
            false => Mark::Point,
        };
        let fraction = &fraction[1..];
        let is_number = fraction.bytes().all(|byte| byte.is_ascii_digit()) && !fraction.is_empty();
        let other_before = whole.contains(mark.thousands());
        (is_number && (fraction.len() != 3 || other_before)).then_some(mark)
    }

    fn decimal(self) -> char {
        match self {
            Mark::Point => '.',
            Mark::Comma => ',',
        }
    }

    fn thousands(self) -> char {
        match self {
            Mark::Point => ',',
            Mark::Comma => '.',
        }
    }
}

/// A number times 10 to the power of `digits`: `"1.5"` and 3 give 1,500. Digits behind these must be
/// zeroes. Thousands may be set apart by the other mark, spaces or apostrophes.
pub(super) fn scaled(text: &str, mark: Mark, digits: usize) -> Result<u64, &'static str> {
    let text = text.trim();
    let (whole, fraction) = text.split_once(mark.decimal()).unwrap_or((text, ""));
    let is_separator = |letter: char| {
        letter == mark.thousands() || matches!(letter, ' ' | '\'' | '\u{a0}' | '\u{202f}' | '’')
    };
    let kept = fraction.get(..digits.min(fraction.len())).unwrap_or("");
    let cut = fraction.get(kept.len()..).unwrap_or("");
    if cut.bytes().any(|byte| byte != b'0') {
        return Err("more digits behind the decimal mark than can be kept");
    }
    let padding = std::iter::repeat_n('0', digits - kept.len());
    let letters = whole.chars().filter(|letter| !is_separator(*letter));
    let mut value = 0u64;
    let mut any = false;
    for letter in letters.chain(kept.chars()) {
        let digit = letter.to_digit(10).ok_or("expected a number")?;
        value = push(value, digit)?;
        any = true;
    }
    if !any {
        return Err("expected a number");
    }
    padding
        .into_iter()
        .try_fold(value, |value, _| push(value, 0))
}

fn push(value: u64, digit: u32) -> Result<u64, &'static str> {
    value
        .checked_mul(10)
        .and_then(|value| value.checked_add(u64::from(digit)))
        .ok_or("a number beyond 64 bits")
}

/// A whole number: decimal, or hexadecimal behind `0x`.
pub(super) fn whole(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let parsed = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_told_where_it_is_certain() {
        let cases = [
            ("1.176567818", Some(Mark::Point)),
            ("1,176567818", Some(Mark::Comma)),
            ("12.345,176567818", Some(Mark::Comma)),
            ("12,345.176", Some(Mark::Point)),
            ("12.345", None),
            ("8,704", None),
            ("17", None),
            ("1,", None),
            ("x.y", None),
        ];
        for (text, mark) in cases {
            assert_eq!(Mark::of(text), mark, "{text}");
        }
    }

    #[test]
    fn numbers_are_exact() {
        assert_eq!(scaled("1.176567818", Mark::Point, 9), Ok(1_176_567_818));
        assert_eq!(scaled("1,176567818", Mark::Comma, 9), Ok(1_176_567_818));
        assert_eq!(scaled("12.345,5", Mark::Comma, 3), Ok(12_345_500));
        assert_eq!(scaled("16.384", Mark::Comma, 0), Ok(16_384));
        assert_eq!(scaled("8,704", Mark::Point, 0), Ok(8_704));
        assert_eq!(scaled("8\u{a0}704,250", Mark::Comma, 3), Ok(8_704_250));
        assert_eq!(scaled("5.9090", Mark::Point, 3), Ok(5_909));
        assert!(scaled("5.9091", Mark::Point, 3).is_err());
        for wrong in ["", "-1", "1e3", "n/a", "18446744073709551616", "."] {
            assert!(scaled(wrong, Mark::Point, 0).is_err(), "{wrong}");
        }
        assert_eq!(whole(" 0x4e5ec22e00"), Ok(336_597_233_152));
        assert_eq!(whole("723291 "), Ok(723_291));
        assert!(whole("0x").is_err() && whole("-1").is_err());
    }
}
