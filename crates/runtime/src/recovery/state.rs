//! The state of a lazy execution: pools, their mappings, and where their content is.
//!
//! # Where the truth is
//!
//! Each pool has a *home*: a mapping of its whole file of our own. With [`flag::PRIVATE`] it is private,
//! and holds the content of every page that is *stepped*: where the recovery sees such a page, it has no
//! access, and each access to it is made alone, on a copy. The other pages the recovery has for itself; what it
//! has changed there is brought home when another mapping needs it (`State::bring_home` in [`super::pages`]).
//! A page that is mapped more than once is stepped too: private mappings do not see each other.
//!
//! Without that flag everything is shared: pages without open lines are those of the file, and pages with
//! open lines lie in the file of the oracle, mapped over those of the pool where the recovery sees them.
//!
//! # Safety
//!
//! The state is used only by the thread that has the turn, or before there are threads. Homes are mapped at
//! addresses that nothing else uses.
#![allow(unsafe_code, reason = "maps the homes of pools")]

use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeSet;

use iced_x86::InstructionInfoFactory;
use powerfail_protocol::explore::{
    ADDRESS, KNOWLEDGE_AT, LineEntry, OVERWRITTEN_BYTES, Watch, flag,
};
use powerfail_protocol::observe::words_for;

use crate::platform::number::{OPEN, STAT};
use crate::platform::sys;

use super::step::SingleStep;
use super::{access_table, attention, fork, load_stacks, shared_file};

pub(super) const PAGE: u64 = 4096;
/// Where homes are.
const HOMES_AT: u64 = 0x1d00_0000_0000;
/// Descriptors of ours are above this one, if there can be so many, out of the way of the target's.
const DESCRIPTORS_FROM: usize = 800;
/// More pools are not explored.
const POOLS_MAX: usize = 64;

/// Devices and inodes of the pools, by number; zeros if a pool does not exist.
static IDENTITIES: [[AtomicU64; 2]; POOLS_MAX] =
    [const { [AtomicU64::new(0), AtomicU64::new(0)] }; POOLS_MAX];

/// A pool.
pub(super) struct PoolFile {
    /// Our own descriptor of it; negative if it cannot be opened.
    pub(super) fd: i32,
    /// Our own mapping of it.
    pub(super) home: u64,
    /// How much of it that has: whole pages.
    pub(super) home_len: u64,
    /// Its length when it was first used.
    pub(super) len: u64,
}

/// A mapping of a pool that the recovery has made.
pub(super) struct Mapping {
    pub(super) address: u64,
    pub(super) len: u64,
    pub(super) pool: u32,
    pub(super) offset: u64,
    pub(super) protection: usize,
    /// The recovery wants its changes for itself.
    pub(super) is_private: bool,
    /// Pages of a private one that were changed, by offset in the pool: no pool's any more.
    pub(super) own: BTreeSet<u64>,
}

impl Mapping {
    pub(super) fn end(&self) -> u64 {
        self.address + self.len
    }

    pub(super) fn contains(&self, address: u64) -> bool {
        (self.address..self.end()).contains(&address)
    }

    /// Where a byte of the pool is seen.
    pub(super) fn address_of(&self, offset: u64) -> Option<u64> {
        (self.offset..self.offset + self.len)
            .contains(&offset)
            .then(|| self.address + (offset - self.offset))
    }
}

/// A page of the table.
#[derive(Clone, Copy)]
pub(super) struct Page {
    /// Its lines in the table: first, behind the last.
    pub(super) lines: (u32, u32),
    /// Its watches in their table: first, behind the last.
    pub(super) watches: (u32, u32),
    /// How many of them are open.
    pub(super) open: u32,
    /// The pool has no such page any more.
    pub(super) is_gone: bool,
    /// It is stepped: decided anew only when it is settled, because others note what they read, too.
    pub(super) is_hidden: bool,
}

/// Everything.
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub(super) struct State {
    pub(super) has_begun: bool,
    pub(super) is_private: bool,
    pub(super) is_lazy: bool,
    pub(super) is_logged: bool,
    pub(super) is_noted: bool,
    /// Everything that loads read of watched lines is noted.
    pub(super) is_observed: bool,
    pub(super) line_bytes: usize,
    pub(super) pools: Vec<PoolFile>,
    pub(super) mappings: Vec<Mapping>,
    /// Those of the table, in its order.
    pub(super) pages: Vec<Page>,
    /// Pages that are mapped more than once, by pool and offset.
    pub(super) crowded: BTreeSet<(u32, u64)>,
    /// Where what is known of lines is.
    pub(super) knowledge: u64,
    /// Where the masks of watched bytes are that are still to be noted.
    pub(super) unread: u64,
    /// How many loads were noted, or had nothing new to note, in lines with bytes that are still to be noted.
    pub(super) noted_loads: u32,
    /// How many loads there were from the line of each watch while it had bytes that are still to be noted.
    pub(super) loads: Vec<u16>,
    pub(super) step: SingleStep,
    pub(super) factory: Option<InstructionInfoFactory>,
    pub(super) sites: BTreeSet<u64>,
    pub(super) has_warned_of_threads: bool,
    /// There is, or was, more than one thread.
    pub(super) has_company: bool,
}

impl State {
    pub(super) const NEW: Self = Self {
        has_begun: false,
        is_private: false,
        is_lazy: false,
        is_logged: false,
        is_noted: false,
        is_observed: false,
        line_bytes: 64,
        pools: Vec::new(),
        mappings: Vec::new(),
        pages: Vec::new(),
        crowded: BTreeSet::new(),
        knowledge: 0,
        unread: 0,
        noted_loads: 0,
        loads: Vec::new(),
        step: SingleStep::NONE,
        factory: None,
        sites: BTreeSet::new(),
        has_warned_of_threads: false,
        has_company: false,
    };

    /// The mapping that an address lies in.
    pub(super) fn mapping_at(&self, address: u64) -> Option<usize> {
        self.mappings.iter().position(|it| it.contains(address))
    }

    /// Begins a lazy execution, when it first needs the content of a pool.
    pub(super) fn begin(&mut self) {
        if self.has_begun {
            return;
        }
        self.has_begun = true;
        let control = shared_file::control();
        if super::has_flag(flag::PRIVATE) && !fork::is_execution() {
            let root = control.root.load(Ordering::Relaxed);
            if root != sys::getpid() {
                super::refuse_private("a child process of the recovery uses the pool");
            }
        }
        self.is_private = super::has_flag(flag::PRIVATE);
        self.is_lazy = super::has_flag(flag::LAZY);
        self.is_logged = super::has_flag(flag::LOG);
        self.is_noted = super::has_flag(flag::NOTES);
        self.is_observed = self.is_noted && super::has_flag(flag::OBSERVATIONS);
        self.line_bytes = control.line_bytes as usize;
        if !matches!(self.line_bytes, 64 | 512) {
            super::refuse("the table of lines has an unsupported line length");
        }
        load_stacks::prepare();
        // Where there are no addresses for tables, every access is stepped.
        let _ = access_table::settings();
        let mut factory = InstructionInfoFactory::new();
        let _ = factory.info(&iced_x86::Instruction::default());
        self.factory = Some(factory);
        let mut place = HOMES_AT;
        for pool in 0..control.pool_count {
            let file = open(pool, place, self.is_private);
            place += file.len.next_multiple_of(PAGE) + PAGE;
            self.pools.push(file);
        }
        self.find_pages();
        self.begin_knowledge();
        attention::catch_up();
    }

    /// Finds the lines and the watches of each page of the table.
    fn find_pages(&mut self) {
        let lines = shared_file::lines();
        let watches = shared_file::watches();
        for page in shared_file::open_pages() {
            let key = |line: &LineEntry| (line.pool, line.offset);
            let (pool, offset) = (page.pool, page.offset);
            let from = lines.partition_point(|line| key(line) < (pool, offset));
            let to = lines.partition_point(|line| key(line) < (pool, offset + PAGE));
            let len = self.pools.get(pool as usize).map_or(0, |it| it.len);
            let is_gone = offset + PAGE > len.next_multiple_of(PAGE);
            let is_lazy = self.is_lazy && !is_gone;
            let is_noted = self.is_noted && !is_gone;
            let key = |watch: &Watch| (watch.pool, watch.offset);
            let first = watches.partition_point(|watch| key(watch) < (pool, offset));
            let behind = watches.partition_point(|watch| key(watch) < (pool, offset + PAGE));
            self.pages.push(Page {
                lines: (from as u32, if is_lazy { to } else { from } as u32),
                watches: (first as u32, if is_noted { behind } else { first } as u32),
                open: 0,
                is_gone: !(is_lazy || is_noted),
                is_hidden: false,
            });
        }
    }

    /// Makes or finds what is known of lines, and the content of open pages.
    fn begin_knowledge(&mut self) {
        let control = shared_file::control();
        let end = shared_file::lines()
            .iter()
            .map(|line| line.knowledge_at + 8 * words_for(line.content_count as usize) as u64)
            .max()
            .unwrap_or(0);
        let is_first = control.begun.swap(1, Ordering::AcqRel) == 0;
        let is_new = if self.is_private {
            let len = (end + OVERWRITTEN_BYTES).next_multiple_of(PAGE);
            let Some(address) = sys::map_anywhere(len) else {
                super::refuse("out of memory for the state of lines");
            };
            self.knowledge = address;
            true
        } else {
            self.knowledge = ADDRESS + KNOWLEDGE_AT;
            is_first
        };
        self.begin_notes(is_new);
        for index in 0..self.pages.len() {
            if is_new {
                self.fill_page(index);
            }
            self.count_open(index);
            self.pages[index].is_hidden = self.must_step(index);
        }
    }
}

/// Whether a descriptor is one of ours.
pub(super) fn owns(fd: i32) -> bool {
    // SAFETY: asked in copies of this process, in which nothing else runs, by who has the turn, or before
    // there is a state.
    let state = unsafe { super::turn::state() };
    state.pools.iter().any(|pool| pool.fd == fd)
}

/// The path of a pool, with a zero behind it.
fn path_with_end(pool: u32) -> [u8; 4097] {
    let path = shared_file::pools()
        .get(pool as usize)
        .map_or(&[][..], shared_file::path);
    let mut with_end = [0; 4097];
    let len = path.len().min(4096);
    with_end[..len].copy_from_slice(&path[..len]);
    with_end
}

/// Opens a pool and maps its home.
fn open(pool: u32, place: u64, is_private: bool) -> PoolFile {
    let none = PoolFile {
        fd: -1,
        home: 0,
        home_len: 0,
        len: 0,
    };
    let Some((fd, is_writable)) = open_file(pool) else {
        return none;
    };
    let len = sys::fstat(fd).map_or(0, |status| status.len_bytes);
    if len == 0 {
        return PoolFile { fd, ..none };
    }
    let (sharing, protection) = if is_private {
        (sys::MAP_PRIVATE, sys::PROT_READ | sys::PROT_WRITE)
    } else if is_writable {
        (sys::MAP_SHARED, sys::PROT_READ | sys::PROT_WRITE)
    } else {
        (sys::MAP_SHARED, sys::PROT_READ)
    };
    let flags = sharing | sys::MAP_FIXED_NOREPLACE | sys::MAP_NORESERVE;
    // SAFETY: nothing is replaced.
    let home = unsafe { sys::mmap(place, len, protection, flags, fd, 0) };
    if home < 0 {
        super::refuse("no free address range for the content of a pool");
    }
    PoolFile {
        fd,
        home: home as u64,
        home_len: len.next_multiple_of(PAGE),
        len,
    }
}

/// Maps the home of a pool once more, which was made or has grown since the first time. What uses the former home sees the
/// same bytes. None if it cannot be mapped.
pub(super) fn open_again(pool: u32, before: &PoolFile) -> Option<PoolFile> {
    let fd = if before.fd >= 0 {
        before.fd
    } else {
        open_file(pool)?.0
    };
    let len = sys::fstat(fd)?.len_bytes;
    if len == 0 {
        return None;
    }
    let protection = sys::PROT_READ | sys::PROT_WRITE;
    let flags = sys::MAP_SHARED | sys::MAP_NORESERVE;
    // SAFETY: the kernel chooses a place where nothing is.
    let home = unsafe { sys::mmap(0, len, protection, flags, fd, 0) };
    (home > 0).then_some(PoolFile {
        fd,
        home: home as u64,
        home_len: len.next_multiple_of(PAGE),
        len: before.len,
    })
}

/// Our own descriptor of a pool, and whether the file can be written to.
fn open_file(pool: u32) -> Option<(i32, bool)> {
    const O_RDWR: usize = 2;
    const O_CLOEXEC: usize = 0o2_000_000;
    const F_DUPFD_CLOEXEC: usize = 1030;
    let path = path_with_end(pool);
    let path = path.as_ptr() as usize;
    // SAFETY: the path is a string with an end; nothing of the target is replaced.
    unsafe {
        let mut fd = sys::call(OPEN, [path, O_RDWR | O_CLOEXEC, 0, 0, 0, 0]);
        let is_writable = fd >= 0;
        if !is_writable {
            fd = sys::call(OPEN, [path, O_CLOEXEC, 0, 0, 0, 0]);
        }
        if fd < 0 {
            return None;
        }
        let arguments = [fd as usize, F_DUPFD_CLOEXEC, DESCRIPTORS_FROM, 0, 0, 0];
        let high = sys::call(sys::number::FCNTL, arguments);
        if high >= 0 {
            sys::call(sys::number::CLOSE, [fd as usize, 0, 0, 0, 0, 0]);
            fd = high;
        }
        Some((fd as i32, is_writable))
    }
}

/// Looks which files the pools are.
pub(super) fn identify_all() {
    if shared_file::pools().len() > POOLS_MAX {
        super::refuse("there are more pools than can be explored");
    }
    for pool in 0..shared_file::pools().len() as u32 {
        identify(pool);
    }
}

/// Looks which file a pool is.
pub(super) fn identify(pool: u32) {
    let identity = status_of_path(&path_with_end(pool)).unwrap_or((0, 0));
    if let Some(place) = IDENTITIES.get(pool as usize) {
        place[0].store(identity.0, Ordering::Relaxed);
        place[1].store(identity.1, Ordering::Relaxed);
    }
}

/// Device and inode of what a path, with a zero behind it, leads to.
pub(super) fn status_of_path(path: &[u8]) -> Option<(u64, u64)> {
    let mut status = [0u64; 18];
    let arguments = [
        path.as_ptr() as usize,
        status.as_mut_ptr() as usize,
        0,
        0,
        0,
        0,
    ];
    // SAFETY: struct stat has 144 bytes; the path has an end.
    let done = unsafe { sys::call(STAT, arguments) };
    (done == 0).then_some((status[0], status[1]))
}

/// The pool with this device and inode.
pub(super) fn pool_with(identity: (u64, u64)) -> Option<u32> {
    if identity == (0, 0) {
        return None;
    }
    let is_it = |place: &[AtomicU64; 2]| {
        (
            place[0].load(Ordering::Relaxed),
            place[1].load(Ordering::Relaxed),
        ) == identity
    };
    IDENTITIES
        .iter()
        .position(is_it)
        .map(|number| number as u32)
}

/// Whether a file is a pool.
pub(super) fn is_pool_status(status: &sys::FileStatus) -> bool {
    pool_with((status.device, status.inode)).is_some()
}

/// The pool that a descriptor refers to.
pub(super) fn pool_of(fd: i32) -> Option<u32> {
    let status = sys::fstat(fd)?;
    pool_with((status.device, status.inode))
}
