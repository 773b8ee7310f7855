//! The machine that replays.

use crate::result::Host;

/// What the result document says of this machine.
pub fn host() -> Host {
    let uname = rustix::system::uname();
    let text = |value: &std::ffi::CStr| value.to_string_lossy().into_owned();
    Host {
        hostname: Some(text(uname.nodename())),
        kernel: Some(format!(
            "{} {}",
            text(uname.sysname()),
            text(uname.release())
        )),
        cpus: std::thread::available_parallelism()
            .ok()
            .and_then(|n| u32::try_from(n.get()).ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_name_and_a_kernel() {
        let host = host();
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        assert_eq!(host.kernel.unwrap(), format!("Linux {}", release.trim()));
        assert!(!host.hostname.unwrap().is_empty());
    }
}
