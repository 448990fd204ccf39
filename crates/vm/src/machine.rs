//! The saved machine: booted once, stopped before persistent memory is touched, and kept in a directory.
//!
//! RAM stays in its file, and each guest that starts from there maps it copy on write: nothing is copied, and nothing of one
//! guest is seen by another. The state of the devices is a small file.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use powerfail_files::{Directory, input, output};
use powerfail_image::{RunDirectory, default_parent};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::error::{Result, VmError};
use crate::file_system::FileSystem;
use crate::guest::{Guest, Process, Start};
use crate::initramfs::initramfs;
use crate::kernel::Kernel;
use crate::layout::MemoryLayout;
use crate::tools::Tools;

const DESCRIPTION: &str = "machine.json";
const RAM: &str = "ram";
const TOP: &str = "ram-top";
const STATE: &str = "state";
const KERNEL: &str = "vmlinuz";
/// The kernel without compression, if it can be started so.
const UNPACKED_KERNEL: &str = "vmlinux";
const INITRAMFS: &str = "initramfs";
/// What `/proc/kallsyms` of the guest says.
const SYMBOLS: &str = "symbols";
/// Changes with the commands that the first process of a guest obeys: a machine with others is of no use.
const PROTOCOL: u32 = 4;
/// How long the kernel may take to boot. It takes five to ten seconds of processor time.
const BOOT_LIMIT: Duration = Duration::from_mins(5);

/// What a machine is made of.
#[derive(Clone, Debug)]
pub struct MachineOptions {
    /// Its kernel.
    pub kernel: Kernel,
    /// The file system.
    pub file_system: FileSystem,
    /// The memory.
    pub layout: MemoryLayout,
    /// Modules of the kernel that are loaded besides those of the file system.
    pub modules: Vec<String>,
    /// An initial file system of the user, instead of the built-in one.
    pub initramfs: Option<PathBuf>,
    /// What the kernel is told besides.
    pub kernel_options: String,
}

/// A saved machine.
#[derive(Clone, Debug)]
pub struct Machine {
    directory: PathBuf,
    description: Description,
    qemu: PathBuf,
    is_interrupted: IsInterrupted,
}

/// Says whether the user wants to end everything. It is asked again and again while a guest is waited for.
pub type IsInterrupted = fn() -> bool;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Description {
    /// Which commands its first process obeys.
    protocol: u32,
    file_system: FileSystem,
    layout: MemoryLayout,
    kernel_options: String,
}

impl Description {
    /// Reads what was written. What no machine can have is refused.
    fn parse(text: &[u8]) -> std::result::Result<Self, String> {
        let read: Self = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let pm_len = read.layout.pm_len;
        if MemoryLayout::new(pm_len) != Some(read.layout) {
            return Err(format!(
                "no machine has {pm_len} bytes of persistent memory"
            ));
        }
        Ok(read)
    }
}

impl Machine {
    /// Boots a machine and saves it in a directory, which is made.
    pub fn boot(
        directory: &Path,
        options: &MachineOptions,
        is_interrupted: IsInterrupted,
    ) -> Result<Self> {
        let tools = Tools::find()?;
        Directory::create(directory).map_err(VmError::file("create", directory))?;
        let directory = fs::canonicalize(directory).map_err(VmError::file("open", directory))?;
        let _lock = lock(&directory)?;
        // Until it has booted there is no machine.
        let description = directory.join(DESCRIPTION);
        match fs::remove_file(&description) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(VmError::file("remove", &description)(error));
            }
            _ => {}
        }
        let initramfs = match &options.initramfs {
            Some(path) => fs::read(path).map_err(VmError::file("read", path))?,
            None => initramfs(
                &tools,
                &options.kernel,
                options.file_system,
                &options.modules,
                options.layout,
            )?,
        };
        let machine = Self {
            description: Description {
                protocol: PROTOCOL,
                file_system: options.file_system,
                layout: options.layout,
                kernel_options: options.kernel_options.clone(),
            },
            qemu: tools.qemu,
            directory,
            is_interrupted,
        };
        write(&machine.path(INITRAMFS), &initramfs)?;
        let kernel = &options.kernel.image;
        output::copy(kernel, &machine.path(KERNEL)).map_err(VmError::file("copy", kernel))?;
        let unpacked = machine.path(UNPACKED_KERNEL);
        match fs::read(kernel)
            .ok()
            .and_then(|image| crate::unpacked_kernel::unpacked(&image))
        {
            Some(bytes) => write(&unpacked, &bytes)?,
            None => match fs::remove_file(&unpacked) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(VmError::file("remove", &unpacked)(error));
                }
                _ => {}
            },
        }
        make(&machine.path(RAM), MemoryLayout::ram_len())?;
        make(&machine.path(TOP), MemoryLayout::top_len())?;
        machine.save()?;
        let symbols = machine.start()?.answer_in_exchange("kernel-symbols")?;
        write(&machine.path(SYMBOLS), &symbols)?;
        let text = serde_json::to_vec_pretty(&machine.description);
        let text = text.map_err(|error| VmError::Guest(error.to_string()))?;
        write(&machine.path(DESCRIPTION), &text)?;
        Ok(machine)
    }

    /// Runs the kernel until its first process is ready, and saves it.
    fn save(&self) -> Result<()> {
        let run = run_directory()?;
        let mut process = Process::start(self, run.path(), Start::Boot, None)?;
        process.wait_until_ready(BOOT_LIMIT)?;
        let qmp = process.qmp();
        qmp.execute("stop", &json!({}))?;
        ignore_shared(qmp)?;
        // QEMU would follow a link.
        make(&self.path(STATE), 0)?;
        let target = format!("exec:cat > {}", quoted(&self.path(STATE))?);
        qmp.execute("migrate", &json!({ "uri": target }))?;
        qmp.wait_for_migration()?;
        process.quit()
    }

    /// A machine that was saved.
    pub fn open(directory: &Path, is_interrupted: IsInterrupted) -> Result<Self> {
        let path = directory.join(DESCRIPTION);
        let text = input::read(&path).map_err(VmError::file("read", &path))?;
        let malformed = |problem: String| VmError::Malformed {
            path: path.clone(),
            problem,
        };
        let description = Description::parse(&text).map_err(malformed)?;
        if description.protocol != PROTOCOL {
            return Err(malformed(
                "another version of powerfail has made this machine: remove its directory"
                    .to_owned(),
            ));
        }
        for name in [RAM, TOP, STATE, KERNEL, INITRAMFS, SYMBOLS] {
            // QEMU has no good words for what it lacks, and would follow a link.
            let path = directory.join(name);
            input::open(&path).map_err(VmError::file("read", &path))?;
        }
        let directory = fs::canonicalize(directory).map_err(VmError::file("open", directory))?;
        Ok(Self {
            directory,
            description,
            qemu: crate::tools::program("qemu-system-x86_64", "qemu-system-x86")?,
            is_interrupted,
        })
    }

    /// Whether there is a machine in a directory.
    pub fn exists(directory: &Path) -> bool {
        directory.join(DESCRIPTION).exists()
    }

    /// Whether its kernel is this one.
    pub fn has_kernel(&self, image: &Path) -> Result<bool> {
        let read = |path: &Path| fs::read(path).map_err(VmError::file("read", path));
        Ok(read(&self.path(KERNEL))? == read(image)?)
    }

    /// The symbols of its kernel, and of modules that are loaded when it starts, as `/proc/kallsyms` has them.
    pub(crate) fn symbols(&self) -> Result<String> {
        let path = self.path(SYMBOLS);
        let symbols = input::read(&path).map_err(VmError::file("read", &path))?;
        Ok(String::from_utf8_lossy(&symbols).into_owned())
    }

    /// What its kernel was told besides.
    pub fn kernel_options(&self) -> &str {
        &self.description.kernel_options
    }

    /// Says whether the user wants to end everything.
    pub(crate) const fn interruption(&self) -> IsInterrupted {
        self.is_interrupted
    }

    /// Whether the user wants to end everything.
    pub(crate) fn is_interrupted(&self) -> bool {
        (self.is_interrupted)()
    }

    /// A guest that starts from here.
    pub fn start(&self) -> Result<Guest> {
        Guest::start(self, None)
    }

    /// Where it is kept.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Its file system.
    pub const fn file_system(&self) -> FileSystem {
        self.description.file_system
    }

    /// Its memory.
    pub const fn layout(&self) -> MemoryLayout {
        self.description.layout
    }

    pub(crate) fn qemu(&self) -> &Path {
        &self.qemu
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Where QEMU finds the saved state.
    pub(crate) fn state_source(&self) -> Result<String> {
        Ok(format!("exec:cat {}", quoted(&self.path(STATE))?))
    }

    /// The arguments of QEMU that describe the machine. They must be the same when it is saved and when it is started.
    /// `run` has the files of one guest.
    pub(crate) fn arguments(&self, run: &Path, start: Start) -> Result<Vec<String>> {
        let layout = self.layout();
        let mib = |bytes: u64| bytes / crate::layout::MIB;
        // Guests write to their own copies of RAM; while it boots, the file is RAM.
        let ram = if start == Start::Boot { "on" } else { "off" };
        let backend = |id: &str, path: &Path, share: &str, len: u64| -> Result<[String; 2]> {
            let path = option_value(path)?;
            Ok([
                "-object".to_owned(),
                format!(
                    "memory-backend-file,id={id},mem-path={path},share={share},size={}M",
                    mib(len)
                ),
            ])
        };
        let mut words: Vec<String> = [
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
            "-machine",
            "pc,accel=tcg",
            "-cpu",
            "max",
            "-smp",
            "1",
        ]
        .map(str::to_owned)
        .to_vec();
        words.extend(["-m".to_owned(), format!("{}M", mib(layout.total()))]);
        words.extend(backend(
            "low",
            &self.path(RAM),
            ram,
            MemoryLayout::ram_len(),
        )?);
        words.extend(backend("pm", &run.join("pm"), "on", layout.pm_file_len())?);
        let exchange = crate::layout::EXCHANGE_LEN;
        words.extend(backend("exchange", &run.join("exchange"), "on", exchange)?);
        words.extend(backend(
            "top",
            &self.path(TOP),
            ram,
            MemoryLayout::top_len(),
        )?);
        for (number, id) in ["low,cpus=0", "pm", "exchange", "top"].iter().enumerate() {
            words.extend([
                "-numa".to_owned(),
                format!("node,nodeid={number},memdev={id}"),
            ]);
        }
        let unpacked = self.path(UNPACKED_KERNEL);
        let kernel = if unpacked.exists() {
            unpacked
        } else {
            self.path(KERNEL)
        };
        words.extend(["-kernel".to_owned(), option_value(&kernel)?]);
        words.extend(["-initrd".to_owned(), option_value(&self.path(INITRAMFS))?]);
        // On a busy computer the kernel believes that its timer does not work.
        words.extend([
            "-append".to_owned(),
            format!(
                "console=ttyS0 loglevel=5 no_timer_check nokaslr no5lvl panic=-1 oops=panic mitigations=off random.trust_cpu=on cryptomgr.notests {} {}",
                layout.kernel_options(),
                self.description.kernel_options
            ),
        ]);
        Ok(words)
    }
}

/// Keeps others from making a machine in the same directory.
fn lock(directory: &Path) -> Result<File> {
    let file = File::open(directory).map_err(VmError::file("open", directory))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(VmError::InUse {
            path: directory.to_path_buf(),
        }),
        Err(TryLockError::Error(error)) => Err(VmError::file("lock", directory)(error)),
    }
}

/// A private directory for the files of a guest. It is removed with everything in it.
pub(crate) fn run_directory() -> Result<RunDirectory> {
    RunDirectory::create_in(&default_parent()).map_err(|error| VmError::Guest(error.to_string()))
}

/// Memory that is a shared file is not part of a saved state.
pub(crate) fn ignore_shared(qmp: &mut crate::qmp::Qmp) -> Result<()> {
    let capability = json!({ "capability": "x-ignore-shared", "state": true });
    qmp.execute(
        "migrate-set-capabilities",
        &json!({ "capabilities": [capability] }),
    )?;
    Ok(())
}

/// A file of a length, with nothing in it.
pub(crate) fn make(path: &Path, len_bytes: u64) -> Result<()> {
    let file = output::create(path).map_err(VmError::file("create", path))?;
    file.set_len(len_bytes)
        .map_err(VmError::file("enlarge", path))
}

pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let written = output::create(path).and_then(|mut file| file.write_all(bytes));
    written.map_err(VmError::file("write", path))
}

/// A path as the value of an option of QEMU, where a comma is doubled.
fn option_value(path: &Path) -> Result<String> {
    Ok(text(path)?.replace(',', ",,"))
}

/// A path as a word of the shell, by which QEMU runs the commands of migrations.
fn quoted(path: &Path) -> Result<String> {
    Ok(format!("'{}'", text(path)?.replace('\'', r"'\''")))
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| VmError::Malformed {
        path: path.to_path_buf(),
        problem: "QEMU needs paths in UTF-8".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn no_link_in_the_directory_of_a_machine_is_followed() {
        let place = tempfile::tempdir().unwrap();
        let precious = place.path().join("precious");
        fs::write(&precious, "kept").unwrap();
        let link = place.path().join("link");
        symlink(&precious, &link).unwrap();
        assert!(write(&link, b"lost").is_err());
        assert!(make(&link, 7).is_err());
        assert_eq!(fs::read_to_string(&precious).unwrap(), "kept");
        let machine = place.path().join("machine");
        fs::create_dir(&machine).unwrap();
        symlink(&precious, machine.join(DESCRIPTION)).unwrap();
        let error = Machine::open(&machine, || false).unwrap_err().to_string();
        assert!(error.contains("symbolic link"), "{error}");
    }

    #[test]
    fn a_machine_that_cannot_be_is_refused() {
        let text = |pm_len: u64| {
            format!(
                r#"{{"protocol":{PROTOCOL},"file_system":"Ext4","layout":{{"pm_len":{pm_len}}},"kernel_options":""}}"#
            )
        };
        assert!(Description::parse(text(16 << 20).as_bytes()).is_ok());
        for pm_len in [0, 1, 3 << 20, 1 << 40, u64::MAX] {
            let error = Description::parse(text(pm_len).as_bytes()).unwrap_err();
            assert!(error.contains("persistent memory"), "{error}");
        }
        assert!(Description::parse(b"{").is_err());
    }

    #[test]
    fn one_run_at_a_time_makes_a_machine() {
        let place = tempfile::tempdir().unwrap();
        let first = lock(place.path()).unwrap();
        let error = lock(place.path()).unwrap_err().to_string();
        assert!(error.contains("another run boots"), "{error}");
        drop(first);
        lock(place.path()).unwrap();
    }
}
