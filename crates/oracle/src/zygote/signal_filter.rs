//! Ends a command that sends a signal to every process or to the process that supervises it, or that sets limits of that one:
//! without descriptors or processor time it could supervise nothing any more.
//!
//! In a process namespace such a signal has no effect on the supervisor; without one it would end powerfail. In both
//! cases it is a mistake of the command that must not pass unseen. A seccomp filter turns the system call into SIGSYS,
//! which ends the command where it made the call, so a backtrace shows the line. The kernel evaluates the filter only for
//! the system calls that do this. A signal through a pidfd is not seen, because its target is not an argument.

use libc::sock_filter;

/// From `linux/audit.h`: the system calls of 64-bit programs. The numbers of others mean something else.
const ARCHITECTURE_X86_64: u32 = 0xc000_003e;
/// Offsets in `struct seccomp_data`. Arguments have eight bytes, of which the lower four count here.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const ARGUMENTS_AT: u32 = 16;
/// The address of the new limits, the third argument of `prlimit`.
const NEW_LIMITS_AT: u32 = ARGUMENTS_AT + 8 * 2;
/// All processes, as the target of a signal.
const EVERYONE: i32 = -1;

/// System calls that send a signal to their first argument, and the place of the signal among the arguments.
const CALLS: [(libc::c_long, u32); 5] = [
    (libc::SYS_kill, 1),
    (libc::SYS_tkill, 1),
    (libc::SYS_rt_sigqueueinfo, 1),
    (libc::SYS_tgkill, 2),
    (libc::SYS_rt_tgsigqueueinfo, 2),
];

/// The program of a seccomp filter.
#[derive(Debug)]
pub(crate) struct SignalFilter(Vec<sock_filter>);

impl SignalFilter {
    /// Protects these processes and, where the number is negative, process groups.
    pub(crate) fn new(protected: &[i32]) -> Self {
        let targets: Vec<i32> = [EVERYONE].iter().chain(protected).copied().collect();
        let count = targets.len() as u8;
        let mut program = vec![
            load(ARCHITECTURE_AT),
            jump_if(ARCHITECTURE_X86_64, 1, 0),
            end(libc::SECCOMP_RET_ALLOW),
            load(NUMBER_AT),
        ];
        for (call, signal) in CALLS {
            // Another call continues after this block of 6 instructions and one for each target.
            program.push(jump_if(call.cast_unsigned() as u32, 0, count + 5));
            program.push(load(ARGUMENTS_AT + 8 * signal));
            // Signal 0 only asks whether a process exists.
            program.push(jump_if(0, count + 1, 0));
            program.push(load(ARGUMENTS_AT));
            for (target, left) in targets.iter().zip((1..=count).rev()) {
                program.push(jump_if(target.cast_unsigned(), left, 0));
            }
            program.push(end(libc::SECCOMP_RET_ALLOW));
            program.push(end(libc::SECCOMP_RET_TRAP));
        }
        // Without new limits, they are only asked for.
        program.push(jump_if(libc::SYS_prlimit64 as u32, 0, count + 7));
        program.push(load(NEW_LIMITS_AT));
        program.push(jump_if(0, 0, 2));
        program.push(load(NEW_LIMITS_AT + 4));
        program.push(jump_if(0, count + 1, 0));
        program.push(load(ARGUMENTS_AT));
        for (target, left) in targets.iter().zip((1..=count).rev()) {
            program.push(jump_if(target.cast_unsigned(), left, 0));
        }
        program.push(end(libc::SECCOMP_RET_ALLOW));
        program.push(end(libc::SECCOMP_RET_TRAP));
        program.push(end(libc::SECCOMP_RET_ALLOW));
        Self(program)
    }

    /// The instructions, as the kernel takes them.
    pub(crate) fn program(&self) -> libc::sock_fprog {
        libc::sock_fprog {
            len: self.0.len() as u16,
            filter: self.0.as_ptr().cast_mut(),
        }
    }
}

fn load(at: u32) -> sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, at)
}

/// Skips instructions: so many if the loaded word is this one, or else so many.
fn jump_if(word: u32, equal: u8, other: u8) -> sock_filter {
    let code = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    instruction(code, equal, other, word)
}

fn end(action: u32) -> sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, 0, 0, action)
}

fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    }
}
