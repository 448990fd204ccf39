//! Which recorder a target gets: the runtime, preloaded, or QEMU with a plugin.
//!
//! Both obey the same contract: they connect to the host over the shared file and the socket, ask it which files are pools,
//! and append records whose stamps are in the order of stores. So everything behind that is the same, and so is the trace.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use powerfail_protocol::shared::DescriptorPath;

use crate::error::{RecordError, Unsupported};
use crate::inspect::{Executable, find, inspect};
use crate::options::RecordOptions;

/// How a target is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// Under QEMU if it is statically linked, else with the runtime.
    #[default]
    Auto,
    /// With the runtime.
    Preload,
    /// Under QEMU.
    Qemu,
}

/// The emulator that records statically linked programs, if it is installed.
pub fn emulator() -> Option<PathBuf> {
    const QEMU: &str = "qemu-x86_64";
    find(OsStr::new(QEMU), std::env::var_os("PATH")).ok()
}

/// How a target is started.
pub(crate) struct Start {
    /// What is executed.
    pub(crate) executable: Executable,
    /// What its arguments begin with.
    pub(crate) prefix: Vec<OsString>,
    /// The plugin of QEMU; `None` if the runtime is preloaded.
    pub(crate) plugin: Option<OwnedFd>,
}

impl Start {
    /// Whether the target runs under QEMU.
    pub(crate) const fn is_emulated(&self) -> bool {
        self.plugin.is_some()
    }
}

/// Chooses the recorder of a target.
pub(crate) fn choose(options: &RecordOptions, command: &OsStr) -> Result<Start, RecordError> {
    let emulated = || emulated(options, command);
    if options.backend == Backend::Qemu {
        return emulated();
    }
    match inspect(command) {
        Ok(executable) => Ok(Start {
            executable,
            prefix: Vec::new(),
            plugin: None,
        }),
        Err(RecordError::Unsupported(Unsupported::Static { .. } | Unsupported::Go { .. }))
            if options.backend == Backend::Auto && !options.plugin.is_empty() =>
        {
            emulated()
        }
        Err(error) => Err(error),
    }
}

/// Starts a target under QEMU.
fn emulated(options: &RecordOptions, command: &OsStr) -> Result<Start, RecordError> {
    let program = find(command, std::env::var_os("PATH"))?;
    if !is_elf(&program) {
        return Err(Unsupported::EmulatedScript { program }.into());
    }
    if let Some(option) = unavailable(options) {
        return Err(Unsupported::Emulated { program, option }.into());
    }
    let Some(qemu) = emulator() else {
        return Err(Unsupported::NoQemu { program }.into());
    };
    let plugin = powerfail_files::memory::sealed("powerfail-qemu-plugin", options.plugin)
        .map_err(|error| RecordError::system("copy the plugin of QEMU into memory", error))?;
    let number = plugin.as_raw_fd().cast_unsigned();
    let path = DescriptorPath(std::process::id(), number);
    // All that QEMU can emulate: without it, programs see a processor that cannot flush.
    let words = ["-cpu", "max", "-plugin", &path.to_string(), "-0"];
    let mut prefix: Vec<OsString> = words.into_iter().map(OsString::from).collect();
    prefix.push(command.into());
    prefix.push(program.as_os_str().into());
    Ok(Start {
        executable: Executable {
            path: qemu.clone(),
            program: qemu,
        },
        prefix,
        plugin: Some(plugin),
    })
}

fn is_elf(program: &Path) -> bool {
    let mut head = [0; 4];
    let read = File::open(program).and_then(|mut file| file.read_exact(&mut head));
    read.is_ok() && head == *b"\x7fELF"
}

/// The first option that only the runtime can obey.
fn unavailable(options: &RecordOptions) -> Option<&'static str> {
    let wanted = [
        (options.heap_bytes.is_some(), "--heap"),
        (options.schedule.depth > 0, "an order of threads of its own"),
        (options.derandomise, "--derandomise"),
        (options.desock, "a simulated network"),
        (options.valgrind_requests, "--valgrind-requests"),
        (options.mode == crate::Mode::Trap, "--mode trap"),
    ];
    wanted
        .into_iter()
        .find(|(is_wanted, _)| *is_wanted)
        .map(|(_, name)| name)
}
