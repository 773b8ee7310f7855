//! Compiles the programs for the kernel (`src/linux/bpf/kernel`) with clang, if the feature `bpf` is on.

use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = "src/linux/bpf/kernel/recorder.bpf.c";
const HEADER: &str = "src/linux/bpf/kernel/kernel.h";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let on = std::env::var_os("CARGO_FEATURE_BPF").is_some();
    let linux = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux");
    if !on || !linux {
        return;
    }
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-changed={HEADER}");
    println!("cargo::rerun-if-env-changed=CLANG");
    if let Err(reason) = compile() {
        println!("cargo::error={reason}");
        std::process::exit(1);
    }
}

fn compile() -> Result<(), String> {
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let folder = std::env::var_os("OUT_DIR").ok_or("cargo gave no OUT_DIR")?;
    let little = std::env::var("CARGO_CFG_TARGET_ENDIAN").is_ok_and(|endian| endian == "little");
    let object = PathBuf::from(folder).join("recorder.bpf.o");
    let output = Command::new(&clang)
        .args(["-target", if little { "bpfel" } else { "bpfeb" }, "-mcpu=v3"])
        .args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-c", SOURCE, "-o"])
        .arg(&object)
        .output()
        .map_err(|error| {
            format!(
                "the feature bpf needs clang 12 or later to compile {SOURCE}, and {clang} could not \
                 be run ({error}): apt install clang, or set CLANG to its path, or build without \
                 the feature"
            )
        })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said: Vec<&str> = said.lines().collect();
    Err(format!(
        "{clang} could not compile {SOURCE} for BPF (it takes clang 12 or later: apt install clang): {}",
        said.join(" | ")
    ))
}
