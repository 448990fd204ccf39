//! Whether the commands of a run take more of the machine than they may: memory and processes, all together.
//!
//! Limits of the kernel for a process do not help. One of the address space stops programs that reserve much and use
//! little, such as those with `AddressSanitizer`; one of processes does not count for root. So what is used is looked at
//! while a command takes long.

use std::fs;

use crate::message::Usage;

const PAGE_BYTES: u64 = 4096;

/// What these processes use beyond a limit, in words.
pub(crate) fn excess(processes: &[i32], limits: &Usage) -> Option<String> {
    if processes.len() as u64 > limits.processes {
        let count = processes.len();
        return Some(format!(
            "it was ended because it had {count} processes, more than {}",
            limits.processes
        ));
    }
    let bytes: u64 = processes.iter().map(|it| private_bytes(*it)).sum();
    (bytes > limits.memory_bytes).then(|| {
        let mebibytes = |bytes: u64| bytes >> 20;
        format!(
            "it was ended because it used {} MiB of memory, more than {} MiB",
            mebibytes(bytes),
            mebibytes(limits.memory_bytes)
        )
    })
}

/// The memory that a process has for itself. Pools, which are files, do not count.
fn private_bytes(process: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/statm")).unwrap_or_default();
    let mut pages = text.split_ascii_whitespace().skip(1).map(str::parse);
    let mut next = || pages.next().and_then(Result::ok).unwrap_or(0_u64);
    let (resident, shared) = (next(), next());
    resident.saturating_sub(shared) * PAGE_BYTES
}
