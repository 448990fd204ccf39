//! The kernel of the guest and its modules.
//!
//! A module says itself which others it needs (`depends=` in its section `.modinfo`), so that the files of an unpacked
//! package are enough: nothing has to be installed, and no list of dependencies has to exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::read::elf::{FileHeader as _, SectionHeader as _};
use object::{LittleEndian, elf::FileHeader64};

use crate::error::{Result, VmError};

const PREFIX: &str = "vmlinuz-";

/// A kernel and where its modules are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The compressed kernel.
    pub image: PathBuf,
    /// The directory of its modules, `lib/modules/VERSION`.
    pub modules: PathBuf,
}

/// A module as it is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleFile {
    /// Its name, with underscores.
    pub name: String,
    /// Its content, not compressed.
    pub content: Vec<u8>,
}

impl Kernel {
    /// The given kernel, or the newest of `/boot`; its modules are given, beside it, or those of the system.
    pub fn find(image: Option<&Path>, modules: Option<&Path>) -> Result<Self> {
        let image = match image {
            Some(image) => image.to_path_buf(),
            None => newest(Path::new("/boot"))?.ok_or(VmError::NoKernel)?,
        };
        let image = fs::canonicalize(&image).map_err(VmError::file("open", &image))?;
        let modules = match modules {
            Some(modules) => modules.to_path_buf(),
            None => modules_of(&image)?,
        };
        if !modules.join("kernel").is_dir() {
            return Err(VmError::NoModules {
                kernel: image,
                modules,
            });
        }
        Ok(Self { image, modules })
    }

    /// These modules and all that they need, in the order in which they can be loaded. A module that is built in needs
    /// no file.
    pub fn modules(&self, names: &[&str]) -> Result<Vec<ModuleFile>> {
        let mut files = BTreeMap::new();
        list(&self.modules.join("kernel"), &mut files)?;
        list(&self.modules.join("updates"), &mut files)?;
        let built_in = self.built_in();
        let mut order = Vec::new();
        let mut known = BTreeSet::new();
        for name in names {
            self.add(&plain(name), &files, &built_in, &mut known, &mut order)?;
        }
        Ok(order)
    }

    fn add(
        &self,
        name: &str,
        files: &BTreeMap<String, PathBuf>,
        built_in: &BTreeSet<String>,
        known: &mut BTreeSet<String>,
        order: &mut Vec<ModuleFile>,
    ) -> Result<()> {
        if !known.insert(name.to_owned()) || built_in.contains(name) {
            return Ok(());
        }
        let path = files.get(name).ok_or_else(|| VmError::NoModule {
            name: name.to_owned(),
            directory: self.modules.clone(),
        })?;
        let content = read(path)?;
        let needed = dependencies(&content).map_err(|problem| VmError::Malformed {
            path: path.clone(),
            problem,
        })?;
        for other in needed {
            self.add(&other, files, built_in, known, order)?;
        }
        order.push(ModuleFile {
            name: name.to_owned(),
            content,
        });
        Ok(())
    }

    fn built_in(&self) -> BTreeSet<String> {
        let text = fs::read_to_string(self.modules.join("modules.builtin")).unwrap_or_default();
        let names = text.lines().filter_map(|line| name_of(Path::new(line)));
        names.collect()
    }
}

/// The modules that one needs, by its own account.
pub(crate) fn dependencies(module: &[u8]) -> std::result::Result<Vec<String>, String> {
    let problem = |error: object::Error| format!("no kernel module: {error}");
    let header = FileHeader64::<LittleEndian>::parse(module).map_err(problem)?;
    let sections = header.sections(LittleEndian, module).map_err(problem)?;
    let Some((_, section)) = sections.section_by_name(LittleEndian, b".modinfo") else {
        return Err("no kernel module: it has no section .modinfo".to_owned());
    };
    let words = section.data(LittleEndian, module).map_err(problem)?;
    let mut needed = Vec::new();
    for word in words.split(|byte| *byte == 0) {
        if let Some(names) = word.strip_prefix(b"depends=") {
            let names = String::from_utf8_lossy(names);
            needed.extend(names.split(',').filter(|it| !it.is_empty()).map(plain));
        }
    }
    Ok(needed)
}

/// Files and names use `-` where the kernel uses `_`.
fn plain(name: &str) -> String {
    name.replace('-', "_")
}

/// The module that a file has, by its name; nothing if it is no module.
fn name_of(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let (stem, end) = name.split_once(".ko")?;
    matches!(end, "" | ".xz" | ".zst" | ".gz").then(|| plain(stem))
}

fn list(directory: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    if !directory.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(directory).map_err(VmError::file("list", directory))? {
        let entry = entry.map_err(VmError::file("list", directory))?;
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            list(&path, files)?;
        } else if let Some(name) = name_of(&path) {
            files.insert(name, path);
        }
    }
    Ok(())
}

/// The content of a module's file.
fn read(path: &Path) -> Result<Vec<u8>> {
    let (program, package) = match path.extension().and_then(|it| it.to_str()) {
        Some("xz") => ("xz", "xz-utils"),
        Some("zst") => ("zstd", "zstd"),
        Some("gz") => ("gzip", "gzip"),
        _ => return fs::read(path).map_err(VmError::file("read", path)),
    };
    let program = crate::tools::program(program, package)?;
    let output = Command::new(&program)
        .arg("-dc")
        .arg(path)
        .output()
        .map_err(VmError::file("run", &program))?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(VmError::Malformed {
            path: path.to_path_buf(),
            problem: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        })
    }
}

/// The newest kernel of a directory, by the numbers in its name.
fn newest(directory: &Path) -> Result<Option<PathBuf>> {
    if !directory.is_dir() {
        return Ok(None);
    }
    let entries = fs::read_dir(directory).map_err(VmError::file("list", directory))?;
    let files = entries.filter_map(|entry| {
        let path = entry.ok()?.path();
        let version = path.file_name()?.to_str()?.strip_prefix(PREFIX)?.to_owned();
        Some((numbers(&version), path))
    });
    Ok(files.max().map(|(_, path)| path))
}

fn numbers(version: &str) -> Vec<u64> {
    let parts = version.split(|letter: char| !letter.is_ascii_digit());
    parts.filter_map(|part| part.parse().ok()).collect()
}

/// Where the modules of a kernel are: in the tree that it is part of, or in that of the system.
fn modules_of(image: &Path) -> Result<PathBuf> {
    let name = image.file_name().and_then(|name| name.to_str());
    let Some(version) = name.and_then(|name| name.strip_prefix(PREFIX)) else {
        return Err(VmError::NoModules {
            kernel: image.to_path_buf(),
            modules: PathBuf::from("/lib/modules"),
        });
    };
    let beside = image.parent().and_then(Path::parent);
    let beside = beside.map(|tree| tree.join("lib/modules").join(version));
    Ok(beside
        .filter(|directory| directory.is_dir())
        .unwrap_or_else(|| Path::new("/lib/modules").join(version)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files() {
        let name = |path: &str| name_of(Path::new(path));
        assert_eq!(name("a/dm-mod.ko"), Some("dm_mod".into()));
        assert_eq!(name("a/ext4.ko.xz"), Some("ext4".into()));
        assert_eq!(name("a/modules.dep"), None);
        assert_eq!(name("a/x.ko.sig"), None);
    }

    #[test]
    fn the_newest_is_not_the_last_by_letters() {
        let directory = tempfile::tempdir().unwrap();
        for version in ["6.1.0-9-amd64", "6.1.0-55-amd64", "5.10.0-99-amd64"] {
            fs::write(directory.path().join(format!("vmlinuz-{version}")), b"").unwrap();
        }
        let newest = newest(directory.path()).unwrap().unwrap();
        assert!(newest.ends_with("vmlinuz-6.1.0-55-amd64"));
    }

    #[test]
    fn what_is_no_module_is_refused() {
        assert!(
            dependencies(b"text")
                .unwrap_err()
                .contains("no kernel module")
        );
    }
}
