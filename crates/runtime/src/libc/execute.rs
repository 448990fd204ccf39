//! `execve` and its relatives, `posix_spawn`, `system` and `popen`: the program that they start is recorded, too.
//!
//! The new program gets the variables that load the runtime and lead it to the host, whatever environment the target
//! gives it: a target may clear its environment (`env -i`) and close all descriptors. The host is told of the program, and
//! names it if the runtime does not start there. Programs that an explored recovery starts get their variables in the same
//! way, and no warning is given: the one that reads the pool may be behind a wrapper such as `env -i`.
//!
//! A child of `vfork` comes here, too. It has the memory of its parent, so what is allocated here for an environment that
//! lacks variables stays allocated in the parent.
//!
//! # Safety
//!
//! The functions have the contracts of the C functions: paths are strings, arguments and environments are lists of strings
//! with a null pointer at their end. The variables are copied once, before any other code of the target runs, and never
//! change.
#![allow(unsafe_code, reason = "stands in for functions of the C library")]

use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use std::ffi::CString;

use powerfail_protocol::explore::FILE_VARIABLE;
use powerfail_protocol::message::{MessageKind, TEXT_MAX};
use powerfail_protocol::shared::HOST_VARIABLE;

use crate::host;
use crate::platform::sys;
use crate::recovery::fork;

use super::interpose::{is_watched, original};
use super::spawn_actions;

type Strings = *const *const c_char;

unsafe extern "C" {
    static mut environ: Strings;
}

/// Beginnings of the variables that powerfail sets.
const OURS: [&str; 4] = [
    "POWERFAIL_",
    "PMEM_IS_PMEM_FORCE=",
    "PMEM2_FORCE_GRANULARITY=",
    "PMEM_MMAP_HINT=",
];
const PRELOAD: &str = "LD_PRELOAD=";
/// Of those, the ones that lead to the host of a recording and to that of a recovery.
const LEADING: [&str; 2] = [HOST_VARIABLE, FILE_VARIABLE];

/// The variables of a process that is recorded.
struct Variables {
    /// The path of the runtime.
    runtime: Vec<u8>,
    /// `LD_PRELOAD` and those of [`OURS`].
    all: Vec<CString>,
}

static VARIABLES: AtomicPtr<Variables> = AtomicPtr::new(core::ptr::null_mut());

/// The strings of a list.
///
/// # Safety
/// It is null, or ends with a null pointer, and its strings stay as they are.
unsafe fn strings<'a>(list: Strings) -> impl Iterator<Item = &'a CStr> {
    let mut at = list;
    core::iter::from_fn(move || {
        // SAFETY: by the contract the list has a null pointer at its end, behind which nothing is read.
        unsafe {
            if at.is_null() || (*at).is_null() {
                return None;
            }
            let string = CStr::from_ptr(*at);
            at = at.add(1);
            Some(string)
        }
    })
}

/// Remembers the variables that programs need to be recorded.
pub(crate) fn remember_variables() {
    // SAFETY: the environment of the process, which no other code changes yet.
    let variables = unsafe { strings(environ) };
    let is_ours = |variable: &&CStr| {
        let bytes = variable.to_bytes();
        let mut names = OURS.iter().chain([&PRELOAD]);
        names.any(|name| bytes.starts_with(name.as_bytes()))
    };
    let all: Vec<CString> = variables.filter(is_ours).map(CStr::to_owned).collect();
    let preload = all
        .iter()
        .find_map(|variable| variable.to_bytes().strip_prefix(PRELOAD.as_bytes()));
    let Some(preload) = preload else { return };
    let runtime = preload.split(|byte| *byte == b':').next();
    let runtime = runtime.unwrap_or_default().to_vec();
    let variables = Box::into_raw(Box::new(Variables { runtime, all }));
    VARIABLES.store(variables, Ordering::Release);
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    part.is_empty() || text.windows(part.len()).any(|window| window == part)
}

/// A variable with its name and `=`.
fn name_of(variable: &[u8]) -> &[u8] {
    let end = variable.iter().position(|byte| *byte == b'=');
    &variable[..end.map_or(variable.len(), |end| end + 1)]
}

/// The environment with what a program needs to be recorded; `None` if that is there.
///
/// # Safety
/// A list of strings, which stay as they are while the result is used.
unsafe fn completed(environment: Strings) -> Option<Vec<*const c_char>> {
    // SAFETY: written once, and never freed.
    let ours = unsafe { VARIABLES.load(Ordering::Acquire).as_ref() }?;
    // SAFETY: the caller passes a list of strings that ends with a null pointer.
    let given = || unsafe { strings(environment) };
    let is_there = |name: &str, part: &[u8]| {
        given().any(|variable| {
            let value = variable.to_bytes().strip_prefix(name.as_bytes());
            value.is_some_and(|value| contains(value, part))
        })
    };
    let leads = |name: &&str| {
        let mut ours = ours.all.iter();
        ours.any(|variable| variable.to_bytes().starts_with(name.as_bytes()))
    };
    let mut leading = LEADING.iter().filter(|name| leads(name));
    if is_there(PRELOAD, &ours.runtime) && leading.all(|name| is_there(name, b"")) {
        return None;
    }
    let mut all: Vec<*const c_char> = Vec::new();
    for variable in given() {
        let bytes = variable.to_bytes();
        if let Some(others) = bytes.strip_prefix(PRELOAD.as_bytes()) {
            let both = [PRELOAD.as_bytes(), &ours.runtime, b":", others].concat();
            // It is part of the environment of a program that replaces this one.
            all.extend(CString::new(both).map(|both| both.into_raw().cast_const()));
        } else {
            all.push(variable.as_ptr());
        }
    }
    for variable in &ours.all {
        let name = name_of(variable.to_bytes());
        if !given().any(|given| given.to_bytes().starts_with(name)) {
            all.push(variable.as_ptr());
        }
    }
    all.push(core::ptr::null());
    Some(all)
}

/// Tells the host what a program is given: the one that this process becomes, or that of a process which it has started.
/// Of descriptors that exec closes, it is given those that are `duplicated`.
///
/// # Safety
/// Lists of strings, which stay as they are.
unsafe fn tell_given(
    started: c_int,
    arguments: Strings,
    environment: Strings,
    duplicated: &[c_int],
) {
    const FD_CLOEXEC: isize = 1;
    const F_GETFD: usize = 1;
    const O_ACCMODE: usize = 3;
    let process = u64::from(started as c_uint);
    for (kind, list) in [(0, arguments), (1, environment)] {
        let (mut text, mut len) = ([0; TEXT_MAX], 0);
        let tell = |text: &[u8]| {
            if !text.is_empty() {
                host::send(MessageKind::ExecWords, [process, kind, 0, 0, 0], text, None);
            }
        };
        // SAFETY: the caller passes a list of strings that ends with a null pointer.
        for word in unsafe { strings(list) } {
            let word = word.to_bytes_with_nul();
            let is_ours = |name: &&str| word.starts_with(name.as_bytes());
            if kind == 1 && OURS.iter().chain([&PRELOAD]).any(is_ours) {
                continue;
            }
            for piece in word.chunks(TEXT_MAX) {
                if len + piece.len() > TEXT_MAX {
                    tell(&text[..len]);
                    len = 0;
                }
                text[len..len + piece.len()].copy_from_slice(piece);
                len += piece.len();
            }
        }
        tell(&text[..len]);
    }
    fork::for_each_file(|fd, status, flags| {
        let arguments = [fd as usize, F_GETFD, 0, 0, 0, 0];
        // SAFETY: reading the flags takes no pointer and changes nothing.
        let is_closed = unsafe { sys::call(sys::number::FCNTL, arguments) } & FD_CLOEXEC != 0;
        let is_given = !is_closed || duplicated.contains(&fd);
        if flags & O_ACCMODE != 0 && is_given && !host::owns(fd) {
            let words = [process, status.device, status.inode, 0, 0];
            host::send(MessageKind::ExecFile, words, &[], None);
        }
    });
}

/// Tells the host of a program that this process is about to execute.
///
/// # Safety
/// The path is a string.
unsafe fn announce(path: *const c_char) {
    if !path.is_null() {
        // SAFETY: the caller passes a C string or a null pointer, which is excluded.
        let path = unsafe { CStr::from_ptr(path) };
        host::send(MessageKind::Exec, [0; 5], path.to_bytes(), None);
    }
}

/// Announces a program and executes it with a complete environment.
///
/// # Safety
/// Path, arguments and environment are as `execve` takes them, and `execute` has the contract of that.
unsafe fn around_exec<T>(
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
    execute: impl FnOnce(Strings) -> T,
) -> T {
    if !is_watched() {
        return execute(environment);
    }
    if !host::attached() {
        // SAFETY: the caller passes what `execve` takes: a list that ends with a null pointer.
        let complete = unsafe { completed(environment) };
        return execute(complete.as_ref().map_or(environment, Vec::as_ptr));
    }
    // SAFETY: the caller passes what `execve` takes: a string and lists that end with a null pointer.
    let complete = unsafe {
        tell_given(0, arguments, environment, &[]);
        announce(path);
        completed(environment)
    };
    let result = execute(complete.as_ref().map_or(environment, Vec::as_ptr));
    host::send(MessageKind::ExecFailed, [0; 5], &[], None);
    result
}

/// The system calls `execve` and `execveat`.
///
/// # Safety
/// As the system call that the target wanted to make.
pub(crate) unsafe fn raw(number: usize, mut arguments: [usize; 6]) -> isize {
    let (path, place) = if number == sys::number::EXECVE {
        (arguments[0], 2)
    } else {
        (arguments[1], 3)
    };
    let environment = arguments[place] as Strings;
    let words = arguments[place - 1] as Strings;
    // SAFETY: by the contract these are the arguments of the system call.
    unsafe {
        around_exec(path as *const c_char, words, environment, |environment| {
            arguments[place] = environment as usize;
            sys::call(number, arguments)
        })
    }
}

#[unsafe(no_mangle)]
extern "C" fn execve(path: *const c_char, arguments: Strings, environment: Strings) -> c_int {
    type Execute = extern "C" fn(*const c_char, Strings, Strings) -> c_int;
    let execute = original!("execve" as Execute);
    // SAFETY: the target calls this function as the C library asks for.
    unsafe {
        around_exec(path, arguments, environment, |all| {
            execute(path, arguments, all)
        })
    }
}

#[unsafe(no_mangle)]
extern "C" fn execv(path: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: the environment of the C library.
    execve(path, arguments, unsafe { environ })
}

#[unsafe(no_mangle)]
extern "C" fn execvpe(file: *const c_char, arguments: Strings, environment: Strings) -> c_int {
    type Execute = extern "C" fn(*const c_char, Strings, Strings) -> c_int;
    let execute = original!("execvpe" as Execute);
    // SAFETY: the target calls this function as the C library asks for.
    unsafe {
        around_exec(file, arguments, environment, |all| {
            execute(file, arguments, all)
        })
    }
}

#[unsafe(no_mangle)]
extern "C" fn execvp(file: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: the environment of the C library.
    execvpe(file, arguments, unsafe { environ })
}

#[unsafe(no_mangle)]
extern "C" fn fexecve(fd: c_int, arguments: Strings, environment: Strings) -> c_int {
    type Execute = extern "C" fn(c_int, Strings, Strings) -> c_int;
    let execute = original!("fexecve" as Execute);
    let path = CString::new(format!("/proc/self/fd/{fd}")).unwrap_or_default();
    // SAFETY: the target calls this function as the C library asks for.
    unsafe {
        around_exec(path.as_ptr(), arguments, environment, |all| {
            execute(fd, arguments, all)
        })
    }
}

#[unsafe(no_mangle)]
extern "C" fn execveat(
    folder: c_int,
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
    flags: c_int,
) -> c_int {
    type Execute = extern "C" fn(c_int, *const c_char, Strings, Strings, c_int) -> c_int;
    let execute = original!("execveat" as Execute);
    // SAFETY: the target calls this function as the C library asks for.
    unsafe {
        around_exec(path, arguments, environment, |all| {
            execute(folder, path, arguments, all, flags)
        })
    }
}

/// What `execl` and its relatives were called with: the registers behind the first argument, and where the arguments on
/// the stack begin.
#[repr(C)]
struct VariableArguments {
    /// In memory as pushed: r9, r8, rcx, rdx, rsi.
    registers: [*const c_char; 5],
}

impl VariableArguments {
    /// The arguments, and what follows their end.
    ///
    /// # Safety
    /// They are as the C function takes them.
    unsafe fn read(&self, stack: Strings) -> (Vec<*const c_char>, Strings) {
        let mut all = Vec::new();
        // SAFETY: by the contract the arguments end with a null pointer, and behind it there is at least a word of the
        // stack.
        let next = |place: usize| unsafe {
            match self.registers.len().checked_sub(place + 1) {
                Some(register) => self.registers[register],
                None => *stack.add(place - self.registers.len()),
            }
        };
        loop {
            let argument = next(all.len());
            all.push(argument);
            if argument.is_null() {
                let behind = next(all.len()) as Strings;
                return (all, behind);
            }
        }
    }
}

extern "C" fn execute_list(
    path: *const c_char,
    arguments: &VariableArguments,
    stack: Strings,
) -> c_int {
    // SAFETY: the target calls `execl` as the C library asks for.
    let (arguments, _) = unsafe { arguments.read(stack) };
    execv(path, arguments.as_ptr())
}

extern "C" fn execute_list_of_file(
    file: *const c_char,
    arguments: &VariableArguments,
    stack: Strings,
) -> c_int {
    // SAFETY: the target calls `execlp` as the C library asks for.
    let (arguments, _) = unsafe { arguments.read(stack) };
    execvp(file, arguments.as_ptr())
}

extern "C" fn execute_list_with_environment(
    path: *const c_char,
    arguments: &VariableArguments,
    stack: Strings,
) -> c_int {
    // SAFETY: the target calls `execle` as the C library asks for.
    let (arguments, environment) = unsafe { arguments.read(stack) };
    execve(path, arguments.as_ptr(), environment)
}

/// A function with a variable number of arguments, which calls one that gets the place of these.
macro_rules! with_list {
    ($name:ident, $function:ident) => {
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        extern "C" fn $name() {
            naked_asm!(
                "push rsi",
                "push rdx",
                "push rcx",
                "push r8",
                "push r9",
                "mov rsi, rsp",
                "lea rdx, [rsp + 48]",
                "call {function}",
                "add rsp, 40",
                "ret",
                function = sym $function,
            )
        }
    };
}

with_list!(execl, execute_list);
with_list!(execlp, execute_list_of_file);
with_list!(execle, execute_list_with_environment);

/// `posix_spawn` and `posix_spawnp`, which differ in how they find the program.
macro_rules! spawn {
    ($name:ident, $original:literal) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name(
            process: *mut c_int,
            path: *const c_char,
            actions: *const c_void,
            attributes: *const c_void,
            arguments: Strings,
            environment: Strings,
        ) -> c_int {
            type Spawn = extern "C" fn(
                *mut c_int,
                *const c_char,
                *const c_void,
                *const c_void,
                Strings,
                Strings,
            ) -> c_int;
            let spawn = original!($original as Spawn);
            if !is_watched() {
                return spawn(process, path, actions, attributes, arguments, environment);
            }
            // SAFETY: the target calls this function as the C library asks for.
            let complete = unsafe { completed(environment) };
            let environment = complete.as_ref().map_or(environment, Vec::as_ptr);
            let mut started = 0;
            let done = spawn(
                &raw mut started,
                path,
                actions,
                attributes,
                arguments,
                environment,
            );
            if done == 0 {
                // SAFETY: the target calls this function as the C library asks for.
                unsafe {
                    if !process.is_null() {
                        process.write(started);
                    }
                    if !host::attached() {
                        return done;
                    }
                    let words = [u64::from(started as c_uint), 0, 0, 0, 0];
                    let duplicated = spawn_actions::duplicated(actions);
                    tell_given(started, arguments, environment, &duplicated);
                    let path = CStr::from_ptr(path).to_bytes();
                    host::send(MessageKind::Spawned, words, path, None);
                }
            }
            done
        }
    };
}

spawn!(posix_spawn, "posix_spawn");
spawn!(posix_spawnp, "posix_spawnp");

/// Gives the process the variables that the programs of its shell need, if it has lost them.
fn complete_own() {
    if is_watched() {
        // SAFETY: the environment of the C library, which looks for itself whether it was replaced.
        unsafe {
            if let Some(all) = completed(environ) {
                environ = all.leak().as_ptr();
            }
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn system(command: *const c_char) -> c_int {
    complete_own();
    original!("system" as extern "C" fn(*const c_char) -> c_int)(command)
}

#[unsafe(no_mangle)]
extern "C" fn popen(command: *const c_char, mode: *const c_char) -> *mut c_void {
    type Open = extern "C" fn(*const c_char, *const c_char) -> *mut c_void;
    complete_own();
    original!("popen" as Open)(command, mode)
}
