//! Gives the runtime its own `memcpy`, `memmove` and `memset`, sees to it that it is initialised first, and that it runs with
//! older versions of glibc.
//!
//! Those of the C library may be patched: their trampolines would use the slots of a thread while the
//! runtime works for a trampoline of the same thread. References are resolved when the library is
//! linked, so the target's own calls are not concerned.
//!
//! Constructors of other libraries may ask what the runtime answers (`libc/early.rs`).

use std::path::PathBuf;

use powerfail_runtime_build::older_glibc::{Kind, link_arguments};

fn main() {
    for function in ["memcpy", "memmove", "memset"] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,--defsym={function}=powerfail_{function}");
    }
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,initfirst");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for argument in link_arguments(&out, Kind::Runtime) {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
