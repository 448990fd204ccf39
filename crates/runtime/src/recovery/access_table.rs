//! The tables that trampolines of accesses read: how far away the content of a page is, and which of its
//! lines can be loaded and stored there unwatched. A third table says where the first load of a line is noted.
//!
//! Zero, which is what everything is at first, means that the instruction itself is executed: right for
//! memory that is not a pool, for pages that the recovery has for itself, and for lines of which each
//! access must be seen. A copy of the process has a copy of the tables.
//!
//! # Safety
//!
//! The tables are mapped for good, before the first trampoline exists, for all addresses that are looked up in
//! them. They are changed by the thread that has the turn; emitted code of other threads reads single words.
#![allow(unsafe_code, reason = "writes tables that emitted code reads")]

use core::sync::atomic::{AtomicU64, Ordering};

use powerfail_patch::{AccessSettings, LOADS_MOVE, STORES_MOVE, UNREAD_SHIFT};

use crate::platform::sys;

const PAGE: u64 = 4096;
const LINE: u64 = 64;
/// Recoveries map pools where they like: the tables are for all addresses that there are.
const WINDOW_LEN: u64 = 1 << 47;
const LINE_TABLE_LEN: u64 = WINDOW_LEN / LINE + PAGE;
const PAGE_TABLE_LEN: u64 = WINDOW_LEN / PAGE * 8 + PAGE;

/// Where they are, if nothing else is there.
const LINES_AT: u64 = 0x3000_0000_0000;
const PAGES_AT: u64 = 0x3400_0000_0000;
const MARKS_AT: u64 = 0x3600_0000_0000;

/// The addresses of the tables; zeros before they are there.
static LINES: AtomicU64 = AtomicU64::new(0);
static PAGES: AtomicU64 = AtomicU64::new(0);
static MARKS: AtomicU64 = AtomicU64::new(0);

/// What may go to the content of a page without being seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moves {
    Loads,
    All,
}

/// A page whose content is elsewhere.
pub(super) struct Moved {
    /// Where the recovery sees it.
    pub(super) page: u64,
    pub(super) content: u64,
    /// How unwatched lines can be accessed where they have moved to.
    pub(super) moves: Moves,
    /// Lines that are none of these: a bit each.
    pub(super) kept: u64,
    /// Lines of which the first load is to be noted: a bit each.
    pub(super) unread: u64,
    /// The word in which it is noted, if there are any.
    pub(super) mark: u64,
}

impl Moved {
    fn byte(&self, line: u32) -> u8 {
        let byte = match self.moves {
            Moves::Loads => LOADS_MOVE,
            Moves::All => LOADS_MOVE | STORES_MOVE,
        };
        if self.kept >> line & 1 != 0 {
            0
        } else if self.unread >> line & 1 != 0 {
            byte << UNREAD_SHIFT
        } else {
            byte
        }
    }
}

/// Makes the tables, which take memory only where they say something. None if there are no addresses.
pub(super) fn settings() -> Option<AccessSettings> {
    let mut lines = LINES.load(Ordering::Relaxed);
    let mut pages = PAGES.load(Ordering::Relaxed);
    let mut marks = MARKS.load(Ordering::Relaxed);
    if lines == 0 {
        lines = sys::map_at(LINES_AT, LINE_TABLE_LEN)?;
        pages = sys::map_at(PAGES_AT, PAGE_TABLE_LEN)?;
        marks = sys::map_at(MARKS_AT, PAGE_TABLE_LEN)?;
        PAGES.store(pages, Ordering::Relaxed);
        MARKS.store(marks, Ordering::Relaxed);
        LINES.store(lines, Ordering::Relaxed);
    }
    Some(AccessSettings {
        base: 0,
        len_bytes: WINDOW_LEN,
        line_table: lines,
        page_table: pages,
        mark_table: marks,
        // No pool is addressed by the segment of a thread.
        has_fsgsbase: false,
    })
}

fn is_there() -> bool {
    LINES.load(Ordering::Relaxed) != 0
}

fn line_bytes(page: u64) -> *mut [u8; (PAGE / LINE) as usize] {
    (LINES.load(Ordering::Relaxed) + page / LINE) as *mut _
}

fn page_word(page: u64) -> *mut u64 {
    (PAGES.load(Ordering::Relaxed) + page / PAGE * 8) as *mut u64
}

fn mark_word(page: u64) -> *mut u64 {
    (MARKS.load(Ordering::Relaxed) + page / PAGE * 8) as *mut u64
}

/// The content of a page is elsewhere.
pub(super) fn set_page(moved: &Moved) {
    let page = moved.page;
    if !is_there() || page >= WINDOW_LEN {
        return;
    }
    let mut bytes = [0; (PAGE / LINE) as usize];
    for (line, byte) in (0..).zip(&mut bytes) {
        *byte = moved.byte(line);
    }
    let distance = moved.content.wrapping_sub(page);
    // SAFETY: inside of the tables. Other threads' emitted code may read meanwhile, and finds the old or
    // the new: the words change only while no byte of their page says that they are used.
    unsafe {
        if page_word(page).read_volatile() != distance {
            line_bytes(page).write_volatile([0; (PAGE / LINE) as usize]);
            page_word(page).write_volatile(distance);
        }
        if moved.unread != 0 {
            mark_word(page).write_volatile(moved.mark);
        }
        line_bytes(page).write_volatile(bytes);
    }
}

/// Instructions themselves access a page, as it is or with faults.
pub(super) fn clear_page(page: u64) {
    if !is_there() || page >= WINDOW_LEN {
        return;
    }
    // SAFETY: inside of the tables. What is zero already is not touched, and takes no memory.
    unsafe {
        if page_word(page).read_volatile() != 0 {
            line_bytes(page).write_volatile([0; (PAGE / LINE) as usize]);
            page_word(page).write_volatile(0);
        }
    }
}

/// Where the bytes at an address are that an instruction could load or store unwatched, and how
/// many of `most`, which lie in one page. Notes that lines are read.
pub(super) fn movable(address: u64, most: u64, is_store: bool) -> Option<(u64, u64)> {
    if !is_there() || address >= WINDOW_LEN {
        return None;
    }
    let page = address / PAGE * PAGE;
    let bit = if is_store { STORES_MOVE } else { LOADS_MOVE };
    let (first, end) = (address % PAGE, address % PAGE + most);
    let mut until = first;
    // SAFETY: inside of the tables; a mark is the address of a word of the shared file.
    let distance = unsafe {
        let bytes = &mut *line_bytes(page);
        for line in first / LINE..end.div_ceil(LINE) {
            let byte = &mut bytes[line as usize];
            if !is_store && *byte & LOADS_MOVE << UNREAD_SHIFT != 0 {
                let mark = mark_word(page).read() as *const AtomicU64;
                (*mark).fetch_or(1 << line, Ordering::Relaxed);
                *byte >>= UNREAD_SHIFT;
            }
            if *byte & bit == 0 {
                break;
            }
            until = ((line + 1) * LINE).min(end);
        }
        page_word(page).read()
    };
    (until > first).then(|| (address.wrapping_add(distance), until - first))
}
