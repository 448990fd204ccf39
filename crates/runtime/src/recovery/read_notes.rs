//! Notes of reads: which instruction first reads bytes that the host watches. Races are found from them, and with
//! `flag::OBSERVATIONS` what one failure point shows about another.
//!
//! Of each line with watched bytes there is a mask of those that are still to be noted. A read takes them out
//! of it and leaves a note, a store just takes them out. Like what is known of open lines, the masks lie
//! in private memory, or in the shared file where the next command of a plan has to go on with them.
//!
//! # Safety
//!
//! Callers have the turn, so there is one reference to a mask at a time. The file is mapped for good and has room
//! for as many notes as its constants say.
#![allow(unsafe_code, reason = "writes notes to the shared file")]

use core::sync::atomic::Ordering;

use powerfail_protocol::explore::{
    ADDRESS, CHOICE_FRAMES, NOTES_MAX, Note, NotedLoad, REST_OF_LINE, UNREAD_AT,
};

use crate::platform::sys;
use crate::record::call_stacks::Registers;

use super::state::{PAGE, State};
use super::{attention, load_stacks, shared_file};

const LINE: u64 = 64;
/// After so many loads from a line that is not completely read, its rest counts as read: each of them takes a fault, also
/// where it reads only what was read before. If several values are possible that is in vain, and tried again after twice
/// as many.
const LOADS_OF_LINE_MAX: u16 = 16;
/// After so many loads from any such lines, the rest of each counts as read with the next load.
///
/// The numbers depend on nothing but what the recovery does, so that executions that observe the same have the same
/// notes.
const NOTED_LOADS_MAX: u32 = 256;

/// The bytes of a line from one place of its page to another: a bit each.
fn bytes_between(line: u64, from: u64, to: u64) -> u64 {
    let first = from.saturating_sub(line);
    let end = to.min(line + LINE).saturating_sub(line);
    if first >= end {
        return 0;
    }
    u64::MAX >> (LINE - (end - first)) << first
}

impl State {
    /// Makes or finds the masks.
    pub(super) fn begin_notes(&mut self, is_new: bool) {
        let watches = shared_file::watches();
        if !self.is_noted || watches.is_empty() {
            return;
        }
        self.unread = if self.is_private {
            let len = (8 * watches.len() as u64).next_multiple_of(PAGE);
            let Some(address) = sys::map_anywhere(len) else {
                super::refuse("out of memory for watched bytes");
            };
            address
        } else {
            ADDRESS + UNREAD_AT
        };
        if self.is_observed {
            self.loads.resize(watches.len(), 0);
        }
        if is_new {
            for (number, watch) in (0..).zip(watches) {
                *self.unread_of(number) = watch.bytes;
            }
        }
    }

    /// The bytes of a watch that are still to be noted.
    #[expect(clippy::mut_from_ref, reason = "not two of the same at a time")]
    fn unread_of(&self, watch: u32) -> &mut u64 {
        // SAFETY: there is a word for each watch, which only the thread that has the turn reaches.
        unsafe { &mut *(self.unread as *mut u64).add(watch as usize) }
    }

    /// Lines of a page with bytes that are still to be noted: a bit each.
    pub(super) fn noted_units(&self, page: usize) -> u64 {
        let (first, behind) = self.pages[page].watches;
        (first..behind)
            .filter(|watch| *self.unread_of(*watch) != 0)
            .map(|watch| shared_file::watches()[watch as usize].offset % PAGE / LINE)
            .fold(0, |bits, line| bits | 1 << line)
    }

    /// Takes bytes of a page out of the masks, and shows them: the watch, which bytes.
    fn take_bytes(&self, page: usize, from: u64, to: u64, mut show: impl FnMut(u32, u64)) {
        let (first, behind) = self.pages[page].watches;
        for watch in first..behind {
            let line = shared_file::watches()[watch as usize].offset % PAGE;
            let unread = self.unread_of(watch);
            let taken = *unread & bytes_between(line, from, to);
            if taken != 0 {
                *unread &= !taken;
                show(watch, taken);
            }
        }
    }

    /// The recovery reads bytes of a page of the table, at `code`, after so many choices.
    pub(super) fn note_bytes(
        &self,
        page: usize,
        from: u64,
        to: u64,
        code: Registers,
        choices: u32,
    ) {
        self.take_bytes(page, from, to, |watch, bytes| {
            let watch = &shared_file::watches()[watch as usize];
            let mut note = Note {
                pool: watch.pool,
                offset: watch.offset,
                bytes,
                ..Note::default()
            };
            load_stacks::walk(code, &mut note.frames);
            append_after(note, choices);
        });
    }

    /// The recovery loads bytes of a page of the table, at `code`: notes those that were not read before.
    pub(super) fn note_load(&mut self, page: usize, from: u64, to: u64, code: Registers) {
        let (first, behind) = self.pages[page].watches;
        let in_line = |watch: u32| shared_file::watches()[watch as usize].offset % PAGE;
        let is_met = |state: &Self, watch: u32| {
            *state.unread_of(watch) != 0 && bytes_between(in_line(watch), from, to) != 0
        };
        if !(first..behind).any(|watch| is_met(self, watch)) {
            return;
        }
        self.noted_loads += 1;
        let control = shared_file::control();
        let load = NotedLoad {
            number: self.noted_loads,
            log_len: control.log_len.load(Ordering::Relaxed) as u32,
            from: from as u16,
            to: to as u16,
            is_open: false,
        };
        let choices = control.choice_count.load(Ordering::Relaxed);
        let mut frames = [0; CHOICE_FRAMES];
        self.take_bytes(page, from, to, |watch, bytes| {
            if frames[0] == 0 {
                load_stacks::walk(code, &mut frames);
            }
            let watch = &shared_file::watches()[watch as usize];
            let note = Note {
                pool: watch.pool,
                offset: watch.offset,
                bytes,
                frames,
                ..Note::default()
            };
            append_after(note.with_load(load), choices);
        });
        for number in first..behind {
            if !is_met(self, number) || !self.is_rest_tried(number) {
                continue;
            }
            let line = in_line(number);
            let is_open = self.is_open_between(page, line, line + LINE);
            let watch = &shared_file::watches()[number as usize];
            let unread = self.unread_of(number);
            let note = Note {
                code: REST_OF_LINE,
                pool: watch.pool,
                offset: watch.offset,
                bytes: *unread,
                ..Note::default()
            };
            append_after(note.with_load(NotedLoad { is_open, ..load }), choices);
            if !is_open {
                *unread = 0;
            }
        }
    }

    /// Counts a load from a line that is not completely read. Returns whether its rest is to be taken as read.
    fn is_rest_tried(&mut self, watch: u32) -> bool {
        let is_late = self.noted_loads > NOTED_LOADS_MAX;
        let Some(loads) = self.loads.get_mut(watch as usize) else {
            return false;
        };
        *loads = loads.saturating_add(1);
        loads.is_power_of_two() && (is_late || *loads >= LOADS_OF_LINE_MAX)
    }

    /// A page becomes a private one of the recovery's, whose reads are not seen.
    pub(super) fn lose_page(&self, page: usize) {
        if self.noted_units(page) != 0 {
            super::warn("reads of pages that the recovery has changed privately are not seen");
        }
    }

    /// The recovery has written bytes of a page of the table.
    pub(super) fn forget_bytes(&self, page: usize, from: u64, to: u64) {
        self.take_bytes(page, from, to, |_, _| ());
    }
}

/// Appends a note of what happens now.
pub(super) fn append(note: Note) {
    let choices = shared_file::control().choice_count.load(Ordering::Relaxed);
    append_after(note, choices);
}

/// Appends a note of what happens after so many choices.
fn append_after(mut note: Note, choices: u32) {
    let control = shared_file::control();
    let number = control.note_count.load(Ordering::Relaxed);
    if number >= NOTES_MAX {
        super::refuse("the recovery reads more watched bytes than can be noted");
    }
    note.choices = choices;
    note.skipped = attention::is_none().into();
    // SAFETY: inside of the file, which is mapped for good.
    unsafe { shared_file::note(number).write_volatile(note) };
    control.note_count.store(number + 1, Ordering::Release);
}

/// Fills in the calls that led to us, without ours.
pub(super) fn callers(from: Registers, out: &mut [u64; CHOICE_FRAMES]) {
    const OURS_MAX: usize = 8;
    let mut all = [0; CHOICE_FRAMES + OURS_MAX];
    load_stacks::walk(from, &mut all);
    let theirs = all
        .into_iter()
        .skip_while(|it| crate::patching::modules::is_own(*it));
    for (place, frame) in out.iter_mut().zip(theirs) {
        *place = frame;
    }
    // The call, not what comes behind it.
    out[0] = out[0].saturating_sub(1);
}
