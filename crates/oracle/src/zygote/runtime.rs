//! What a command needs to run with the runtime.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use powerfail_protocol::explore::{FILE_LEN, FILE_VARIABLE, OUTPUT_VARIABLE, SOCKET_VARIABLE};
use rustix::process::Resource;

use crate::lazy::SharedFile;
use crate::plan::Limits;
use crate::zygote::launcher;

/// The variable that names libraries for the loader of a dynamic program to load first.
const PRELOAD: &str = "LD_PRELOAD";
/// Address space that the runtime takes for itself, besides the shared file.
const OWN_BYTES: u64 = 8 << 30;
/// Descriptors that it inherits.
const COUNT: RawFd = 4;
/// A process does not reach these numbers by itself.
const USUAL_LIMIT: u64 = 1024;
const ROOM: RawFd = 8;

/// The runtime, and what a command inherits to run with it.
#[derive(Debug)]
pub(crate) struct Runtime {
    pub(crate) file: SharedFile,
    library: OwnedFd,
    first_number: RawFd,
    /// The environment of a command that runs with the runtime and is not explored.
    preload_variables: Vec<OsString>,
    /// The environment of a command that is explored.
    variables: Vec<OsString>,
}

impl Runtime {
    pub(crate) fn new(
        library: OwnedFd,
        file: SharedFile,
        environment: &[(OsString, OsString)],
    ) -> Self {
        let limit = rustix::process::getrlimit(Resource::Nofile).current;
        let limit = limit.unwrap_or(USUAL_LIMIT).min(USUAL_LIMIT);
        let first_number = RawFd::try_from(limit).unwrap_or(1024) - ROOM;
        let mut variables = Vec::new();
        let mut preload = OsString::from(format!("/proc/self/fd/{}", first_number + COUNT - 1));
        for (name, value) in environment {
            if name != PRELOAD {
                variables.push((name.clone(), value.clone()));
            } else if !value.is_empty() {
                preload.push(":");
                preload.push(value);
            }
        }
        variables.push((PRELOAD.into(), preload));
        let mut variables = launcher::variables(&variables);
        let preload_variables = variables.clone();
        let names = [FILE_VARIABLE, SOCKET_VARIABLE, OUTPUT_VARIABLE];
        for (number, name) in (first_number..).zip(names) {
            variables.push(format!("{name}={number}").into());
        }
        Self {
            file,
            library,
            first_number,
            preload_variables,
            variables,
        }
    }

    /// The environment of a command that runs with the runtime and is not explored: `NAME=value`.
    pub(crate) fn preload_variables(&self) -> &[OsString] {
        &self.preload_variables
    }

    /// What such a command inherits, and under which number.
    pub(crate) fn preload_inherited(&self) -> (RawFd, RawFd) {
        (self.library.as_raw_fd(), self.first_number + COUNT - 1)
    }

    /// The environment of a command that is explored: `NAME=value`.
    pub(crate) fn variables(&self) -> &[OsString] {
        &self.variables
    }

    /// What is inherited, and under which numbers.
    pub(crate) fn inherited(
        &self,
        socket: RawFd,
        output: RawFd,
    ) -> [(RawFd, RawFd); COUNT as usize] {
        let sources = [
            self.file.as_fd().as_raw_fd(),
            socket,
            output,
            self.library.as_raw_fd(),
        ];
        let mut place = 0;
        sources.map(|source| {
            place += 1;
            (source, self.first_number + place - 1)
        })
    }

    /// Whether a descriptor is one of those that are inherited.
    pub(crate) fn owns_number(&self, number: RawFd) -> bool {
        (self.first_number..self.first_number + COUNT).contains(&number)
    }

    /// Room for the runtime beside what the program may take.
    pub(crate) fn limits(limits: Limits) -> Limits {
        let more = |bytes: u64| bytes.saturating_add(FILE_LEN + OWN_BYTES);
        Limits {
            memory_bytes: limits.memory_bytes.map(more),
            ..limits
        }
    }
}

/// Why the runtime cannot be loaded into a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotPreloadable {
    #[error("it runs with the rights of another user")]
    OtherUser,
    #[error("it is not a program for this kind of machine")]
    OtherMachine,
    #[error("it is linked statically")]
    Static,
}

/// Whether the runtime can be loaded into a program, as far as its file shows.
pub(crate) fn check_preload(program: &Path) -> Result<(), NotPreloadable> {
    match obstacle(program) {
        Some(obstacle) => Err(obstacle),
        None => Ok(()),
    }
}

fn obstacle(program: &Path) -> Option<NotPreloadable> {
    const INTERPRETER: u32 = 3;
    const DYNAMIC_64_BIT: &[u8] = b"\x7fELF\x02\x01";
    const X86_64: [u8; 2] = [62, 0];
    let mut bytes = Vec::new();
    let file = File::open(program).ok()?;
    if file.metadata().is_ok_and(|it| it.mode() & 0o6000 != 0) {
        return Some(NotPreloadable::OtherUser);
    }
    // Program headers follow the header in all files that linkers write.
    file.take(64 << 10).read_to_end(&mut bytes).ok()?;
    if bytes.starts_with(b"#!") {
        // The interpreter decides, and is dynamic as a rule.
        return None;
    }
    if !bytes.starts_with(DYNAMIC_64_BIT) || bytes.get(18..20) != Some(&X86_64) {
        return Some(NotPreloadable::OtherMachine);
    }
    let number =
        |at: usize| -> Option<u64> { Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?)) };
    let start = number(32)? as usize;
    let count = usize::from(u16::from_le_bytes(*bytes.get(56..)?.first_chunk()?));
    let kinds = (0..count).filter_map(|place| {
        let kind = bytes.get(start.checked_add(place * 56)?..)?.first_chunk()?;
        Some(u32::from_le_bytes(*kind))
    });
    if !{ kinds }.any(|kind| kind == INTERPRETER) {
        return Some(NotPreloadable::Static);
    }
    None
}
