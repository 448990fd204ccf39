//! What commands see of the file system, and where they may write.
//!
//! With a mount namespace, every mount becomes read-only. Then a few places become writable: the private directories of the images, directories for
//! temporary files, which are private and empty but for what already lies there, and what the user names. All of that is
//! done once for a slot. Reading is not restricted, except that the directories of other powerfails are not shown.
//!
//! Without one, there are rules for paths instead ([`LandlockRules`]), and one directory for temporary files.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::mount::{mount_bind, mount_bind_recursive};

use crate::message::Setup;
use crate::plan::{PoolMapping, ResolvedPlan};
use crate::zygote::landlock_rules::LandlockRules;
use crate::zygote::siblings::{self, open_directory, path_of};
use crate::zygote::step::StepError;
use crate::zygote::system::{self, MountAttributes};
use crate::zygote::system_v;

/// The variable that says where programs write temporary files.
const TMPDIR: &str = "TMPDIR";
/// Where they write them otherwise.
const SCRATCH: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];
/// A directory with more entries is not made private, because each costs a mount.
const ENTRIES_MAX: usize = 4096;
/// How the names of directories of powerfail begin.
const OWN_PREFIX: &[u8] = b"powerfail-";
/// Devices that a command of root may open: all others, disks among them, could be written to.
const DEVICES: [&str; 8] = [
    "null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts",
];
/// What root could change the machine with.
const MACHINE: [&str; 5] = ["sys", "sysrq-trigger", "irq", "bus", "fs"];

/// The file system as commands may use it.
#[derive(Debug, Default)]
pub(crate) struct FileAccess {
    scratch: Vec<Scratch>,
    /// What could not be done.
    notes: Vec<String>,
    has_rules: bool,
    /// Whether shared memory and semaphores of System V are those of commands of this slot only.
    pub(crate) owns_system_v: bool,
}

/// A private directory for temporary files.
#[derive(Debug)]
struct Scratch {
    path: PathBuf,
    /// What it holds from the beginning.
    names: Vec<OsString>,
    /// How much room it had then: free blocks and inodes.
    room: Option<(u64, u64)>,
    /// Whether its file system is one that others use.
    is_part: bool,
}

impl FileAccess {
    /// Restricts this mount namespace. Images are mounted over pools afterwards.
    pub(crate) fn restrict(
        setup: &Setup,
        mappings: &[PoolMapping],
        writable: &[PathBuf],
    ) -> Result<Self, StepError> {
        let mut access = Self::default();
        // They may lie in a directory that is about to be covered.
        let images = private_directories(mappings)?;
        let mut set = MountAttributes::READ_ONLY;
        let is_root = rustix::process::geteuid().is_root();
        if is_root {
            set = set.and(MountAttributes::NO_DEVICES);
        }
        let all = system::change_mounts(Path::new("/"), set, MountAttributes::NONE, true);
        all.map_err(|error| StepError::new("make the file system read-only", error))?;
        show_processes(is_root)?;
        if is_root {
            show_devices()?;
        }
        for path in scratch_directories(&setup.plan) {
            access.add_scratch(path, setup)?;
        }
        for (path, directory) in &images {
            let failed = |error| StepError::new(format!("mount {}", path.display()), error);
            fs::create_dir_all(path).map_err(failed)?;
            mount_bind(path_of(directory), path).map_err(|error| failed(error.into()))?;
            make_writable(path).map_err(failed)?;
        }
        for path in writable {
            let failed = |error| StepError::new(format!("make {} writable", path.display()), error);
            mount_bind_recursive(path, path).map_err(|error| failed(error.into()))?;
            make_writable(path).map_err(failed)?;
        }
        Ok(access)
    }

    /// Without a mount namespace: a directory for temporary files beside the images, which is `TMPDIR`, and rules that are to
    /// be put in force. No rules if this kernel has none.
    pub(crate) fn restrict_paths(
        plan: &mut ResolvedPlan,
        mappings: &[PoolMapping],
        writable: &[PathBuf],
    ) -> Result<Option<(Self, LandlockRules)>, StepError> {
        const TEMPORARY: &str = "temporary";
        let mut allowed: Vec<PathBuf> = mappings
            .iter()
            .filter_map(|it| Some(it.private.parent()?.to_path_buf()))
            .collect();
        let Some(temporary) = allowed.first().map(|it| it.with_extension(TEMPORARY)) else {
            return Ok(None);
        };
        let failed = |error| StepError::new(format!("make {}", temporary.display()), error);
        if temporary.exists() {
            remove(&temporary).map_err(failed)?;
        }
        let mut builder = fs::DirBuilder::new();
        builder.mode(0o700).create(&temporary).map_err(failed)?;
        allowed.push(temporary.clone());
        allowed.extend_from_slice(writable);
        let Some(rules) = LandlockRules::new(&allowed) else {
            let _ = fs::remove_dir(&temporary);
            return Ok(None);
        };
        plan.environment.retain(|(name, _)| name != TMPDIR);
        let value = temporary.clone().into_os_string();
        plan.environment.push((TMPDIR.into(), value));
        let access = Self {
            scratch: vec![Scratch {
                path: temporary,
                names: Vec::new(),
                room: None,
                is_part: true,
            }],
            notes: Vec::new(),
            has_rules: true,
            owns_system_v: false,
        };
        Ok(Some((access, rules)))
    }

    /// Whether commands are restricted by rules for paths, which deny access in the same words as permissions do.
    pub(crate) const fn has_rules(&self) -> bool {
        self.has_rules
    }

    /// What could not be done, in words.
    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Directories in which missing directories can be created.
    pub(crate) fn scratch(&self) -> impl Iterator<Item = &Path> {
        self.scratch.iter().map(|it| it.path.as_path())
    }

    /// Everything is set up: what is in directories for temporary files now stays there.
    pub(crate) fn settle(&mut self) -> io::Result<()> {
        for scratch in &mut self.scratch {
            scratch.names = names_in(&scratch.path)?;
            scratch.room = room_in(&scratch.path);
        }
        Ok(())
    }

    /// Removes the temporary files of earlier commands, and what they have left in memory.
    pub(crate) fn clear(&self) -> io::Result<()> {
        if self.owns_system_v {
            system_v::clear();
        }
        for scratch in self.scratch.iter().filter(|it| it.is_used()) {
            for name in names_in(&scratch.path)? {
                if !scratch.names.contains(&name) {
                    remove(&scratch.path.join(name))?;
                }
            }
        }
        Ok(())
    }

    /// Whether a command has left anything that [`Self::clear`] removes.
    pub(crate) fn is_used(&self) -> bool {
        self.scratch.iter().any(Scratch::is_used) || (self.owns_system_v && system_v::is_used())
    }

    /// How much memory temporary files and shared memory of commands use.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let shared = if self.owns_system_v {
            system_v::used_bytes()
        } else {
            0
        };
        let scratch = self.scratch.iter().filter(|it| !it.is_part);
        scratch.map(Scratch::memory_bytes).sum::<u64>() + shared
    }

    /// Replaces a directory by one in memory that holds the same, but for directories of other powerfails.
    fn add_scratch(&mut self, path: PathBuf, setup: &Setup) -> Result<(), StepError> {
        let failed = |error| StepError::new(format!("replace {}", path.display()), error);
        let mut entries = siblings::of(&path, &[], ENTRIES_MAX).map_err(failed)?;
        if entries.len() > ENTRIES_MAX {
            self.notes.push(format!(
                "{} is not writable for recovery: it has too many entries to be replaced by a private directory",
                path.display()
            ));
            return Ok(());
        }
        entries.retain(|(name, _)| {
            !name.as_bytes().starts_with(OWN_PREFIX) || is_mentioned(name, &setup.plan)
        });
        let original = open_directory(&path).map_err(failed)?;
        siblings::replace_by_memory(&original, &path, &entries).map_err(failed)?;
        self.scratch.push(Scratch {
            path,
            names: Vec::new(),
            room: None,
            is_part: false,
        });
        Ok(())
    }
}

impl Scratch {
    /// How much memory the file system of its own uses.
    fn memory_bytes(&self) -> u64 {
        rustix::fs::statfs(&self.path).map_or(0, |room| {
            let block_bytes = u64::try_from(room.f_bsize).unwrap_or(0);
            room.f_blocks.saturating_sub(room.f_bfree) * block_bytes
        })
    }

    fn is_used(&self) -> bool {
        if self.is_part {
            return names_in(&self.path).is_ok_and(|names| names != self.names);
        }
        self.room != room_in(&self.path)
    }
}

/// Makes one mount writable, and its devices usable.
pub(crate) fn make_writable(path: &Path) -> io::Result<()> {
    let clear = MountAttributes::READ_ONLY.and(MountAttributes::NO_DEVICES);
    system::change_mounts(path, MountAttributes::NONE, clear, false)
}

/// The directories of the images, open.
fn private_directories(mappings: &[PoolMapping]) -> Result<Vec<(PathBuf, File)>, StepError> {
    let mut directories: Vec<&Path> = mappings
        .iter()
        .filter_map(|it| it.private.parent())
        .collect();
    directories.sort_unstable();
    directories.dedup();
    let open = |path: &Path| {
        let opened = open_directory(path);
        let failed = |error| StepError::new(format!("open {}", path.display()), error);
        Ok((path.to_path_buf(), opened.map_err(failed)?))
    };
    directories.into_iter().map(open).collect()
}

/// Directories for temporary files, outer ones first.
fn scratch_directories(plan: &ResolvedPlan) -> Vec<PathBuf> {
    let variables = plan.environment.iter();
    let given = variables.filter(|(name, _)| name == TMPDIR);
    let given = given.map(|(_, value)| PathBuf::from(value));
    let usual = SCRATCH.into_iter().map(PathBuf::from);
    let mut all: Vec<PathBuf> = usual
        .chain(given)
        .filter(|it| it.is_absolute() && it.parent().is_some())
        // One of them may be a symbolic link to another.
        .filter_map(|it| fs::canonicalize(it).ok())
        .filter(|it| it.is_dir())
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Whether a command is told about an entry of a directory.
fn is_mentioned(name: &OsStr, plan: &ResolvedPlan) -> bool {
    let has = |text: &OsStr| {
        let (text, name) = (text.as_bytes(), name.as_bytes());
        text.windows(name.len()).any(|it| it == name)
    };
    let servers = plan.server.iter();
    let commands = servers
        .flat_map(|it| [it.client.as_ref(), it.stop.as_ref()])
        .chain([plan.checker.as_ref(), plan.dump.as_ref()])
        .flatten()
        .chain([&plan.recover]);
    { commands }.any(|it| has(it.program.as_os_str()) || it.words.iter().any(|word| has(word)))
        || plan.environment.iter().any(|(_, value)| has(value))
        || [&plan.working_directory, &plan.input]
            .into_iter()
            .flatten()
            .any(|path| has(path.as_os_str()))
}

/// Processes change their own attributes in `/proc`; the machine is not changed there.
fn show_processes(is_root: bool) -> Result<(), StepError> {
    let failed = |error| StepError::new("restrict /proc", error);
    // It stays read-only where it was outside.
    let _ = make_writable(Path::new("/proc"));
    if !is_root {
        return Ok(());
    }
    for name in MACHINE {
        let path = Path::new("/proc").join(name);
        if path.exists() {
            mount_bind_recursive(&path, &path).map_err(|error| failed(error.into()))?;
            let set = MountAttributes::READ_ONLY;
            system::change_mounts(&path, set, MountAttributes::NONE, true).map_err(failed)?;
        }
    }
    Ok(())
}

/// Shows the devices that root may use.
fn show_devices() -> Result<(), StepError> {
    for name in DEVICES {
        let path = Path::new("/dev").join(name);
        let failed = |error| StepError::new(format!("show {}", path.display()), error);
        if path.exists() {
            let shown = mount_bind_recursive(&path, &path);
            shown.map_err(|error| failed(error.into()))?;
            let clear = MountAttributes::NO_DEVICES;
            let changed = system::change_mounts(&path, MountAttributes::NONE, clear, true);
            changed.map_err(failed)?;
        }
    }
    Ok(())
}

fn names_in(directory: &Path) -> io::Result<Vec<OsString>> {
    let entries = fs::read_dir(directory)?;
    entries.map(|it| Ok(it?.file_name())).collect()
}

fn room_in(directory: &Path) -> Option<(u64, u64)> {
    let room = rustix::fs::statfs(directory).ok()?;
    Some((room.f_bfree, room.f_ffree))
}

fn remove(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() {
        // A recovery may have taken its own rights to it.
        let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o700));
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    }
}
