//! A bundle: the evidence of a run with what a replay on another machine needs.
//!
//! Beside the files of an output directory it has a directory [`FILES`], in which recovery runs. Programs and other
//! files that the commands of recovery name are copied there, and libraries that are not part of the system into
//! `lib` in it. A file that a command names relative to its directory keeps its name; for others the word of the command
//! changes. Pools are not copied: the trace has them. A command behind `sh -c` stays as it is: files that it names are
//! not found.
//!
//! A bundle can be exported again. Its commands may name any file of this machine, so only files of the bundle are copied.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

use powerfail_files::Directory;

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
/// from there. If `is_bundle`, recovery is that of another bundle, in whose directory it runs.
pub(crate) fn pack(
    recovery: &Recovery,
    pools: &[PathBuf],
    bundle: &Directory,
    is_bundle: bool,
) -> Result<Recovery, DirectoryError> {
    let make = |name: &Path| {
        let made = bundle.create_directory(name);
        made.map_err(DirectoryError::file(&bundle.path().join(name)))
    };
    let files = make(FILES.as_ref())?;
    let libraries = make(&Path::new(FILES).join(LIBRARIES))?;
    let may_copy = |path: &Path| {
        let own = recovery.working_directory.canonicalize();
        !is_bundle || own.is_ok_and(|own| path.starts_with(own))
    };
    let file = |word: &OsStr, is_program| {
        let path = file_of(word, is_program, recovery)?;
        (!pools.contains(&path) && may_copy(&path)).then_some(path)
    };
    let mut names = Names::default();
    for (_, command) in recovery.commands() {
        for (number, word) in command.iter().enumerate() {
            let path = file(word, number == 0);
            if let Some((name, path)) =
                path.and_then(|it| Some((name_inside(word, &it, recovery)?, it)))
            {
                names.keep(name, path);
            }
        }
    }
    let mut packed = recovery.clone();
    for command in packed.commands_mut() {
        for (number, word) in command.iter_mut().enumerate() {
            let Some(path) = file(word, number == 0) else {
                continue;
            };
            if name_inside(word, &path, recovery).is_none() {
                *word = Path::new(".").join(names.give(path)).into_os_string();
            }
        }
    }
    for (name, path) in &names.0 {
        if let Some(directory) = name.parent() {
            make(&Path::new(FILES).join(directory))?;
        }
        copy(path, &files, name)?;
        pack_libraries(path, recovery, &libraries, &may_copy)?;
    }
    packed.working_directory = FILES.into();
    Ok(packed)
}

fn copy(from: &Path, directory: &Directory, name: &Path) -> Result<(), DirectoryError> {
    let copied = File::open(from).and_then(|from| directory.copy(&from, name));
    copied.map_err(DirectoryError::file(from))
}

/// Whether recovery, as it is stored, runs from a bundle.
pub(crate) fn is_packed(stored: &Recovery) -> bool {
    stored.working_directory == Path::new(FILES)
}

/// Completes what [`pack`] has made relative to the bundle.
pub(crate) fn unpack(recovery: &mut Recovery, bundle: &Directory) -> Result<(), DirectoryError> {
    if !is_packed(recovery) {
        return Ok(());
    }
    let files = bundle.path().join(FILES);
    let failed = || DirectoryError::file(&files);
    bundle.directory(FILES.as_ref()).map_err(failed())?;
    recovery.working_directory = std::path::absolute(&files).map_err(failed())?;
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
    Ok(())
}

/// The files of a bundle: their names in it, and their paths outside.
#[derive(Default)]
struct Names(BTreeMap<PathBuf, PathBuf>);

impl Names {
    /// A file keeps its name.
    fn keep(&mut self, name: PathBuf, path: PathBuf) {
        self.0.insert(name, path);
    }

    /// Gives a file a name, unless it has one. Two files of one name get different ones.
    fn give(&mut self, path: PathBuf) -> PathBuf {
        if let Some((name, _)) = self.0.iter().find(|(_, known)| **known == path) {
            return name.clone();
        }
        let base = path.file_name().unwrap_or(OsStr::new("file")).to_owned();
        let mut name = PathBuf::from(&base);
        let mut number = 2;
        while name == Path::new(LIBRARIES) || self.0.contains_key(&name) {
            let mut numbered = base.clone();
            numbered.push(format!("-{number}"));
            name = numbered.into();
            number += 1;
        }
        self.0.insert(name.clone(), path);
        name
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
fn pack_libraries(
    program: &Path,
    recovery: &Recovery,
    to: &Directory,
    may_copy: &dyn Fn(&Path) -> bool,
) -> Result<(), DirectoryError> {
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
        let Some(path) = file_of(OsStr::new(path), false, recovery).filter(|it| may_copy(it))
        else {
            continue;
        };
        let name = Path::new(name).file_name().unwrap_or_default();
        if to.read(name.as_ref()).is_err() {
            copy(&path, to, name.as_ref())?;
        }
    }
    Ok(())
}
