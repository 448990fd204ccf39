//! Code that the target generates at run time.
//!
//! Its stores fault like all others. Its flushes, fences and locked operations are looked for when
//! its pages become executable, from their beginning on, and get breakpoints, which go away when the
//! pages become writable again: the target may read the code and change it in place. Where code
//! can change while it is executable, or does not decode from the beginning, a warning says that
//! something may be missed.

use crate::host;
use crate::platform::lock::Lock;
use crate::platform::sys;
use crate::record::sites::{SITES, Sites};

/// Executable ranges that are not of loaded modules: from, to, whether they are writable too.
pub(crate) static RANGES: Lock<Vec<(u64, u64, bool)>> = Lock::new(Vec::new());

const PAGE: u64 = 4096;

fn end_of(address: u64, len: u64) -> u64 {
    address.saturating_add(len).next_multiple_of(PAGE)
}

/// Takes a range out of the known ones; whether anything of it was known.
fn cut(from: u64, to: u64) -> bool {
    RANGES.with(|ranges| {
        let before = core::mem::take(ranges);
        let mut found = false;
        for (start, end, writable) in before {
            found |= start < to && from < end;
            let parts = [(start, end.min(from)), (start.max(to), end)];
            let parts = parts.into_iter().filter(|part| part.0 < part.1);
            ranges.extend(parts.map(|part| (part.0, part.1, writable)));
        }
        found
    })
}

/// The protection of a range is about to change, or it is about to go away.
pub(crate) fn changes(address: u64, len: u64) {
    let to = end_of(address, len);
    if host::attached() && cut(address, to) {
        SITES.with(|sites| {
            if let Some(sites) = sites {
                sites.give_back(address, to);
            }
        });
    }
}

/// A range has got this protection.
pub(crate) fn changed(address: u64, len: u64, protection: usize) {
    if !host::attached() || protection & sys::PROT_EXEC == 0 {
        return;
    }
    let range = (
        address,
        end_of(address, len),
        protection & sys::PROT_WRITE != 0,
    );
    RANGES.with(|ranges| ranges.push(range));
    look(range, protection & sys::PROT_READ != 0);
}

/// Recording begins: looks at the existing code.
pub(crate) fn look_at_all() {
    let ranges = RANGES.with(|ranges| ranges.clone());
    for range in ranges {
        look(range, true);
    }
}

fn look((from, to, writable): (u64, u64, bool), readable: bool) {
    let certain = SITES.with(|sites| {
        let sites: &mut Sites = sites.as_mut().filter(|sites| sites.records_memory())?;
        Some(readable && sites.look_at_generated(from, to) && !writable)
    });
    if certain == Some(false) {
        host::warn(&format!(
            "code is generated at run time at {from:#x}: its flushes and fences may be missed"
        ));
    }
}
