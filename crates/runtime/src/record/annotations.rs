//! Annotations: what the target says about itself by the functions of `powerfail.h`.
//!
//! The header names the function of this file weakly, so a target has it only while the runtime is there.
//! In a recording an annotation is a mark with its call stack; a recovery that is explored notes what is said
//! of its reads ([`crate::recovery`]); in every other process nothing comes of it.
//!
//! # Safety
//!
//! The exported function has the contract of `powerfail.h`: a payload that is not null has as many readable bytes
//! as the target says.
#![allow(unsafe_code, reason = "reads what the target passes")]

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

use powerfail_protocol::{EventKind, MAX_VALUE_LEN, mark};

use crate::record::append;
use crate::{host, recovery};

/// Bit of a stage: the workload.
const BEFORE: c_int = 1;

/// The longest payload of a mark: what a record has room for behind code and value.
const PAYLOAD_LEN_MAX: usize = MAX_VALUE_LEN as usize - 16;

static CUT: AtomicBool = AtomicBool::new(false);

/// An annotation of the target. `code` is one of [`mark`]; of one with ranges, `address` and `second` are
/// where they begin, of any other one `address` is its payload.
#[unsafe(no_mangle)]
extern "C" fn powerfail_annotation(
    code: u32,
    value: u64,
    address: *const c_void,
    len: usize,
    second: *const c_void,
    second_len: usize,
    stage: c_int,
) {
    if recovery::is_active() {
        let bytes = |address: *const c_void, len: usize| recovery::Bytes {
            address: address as u64,
            len: len as u64,
        };
        let other = (!second.is_null()).then(|| bytes(second, second_len));
        recovery::annotation(code, bytes(address, len), other, stage);
    } else if host::attached() && stage & BEFORE != 0 {
        if code & mark::HAS_RANGES == 0 {
            record_payload(code, value, address.cast(), len);
        } else {
            let words = [address as usize, len, second as usize, second_len];
            let count = if second.is_null() { 2 } else { 4 };
            record(
                code,
                value,
                words.map(usize::to_le_bytes)[..count].as_flattened(),
            );
        }
    }
}

/// Records that a range of memory is what `code` says.
pub(crate) fn about(code: u32, address: usize, len: usize) {
    if host::attached() {
        record(
            code,
            0,
            [address, len].map(usize::to_le_bytes).as_flattened(),
        );
    }
}

fn record(code: u32, value: u64, rest: &[u8]) {
    let numbers = [code.into(), value].map(u64::to_le_bytes);
    append::append(EventKind::Mark, None, &[numbers.as_flattened(), rest]);
}

fn record_payload(code: u32, value: u64, payload: *const u8, len: usize) {
    if payload.is_null() || len == 0 {
        record(code, value, &[]);
        return;
    }
    if len > PAYLOAD_LEN_MAX && !CUT.swap(true, Ordering::Relaxed) {
        host::warn(&format!(
            "a mark of the target is longer than {PAYLOAD_LEN_MAX} bytes; the rest of it, and of further marks like it, is not recorded"
        ));
    }
    // SAFETY: the target says that so many bytes are there.
    let payload = unsafe { core::slice::from_raw_parts(payload, len.min(PAYLOAD_LEN_MAX)) };
    record(code, value, payload);
}
