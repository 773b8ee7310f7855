//! What Windows offers a replay.

use std::path::Path;
use std::sync::Arc;

use super::Finding;
use crate::options::Profile;
use crate::sys::{self, Buffers, Opening, Port, PortOptions};
use crate::target::default_directory;

pub fn ports() -> Finding {
    let port = Buffers::new(1, 4096, 0).and_then(|buffers| {
        Port::new(
            Profile::heavy().depth,
            &[],
            Arc::new(buffers),
            PortOptions::ALL,
        )
    });
    let (ready, detail) = match port {
        Ok(_) => (true, "work".to_owned()),
        Err(error) => (false, format!("{error}; replays use the threads engine")),
    };
    Finding {
        subject: "completion ports",
        ready,
        detail,
        remedy: (!ready).then(|| "any Windows from 7 on has them".to_owned()),
    }
}

/// Whether the first disk can be opened for reading, which takes the same right as any.
pub fn disks() -> Finding {
    let opening = Opening {
        direct: true,
        ..Opening::default()
    };
    let opened = sys::open(Path::new(r"\\.\PhysicalDrive0"), opening);
    let (ready, detail) = match opened {
        Ok(_) => (true, r"\\.\PhysicalDriveN can be opened".to_owned()),
        Err(error) => (
            false,
            format!(r"\\.\PhysicalDrive0: {error}; files can be replayed against"),
        ),
    };
    Finding {
        subject: "disks",
        ready,
        detail,
        remedy: (!ready).then(|| "run as administrator".to_owned()),
    }
}

pub fn scratch() -> Finding {
    let directory = default_directory();
    let (ready, detail) = match sys::free_bytes(&directory) {
        Ok(free) => (
            true,
            format!("{} ({} MiB free)", directory.display(), free >> 20),
        ),
        Err(error) => (false, format!("{}: {error}", directory.display())),
    };
    Finding {
        subject: "scratch files",
        ready,
        detail,
        remedy: (!ready).then(|| "set TMP to a directory that exists".to_owned()),
    }
}
