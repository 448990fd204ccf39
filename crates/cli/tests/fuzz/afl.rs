//! afl-fuzz's side of `powerfail fuzz afl`: what it provides to its target, and what the target answers.
//!
//! # Safety
//!
//! The segment belongs to this test, stays attached until the process ends, and is only read while the other side
//! waits.
#![allow(unsafe_code)]

use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::Folder;
use crate::folder;
use crate::running::wait_until;

/// The flags of a greeting: options are valid, the size of the map, inputs in shared memory.
const ENABLED: u32 = 0x8000_0001;
const MAP_LEN: u32 = 0x4000_0000;
const SHARED_INPUTS: u32 = 0x0100_0000;

/// The size of afl-fuzz's map before it knows the required size.
const SEGMENT_LEN: usize = 1 << 23;

/// Shared memory that is removed with its last user.
struct Segment {
    id: i32,
    start: *mut u8,
}

impl Segment {
    fn new() -> Self {
        // SAFETY: the kernel chooses the address, and the results are checked.
        unsafe {
            let id = libc::shmget(libc::IPC_PRIVATE, SEGMENT_LEN, libc::IPC_CREAT | 0o600);
            assert!(id >= 0, "{}", std::io::Error::last_os_error());
            let start = libc::shmat(id, std::ptr::null(), 0);
            assert_ne!(
                start.addr(),
                usize::MAX,
                "{}",
                std::io::Error::last_os_error()
            );
            let start = start.cast();
            Self { id, start }
        }
    }

    fn clear(&self) {
        // SAFETY: the segment is at least this long.
        unsafe { self.start.write_bytes(0, SEGMENT_LEN) };
    }

    fn read(&self, len: usize) -> Vec<u8> {
        assert!(len <= SEGMENT_LEN);
        // SAFETY: within the segment.
        unsafe { std::slice::from_raw_parts(self.start, len) }.to_vec()
    }

    fn write_input(&self, input: &[u8]) {
        let len = u32::try_from(input.len()).expect("a short input");
        // SAFETY: the segment is much longer than any input of these tests.
        unsafe {
            self.start.cast::<u32>().write_unaligned(len);
            self.start
                .add(4)
                .copy_from_nonoverlapping(input.as_ptr(), input.len());
        }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: marks the segment, which is ours, as one to be removed.
        unsafe {
            libc::shmctl(self.id, libc::IPC_RMID, std::ptr::null_mut());
            libc::shmdt(self.start.cast());
        }
    }
}

/// afl-fuzz, as seen by its target.
struct Afl {
    child: Child,
    orders: ChildStdin,
    answers: ChildStdout,
    map: Segment,
    inputs: Option<Segment>,
    input_file: PathBuf,
    map_len: usize,
}

/// The result of an execution.
struct Executed {
    status: ExitStatus,
    map: Vec<u8>,
}

impl Executed {
    fn locations(&self) -> usize {
        self.map.iter().filter(|count| **count != 0).count()
    }
}

impl Afl {
    fn start(folder: &Folder, has_shared_inputs: bool) -> Self {
        let map = Segment::new();
        let inputs = has_shared_inputs.then(Segment::new);
        let input_file = folder.path("cur_input");
        fs::write(&input_file, "").expect("a file");
        let mut command = folder.command("bash");
        command
            .args([
                "-c",
                "ulimit -c 0; exec \"$@\" 198<&0 199>&1 0<cur_input 1>/dev/null",
                "bash",
            ])
            .arg(env!("CARGO_BIN_EXE_powerfail"))
            .args([
                "fuzz",
                "afl",
                "--timeout",
                "300ms",
                "--",
                "./shop",
                "{pool}",
            ])
            .env("__AFL_SHM_ID", map.id.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some(inputs) = &inputs {
            command.env("__AFL_SHM_FUZZ_ID", inputs.id.to_string());
        }
        let mut child = command.spawn().expect("bash runs");
        let mut afl = Self {
            orders: child.stdin.take().expect("a pipe"),
            answers: child.stdout.take().expect("a pipe"),
            child,
            map,
            inputs,
            input_file,
            map_len: 0,
        };
        let greeting = afl.hear().cast_unsigned();
        assert_eq!(
            greeting & (ENABLED | MAP_LEN),
            ENABLED | MAP_LEN,
            "{greeting:x}"
        );
        assert_eq!(
            greeting & SHARED_INPUTS != 0,
            has_shared_inputs,
            "{greeting:x}"
        );
        afl.map_len = ((greeting & 0x00ff_fffe) >> 1) as usize + 1;
        if has_shared_inputs {
            afl.say((ENABLED | SHARED_INPUTS).cast_signed());
        }
        afl
    }

    fn hear(&mut self) -> i32 {
        let mut word = [0; 4];
        self.answers.read_exact(&mut word).expect("an answer");
        i32::from_ne_bytes(word)
    }

    fn say(&mut self, word: i32) {
        self.orders
            .write_all(&word.to_ne_bytes())
            .expect("a listener");
    }

    /// Runs an input; the caller knows in advance whether it takes too long.
    fn execute(&mut self, input: &[u8], takes_too_long: bool) -> Executed {
        match &self.inputs {
            Some(inputs) => inputs.write_input(input),
            // Reuses the same file, like afl-fuzz: the target has it open.
            None => {
                let file = fs::OpenOptions::new()
                    .write(true)
                    .truncate(true)
                    .open(&self.input_file);
                file.and_then(|mut file| file.write_all(input))
                    .expect("a file");
            }
        }
        self.map.clear();
        self.say(0);
        let process = Pid::from_raw(self.hear()).expect("a process");
        if takes_too_long {
            kill_process(process, Signal::KILL).expect("it is alive");
        }
        let status = ExitStatus::from_raw(self.hear());
        Executed {
            status,
            map: self.map.read(self.map_len),
        }
    }

    /// Closes the pipes, and returns how the target ends.
    fn end(self) -> ExitStatus {
        let Self {
            mut child,
            orders,
            answers,
            ..
        } = self;
        drop((orders, answers));
        child.wait().expect("an end")
    }
}

fn speaks_the_protocol(has_shared_inputs: bool) {
    let folder = folder();
    let mut afl = Afl::start(&folder, has_shared_inputs);
    assert!(afl.map_len >= 1 << 16, "{}", afl.map_len);
    let one = afl.execute(b"a", false);
    assert!(one.status.success(), "{:?}", one.status);
    assert!(one.locations() > 0);
    let many = afl.execute(b"abcdefgh", false);
    assert!(many.status.success() && many.locations() > 0);
    assert_ne!(many.map, one.map);
    // Each execution starts from the same pool.
    assert_eq!(afl.execute(b"a", false).map, one.map);
    let crash = afl.execute(b"aKILL", false);
    assert_eq!(crash.status.signal(), Some(libc::SIGABRT));
    let hang = afl.execute(b"HANG", true);
    assert_eq!(hang.status.signal(), Some(libc::SIGKILL));
    // afl-fuzz times out just when the execution ends: either may come first, and the next execution must not be
    // affected.
    let late = afl.execute(b"a", true).status;
    assert!(
        late.success() || late.signal() == Some(libc::SIGKILL),
        "{late:?}"
    );
    assert_eq!(afl.execute(b"a", false).map, one.map);
    assert!(afl.execute(b"", false).status.success());
    assert_eq!(afl.end().code(), Some(0));
}

#[test]
fn inputs_come_in_a_file() {
    speaks_the_protocol(false);
}

#[test]
fn inputs_come_by_shared_memory() {
    speaks_the_protocol(true);
}

#[test]
fn it_ends_when_it_is_told_to() {
    let folder = folder();
    let mut afl = Afl::start(&folder, false);
    assert!(afl.execute(b"a", false).status.success());
    let id = i32::try_from(afl.child.id()).expect("an id");
    kill_process(Pid::from_raw(id).expect("an id"), Signal::TERM).expect("it runs");
    assert_eq!(afl.child.wait().expect("an end").code(), Some(0));
}

/// The files that a process has created in the directory for pools.
fn directories_of(id: u32) -> Vec<String> {
    let names = fs::read_dir("/dev/shm").expect("a folder").flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let prefix = format!("powerfail-{id}-");
    names.filter(|name| name.starts_with(&prefix)).collect()
}

#[test]
fn it_leaves_nothing_if_it_is_killed() {
    let folder = folder();
    let mut afl = Afl::start(&folder, false);
    assert!(afl.execute(b"a", false).status.success());
    let id = afl.child.id();
    assert_eq!(directories_of(id).len(), 1);
    afl.child.kill().expect("it runs");
    afl.child.wait().expect("an end");
    wait_until(
        Path::new("/dev/shm"),
        &[],
        "the directory is removed",
        || directories_of(id).is_empty(),
    );
}
