//! How disks are named.

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// A physical disk, by its number.
    Disk(u32),
    /// The disk that a volume is on, by its lower-case letter.
    Volume(char),
}

impl Named {
    /// Reads `0`, `PhysicalDrive0`, `\\.\PhysicalDrive0`, `C:` or `C:\`.
    pub fn parse(name: &str) -> Option<Named> {
        let bare = name.strip_prefix(r"\\.\").unwrap_or(name);
        let lower = bare.to_ascii_lowercase();
        let number = lower.strip_prefix("physicaldrive").unwrap_or(&lower);
        if number.bytes().all(|byte| byte.is_ascii_digit())
            && let Ok(number) = number.parse()
        {
            return Some(Named::Disk(number));
        }
        match lower.as_bytes() {
            [letter, b':'] | [letter, b':', b'\\' | b'/'] if letter.is_ascii_alphabetic() => {
                Some(Named::Volume(char::from(*letter)))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_named_by_number_path_or_volume() {
        for (name, disk) in [
            ("0", 0),
            ("12", 12),
            ("PhysicalDrive3", 3),
            (r"\\.\PHYSICALDRIVE7", 7),
        ] {
            assert_eq!(Named::parse(name), Some(Named::Disk(disk)), "{name}");
        }
        for (name, letter) in [("C:", 'c'), (r"d:\", 'd'), ("e:/", 'e'), (r"\\.\F:", 'f')] {
            assert_eq!(Named::parse(name), Some(Named::Volume(letter)), "{name}");
        }
        for name in [
            "",
            "+1",
            "-1",
            "C",
            "1:",
            "CD:",
            r"C:\x",
            "4294967296",
            "sda",
            "PhysicalDrive",
        ] {
            assert_eq!(Named::parse(name), None, "{name}");
        }
    }
}
