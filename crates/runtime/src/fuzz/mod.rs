//! Repeated targets: the runtime in a process that is executed thousands of times a second.
//!
//! [`powerfail_protocol::fuzz`] says what is shared with the host and how a target is repeated. Here is the
//! target's side: [`stop_calls`] sees when it touches its pool or its input, [`level`] stops it there and forks,
//! [`noted_stores`] makes known to those who are forked later which instructions store to pools, [`learned`] what else
//! was found out about code, [`observed`] what the target does with its input, and [`main_function`] gives an execution its arguments. [`cheap_copies`] makes copies of the
//! process cheap; [`pmdk_destructors`] and [`module_destructors`] leave out what is done for nothing when one ends.
//!
//! A copy of a process is recorded as the same thread: it continues with the block of that thread as it was at
//! the fork (`threads::Saved`). Its records are read by the host when it has ended.
//!
//! # Safety
//!
//! The area is mapped once, at fixed addresses that are free, before `is_active` says so, and stays mapped for
//! good; all that changes in it is atomic. The functions that need this are allowed to use `unsafe` one by one, so
//! that the files of this room have to ask for themselves.

mod cheap_copies;
pub(crate) mod coverage;
pub(crate) mod derandomise;
pub(crate) mod desock;
mod execution;
mod frees;
mod learned;
mod level;
mod main_function;
mod module_destructors;
mod noted_stores;
pub(crate) mod observed;
mod pmdk_destructors;
mod stop_calls;

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use powerfail_protocol::fuzz::{AREA_ADDRESS, AREA_LEN, Area, flag};
use powerfail_protocol::message::MessageKind;
use powerfail_protocol::shared::Reply;

use crate::host;
use crate::platform::sys;
use crate::record::sites::Sites;
use crate::record::{call_stacks, faults};

pub(crate) use cheap_copies::{instead_of, loaded_libpmemobj, map_block};
pub(crate) use learned::{note_function, note_rule, note_stack};
pub(crate) use module_destructors::before_unloading;
pub(crate) use noted_stores::note;
pub(crate) use stop_calls::{before_call, before_change, before_use, functions};

static ACTIVE: AtomicBool = AtomicBool::new(false);

/// Whether this process is one of a repeated target.
pub(crate) fn is_active() -> bool {
    ACTIVE.load(Ordering::Relaxed)
}

/// What is shared with the host. Only if the target is repeated.
#[allow(unsafe_code, reason = "the area lies at a fixed address")]
pub(crate) fn area() -> &'static Area {
    debug_assert!(is_active());
    // SAFETY: mapped since `attach`, for good; all that changes in it is atomic.
    unsafe { &*(AREA_ADDRESS as *const Area) }
}

/// Whether something is asked for: a bit of [`powerfail_protocol::fuzz::flag`].
pub(crate) fn has_flag(bit: u32) -> bool {
    is_active() && area().flags.load(Ordering::Relaxed) & bit != 0
}

/// Maps what the host shares for it, if the target is repeated.
#[allow(unsafe_code, reason = "maps the area")]
pub(crate) fn attach(shared: i32) {
    let offset = host::control().area_at;
    if offset == 0 {
        return;
    }
    let both = sys::PROT_READ | sys::PROT_WRITE;
    let flags = sys::MAP_SHARED | sys::MAP_FIXED_NOREPLACE;
    // SAFETY: MAP_FIXED_NOREPLACE fails where something is mapped, so no memory that is in use changes.
    let result = unsafe { sys::mmap(AREA_ADDRESS, AREA_LEN, both, flags, shared, offset) };
    if result != AREA_ADDRESS as isize {
        host::fatal("the address range that powerfail needs for fuzzing is in use");
    }
    // A process that was not made by `fork`, such as the command of a shell script, comes here first.
    sys::end_with_parent(sys::getppid());
    learned::attach();
    ACTIVE.store(true, Ordering::Relaxed);
}

/// Looks at all code before `main` runs, so that what is forked has it done already. Not earlier: the C library
/// must have been initialised to say that it does not have a function.
#[allow(unsafe_code, reason = "calls `free` of the C library")]
fn start() {
    unsafe extern "C" {
        fn free(address: *mut core::ffi::c_void);
    }
    if is_active() {
        // A function that is not found leaves a message, which the next search gives back: where that leads
        // must be known by then.
        // SAFETY: `free` of null does nothing; the compiler must not know that it is null, or it would leave out the
        // call.
        unsafe { free(core::hint::black_box(core::ptr::null_mut())) };
        coverage::start();
        faults::install();
        Sites::start();
        call_stacks::prepare();
        pmdk_destructors::find(free as *const () as u64);
        module_destructors::find();
        // The descriptor would be one that the target does not expect.
        crate::patching::code::reset_after_fork();
    } else if host::attached() && derandomise::is_on() {
        // What comes of a test case has to be the same when it is recorded: so what this takes of the memory of
        // the C library is taken at the same time.
        // SAFETY: `free` of null does nothing; the compiler must not know that it is null, or it would leave out the
        // call.
        unsafe { free(core::hint::black_box(core::ptr::null_mut())) };
        faults::install();
        Sites::start();
    }
}

/// The target is about to touch its input.
pub(crate) fn reached_input() {
    if is_active() {
        level::reached_input();
    }
}

/// This process is a copy that the target itself has made of `parent`: it ends with it.
pub(crate) fn has_forked(parent: u32) {
    if is_active() {
        sys::end_with_parent(parent);
    }
}

/// Wakes the host.
fn call_host() {
    let host = &area().host;
    host.fetch_add(1, Ordering::AcqRel);
    sys::futex_wake(host);
}

/// A message was sent, which the host reads when it has seen that there is one.
pub(crate) fn has_sent() {
    if is_active() {
        area().messages.fetch_add(1, Ordering::AcqRel);
        call_host();
    }
}

/// A thread waits for a chunk.
pub(crate) fn starve() {
    if is_active() {
        area().starving.fetch_add(1, Ordering::AcqRel);
        call_host();
    }
}

/// Decides about a file that is about to be mapped: what lies in the directory of the pool is a pool.
pub(crate) fn decide(path: &[u8], [address, len, offset]: [u64; 3]) -> Reply {
    if !stop_calls::is_in_directory(path) {
        return Reply::Ignore;
    }
    host::send(
        MessageKind::PoolMap,
        [address, len, offset, 0, 0],
        path,
        None,
    );
    Reply::Record
}

/// A path in the area.
fn path_in_area(bytes: &'static [u8], len: &AtomicU32) -> &'static [u8] {
    &bytes[..(len.load(Ordering::Relaxed) as usize).min(bytes.len())]
}

/// The directory of the pool.
fn directory() -> &'static [u8] {
    let area = area();
    path_in_area(&area.directory, &area.directory_len)
}

/// The file that is the input.
fn input() -> &'static [u8] {
    let area = area();
    path_in_area(&area.input, &area.input_len)
}

/// Whether the process is one execution and stops nowhere.
fn runs_through() -> bool {
    has_flag(flag::THROUGH)
}
