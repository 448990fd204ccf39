//! What powerfail could leave behind: processes, mounts, and files where temporary files are.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// How long a process may live whose supervisor was killed.
const PATIENCE: Duration = Duration::from_secs(20);
/// What powerfail keeps in the home directory.
const KEY: &str = ".local/state/powerfail/key";

/// What exists at a moment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Leftovers {
    mounts: BTreeSet<String>,
    files: BTreeSet<PathBuf>,
}

impl Leftovers {
    /// What exists now, but for what is below directories that were there before.
    pub(crate) fn look(home: &Path, known: &[&Path]) -> anyhow::Result<Self> {
        let mut files = BTreeSet::new();
        for place in [Path::new("/tmp"), Path::new("/dev/shm")] {
            below(place, known, &mut files);
        }
        below(home, &[], &mut files);
        files.remove(&home.join(KEY));
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        Ok(Self {
            mounts: mounts.lines().map(str::to_owned).collect(),
            files,
        })
    }

    /// What has come or gone since.
    pub(crate) fn compare(&self, after: &Self) -> Vec<String> {
        let mut found = Vec::new();
        let files = after.files.difference(&self.files);
        found.extend(files.map(|path| format!("{} is left", path.display())));
        let files = self.files.difference(&after.files);
        found.extend(files.map(|path| format!("{} is gone", path.display())));
        let mounts = after.mounts.difference(&self.mounts);
        found.extend(mounts.map(|mount| format!("a mount is left: {mount}")));
        let mounts = self.mounts.difference(&after.mounts);
        let mounts = mounts.filter(|mount| is_reachable(mount));
        found.extend(mounts.map(|mount| format!("a mount is gone: {mount}")));
        found
    }

    /// Waits until all other processes of the namespace have ended. Returns those that do not.
    pub(crate) fn wait_for_processes() -> anyhow::Result<Vec<String>> {
        let mut left = Vec::new();
        for entry in fs::read_dir("/proc")?.flatten() {
            let number = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse::<i32>().ok());
            let Some(pid) = number.filter(|number| *number != 1).and_then(Pid::from_raw) else {
                continue;
            };
            let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else {
                continue;
            };
            let timeout = Timespec::try_from(PATIENCE)?;
            if poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&timeout))? == 0 {
                let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
                let line = String::from_utf8_lossy(&line).replace('\0', " ");
                left.push(format!("process {} is left: {line}", pid.as_raw_pid()));
            }
        }
        Ok(left)
    }
}

/// Whether a line of `mountinfo` is about a directory that exists here. If others on this computer remove the directory of a mount,
/// the kernel removes the mount from all namespaces.
fn is_reachable(mount: &str) -> bool {
    let place = mount.split(' ').nth(4);
    place.is_none_or(|place| Path::new(place).exists())
}

/// All files and directories below a directory, without directories that only lead to others.
fn below(directory: &Path, known: &[&Path], found: &mut BTreeSet<PathBuf>) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let before = found.len();
        if known.contains(&path.as_path()) {
            continue;
        }
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            below(&path, known, found);
            if found.len() > before || KEY.starts_with(&*path_in(&path)) {
                continue;
            }
        }
        found.insert(path);
    }
}

/// The last components of a path that are part of the way to the key.
fn path_in(path: &Path) -> String {
    let text = path.display().to_string();
    text.find(".local")
        .map_or_else(|| "no".to_owned(), |at| text[at..].to_owned())
}
