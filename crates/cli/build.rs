//! Builds the runtime, which the binary carries inside itself: one file is the whole tool.

use std::env;
use std::path::PathBuf;

fn main() {
    for source in powerfail_runtime_build::sources() {
        println!("cargo::rerun-if-changed={}", source.display());
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // OUT_DIR is TARGET/PROFILE/build/PACKAGE/out.
    let target_directory = out.ancestors().nth(4).unwrap_or(&out);
    let library = powerfail_runtime_build::build(target_directory);
    println!("cargo::rustc-env=POWERFAIL_RUNTIME={}", library.display());
    // The line tables that `powerfail demo` shows are compressed. A build that does not ship links faster without.
    if env::var_os("PROFILE").is_some_and(|profile| profile == "release") {
        println!("cargo::rustc-link-arg-bins=-Wl,--compress-debug-sections=zlib");
    }
}
