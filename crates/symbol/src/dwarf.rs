//! Debug information: lines, functions and inlined calls at an address.
//!
//! `addr2line` does the work. Sections own their bytes (shared slices), so that a module's debug
//! information can be kept without borrowing from anything.

use std::path::PathBuf;
use std::sync::Arc;

use addr2line::{Context, Location, LookupContinuation, LookupResult};
use gimli::{Dwarf, EndianArcSlice, LittleEndian, Reader as _, Section as _, SectionId};

use crate::demangle::demangle;
use crate::elf::{Elf, MAX_DEBUG_BYTES};
use crate::{Problem, SourceFrame, split};

/// A section that owns its bytes.
pub(crate) type Section = EndianArcSlice<LittleEndian>;

/// The debug information of a module.
pub(crate) struct DebugInfo {
    context: Context<Section>,
    path: PathBuf,
}

impl DebugInfo {
    /// Reads the debug information of a file; nothing if it has none.
    ///
    /// `supplement` is the file to which `dwz` moved what several files have in common.
    pub(crate) fn load(elf: &Elf, supplement: Option<&Elf>) -> Result<Option<Self>, Problem> {
        let mut dwarf = load_sections(elf, |id| Some(id.name()))?;
        if dwarf.debug_info.reader().is_empty() {
            return Ok(None);
        }
        if let Some(supplement) = supplement {
            dwarf.set_sup(load_sections(supplement, |id| Some(id.name()))?);
        }
        let context = Context::from_dwarf(dwarf).map_err(|error| elf.damaged(error.to_string()))?;
        Ok(Some(Self {
            context,
            path: elf.path().into(),
        }))
    }

    /// The frames at an address, innermost first: each but the last is inlined into the next.
    ///
    /// If a part of the debug information is in files that are missing, what is there is used, and
    /// `problems` gets to know.
    pub(crate) fn frames(
        &self,
        address: u64,
        problems: &mut Vec<Problem>,
    ) -> Result<Vec<SourceFrame>, Problem> {
        self.read_frames(address, problems)
            .map_err(|error| Problem::Damaged {
                path: self.path.clone(),
                what: error.to_string(),
            })
    }

    /// The line at an address, without functions: line tables are apart from them, and may be sound if
    /// they are damaged.
    pub(crate) fn line(&self, address: u64) -> Option<SourceFrame> {
        let location = self.context.find_location(address).ok()??;
        Some(source_frame(None, Some(&location)))
    }

    fn read_frames(
        &self,
        address: u64,
        problems: &mut Vec<Problem>,
    ) -> Result<Vec<SourceFrame>, gimli::Error> {
        let mut lookup = self.context.find_frames(address);
        let mut found = loop {
            match lookup {
                LookupResult::Output(output) => break output?,
                LookupResult::Load { load, continuation } => {
                    let rest = split::load(&load);
                    if let Err(wanted) = &rest {
                        let path = self.path.clone();
                        let wanted = wanted.clone();
                        problems.push(Problem::Incomplete { path, wanted });
                    }
                    lookup = continuation.resume(rest.ok());
                }
            }
        };
        let mut frames: Vec<SourceFrame> = Vec::new();
        while let Some(frame) = found.next()? {
            if let Some(callee) = frames.last_mut() {
                callee.is_inlined = true;
            }
            let name = match &frame.function {
                Some(function) => demangle(&function.name.to_slice()?),
                None => None,
            };
            frames.push(source_frame(name, frame.location.as_ref()));
        }
        Ok(frames)
    }
}

/// Reads what addr2line needs of a file, under the names that `name` gives.
pub(crate) fn load_sections(
    elf: &Elf,
    name: impl Fn(SectionId) -> Option<&'static str>,
) -> Result<Dwarf<Section>, Problem> {
    let mut total_bytes = 0;
    Dwarf::load(|id| {
        let name = if is_needed(id) { name(id) } else { None };
        let bytes = match name {
            Some(name) => elf.section(name)?.unwrap_or_default(),
            None => Vec::new(),
        };
        total_bytes += bytes.len() as u64;
        if total_bytes > MAX_DEBUG_BYTES {
            return Err(elf.too_large(total_bytes));
        }
        Ok(Section::new(Arc::from(bytes), LittleEndian))
    })
}

/// Places of variables, macros and types are of no use here.
fn is_needed(id: SectionId) -> bool {
    matches!(
        id,
        SectionId::DebugAbbrev
            | SectionId::DebugAddr
            | SectionId::DebugAranges
            | SectionId::DebugInfo
            | SectionId::DebugLine
            | SectionId::DebugLineStr
            | SectionId::DebugRanges
            | SectionId::DebugRngLists
            | SectionId::DebugStr
            | SectionId::DebugStrOffsets
    )
}

fn source_frame(function: Option<String>, location: Option<&Location<'_>>) -> SourceFrame {
    // DWARF writes zero for an unknown line or column.
    let known = |number: Option<u32>| number.filter(|&number| number != 0);
    let line = location.and_then(|it| known(it.line));
    SourceFrame {
        function,
        symbol_offset: None,
        file: location
            .and_then(|it| it.file)
            .filter(|it| !it.is_empty())
            .map(PathBuf::from),
        line,
        column: line.and_then(|_| location.and_then(|it| known(it.column))),
        is_inlined: false,
    }
}
