//! Builds the runtime and the plugin of QEMU, which the binary carries inside itself: one file is the whole tool.

use std::env;
use std::path::PathBuf;

use powerfail_runtime_build::older_glibc::{Kind, link_arguments};

fn main() {
    for source in powerfail_runtime_build::sources() {
        println!("cargo::rerun-if-changed={}", source.display());
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // OUT_DIR is TARGET/PROFILE/build/PACKAGE/out.
    let target_directory = out.ancestors().nth(4).unwrap_or(&out);
    let libraries = powerfail_runtime_build::build(target_directory);
    println!(
        "cargo::rustc-env=POWERFAIL_RUNTIME={}",
        libraries.runtime.display()
    );
    println!(
        "cargo::rustc-env=POWERFAIL_QEMU_PLUGIN={}",
        libraries.plugin.display()
    );
    for argument in link_arguments(&out, Kind::Executable) {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
    let is_release = env::var_os("PROFILE").is_some_and(|profile| profile == "release");
    let built_from = if is_release {
        if let Some(log) = powerfail_runtime_build::commit_log() {
            println!("cargo::rerun-if-changed={}", log.display());
        }
        powerfail_runtime_build::commit()
    } else {
        // A new commit is no reason to compile everything again.
        "a debug build, whose commit is not noted".to_owned()
    };
    let version = env::var("CARGO_PKG_VERSION").expect("cargo sets it");
    let target = env::var("TARGET").expect("cargo sets it");
    let compiler = powerfail_runtime_build::compiler();
    println!(
        "cargo::rustc-env=POWERFAIL_LONG_VERSION={version} (from {built_from}; by {compiler}; for {target})"
    );
    // The line tables that `powerfail demo` shows are compressed. A build that does not ship links faster without.
    if is_release {
        println!("cargo::rustc-link-arg-bins=-Wl,--compress-debug-sections=zlib");
    }
}
