//! The loaded modules of the target: their functions, unwind tables, names and dynamic sections.
//!
//! Only what the unwind table calls a function is decoded: some libraries have data among their
//! code. The functions of Go programs are in a table of their own (`go_functions.rs`).
//!
//! # Safety
//!
//! The dynamic linker shows modules that are loaded and keeps them loaded while `for_each` runs; their headers,
//! dynamic sections and unwind tables are mapped and well-formed, because the linker itself has used them. Callers
//! of functions that return slices of a module do not use these after the module may have been unloaded.
#![allow(unsafe_code, reason = "reads headers and tables of loaded modules")]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicU64, Ordering};

use powerfail_patch::Classifier;
use powerfail_protocol::message::MessageKind;

use crate::host;
use crate::patching::code;
use crate::patching::go_functions::{GoFunction, GoTable};

/// What says where the caller of a function is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Description {
    /// The entry of the unwind table at an address.
    Entry(u64),
    Go(GoFunction),
    Unknown,
}

/// A function, by its addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Function {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Where the code behind it, of whatever it is part, ends.
    pub(crate) segment_end: u64,
    pub(crate) description: Description,
}

/// The addresses of our own code: from, to.
static OWN: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// Whether an address lies in our own code.
pub(crate) fn is_own(address: u64) -> bool {
    (OWN[0].load(Ordering::Relaxed)..OWN[1].load(Ordering::Relaxed)).contains(&address)
}

/// What is known of the loaded modules.
#[derive(Default)]
pub(crate) struct Modules {
    /// Those that were looked at: from, to.
    seen: Vec<(u64, u64)>,
    /// Functions of all modules, by address.
    functions: Vec<Function>,
    /// Functions of our own: they are on stacks, and never patched.
    own: Vec<Function>,
    /// Functions of the kernel's library. It is not patched: its pages are the same in all processes.
    of_kernel: Vec<Function>,
}

#[repr(C)]
struct ProgramHeader {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    physical: u64,
    file_len: u64,
    memory_len: u64,
    alignment: u64,
}

/// A module, as the dynamic linker shows it.
#[repr(C)]
pub(crate) struct LoadedModule {
    base: u64,
    name: *const c_char,
    headers: *const ProgramHeader,
    header_count: u16,
}

unsafe extern "C" {
    fn dl_iterate_phdr(
        visit: extern "C" fn(*const LoadedModule, usize, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
}

const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const EXECUTABLE: u32 = 1;
const BUILD_ID_MAX: usize = 64;

impl Modules {
    /// The function in which an address lies.
    pub(crate) fn function_at(&self, address: u64) -> Option<Function> {
        function_in(&self.functions, address)
    }

    /// The functions in a range of addresses.
    pub(crate) fn functions_in(&self, from: u64, to: u64) -> impl Iterator<Item = &Function> {
        let is_inside = move |function: &&Function| (from..to).contains(&function.start);
        self.functions.iter().filter(is_inside)
    }

    /// The description of the function in which an address lies.
    pub(crate) fn description_at(&self, address: u64) -> Option<Description> {
        let functions = if is_own(address) {
            &self.own
        } else {
            &self.functions
        };
        let function = function_in(functions, address);
        let function = function.or_else(|| function_in(&self.of_kernel, address));
        function.map(|function| function.description)
    }

    /// Whether an address lies in a module that was looked at.
    pub(crate) fn has(&self, address: u64) -> bool {
        let holds = |range: &(u64, u64)| (range.0..range.1).contains(&address);
        self.seen.iter().any(holds)
    }

    /// Whether a module at these addresses was looked at.
    pub(crate) fn knows(&self, module: &LoadedModule) -> bool {
        self.seen.contains(&module.range())
    }

    /// Forgets what was in a range.
    pub(crate) fn forget(&mut self, from: u64, to: u64) {
        self.seen.retain(|range| range.1 <= from || to <= range.0);
        self.functions
            .retain(|function| !(from..to).contains(&function.start));
    }

    /// Looks at a module, tells the host of it, and gives its functions.
    pub(crate) fn add(&mut self, module: &LoadedModule) -> Vec<Function> {
        let (start, end) = module.range();
        self.seen.push((start, end));
        let new = Vec::new();
        // Our own code must not record itself.
        if is_this(module) {
            OWN[0].store(start, Ordering::Relaxed);
            OWN[1].store(end, Ordering::Relaxed);
            self.own = module.functions();
            self.own.sort_unstable();
            return new;
        }
        let mut path = [0; 4096];
        let path = module.path(&mut path);
        let is_of_kernel = path.starts_with(b"linux-vdso");
        let mut text = Vec::with_capacity(BUILD_ID_MAX + path.len());
        text.extend_from_slice(build_id(module.base, module.headers()));
        let words = [start, end - start, text.len() as u64, 0, 0];
        text.extend_from_slice(path);
        host::send(MessageKind::Module, words, &text, None);
        if is_of_kernel {
            self.of_kernel = module.functions();
            self.of_kernel.sort_unstable();
            return new;
        }
        let new = module.functions();
        self.insert(&new);
        new
    }

    /// Adds functions of a module, which are in the order of their addresses.
    fn insert(&mut self, new: &[Function]) {
        let (Some(first), Some(last)) = (new.first(), new.last()) else {
            return;
        };
        let at = self
            .functions
            .partition_point(|function| function.start < first.start);
        let behind = self
            .functions
            .partition_point(|function| function.start <= last.start);
        let is_known = at < behind;
        self.functions.splice(at..at, new.iter().copied());
        // Functions of other modules among them, and those that a table has twice.
        if is_known || new.windows(2).any(|pair| pair[0].start >= pair[1].start) {
            self.functions.sort_unstable();
            self.functions.dedup_by_key(|function| function.start);
        }
    }
}

impl LoadedModule {
    fn headers(&self) -> &[ProgramHeader] {
        // SAFETY: as the dynamic linker says, which keeps the module while it shows it.
        unsafe { core::slice::from_raw_parts(self.headers, self.header_count.into()) }
    }

    fn loads(&self) -> impl Iterator<Item = &ProgramHeader> {
        self.headers()
            .iter()
            .filter(|header| header.kind == PT_LOAD)
    }

    /// Its addresses: from, to.
    pub(crate) fn range(&self) -> (u64, u64) {
        let start = self
            .loads()
            .map(|load| self.base + load.address)
            .min()
            .unwrap_or(0);
        let end = self
            .loads()
            .map(|load| self.base + load.address + load.memory_len)
            .max();
        (start & !0xfff, end.unwrap_or(start))
    }

    /// Whether it is the C library or the dynamic linker, whose own system calls do not concern us
    /// but for a few, which are known by name.
    pub(crate) fn is_of_the_system(&self) -> bool {
        const NAMES: [&[u8]; 4] = [b"libc.so", b"ld-linux", b"libpthread", b"linux-vdso"];
        NAMES.iter().any(|known| self.is_named(known))
    }

    /// Whether a breakpoint in it always reaches our handler. The C library and what belongs to it executes code with all
    /// signals blocked, and the threads of Go have small stacks.
    pub(crate) fn takes_breakpoints(&self) -> bool {
        const NAMES: [&[u8]; 5] = [
            b"librt.",
            b"libanl.",
            b"libthread_db.",
            b"ld-musl",
            b"libc.musl",
        ];
        !self.is_of_the_system()
            && !self.is_of_go()
            && !NAMES.iter().any(|known| self.is_named(known))
    }

    /// Whether it is a library that is installed for all programs.
    pub(crate) fn is_installed(&self) -> bool {
        const FOLDERS: [&[u8]; 4] = [b"/lib/", b"/lib64/", b"/usr/lib/", b"/usr/lib64/"];
        let mut path = [0; 4096];
        let path = self.path(&mut path);
        self.is_of_the_system() || FOLDERS.iter().any(|folder| path.starts_with(folder))
    }

    /// Whether the name of its file begins so.
    pub(crate) fn is_named(&self, beginning: &[u8]) -> bool {
        let mut path = [0; 4096];
        let path = self.path(&mut path);
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        name.starts_with(beginning)
    }

    /// What its addresses are relative to.
    pub(crate) const fn base(&self) -> u64 {
        self.base
    }

    /// Whether it is not the program itself, which the dynamic linker does not name.
    pub(crate) fn is_library(&self) -> bool {
        // SAFETY: the name is a string of the dynamic linker.
        unsafe { !CStr::from_ptr(self.name).is_empty() }
    }

    /// Where the code segment with an address in it ends.
    pub(crate) fn segment_end(&self, address: u64) -> Option<u64> {
        self.loads()
            .filter(|load| load.flags & EXECUTABLE != 0)
            .find_map(|load| {
                let from = self.base + load.address;
                let end = from + load.memory_len;
                (from..end).contains(&address).then_some(end)
            })
    }

    fn unwind_tables(&self) -> impl Iterator<Item = &'static [u8]> {
        let tables = self
            .headers()
            .iter()
            .filter(|header| header.kind == PT_GNU_EH_FRAME);
        // SAFETY: the segment is loaded.
        tables.map(|header| unsafe { code::view(self.base + header.address, header.memory_len) })
    }

    /// Whether it has a `syscall` instruction, and is not of the system.
    pub(crate) fn makes_system_calls(&self) -> bool {
        const SYSCALL: [u8; 2] = [0x0f, 0x05];
        if is_this(self) || self.is_of_the_system() {
            return false;
        }
        let mut classifier = None;
        let mut found = false;
        self.for_each_function(|function| {
            if found {
                return;
            }
            // SAFETY: functions of loaded modules are readable.
            let bytes = unsafe { code::view(function.start, function.end - function.start) };
            let is_call = |first: u8, second: u8| [first, second] == SYSCALL;
            if code::has_pair(bytes, is_call) {
                let classifier = classifier.get_or_insert_with(Classifier::new);
                classifier.scan(bytes, function.start, |scanned| {
                    found |= scanned.is_system_call;
                });
            }
        });
        found
    }

    /// Its functions, in the order of their addresses.
    pub(crate) fn functions(&self) -> Vec<Function> {
        let mut found = Vec::new();
        let mut has_several_tables = false;
        self.for_each_function(|function| {
            has_several_tables |= matches!(function.description, Description::Go(_));
            found.push(function);
        });
        if has_several_tables {
            found.sort_unstable();
        }
        found
    }

    /// Shows its functions, as its tables have them.
    fn for_each_function(&self, mut visit: impl FnMut(Function)) {
        let mut visit = |start: u64, end: u64, description| {
            if let Some(segment_end) = self.segment_end(start)
                && end <= segment_end
            {
                visit(Function {
                    start,
                    end,
                    segment_end,
                    description,
                });
            }
        };
        for table in self.unwind_tables() {
            functions(table, |start, end, entry| {
                visit(start, end, Description::Entry(entry));
            });
        }
        if self.is_of_go() {
            let table = self.go_table();
            let shown = table.and_then(|table| {
                table.functions(|start, end, function| {
                    visit(start, end, Description::Go(function));
                })
            });
            if shown.is_none() {
                host::warn(
                    "the program was made by a version of Go whose table of functions is not known; what its code does \
                     is not recorded",
                );
            }
        }
    }

    /// Whether the linker of Go made it.
    fn is_of_go(&self) -> bool {
        notes(self.base, self.headers()).any(|note| note.name == b"Go\0\0")
    }

    fn go_table(&self) -> Option<GoTable> {
        let is_code = |address| self.segment_end(address).is_some();
        self.loads()
            .filter(|load| load.flags & EXECUTABLE == 0)
            .find_map(|load| {
                // SAFETY: the segment is loaded, as far as the file has it.
                let bytes = unsafe { code::view(self.base + load.address, load.file_len) };
                GoTable::find(bytes, is_code)
            })
    }

    /// Shows code of it that lies in none of its functions, which are ordered as in its table: from, to.
    pub(crate) fn code_outside_of(&self, functions: &[Function], mut visit: impl FnMut(u64, u64)) {
        for load in self.loads().filter(|load| load.flags & EXECUTABLE != 0) {
            let start = self.base + load.address;
            let end = start + load.file_len;
            let mut at = start;
            for function in functions {
                if !(start..end).contains(&function.start) {
                    continue;
                }
                if at < function.start {
                    visit(at, function.start);
                }
                at = at.max(function.end);
            }
            if at < end {
                visit(at, end);
            }
        }
    }

    /// Its file; `buffer` is for the program itself, which the dynamic linker does not name.
    pub(crate) fn path<'a>(&'a self, buffer: &'a mut [u8]) -> &'a [u8] {
        // SAFETY: the name is a string of the dynamic linker.
        let name = unsafe { CStr::from_ptr(self.name) };
        if !name.is_empty() {
            return name.to_bytes();
        }
        let len = host::read_link(c"/proc/self/exe", buffer);
        &buffer[..len]
    }
}

const PT_DYNAMIC: u32 = 2;

/// Where the tables of a module's names are.
struct NameTables {
    names: u64,
    symbols: u64,
    hashes: u64,
    /// Zero if it has none.
    versions: u64,
}

const SYMBOL_LEN: u64 = 24;

impl LoadedModule {
    /// What the dynamic linker reads of it: where, and tag and value.
    pub(crate) fn dynamic(&self) -> impl Iterator<Item = (u64, [u64; 2])> {
        let mut headers = self.headers().iter();
        let header = headers.find(|header| header.kind == PT_DYNAMIC);
        let (from, len) = header.map_or((0, 0), |header| {
            (self.base + header.address, header.memory_len)
        });
        // SAFETY: the segment is loaded.
        let entry = move |number| unsafe {
            let at = from + 16 * number;
            (at, (at as *const [u64; 2]).read())
        };
        (0..len / 16)
            .map(entry)
            .take_while(|(_, [tag, _])| *tag != 0)
    }

    /// `None`: it is not one of those that the dynamic linker has loaded.
    fn name_tables(&self) -> Option<NameTables> {
        const DT_STRTAB: u64 = 5;
        const DT_SYMTAB: u64 = 6;
        const DT_GNU_HASH: u64 = 0x6fff_fef5;
        const DT_VERSYM: u64 = 0x6fff_fff0;
        let mut tables = NameTables {
            names: 0,
            symbols: 0,
            hashes: 0,
            versions: 0,
        };
        for (_, [tag, value]) in self.dynamic() {
            match tag {
                DT_STRTAB => tables.names = value,
                DT_SYMTAB => tables.symbols = value,
                DT_GNU_HASH => tables.hashes = value,
                DT_VERSYM => tables.versions = value,
                _ => {}
            }
        }
        // The dynamic linker has made addresses of these; what it has not loaded itself is not asked.
        let (from, to) = self.range();
        let places = [tables.names, tables.symbols, tables.hashes];
        places
            .iter()
            .all(|place| (from..to).contains(place))
            .then_some(tables)
    }

    /// Whether it defines this name, in the default version.
    pub(crate) fn defines(&self, name: &CStr) -> bool {
        self.definition(name).is_some()
    }

    /// The address of the function or variable that it defines under this name, in the default version.
    pub(crate) fn address_of(&self, name: &CStr) -> Option<u64> {
        /// A function that says where the function is.
        const INDIRECT: u8 = 10;
        let symbol = self.definition(name)?;
        // SAFETY: an entry of the symbol table of a loaded module: name, kind, visibility, section, value.
        unsafe {
            let kind = ((symbol + 4) as *const u8).read() & 15;
            let address = self.base + ((symbol + 8) as *const u64).read();
            if kind == INDIRECT {
                let resolve: extern "C" fn() -> u64 = core::mem::transmute(address);
                return Some(resolve());
            }
            Some(address)
        }
    }

    /// Where the symbol is that it defines under this name, in the default version.
    fn definition(&self, name: &CStr) -> Option<u64> {
        const HIDDEN: u16 = 0x8000;
        let tables = self.name_tables()?;
        let hash = name.to_bytes().iter().fold(5381u32, |hash, byte| {
            hash.wrapping_mul(33).wrapping_add(u32::from(*byte))
        });
        // SAFETY: tables of a loaded module, which end where they say. A chain ends with an odd number.
        unsafe {
            let word = |at: u64| (at as *const u32).read();
            let [buckets, first, filter_len] =
                [0, 4, 8].map(|offset| u64::from(word(tables.hashes + offset)));
            let buckets_at = tables.hashes + 16 + 8 * filter_len;
            if buckets == 0 {
                return None;
            }
            let mut number = u64::from(word(buckets_at + 4 * (u64::from(hash) % buckets)));
            if number < first {
                return None;
            }
            loop {
                let found = word(buckets_at + 4 * buckets + 4 * (number - first));
                let symbol = tables.symbols + number * SYMBOL_LEN;
                let is_same = found | 1 == hash | 1 && {
                    let at = tables.names + u64::from(word(symbol));
                    CStr::from_ptr(at as *const c_char) == name
                };
                let is_hidden = tables.versions != 0
                    && ((tables.versions + 2 * number) as *const u16).read() & HIDDEN != 0;
                if is_same && !is_hidden {
                    return Some(symbol);
                }
                if found & 1 != 0 {
                    return None;
                }
                number += 1;
            }
        }
    }

    /// Whether it refers to a function that it does not have itself.
    pub(crate) fn refers_to(&self, name: &CStr) -> bool {
        let Some(NameTables {
            names,
            symbols,
            hashes,
            ..
        }) = self.name_tables()
        else {
            return false;
        };
        // SAFETY: tables of a loaded module. What is looked for elsewhere comes before what is hashed.
        unsafe {
            let count = ((hashes + 4) as *const u32).read();
            (1..u64::from(count)).any(|number| {
                let symbol = symbols + number * SYMBOL_LEN;
                let at = names + u64::from((symbol as *const u32).read());
                CStr::from_ptr(at as *const c_char) == name
            })
        }
    }
}

/// Shows every loaded module. The dynamic linker keeps them loaded meanwhile. To be called with
/// signals as the target has them: its own code, which runs here, may be patched with breakpoints.
pub(crate) fn for_each(mut show: impl FnMut(&LoadedModule)) {
    let mut show: &mut dyn FnMut(&LoadedModule) = &mut show;
    // SAFETY: the visitor is called only during this call, with the pointer given here.
    unsafe { dl_iterate_phdr(visit, (&raw mut show).cast()) };
}

extern "C" fn visit(module: *const LoadedModule, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: the dynamic linker gives a module that is loaded; `data` is what `for_each` gave.
    let (module, show) = unsafe { (&*module, &mut *data.cast::<&mut dyn FnMut(&LoadedModule)>()) };
    show(module);
    0
}

/// Whether a module is our own.
pub(crate) fn is_this(module: &LoadedModule) -> bool {
    let (start, end) = module.range();
    (start..end).contains(&(visit as *const () as u64))
}

/// Whether a module other than ours has something of this name. The dynamic linker, if it is asked for a name in
/// vain, writes a message, for which it takes memory of the target's.
pub(crate) fn is_defined(name: &CStr) -> bool {
    let mut is_defined = false;
    for_each(|module| is_defined = is_defined || !is_this(module) && module.defines(name));
    is_defined
}

/// The function of this name of any module but ours.
pub(crate) fn find_function(name: &CStr) -> Option<u64> {
    let mut found = None;
    for_each(|module| {
        if found.is_none() && !is_this(module) {
            found = module.address_of(name);
        }
    });
    found
}

/// The function of this name of the first module behind ours, in the order in which names are looked up.
pub(crate) fn find_after_this(name: &CStr) -> Option<u64> {
    let mut found = None;
    let mut is_behind = false;
    for_each(|module| {
        if is_behind && found.is_none() {
            found = module.address_of(name);
        }
        is_behind |= is_this(module);
    });
    found
}

/// Whether code is our own, whether or not our module was looked at already.
pub(crate) fn is_this_code(address: u64) -> bool {
    let mut is_this_code = false;
    for_each(|module| {
        let (start, end) = module.range();
        is_this_code |= is_this(module) && (start..end).contains(&address);
    });
    is_this_code
}

fn function_in(functions: &[Function], address: u64) -> Option<Function> {
    let behind = functions.partition_point(|function| function.start <= address);
    let function = *functions.get(behind.checked_sub(1)?)?;
    (address < function.end).then_some(function)
}

fn build_id(base: u64, headers: &[ProgramHeader]) -> &'static [u8] {
    const NT_GNU_BUILD_ID: u32 = 3;
    let id = notes(base, headers)
        .find(|note| note.kind == NT_GNU_BUILD_ID && note.name == b"GNU\0")
        .map_or(&[][..], |note| note.content);
    &id[..id.len().min(BUILD_ID_MAX)]
}

/// A note of a module.
struct Note {
    kind: u32,
    /// With its padding.
    name: &'static [u8],
    content: &'static [u8],
}

fn notes(base: u64, headers: &[ProgramHeader]) -> impl Iterator<Item = Note> {
    let headers = headers.iter().filter(|header| header.kind == PT_NOTE);
    headers.flat_map(move |header| {
        // SAFETY: the segment is loaded.
        let mut notes = unsafe { code::view(base + header.address, header.memory_len) };
        let alignment = header.alignment.max(4) as usize;
        core::iter::from_fn(move || {
            const HEAD_LEN: usize = 12;
            let (head, rest) = notes.split_at_checked(HEAD_LEN)?;
            let number = |at: usize| {
                u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
            };
            let (name, rest) = rest.split_at_checked(number(0).next_multiple_of(4) as usize)?;
            let content = rest.get(..number(4) as usize)?;
            notes = rest
                .get(content.len().next_multiple_of(alignment)..)
                .unwrap_or(&[]);
            Some(Note {
                kind: number(8),
                name,
                content,
            })
        })
    })
}

/// Reads the sorted table of `.eh_frame_hdr` in its usual encoding, and the length of each function
/// from its entry in `.eh_frame`.
fn functions(table: &'static [u8], mut visit: impl FnMut(u64, u64, u64)) {
    // Version 1; pointer relative, count and table of 4-byte numbers relative to the table.
    let usual = [1, 0x1b, 0x03, 0x3b];
    let base = table.as_ptr() as u64;
    let number = |bytes: &[u8], at: usize| {
        bytes
            .get(at..at + 4)
            .map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    };
    if !table.starts_with(&usual) {
        host::warn(
            "a module has an unsupported unwind table; its flushes and fences may be missed",
        );
        return;
    }
    let count = number(table, 8).unwrap_or(0);
    for index in 0..count as usize {
        let entry = 12 + 8 * index;
        let (Some(start), Some(description)) = (number(table, entry), number(table, entry + 4))
        else {
            return;
        };
        let start = base.wrapping_add_signed(start.into());
        let description = base.wrapping_add_signed(description.into());
        // Length, pointer to the common part, start (4 bytes, relative), length of the function.
        // SAFETY: the table points to entries of `.eh_frame`, which is loaded.
        let entry = unsafe { code::view(description, 16) };
        if let Some(len) = number(entry, 12)
            && len > 0
        {
            visit(start, start + len as u64, description);
        }
    }
}
