//! The symbolizer: modules are loaded when they are needed, once in a process, and no address is looked up twice.

use std::path::PathBuf;
use std::sync::Arc;

use powerfail_trace::{Frame, Module, ModuleIndex, Trace};
use rustc_hash::FxHashMap;

use crate::module::LoadedModule;
use crate::shared::{self, SharedModule};
use crate::{ModuleReport, NoSource, Problem, Resolved, SourceFrame};

/// Where distributions install separate debug files.
pub const DEFAULT_DEBUG_DIRECTORY: &str = "/usr/lib/debug";

/// How many places are remembered. A trace has far fewer; the limit keeps memory bounded if it does not.
const MAX_REMEMBERED: usize = 1 << 20;

/// What the address of a frame means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressKind {
    /// It is that of the instruction itself: the innermost frame of a call stack.
    Instruction,
    /// It is that to which a call returns: every other frame. The call is the instruction before, which
    /// may belong to another line, or to another function if the call does not return.
    Return,
}

/// Turns frames of a recorded program into functions and source lines.
///
/// It can be sent to another thread, but not be shared between threads.
pub struct Symbolizer {
    modules: Vec<ModuleEntry>,
    debug_directories: Vec<PathBuf>,
    /// Functions of generated code, by addresses in them.
    generated: FxHashMap<u64, String>,
    remembered: FxHashMap<(Frame, AddressKind), Arc<Resolved>>,
}

struct ModuleEntry {
    module: Module,
    name: Arc<str>,
    loaded: Option<SharedModule>,
    /// What is known about its files, as of the last time that it was used.
    report: ModuleReport,
}

impl Symbolizer {
    /// Prepares to resolve frames in these modules, which are those of the trace, in its order.
    ///
    /// Nothing is read yet.
    pub fn new(modules: &[Module]) -> Self {
        let slot = |module: &Module| ModuleEntry {
            name: module
                .path
                .file_name()
                .unwrap_or(module.path.as_os_str())
                .to_string_lossy()
                .into(),
            module: module.clone(),
            loaded: None,
            report: ModuleReport::default(),
        };
        Self {
            modules: modules.iter().map(slot).collect(),
            debug_directories: vec![DEFAULT_DEBUG_DIRECTORY.into()],
            generated: FxHashMap::default(),
            remembered: FxHashMap::default(),
        }
    }

    /// Prepares to resolve frames of a trace: in its modules, and in code that the target has generated.
    pub fn of(trace: &Trace) -> Self {
        let names = trace.generated();
        Self {
            generated: names.map(|(at, name)| (at, name.to_owned())).collect(),
            ..Self::new(trace.modules())
        }
    }

    /// Looks for separate debug files in these directories, in this order, and no longer in
    /// [`DEFAULT_DEBUG_DIRECTORY`].
    #[must_use]
    pub fn with_debug_directories<I>(mut self, directories: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<PathBuf>,
    {
        self.debug_directories = directories.into_iter().map(Into::into).collect();
        self
    }

    /// What is at one frame of a call stack.
    pub fn resolve(&mut self, frame: Frame, kind: AddressKind) -> Arc<Resolved> {
        if let Some(resolved) = self.remembered.get(&(frame, kind)) {
            return Arc::clone(resolved);
        }
        let resolved = Arc::new(self.look_up(frame, kind));
        if self.remembered.len() >= MAX_REMEMBERED {
            self.remembered.clear();
        }
        self.remembered.insert((frame, kind), Arc::clone(&resolved));
        resolved
    }

    /// The name of the function of another module that is called at a frame whose address is that to
    /// which the call returns. Nothing if it is a function of the same module, or if only the running
    /// program knew where the call leads.
    pub fn called(&mut self, frame: Frame) -> Option<String> {
        let Frame::Module { module, offset } = frame else {
            return None;
        };
        let slot = self.modules.get_mut(module.0 as usize)?;
        if slot.module.function.is_some() {
            return None;
        }
        let module = slot.module.clone();
        slot.with(&self.debug_directories, |loaded| {
            loaded.called(&module, offset)
        })
    }

    /// What is at the frames of a whole call stack, innermost first: the first address is that of an
    /// instruction, the others are those to which calls return.
    pub fn resolve_stack(&mut self, stack: impl IntoIterator<Item = Frame>) -> Vec<Arc<Resolved>> {
        let kinds =
            std::iter::once(AddressKind::Instruction).chain(std::iter::repeat(AddressKind::Return));
        stack
            .into_iter()
            .zip(kinds)
            .map(|(frame, kind)| self.resolve(frame, kind))
            .collect()
    }

    /// What is known about a module's files, which are read now if they were not yet. Nothing if the
    /// trace does not define the module.
    pub fn module_report(&mut self, module: ModuleIndex) -> Option<&ModuleReport> {
        let slot = self.modules.get_mut(module.0 as usize)?;
        if slot.module.function.is_none() {
            slot.with(&self.debug_directories, |_| ());
        }
        Some(&slot.report)
    }

    /// What is wrong with the modules of the frames that were resolved so far.
    pub fn problems(&self) -> impl Iterator<Item = (ModuleIndex, &Problem)> {
        self.modules.iter().zip(0..).flat_map(|(slot, index)| {
            let problems = slot.report.problems.iter();
            problems.map(move |problem| (ModuleIndex(index), problem))
        })
    }

    fn look_up(&mut self, frame: Frame, kind: AddressKind) -> Resolved {
        let (module, offset) = match frame {
            Frame::Module { module, offset } => (module, offset),
            Frame::Absolute { address } => {
                let function = self.generated.get(&address).cloned();
                let named = function.map(|function| SourceFrame {
                    function: Some(function),
                    ..SourceFrame::default()
                });
                return Resolved {
                    frames: named.into_iter().collect(),
                    ..unresolved(frame, NoSource::NoModule)
                };
            }
        };
        let Some(slot) = self.modules.get_mut(module.0 as usize) else {
            return unresolved(frame, NoSource::UnknownModule);
        };
        if let Some(line) = slot.line(offset) {
            return Resolved {
                frame,
                module: Some(Arc::clone(&slot.name)),
                frames: vec![line],
                no_source: None,
            };
        }
        let (frames, no_source) = slot.with(&self.debug_directories, |loaded| {
            loaded.look_up(offset, kind)
        });
        Resolved {
            frame,
            module: Some(Arc::clone(&slot.name)),
            frames,
            no_source,
        }
    }
}

impl ModuleEntry {
    /// The line at an offset, if this is a function that an interpreter executes.
    fn line(&self, offset: u64) -> Option<SourceFrame> {
        let function = self.module.function.clone()?;
        Some(SourceFrame {
            function: Some(function),
            file: Some(self.module.path.clone()),
            line: u32::try_from(offset).ok().filter(|line| *line > 0),
            ..SourceFrame::default()
        })
    }

    /// Uses the module, which is loaded now if it was not yet.
    fn with<R>(
        &mut self,
        debug_directories: &[PathBuf],
        work: impl FnOnce(&mut LoadedModule) -> R,
    ) -> R {
        let is_first = self.loaded.is_none();
        let loaded = self
            .loaded
            .get_or_insert_with(|| shared::load(&self.module, debug_directories));
        let mut loaded = shared::lock(loaded);
        let result = work(&mut loaded);
        if is_first || loaded.report().problems.len() != self.report.problems.len() {
            self.report = loaded.report().clone();
        }
        result
    }
}

fn unresolved(frame: Frame, reason: NoSource) -> Resolved {
    Resolved {
        frame,
        module: None,
        frames: Vec::new(),
        no_source: Some(reason),
    }
}
