//! What a load observes, and the branches where it can observe several things.
//!
//! # Safety
//!
//! Callers have the turn. The file is mapped for good and has room for as many choices as its constants say.
#![allow(unsafe_code, reason = "writes choices to the shared file")]

use core::sync::atomic::Ordering;

use powerfail_protocol::explore::{CHOICE_FRAMES, CHOICES_MAX, Choice, flag};

use crate::platform::sys;
use crate::record::call_stacks::Registers;

use super::open_lines::note_read;
use super::state::{PAGE, State};
use super::{attention, fork, load_stacks, log, oracle_messages, shared_file, string_functions};

/// How many values a load is allowed to observe.
const CLASSES_MAX: usize = 64;

impl State {
    /// The recovery reads bytes of a page of the table, at `code`.
    pub(super) fn observe(&mut self, page: usize, from: u64, to: u64, code: Registers) {
        if self.is_observed {
            self.decide_part(page, from, to, code);
            self.note_load(page, from, to, code);
            return;
        }
        let entry = &shared_file::open_pages()[page];
        let content = self.truth(entry.pool, entry.offset, Some(page));
        let choices = shared_file::control().choice_count.load(Ordering::Relaxed);
        let end = || string_functions::end_of_use(code.pc, content, from, to);
        if self.is_noted && !super::has_flag(flag::FORK) {
            // What is decided may be that a string continues.
            let mut decided = from;
            while end() > decided {
                let next = end();
                self.decide_part(page, decided, next, code);
                decided = next;
            }
        } else {
            self.decide_part(page, from, to, code);
        }
        self.note_bytes(page, from, end(), code, choices);
    }

    /// All that could be observed of a page is decided, because its reads are not seen from now on.
    pub(super) fn observe_rest(&mut self, page: usize, code: Registers) {
        if self.is_observed {
            self.observe(page, 0, PAGE, code);
        } else {
            self.lose_page(page);
            self.decide_part(page, 0, PAGE, code);
        }
    }

    /// Whether bytes of a page, all of one line, can have several values.
    pub(super) fn is_open_between(&self, page: usize, from: u64, to: u64) -> bool {
        self.lines_in(page, from, to).any(|number| {
            let at = shared_file::lines()[number as usize].offset % PAGE;
            let classes = self
                .line(number)
                .classes::<CLASSES_MAX>((from - at) as usize, (to - at) as usize);
            classes.map_or(true, |classes| classes.firsts().len() > 1)
        })
    }

    /// Decides what bytes of a page of the table are.
    pub(super) fn decide_part(&mut self, page: usize, from: u64, to: u64, code: Registers) {
        note_read(page, from, to);
        let was_open = self.pages[page].open > 0;
        if !was_open {
            return;
        }
        for number in self.lines_in(page, from, to) {
            let at = shared_file::lines()[number as usize].offset % PAGE;
            let first = from.saturating_sub(at) as usize;
            let end = (to - at).min(self.line_bytes as u64) as usize;
            self.observe_line(page, number, first, end, code);
        }
    }

    /// The recovery reads bytes of a line.
    fn observe_line(&mut self, page: usize, number: u32, from: usize, to: usize, code: Registers) {
        let mut line = self.line(number);
        if line.is_closed() {
            return;
        }
        let Ok(classes) = line.classes::<CLASSES_MAX>(from, to) else {
            super::refuse(&format!(
                "the load at {:#x} can observe more than {CLASSES_MAX} values",
                code.pc
            ));
        };
        let firsts = classes.firsts();
        if firsts.len() <= 1 {
            shared_file::control()
                .forced
                .fetch_add(1, Ordering::Relaxed);
            return;
        }
        let choice = Choice {
            line: number,
            from: from as u16,
            to: to as u16,
            class_count: firsts.len() as u16,
            class: 0,
            content: 0,
            left: 0,
            log_events: log::events(),
            frames: [0; CHOICE_FRAMES],
            observed: line.open_bytes(from, to).words(),
            notes: shared_file::control().note_count.load(Ordering::Relaxed),
            skipped: attention::is_none().into(),
        };
        let class = choose(choice, firsts, code);
        let content = firsts[class] as usize;
        line.observe(from, to, content);
        let memory = self.memory_of(page, number);
        line.fill(content, memory);
        if line.is_closed() {
            self.pages[page].open -= 1;
        }
    }

    /// The recovery has written bytes of a page of the table.
    pub(super) fn overwritten(&mut self, page: usize, from: u64, to: u64) {
        self.forget_bytes(page, from, to);
        if self.pages[page].open == 0 {
            return;
        }
        for number in self.lines_in(page, from, to) {
            let at = shared_file::lines()[number as usize].offset % PAGE;
            let mut line = self.line(number);
            if line.is_closed() {
                continue;
            }
            let first = from.saturating_sub(at) as usize;
            let end = (to - at).min(self.line_bytes as u64) as usize;
            line.overwrite(first, end);
            if line.is_closed() {
                self.pages[page].open -= 1;
            }
        }
    }
}

/// Chooses one of several classes: as the prefix says, or each in a process of its own, or the first.
fn choose(mut choice: Choice, firsts: &[u32], code: Registers) -> usize {
    let control = shared_file::control();
    let number = control.choice_count.load(Ordering::Relaxed);
    if number >= CHOICES_MAX {
        super::refuse("the recovery makes more choices than can be noted");
    }
    load_stacks::walk(code, &mut choice.frames);
    let write = |class: usize, left: u32| note(number, &choice, firsts, class, left);
    if let Some(&class) = shared_file::prefix().get(number as usize) {
        let class = class as usize;
        if class >= firsts.len() {
            super::refuse("the recovery behaves differently when it is repeated");
        }
        write(class, 0);
        return class;
    }
    let last = firsts.len() - 1;
    let me = sys::getpid();
    for class in 0..last {
        if !can_branch() {
            write(class, 1);
            return class;
        }
        write(class, 0);
        let log_len = control.log_len.load(Ordering::Relaxed);
        let log_events = log::events();
        let notes = control.note_count.load(Ordering::Relaxed);
        let attention = control.attention.load(Ordering::Relaxed);
        control.waiting.fetch_add(1, Ordering::Relaxed);
        oracle_messages::mark_output();
        let child = fork::fork(true);
        if child == 0 {
            let before = &control.attached;
            let _ = before.compare_exchange(me, sys::getpid(), Ordering::AcqRel, Ordering::Relaxed);
            return class;
        }
        if child < 0 {
            control.waiting.fetch_sub(1, Ordering::Relaxed);
            write(class, 1);
            return class;
        }
        let status = fork::wait(child);
        control.waiting.fetch_sub(1, Ordering::Relaxed);
        oracle_messages::ended(child, status);
        control.active.store(me, Ordering::Relaxed);
        control.attached.store(me, Ordering::Relaxed);
        control.log_len.store(log_len, Ordering::Relaxed);
        log::set_events(log_events);
        control.note_count.store(notes, Ordering::Relaxed);
        control.attention.store(attention, Ordering::Relaxed);
    }
    write(last, 0);
    last
}

/// Notes a choice in the file.
fn note(number: u32, choice: &Choice, firsts: &[u32], class: usize, left: u32) {
    let mut choice = *choice;
    choice.class = class as u16;
    choice.content = firsts[class];
    choice.left = left;
    // SAFETY: inside of the file, which is mapped for good.
    unsafe { shared_file::choice(number).write_volatile(choice) };
    let count = &shared_file::control().choice_count;
    count.store(number + 1, Ordering::Release);
}

fn can_branch() -> bool {
    let control = shared_file::control();
    control.flags & flag::FORK != 0
        && control.waiting.load(Ordering::Relaxed) < control.waiting_max
        && fork::is_execution()
        && fork::company().is_none()
}
