//! Gives the runtime its own `memcpy`, `memmove` and `memset`.
//!
//! Those of the C library may be patched: their trampolines would use the slots of a thread while the
//! runtime works for a trampoline of the same thread. References are resolved when the library is
//! linked, so the target's own calls are not concerned.

fn main() {
    for function in ["memcpy", "memmove", "memset"] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,--defsym={function}=powerfail_{function}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
