//! The library that is preloaded into targets, built for a benchmark.

use std::path::Path;
use std::process::Command;

/// The runtime, which the binary carries inside.
pub(crate) fn build() -> Vec<u8> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("runtime");
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--locked", "--release", "--package"])
        .args(["powerfail-runtime", "--target-dir"])
        .arg(&target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("CARGO_PROFILE_RELEASE_PANIC", "abort")
        .status()
        .expect("cargo runs");
    assert!(status.success(), "the runtime does not build");
    std::fs::read(target.join("release/libpowerfail_runtime.so")).expect("the runtime")
}
