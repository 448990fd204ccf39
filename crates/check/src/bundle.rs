//! A bundle: the evidence of a run with what a replay on another machine needs.
//!
//! Beside the files of an output directory it has a directory [`FILES`], in which recovery runs. Programs and other
//! files that the commands of recovery name are copied there, and libraries that are not part of the system into
//! `lib` in it. A file that a command names relative to its directory keeps its name; for others the word of the command
//! changes. Pools are not copied: the trace has them. A command behind `sh -c` stays as it is: files that it names are
//! not found.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

use crate::output_directory::DirectoryError;
use crate::recovery::Recovery;

/// The directory in which recovery runs.
pub(crate) const FILES: &str = "files";
/// The directory of libraries, in [`FILES`].
const LIBRARIES: &str = "lib";
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
/// What every machine has, or gets by its packages.
const SYSTEM: [&str; 8] = [
    "/bin", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/sbin", "/usr",
];
/// The dynamic linker, which lists the libraries of a program without running it.
const LINKER: &str = "/lib64/ld-linux-x86-64.so.2";

/// Copies what the commands of recovery name, except pools, into a new directory of a bundle. Returns how recovery runs
/// from there.
pub(crate) fn pack(
    recovery: &Recovery,
    pools: &[PathBuf],
    bundle: &Path,
) -> Result<Recovery, DirectoryError> {
    let files = bundle.join(FILES);
    let libraries = files.join(LIBRARIES);
    fs::create_dir_all(&libraries).map_err(DirectoryError::file(&libraries))?;
    let mut packed = recovery.clone();
    let mut names = Names::default();
    for command in packed.commands_mut() {
        for (number, word) in command.iter_mut().enumerate() {
            let Some(path) = file_of(word, number == 0, recovery) else {
                continue;
            };
            if pools.contains(&path) {
                continue;
            }
            let (name, is_new) = match name_inside(word, &path, recovery) {
                Some(name) => names.keep(&path, name),
                None => names.give(&path),
            };
            if is_new {
                let to = files.join(&name);
                let directory = to.parent().unwrap_or(&files);
                fs::create_dir_all(directory).map_err(DirectoryError::file(directory))?;
                fs::copy(&path, &to).map_err(DirectoryError::file(&path))?;
                pack_libraries(&path, recovery, &libraries)?;
            }
            if name_inside(word, &path, recovery).is_none() {
                *word = Path::new(".").join(name).into_os_string();
            }
        }
    }
    packed.working_directory = FILES.into();
    Ok(packed)
}

/// Completes what [`pack`] has made relative to the bundle.
pub(crate) fn unpack(recovery: &mut Recovery, bundle: &Path) {
    if recovery.working_directory != Path::new(FILES) {
        return;
    }
    let bundle = std::path::absolute(bundle).unwrap_or_else(|_| bundle.to_path_buf());
    recovery.working_directory = bundle.join(FILES);
    let libraries = recovery.working_directory.join(LIBRARIES);
    let environment = &mut recovery.environment;
    let mut paths = vec![libraries];
    if let Some(place) = environment.iter().position(|it| it.0 == LIBRARY_PATH) {
        let (_, others) = environment.remove(place);
        paths.extend(std::env::split_paths(&others));
    }
    if let Ok(paths) = std::env::join_paths(paths) {
        environment.push((LIBRARY_PATH.into(), paths));
    }
}

/// The names of files in a bundle.
#[derive(Default)]
struct Names(BTreeMap<PathBuf, PathBuf>);

impl Names {
    /// A file keeps its name. Returns it, and whether it is new.
    fn keep(&mut self, path: &Path, name: PathBuf) -> (PathBuf, bool) {
        let is_new = self.0.get(path) != Some(&name);
        self.0.insert(path.to_path_buf(), name.clone());
        (name, is_new)
    }

    /// Gives a file a name. Returns it, and whether it is new. Two files of one name get different ones.
    fn give(&mut self, path: &Path) -> (PathBuf, bool) {
        if let Some(name) = self.0.get(path) {
            return (name.clone(), false);
        }
        let base = path.file_name().unwrap_or(OsStr::new("file"));
        let mut name = PathBuf::from(base);
        let mut number = 2;
        while name == Path::new(LIBRARIES) || self.0.values().any(|known| *known == name) {
            let mut numbered = base.to_owned();
            numbered.push(format!("-{number}"));
            name = numbered.into();
            number += 1;
        }
        self.0.insert(path.to_path_buf(), name.clone());
        (name, true)
    }
}

/// The path of a file in the directory of recovery, if the word names it relative to that.
fn name_inside(word: &OsStr, path: &Path, recovery: &Recovery) -> Option<PathBuf> {
    let is_inside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    if !Path::new(word).components().all(is_inside) {
        return None;
    }
    // A program without a slash was found elsewhere.
    let here = recovery.working_directory.join(word).canonicalize().ok()?;
    (here == path).then(|| Path::new(word).components().collect())
}

/// The file that a word of a command names, unless it belongs to the system.
fn file_of(word: &OsStr, is_program: bool, recovery: &Recovery) -> Option<PathBuf> {
    let is_path = word.to_string_lossy().contains('/');
    let path = if is_program && !is_path {
        let path = std::env::var_os("PATH")?;
        let mut candidates = std::env::split_paths(&path).map(|directory| directory.join(word));
        candidates.find(|candidate| candidate.is_file())?
    } else {
        recovery.working_directory.join(word)
    };
    let path = path.canonicalize().ok()?;
    let is_of_system = SYSTEM.iter().any(|directory| path.starts_with(directory));
    (path.is_file() && !is_of_system).then_some(path)
}

/// Copies the libraries of a program that do not belong to the system.
fn pack_libraries(program: &Path, recovery: &Recovery, to: &Path) -> Result<(), DirectoryError> {
    let mut linker = Command::new(LINKER);
    linker.arg("--list").arg(program);
    linker.stdin(Stdio::null()).stderr(Stdio::null());
    for (name, value) in &recovery.environment {
        if name == LIBRARY_PATH {
            linker.env(name, value);
        }
    }
    // What is not a program with libraries, or where there is no such linker, has none to copy.
    let Ok(listed) = linker.current_dir(&recovery.working_directory).output() else {
        return Ok(());
    };
    for line in String::from_utf8_lossy(&listed.stdout).lines() {
        // name => path (address)
        let Some((name, rest)) = line.trim().split_once(" => ") else {
            continue;
        };
        let path = rest.rsplit_once(" (").map_or(rest, |(path, _)| path);
        let Some(path) = file_of(OsStr::new(path), false, recovery) else {
            continue;
        };
        let name = Path::new(name).file_name().unwrap_or_default();
        let copy = to.join(name);
        fs::copy(&path, &copy).map_err(DirectoryError::file(&path))?;
    }
    Ok(())
}
