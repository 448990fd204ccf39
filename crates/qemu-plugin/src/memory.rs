//! The memory of the target, which QEMU maps into its own process at a constant distance.
//!
//! # Safety
//!
//! Only what the target has just accessed, or has mapped as a pool, is read by a pointer; everything else with a system call,
//! which fails where nothing is mapped.
#![allow(unsafe_code, reason = "reads memory of the target")]

use std::sync::atomic::{AtomicU64, Ordering};

/// What is added to an address of the target.
static BASE: AtomicU64 = AtomicU64::new(0);

/// Sets the distance.
pub(crate) fn set_base(base: u64) {
    BASE.store(base, Ordering::Relaxed);
}

/// Where an address of the target is in this process.
pub(crate) fn place(address: u64) -> *const u8 {
    address.wrapping_add(BASE.load(Ordering::Relaxed)) as *const u8
}

/// Bytes that the target has just accessed.
///
/// # Safety
/// They are mapped, and stay so meanwhile.
pub(crate) unsafe fn bytes<'a>(address: u64, len: usize) -> &'a [u8] {
    // SAFETY: the caller has seen that this range is mapped.
    unsafe { core::slice::from_raw_parts(place(address), len) }
}

/// Reads as many bytes as are mapped, from an address on.
pub(crate) fn read(address: u64, out: &mut [u8]) -> usize {
    const PAGE: usize = 4096;
    let to = libc::iovec {
        iov_base: out.as_mut_ptr().cast(),
        iov_len: out.len(),
    };
    // The kernel reads whole ranges or nothing of them: one for each page.
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < out.len() {
        let start = place(address).wrapping_add(at);
        let len = (PAGE - start as usize % PAGE).min(out.len() - at);
        ranges.push(libc::iovec {
            iov_base: start.cast_mut().cast(),
            iov_len: len,
        });
        at += len;
    }
    // SAFETY: the kernel writes at most so many bytes, and checks the addresses.
    let count = unsafe {
        libc::process_vm_readv(
            libc::getpid(),
            &raw const to,
            1,
            ranges.as_ptr(),
            ranges.len() as libc::c_ulong,
            0,
        )
    };
    usize::try_from(count).unwrap_or(0)
}

/// Reads a number of up to eight bytes.
pub(crate) fn number(address: u64, len: usize) -> Option<u64> {
    let mut bytes = [0; 8];
    let part = bytes.get_mut(..len)?;
    (read(address, part) == len).then(|| u64::from_le_bytes(bytes))
}

/// Reads a text that ends with a zero.
pub(crate) fn text(address: u64) -> Vec<u8> {
    const LEN_MAX: usize = 4096;
    const PAGE: u64 = 4096;
    let mut text = Vec::new();
    while text.len() < LEN_MAX {
        let at = address + text.len() as u64;
        let mut piece = vec![0; (PAGE - at % PAGE) as usize];
        let count = read(at, &mut piece);
        let end = piece[..count].iter().position(|byte| *byte == 0);
        text.extend_from_slice(&piece[..end.unwrap_or(count)]);
        if end.is_some() || count == 0 {
            break;
        }
    }
    text
}

/// Reads texts from a list of pointers that ends with a zero, each with a zero behind it.
pub(crate) fn texts(list: u64) -> Vec<u8> {
    const COUNT_MAX: u64 = 4096;
    let mut all = Vec::new();
    for index in 0..COUNT_MAX {
        match number(list + 8 * index, 8) {
            None | Some(0) => break,
            Some(address) => {
                all.extend(text(address));
                all.push(0);
            }
        }
    }
    all
}

/// Reads a list of ranges, as `readv` takes it.
pub(crate) fn ranges(list: u64, count: u64) -> Vec<(u64, u64)> {
    const COUNT_MAX: u64 = 1024;
    (0..count.min(COUNT_MAX))
        .filter_map(|index| {
            let at = list + 16 * index;
            Some((number(at, 8)?, number(at + 8, 8)?))
        })
        .collect()
}
