//! Annotations: what the target says about itself by the functions of `powerfail.h`.
//!
//! The header names the function of this file weakly, so a target has it only while the runtime is there.
//! In a recording an annotation is a mark with its call stack; in a recovery that is explored it is
//! noted by [`crate::explore`]; in every other process nothing comes of it.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

use powerfail_abi::{EventKind, MAX_VALUE_LEN, mark};

use crate::{append, explore, host};

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
    if explore::is_active() {
        let bytes = |address: *const c_void, len: usize| explore::Bytes {
            address: address as u64,
            len: len as u64,
        };
        let other = (!second.is_null()).then(|| bytes(second, second_len));
        explore::annotation(code, bytes(address, len), other, stage);
        return;
    }
    if !host::attached() || stage & BEFORE == 0 {
        return;
    }
    let code_word = u64::from(code).to_le_bytes();
    let value = value.to_le_bytes();
    if code & mark::HAS_RANGES != 0 {
        let words = [address as usize, len, second as usize, second_len].map(usize::to_le_bytes);
        let count = if second.is_null() { 2 } else { 4 };
        let ranges = words[..count].as_flattened();
        append::append(EventKind::Mark, None, &[&code_word, &value, ranges]);
        return;
    }
    let kept = if address.is_null() {
        0
    } else {
        len.min(PAYLOAD_LEN_MAX)
    };
    if kept < len && !address.is_null() && !CUT.swap(true, Ordering::Relaxed) {
        host::warn(&format!(
            "the payload of a mark of the target is longer than {PAYLOAD_LEN_MAX} bytes; the rest of it is not in the trace"
        ));
    }
    // SAFETY: the target says that so many bytes are there.
    let payload = if kept == 0 {
        &[]
    } else {
        unsafe { core::slice::from_raw_parts(address.cast::<u8>(), kept) }
    };
    append::append(EventKind::Mark, None, &[&code_word, &value, payload]);
}
