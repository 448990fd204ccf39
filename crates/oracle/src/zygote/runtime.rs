//! What a command needs to run with the runtime in it.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use powerfail_protocol::explore::{FILE_LEN, FILE_VARIABLE, OUTPUT_VARIABLE, SOCKET_VARIABLE};
use rustix::process::Resource;

use crate::explore::ExploreFile;
use crate::plan::Limits;
use crate::zygote::spawn::CStrings;

/// What the loader of a dynamic program loads first.
const PRELOAD: &str = "LD_PRELOAD=";
/// Address space that the runtime takes for itself, besides the shared file.
const OWN_BYTES: u64 = 8 << 30;
/// Descriptors that it inherits.
const COUNT: RawFd = 4;
/// A process does not reach these numbers by itself.
const USUAL_LIMIT: u64 = 1024;
const ROOM: RawFd = 8;

/// See the module header.
#[derive(Debug)]
pub(crate) struct Runtime {
    pub(crate) file: ExploreFile,
    library: OwnedFd,
    first_number: RawFd,
    /// The environment of who has the runtime in it and is not explored.
    plain: Vec<OsString>,
    variables: Vec<OsString>,
}

impl Runtime {
    pub(crate) fn new(library: OwnedFd, file: ExploreFile, environment: &[OsString]) -> Self {
        let limit = rustix::process::getrlimit(Resource::Nofile).current;
        let limit = limit.unwrap_or(USUAL_LIMIT).min(USUAL_LIMIT);
        let first_number = RawFd::try_from(limit).unwrap_or(1024) - ROOM;
        let mut variables = Vec::new();
        let mut preload = format!("{PRELOAD}/proc/self/fd/{}", first_number + 3).into_bytes();
        for variable in environment {
            let bytes = variable.clone().into_vec();
            match bytes.strip_prefix(PRELOAD.as_bytes()) {
                Some([]) => {}
                Some(others) => {
                    preload.push(b':');
                    preload.extend_from_slice(others);
                }
                None => variables.push(variable.clone()),
            }
        }
        variables.push(OsString::from_vec(preload));
        let plain = variables.clone();
        let names = [FILE_VARIABLE, SOCKET_VARIABLE, OUTPUT_VARIABLE];
        for (number, name) in (first_number..).zip(names) {
            variables.push(format!("{name}={number}").into());
        }
        Self {
            file,
            library,
            first_number,
            plain,
            variables,
        }
    }

    /// The variables of the environment of a command that is not explored.
    pub(crate) fn plain_variables(&self) -> &[OsString] {
        &self.plain
    }

    /// What such a command inherits, and under which number.
    pub(crate) fn plain_inherited(&self) -> (RawFd, RawFd) {
        (self.library.as_raw_fd(), self.first_number + COUNT - 1)
    }

    /// The variables of the environment.
    pub(crate) fn variables(&self) -> &[OsString] {
        &self.variables
    }

    pub(crate) fn environment(&self) -> io::Result<CStrings> {
        let strings: Result<_, _> = self
            .variables
            .iter()
            .map(|it| CString::new(it.clone().into_vec()))
            .collect();
        Ok(CStrings::new(strings?))
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

/// Why a program cannot have the runtime in it, if that can be seen from outside.
pub(crate) fn cannot_preload(program: &Path) -> Option<&'static str> {
    const INTERPRETER: u32 = 3;
    const DYNAMIC_64_BIT: &[u8] = b"\x7fELF\x02\x01";
    const X86_64: [u8; 2] = [62, 0];
    let mut bytes = Vec::new();
    let file = File::open(program).ok()?;
    if file.metadata().is_ok_and(|it| it.mode() & 0o6000 != 0) {
        return Some("it runs with the rights of somebody else");
    }
    // Program headers follow the header in all files that linkers write.
    file.take(64 << 10).read_to_end(&mut bytes).ok()?;
    if bytes.starts_with(b"#!") {
        // The interpreter decides, and is dynamic as a rule.
        return None;
    }
    if !bytes.starts_with(DYNAMIC_64_BIT) || bytes.get(18..20) != Some(&X86_64) {
        return Some("it is no program for this kind of machine");
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
        return Some("it is linked statically");
    }
    None
}
