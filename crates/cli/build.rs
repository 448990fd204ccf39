//! Builds the runtime, which the binary carries inside itself: one file is the whole tool.
//!
//! Cargo cannot yet depend on a library of another crate as a file, so this calls it again, with a
//! target directory of its own.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let crates = Path::new(&variable("CARGO_MANIFEST_DIR")).join("..");
    for watched in ["runtime", "patch", "protocol", "unwind"] {
        println!("cargo::rerun-if-changed={}", crates.join(watched).display());
    }
    println!(
        "cargo::rerun-if-changed={}",
        crates.join("../Cargo.lock").display()
    );
    let target = PathBuf::from(variable("OUT_DIR")).join("runtime");
    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .args([
            "build",
            "--release",
            "--locked",
            "--package",
            "powerfail-runtime",
        ])
        .arg("--target-dir")
        .arg(&target)
        .current_dir(&crates)
        // Small and quiet: nobody debugs it from inside a target.
        .env("CARGO_PROFILE_RELEASE_STRIP", "true")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
        .env("CARGO_PROFILE_RELEASE_PANIC", "abort");
    // What this build was told is not for that one.
    for name in [
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTC_WRAPPER",
        "CARGO_ENCODED_RUSTFLAGS",
        "RUSTFLAGS",
    ] {
        cargo.env_remove(name);
    }
    let status = cargo.status().expect("cargo runs");
    assert!(status.success(), "the runtime does not build: {status}");
    let library = target.join("release/libpowerfail_runtime.so");
    println!("cargo::rustc-env=POWERFAIL_RUNTIME={}", library.display());
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}
