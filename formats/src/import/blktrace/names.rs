//! Names of devices.
//!
//! A trace has numbers only, `major,minor`. blktrace names its files after the device unless told
//! otherwise, so the name of a set is taken for the device's if it is one that the kernel gives to
//! such a number.

use blktrace_parse::DeviceNumber;

/// The device's name, if `set`, the name of its files, is plausible for it; else its number.
pub(super) fn name_of(device: DeviceNumber, set: Option<&str>) -> String {
    match set {
        Some(set) if is_kernel_name(set, device) => set.to_owned(),
        _ => device.to_string(),
    }
}

/// Whether the kernel gives this name to a device of this number.
///
/// Source: Linux `Documentation/admin-guide/devices.txt` for the assigned majors (8 sd, 65 to 71 and
/// 128 to 135 more of them, 7 loop, 9 md, 259 block extended); the others are dynamic.
fn is_kernel_name(name: &str, device: DeviceNumber) -> bool {
    let (major, minor) = (device.major(), device.minor());
    let numbered = |prefix: &str| name.strip_prefix(prefix)?.parse::<u32>().ok();
    if let Some(disk) = name.strip_prefix("sd").and_then(letters_and_partition) {
        return Some((major, minor)) == number_of_sd(disk.0, disk.1);
    }
    if let Some(number) = numbered("loop") {
        return (major, minor) == (7, number);
    }
    if let Some(number) = numbered("md") {
        return (major, minor) == (9, number);
    }
    let is_dynamic = major >= 234;
    if let Some(number) = numbered("dm-").or_else(|| numbered("zram")) {
        return is_dynamic && minor == number;
    }
    if let Some((disk, partition)) = name.strip_prefix("vd").and_then(letters_and_partition) {
        return is_dynamic && minor == disk * 16 + partition;
    }
    let is_extended = major == 259;
    is_extended && name.strip_prefix("nvme").is_some_and(is_namespace)
}

/// Index of a disk and number of its partition: `b3` is (1, 3), `aa` is (26, 0).
fn letters_and_partition(text: &str) -> Option<(u32, u32)> {
    let end = text.find(|c: char| !c.is_ascii_lowercase());
    let (letters, digits) = text.split_at(end.unwrap_or(text.len()));
    if letters.is_empty() || letters.len() > 3 {
        return None;
    }
    let number = letters.bytes().fold(0, |number, letter| {
        number * 26 + u32::from(letter - b'a') + 1
    });
    let partition = if digits.is_empty() {
        0
    } else {
        digits.parse().ok()?
    };
    (partition < 16).then_some((number - 1, partition))
}

/// The number of an sd disk: 16 minors a disk, 16 disks a major, in 16 majors.
fn number_of_sd(disk: u32, partition: u32) -> Option<(u32, u32)> {
    let major = match disk / 16 {
        0 => 8,
        chunk @ 1..=7 => 64 + chunk,
        chunk @ 8..=15 => 120 + chunk,
        _ => return None,
    };
    Some((major, disk % 16 * 16 + partition))
}

/// The rest of a name such as `nvme0n1` or `nvme0n1p2`.
fn is_namespace(rest: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some((controller, namespace)) = rest.split_once('n') else {
        return false;
    };
    let (namespace, partition) = namespace.split_once('p').unwrap_or((namespace, "0"));
    [controller, namespace, partition]
        .into_iter()
        .all(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(major: u32, minor: u32, set: &str) -> String {
        name_of(DeviceNumber(major << 20 | minor), Some(set))
    }

    #[test]
    fn the_name_of_the_files_names_a_device_of_that_number() {
        let fitting = [
            (8, 0, "sda"),
            (8, 18, "sdb2"),
            (65, 0, "sdq"),
            (65, 160, "sdaa"),
            (128, 0, "sddy"),
            (7, 3, "loop3"),
            (9, 127, "md127"),
            (253, 4, "dm-4"),
            (252, 1, "zram1"),
            (254, 17, "vdb1"),
            (259, 0, "nvme0n1"),
            (259, 5, "nvme10n1p2"),
        ];
        for (major, minor, set) in fitting {
            assert_eq!(named(major, minor, set), set);
        }
    }

    #[test]
    fn any_other_name_is_not_believed() {
        let other = [
            (8, 16, "sda"),
            (259, 0, "trace"),
            (259, 0, "sample-cpu-mismatch"),
            (253, 4, "dm-5"),
            (8, 0, "nvme0n1"),
            (8, 0, "sd"),
            (8, 0, "sda16"),
            (0, 0, "sdzzz"),
            (259, 0, "nvme0n"),
            (7, 0, "loop"),
        ];
        for (major, minor, set) in other {
            assert_eq!(
                named(major, minor, set),
                format!("{major},{minor}"),
                "{set}"
            );
        }
        assert_eq!(name_of(DeviceNumber(8 << 20), None), "8,0");
    }
}
