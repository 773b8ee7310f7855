//! The machine that replays.

use crate::result::Host;
use crate::sys;

/// What the result document says of this machine.
pub fn host() -> Host {
    Host {
        hostname: std::env::var("COMPUTERNAME").ok(),
        kernel: sys::windows_version().map(|version| format!("Windows {version}")),
        cpus: std::thread::available_parallelism()
            .ok()
            .and_then(|count| u32::try_from(count.get()).ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_name_and_a_version() {
        let host = host();
        assert!(
            host.kernel
                .is_some_and(|kernel| kernel.starts_with("Windows "))
        );
        assert!(host.hostname.is_some_and(|name| !name.is_empty()));
    }
}
