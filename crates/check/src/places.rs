//! From call stacks to places in the sources.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use powerfail_finding::{DurableBy, Finding, Helper, Role, SourcePlace, StackFrame, hex};
use powerfail_lint::{
    Business, LineNumber, NeededCall, Standing, Symbols, Trust, attributed_frame,
};
use powerfail_model::{Domain, Event, EventIndex, Place};
use powerfail_oracle::Backtrace;
use powerfail_symbol::{AddressKind, Problem, Resolved, Symbolizer};
use powerfail_trace::{
    AnnotatedRange, Annotation, Body, Frame, MarkKind, Module, Result, StackId, Trace,
};
use rustc_hash::FxHashMap;

use crate::crash::NeededLine;
use crate::helpers::{self, Helpers};
use crate::remedy::Remedy;

/// How many bytes of a store are shown.
const BYTES_SHOWN: usize = 32;

/// What names a line of code, also where there are no sources.
pub(crate) type CodeLine = (Option<String>, Option<u32>, Option<String>, Option<String>);

/// The line of code of a place.
pub(crate) fn line_of(place: &SourcePlace) -> CodeLine {
    (
        place.file.clone(),
        place.line,
        place.module.clone().filter(|_| place.file.is_none()),
        code_of(place),
    )
}

/// What stands for the line where none is known. A structure that is copied takes many stores, and is one place nevertheless:
/// for them it is the function. A flush or fence is one instruction: for it, and where the function has no name, it is the
/// address.
pub(crate) fn code_of(place: &SourcePlace) -> Option<String> {
    if place.line.is_some() {
        return None;
    }
    let is_store = matches!(place.role, Role::Store | Role::Survivor | Role::Publish);
    let function = place.function.clone().filter(|_| is_store);
    function.or_else(|| place.code().map(|(_, offset)| format!("{offset:#x}")))
}

/// The line of code of a place, and that of the helper which it calls.
pub(crate) fn lines_of(place: &SourcePlace) -> Vec<CodeLine> {
    let helper = place.helper.as_ref();
    let helper = helper.map(|it| (it.file.clone(), it.line, None, None));
    [line_of(place)].into_iter().chain(helper).collect()
}

/// Whether two places are the same line of code, or one of them is the helper that the other calls. Two callers of one
/// helper are not the same.
pub(crate) fn is_same_code(one: &SourcePlace, other: &SourcePlace) -> bool {
    let is_known = |(_, line, _, offset): &CodeLine| line.is_some() || offset.is_some();
    let lines = |place: &SourcePlace, with: &SourcePlace| match with.helper {
        Some(_) => vec![line_of(place)],
        None => lines_of(place),
    };
    let others = lines(other, one);
    let mut lines = lines(one, other).into_iter();
    lines.any(|line| is_known(&line) && others.contains(&line))
}

/// Bytes in hexadecimal; only the first ones if there are many.
pub(crate) fn hex_prefix(bytes: &[u8]) -> String {
    let mut text = hex(&bytes[..bytes.len().min(BYTES_SHOWN)]);
    if bytes.len() > BYTES_SHOWN {
        text.push_str("...");
    }
    text
}

/// Finds the sources of a trace's call stacks.
pub(crate) struct Places<'t> {
    trace: &'t Trace,
    trust: Trust,
    symbolizer: Symbolizer,
    remedy: Remedy,
    /// The lines of the user's sources that were asked for.
    lines: FxHashMap<(PathBuf, Option<u32>), LineNumber>,
    /// Small functions that store and flush for others, once they were looked for.
    helpers: Option<Helpers>,
}

/// An event that a place is about.
#[derive(Clone, Copy)]
pub(crate) struct Access<'a> {
    pub(crate) stack: StackId,
    /// Where in the stack to begin to look for code of the user.
    pub(crate) user: StackId,
    /// How many lines of the user there lie inside of the one to show.
    pub(crate) inlined: u32,
    pub(crate) event: EventIndex,
    pub(crate) place: Option<Place>,
    pub(crate) len_bytes: u64,
    pub(crate) bytes: &'a [u8],
    /// Whether the line that calls a helper is shown, and not the helper itself.
    pub(crate) names_caller: bool,
}

impl<'t> Places<'t> {
    pub(crate) fn new(trace: &'t Trace, trust: &Trust) -> Self {
        Self {
            trace,
            trust: trust.clone(),
            symbolizer: Symbolizer::of(trace),
            remedy: Remedy::default(),
            lines: FxHashMap::default(),
            helpers: None,
        }
    }

    /// For stores that become durable as this domain says.
    pub(crate) fn of_domain(self, domain: Domain) -> Self {
        let remedy = Remedy(domain);
        Self { remedy, ..self }
    }

    /// The trace that the places are in.
    pub(crate) const fn trace(&self) -> &'t Trace {
        self.trace
    }

    /// What makes stores durable, in words.
    pub(crate) const fn remedy(&self) -> Remedy {
        self.remedy
    }

    /// Says of findings in an ordinary file that msync makes its stores durable, and explains which msync misses the
    /// store, where one follows it in the trace.
    pub(crate) fn name_syncs(&mut self, findings: &mut [Finding]) -> Result<()> {
        if self.remedy != Remedy(Domain::PageCache) {
            return Ok(());
        }
        for finding in findings {
            finding.durable_by = DurableBy::Sync;
            // Where every store is durable, none was missed.
            let evidence = finding.evidence.as_ref();
            let is_lost = evidence.is_none_or(|it| !it.failure.lost_lines.is_empty());
            let missed = match finding.places.first() {
                Some(store) if store.role == Role::Store && is_lost => {
                    self.sync_that_misses(store)?
                }
                _ => None,
            };
            if let Some(missed) = missed {
                finding.explain(missed);
            }
        }
        Ok(())
    }

    /// The next msync of the pool after a store, if it does not cover the store or makes nothing durable.
    fn sync_that_misses(&mut self, store: &SourcePlace) -> Result<Option<String>> {
        /// An msync that comes later than this was hardly meant for the store.
        const EVENTS_MAX: usize = 1 << 20;
        let (Some(event), Some(at)) = (store.event, store.pool_offset) else {
            return Ok(None);
        };
        let mut pools = (0..).zip(self.trace.pools());
        let is_it = |path: &str| Some(path) == store.pool.as_deref();
        let pool = pools.find(|(_, pool)| is_it(&pool.path.display().to_string()));
        let Some((pool, _)) = pool else {
            return Ok(None);
        };
        let mut records = self.trace.records_from(EventIndex(event));
        for _ in 0..EVENTS_MAX {
            let Some(record) = records.next_record()? else {
                break;
            };
            let (range, is_durable) = match &record.body {
                Body::Pm(Event::Sync {
                    pool: synced,
                    offset,
                    len_bytes,
                }) if synced.0 == pool => (offset.0..offset.0.saturating_add(*len_bytes), true),
                Body::Mark(mark)
                    if mark.kind == MarkKind::Annotation(Annotation::AsynchronousSync) =>
                {
                    let mut ranges = AnnotatedRange::all(mark.payload);
                    let range = ranges.find(|it| it.pool.is_some_and(|it| it.0 == pool));
                    let Some(range) = range else { continue };
                    (range.offset..range.offset.saturating_add(range.len), false)
                }
                _ => continue,
            };
            let is_covered = range.contains(&at);
            if is_covered && is_durable {
                return Ok(None);
            }
            let sync = self.of_event(Role::Flush, record.index)?;
            let line = sync.file_and_line();
            let line = line.map_or_else(String::new, |line| format!(" at {line}"));
            return Ok(Some(if is_covered {
                format!("the msync{line} has no MS_SYNC: MS_ASYNC makes nothing durable")
            } else {
                format!(
                    "the msync{line} covers {:#x}-{:#x}, the store is at {at:#x}",
                    range.start, range.end
                )
            }));
        }
        Ok(None)
    }

    /// The place of an access.
    pub(crate) fn of_access(&mut self, role: Role, access: &Access<'_>) -> Result<SourcePlace> {
        let mut place = SourcePlace::new(role);
        place.stack = self.frames(access.stack, AddressKind::Instruction);
        let frames = if access.user == access.stack || access.user.is_none() {
            place.stack.clone()
        } else {
            self.frames(access.user, AddressKind::Return)
        };
        let frames = users_frames(&frames, access.inlined);
        locate(&mut place, frames);
        if access.names_caller && is_of_code(role) {
            self.name_caller(&mut place, frames)?;
        }
        if let Some(at) = access.place {
            let pool = self.trace.pools().get(at.pool.0 as usize);
            place.pool = pool.map(|pool| pool.path.display().to_string());
            place.pool_offset = Some(at.offset.0);
            place.len_bytes = (access.len_bytes > 0).then_some(access.len_bytes);
        }
        if !access.bytes.is_empty() {
            let shown = &access.bytes[..access.bytes.len().min(BYTES_SHOWN)];
            let mut text = hex(shown);
            if access.len_bytes > shown.len() as u64 {
                text.push_str("...");
            }
            place.bytes = Some(text);
        }
        place.event = Some(access.event.0);
        if self.trace.threads().len() > 1 {
            let mut records = self.trace.records_from(access.event);
            place.thread = records.next_record()?.map(|record| record.thread.0);
        }
        Ok(place)
    }

    /// Shows the line that calls a helper, and the helper as a part of it.
    fn name_caller(&mut self, place: &mut SourcePlace, frames: &[StackFrame]) -> Result<()> {
        let users: Vec<StackFrame> = frames.iter().filter(|it| is_users(it)).cloned().collect();
        let count = self.helpers()?.count(&users);
        if count > 0 {
            place.helper = Some(Helper {
                function: users[0].function.clone(),
                file: users[0].file.clone(),
                line: users[0].line,
            });
            locate(place, &users[count..]);
        }
        Ok(())
    }

    /// How many stores were executed by the helper at a call stack; nothing if it is none.
    pub(crate) fn stores_of_helper(&mut self, stack: StackId) -> Result<Option<u64>> {
        let mut frames = self.frames(stack, AddressKind::Instruction);
        frames.retain(is_users);
        Ok(self.helpers()?.stores_of(&frames))
    }

    fn helpers(&mut self) -> Result<&Helpers> {
        if self.helpers.is_none() {
            let mut uses = Vec::new();
            for (stack, done) in helpers::uses_of(self.trace)? {
                let mut frames = self.frames(stack, AddressKind::Instruction);
                frames.retain(is_users);
                uses.push((done, frames));
            }
            self.helpers = Some(Helpers::of(uses));
        }
        Ok(self.helpers.get_or_insert_default())
    }

    /// The place of an event of the trace.
    pub(crate) fn of_event(&mut self, role: Role, event: EventIndex) -> Result<SourcePlace> {
        self.of_event_by(role, event, None)
    }

    /// The same, for an event that is attributed to a frame of its call stack.
    pub(crate) fn of_event_by(
        &mut self,
        role: Role,
        event: EventIndex,
        user: Option<StackId>,
    ) -> Result<SourcePlace> {
        let mut records = self.trace.records_from(event);
        let Some(record) = records.next_record()? else {
            return Ok(SourcePlace::new(role));
        };
        let (place, bytes) = match record.body {
            Body::Pm(Event::Store { at, bytes, .. }) => (Some(at), bytes),
            Body::Pm(Event::Flush { at, .. }) => (Some(at), &[][..]),
            _ => (None, &[][..]),
        };
        let access = Access {
            stack: record.stack,
            user: user.unwrap_or(record.stack),
            inlined: 0,
            event,
            place,
            len_bytes: bytes.len() as u64,
            bytes,
            names_caller: true,
        };
        self.of_access(role, &access)
    }

    /// Where recovery was.
    pub(crate) fn of_backtrace(&self, role: Role, backtrace: &Backtrace) -> SourcePlace {
        let mut place = SourcePlace::new(role);
        let frames = backtrace
            .threads
            .first()
            .map_or(&[][..], |thread| &thread.frames);
        let resolved = backtrace.resolve();
        for (frame, resolved) in frames.iter().zip(&resolved) {
            let path = match frame {
                Frame::Module { module, .. } => backtrace
                    .modules
                    .get(module.0 as usize)
                    .map(|module| module.path.as_path()),
                Frame::Absolute { .. } => None,
            };
            push_frames(&mut place.stack, *frame, resolved, path, &self.trust);
        }
        let frames = std::mem::take(&mut place.stack);
        locate(&mut place, &frames);
        place.stack = frames;
        place
    }

    /// The frame of a call stack that a store is attributed to; nothing if it is a trusted library's own business.
    pub(crate) fn user_of(&mut self, stack: StackId) -> Option<StackId> {
        if stack.is_none() {
            // Nothing is known about who did it: the user has to hear of it.
            return Some(stack);
        }
        let mut nodes = Vec::new();
        let mut frames = Vec::new();
        let mut next = stack;
        while let Some(node) = self.trace.stack_node(next) {
            nodes.push(next);
            frames.push(node.frame);
            next = node.caller;
        }
        let (trace, trust) = (self.trace, self.trust.clone());
        let standing = |frame: Frame| standing(trace.modules(), &trust, frame);
        attributed_frame(&frames, &standing, self).map(|user| nodes[user])
    }

    /// What is wrong with the files of modules that were looked up: their lines are missing.
    pub(crate) fn notes(&self) -> Vec<String> {
        let problems = self.symbolizer.problems();
        let lost = problems.filter(|(_, problem)| matches!(problem, Problem::Rebuilt { .. }));
        lost.map(|(_, problem)| {
            format!("{problem}: findings in it have no functions and lines; record it again")
        })
        .collect()
    }

    /// Whom we trust.
    pub(crate) const fn trust(&self) -> &Trust {
        &self.trust
    }

    /// The frames of a call stack whose innermost one is the instruction of an event.
    pub(crate) fn stack(&mut self, stack: StackId) -> Vec<StackFrame> {
        self.frames(stack, AddressKind::Instruction)
    }

    /// The lines of code of calls that did something, and those that call them, as far as they can be blamed.
    pub(crate) fn needed_lines(&mut self, calls: &[NeededCall]) -> BTreeSet<NeededLine> {
        /// How far from the innermost line of the user's a line can be blamed.
        const LINES_MAX: usize = 4;
        let mut lines = BTreeSet::new();
        for call in calls {
            let kind = if call.is_site {
                AddressKind::Instruction
            } else {
                AddressKind::Return
            };
            let frames = self.frames(call.user, kind);
            let users = frames.into_iter().filter(is_users).take(LINES_MAX);
            lines.extend(users.filter_map(|frame| Some((call.code, frame.file?, frame.line?))));
        }
        lines
    }

    /// The frames of a call stack, with inlined calls, innermost first.
    fn frames(&mut self, stack: StackId, innermost: AddressKind) -> Vec<StackFrame> {
        let mut frames = Vec::new();
        let mut next = stack;
        let mut kind = innermost;
        while let Some(node) = self.trace.stack_node(next) {
            let resolved = self.symbolizer.resolve(node.frame, kind);
            let path = match node.frame {
                Frame::Module { module, .. } => self
                    .trace
                    .modules()
                    .get(module.0 as usize)
                    .map(|module| module.path.as_path()),
                Frame::Absolute { .. } => None,
            };
            push_frames(&mut frames, node.frame, &resolved, path, &self.trust);
            next = node.caller;
            kind = AddressKind::Return;
        }
        frames
    }
}

impl Symbols for Places<'_> {
    fn business(&mut self, frame: Frame, is_site: bool) -> Business {
        Names(&mut self.symbolizer).business(frame, is_site)
    }

    fn business_of_call(&mut self, caller: Frame) -> Business {
        Names(&mut self.symbolizer).business_of_call(caller)
    }

    fn lines(&mut self, frame: Frame, is_site: bool) -> Option<Vec<LineNumber>> {
        let kind = if is_site {
            AddressKind::Instruction
        } else {
            AddressKind::Return
        };
        let resolved = self.symbolizer.resolve(frame, kind);
        let mut lines = Vec::new();
        for source in &resolved.frames {
            let Some(file) = &source.file else { continue };
            if !is_system(&file.display().to_string()) {
                let number = LineNumber(self.lines.len() as u32);
                let line = self.lines.entry((file.clone(), source.line));
                lines.push(*line.or_insert(number));
            }
        }
        Some(lines)
    }
}

/// Knows functions by their names.
struct Names<'s>(&'s mut Symbolizer);

impl Symbols for Names<'_> {
    fn business(&mut self, frame: Frame, is_site: bool) -> Business {
        let kind = if is_site {
            AddressKind::Instruction
        } else {
            AddressKind::Return
        };
        let resolved = self.0.resolve(frame, kind);
        let function = resolved
            .frames
            .last()
            .and_then(|frame| frame.function.as_deref());
        function.map_or(Business::Unknown, Business::of_function)
    }

    fn business_of_call(&mut self, caller: Frame) -> Business {
        let function = self.0.called(caller);
        function.map_or(Business::Unknown, |name| Business::of_function(&name))
    }
}

/// Finds the sources of what a recovery does.
pub(crate) struct RecoveryPlaces {
    modules: Vec<Module>,
    trust: Trust,
    symbolizer: Symbolizer,
}

impl RecoveryPlaces {
    /// For frames in these modules.
    pub(crate) fn new(modules: Vec<Module>, trust: &Trust) -> Self {
        Self {
            symbolizer: Symbolizer::new(&modules),
            modules,
            trust: trust.clone(),
        }
    }

    /// The place of a load, attributed to the frame that asked for it; nothing if it is a trusted library's own
    /// business.
    pub(crate) fn of_load(&mut self, frames: &[Frame]) -> Option<SourcePlace> {
        let user = if frames.is_empty() {
            0
        } else {
            let standing = |frame: Frame| standing(&self.modules, &self.trust, frame);
            attributed_frame(frames, &standing, &mut Names(&mut self.symbolizer))?
        };
        let mut place = SourcePlace::new(Role::Load);
        let mut callers = Vec::new();
        let resolved = self.symbolizer.resolve_stack(frames.iter().copied());
        for (number, (frame, resolved)) in frames.iter().zip(&resolved).enumerate() {
            let path = match frame {
                Frame::Module { module, .. } => self.modules.get(module.0 as usize),
                Frame::Absolute { .. } => None,
            };
            let path = path.map(|module| module.path.as_path());
            if number >= user {
                push_frames(&mut callers, *frame, resolved, path, &self.trust);
            }
            push_frames(&mut place.stack, *frame, resolved, path, &self.trust);
        }
        locate(&mut place, &callers);
        Some(place)
    }
}

fn standing(modules: &[Module], trust: &Trust, frame: Frame) -> Standing {
    match frame {
        Frame::Module { module, .. } => modules
            .get(module.0 as usize)
            .map_or(Standing::User, |module| trust.standing(&module.path)),
        Frame::Absolute { .. } => Standing::User,
    }
}

fn push_frames(
    out: &mut Vec<StackFrame>,
    frame: Frame,
    resolved: &Resolved,
    module: Option<&Path>,
    trust: &Trust,
) {
    // Extensions of Python's own library do what its lines ask for, as the interpreter does.
    let is_of_python = |path: &Path| path.components().any(|it| it.as_os_str() == "lib-dynload");
    let trusted =
        module.is_some_and(|path| trust.standing(path) != Standing::User || is_of_python(path));
    let offset = match frame {
        Frame::Module { offset, .. } => offset,
        Frame::Absolute { address } => address,
    };
    let name = module.and_then(Path::file_name);
    let module = name.map(|name| name.to_string_lossy().into_owned());
    let plain = StackFrame {
        function: None,
        file: None,
        line: None,
        module: module.clone(),
        offset,
        trusted,
    };
    if resolved.frames.is_empty() {
        out.push(plain);
        return;
    }
    for source in &resolved.frames {
        let file = source.file.as_ref().map(|file| file.display().to_string());
        out.push(StackFrame {
            function: source.function.clone(),
            line: source.line,
            trusted: trusted
                || file.as_deref().is_some_and(is_system)
                || file.is_none() && source.function.as_deref().is_some_and(is_of_rust),
            file,
            ..plain.clone()
        });
    }
}

/// Code that is part of the program and is not the program's: headers of the system and of the kernel, the
/// standard libraries of C++, Rust and Python, what Go's compiler makes, annotations.
fn is_system(file: &str) -> bool {
    const SYSTEM: [&str; 10] = [
        "/usr/include/",
        "/usr/src/linux-headers-",
        "/usr/lib/",
        "/rustc/",
        "/lib/rustlib/",
        "/lib/python3",
        "<frozen ",
        "<autogenerated>",
        "/powerfail-annotate-",
        "crates/annotate/src/",
    ];
    const HEADERS: [&str; 2] = ["powerfail.h", "xfdetector_interface.h"];
    let name = file.rsplit('/').next().unwrap_or(file);
    SYSTEM.iter().any(|part| file.contains(part)) || HEADERS.contains(&name)
}

/// Whether the compiler of Rust has made a function that has no source: `__rust_try` calls what may panic.
fn is_of_rust(function: &str) -> bool {
    function.starts_with("__rust_")
}

fn is_users(frame: &StackFrame) -> bool {
    !frame.trusted && frame.file.as_deref().is_some_and(|file| !is_system(file))
}

/// The frames of a stack without the first ones of the user's own sources, and what lies inside of them.
fn users_frames(frames: &[StackFrame], skipped: u32) -> &[StackFrame] {
    let mut left = frames;
    for _ in 0..skipped {
        let Some(first) = left.iter().position(is_users) else {
            return frames;
        };
        left = &left[first + 1..];
    }
    left
}

/// Whether a place is a line of code to blame, and not a moment or a call.
const fn is_of_code(role: Role) -> bool {
    matches!(
        role,
        Role::Store
            | Role::Survivor
            | Role::Overwrite
            | Role::Publish
            | Role::Flush
            | Role::Fence
            | Role::Commit
    )
}

/// The frame to show for a stack: the innermost one of the user's own sources.
fn users_frame(frames: &[StackFrame]) -> Option<&StackFrame> {
    frames
        .iter()
        .find(|frame| is_users(frame))
        .or_else(|| frames.iter().find(|frame| !frame.trusted))
        .or_else(|| frames.first())
}

fn locate(place: &mut SourcePlace, frames: &[StackFrame]) {
    if let Some(frame) = users_frame(frames) {
        place.file.clone_from(&frame.file);
        place.line = frame.line;
        place.function.clone_from(&frame.function);
        place.module.clone_from(&frame.module);
    }
}
/// Where a run was that was ended from outside: its last operation on persistent memory, if there is any.
pub fn place_before_end(trace: &Trace, trust: &Trust, role: Role) -> Result<Option<SourcePlace>> {
    let mut last = None;
    let mut records = trace.records_from(EventIndex(0));
    while let Some(record) = records.next_record()? {
        if record.step().is_some() {
            last = Some(record.index);
        }
    }
    let mut places = Places::new(trace, trust);
    last.map(|at| places.of_event(role, at)).transpose()
}
