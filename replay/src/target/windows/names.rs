//! What a path names: a disk, a volume, or a file.

/// What the form of a path says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// A disk, by its number.
    Disk(u32),
    /// A volume: a drive letter by itself, or a volume's own name.
    Volume,
    /// Another device, such as a pipe, a CD or a partition.
    Device,
    /// A file or directory, if it exists.
    File,
}

/// Looks at a path. Case and the kind of slashes do not matter, as they do not to the system.
pub fn classify(path: &str) -> Name {
    let path = path.replace('/', "\\");
    let device = path.strip_prefix(r"\\.\").or(path.strip_prefix(r"\\?\"));
    let Some(name) = device else {
        return match is_drive(&path) {
            true => Name::Volume,
            false => Name::File,
        };
    };
    if let Some(number) = strip_prefix(name, "PhysicalDrive") {
        // The system takes no sign and no blanks.
        let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        let number = number.parse().ok().filter(|_| digits);
        return number.map_or(Name::Device, Name::Disk);
    }
    let first = name.split('\\').next().unwrap_or_default();
    let deeper = name.len() > first.len();
    let is_volume = is_drive(first) || strip_prefix(first, "Volume{").is_some();
    match (is_volume, deeper) {
        (true, false) => Name::Volume,
        (true, true) => Name::File,
        // \\?\UNC\server\share\file
        (false, true) if strip_prefix(first, "UNC").is_some_and(str::is_empty) => Name::File,
        (false, _) => Name::Device,
    }
}

/// `C:`
fn is_drive(name: &str) -> bool {
    let bytes = name.as_bytes();
    bytes.len() == 2 && bytes[0].is_ascii_alphabetic() && bytes[1] == b':'
}

fn strip_prefix<'a>(name: &'a str, prefix: &str) -> Option<&'a str> {
    let (start, rest) = name.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_told_by_their_number() {
        assert_eq!(classify(r"\\.\PhysicalDrive0"), Name::Disk(0));
        assert_eq!(classify(r"\\.\PHYSICALDRIVE12"), Name::Disk(12));
        assert_eq!(classify(r"\\?\physicaldrive3"), Name::Disk(3));
        assert_eq!(classify("//./PhysicalDrive1"), Name::Disk(1));
        for wrong in ["", "x", "-1", "+1", " 1", "1x", "99999999999", r"1\x"] {
            let path = format!(r"\\.\PhysicalDrive{wrong}");
            assert_eq!(classify(&path), Name::Device, "{path}");
        }
    }

    #[test]
    fn volumes_are_told_from_their_files() {
        for volume in ["C:", "d:", r"\\.\C:", r"\\?\Volume{1b3b1146-4076-11e1}"] {
            assert_eq!(classify(volume), Name::Volume, "{volume}");
        }
        for file in [
            r"C:\",
            r"C:\scratch\a.bin",
            r"\\?\C:\scratch\a.bin",
            r"\\?\Volume{1b3b1146-4076-11e1}\a.bin",
            r"\\server\share\a.bin",
            r"\\?\UNC\server\share\a.bin",
            "a.bin",
            "PhysicalDrive0",
            "ä:",
        ] {
            assert_eq!(classify(file), Name::File, "{file}");
        }
    }

    #[test]
    fn other_devices_are_neither() {
        for device in [
            r"\\.\CdRom0",
            r"\\.\pipe\x",
            r"\\.\HarddiskVolume3",
            r"\\?\GLOBALROOT\Device\Null",
        ] {
            assert_eq!(classify(device), Name::Device, "{device}");
        }
    }
}
