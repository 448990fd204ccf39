//! Whether the commands of a run take more of the machine than they may: memory and processes, all together.
//!
//! Limits of the kernel for a process do not help. One of the address space stops programs that reserve much and use
//! little, such as those with `AddressSanitizer`; one of processes does not count for root. So what is used is looked at
//! while a command takes long.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::message::Usage;

const PAGE_BYTES: u64 = 4096;
/// The unit of `st_blocks`.
const BLOCK_BYTES: u64 = 512;
/// How the names of files in memory begin.
const MEMORY_FILE: &str = "/memfd:";
/// The name of memory that a process shares with its children.
const SHARED_MAPPING: &str = "/dev/zero (deleted)";

/// What these processes use beyond a limit, in words. `kept_bytes` is memory that no process has for itself.
pub(crate) fn excess(processes: &[i32], kept_bytes: u64, limits: &Usage) -> Option<String> {
    if processes.len() as u64 > limits.processes {
        let count = processes.len();
        return Some(format!(
            "it was ended because it had {count} processes, more than {}",
            limits.processes
        ));
    }
    let own: u64 = processes.iter().map(|it| resident(*it).own_bytes).sum();
    let bytes = own + kept_bytes + shared_bytes(processes);
    (bytes > limits.memory_bytes).then(|| {
        let mebibytes = |bytes: u64| bytes >> 20;
        format!(
            "it was ended because it used {} MiB of memory, more than {} MiB",
            mebibytes(bytes),
            mebibytes(limits.memory_bytes)
        )
    })
}

/// The memory of a process.
struct Resident {
    /// What it has for itself.
    own_bytes: u64,
    /// Files and memory that it may share.
    shared_bytes: u64,
}

fn resident(process: i32) -> Resident {
    let text = fs::read_to_string(format!("/proc/{process}/statm")).unwrap_or_default();
    let mut pages = text.split_ascii_whitespace().skip(1).map(str::parse);
    let mut next = || pages.next().and_then(Result::ok).unwrap_or(0_u64);
    let (resident, shared) = (next(), next());
    Resident {
        own_bytes: resident.saturating_sub(shared) * PAGE_BYTES,
        shared_bytes: shared * PAGE_BYTES,
    }
}

/// The memory that processes share and that is gone when they have ended: files in memory, each once, and the most that any of
/// them has of memory that it shares with its children. Pools, which are files, do not count.
fn shared_bytes(processes: &[i32]) -> u64 {
    let mut files = HashMap::new();
    for process in processes {
        memory_files(*process, &mut files);
    }
    let mappings = processes.iter().map(|it| shared_mappings(*it)).max();
    files.values().sum::<u64>() + mappings.unwrap_or(0)
}

/// Adds the files in memory that a process has open, by their inode, with what they use.
fn memory_files(process: i32, found: &mut HashMap<(u64, u64), u64>) {
    let Ok(entries) = fs::read_dir(format!("/proc/{process}/fd")) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        let target = fs::read_link(&path).unwrap_or_default();
        if target
            .as_os_str()
            .as_encoded_bytes()
            .starts_with(MEMORY_FILE.as_bytes())
            && let Ok(file) = fs::metadata(&path)
        {
            found.insert((file.dev(), file.ino()), file.blocks() * BLOCK_BYTES);
        }
    }
}

/// What a process has of memory that it shares with its children. Looking at all mappings costs much, so a process that shares
/// little is not looked at.
fn shared_mappings(process: i32) -> u64 {
    const LITTLE_BYTES: u64 = 64 << 20;
    if resident(process).shared_bytes < LITTLE_BYTES {
        return 0;
    }
    let text = fs::read_to_string(format!("/proc/{process}/smaps")).unwrap_or_default();
    let mut is_counted = false;
    let mut bytes = 0;
    for line in text.lines() {
        if let Some(resident) = line.strip_prefix("Rss:") {
            let kibibytes = resident.trim().trim_end_matches(" kB").parse::<u64>();
            bytes += if is_counted {
                kibibytes.unwrap_or(0) * 1024
            } else {
                0
            };
        } else if line
            .split_once(' ')
            .is_some_and(|(head, _)| head.contains('-'))
        {
            is_counted = line.ends_with(SHARED_MAPPING);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_in_memory_counts_once() {
        const BYTES: usize = 8 << 20;
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let file = rustix::fs::memfd_create("usage", flags).unwrap();
        let mut file = fs::File::from(file);
        let process = std::process::id().cast_signed();
        file.write_all(&vec![1; BYTES]).unwrap();
        let _copy = file.try_clone().unwrap();
        let mut files = HashMap::new();
        memory_files(process, &mut files);
        memory_files(process, &mut files);
        let key = (
            file.metadata().unwrap().dev(),
            file.metadata().unwrap().ino(),
        );
        assert_eq!(files.get(&key), Some(&(BYTES as u64)));
        assert!(shared_bytes(&[process, process]) >= BYTES as u64);
    }

    #[test]
    fn what_no_process_has_counts() {
        let limits = Usage {
            memory_bytes: 2 << 20,
            processes: 1,
        };
        assert_eq!(excess(&[], 1 << 20, &limits), None);
        let words = excess(&[], 3 << 20, &limits).unwrap();
        assert!(
            words.contains("3 MiB of memory, more than 2 MiB"),
            "{words}"
        );
        assert!(
            excess(&[-1, -1], 0, &limits)
                .unwrap()
                .contains("2 processes")
        );
    }
}
