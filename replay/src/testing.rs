//! What tests have in common.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A loop device over a temporary file; detached at the end.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    backing: tempfile::NamedTempFile,
}

impl LoopDevice {
    /// A device with this content and sectors of 512 bytes. `None`, having said why, where there
    /// can be none.
    pub fn with_content(content: &[u8]) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: a loop device needs root");
            return None;
        }
        let mut backing = tempfile::NamedTempFile::new().unwrap();
        backing.write_all(content).unwrap();
        backing.flush().unwrap();
        let output = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(backing.path())
            .output();
        let output = match output {
            Ok(output) if output.status.success() => output,
            other => {
                eprintln!("skipped: no loop device: {other:?}");
                return None;
            }
        };
        let path = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
        Some(LoopDevice { path, backing })
    }

    /// A device of zeros.
    pub fn of_size(bytes: usize) -> Option<Self> {
        Self::with_content(&vec![0; bytes])
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file behind it.
    pub fn backing(&self) -> &Path {
        self.backing.path()
    }

    /// Writes to its beginning.
    pub fn fill(&self, content: &[u8]) {
        let file = File::options().write(true).open(&self.path).unwrap();
        file.write_all_at(content, 0).unwrap();
        file.sync_all().unwrap();
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup")
            .arg("--detach")
            .arg(&self.path)
            .status();
    }
}
