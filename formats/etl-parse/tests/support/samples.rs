//! Real traces, which are not part of the repository.

use std::fs;
use std::path::Path;
use std::process::Command;

/// The bytes of a sample; those of the packed ones (`.xz`, `.zip`) are unpacked by Python. `None`,
/// and the reason on standard error, when that cannot be.
pub fn sample(name: &str) -> Option<Vec<u8>> {
    let folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let folder = folders
        .map(|folder| folder.join("shared/samples/etl"))
        .find(|folder| folder.is_dir());
    let Some(folder) = folder else {
        eprintln!("skipped: no shared/samples/etl beside the repository");
        return None;
    };
    let path = folder.join(name);
    if !path.is_file() {
        eprintln!("skipped: no {}", path.display());
        return None;
    }
    let script = match path.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => "import lzma, sys; sys.stdout.buffer.write(lzma.open(sys.argv[1]).read())",
        Some("zip") => {
            "import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); \
             sys.stdout.buffer.write(z.read([n for n in z.namelist() if n.endswith('.etl')][0]))"
        }
        _ => return fs::read(&path).ok(),
    };
    let unpacked = Command::new("python3")
        .arg("-c")
        .arg(script)
        .arg(&path)
        .output();
    match unpacked {
        Ok(output) if output.status.success() => Some(output.stdout),
        other => {
            eprintln!(
                "skipped: python3 cannot unpack {}: {other:?}",
                path.display()
            );
            None
        }
    }
}
