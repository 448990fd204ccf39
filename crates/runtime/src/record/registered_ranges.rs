//! Memory that the target registers as persistent: `powerfail_register_range`.
//!
//! In a recording its content goes to a file, which is mapped in its place as a pool. In a recovery the file
//! is there, as a crash has left it, and is mapped at the address that the recovery gives.
//!
//! Pools are recorded in one window of addresses only. So memory that is to be registered must be there: a
//! target that refers to the function gets what it maps anonymously at addresses in the window, one after
//! the other and the same in every process; or it asks for an address in the window itself.
//!
//! # Safety
//!
//! `powerfail_register_range` has the contract of `powerfail.h`: the range is mapped and the name ends with a zero
//! byte. The range is replaced by a file with the same content.
#![allow(unsafe_code, reason = "maps files over memory of the target")]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;

use powerfail_protocol::WINDOW_GUARD_LEN;
use powerfail_protocol::memory::{HEAP_ADDRESS, RANGE_SUFFIX, RANGES_ADDRESS, RANGES_VARIABLE};
use powerfail_protocol::shared::{SHARED_FD_VARIABLE, WINDOW_ADDRESS};

use crate::patching::{code, modules};
use crate::platform::number::MKDIR;
use crate::platform::sys;
use crate::record::heap;
use crate::record::pools::{self, PAGE, Request};
use crate::{host, recovery};

/// Mappings begin at multiples of this.
const ALIGNMENT: u64 = 2 << 20;
/// The longest name.
const NAME_MAX: usize = 64;

/// The directory of the files, with a zero behind it; null if ranges are not recorded.
static DIRECTORY: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
/// Whether what the target maps anonymously may be registered.
static IS_EXPECTED: AtomicBool = AtomicBool::new(false);
/// Where the next such mapping goes.
static NEXT: AtomicU64 = AtomicU64::new(RANGES_ADDRESS + ALIGNMENT);

const NOT_RECORDED: c_int = 0;
const DONE: c_int = 1;
const REFUSED: c_int = -1;

/// Finds out whether ranges are recorded, and whether the target registers any.
pub(crate) fn start() {
    let Some(directory) = std::env::var_os(RANGES_VARIABLE) else {
        return;
    };
    // Who was recorded and lost the host must not write to what others record.
    let is_lost = !host::attached() && std::env::var_os(SHARED_FD_VARIABLE).is_some();
    let Ok(directory) = CString::new(directory.into_vec()) else {
        return;
    };
    if is_lost {
        return;
    }
    DIRECTORY.store(directory.into_raw().cast(), Ordering::Release);
    modules::for_each(|module| {
        if !modules::is_this(module) && module.refers_to(c"powerfail_register_range") {
            IS_EXPECTED.store(true, Ordering::Relaxed);
        }
    });
}

/// Whether the target may register memory, which must lie in the window.
pub(crate) fn are_expected() -> bool {
    IS_EXPECTED.load(Ordering::Relaxed)
}

/// What the target asks mmap for, at an address in the window if it may register it.
pub(crate) fn placed(request: Request) -> Request {
    const OTHER_FLAGS: usize = sys::MAP_FIXED | sys::MAP_FIXED_NOREPLACE | MAP_STACK | MAP_HUGETLB;
    const MAP_STACK: usize = 0x2_0000;
    const MAP_HUGETLB: usize = 0x4_0000;
    let may_be_registered = IS_EXPECTED.load(Ordering::Relaxed)
        && request.flags & sys::MAP_ANONYMOUS != 0
        && request.flags & OTHER_FLAGS == 0
        && request.protection & sys::PROT_WRITE != 0
        && request.protection & sys::PROT_EXEC == 0;
    if !may_be_registered {
        return request;
    }
    let whole = (request.len + WINDOW_GUARD_LEN).checked_next_multiple_of(ALIGNMENT);
    let room = whole.filter(|whole| *whole < HEAP_ADDRESS - RANGES_ADDRESS);
    let Some(room) = room else {
        return request;
    };
    let address = NEXT.fetch_add(room, Ordering::Relaxed);
    if address + room > HEAP_ADDRESS {
        return request;
    }
    // In a recording the addresses are reserved, and nothing else is there.
    let fixed = if host::attached() {
        sys::MAP_FIXED
    } else {
        sys::MAP_FIXED_NOREPLACE
    };
    Request {
        address,
        flags: request.flags | fixed,
        ..request
    }
}

/// Says why memory does not become a pool.
fn refuse(sentence: &str) -> c_int {
    if host::attached() || recovery::is_active() {
        host::warn(sentence);
    } else {
        heap::say(sentence);
    }
    REFUSED
}

/// Why this cannot be the name of a range, if so.
fn is_name(name: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(is_fine) && !name.starts_with('.')
}

/// Memory of the target becomes a pool with a name.
#[unsafe(no_mangle)]
extern "C" fn powerfail_register_range(
    address: *mut c_void,
    len: usize,
    name: *const c_char,
) -> c_int {
    let directory = DIRECTORY.load(Ordering::Acquire);
    if directory.is_null() {
        return NOT_RECORDED;
    }
    let (address, len) = (address as u64, len as u64);
    if name.is_null() {
        return refuse("a range that is registered needs a name");
    }
    // SAFETY: the target gives a string; the directory is one of ours, never freed.
    let (name, directory) = unsafe {
        (
            CStr::from_ptr(name).to_string_lossy(),
            CStr::from_ptr(directory.cast()),
        )
    };
    if !is_name(&name) {
        return refuse(&format!(
            "`{name}` cannot be the name of a range: at most {NAME_MAX} letters, digits and . _ - are possible"
        ));
    }
    let is_whole = address.is_multiple_of(PAGE) && len.is_multiple_of(PAGE);
    if !is_whole || len == 0 || address.checked_add(len).is_none() {
        return refuse(&format!(
            "the range {name} at {address:#x} of {len} bytes cannot be a pool: both must be multiples of {PAGE}"
        ));
    }
    let mut path = directory.to_bytes().to_vec();
    path.extend_from_slice(b"/");
    path.extend_from_slice(name.as_bytes());
    path.extend_from_slice(RANGE_SUFFIX.as_bytes());
    let Ok(path) = CString::new(path) else {
        return REFUSED;
    };
    if host::attached() {
        record(address, len, &name, directory, &path)
    } else {
        recover(address, len, &name, &path)
    }
}

/// In a recording: the content goes to a file, or comes from it if another process has registered it.
fn record(address: u64, len: u64, name: &str, directory: &CStr, path: &CStr) -> c_int {
    if !pools::is_all_other(address, len) {
        return refuse(&format!(
            "the range {name} at {address:#x} cannot be recorded: map it with mmap, without an address or at one \
             between {WINDOW_ADDRESS:#x} and {RANGES_ADDRESS:#x}"
        ));
    }
    // SAFETY: the kernel reads the path up to its zero byte. The directory may exist, so the result does not matter.
    unsafe { sys::call(MKDIR, [directory.as_ptr() as usize, 0o700, 0, 0, 0, 0]) };
    let fd = sys::open(path, sys::O_RDWR | sys::O_CREAT, 0o600);
    let before = sys::fstat(fd).map_or(0, |status| status.len_bytes);
    let is_there = match before {
        0 => fd >= 0 && write_content(fd, address, len),
        before => before == len,
    };
    let is_done = is_there && pools::map_own(address, len, fd);
    heap::close(fd);
    if !is_there {
        return refuse(&format!(
            "the range {name} of {len} bytes cannot be recorded: its file cannot be created, or has another length"
        ));
    }
    if is_done { DONE } else { REFUSED }
}

/// Writes what memory holds to a file, without its pages of zeros.
fn write_content(fd: i32, address: u64, len: u64) -> bool {
    let arguments = [fd as usize, len as usize, 0, 0, 0, 0];
    // SAFETY: the file was opened here, and `ftruncate` changes no memory of this process.
    if unsafe { sys::call(sys::number::FTRUNCATE, arguments) } != 0 {
        return false;
    }
    (0..len).step_by(PAGE as usize).all(|offset| {
        // SAFETY: memory that the target has mapped.
        let page = unsafe { code::view(address + offset, PAGE) };
        if page.iter().all(|byte| *byte == 0) {
            return true;
        }
        let place = page.as_ptr() as usize;
        let arguments = [fd as usize, place, PAGE as usize, offset as usize, 0, 0];
        // SAFETY: the kernel reads the page.
        let written = unsafe { sys::call(sys::number::PWRITE64, arguments) };
        written == PAGE as isize
    })
}

/// In a recovery: what a crash has left takes the place of the memory.
fn recover(address: u64, len: u64, name: &str, path: &CStr) -> c_int {
    let fd = recovery::open_file(path);
    if fd < 0 {
        // The workload has registered no such range.
        return NOT_RECORDED;
    }
    let before = sys::fstat(fd).map_or(0, |status| status.len_bytes);
    let is_done = before == len && recovery::map_file(address, len, sys::MAP_FIXED, fd) > 0;
    heap::close(fd);
    if !is_done {
        return refuse(&format!(
            "the range {name} had {before} bytes when it was recorded, and cannot be mapped with {len}"
        ));
    }
    DONE
}
