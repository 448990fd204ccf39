//! One recovery: a guest mounts a crash image, reads and writes it, runs the user's script and unmounts; then the file system
//! is checked on the host.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Result, VmError};
use crate::guest::{Answer, Guest, GuestEnd, Line};
use crate::machine::Machine;
use crate::pages;
use crate::reference::{TreeListing, open};

/// What the kernel writes on its console when it finds its data damaged, or itself.
const COMPLAINTS: [&str; 7] = [
    "EXT4-fs error",
    "Corruption",
    "corruption",
    "BUG:",
    "kernel BUG",
    "WARNING: CPU",
    "Oops",
];
/// How often a guest is asked again before another one is started.
const REUSE_MAX: u32 = 200;

/// What is to be recovered.
#[derive(Debug)]
pub struct RecoveryRequest<'a> {
    /// The crash image. It has what recovery left afterwards.
    pub image: &'a File,
    /// An archive of the files that a guest gets.
    pub files: &'a Path,
    /// How long the guest may take.
    pub limit: Duration,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryReply {
    /// Whether everything succeeded.
    pub success: bool,
    /// What guest, kernel and check said.
    pub output: String,
    /// What the file system has, one line for each path.
    pub tree: String,
}

/// A guest that may have recovered other images before.
pub(crate) struct UsedGuest {
    guest: Guest,
    uses: u32,
}

/// Recovers in a guest, which is kept for the next image if it succeeds. What fails in a used guest is tried again in a fresh
/// one, and only that counts: so nothing is blamed on a crash that an earlier recovery has caused.
pub(crate) fn recover_in(
    machine: &Machine,
    kept: &mut Option<UsedGuest>,
    request: &RecoveryRequest<'_>,
) -> Result<RecoveryReply> {
    if let Some(mut used) = kept.take().filter(|used| used.uses < REUSE_MAX)
        && let Ok(reply) = attempt(machine, &mut used.guest, request)
        && reply.success
    {
        used.uses += 1;
        *kept = Some(used);
        return Ok(reply);
    }
    let mut guest = fresh(machine, request.files)?;
    let reply = attempt(machine, &mut guest, request)?;
    if reply.success {
        *kept = Some(UsedGuest { guest, uses: 1 });
    }
    Ok(reply)
}

/// Recovers in a guest of its own.
pub fn recover(machine: &Machine, request: &RecoveryRequest<'_>) -> Result<RecoveryReply> {
    recover_in(machine, &mut None, request)
}

fn fresh(machine: &Machine, files: &Path) -> Result<Guest> {
    let mut guest = machine.start()?;
    give_files(&mut guest, files)?;
    Ok(guest)
}

/// Puts the files of an archive into a guest.
pub(crate) fn give_files(guest: &mut Guest, files: &Path) -> Result<()> {
    let files = std::fs::read(files).map_err(VmError::file("read", files))?;
    guest.take_archive(&files)
}

/// One recovery in a given guest. The image changes only if the guest answered.
fn attempt(
    machine: &Machine,
    guest: &mut Guest,
    request: &RecoveryRequest<'_>,
) -> Result<RecoveryReply> {
    let pm = guest.pm_file();
    let memory = open(&pm)?;
    let len = machine.layout().pm_len;
    pages::copy(request.image, &memory, len).map_err(VmError::file("write", &pm))?;
    let console_before = guest.console_len();
    let answer = match guest.obey("recover", request.limit) {
        Ok(answer) => answer,
        Err(GuestEnd::Interrupted) => return Err(VmError::Interrupted),
        Err(end) => {
            return Ok(RecoveryReply {
                success: false,
                output: end.to_string(),
                tree: String::new(),
            });
        }
    };
    let copied = pages::copy(&memory, request.image, len);
    copied.map_err(VmError::file("read", &pm))?;
    let console = guest.console_since(console_before);
    let complaint = console
        .lines()
        .any(|line| COMPLAINTS.iter().any(|word| line.contains(word)));
    let (tree, mut output) = split(&answer);
    let mut success = answer.status == 0 && !complaint;
    if !console.is_empty() && !success {
        output.push_str("console of the guest:\n");
        output.push_str(&console);
    }
    if success {
        let number = request.image.as_raw_fd();
        let path = format!("/proc/{}/fd/{number}", std::process::id());
        if let Some(problem) = machine.file_system().check(Path::new(&path))? {
            success = false;
            output.push_str(&problem);
        }
    }
    Ok(RecoveryReply {
        success,
        output,
        tree: tree.text(),
    })
}

/// The listing in an answer, and the rest of what was written.
fn split(answer: &Answer) -> (TreeListing, String) {
    let (mut listing, mut output) = (Vec::new(), String::new());
    let mut is_listing = false;
    for line in &answer.lines {
        match line {
            Line::Told(text) if text == "tree" => is_listing = true,
            Line::Told(text) if text == "end" => is_listing = false,
            Line::Told(_) => {}
            Line::Output(text) if is_listing => listing.push(text.as_str()),
            Line::Output(text) => {
                output.push_str(text);
                output.push('\n');
            }
        }
    }
    (TreeListing::parse(listing.into_iter()), output)
}
