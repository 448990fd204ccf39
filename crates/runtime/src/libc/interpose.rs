//! The functions of the C library that the target must not call without us.
//!
//! Each does what the original does and tells the runtime. Those that only pass on find the original
//! with `dlsym`.

use core::ffi::{c_char, c_int, c_long, c_void};
use core::sync::atomic::{AtomicU32, Ordering};

use crate::fuzz::{self, derandomise, desock};
use crate::libc::system_calls;
use crate::patching::{code, modules};
use crate::platform::handler_stacks::{self, Described};
use crate::platform::signals::{self, Wished};
use crate::platform::sys;
use crate::record::pools::{self, Request};
use crate::record::sites::{SITES, Sites, WINDOW};
use crate::record::{
    call_stacks, client_requests, generated_code, heap, pool_files, registered_ranges, remap,
    schedule, thread_private, threads,
};
use crate::{host, recovery};

unsafe extern "C" {
    fn __errno_location() -> *mut c_int;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void;
    fn pthread_key_create(key: *mut u32, end: extern "C" fn(*mut c_void)) -> c_int;
    fn pthread_setspecific(key: u32, value: *const c_void) -> c_int;
}

const RTLD_NEXT: *mut c_void = -1isize as *mut c_void;

/// The original of a function.
macro_rules! original {
    ($name:literal as $kind:ty) => {{
        use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
        static ADDRESS: AtomicUsize = AtomicUsize::new(0);
        let mut address = ADDRESS.load(Relaxed);
        if address == 0 {
            address = $crate::libc::interpose::find(concat!($name, "\0"));
            ADDRESS.store(address, Relaxed);
            $crate::fuzz::note_function(&ADDRESS, address);
        }
        // SAFETY: the C library has this function with this signature.
        unsafe { core::mem::transmute::<usize, $kind>(address) }
    }};
}
pub(crate) use original;

/// Where a name leads that any module may have.
pub(crate) fn look_up(name: &core::ffi::CStr) -> Option<u64> {
    const RTLD_DEFAULT: *mut c_void = core::ptr::null_mut();
    if !modules::is_defined(name) {
        return None;
    }
    // SAFETY: the name is a string with an end.
    let address = unsafe { dlsym(RTLD_DEFAULT, name.as_ptr()) } as u64;
    (address != 0).then_some(address)
}

/// Where the original of a function is that we stand in for; its name ends with a zero byte.
pub(crate) fn find(name: &'static str) -> usize {
    // SAFETY: the name is a string with an end.
    let address = unsafe { dlsym(RTLD_NEXT, name.as_ptr().cast()) } as usize;
    if address == 0 {
        host::fatal("the target calls a function that only powerfail has");
    }
    address
}

/// As `find`, in a version of the C library, if that has it; `version` ends with a zero byte, too.
pub(crate) fn find_version(name: &'static str, version: &'static str) -> usize {
    let (function, version) = (name.as_ptr().cast(), version.as_ptr().cast());
    // SAFETY: name and version are strings with an end.
    match unsafe { dlvsym(RTLD_NEXT, function, version) } as usize {
        0 => find(name),
        address => address,
    }
}

/// Where the calling thread's number of the last error is.
pub(crate) fn errno() -> *mut c_int {
    // SAFETY: the C library gives the place.
    unsafe { __errno_location() }
}

/// As `find`, of a function that need not be there.
pub(crate) fn maybe_find(name: &'static str) -> Option<u64> {
    let text = core::ffi::CStr::from_bytes_until_nul(name.as_bytes()).ok()?;
    if !modules::is_defined(text) {
        return None;
    }
    // SAFETY: the name is a string with an end.
    let address = unsafe { dlsym(RTLD_NEXT, name.as_ptr().cast()) } as u64;
    (address != 0).then_some(address)
}

/// Whether somebody is interested in what the target does: it is recorded, or explored.
fn is_watched() -> bool {
    host::attached() || recovery::is_active()
}

/// What explore mode makes of a system call, if that is anything.
fn explored(number: usize, arguments: [usize; 6]) -> Option<isize> {
    if recovery::is_active() {
        recovery::perform(number, arguments)
    } else {
        None
    }
}

/// The result of a raw system call, as C functions give it.
pub(crate) fn result(value: isize) -> isize {
    if value >= 0 {
        return value;
    }
    // SAFETY: the C library gives the place of this thread's errno.
    unsafe { *__errno_location() = -value as c_int };
    -1
}

#[unsafe(no_mangle)]
extern "C" fn mmap(
    address: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: c_long,
) -> *mut c_void {
    let request = registered_ranges::placed(Request {
        address: address as u64,
        len: len as u64,
        protection: protection as usize,
        flags: flags as usize,
        fd,
        offset: offset as u64,
    });
    let arguments = [
        request.address as usize,
        len,
        protection as usize,
        request.flags,
        fd as usize,
        offset as usize,
    ];
    if let Some(done) = explored(sys::number::MMAP, arguments) {
        return result(done) as *mut c_void;
    }
    fuzz::before_use(request.flags, fd);
    result(pools::map(request)) as *mut c_void
}

#[unsafe(no_mangle)]
extern "C" fn mmap64(
    address: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: c_long,
) -> *mut c_void {
    mmap(address, len, protection, flags, fd, offset)
}

#[unsafe(no_mangle)]
extern "C" fn munmap(address: *mut c_void, len: usize) -> c_int {
    result(raw_munmap([address as usize, len, 0, 0, 0, 0])) as c_int
}

/// `munmap`, with the arguments and the result of the system call.
pub(crate) fn raw_munmap(arguments: [usize; 6]) -> isize {
    if let Some(done) = explored(sys::number::MUNMAP, arguments) {
        return done;
    }
    pools::unmap(arguments[0] as u64, arguments[1] as u64).unwrap_or_else(|| {
        generated_code::changes(arguments[0] as u64, arguments[1] as u64);
        // SAFETY: what the target asked for.
        unsafe { sys::call(sys::number::MUNMAP, arguments) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn mremap(
    address: *mut c_void,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    new_address: *mut c_void,
) -> *mut c_void {
    let arguments = [
        address as usize,
        old_len,
        new_len,
        flags as usize,
        new_address as usize,
        0,
    ];
    if let Some(done) = explored(sys::number::MREMAP, arguments) {
        return result(done) as *mut c_void;
    }
    let request = remap::Request {
        address: address as u64,
        old_len: old_len as u64,
        new_len: new_len as u64,
        flags: flags as usize,
        new_address: new_address as u64,
    };
    result(remap::remap(request)) as *mut c_void
}

#[unsafe(no_mangle)]
extern "C" fn mprotect(address: *mut c_void, len: usize, protection: c_int) -> c_int {
    let arguments = [address as usize, len, protection as usize, 0, 0, 0];
    result(raw_mprotect(arguments)) as c_int
}

/// `mprotect`, with the arguments and the result of the system call.
pub(crate) fn raw_mprotect(arguments: [usize; 6]) -> isize {
    if let Some(done) = explored(sys::number::MPROTECT, arguments) {
        return done;
    }
    let (address, len) = (arguments[0] as u64, arguments[1] as u64);
    if host::attached() && WINDOW.contains(address) {
        return remap::protect(address, len, arguments[2]);
    }
    generated_code::changes(address, len);
    // SAFETY: what the target asked for.
    let done = unsafe { sys::call(sys::number::MPROTECT, arguments) };
    if done == 0 {
        generated_code::changed(address, len, arguments[2]);
    }
    done
}

#[unsafe(no_mangle)]
extern "C" fn msync(address: *mut c_void, len: usize, flags: c_int) -> c_int {
    let arguments = [address as usize, len, flags as usize, 0, 0, 0];
    result(raw_msync(arguments)) as c_int
}

/// `msync`, with the arguments and the result of the system call.
pub(crate) fn raw_msync(arguments: [usize; 6]) -> isize {
    const MS_SYNC: usize = 4;
    const PAGE_LEN: u64 = 4096;
    if let Some(done) = explored(sys::number::MSYNC, arguments) {
        return done;
    }
    schedule::step();
    // SAFETY: what the target asked for.
    let done = unsafe { sys::call(sys::number::MSYNC, arguments) };
    // Without that flag the kernel writes nothing back, whatever the others are.
    if done == 0 && arguments[2] & MS_SYNC != 0 {
        // And with it, whole pages.
        let len = (arguments[1] as u64).next_multiple_of(PAGE_LEN);
        pools::synced(arguments[0] as u64, len);
    }
    done
}

#[unsafe(no_mangle)]
extern "C" fn fsync(fd: c_int) -> c_int {
    if let Some(done) = explored(sys::number::FSYNC, [fd as usize, 0, 0, 0, 0, 0]) {
        return result(done) as c_int;
    }
    schedule::step();
    let done = original!("fsync" as extern "C" fn(c_int) -> c_int)(fd);
    if done == 0 {
        pools::file_synced(fd);
    }
    done
}

#[unsafe(no_mangle)]
extern "C" fn fdatasync(fd: c_int) -> c_int {
    if let Some(done) = explored(sys::number::FDATASYNC, [fd as usize, 0, 0, 0, 0, 0]) {
        return result(done) as c_int;
    }
    schedule::step();
    let done = original!("fdatasync" as extern "C" fn(c_int) -> c_int)(fd);
    if done == 0 {
        pools::file_synced(fd);
    }
    done
}

#[unsafe(no_mangle)]
extern "C" fn ftruncate(fd: c_int, len: c_long) -> c_int {
    let arguments = [fd as usize, len as usize, 0, 0, 0, 0];
    if let Some(done) = explored(sys::number::FTRUNCATE, arguments) {
        return result(done) as c_int;
    }
    schedule::step();
    fuzz::before_change(fd);
    let done = original!("ftruncate" as extern "C" fn(c_int, c_long) -> c_int)(fd, len);
    if done == 0 {
        pools::resized(fd, len as u64);
    }
    done
}

#[unsafe(no_mangle)]
extern "C" fn ftruncate64(fd: c_int, len: c_long) -> c_int {
    ftruncate(fd, len)
}

/// After something that may have made a pool's file longer.
fn maybe_longer(fd: c_int) {
    if pools::is_pool(fd)
        && let Some(status) = sys::fstat(fd)
    {
        pools::resized(fd, status.len_bytes);
    }
}

#[unsafe(no_mangle)]
extern "C" fn posix_fallocate(fd: c_int, offset: c_long, len: c_long) -> c_int {
    let arguments = [fd as usize, 0, offset as usize, len as usize, 0, 0];
    if let Some(done) = explored(sys::number::FALLOCATE, arguments) {
        return -done as c_int;
    }
    schedule::step();
    fuzz::before_change(fd);
    let done = original!("posix_fallocate" as extern "C" fn(c_int, c_long, c_long) -> c_int)(
        fd, offset, len,
    );
    if done == 0 {
        maybe_longer(fd);
    }
    done
}

#[unsafe(no_mangle)]
extern "C" fn posix_fallocate64(fd: c_int, offset: c_long, len: c_long) -> c_int {
    posix_fallocate(fd, offset, len)
}

#[unsafe(no_mangle)]
extern "C" fn fallocate(fd: c_int, mode: c_int, offset: c_long, len: c_long) -> c_int {
    let arguments = [
        fd as usize,
        mode as usize,
        offset as usize,
        len as usize,
        0,
        0,
    ];
    if let Some(done) = explored(sys::number::FALLOCATE, arguments) {
        return result(done) as c_int;
    }
    if pools::is_pool(fd) {
        schedule::step();
        return result(pool_files::allocate(fd, mode, offset as u64, len as u64)) as c_int;
    }
    fuzz::before_change(fd);
    original!("fallocate" as extern "C" fn(c_int, c_int, c_long, c_long) -> c_int)(
        fd, mode, offset, len,
    )
}

#[unsafe(no_mangle)]
extern "C" fn fallocate64(fd: c_int, mode: c_int, offset: c_long, len: c_long) -> c_int {
    fallocate(fd, mode, offset, len)
}

/// A function that only explore mode is interested in: passes on, or does what that wants.
macro_rules! pass_on {
    ($name:ident, $original:literal, $number:expr, ($($argument:ident: $kind:ty),*) -> $result:ty) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $kind),*) -> $result {
            let mut arguments = [0; 6];
            for (place, argument) in arguments.iter_mut().zip([$($argument as usize),*]) {
                *place = argument;
            }
            match explored($number, arguments) {
                Some(done) => result(done) as $result,
                None => original!($original as extern "C" fn($($kind),*) -> $result)($($argument),*),
            }
        }
    };
}

pass_on!(close, "close", 3, (fd: c_int) -> c_int);
pass_on!(close_range, "close_range", 436, (first: u32, last: u32, flags: c_int) -> c_int);
pass_on!(flock, "flock", 73, (fd: c_int, how: c_int) -> c_int);
// Takes one argument more at most, which is in the same place whatever it is.
pass_on!(fcntl, "fcntl", 72, (fd: c_int, command: c_int, argument: usize) -> c_int);
pass_on!(fcntl64, "fcntl64", 72, (fd: c_int, command: c_int, argument: usize) -> c_int);
pass_on!(madvise, "madvise", 28, (address: usize, len: usize, advice: c_int) -> c_int);
pass_on!(mlock, "mlock", 149, (address: usize, len: usize) -> c_int);
pass_on!(sendfile, "sendfile", 40, (to: c_int, from: c_int, at: usize, len: usize) -> isize);
pass_on!(sendfile64, "sendfile64", 40, (to: c_int, from: c_int, at: usize, len: usize) -> isize);
pass_on!(copy_file_range, "copy_file_range", 326,
    (from: c_int, at: usize, to: c_int, to_at: usize, len: usize, flags: u32) -> isize);
pass_on!(splice, "splice", 275,
    (from: c_int, at: usize, to: c_int, to_at: usize, len: usize, flags: u32) -> isize);

/// Addresses of functions of the C library whose system calls pass through us.
pub(crate) fn system_call_functions() -> Vec<u64> {
    system_calls::FUNCTIONS
        .iter()
        .filter_map(|name| maybe_find(name))
        .collect()
}

/// Where the stack of the main thread ends, as the dynamic linker has found it.
pub(crate) fn main_stack_end() -> u64 {
    // SAFETY: the name is a string with an end; what it names is a word.
    unsafe {
        let place = dlsym(RTLD_NEXT, c"__libc_stack_end".as_ptr()).cast::<u64>();
        if place.is_null() { 0 } else { place.read() }
    }
}

/// The C library's own `syscall`.
pub(crate) fn original_syscall() -> usize {
    original!("syscall" as fn()) as usize
}

/// The C library's own `clone`.
pub(crate) fn original_clone() -> usize {
    original!("clone" as fn()) as usize
}

type Routine = extern "C" fn(*mut c_void) -> *mut c_void;

struct Start {
    routine: Routine,
    argument: *mut c_void,
    /// Signals that the thread that makes this one has blocked.
    mask: u64,
    /// Which of ours it believes to have blocked.
    blocked: u64,
    /// Its number, if that is decided.
    number: Option<u32>,
}

core::arch::global_asm!(
    ".local powerfail_probe",
    "powerfail_probe:",
    "mov rax, [rsp]",
    "mov [rdi], rax",
    "xor eax, eax",
    "ret",
);

unsafe extern "C" {
    fn powerfail_probe(out: *mut c_void) -> *mut c_void;
}

/// An address in the function of the C library that calls the routine of a new thread. A thread runs
/// it before it has a block of its own, so it must not be patched.
pub(crate) fn thread_starter() -> u64 {
    type Create = extern "C" fn(
        *mut usize,
        *const c_void,
        unsafe extern "C" fn(*mut c_void) -> *mut c_void,
        *mut c_void,
    ) -> c_int;
    let (mut handle, mut address) = (0, 0u64);
    let create = original!("pthread_create" as Create);
    let alone = Solitude::save();
    if create(
        &raw mut handle,
        core::ptr::null(),
        powerfail_probe,
        (&raw mut address).cast(),
    ) == 0
    {
        type Join = extern "C" fn(usize, *mut *mut c_void) -> c_int;
        original!("pthread_join" as Join)(handle, core::ptr::null_mut());
    }
    alone.restore();
    address
}

/// Whether the C library believes that there is one thread only: then it takes no locks, which would
/// be fences. Our probe must not change that.
struct Solitude {
    single: *mut u8,
    was_single: u8,
    multiple: u32,
}

impl Solitude {
    /// Where the header of a thread, at the FS base, says that there are others.
    const MULTIPLE_THREADS_AT: u64 = 0x18;

    fn save() -> Self {
        // SAFETY: the name is a string with an end; the C library keeps a byte there, and the header
        // of this thread at the FS base.
        unsafe {
            let single = dlsym(RTLD_NEXT, c"__libc_single_threaded".as_ptr()).cast::<u8>();
            Self {
                single,
                was_single: if single.is_null() { 0 } else { single.read() },
                multiple: ((sys::fs() + Self::MULTIPLE_THREADS_AT) as *const u32).read(),
            }
        }
    }

    fn restore(&self) {
        if self.was_single == 0 || threads::has_company() {
            return;
        }
        // SAFETY: as in `save`; the only other thread there was has been joined.
        unsafe {
            self.single.write(self.was_single);
            ((sys::fs() + Self::MULTIPLE_THREADS_AT) as *mut u32).write(self.multiple);
        }
    }
}

static END_KEY: AtomicU32 = AtomicU32::new(u32::MAX);

extern "C" fn run_thread(start: *mut c_void) -> *mut c_void {
    // SAFETY: what `pthread_create` made, used once.
    let start = unsafe { Box::from_raw(start.cast::<Start>()) };
    let Start {
        routine,
        argument,
        mask,
        blocked,
        number,
    } = *start;
    if recovery::is_active() {
        threads::attach_unrecorded();
    } else {
        threads::attach_as(number);
    }
    if let Some(own) = thread_private::own() {
        // SAFETY: the state is this thread's.
        unsafe { (*own).blocked = blocked };
    }
    sys::restore_signals(mask & !signals::OURS);
    let key = END_KEY.load(Ordering::Acquire);
    if key != u32::MAX {
        // SAFETY: the key exists.
        unsafe { pthread_setspecific(key, core::ptr::without_provenance(1)) };
    }
    schedule::begin();
    routine(argument)
}

/// Called at the end of a thread, together with the destructors of the target, which may store to
/// pools: so it asks to be called again, and acts the last time but one.
extern "C" fn end_thread(round: *mut c_void) {
    const LAST: usize = 3;
    let key = END_KEY.load(Ordering::Acquire);
    if (round as usize) < LAST {
        // SAFETY: the key exists.
        unsafe { pthread_setspecific(key, core::ptr::without_provenance(round as usize + 1)) };
    } else {
        threads::detach();
    }
}

#[unsafe(no_mangle)]
extern "C" fn pthread_create(
    handle: *mut c_void,
    attributes: *const c_void,
    routine: Routine,
    argument: *mut c_void,
) -> c_int {
    type Create = extern "C" fn(*mut c_void, *const c_void, Routine, *mut c_void) -> c_int;
    let create = original!("pthread_create" as Create);
    if !is_watched() {
        return create(handle, attributes, routine, argument);
    }
    if END_KEY.load(Ordering::Acquire) == u32::MAX {
        let mut key = 0;
        // SAFETY: the key is written to this stack.
        if unsafe { pthread_key_create(&raw mut key, end_thread) } == 0 {
            END_KEY.store(key, Ordering::Release);
        }
    }
    threads::expect_company();
    if recovery::is_active() {
        recovery::expect_company();
    }
    let number = schedule::is_on().then(threads::reserve_number);
    if let Some(number) = number {
        schedule::turn();
        schedule::expect(number);
    }
    // A new thread has the GS base of this one at first: until it has its own, no handler of the
    // target may run on it.
    let mask = sys::block_signals();
    sys::restore_signals(!signals::OURS);
    let start = Box::into_raw(Box::new(Start {
        routine,
        argument,
        mask,
        // SAFETY: the state is this thread's.
        blocked: thread_private::own().map_or(0, |own| unsafe { (*own).blocked }),
        number,
    }));
    let done = create(handle, attributes, run_thread, start.cast());
    sys::restore_signals(mask);
    if let Some(number) = number.filter(|_| done != 0) {
        schedule::expect_no_more(number);
    }
    done
}

#[unsafe(no_mangle)]
extern "C" fn fork() -> c_int {
    let fork = original!("fork" as extern "C" fn() -> c_int);
    if recovery::is_active() {
        recovery::before_fork();
        let child = fork();
        if child == 0 {
            recovery::after_fork();
            derandomise::after_fork();
        }
        return child;
    }
    if !host::attached() {
        let child = fork();
        if child == 0 {
            derandomise::after_fork();
        }
        return child;
    }
    around_fork(|| fork())
}

/// Makes a process that is a copy of this one.
pub(crate) fn around_fork(fork: impl FnOnce() -> c_int) -> c_int {
    schedule::turn();
    let child = threads::around_fork(fork);
    if child == 0 {
        reset_after_fork();
        derandomise::after_fork();
        fuzz::has_forked();
    }
    child
}

/// In a process that is a copy: other threads, which may have held locks, do not exist.
pub(crate) fn reset_after_fork() {
    call_stacks::reset_after_fork();
    SITES.reset_after_fork();
    pools::reset_after_fork();
    pool_files::reset_after_fork();
    generated_code::reset_after_fork();
    code::reset_after_fork();
    client_requests::reset_after_fork();
    desock::reset_after_fork();
}

/// The target ends by itself.
pub(crate) fn conclude() {
    if host::attached() {
        client_requests::conclude();
        threads::conclude();
    }
}

#[unsafe(no_mangle)]
extern "C" fn _exit(code: c_int) -> ! {
    conclude();
    sys::exit_group(code as usize)
}

#[unsafe(no_mangle)]
extern "C" fn _Exit(code: c_int) -> ! {
    conclude();
    sys::exit_group(code as usize)
}

#[unsafe(no_mangle)]
extern "C" fn dlopen(path: *const c_char, mode: c_int) -> *mut c_void {
    type Open = extern "C" fn(*const c_char, c_int) -> *mut c_void;
    let handle = original!("dlopen" as Open)(path, mode);
    heap::look_at_modules();
    if recovery::is_active() {
        recovery::loaded_code();
    } else if host::attached() {
        Sites::update();
    }
    handle
}

#[unsafe(no_mangle)]
extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    fuzz::before_unloading();
    let done = original!("dlclose" as extern "C" fn(*mut c_void) -> c_int)(handle);
    heap::look_at_modules();
    if recovery::is_active() {
        recovery::loaded_code();
    } else if host::attached() {
        Sites::update();
    }
    done
}

/// `struct sigaction` of the C library.
#[repr(C)]
struct Action {
    handler: usize,
    mask: [u64; 16],
    flags: c_int,
    restorer: usize,
}

const SA_SIGINFO: c_int = 4;
const SA_ONSTACK: c_int = 0x0800_0000;

impl Action {
    const NONE: Self = Self {
        handler: 0,
        mask: [0; 16],
        flags: 0,
        restorer: 0,
    };

    /// What the target had wished, as it gave it.
    fn wished(wished: Wished) -> Self {
        let mut mask = [0; 16];
        mask[0] = wished.mask;
        Self {
            handler: wished.handler,
            mask,
            flags: wished.flags as c_int,
            restorer: 0,
        }
    }

    /// What the kernel is told in its place.
    fn stand_in(&self) -> Self {
        let is_function = self.handler > 1;
        let mut mask = self.mask;
        mask[0] &= !signals::OURS;
        if is_function && self.flags & SA_ONSTACK != 0 {
            // On our stack first: nobody may come in between.
            mask[0] = u64::MAX;
        }
        Self {
            handler: if is_function {
                STAND_IN as *const () as usize
            } else {
                self.handler
            },
            mask,
            flags: if is_function {
                self.flags | SA_SIGINFO
            } else {
                self.flags
            },
            restorer: self.restorer,
        }
    }
}

const STAND_IN: extern "C" fn(c_int, *mut c_void, *mut c_void) = signals::stand_in;

#[unsafe(no_mangle)]
extern "C" fn sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    type Sigaction = extern "C" fn(c_int, *const Action, *mut Action) -> c_int;
    let set = original!("sigaction" as Sigaction);
    let number = signal as usize;
    if !is_watched() || !(1..65).contains(&number) {
        return set(signal, new, old);
    }
    let is_ours = signals::OURS & 1 << (number - 1) != 0 && signals::are_installed();
    // SAFETY: the target gives a valid action or none.
    let wanted = unsafe { new.as_ref() };
    let wished = signals::wish(number);
    let mut before = Action::wished(wished);
    if let Some(wanted) = wanted
        && (is_ours || wanted.handler > 1)
    {
        // Before a stand-in for it can run.
        signals::set_wish(number, wish_of(wanted));
    }
    if !is_ours {
        let stand_in = wanted.map(Action::stand_in);
        let new = stand_in
            .as_ref()
            .map_or(core::ptr::null(), core::ptr::from_ref);
        let mut known = Action::NONE;
        let done = set(signal, new, &raw mut known);
        if done != 0 {
            return done;
        }
        if known.handler != STAND_IN as *const () as usize {
            before = known;
        }
    }
    if !old.is_null() {
        // SAFETY: the target gives a place for an action.
        unsafe { old.write(before) };
    }
    0
}

fn wish_of(action: &Action) -> Wished {
    Wished {
        handler: action.handler,
        flags: action.flags as u64,
        mask: action.mask[0],
    }
}

#[unsafe(no_mangle)]
extern "C" fn signal(number: c_int, handler: usize) -> usize {
    const SA_RESTART: c_int = 0x1000_0000;
    const SIG_ERR: usize = usize::MAX;
    let new = Action {
        handler,
        mask: [0; 16],
        flags: SA_RESTART,
        restorer: 0,
    };
    let mut old = Action::NONE;
    if sigaction(number, &raw const new, &raw mut old) == 0 {
        old.handler
    } else {
        SIG_ERR
    }
}

type MaskFunction = extern "C" fn(c_int, *const u64, *mut u64) -> c_int;

fn change_mask(change: MaskFunction, how: c_int, set: *const u64, old: *mut u64) -> c_int {
    const BLOCK: c_int = 0;
    const UNBLOCK: c_int = 1;
    let own = if is_watched() {
        thread_private::own()
    } else {
        None
    };
    let Some(own) = own else {
        return change(how, set, old);
    };
    // SAFETY: the state is this thread's; a signal set of the C library has 16 words.
    unsafe {
        let before = (*own).blocked;
        let (done, blocked) = if set.is_null() {
            (change(how, set, old), before)
        } else {
            let mut copy = set.cast::<[u64; 16]>().read();
            let ours = copy[0] & signals::OURS;
            copy[0] &= !signals::OURS;
            let blocked = match how {
                BLOCK => before | ours,
                UNBLOCK => before & !ours,
                _ => ours,
            };
            (change(how, copy.as_ptr(), old), blocked)
        };
        if done == 0 {
            (*own).blocked = blocked;
            if !old.is_null() {
                *old = *old & !signals::OURS | before;
            }
        }
        done
    }
}

#[unsafe(no_mangle)]
extern "C" fn sigprocmask(how: c_int, set: *const u64, old: *mut u64) -> c_int {
    change_mask(original!("sigprocmask" as MaskFunction), how, set, old)
}

#[unsafe(no_mangle)]
extern "C" fn pthread_sigmask(how: c_int, set: *const u64, old: *mut u64) -> c_int {
    change_mask(original!("pthread_sigmask" as MaskFunction), how, set, old)
}

#[unsafe(no_mangle)]
extern "C" fn sigaltstack(new: *const Described, old: *mut Described) -> c_int {
    if is_watched() {
        // SAFETY: what the target gave.
        if let Some(done) = unsafe { handler_stacks::exchange(new, old) } {
            return result(done) as c_int;
        }
    }
    let arguments = [new as usize, old as usize, 0, 0, 0, 0];
    // SAFETY: what the target asked for.
    result(unsafe { sys::call(sys::number::SIGALTSTACK, arguments) }) as c_int
}
