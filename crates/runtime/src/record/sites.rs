//! The instructions that are recorded, their trampolines, and how they get there.
//!
//! # Safety
//!
//! Only functions of loaded modules, code that was just made executable, and instructions that were just executed
//! are read.
#![allow(unsafe_code, reason = "reads the code of the target")]

mod announced;
mod interrupted;
mod system_calls;
mod waiting;

use core::sync::atomic::Ordering;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use powerfail_patch::tactic::{CodeView, Plan, Tactic, Targets};
use powerfail_patch::{
    Action, EmitError, Emitter, EmitterSettings, KeptStates, LockedWork, MAX_INSTRUCTION_LEN,
    MAX_SITE_LEN, MAX_TRAMPOLINE_LEN, Means, Redirected, RepeatedWork, Site, Trampoline, Turns,
    VolatileFlushes,
};
use powerfail_protocol::SiteId;
use powerfail_protocol::message::SiteTactic;
use powerfail_protocol::shared::Mode;

use self::announced::AnnouncedSites;
use self::system_calls::SYSCALL;
use crate::libc::{interpose, thread_start};
use crate::patching::code;
use crate::patching::modules::{self, Description, Function, LoadedModule, Modules};
use crate::patching::patcher::{Jump, LOOK_AHEAD, PatchError, Patcher, Patching};
use crate::patching::surroundings::FunctionLayout;
use crate::platform::lock::Lock;
use crate::record::emulate::{Emulated, EmulatedSites};
use crate::record::window::window;
use crate::record::{call_stacks, generated_code, python, schedule, threads};
use crate::{fuzz, host};

/// No more loads are patched: threads are not scheduled at those of a program that has so many.
const LOADS_MAX: usize = 1 << 16;
/// For how many claims of bytes by patches there is room from the beginning.
const CLAIMS: usize = 1 << 14;

/// Everything about patched code. One lock for all: patching is rare.
pub(crate) static SITES: Lock<Option<Sites>> = Lock::new(None);

pub(crate) struct Sites {
    patcher: Patcher<Emitter>,
    modules: Modules,
    entries: BTreeMap<u64, Entry>,
    /// From the start of each trampoline to its site.
    trampolines: BTreeMap<u64, u64>,
    mode: Mode,
    /// Whether flushes, fences and locked operations are recorded, too. Else only system calls are.
    records_memory: bool,
    /// An address in the function that must not be patched.
    thread_starter: u64,
    /// Functions of the C library whose system calls concern us.
    system_callers: Vec<u64>,
    /// Breakpoints at system calls.
    system_calls: BTreeSet<u64>,
    /// Copies of those that the kernel must be asked for from the target's own code.
    system_call_copies: BTreeMap<u64, u64>,
    /// Where code was generated at run time.
    generated: Vec<(u64, u64)>,
    /// Modules of which only system calls are watched.
    only_calls: Vec<(u64, u64)>,
    /// Where the C library and the dynamic linker are.
    system_modules: Vec<(u64, u64)>,
    /// Where libpmemobj is, whose transactions are seen by its functions.
    transactional: Vec<(u64, u64)>,
    /// Silent sites that have a breakpoint until they are first executed, with the byte that it replaces.
    waiting: BTreeMap<u64, u8>,
    /// Stores without a trampoline.
    emulated: EmulatedSites,
    /// Loads that are to be patched, because threads are scheduled at them.
    loads: BTreeSet<u64>,
    announced: AnnouncedSites,
}

struct Entry {
    trampoline: u64,
    len: u64,
    states: KeptStates,
    /// Offset in the trampoline of what writes to the alias.
    work_at: Option<usize>,
    committed_at: Option<usize>,
    repeated_work: Option<RepeatedWork>,
    locked_work: Option<LockedWork>,
    site: Site,
    /// A copy of the instruction, for memory in the window that is not a pool.
    original: Option<u64>,
    /// What the patch made of its first byte; none if it was left to fault.
    patched_byte: Option<u8>,
}

/// Why an instruction cannot be recorded.
pub(crate) struct Refused(pub(crate) String);

impl Sites {
    /// Starts recording: finds all modules, and patches what does not fault.
    pub(crate) fn start() {
        if Self::are_known() {
            return;
        }
        Self::find();
        modules::for_each(|module| {
            SITES.with(|sites| {
                if let Some(sites) = sites {
                    sites.begin_memory();
                    sites.look_at(module);
                    sites.look_at_memory(module);
                }
            });
        });
        generated_code::look_at_all();
    }

    /// Watches system calls, and nothing else.
    pub(crate) fn start_calls() {
        Self::find();
        Self::update();
    }

    fn find() {
        if SITES.with(|sites| sites.is_some()) {
            return;
        }
        let thread_starter = thread_start::thread_starter();
        let mut callers = interpose::system_call_functions();
        callers.extend(fuzz::functions());
        SITES.with(|sites| {
            sites.get_or_insert_with(|| Self::new(thread_starter, callers));
        });
    }

    /// Whether flushes, fences and locked operations are recorded, too.
    pub(crate) const fn records_memory(&self) -> bool {
        self.records_memory
    }

    /// Whether flushes, fences and locked operations of the target are recorded.
    pub(crate) fn are_known() -> bool {
        SITES.with(|sites| sites.as_ref().is_some_and(|sites| sites.records_memory))
    }

    /// The window is where it will be from now on: code can be emitted that knows it.
    fn begin_memory(&mut self) {
        if !self.records_memory {
            self.records_memory = true;
            self.patcher.emitter = emitter();
            self.make_refill_stub();
        }
    }

    /// Patches what does not fault in a module whose system calls were watched before.
    fn look_at_memory(&mut self, module: &LoadedModule) {
        let range = module.range();
        if !self.only_calls.contains(&range) {
            return;
        }
        self.only_calls.retain(|other| *other != range);
        let functions: Vec<Function> = self
            .modules
            .functions_in(range.0, range.1)
            .copied()
            .collect();
        let silent = self.find_silent(&functions);
        if schedule::is_on() && !module.is_installed() {
            self.find_loads(&functions);
        }
        if !module.is_of_the_system() {
            self.look_for_code_without_table(module, &functions);
        }
        self.patch_silent(module, silent);
        self.patch_loads(range.0, range.1);
    }

    fn new(thread_starter: u64, system_callers: Vec<u64>) -> Self {
        Self {
            patcher: Patcher::new(emitter(), CLAIMS),
            modules: Modules::default(),
            entries: BTreeMap::new(),
            trampolines: BTreeMap::new(),
            mode: host::mode(),
            records_memory: false,
            only_calls: Vec::new(),
            thread_starter,
            system_callers,
            system_calls: BTreeSet::new(),
            system_call_copies: BTreeMap::new(),
            generated: Vec::new(),
            system_modules: Vec::new(),
            transactional: Vec::new(),
            waiting: BTreeMap::new(),
            emulated: EmulatedSites::default(),
            loads: BTreeSet::new(),
            announced: AnnouncedSites::default(),
        }
    }

    /// Looks at modules that are new, when code was loaded or unloaded.
    pub(crate) fn update() {
        if SITES.with(|sites| sites.is_none()) {
            return;
        }
        modules::for_each(|module| {
            SITES.with(|sites| {
                if let Some(sites) = sites {
                    sites.look_at(module);
                }
            });
        });
    }

    /// Patches what does not fault in a module, unless that is done.
    fn look_at(&mut self, module: &LoadedModule) {
        let (from, to) = module.range();
        if self.modules.knows(module) && self.is_intact(from, to) {
            return;
        }
        self.release_trampolines(from, to);
        self.forget(from, to);
        let functions = self.modules.add(module);
        python::look_at(module);
        // All is found before anything changes: behind a breakpoint, other instructions would be decoded.
        let silent = if self.records_memory {
            self.find_silent(&functions)
        } else {
            self.only_calls.push((from, to));
            Vec::new()
        };
        if self.records_memory && schedule::is_on() && !module.is_installed() {
            self.find_loads(&functions);
        }
        // Breakpoints come before patches, which must leave them alone.
        if module.is_of_the_system() {
            self.system_modules.push((from, to));
            let callers = self.callers_among(&functions, from, to);
            self.sweep_system_calls(&callers);
        } else {
            self.sweep_system_calls(&functions);
            if self.records_memory {
                self.look_for_code_without_table(module, &functions);
            }
        }
        if module.is_named(b"libpmemobj.so") {
            self.transactional.push((from, to));
            fuzz::loaded_libpmemobj(from, to);
        }
        self.patch_silent(module, silent);
        self.patch_loads(from, to);
    }

    /// Warns if a module has code without an unwind table in which something would have to be recorded. Data among code
    /// has no such table either, so nothing is changed there.
    fn look_for_code_without_table(&mut self, module: &LoadedModule, functions: &[Function]) {
        let mut count = 0;
        let classifier = &mut self.patcher.classifier;
        module.code_outside_of(functions, |from, to| {
            // SAFETY: segments of loaded modules are readable.
            let bytes = unsafe { code::view(from, to - from) };
            count += classifier.count_concerning(bytes, from);
        });
        if count > 0 {
            let mut path = [0; 4096];
            let path = String::from_utf8_lossy(module.path(&mut path)).into_owned();
            host::warn(&format!(
                "{path} has code without unwind tables, in which {count} flushes, fences, locked operations or system \
                 calls are not recorded; compile it with -fasynchronous-unwind-tables"
            ));
        }
    }

    /// Whether the patches in a range are there: a module that was unloaded and loaded again at the
    /// same place has none.
    fn is_intact(&self, from: u64, to: u64) -> bool {
        let mut patched = self
            .entries
            .range(from..to)
            .filter_map(|(address, entry)| Some((*address, entry.patched_byte?)));
        // SAFETY: the module that is there is loaded.
        let has = |address: u64, byte: u8| unsafe { code::view(address, 1)[0] == byte };
        let mut calls = self.system_calls.range(from..to);
        let mut waiting = self.waiting.range(from..to);
        let is_there = |(address, _): (&u64, &u8)| has(*address, code::BREAKPOINT);
        waiting.next().is_none_or(is_there)
            && patched
                .next()
                .is_none_or(|(address, byte)| has(address, byte))
            && calls
                .next()
                .is_none_or(|address| has(*address, code::BREAKPOINT))
    }

    fn make_refill_stub(&mut self) {
        let mut out = [0; MAX_TRAMPOLINE_LEN];
        let xsave_len = xsave_len();
        let targets = Targets {
            first: 0x2_0000_0000,
            last: 0x7fff_0000_0000,
            stride: 16,
        };
        let Some(at) = self.patcher.place(targets, 256) else {
            host::fatal("out of memory for trampolines")
        };
        let emitter = &mut self.patcher.emitter;
        match emitter.emit_refill_stub(at, xsave_len, &mut out) {
            Ok(len) => {
                self.patcher.write(at, len as u64, &out[..len]);
                threads::set_refill_entry(at);
            }
            Err(_) => host::fatal("internal error: cannot emit the refill stub"),
        }
    }

    /// Every flush, fence, locked operation and client request in functions that are new.
    fn find_silent(&mut self, functions: &[Function]) -> Vec<Site> {
        let mut silent = Vec::new();
        for function in functions.iter().copied() {
            if (function.start..function.end).contains(&self.thread_starter) {
                continue;
            }
            // SAFETY: functions of loaded modules are readable.
            let bytes = unsafe { code::view(function.start, function.end - function.start) };
            let restored = self.without_breakpoints(function, bytes);
            let bytes = restored.as_deref().unwrap_or(bytes);
            let classifier = &mut self.patcher.classifier;
            classifier.scan_silent(bytes, function.start, |site| {
                if !site.instruction.is_stack_instruction() {
                    silent.push(site);
                }
            });
        }
        silent
    }

    /// The code of a function as it was before breakpoints for system calls, if it has any: behind them, other
    /// instructions would be decoded.
    fn without_breakpoints(&self, function: Function, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut calls = self
            .system_calls
            .range(function.start..function.end)
            .peekable();
        calls.peek()?;
        let mut restored = bytes.to_vec();
        for address in calls {
            restored[(address - function.start) as usize] = SYSCALL[0];
        }
        Some(restored)
    }

    /// Finds the loads in functions that are new at which a thread can read from a pool.
    fn find_loads(&mut self, functions: &[Function]) {
        for function in functions.iter().copied() {
            if (function.start..function.end).contains(&self.thread_starter) {
                continue;
            }
            // SAFETY: functions of loaded modules are readable.
            let bytes = unsafe { code::view(function.start, function.end - function.start) };
            let before = self.loads.len();
            let loads = &mut self.loads;
            let classifier = &mut self.patcher.classifier;
            classifier.scan_loads(bytes, function.start, |site| {
                loads.insert(site.address());
            });
            if self.loads.len() > LOADS_MAX {
                self.loads.clear();
                host::warn(
                    "the program has too many loads: threads are not scheduled where they read from a pool",
                );
                return;
            }
            // Behind a patch, other instructions would be decoded.
            if self.loads.len() > before && !self.patcher.functions.contains_key(&function.start) {
                let layout = self.layout_of(function, bytes);
                self.patcher.functions.insert(function.start, layout);
            }
        }
    }

    /// Patches the loads that were found in a range and are not patched for the sake of others.
    fn patch_loads(&mut self, from: u64, to: u64) {
        let loads: Vec<u64> = self.loads.range(from..to).copied().collect();
        for address in loads {
            if self.entries.contains_key(&address) || self.patcher.claims.owner(address).is_some() {
                continue;
            }
            let function = self.modules.function_at(address);
            let Some(len) = function.map(|function| function.end - address) else {
                continue;
            };
            // SAFETY: functions of loaded modules are readable.
            let bytes = unsafe { code::view(address, len.min(MAX_INSTRUCTION_LEN as u64)) };
            if let Some(site) = self.patcher.classifier.load_at(bytes, address) {
                // A load that cannot be patched is executed without a turn.
                let _ = self.settle(&site, Self::SETTLE_DEPTH_MAX);
            }
        }
        self.loads.retain(|address| !(from..to).contains(address));
    }

    fn is_generated(&self, address: u64) -> bool {
        let holds = |range: &(u64, u64)| (range.0..range.1).contains(&address);
        self.generated.iter().any(holds)
    }

    /// Puts breakpoints at what does not fault in code that was generated at run time. Whether it
    /// was code from beginning to end.
    pub(crate) fn look_at_generated(&mut self, from: u64, to: u64) -> bool {
        self.forget(from, to);
        self.generated.push((from, to));
        // SAFETY: the range was just mapped, readable.
        let bytes = unsafe { code::view(from, to - from) };
        let used = bytes.iter().rposition(|byte| *byte != 0);
        let bytes = &bytes[..used.map_or(0, |last| last + 1)];
        let mut silent = Vec::new();
        let mut certain = true;
        let classifier = &mut self.patcher.classifier;
        classifier.scan_strictly(bytes, from, |scanned| {
            certain &= scanned.is_valid;
            silent.extend(scanned.silent.filter(|_| certain));
        });
        for site in silent {
            certain &= self.settle(&site, 0).is_ok();
        }
        certain
    }

    /// Takes the breakpoints out of generated code, which is about to change or to go away.
    pub(crate) fn give_back(&mut self, from: u64, to: u64) {
        let edits: Vec<(u64, [u8; 1])> = self
            .entries
            .range(from..to)
            .filter(|(_, entry)| entry.patched_byte == Some(code::BREAKPOINT))
            .map(|(address, entry)| (*address, [entry.site.bytes[0]]))
            .collect();
        code::replace(edits.iter().map(|(address, byte)| (*address, &byte[..])));
        self.forget(from, to);
        self.generated
            .retain(|range| range.1 <= from || to <= range.0);
    }

    /// A module was loaded where another was, or where it was before. No thread runs the code of a module that was unloaded,
    /// so none is in the trampolines of that code. Few places suit a pun: a library that is loaded again and again would
    /// use them up, and its flushes would not be recorded.
    fn release_trampolines(&mut self, from: u64, to: u64) {
        for (_, entry) in self.entries.range(from..to) {
            self.patcher.release(entry.trampoline, entry.len);
        }
    }

    /// The code in a range is gone, or is other code.
    fn forget(&mut self, from: u64, to: u64) {
        call_stacks::forget_code();
        self.modules.forget(from, to);
        self.entries
            .retain(|address, _| !(from..to).contains(address));
        self.trampolines
            .retain(|_, site| !(from..to).contains(site));
        self.system_calls
            .retain(|address| !(from..to).contains(address));
        self.system_call_copies
            .retain(|address, _| !(from..to).contains(address));
        self.transactional
            .retain(|range| range.1 <= from || to <= range.0);
        self.only_calls
            .retain(|range| range.1 <= from || to <= range.0);
        self.loads.retain(|address| !(from..to).contains(address));
        self.waiting
            .retain(|address, _| !(from..to).contains(address));
        self.emulated.forget(from, to);
        self.patcher.forget(from, to);
    }

    /// The functions in a range of addresses of which no patch depends on how they begin.
    pub(crate) fn free_functions(&self, from: u64, to: u64) -> Vec<Function> {
        let functions = self.modules.functions_in(from, to);
        functions
            .filter(|function| self.is_unpatched(function.start, 1))
            .filter(|function| !self.waiting.contains_key(&function.start))
            .copied()
            .collect()
    }

    /// Whether an address lies in a module.
    pub(crate) fn is_in_module(&self, address: u64) -> bool {
        self.modules.has(address)
    }

    /// Whether an address lies in libpmemobj.
    pub(crate) fn is_of_libpmemobj(&self, address: u64) -> bool {
        let holds = |range: &(u64, u64)| (range.0..range.1).contains(&address);
        self.transactional.iter().any(holds)
    }

    /// The description of the function in which an address lies.
    pub(crate) fn description_at(&self, address: u64) -> Option<Description> {
        self.modules.description_at(address)
    }

    /// The trampoline of a store that faulted, made if need be.
    pub(crate) fn trampoline_of(&mut self, address: u64) -> Result<u64, Refused> {
        if let Some(entry) = self.entries.get(&address) {
            // SAFETY: the instruction was just executed.
            let byte = unsafe { code::view(address, 1)[0] };
            // Patched by another thread since it faulted, or left to fault.
            if entry.patched_byte.is_none_or(|patched| patched == byte) {
                return Ok(entry.trampoline);
            }
            // The patch is not there: this is other code, where that was.
            self.forget(address, address + 1);
        }
        let site = self.site_at(address);
        self.settle(&site, Self::SETTLE_DEPTH_MAX)?;
        fuzz::note(address);
        match self.entries.get(&address) {
            Some(entry) => Ok(entry.trampoline),
            None => Err(Refused(format!(
                "the instruction at {address:#x} could not be patched"
            ))),
        }
    }

    /// An instruction that was just executed.
    fn site_at(&mut self, address: u64) -> Site {
        let function = self.modules.function_at(address);
        let len = function.map_or(MAX_INSTRUCTION_LEN as u64, |function| {
            function.end - address
        });
        // SAFETY: the instruction was just executed; without a function it may end with its page.
        let bytes = unsafe { code::view(address, len.min(MAX_INSTRUCTION_LEN as u64)) };
        self.patcher.classifier.classify(bytes, address)
    }

    /// How a store that faulted is run on a buffer, if it is one that has no trampoline.
    pub(crate) fn emulation_of(&mut self, address: u64) -> Option<Emulated> {
        if self.entries.contains_key(&address) {
            return None;
        }
        let site = self.site_at(address);
        let redirected = Redirected::new(&site)?;
        if let Some(known) = self.emulated.at(address) {
            return Some(known);
        }
        let mut copy = (0, 0);
        if !redirected.writes_zeros() {
            let room = MAX_INSTRUCTION_LEN as u64 + 1;
            let place = self.patcher.place_near(address, room)?;
            let (bytes, len) = redirected.code(place).map(|(bytes, len)| {
                let mut with_breakpoint = [code::BREAKPOINT; MAX_INSTRUCTION_LEN + 1];
                with_breakpoint[..len].copy_from_slice(&bytes[..len]);
                (with_breakpoint, len)
            })?;
            self.patcher.write(place, room, &bytes);
            copy = (place, len as u64);
        }
        let id = SiteId(host::control().next_site.fetch_add(1, Ordering::Relaxed));
        let (len, tactic) = (site.len_bytes() as u64, SiteTactic::Trap as u64);
        self.announced.add([id.0.into(), address, len, tactic]);
        let emulated = Emulated {
            site: address,
            id,
            redirected,
            copy,
        };
        self.emulated.add(emulated);
        fuzz::note(address);
        Some(emulated)
    }

    /// The instruction in whose copy on a buffer an address lies.
    pub(crate) fn emulated_at(&self, address: u64) -> Option<Emulated> {
        self.emulated.with_copy_at(address)
    }

    /// Makes the trampoline of a site, and the jump to it if that is possible.
    fn settle(&mut self, site: &Site, depth: usize) -> Result<(), Refused> {
        let address = site.address();
        check_means(site)?;
        let function = self.modules.function_at(address).unwrap_or_else(|| {
            let end = address + site.len_bytes() as u64;
            Function {
                start: address,
                end,
                segment_end: end,
                description: Description::Unknown,
            }
        });
        // Functions of loaded modules are readable, and so is an instruction that ran.
        let next = site.instruction.next_ip();
        let bytes = self.code_in(next, function.end.min(next + LOOK_AHEAD as u64));
        let flags_dead = self.are_flags_dead(next, &bytes);
        self.patcher.give_back(bytes);
        let id = SiteId(host::control().next_site.fetch_add(1, Ordering::Relaxed));
        let may_jump = self.mode == Mode::Patch && !self.is_generated(address);
        let jump = if may_jump || self.needs_jump(site) {
            Jump::IfPossible
        } else {
            Jump::Never
        };
        // It is asked for twice: for its length, and then for its place. The code of the first time is still there then.
        let mut first: Option<(u64, Trampoline)> = None;
        let settled = self
            .prepare(
                site,
                function,
                jump,
                depth,
                |emitter, at, out: &mut [u8; MAX_TRAMPOLINE_LEN]| {
                    let known = first.filter(|(from, it)| {
                        it.ways_out.move_code(&mut out[..it.len_bytes], *from, at)
                    });
                    let trampoline = match known {
                        Some((_, trampoline)) => trampoline,
                        None => emitter.emit(site, id, at, flags_dead, out)?,
                    };
                    first = Some((at, trampoline));
                    Ok((trampoline.len_bytes, trampoline))
                },
            )
            .map_err(|unsettled| refused(&unsettled, address))?;
        let (plan, trampoline) = (settled.plan, settled.trampoline);
        // Nothing of a load is recorded.
        if site.action != Action::Load {
            let (len, tactic) = (site.len_bytes() as u64, tactic_of(plan.as_ref()) as u64);
            self.announced.add([id.0.into(), address, len, tactic]);
        }
        let patched_byte = match plan {
            Some(plan) => {
                let own = plan.edits().iter().find(|edit| edit.address == address);
                own.map(|edit| edit.bytes()[0])
            }
            None => site.is_silent().then_some(code::BREAKPOINT),
        };
        self.entries.insert(
            address,
            Entry {
                trampoline: settled.place,
                len: settled.len,
                states: trampoline.states.kept(),
                work_at: trampoline.work_at,
                committed_at: trampoline.committed_at,
                repeated_work: trampoline.repeated_work,
                locked_work: trampoline.locked_work,
                site: *site,
                original: None,
                patched_byte,
            },
        );
        self.trampolines.insert(settled.place, address);
        match plan {
            Some(plan) => self.patcher.apply(&plan),
            None if site.is_silent() => {
                code::replace(core::iter::once((address, &[code::BREAKPOINT][..])));
            }
            None => {}
        }
        self.waiting.remove(&address);
        Ok(())
    }

    /// Whether a site is patched in every mode: the C library has locked operations that it does with
    /// all signals blocked, where a breakpoint would end the target.
    fn needs_jump(&self, site: &Site) -> bool {
        let holds = |range: &(u64, u64)| (range.0..range.1).contains(&site.address());
        site.is_silent() && self.system_modules.iter().any(holds)
    }

    /// A copy of an instruction that has a trampoline, as it was, with a jump back.
    pub(crate) fn original_at(&mut self, address: u64) -> Option<u64> {
        let entry = self.entries.get(&address)?;
        if let Some(original) = entry.original {
            return Some(original);
        }
        let instruction = entry.site.instruction;
        let place = self.patcher.copy_of(&instruction)?;
        self.entries.get_mut(&address)?.original = Some(place);
        Some(place)
    }

    /// Where to go on from a breakpoint at an address, if it is one of ours.
    pub(crate) fn breakpoint(&self, address: u64) -> Option<u64> {
        self.entries.get(&address).map(|entry| entry.trampoline)
    }
}

impl Patching for Sites {
    type Emitter = Emitter;

    const SETTLE_DEPTH_MAX: usize = 8;

    fn patcher(&mut self) -> &mut Patcher<Emitter> {
        &mut self.patcher
    }

    fn is_unpatched(&self, from: u64, len: usize) -> bool {
        self.patcher.is_unclaimed(from, len)
            && self.entries.range(from..from + len as u64).next().is_none()
    }

    fn code_in(&mut self, from: u64, to: u64) -> Cow<'static, [u8]> {
        self.code_without_waiting(from, to)
    }

    fn layout_of(&mut self, function: Function, bytes: &[u8]) -> FunctionLayout {
        FunctionLayout::of(&mut self.patcher.classifier, function, bytes, |_| ())
    }

    /// Addresses behind a site, near enough for a pun, of instructions that may be patched later.
    fn unsettled_near(&mut self, site: &Site, code: CodeView<'_>, _: Function) -> BTreeSet<u64> {
        const PUN_REACH: u64 = 32;
        let mut unsettled = self.waiting_near(site.address());
        let mut at = site.instruction.next_ip();
        while at < site.address() + PUN_REACH {
            let bytes = code.from(at);
            if bytes.is_empty() || self.patcher.claims.owner(at).is_some() {
                break;
            }
            let bytes = &bytes[..bytes.len().min(MAX_SITE_LEN)];
            let next = self.patcher.classifier.classify(bytes, at);
            let may_be_patched = next.means == Means::Trampoline
                && next.action != Action::Quiet
                && (next.is_silent() || !next.instruction.is_stack_instruction());
            let may_be_patched = may_be_patched || self.loads.contains(&at);
            if may_be_patched && !self.entries.contains_key(&at) {
                unsettled.insert(at);
            }
            at += next.len_bytes().max(1) as u64;
        }
        unsettled
    }

    fn settle_neighbour(&mut self, address: u64, code: CodeView<'_>, depth: usize) -> Option<()> {
        let bytes = code.from(address);
        let bytes = &bytes[..bytes.len().min(MAX_SITE_LEN)];
        let classifier = &mut self.patcher.classifier;
        let neighbour = if self.loads.contains(&address) {
            classifier.load_at(bytes, address)?
        } else {
            classifier.classify(bytes, address)
        };
        self.settle(&neighbour, depth).ok()
    }

    /// A site that cannot have a jump has a breakpoint or faults.
    fn accepts(_: &Plan) -> bool {
        true
    }
}

/// What emits trampolines for the window as it is now.
fn emitter() -> Emitter {
    Emitter::new(EmitterSettings {
        names_stacks: call_stacks::are_wanted(),
        turns: if schedule::is_on() {
            Turns::AskedFor
        } else {
            Turns::NotAskedFor
        },
        // A flush that does no good is worth knowing.
        volatile_flushes: VolatileFlushes::Recorded,
        ..EmitterSettings::new(window())
    })
}

/// Says why there is no trampoline.
fn refused(unsettled: &PatchError<EmitError>, address: u64) -> Refused {
    Refused(match unsettled {
        PatchError::Emit(error) | PatchError::Evict(error) => format!("{error} (at {address:#x})"),
        PatchError::NoJump | PatchError::NoPlace => {
            format!("no memory near {address:#x} for a trampoline")
        }
    })
}

/// Whether a trampoline can record what an instruction does.
fn check_means(site: &Site) -> Result<(), Refused> {
    let address = site.address();
    match site.means {
        Means::Trampoline => Ok(()),
        Means::Nothing => Err(Refused(format!(
            "the instruction at {address:#x} does not store"
        ))),
        Means::Trap => Err(Refused(format!(
            "no memory near {address:#x} for a copy of the instruction"
        ))),
        Means::Refused(reason) => Err(Refused(format!("{reason} (at {address:#x})"))),
    }
}

fn tactic_of(plan: Option<&Plan>) -> SiteTactic {
    match plan.map(|plan| plan.tactic) {
        Some(Tactic::Jump) => SiteTactic::Jump,
        Some(Tactic::Pun | Tactic::PaddedPun) => SiteTactic::Pun,
        Some(Tactic::SuccessorEviction | Tactic::NeighbourEviction) => SiteTactic::Eviction,
        Some(Tactic::Breakpoint | Tactic::Fault) | None => SiteTactic::Trap,
    }
}

/// Whether any of these bytes could belong to a flush, a fence, a locked operation or a client request.
pub(crate) fn may_have_silent_sites(bytes: &[u8]) -> bool {
    // Operands in registers need no lock: what follows xchg names memory below this.
    const REGISTERS: u8 = 0xc0;
    code::has_pair(bytes, |first, second| {
        let is_exchange = first & 0xfe == 0x86 && second < REGISTERS;
        let is_flush_or_fence = first == 0x0f && second == 0xae;
        // rol rdi
        let is_request = first == 0xc1 && second == 0xc7;
        // A lock goes before prefixes and before what reads, changes and writes.
        let is_lockable =
            second < 0x50 || second & 0xfc == 0x64 || second & 0xf8 == 0x80 || second >= 0xf2;
        is_exchange || is_flush_or_fence || is_request || first == 0xf0 && is_lockable
    })
}

/// What `xsave` of all enabled components takes.
pub(crate) fn xsave_len() -> u32 {
    let leaf = core::arch::x86_64::__cpuid_count(13, 0);
    leaf.ebx.next_multiple_of(64)
}
