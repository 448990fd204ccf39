//! A process under ptrace.
//!
//! # Safety
//! ptrace and `process_vm_readv` write only to the buffers that are passed here, which live until the call returns and
//! are as long as the call says; the same holds for the calls on processor sets. Between fork and exec the child makes
//! only two system calls.
#![allow(unsafe_code)]

use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use libc::{c_long, c_void, user_regs_struct};

/// The offset of the instruction pointer in `struct user`.
const INSTRUCTION_POINTER_AT: usize = std::mem::offset_of!(user_regs_struct, rip);
const NT_X86_XSTATE: usize = 0x202;
/// Larger than the state of any processor.
const STATE_LEN: usize = 16 << 10;

/// A stopped child. Only the thread that started it may use it. It is killed when dropped.
pub(super) struct Process {
    child: Child,
    /// The processors that this thread may use again after the child has ended.
    processors: libc::cpu_set_t,
}

/// Why a process stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// After a step.
    Step,
    /// At the beginning or the end of a system call.
    SystemCall,
    /// A signal is about to be delivered.
    Signal(i32),
    /// It has exited with this code, or was killed by a signal, which is given as a negative number.
    Ended(i32),
}

impl Process {
    /// Starts a program with address space randomisation disabled, and stops it before it runs.
    pub(super) fn start(mut command: Command) -> Self {
        let prepare = || {
            // SAFETY: neither call has a memory operand; see the module header.
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
        // SAFETY: callers pass a number, or the address of a buffer that fits the request.
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

    /// Executes one instruction; delivers a signal first if it is not zero.
    pub(super) fn step(&self, signal: i32) -> Stop {
        self.request(libc::PTRACE_SINGLESTEP, 0, signal.cast_unsigned() as usize);
        self.wait()
    }

    /// Runs to the next entry or exit of a system call.
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
        // SAFETY: numbers only, for which zero is a valid value.
        unsafe { registers.assume_init() }
    }

    /// A vector register of at most 32 bytes.
    pub(super) fn vector(&self, number: usize) -> [u8; 32] {
        const XMM_AT: usize = 160;
        let high_at = std::arch::x86_64::__cpuid_count(13, 2).ebx as usize;
        let state = self.extended_state();
        let mut value = [0; 32];
        value[..16].copy_from_slice(&state[XMM_AT + 16 * number..][..16]);
        value[16..].copy_from_slice(&state[high_at + 16 * number..][..16]);
        value
    }

    /// One of the mask registers k0 to k7.
    pub(super) fn opmask(&self, number: usize) -> u64 {
        let at = std::arch::x86_64::__cpuid_count(13, 5).ebx as usize;
        let state = self.extended_state();
        let bytes = state[at + 8 * number..].first_chunk();
        u64::from_le_bytes(*bytes.expect("the state has all mask registers"))
    }

    /// What `xsave` stores, in its standard format.
    fn extended_state(&self) -> Vec<u8> {
        let mut state = vec![0_u8; STATE_LEN];
        let mut place = libc::iovec {
            iov_base: state.as_mut_ptr().cast(),
            iov_len: state.len(),
        };
        let place = &raw mut place as usize;
        self.request(libc::PTRACE_GETREGSET, NT_X86_XSTATE, place);
        state
    }

    /// Memory of the process; shorter if not all of it is mapped.
    pub(super) fn read(&self, address: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0_u8; len];
        let local = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: len,
        };
        // The kernel reads in parts, up to the first unmapped page.
        let page_end = (address | 0xfff) + 1;
        let first = len.min((page_end - address) as usize);
        let parts = [(address, first), (page_end, len - first)];
        let remote = parts.map(|(start, len)| libc::iovec {
            iov_base: start as *mut c_void,
            iov_len: len,
        });
        let id = self.child.id().cast_signed();
        // SAFETY: `bytes` has this length; the remote side is only read.
        let read =
            unsafe { libc::process_vm_readv(id, &raw const local, 1, remote.as_ptr(), 2, 0) };
        let read = usize::try_from(read).expect("the memory of a child can be read");
        bytes.truncate(read);
        bytes
    }
}

/// Pins this thread and the children that it starts to its current processor: two that take turns need not wake each
/// other's processor, which takes far longer than a step. Returns the processors that it was allowed to use before.
fn stay_here() -> libc::cpu_set_t {
    let mut before = std::mem::MaybeUninit::zeroed();
    let len = size_of::<libc::cpu_set_t>();
    // SAFETY: the sets have this length, and all zeros is a valid set.
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
        // SAFETY: the set has this length. If the call fails, tests only run slower.
        unsafe { libc::sched_setaffinity(0, len, &raw const self.processors) };
        // Both fail if the child has ended and was waited for, which is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
