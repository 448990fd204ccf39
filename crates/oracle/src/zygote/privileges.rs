//! Takes rights from everything that a zygote executes, and keeps them for the zygote itself.
//!
//! Commands that run as root lose what would let them change the mounts that they run in, trace the zygote, or change the
//! machine: they keep what concerns files, users and ports. The kernel computes the rights of an executed program from
//! the bounding set, which the zygote reduces once; its own rights stay as they are.
//!
//! # Safety
//!
//! `prctl` is called with numbers only.

#![allow(unsafe_code)]

/// The capabilities that commands keep, by their numbers in `linux/capability.h`.
const KEPT: [libc::c_ulong; 18] = [
    0,  // CHOWN
    1,  // DAC_OVERRIDE
    2,  // DAC_READ_SEARCH
    3,  // FOWNER
    4,  // FSETID
    5,  // KILL
    6,  // SETGID
    7,  // SETUID
    8,  // SETPCAP
    10, // NET_BIND_SERVICE
    11, // NET_BROADCAST
    14, // IPC_LOCK
    15, // IPC_OWNER
    18, // SYS_CHROOT
    23, // SYS_NICE
    28, // LEASE
    29, // AUDIT_WRITE
    31, // SETFCAP
];
/// No kernel has more capabilities.
const COUNT_MAX: libc::c_ulong = 64;

/// Reduces what programs that are executed from now on may do. A process that may not do that has nothing to take.
pub(crate) fn reduce_for_commands() {
    for capability in (0..COUNT_MAX).filter(|it| !KEPT.contains(it)) {
        // SAFETY: numbers only. Failing means that the kernel does not know the capability, or that this process, and
        // so what it executes, has no rights of this kind.
        unsafe {
            libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0);
        }
    }
}
