//! The output directory: the evidence that `powerfail replay` needs to show a finding again.
//!
//! - `run.trace` is the trace; findings of other traces name theirs.
//! - `report.json` is the [`Report`].
//! - `recovery.json` says how recovery was run ([`Recovery`]).
//! - `recovery.input` is what recovery read as its standard input, if it was given one.
//!
//! - `coverage.json` says which failure points were tried ([`Coverage`]), and `sources.json` has the source files that the
//!   report names ([`KeptSources`]): what pictures of a run need. Directories of fuzzing and of older versions lack them.
//! - `outcomes` has the outcomes of recoveries, so that no recovery has to run twice (`outcomes.rs`).
//! - `seal` shows that this user made the directory on this machine ([`origin`]).
//!
//! An exported directory is a bundle: it also has the programs of recovery (`bundle.rs`).
//!
//! Fuzzing makes one such directory for each finding; [`locate`] finds it.
//!
//! A directory may come from anyone. Names in its files are resolved beneath it, and no link in it is followed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use powerfail_files::seal::{self, Origin};
use powerfail_files::{Directory, output};
use powerfail_finding::{Coverage, KeptSources, Report};
use powerfail_trace::Trace;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::bundle;
use crate::outcomes;
use crate::recovery::Recovery;

/// The output directory if none is given.
pub const DEFAULT: &str = "powerfail-out";
/// The file with the trace.
pub const TRACE: &str = "run.trace";
/// The file with the report.
pub const REPORT: &str = "report.json";
/// The file that says how recovery was run.
pub const RECOVERY: &str = "recovery.json";
/// The file with the input of recovery.
pub const INPUT: &str = "recovery.input";
/// The file that says which failure points were tried.
pub const COVERAGE: &str = "coverage.json";
/// The file with the source files that the report names.
pub const SOURCES: &str = "sources.json";
/// The directory in which fuzzing has one output directory for each finding.
pub const FINDINGS: &str = "findings";
/// The newest format of the files that can be read.
const SCHEMA: u32 = 1;
/// A longer file is damage, for which no memory is taken.
const TEXT_LIMIT_BYTES: u64 = 1 << 30;

/// Why an output directory cannot be read or written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// A file or directory cannot be read or written.
    #[error("{}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file does not have the expected content.
    #[error("{}", path.display())]
    Damaged {
        /// Its path.
        path: PathBuf,
        /// The error of the parser.
        source: serde_json::Error,
    },
    /// A file was written by a newer version of powerfail.
    #[error("{}: its format is {found}, and this powerfail reads up to {SCHEMA}; use a newer powerfail", path.display())]
    Newer {
        /// Its path.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// Another run writes to the directory.
    #[error("{} is in use by another run; give another --out", path.display())]
    InUse {
        /// The path of the directory.
        path: PathBuf,
    },
}

impl DirectoryError {
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        |source| Self::File { path, source }
    }

    fn damaged(path: &Path) -> impl FnOnce(serde_json::Error) -> Self {
        let path = path.to_path_buf();
        |source| Self::Damaged { path, source }
    }
}

fn write(path: &Path, value: &impl Serialize) -> Result<(), DirectoryError> {
    let text = serde_json::to_string_pretty(value).map_err(DirectoryError::damaged(path))?;
    output::replace(path, (text + "\n").as_bytes()).map_err(DirectoryError::file(path))
}

fn read<T: for<'de> Deserialize<'de>>(out: &Directory, name: &str) -> Result<T, DirectoryError> {
    let path = out.path().join(name);
    let bytes = out.read_bytes(name.as_ref(), TEXT_LIMIT_BYTES);
    let bytes = bytes.map_err(DirectoryError::file(&path))?;
    serde_json::from_slice(&bytes).map_err(DirectoryError::damaged(&path))
}

fn opened(out: &Path) -> Result<Directory, DirectoryError> {
    Directory::open(out).map_err(DirectoryError::file(out))
}

/// The lock on an output directory, released on drop.
///
/// A child that another thread is just starting shares the descriptor until it executes its program. So the lock is
/// released explicitly: closing the descriptor would leave the directory locked until then.
#[derive(Debug)]
pub struct OutputLock(fs::File);

impl Drop for OutputLock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// Creates the directory and locks it.
pub fn create(out: &Path) -> Result<OutputLock, DirectoryError> {
    Directory::create(out).map_err(DirectoryError::file(out))?;
    let directory = fs::File::open(out).map_err(DirectoryError::file(out))?;
    match directory.try_lock() {
        Ok(()) => Ok(OutputLock(directory)),
        Err(fs::TryLockError::WouldBlock) => Err(DirectoryError::InUse {
            path: out.to_path_buf(),
        }),
        Err(fs::TryLockError::Error(error)) => Err(DirectoryError::file(out)(error)),
    }
}

/// Copies the trace into the directory, unless it already is its trace.
pub fn keep_trace(out: &Path, trace: &Path) -> Result<(), DirectoryError> {
    let to = out.join(TRACE);
    let same = to.canonicalize().ok() == trace.canonicalize().ok();
    if !same {
        output::copy(trace, &to).map_err(DirectoryError::file(&to))?;
    }
    Ok(())
}

/// Writes the report and how recovery was run, with the input of recovery, and seals the directory.
pub fn save(out: &Path, report: &Report, recovery: &Recovery) -> Result<(), DirectoryError> {
    write(&out.join(REPORT), report)?;
    let mut kept = recovery.clone();
    if let Some(input) = recovery.input.as_deref().filter(|it| it.is_absolute()) {
        let directory = input.parent().and_then(|it| it.canonicalize().ok());
        let name = match recovery.input_name() {
            Some(name) if directory == out.canonicalize().ok() => name,
            _ => {
                output::copy(input, &out.join(INPUT)).map_err(DirectoryError::file(input))?;
                INPUT
            }
        };
        kept.input = Some(name.into());
    }
    write(&out.join(RECOVERY), &kept)?;
    seal(out)
}

/// Writes what pictures of a run need.
pub fn save_details(
    out: &Path,
    coverage: &Coverage,
    sources: &KeptSources,
) -> Result<(), DirectoryError> {
    write(&out.join(COVERAGE), coverage)?;
    write(&out.join(SOURCES), sources)
}

/// What pictures of a run need, as far as it was kept.
pub fn load_details(out: &Path) -> Result<(Option<Coverage>, Option<KeptSources>), DirectoryError> {
    let directory = opened(out)?;
    let coverage = read_kept(&directory, COVERAGE)?;
    Ok((coverage, read_kept(&directory, SOURCES)?))
}

/// A file that need not be there. One of a newer format is refused.
fn read_kept<T: for<'de> Deserialize<'de>>(
    out: &Directory,
    name: &str,
) -> Result<Option<T>, DirectoryError> {
    let Version { schema } = match read(out, name) {
        Err(DirectoryError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(None);
        }
        version => version?,
    };
    refuse_newer(out, name, schema)?;
    read(out, name).map(Some)
}

/// What every file says, whatever else its format has.
#[derive(Deserialize)]
struct Version {
    schema: u32,
}

fn refuse_newer(out: &Directory, name: &str, found: u32) -> Result<(), DirectoryError> {
    if found > SCHEMA {
        let path = out.path().join(name);
        return Err(DirectoryError::Newer { path, found });
    }
    Ok(())
}

/// Seals a directory as it is now. Without a key that can be kept there is no seal, and [`origin`] says so.
pub fn seal(out: &Path) -> Result<(), DirectoryError> {
    let directory = opened(out)?;
    let names = sealed_names(&directory)?;
    let _ = seal::seal(&directory, &names);
    Ok(())
}

/// Whether this user made the directory on this machine, as it is.
pub fn origin(out: &Path) -> Result<Origin, DirectoryError> {
    let directory = opened(out)?;
    let names = sealed_names(&directory)?;
    Ok(seal::origin(&directory, &names))
}

/// The files that decide what a replay does.
fn sealed_names(out: &Directory) -> Result<Vec<PathBuf>, DirectoryError> {
    let (report, recovery) = stored(out)?;
    let mut names = kept_names(&report, &recovery);
    names.push(RECOVERY.into());
    if out.read(outcomes::NAME.as_ref()).is_ok() {
        names.push(outcomes::NAME.into());
    }
    let packed = out.files_below(bundle::FILES.as_ref());
    let packed = packed.map_err(DirectoryError::file(&out.path().join(bundle::FILES)))?;
    names.extend(packed);
    Ok(names)
}

/// The report, the traces, and the input of recovery.
fn kept_names(report: &Report, recovery: &Recovery) -> Vec<PathBuf> {
    let evidence = report.findings.iter().filter_map(|it| it.evidence.as_ref());
    let mut names = vec![TRACE, REPORT];
    names.extend(evidence.filter_map(|evidence| evidence.trace.as_deref()));
    let reads = report.findings.iter().filter_map(|it| it.read.as_ref());
    names.extend(reads.filter_map(|read| read.trace.as_deref()));
    names.sort_unstable();
    names.dedup();
    let mut names: Vec<PathBuf> = names.into_iter().map(PathBuf::from).collect();
    names.extend(recovery.input.clone());
    names
}

/// The report and how recovery was run, as they are stored.
fn stored(out: &Directory) -> Result<(Report, Recovery), DirectoryError> {
    let Version { schema } = read(out, REPORT)?;
    refuse_newer(out, REPORT, schema)?;
    Ok((read(out, REPORT)?, read(out, RECOVERY)?))
}

/// Reads the report and how recovery was run. The input of recovery is a file of the directory, also after the
/// directory was moved.
pub fn load(out: &Path) -> Result<(Report, Recovery), DirectoryError> {
    let directory = opened(out)?;
    let (report, mut recovery) = stored(&directory)?;
    if let Some(input) = &mut recovery.input {
        let path = directory.path().join(&*input);
        directory.read(input).map_err(DirectoryError::file(&path))?;
        *input = std::path::absolute(path).map_err(DirectoryError::file(out))?;
    }
    bundle::unpack(&mut recovery, &directory)?;
    Ok((report, recovery))
}

/// Opens a trace that a finding names.
pub fn open_trace(out: &Path, name: &str) -> Result<fs::File, DirectoryError> {
    let file = opened(out)?.read(name.as_ref());
    file.map_err(DirectoryError::file(&out.join(name)))
}

/// The output directory of a finding: `out` itself, or the one that fuzzing has made for it.
pub fn locate(out: &Path, id: &str) -> PathBuf {
    let own = [out.join(FINDINGS).join(id), out.join(id)];
    let is_one = |it: &PathBuf| !it.is_symlink() && it.join(REPORT).is_file();
    let found = own.into_iter().find(is_one);
    found.unwrap_or_else(|| out.to_path_buf())
}

/// Copies all files of an output directory into a new directory, with what recovery needs on another machine.
pub fn export(out: &Path, to: &Path) -> Result<(), DirectoryError> {
    let (_, recovery) = load(out)?;
    let directory = opened(out)?;
    let (report, kept) = stored(&directory)?;
    let new = Directory::create_new(to).map_err(DirectoryError::file(to))?;
    for name in kept_names(&report, &kept) {
        let copied = directory
            .read(&name)
            .and_then(|from| new.copy(&from, &name));
        copied.map_err(DirectoryError::file(&out.join(name)))?;
    }
    for name in [COVERAGE, SOURCES] {
        if let Ok(from) = directory.read(name.as_ref()) {
            let copied = new.copy(&from, name.as_ref());
            copied.map_err(DirectoryError::file(&out.join(name)))?;
        }
    }
    // Without a trace that can be read there is nothing to replay, and no pool to leave out.
    let trace = directory.read(TRACE.as_ref()).ok();
    let trace = trace.and_then(|file| Trace::from_source(file).ok());
    let pools = trace.iter().flat_map(Trace::pools);
    let pools: Vec<PathBuf> = pools
        .filter_map(|pool| pool.path.canonicalize().ok())
        .collect();
    let mut packed = bundle::pack(&recovery, &pools, &new, bundle::is_packed(&kept))?;
    packed.input = kept.input;
    write(&to.join(RECOVERY), &packed)?;
    seal(to)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::{Command, Stdio};

    use super::{FINDINGS, REPORT, create, locate};

    #[test]
    fn a_child_that_shares_the_descriptor_does_not_keep_the_lock() {
        let out = tempfile::tempdir().unwrap();
        let lock = create(out.path()).unwrap();
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(lock.0.try_clone().unwrap())
            .spawn()
            .unwrap();
        assert!(create(out.path()).is_err());
        drop(lock);
        let again = create(out.path());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(again.is_ok(), "{again:?}");
    }

    #[test]
    fn a_campaign_has_a_directory_for_each_finding() {
        let out = tempfile::tempdir().unwrap();
        let own = out.path().join(FINDINGS).join("0123abcd");
        fs::create_dir_all(&own).unwrap();
        assert_eq!(locate(out.path(), "0123abcd"), out.path());
        fs::write(own.join(REPORT), "{}").unwrap();
        assert_eq!(locate(out.path(), "0123abcd"), own);
        assert_eq!(locate(&out.path().join(FINDINGS), "0123abcd"), own);
        assert_eq!(locate(out.path(), "other"), out.path());
    }
}
