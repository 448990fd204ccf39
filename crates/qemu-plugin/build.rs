//! Sees to it that the plugin runs with older versions of glibc.

use std::path::PathBuf;

use powerfail_runtime_build::older_glibc::{Kind, link_arguments};

fn main() {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for argument in link_arguments(&out, Kind::Library) {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
