//! Where the threads of a process wait, as the kernel tells: what is said of a target that does not end.

use std::fs;
use std::path::Path;

/// How many threads of one process are described.
const THREADS_MAX: usize = 4;

/// One sentence for each of the first threads of a process; none if it has ended.
pub(crate) fn describe(process: i32) -> Vec<String> {
    let folder = format!("/proc/{process}");
    let program = fs::read_link(format!("{folder}/exe"));
    let name = match &program {
        Ok(program) => format!("process {process} ({})", program.display()),
        Err(_) => format!("process {process}"),
    };
    let tasks = fs::read_dir(format!("{folder}/task")).into_iter().flatten();
    let mut threads: Vec<i32> = tasks
        .filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    threads.sort_unstable();
    let mut sentences: Vec<String> = threads
        .iter()
        .filter_map(|thread| {
            let does = activity(Path::new(&folder), *thread)?;
            Some(if *thread == process {
                format!("{name} {does}")
            } else {
                format!("thread {thread} of {name} {does}")
            })
        })
        .collect();
    let more = sentences.len().saturating_sub(THREADS_MAX);
    if more > 0 {
        sentences.truncate(THREADS_MAX);
        sentences.push(format!("{more} more threads of {name}"));
    }
    sentences
}

/// What a thread does; `None` if it has ended.
fn activity(process: &Path, thread: i32) -> Option<String> {
    let task = process.join(format!("task/{thread}"));
    let stat = fs::read(task.join("stat")).ok()?;
    // The name of the program, in parentheses, may contain anything.
    let behind_name = stat.iter().rposition(|byte| *byte == b')')?;
    match stat.get(behind_name + 2)? {
        b'Z' | b'X' => return None,
        b'R' => return Some("runs".to_owned()),
        b'T' | b't' => return Some("is stopped by a signal or a debugger".to_owned()),
        _ => {}
    }
    let call = fs::read_to_string(task.join("syscall")).unwrap_or_default();
    let numbers: Vec<u64> = call.split_ascii_whitespace().map_while(number).collect();
    if let Some((call, arguments)) = numbers.split_first() {
        return Some(format!(
            "waits in {}",
            system_call(process, *call, arguments)
        ));
    }
    let channel = fs::read_to_string(task.join("wchan")).unwrap_or_default();
    Some(match channel.as_str() {
        "" | "0" => "waits".to_owned(),
        channel => format!("waits in {channel} of the kernel"),
    })
}

/// A number as the kernel writes it: the call in decimal, arguments in hexadecimal.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A system call that can wait, by its number on x86-64, with what it waits for.
fn system_call(process: &Path, call: u64, arguments: &[u64]) -> String {
    let first = arguments.first().copied().unwrap_or_default();
    let on_descriptor = |name: &str| {
        let file = fs::read_link(process.join(format!("fd/{first}")));
        match file {
            Ok(file) => format!("{name} of descriptor {first} ({})", file.display()),
            Err(_) => format!("{name} of descriptor {first}"),
        }
    };
    match call {
        0 => on_descriptor("read"),
        1 => on_descriptor("write"),
        2 | 257 => "open".to_owned(),
        7 => "poll".to_owned(),
        17 => on_descriptor("pread64"),
        18 => on_descriptor("pwrite64"),
        19 => on_descriptor("readv"),
        20 => on_descriptor("writev"),
        23 => "select".to_owned(),
        34 => "pause".to_owned(),
        35 | 230 => "nanosleep".to_owned(),
        42 => on_descriptor("connect"),
        43 | 288 => on_descriptor("accept"),
        44 => on_descriptor("sendto"),
        45 => on_descriptor("recvfrom"),
        46 => on_descriptor("sendmsg"),
        47 => on_descriptor("recvmsg"),
        61 => "wait4, for a child".to_owned(),
        72 => on_descriptor("fcntl"),
        73 => on_descriptor("flock"),
        74 => on_descriptor("fsync"),
        75 => on_descriptor("fdatasync"),
        128 => "sigtimedwait".to_owned(),
        130 => "sigsuspend".to_owned(),
        202 => format!("futex, for the word at {first:#x}"),
        208 => "io_getevents".to_owned(),
        232 | 281 | 441 => on_descriptor("epoll_wait"),
        247 => "waitid, for a child".to_owned(),
        270 => "pselect".to_owned(),
        271 => "ppoll".to_owned(),
        call => format!("system call {call}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{describe, number, system_call};
    use std::os::fd::AsRawFd;
    use std::path::Path;

    #[test]
    fn a_call_on_a_descriptor_is_described_with_its_file() {
        let (from, _to) = std::io::pipe().expect("a pipe");
        let fd = u64::from(from.as_raw_fd().cast_unsigned());
        let sentence = system_call(Path::new("/proc/self"), 0, &[fd, 0x1000, 1]);
        let expected = format!("read of descriptor {fd} (pipe:[");
        assert!(sentence.starts_with(&expected), "{sentence}");
        assert_eq!(
            system_call(Path::new("/proc/self"), 9999, &[]),
            "system call 9999"
        );
    }

    #[test]
    fn numbers_are_decimal_or_hexadecimal() {
        let numbers: Vec<u64> = "202 0x7f00 0x80".split(' ').map_while(number).collect();
        assert_eq!(numbers, [202, 0x7f00, 0x80]);
        assert_eq!(number("running"), None);
    }

    #[test]
    fn this_process_has_threads_and_one_that_does_not_exist_has_none() {
        let process = std::process::id().cast_signed();
        assert!(!describe(process).is_empty());
        assert_eq!(describe(i32::MAX), Vec::<String>::new());
    }
}
