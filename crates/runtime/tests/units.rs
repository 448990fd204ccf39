//! The unit tests of the runtime's files that depend on nothing. The runtime itself cannot be a test program: it defines
//! functions of the C library.
#![allow(
    dead_code,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "the files are parts of the runtime, which uses all of them and allows this"
)]

#[path = "../src/recovery/arithmetic.rs"]
mod arithmetic;
#[path = "../src/platform/map_lines.rs"]
mod map_lines;
#[path = "../src/libc/seccomp_filter.rs"]
mod seccomp_filter;
