//! Builds the program that traces system calls in guests. It is static and has no library, so any C compiler for x86-64 will do.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=guest/calls.c");
    println!("cargo::rerun-if-env-changed=CC");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let status = Command::new(&compiler)
        .args(["-O2", "-Wall", "-s", "-static", "-no-pie", "-fno-pie"])
        .args(["-ffreestanding", "-nostdlib", "-nostartfiles"])
        .args(["-fno-stack-protector", "-fcf-protection=none"])
        .args(["guest/calls.c", "-o"])
        .arg(out.join("calls"))
        .status();
    let status = status.unwrap_or_else(|error| panic!("{}: {error}", compiler.display()));
    assert!(status.success(), "guest/calls.c does not compile: {status}");
}
