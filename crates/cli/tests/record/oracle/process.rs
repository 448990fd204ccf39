//! A process under ptrace.
//!
//! # Safety
//! ptrace and `process_vm_readv` write only to the buffers that they are given here, which live until
//! the call returns and are as long as the call says; so do the calls on processors. Between fork and exec the child makes two
//! system calls and nothing else.
#![allow(unsafe_code)]

use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use libc::{c_long, c_void, user_regs_struct};

/// Where the instruction pointer is in `struct user`.
const INSTRUCTION_POINTER_AT: usize = std::mem::offset_of!(user_regs_struct, rip);
const NT_X86_XSTATE: usize = 0x202;
/// More than any processor's state takes.
const STATE_LEN: usize = 16 << 10;

/// A stopped child. Whoever started it must be the thread that uses it. It is killed when dropped.
pub(super) struct Process {
    child: Child,
    /// Where this thread may run when the child is no more.
    processors: libc::cpu_set_t,
}

/// Why a process has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// After a step.
    Step,
    /// At the beginning or the end of a system call.
    SystemCall,
    /// A signal is about to be delivered.
    Signal(i32),
    /// It has exited with this code, or a signal has ended it: that signal, negative.
    Ended(i32),
}

impl Process {
    /// Starts a program, with its addresses not randomised, and stops it before it runs.
    pub(super) fn start(mut command: Command) -> Self {
        let prepare = || {
            // SAFETY: neither call has a memory operand; see the head of the file.
            let done = unsafe {
                libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) >= 0
                    && libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) == 0
            };
            if done {
                Ok(())
            } else {
                Err(std::io::Error::last_os_error())
            }
        };
        // SAFETY: the closure makes two system calls that are allowed after fork.
        unsafe { command.pre_exec(prepare) };
        let processors = stay_here();
        let child = command.spawn().expect("the target starts");
        let process = Self { child, processors };
        assert_eq!(process.wait(), Stop::Step, "it stops when it is loaded");
        let options = libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACESYSGOOD;
        process.request(libc::PTRACE_SETOPTIONS, 0, options.cast_unsigned() as usize);
        process
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    fn request(&self, request: libc::c_uint, address: usize, data: usize) -> c_long {
        // SAFETY: callers give a number, or the address of a buffer that fits the request.
        let result = unsafe { libc::ptrace(request, self.child.id(), address, data) };
        let error = std::io::Error::last_os_error();
        assert!(
            result != -1 || request == libc::PTRACE_PEEKUSER,
            "ptrace request {request}: {error}"
        );
        result
    }

    fn wait(&self) -> Stop {
        let mut status = 0;
        // SAFETY: the status is ours.
        let waited =
            unsafe { libc::waitpid(self.child.id().cast_signed(), &raw mut status, libc::__WALL) };
        assert_eq!(waited, self.child.id().cast_signed(), "a child of ours");
        if libc::WIFEXITED(status) {
            return Stop::Ended(libc::WEXITSTATUS(status));
        }
        if libc::WIFSIGNALED(status) {
            return Stop::Ended(-libc::WTERMSIG(status));
        }
        match libc::WSTOPSIG(status) {
            libc::SIGTRAP => Stop::Step,
            number if number == libc::SIGTRAP | 0x80 => Stop::SystemCall,
            number => Stop::Signal(number),
        }
    }

    /// One instruction, and before it the delivery of a signal if that is not zero.
    pub(super) fn step(&self, signal: i32) -> Stop {
        self.request(libc::PTRACE_SINGLESTEP, 0, signal.cast_unsigned() as usize);
        self.wait()
    }

    /// Runs to the next beginning or end of a system call.
    pub(super) fn to_system_call(&self, signal: i32) -> Stop {
        self.request(libc::PTRACE_SYSCALL, 0, signal.cast_unsigned() as usize);
        self.wait()
    }

    pub(super) fn instruction_pointer(&self) -> u64 {
        self.request(libc::PTRACE_PEEKUSER, INSTRUCTION_POINTER_AT, 0)
            .cast_unsigned()
    }

    pub(super) fn registers(&self) -> user_regs_struct {
        let mut registers = std::mem::MaybeUninit::zeroed();
        self.request(libc::PTRACE_GETREGS, 0, registers.as_mut_ptr() as usize);
        // SAFETY: numbers only, for which zeros are values too.
        unsafe { registers.assume_init() }
    }

    /// A vector register of at most 32 bytes.
    pub(super) fn vector(&self, number: usize) -> [u8; 32] {
        const XMM_AT: usize = 160;
        let high_at = std::arch::x86_64::__cpuid_count(13, 2).ebx as usize;
        let mut state = vec![0_u8; STATE_LEN];
        let mut place = libc::iovec {
            iov_base: state.as_mut_ptr().cast(),
            iov_len: state.len(),
        };
        let place = &raw mut place as usize;
        self.request(libc::PTRACE_GETREGSET, NT_X86_XSTATE, place);
        let mut value = [0; 32];
        value[..16].copy_from_slice(&state[XMM_AT + 16 * number..][..16]);
        value[16..].copy_from_slice(&state[high_at + 16 * number..][..16]);
        value
    }

    /// Memory of the process; shorter if not all of it is mapped.
    pub(super) fn read(&self, address: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0_u8; len];
        let local = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: len,
        };
        // The kernel reads up to the first page that is not there, part by part.
        let page_end = (address | 0xfff) + 1;
        let first = len.min((page_end - address) as usize);
        let parts = [(address, first), (page_end, len - first)];
        let remote = parts.map(|(start, len)| libc::iovec {
            iov_base: start as *mut c_void,
            iov_len: len,
        });
        let id = self.child.id().cast_signed();
        // SAFETY: `bytes` is as long as it says; the remote side is read.
        let read =
            unsafe { libc::process_vm_readv(id, &raw const local, 1, remote.as_ptr(), 2, 0) };
        let read = usize::try_from(read).expect("the memory of a child can be read");
        bytes.truncate(read);
        bytes
    }
}

/// Keeps this thread, and the children that it starts, on the processor on which it is: two that
/// take turns need not wake each other's processor, which takes far longer than a step. Gives where it
/// was allowed to run before.
fn stay_here() -> libc::cpu_set_t {
    let mut before = std::mem::MaybeUninit::zeroed();
    let len = size_of::<libc::cpu_set_t>();
    // SAFETY: the sets are as long as it says, and zeros are a set too.
    unsafe {
        let got = libc::sched_getaffinity(0, len, before.as_mut_ptr());
        assert_eq!(got, 0, "the processors of this thread are known");
        let mut here = std::mem::zeroed();
        let number = usize::try_from(libc::sched_getcpu()).expect("a number");
        libc::CPU_SET(number, &mut here);
        assert_eq!(libc::sched_setaffinity(0, len, &raw const here), 0);
        before.assume_init()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let len = size_of::<libc::cpu_set_t>();
        // SAFETY: the set is as long as it says. If it fails, a test runs slower.
        unsafe { libc::sched_setaffinity(0, len, &raw const self.processors) };
        // Both fail if it has ended and was waited for, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
