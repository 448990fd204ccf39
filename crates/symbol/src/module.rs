//! One module: which files tell about it, and what they tell.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object::elf;
use powerfail_trace::Module;

use crate::demangle::demangle;
use crate::dwarf::DebugInfo;
use crate::elf::Elf;
use crate::imports::Imports;
use crate::locate::{self, DebugLink, Supplement};
use crate::symbols::SymbolTable;
use crate::{AddressKind, BuildId, NoSource, Problem, SourceFrame};

/// Where a module's source lines come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LineSource {
    /// There are none.
    #[default]
    None,
    /// The module's own file.
    Module,
    /// A separate debug file that the build-id leads to.
    BuildId(PathBuf),
    /// A separate debug file that the module names, with the right checksum.
    DebugLink(PathBuf),
}

/// Where the names of functions come from that debug information does not name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameSource {
    /// There are none.
    #[default]
    None,
    /// All symbols (`.symtab`), in the module or its debug file.
    AllSymbols,
    /// The symbols that other modules can use (`.dynsym`).
    DynamicSymbols,
}

/// What is known about a module's files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleReport {
    /// Where lines come from.
    pub lines: LineSource,
    /// Where other names come from.
    pub names: NameSource,
    /// What is wrong, in the order in which it was found.
    pub problems: Vec<Problem>,
}

/// A module whose files were looked at.
pub(crate) struct LoadedModule {
    /// What must be added to an offset to get an address in the tables; nothing if no file is usable.
    image_base: Option<u64>,
    debug_info: Option<DebugInfo>,
    symbols: Option<SymbolTable>,
    /// Read when it is needed; nothing inside if the file has none.
    imports: OnceCell<Option<Imports>>,
    report: ModuleReport,
    /// Why there are no lines at all.
    no_lines: Option<Arc<Problem>>,
    /// The files that were looked for, whether they are there or not.
    files: Vec<PathBuf>,
}

impl LoadedModule {
    /// Looks for the files of a module and reads their tables.
    pub(crate) fn load(module: &Module, debug_directories: &[PathBuf]) -> Self {
        let mut loader = Loader {
            module,
            recorded: BuildId(module.build_id.clone()),
            debug_directories,
            report: ModuleReport::default(),
            files: Vec::new(),
        };
        let file = loader.open_module();
        let (debug_info, debug_file) = loader.load_debug_info(file.as_ref());
        let symbols = loader.load_symbols(file.as_ref(), debug_file.as_ref());
        let image_base = match file.as_ref().or(debug_file.as_ref()).map(Elf::image_base) {
            Some(base) => loader.note(base),
            None => None,
        };
        let files = loader.files;
        let mut report = loader.report;
        if debug_info.is_none() {
            let path = module.path.clone();
            report.problems.push(Problem::NoDebugInfo { path });
        }
        // The first is the cause of the others.
        let cause = report
            .problems
            .iter()
            .find(|problem| !problem.leaves_lines());
        let has_lines = debug_info.is_some() && image_base.is_some();
        Self {
            no_lines: cause.filter(|_| !has_lines).cloned().map(Arc::new),
            image_base,
            debug_info,
            symbols,
            imports: OnceCell::new(),
            report,
            files,
        }
    }

    /// The files that were looked for, whether they are there or not.
    pub(crate) fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// What is known about the files.
    pub(crate) fn report(&self) -> &ModuleReport {
        &self.report
    }

    /// The functions at an offset, innermost first, and why there is no source.
    pub(crate) fn look_up(
        &mut self,
        offset: u64,
        kind: AddressKind,
    ) -> (Vec<SourceFrame>, Option<NoSource>) {
        let mut frames = Vec::new();
        let mut no_lines = self.no_lines.clone();
        let address = self.image_base.and_then(|base| base.checked_add(offset));
        // The address of the instruction that is meant.
        let probe = match kind {
            AddressKind::Instruction => address,
            AddressKind::Return => address.and_then(|address| address.checked_sub(1)),
        };
        if let (Some(address), Some(probe)) = (address, probe) {
            if let Some(debug_info) = &self.debug_info {
                let found = debug_info.frames(probe, &mut self.report.problems);
                frames = found.unwrap_or_else(|problem| {
                    no_lines = Some(Arc::new(problem.clone()));
                    // Many addresses share a damaged unit.
                    if !self.report.problems.contains(&problem) {
                        self.report.problems.push(problem);
                    }
                    debug_info.line(probe).into_iter().collect()
                });
            }
            self.name_outermost(&mut frames, probe, address);
        }
        let has_source = frames.first().is_some_and(|frame| frame.file.is_some());
        let no_source = no_lines.map_or(NoSource::NotCovered, NoSource::Module);
        (frames, (!has_source).then_some(no_source))
    }

    /// The name of the function of another module whose call returns to an offset. `module` is the one
    /// that this was loaded for.
    pub(crate) fn called(&self, module: &Module, offset: u64) -> Option<String> {
        let address = self.image_base?.checked_add(offset)?;
        let imports = self.imports.get_or_init(|| {
            let mut loader = Loader {
                module,
                recorded: BuildId(module.build_id.clone()),
                debug_directories: &[],
                // What is wrong with the file was reported when it was opened first.
                report: ModuleReport::default(),
                files: Vec::new(),
            };
            let imports = Imports::load(loader.open_module()?);
            loader.note(imports)
        });
        demangle(imports.as_ref()?.called(address)?)
    }

    /// Takes the name of the outermost function from the symbols, if debug information does not have
    /// it or has only the last part of it.
    fn name_outermost(&self, frames: &mut Vec<SourceFrame>, probe: u64, address: u64) {
        let Some(found) = self
            .symbols
            .as_ref()
            .and_then(|symbols| symbols.find(probe))
        else {
            return;
        };
        let known = frames.last().and_then(|frame| frame.function.as_deref());
        if let Some(known) = known {
            if let Some(qualified) = qualify(known, found.name)
                && let Some(outermost) = frames.last_mut()
            {
                outermost.function = Some(qualified);
            }
            return;
        }
        let Some(name) = demangle(found.name) else {
            return;
        };
        if frames.is_empty() {
            frames.push(SourceFrame::default());
        }
        if let Some(outermost) = frames.last_mut() {
            outermost.function = Some(name);
            outermost.symbol_offset = Some(address - found.start);
        }
    }
}

/// The whole name of a function of which debug information has the last part only.
///
/// gcc describes functions with internal linkage so: a lambda is `operator()`, and a function in an
/// anonymous namespace loses its namespaces; rustc does it if it is asked for line tables only. The
/// symbol has all of it. It may be that of another function with the same code, so it must end in the
/// part that is known.
fn qualify(known: &str, symbol: &[u8]) -> Option<String> {
    let is_mangled = symbol.starts_with(b"_Z") || symbol.starts_with(b"_R");
    if !is_mangled || known.contains("::") {
        return None;
    }
    let mut name = demangle(symbol)?;
    // Debug information does not tell the copies of a function apart, either.
    name.truncate(name.find(" [clone ").unwrap_or(name.len()));
    // Arguments of types are written in several ways.
    let last = known.split_once('<').map_or(known, |(last, _)| last);
    let end = name.rfind(&format!("::{last}"))? + 2 + last.len();
    let rest = &name[end..];
    let is_last = rest.is_empty() || rest.starts_with(['(', '<']) || rest.starts_with("::<");
    is_last.then_some(name)
}

/// Whether only the names of a module's functions are of use. That is so for the C library: its source is rarely
/// installed, and to inflate and parse its debug information took a quarter of the time of a short check.
fn needs_only_names(module: &Path) -> bool {
    const C_LIBRARY: [&str; 4] = ["libc.so", "libc-2.", "ld-linux", "libpthread"];
    let name = module.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| C_LIBRARY.iter().any(|start| name.starts_with(start)))
}

/// Looks for the files of one module and collects what is wrong with them.
struct Loader<'a> {
    module: &'a Module,
    recorded: BuildId,
    debug_directories: &'a [PathBuf],
    report: ModuleReport,
    files: Vec<PathBuf>,
}

impl Loader<'_> {
    /// Opens the module's own file, if it is the one that was recorded.
    fn open_module(&mut self) -> Option<Elf> {
        let path = &self.module.path;
        self.files.push(path.clone());
        let file = Elf::open(path).and_then(|file| Ok((file.build_id()?, file)));
        let (found, file) = self.note(file)?;
        if found != self.recorded {
            self.report.problems.push(Problem::Rebuilt {
                path: path.clone(),
                recorded: self.recorded.clone(),
                found,
            });
            return None;
        }
        if found.is_none() {
            self.report
                .problems
                .push(Problem::Unverified { path: path.clone() });
        }
        Some(file)
    }

    /// Finds debug information: in the module, by its build-id, or by its link; and the separate file
    /// that was found, whether it has debug information or only symbols.
    fn load_debug_info(&mut self, file: Option<&Elf>) -> (Option<DebugInfo>, Option<Elf>) {
        if let Some(file) = file
            && let Some(debug_info) = self.debug_info_of(file)
        {
            self.report.lines = LineSource::Module;
            return (Some(debug_info), None);
        }
        let mut only_symbols = None;
        for (path, link) in self.debug_file_candidates(file) {
            self.files.push(path.clone());
            // Most of these do not exist, which is no problem.
            if !path.exists() {
                continue;
            }
            let Some(debug_file) = self.open_debug_file(&path, link) else {
                continue;
            };
            if let Some(debug_info) = self.debug_info_of(&debug_file) {
                self.report.lines = match link {
                    Some(_) => LineSource::DebugLink(path),
                    None => LineSource::BuildId(path),
                };
                return (Some(debug_info), Some(debug_file));
            }
            only_symbols.get_or_insert(debug_file);
        }
        (None, only_symbols)
    }

    fn debug_file_candidates(&mut self, file: Option<&Elf>) -> Vec<(PathBuf, Option<u32>)> {
        let by_build_id = locate::by_build_id(&self.recorded, self.debug_directories);
        let mut candidates: Vec<_> = by_build_id.into_iter().map(|path| (path, None)).collect();
        if let Some(link) = file
            .map(DebugLink::read)
            .and_then(|link| self.note(link).flatten())
        {
            let by_link = link.candidates(&self.module.path, self.debug_directories);
            candidates.extend(by_link.into_iter().map(|path| (path, Some(link.checksum))));
        }
        candidates
    }

    /// Opens a separate debug file, if it belongs to the module.
    fn open_debug_file(&mut self, path: &Path, checksum: Option<u32>) -> Option<Elf> {
        let file = Elf::open(path).and_then(|file| {
            if let Some(wanted) = checksum {
                let found = file.checksum()?;
                if found != wanted {
                    let path = path.into();
                    return Err(Problem::OtherChecksum {
                        path,
                        wanted,
                        found,
                    });
                }
            }
            // A file that a checksum vouches for may lack the build-id, but not contradict it.
            let found = file.build_id()?;
            if found != self.recorded && !(checksum.is_some() && found.is_none()) {
                return Err(Problem::OtherBuild {
                    path: path.into(),
                    wanted: self.recorded.clone(),
                    found,
                });
            }
            Ok(file)
        });
        self.note(file)
    }

    fn debug_info_of(&mut self, file: &Elf) -> Option<DebugInfo> {
        if needs_only_names(&self.module.path) {
            return None;
        }
        let link = self.note(Supplement::read(file)).flatten();
        let supplement = link.as_ref().and_then(|it| {
            let candidates = it.candidates(file.path(), self.debug_directories);
            self.files.extend_from_slice(&candidates);
            it.open(&candidates)
        });
        if let Some(link) = link
            && supplement.is_none()
        {
            self.report.problems.push(Problem::Incomplete {
                path: file.path().into(),
                wanted: link.path,
            });
        }
        self.note(DebugInfo::load(file, supplement.as_ref()))
            .flatten()
    }

    fn load_symbols(
        &mut self,
        file: Option<&Elf>,
        debug_file: Option<&Elf>,
    ) -> Option<SymbolTable> {
        let tables = [
            (file, elf::SHT_SYMTAB, NameSource::AllSymbols),
            (debug_file, elf::SHT_SYMTAB, NameSource::AllSymbols),
            (file, elf::SHT_DYNSYM, NameSource::DynamicSymbols),
        ];
        for (file, kind, source) in tables {
            let Some(file) = file else {
                continue;
            };
            if let Some(symbols) = self.note(SymbolTable::load(file, kind)).flatten() {
                self.report.names = source;
                return Some(symbols);
            }
        }
        None
    }

    /// Keeps the problem, if it is one.
    fn note<T>(&mut self, result: Result<T, Problem>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(problem) => {
                self.report.problems.push(problem);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::qualify;

    #[test]
    fn a_name_is_completed_from_the_symbol_of_the_same_function_only() {
        let hidden = b"_ZN5store12_GLOBAL__N_16hiddenEi";
        let name = "store::(anonymous namespace)::hidden(int)";
        assert_eq!(qualify("hidden", hidden).as_deref(), Some(name));
        assert_eq!(
            qualify("hidden", &[&hidden[..], b".isra.0"].concat()).as_deref(),
            Some(name)
        );
        assert_eq!(qualify("hid", hidden), None);
        assert_eq!(qualify("den", hidden), None);
        assert_eq!(qualify("other", hidden), None);
        assert_eq!(qualify("store::hidden(int)", hidden), None);
        assert_eq!(qualify("hidden", b"hidden"), None);
        let rust = b"_ZN4hash5Table6insert17h0123456789abcdefE";
        assert_eq!(
            qualify("insert<u32>", rust).as_deref(),
            Some("hash::Table::insert")
        );
        assert_eq!(qualify("ins", rust), None);
    }
}
