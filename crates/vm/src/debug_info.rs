//! Lines of the sources: debug information of the kernel (`vmlinux`) and of modules (`.ko`).
//!
//! A module is an object file: its sections get their addresses when it is loaded. The names of its functions, which the running
//! kernel tells, say where that is; then the debug sections are relocated as a linker does it. A module that was loaded twice
//! has two of them.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use object::elf::ET_REL;
use object::read::elf::ElfFile64;
use object::{
    LittleEndian, Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _,
    RelocationKind, RelocationTarget, SectionIndex, SymbolKind,
};

use crate::elf::Section;
use crate::error::{Result, VmError};
use crate::kallsyms::{KERNEL, KernelSymbol};

const PAGE: u64 = 4096;

/// A file with debug information.
#[derive(Debug)]
pub(crate) struct DebugFile {
    path: PathBuf,
    bytes: Vec<u8>,
}

/// A file whose addresses are those of the guest.
#[derive(Debug)]
pub(crate) struct LinkedFile<'a> {
    pub(crate) path: &'a Path,
    /// The first address.
    pub(crate) begin: u64,
    pub(crate) build_id: Vec<u8>,
}

/// A module where it was loaded.
#[derive(Debug)]
pub(crate) struct LoadedModule {
    /// Its functions, in the order of their addresses.
    pub(crate) symbols: Vec<KernelSymbol>,
    /// Its debug information, for these addresses.
    pub(crate) sections: Vec<Section>,
}

impl DebugFile {
    /// Reads a file. Its name says which module it is about.
    pub(crate) fn read(path: &Path) -> Result<(String, Self)> {
        let malformed = |problem: &str| VmError::Malformed {
            path: path.to_path_buf(),
            problem: problem.to_owned(),
        };
        let bytes = fs::read(path).map_err(VmError::file("read", path))?;
        let path = fs::canonicalize(path).map_err(VmError::file("open", path))?;
        let file = Self { path, bytes };
        let elf = file.elf().ok_or_else(|| malformed("no ELF file"))?;
        if elf.section_by_name(".debug_info").is_none() {
            return Err(malformed("it has no debug information"));
        }
        let is_object = file.is_object();
        let stem = file.path.file_name().unwrap_or_default().to_string_lossy();
        let stem = stem.split('.').next().unwrap_or_default();
        // The kernel writes an underscore for a dash.
        let name = if is_object {
            stem.replace('-', "_")
        } else {
            KERNEL.to_owned()
        };
        Ok((name, file))
    }

    fn elf(&self) -> Option<ElfFile64<'_, LittleEndian>> {
        ElfFile64::parse(&*self.bytes).ok()
    }

    fn is_object(&self) -> bool {
        let elf = self.elf();
        elf.is_some_and(|elf| elf.elf_header().e_type.get(LittleEndian) == ET_REL)
    }

    /// A file that has its addresses already, as the kernel has.
    pub(crate) fn linked(&self) -> Option<LinkedFile<'_>> {
        if self.is_object() {
            return None;
        }
        let elf = self.elf()?;
        let first = elf.segments().map(|it| it.address()).min()?;
        Some(LinkedFile {
            path: &self.path,
            begin: first / PAGE * PAGE,
            build_id: elf.build_id().ok().flatten().unwrap_or_default().to_vec(),
        })
    }

    /// Whether these functions, of which the running kernel tells, are where the file has them.
    pub(crate) fn fits(&self, symbols: &[KernelSymbol]) -> bool {
        let Some(elf) = self.elf() else { return false };
        let mut known: HashMap<&str, Option<u64>> = HashMap::new();
        for symbol in elf.symbols().filter(|it| it.kind() == SymbolKind::Text) {
            if let Ok(name) = symbol.name() {
                let once = known.entry(name);
                once.and_modify(|it| *it = None)
                    .or_insert(Some(symbol.address()));
            }
        }
        let both = symbols.iter().filter_map(|it| {
            let address = (*known.get(it.name.as_str())?)?;
            Some(address == it.address)
        });
        let (same, other): (Vec<bool>, Vec<bool>) = both.partition(|is_same| *is_same);
        same.len() > other.len()
    }

    /// Where a module was loaded, and its debug information there. Nothing if its functions do not fit.
    pub(crate) fn loads(&self, symbols: &[KernelSymbol]) -> Vec<LoadedModule> {
        let Some(elf) = self.elf() else {
            return Vec::new();
        };
        let known = unique_functions(&elf);
        // For each section, the addresses that it may begin at, and how many functions say so.
        let mut votes: BTreeMap<usize, BTreeMap<u64, usize>> = BTreeMap::new();
        for symbol in symbols {
            if let Some((section, offset)) = known.get(symbol.name.as_str()) {
                let base = symbol.address.wrapping_sub(*offset);
                *votes.entry(section.0).or_default().entry(base).or_default() += 1;
            }
        }
        // The section with the most functions stands for the load.
        let largest = votes.values().max_by_key(|it| it.values().sum::<usize>());
        let mut begins: Vec<u64> = largest.map_or(Vec::new(), |it| it.keys().copied().collect());
        begins.sort_unstable();
        let loads = begins.iter().map(|begin| {
            let nearest = |bases: &BTreeMap<u64, usize>| {
                let bases = bases.keys().copied();
                bases.min_by_key(|base| base.abs_diff(*begin))
            };
            let bases: HashMap<SectionIndex, u64> = votes
                .iter()
                .filter_map(|(section, bases)| Some((SectionIndex(*section), nearest(bases)?)))
                .collect();
            let is_here = |symbol: &&KernelSymbol| {
                let other = begins.iter().min_by_key(|it| it.abs_diff(symbol.address));
                other == Some(begin)
            };
            LoadedModule {
                symbols: symbols.iter().filter(is_here).cloned().collect(),
                sections: relocated(&elf, &bases),
            }
        });
        loads.filter(|it| !it.symbols.is_empty()).collect()
    }
}

/// The functions of a file whose names are there once, by name: section and offset.
fn unique_functions<'f>(
    elf: &'f ElfFile64<'_, LittleEndian>,
) -> HashMap<&'f str, (SectionIndex, u64)> {
    let mut known: HashMap<&str, Option<(SectionIndex, u64)>> = HashMap::new();
    for symbol in elf.symbols().filter(|it| it.kind() == SymbolKind::Text) {
        if let (Ok(name), Some(section)) = (symbol.name(), symbol.section_index()) {
            known
                .entry(name)
                .and_modify(|it| *it = None)
                .or_insert(Some((section, symbol.address())));
        }
    }
    let unique = known.into_iter();
    unique.filter_map(|(name, at)| Some((name, at?))).collect()
}

/// The debug sections of an object file whose sections begin at these addresses.
fn relocated(
    elf: &ElfFile64<'_, LittleEndian>,
    bases: &HashMap<SectionIndex, u64>,
) -> Vec<Section> {
    let mut sections = Vec::new();
    for section in elf.sections() {
        let Ok(name) = section.name() else { continue };
        if !name.starts_with(".debug_") {
            continue;
        }
        let Ok(content) = section.uncompressed_data() else {
            continue;
        };
        let mut content = content.into_owned();
        for (offset, relocation) in section.relocations() {
            let RelocationTarget::Symbol(index) = relocation.target() else {
                continue;
            };
            let Ok(symbol) = elf.symbol_by_index(index) else {
                continue;
            };
            let base = symbol.section_index().and_then(|it| bases.get(&it));
            let target = base.copied().unwrap_or(0).wrapping_add(symbol.address());
            let value = target.wrapping_add_signed(relocation.addend());
            let value = match relocation.kind() {
                RelocationKind::Absolute => value,
                RelocationKind::Relative => value.wrapping_sub(offset),
                _ => continue,
            };
            let len = usize::from(relocation.size() / 8);
            let start = offset as usize;
            if let Some(place) = content.get_mut(start..start + len) {
                place.copy_from_slice(&value.to_le_bytes()[..len]);
            }
        }
        sections.push(Section {
            name: name.to_owned(),
            content,
        });
    }
    sections
}
