//! One recovery: a guest mounts a crash image, reads and writes it, runs the user's script and unmounts; then the file system
//! is checked on the host.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Result, VmError};
use crate::guest::{Answer, Guest, GuestEnd, Line};
use crate::machine::Machine;
use crate::pages;
use crate::reference::{TreeListing, open};

/// What the kernel writes on its console when it finds its data damaged.
const DAMAGE: [&str; 3] = ["EXT4-fs error", "Corruption", "corruption"];
/// What it writes when it finds a mistake of its own. A guest that has said so is not used again.
const MISTAKES: [&str; 4] = ["BUG:", "kernel BUG", "WARNING: CPU", "Oops"];
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

/// A guest that may have recovered other images before, and how recoveries have failed.
#[derive(Default)]
pub(crate) struct UsedGuest {
    guest: Option<(Guest, u32)>,
    /// Failures that were seen in fresh guests: what they said, and what was stored.
    confirmed: BTreeSet<(String, String)>,
}

/// What came of a recovery in a given guest.
struct Attempt {
    reply: RecoveryReply,
    /// Whether the guest can recover another image: everything is detached, and the kernel has found no mistake of its own.
    is_usable: bool,
    /// Whether the guest answered. Otherwise it may still store.
    has_answered: bool,
}

/// Recovers in a guest, which is kept for the next image if everything is detached afterwards. What fails in a used guest in a way
/// that no fresh one has shown is tried again in a fresh one, and only that counts: so nothing is blamed on a crash that an
/// earlier recovery has caused.
pub(crate) fn recover_in(
    machine: &Machine,
    kept: &mut UsedGuest,
    request: &RecoveryRequest<'_>,
) -> Result<RecoveryReply> {
    if let Some((mut guest, uses)) = kept.guest.take().filter(|(_, uses)| *uses < REUSE_MAX)
        && let Ok(Attempt {
            reply,
            is_usable: true,
            ..
        }) = attempt(machine, &mut guest, request)
        && (reply.success || kept.confirmed.contains(&way_of(&reply)))
    {
        take_back(machine, &guest, request)?;
        kept.guest = Some((guest, uses + 1));
        return Ok(reply);
    }
    // The image is as it was.
    let mut guest = fresh(machine, request.files)?;
    let tried = attempt(machine, &mut guest, request)?;
    if !tried.reply.success {
        kept.confirmed.insert(way_of(&tried.reply));
    }
    if tried.has_answered {
        take_back(machine, &guest, request)?;
    }
    if tried.is_usable {
        kept.guest = Some((guest, 1));
    }
    Ok(tried.reply)
}

/// Puts what a recovery has left into the image.
fn take_back(machine: &Machine, guest: &Guest, request: &RecoveryRequest<'_>) -> Result<()> {
    let pm = guest.pm_file();
    let memory = open(&pm)?;
    let copied = pages::copy(&memory, request.image, machine.layout().pm_len);
    copied.map_err(VmError::file("read", &pm))
}

/// In which way a recovery fails: what was said, without the times of the console, and what was stored.
fn way_of(reply: &RecoveryReply) -> (String, String) {
    let mut said = String::new();
    for line in reply.output.lines() {
        let message = line.trim_start().strip_prefix('[');
        let time = message.and_then(|it| it.split_once("] "));
        let is_time = |it: &str| it.trim().parse::<f64>().is_ok();
        said.push_str(match time {
            Some((time, rest)) if is_time(time) => rest,
            _ => line,
        });
        said.push('\n');
    }
    (said, reply.tree.clone())
}

/// Recovers in a guest of its own.
pub fn recover(machine: &Machine, request: &RecoveryRequest<'_>) -> Result<RecoveryReply> {
    recover_in(machine, &mut UsedGuest::default(), request)
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

/// One recovery in a given guest. The image does not change.
fn attempt(machine: &Machine, guest: &mut Guest, request: &RecoveryRequest<'_>) -> Result<Attempt> {
    let pm = guest.pm_file();
    let memory = open(&pm)?;
    let len = machine.layout().pm_len;
    pages::copy(request.image, &memory, len).map_err(VmError::file("write", &pm))?;
    let console_before = guest.console_len();
    let answer = match guest.obey("recover", request.limit) {
        Ok(answer) => answer,
        Err(GuestEnd::Interrupted) => return Err(VmError::Interrupted),
        Err(end) => {
            let reply = RecoveryReply {
                success: false,
                output: end.to_string(),
                tree: String::new(),
            };
            return Ok(Attempt {
                reply,
                is_usable: false,
                has_answered: false,
            });
        }
    };
    let console = guest.console_since(console_before);
    let complains = |words: &[&str]| {
        let mut lines = console.lines();
        lines.any(|line| words.iter().any(|word| line.contains(word)))
    };
    let is_mistaken = complains(&MISTAKES);
    let is_damaged = is_mistaken || complains(&DAMAGE);
    let told = |word: &str| answer.lines.contains(&Line::Told(word.to_owned()));
    let is_usable = !is_mistaken && (answer.status == 0 || told("detached"));
    let (tree, mut output) = split(&answer);
    let mut success = answer.status == 0 && !is_damaged;
    if !console.is_empty() && !success {
        output.push_str("console of the guest:\n");
        output.push_str(&console);
    }
    if success {
        // Nothing is attached in the guest any more.
        if let Some(problem) = machine.file_system().check(&pm)? {
            success = false;
            output.push_str(&problem);
        }
    }
    let reply = RecoveryReply {
        success,
        output,
        tree: tree.text(),
    };
    Ok(Attempt {
        reply,
        is_usable,
        has_answered: true,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_alike_whenever_the_kernel_said_it() {
        let reply = |output: &str, tree: &str| RecoveryReply {
            success: false,
            output: output.to_owned(),
            tree: tree.to_owned(),
        };
        let way = |output| way_of(&reply(output, "a\t1\n"));
        let early = way("mount failed\n[    1.25] XFS: bad\n");
        assert_eq!(early, way("mount failed\n[   17.00] XFS: bad\n"));
        assert_ne!(early, way("mount failed\n[    1.25] XFS: worse\n"));
        assert_ne!(early, way("mount failed\n[note] XFS: bad\n"));
        assert_ne!(way("failed"), way_of(&reply("failed", "a\t2\n")));
    }
}
