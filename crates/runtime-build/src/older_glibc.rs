//! What is built here runs with older versions of glibc as well.
//!
//! `older_glibc.c` has the functions whose newest versions would need a newer glibc. Before 2.34, their old versions are
//! partly in libpthread and libdl, so files that use them must name these libraries. Programs do. The runtime is loaded into
//! every target, where two more libraries would cost time and be seen, so it names them in entries that loaders ignore;
//! powerfail makes them count where glibc is that old.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What the functions are linked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A program.
    Executable,
    /// The library that is loaded into targets.
    Runtime,
    /// Another library.
    Library,
}

/// The libraries that have the old versions, before glibc 2.34.
pub const LIBRARIES: [&str; 2] = ["libpthread.so.0", "libdl.so.2"];
/// The tag of entries of the dynamic section that loaders ignore: one for the use of operating systems, and of none. The
/// binary knows it as well.
pub const IGNORED_TAG: u64 = 0x6050_4601;
const NEEDED_TAG: u64 = 1;
const STRINGS_TAG: u64 = 5;
const LOAD: u32 = 1;
const DYNAMIC: u32 = 2;

/// Compiles the functions, and returns what the linker must be told.
///
/// # Panics
///
/// If the C compiler cannot be started, or fails.
pub fn link_arguments(out: &Path, kind: Kind) -> Vec<String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/older_glibc.c");
    println!("cargo::rerun-if-changed={}", source.display());
    println!("cargo::rerun-if-env-changed=CC");
    let object = out.join("older_glibc.o");
    // Rust links with this command, too.
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut command = Command::new(&compiler);
    command.args([
        "-O2",
        "-fPIC",
        "-fno-stack-protector",
        "-ffunction-sections",
    ]);
    match kind {
        Kind::Executable => drop(command.arg("-DEXECUTABLE")),
        Kind::Runtime => drop(command.arg("-DRUNTIME")),
        Kind::Library => {}
    }
    let status = command
        .arg("-c")
        .arg(&source)
        .arg("-o")
        .arg(&object)
        .status();
    let status = status
        .unwrap_or_else(|error| panic!("a C compiler is needed: {}: {error}", compiler.display()));
    assert!(status.success(), "{} does not compile", source.display());
    let mut arguments = vec![object.display().to_string()];
    if kind != Kind::Library {
        let names = LIBRARIES.map(|name| format!("-l:{name}")).join(",");
        arguments.push(format!(
            "-Wl,--push-state,--no-as-needed,{names},--pop-state"
        ));
    }
    arguments
}

/// The runtime with the entries that name [`LIBRARIES`] ignored.
///
/// # Panics
///
/// If the entries are not there.
pub(crate) fn ignore_libraries(mut file: Vec<u8>) -> Vec<u8> {
    let headers = segments(&file);
    let entries: Vec<(usize, u64, u64)> = entries(&file).collect();
    let strings = entries.iter().find(|(_, tag, _)| *tag == STRINGS_TAG);
    let (.., strings) = *strings.expect("a table of strings");
    let (_, from, address, _) = *headers
        .iter()
        .find(|(kind, _, address, len)| {
            *kind == LOAD && (*address..address + len).contains(&strings)
        })
        .expect("the strings are loaded");
    let strings = strings - address + from;
    let mut found = 0;
    let needed = entries.iter().filter(|(_, tag, _)| *tag == NEEDED_TAG);
    for &(at, _, value) in needed {
        let name = file[(strings + value) as usize..]
            .split(|byte| *byte == 0)
            .next();
        if LIBRARIES.iter().any(|it| Some(it.as_bytes()) == name) {
            file[at..at + 8].copy_from_slice(&IGNORED_TAG.to_le_bytes());
            found += 1;
        }
    }
    assert_eq!(found, LIBRARIES.len(), "the runtime names the libraries");
    file
}

/// The entries of the dynamic section of an ELF file: where each is, its tag and its value.
fn entries(file: &[u8]) -> impl Iterator<Item = (usize, u64, u64)> {
    let (_, from, _, len) = segments(file)
        .into_iter()
        .find(|(kind, ..)| *kind == DYNAMIC)
        .expect("a dynamic section");
    (from as usize..(from + len) as usize)
        .step_by(16)
        .map(|at| (at, word(file, at), word(file, at + 8)))
        .take_while(|(_, tag, _)| *tag != 0)
}

/// The segments: kind, place in the file, address and length in the file.
fn segments(file: &[u8]) -> Vec<(u32, u64, u64, u64)> {
    let (first, size, count) = (word(file, 32) as usize, half(file, 54), half(file, 56));
    let headers = (0..count).map(|number| first + number * size);
    headers
        .map(|at| {
            let kind = u32::try_from(word(file, at) & 0xffff_ffff).expect("32 bits");
            (
                kind,
                word(file, at + 8),
                word(file, at + 16),
                word(file, at + 32),
            )
        })
        .collect()
}

fn word(file: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(file[at..at + 8].try_into().expect("eight bytes"))
}

fn half(file: &[u8], at: usize) -> usize {
    u16::from_le_bytes(file[at..at + 2].try_into().expect("two bytes")).into()
}

/// The path of the runtime whose libraries are ignored, written beside the given one if it is not there.
pub(crate) fn finished(linked: &Path, directory: &Path) -> PathBuf {
    let path = directory.join("libpowerfail_runtime.so");
    let file = ignore_libraries(std::fs::read(linked).expect("the runtime was linked"));
    if std::fs::read(&path).is_ok_and(|existing| existing == file) {
        return path;
    }
    // Several builds may be at it: the file appears as a whole.
    let new = directory.join(format!("libpowerfail_runtime.{}", std::process::id()));
    std::fs::write(&new, file).expect("the target directory can be written");
    std::fs::rename(&new, &path).expect("the target directory can be written");
    path
}
