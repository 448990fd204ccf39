//! Gives the runtime its own `memcpy`, `memmove` and `memset`, and sees to it that it is initialised first.
//!
//! Those of the C library may be patched: their trampolines would use the slots of a thread while the
//! runtime works for a trampoline of the same thread. References are resolved when the library is
//! linked, so the target's own calls are not concerned.
//!
//! Constructors of other libraries may ask what the runtime answers (`libc/early.rs`).

fn main() {
    for function in ["memcpy", "memmove", "memset"] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,--defsym={function}=powerfail_{function}");
    }
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,initfirst");
    println!("cargo::rerun-if-changed=build.rs");
}
