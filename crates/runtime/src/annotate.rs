//! Annotations: what the target says about itself by the functions of `powerfail.h`.
//!
//! The header names the function of this file weakly, so a target has it only while the runtime is there.

use core::ffi::{c_int, c_void};

use crate::explore;

/// An annotation of the target. `code` is one of [`powerfail_abi::mark`]; of one with ranges, `address` and
/// `second` are where they begin.
#[unsafe(no_mangle)]
extern "C" fn powerfail_annotation(
    code: u32,
    _value: u64,
    address: *const c_void,
    len: usize,
    second: *const c_void,
    second_len: usize,
    stage: c_int,
) {
    if explore::is_active() {
        let bytes = |address: *const c_void, len: usize| explore::Bytes {
            address: address as u64,
            len: len as u64,
        };
        let other = (!second.is_null()).then(|| bytes(second, second_len));
        explore::annotation(code, bytes(address, len), other, stage);
    }
}
