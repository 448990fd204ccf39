//! Split debug information (`-gsplit-dwarf`): functions and inlined calls in a `.dwo` file per unit.
//!
//! Packages of such files (`.dwp`) are not read.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use addr2line::SplitDwarfLoad;
use gimli::{Dwarf, Reader as _, SectionId};

use crate::dwarf::{Section, load_sections};
use crate::elf::Elf;

/// Reads the file that a unit names, or says which file that would be.
///
/// The compiler gives a unit and its file the same number: a file of another compilation is refused.
pub(crate) fn load(wanted: &SplitDwarfLoad<Section>) -> Result<Arc<Dwarf<Section>>, PathBuf> {
    let mut path = PathBuf::new();
    for part in [&wanted.comp_dir, &wanted.path].into_iter().flatten() {
        if let Ok(part) = part.to_slice() {
            path.push(OsStr::from_bytes(&part));
        }
    }
    let load = || {
        let elf = Elf::open(&path).ok()?;
        let mut dwarf = load_sections(&elf, SectionId::dwo_name).ok()?;
        let header = dwarf.units().next().ok()??;
        let found = dwarf.unit(header).ok()?.dwo_id;
        if found != Some(wanted.dwo_id) {
            return None;
        }
        dwarf.make_dwo(&wanted.parent);
        Some(Arc::new(dwarf))
    };
    load().ok_or(path)
}
