//! Small functions that store, flush, write or sync for others, such as `put_u64`, `persist` and `write_all`: what they do is
//! to be blamed on the line that calls them.
//!
//! The trace shows which functions these are. A helper has one line that stores, or none and flushes or fences; it is
//! called from several lines; and the callers say where it stores: what it stores for one line it never stores for
//! another, or else a function calls it in several lines for places that have nothing in common, as `insert` does with a
//! record and with the count that `delete` stores as well.
//! A function such as `insert` stores in several lines, or stores to the same place for all of its callers. Calls that
//! the compiler has inlined count like others. A function that one line of a helper calls is a part of that helper, if it
//! only flushes or fences, or if it has one line that stores and the helper has no other.
//!
//! It takes one pass over the trace, and then the distinct call stacks.

use std::collections::{BTreeMap, BTreeSet};

use powerfail_finding::StackFrame;
use powerfail_model::Event;
use powerfail_trace::{Body, FileOperation, Result, StackId, Trace};
use rustc_hash::{FxHashMap, FxHashSet};

/// With more distinct call stacks than this, no function is taken for a helper: sources of so many are not looked up.
const STACKS_MAX: usize = 1 << 14;
/// Stands for a pool where a file is changed by system calls. Its offset is the number of the file: a function that writes
/// where it wants in a file of its callers' choice is a helper, one that appends to the same log for all of them is not.
const FILES: u32 = u32::MAX;
/// How many places that a call stack stores to are compared.
const OFFSETS_MAX: usize = 32;

/// What was done at a call stack.
#[derive(Clone, Debug, Default)]
pub(crate) struct StackUse {
    stores: u64,
    offsets: Vec<(u32, u64)>,
}

/// What is done at each call stack of a trace; nothing if there are too many.
pub(crate) fn uses_of(trace: &Trace) -> Result<BTreeMap<StackId, StackUse>> {
    let mut uses: FxHashMap<StackId, StackUse> = FxHashMap::default();
    let mut records = trace.records_from(powerfail_model::EventIndex(0));
    while let Some(record) = records.next_record()? {
        let at = match &record.body {
            Body::Pm(Event::Store { at, .. }) => Some((at.pool.0, at.offset.0)),
            Body::Pm(Event::Flush { .. } | Event::Fence(_))
            | Body::File(FileOperation::SyncFile { .. } | FileOperation::SyncFileSystem) => None,
            Body::File(FileOperation::Close { .. }) => continue,
            Body::File(operation) => match operation.node() {
                Some(node) => Some((FILES, node.0.into())),
                None => continue,
            },
            _ => continue,
        };
        let known = uses.entry(record.stack).or_default();
        if let Some(at) = at {
            known.stores += 1;
            if known.offsets.len() < OFFSETS_MAX && !known.offsets.contains(&at) {
                known.offsets.push(at);
            }
        }
        if uses.len() > STACKS_MAX {
            return Ok(BTreeMap::new());
        }
    }
    Ok(uses.into_iter().collect())
}

/// A function of the program: its file and its name.
type Function = (String, String);

/// A line that calls a function: its file and its number.
type CallingLine = (Option<String>, Option<u32>);

/// Where something is stored: a pool and an offset.
type StoredAt = (u32, u64);

/// What is known about a function that may be a helper.
#[derive(Clone, Debug, Default)]
struct Candidate {
    stores: u64,
    store_lines: BTreeSet<Option<u32>>,
    /// What is stored for the lines that call it.
    callers: BTreeMap<CallingLine, BTreeSet<StoredAt>>,
    /// The lines that call it, by the function that they are in, and by whether that is the outermost one.
    calling_functions: BTreeMap<(Function, bool), BTreeSet<CallingLine>>,
    /// It flushes or fences, or what it calls does.
    orders: bool,
    /// A part of it stores.
    has_parts: bool,
    /// It is also seen without a caller.
    is_outermost: bool,
}

impl Candidate {
    fn is_helper(&self) -> bool {
        !self.is_outermost
            && self.callers.len() > 1
            && self.store_lines.len() <= 1
            && (self.never_shares_a_place() && (!self.has_parts || self.serves_operations())
                || self.is_told_where())
    }

    /// Whether several functions call it, none of which is the outermost one, and flush what it stores: `insert` and `delete`
    /// do, which `main` calls. What calls others to store and flushes that itself may be such an operation.
    fn serves_operations(&self) -> bool {
        let mut functions = self.calling_functions.keys();
        !self.orders && functions.len() > 1 && functions.all(|(_, is_outermost)| !is_outermost)
    }

    /// Whether it never stores to the same place for two of the lines that call it.
    fn never_shares_a_place(&self) -> bool {
        let mut seen = BTreeSet::new();
        let mut offsets = self.callers.values().flatten();
        offsets.all(|offset| seen.insert(offset))
    }

    /// Whether a function calls it in several lines for places that have nothing in common, even if other functions store
    /// there, too. Of the outermost function that says less: a program that calls `push` and `pop` in turn stores to some
    /// places again, and not to others. What leaves the flush to that function stores for it all the same.
    fn is_told_where(&self) -> bool {
        let mut lines = self.calling_functions.iter();
        lines.any(|((_, is_outermost), lines)| {
            if *is_outermost && (self.orders || self.has_parts) {
                return false;
            }
            let mut groups = lines.iter().filter_map(|line| self.group_of(line));
            let first = groups.next();
            first.is_some_and(|first| groups.any(|other| other != first))
        })
    }

    /// The first of the lines that store to the same places as a line, or to places that they share with one of these.
    fn group_of(&self, line: &CallingLine) -> Option<&CallingLine> {
        let mut places = self.callers.get(line).filter(|it| !it.is_empty())?.clone();
        loop {
            let known = places.len();
            for stored in self.callers.values() {
                if !stored.is_disjoint(&places) {
                    places.extend(stored.iter().copied());
                }
            }
            if places.len() == known {
                break;
            }
        }
        let mut callers = self.callers.iter();
        let first = callers.find(|(_, stored)| !stored.is_disjoint(&places));
        first.map(|(line, _)| line)
    }
}

/// The helpers of a program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Helpers {
    functions: FxHashMap<Function, u64>,
    /// Functions that are called from one line: those that flush or fence and never store, and those that have one line that
    /// stores.
    parts: FxHashSet<Function>,
}

/// The lines of a function at which it stores, or calls what does, and the lines that call it then.
#[derive(Clone, Debug, Default)]
struct StoringLines {
    own: BTreeSet<Option<u32>>,
    callers: BTreeSet<CallingLine>,
    is_outermost: bool,
}

impl StoringLines {
    /// Whether it stores in one line, and one line calls it.
    fn are_of_part(&self) -> bool {
        !self.is_outermost && self.own.len() == 1 && self.callers.len() == 1
    }
}

/// The lines of all functions that store.
fn storing_lines(uses: &[(StackUse, Vec<StackFrame>)]) -> FxHashMap<Function, StoringLines> {
    let mut functions: FxHashMap<Function, StoringLines> = FxHashMap::default();
    for (_, frames) in uses.iter().filter(|(done, _)| done.stores > 0) {
        for (depth, frame) in frames.iter().enumerate() {
            let Some(function) = function_of(frame) else {
                break;
            };
            let known = functions.entry(function).or_default();
            known.own.insert(frame.line);
            match frames.get(depth + 1) {
                Some(caller) => {
                    let line = (caller.file.clone(), caller.line);
                    known.callers.insert(line);
                }
                None => known.is_outermost = true,
            }
        }
    }
    functions
}

impl Helpers {
    /// Of what was done at call stacks; the frames are those of the program's own sources, innermost first.
    pub(crate) fn of(uses: impl IntoIterator<Item = (StackUse, Vec<StackFrame>)>) -> Self {
        let uses: Vec<(StackUse, Vec<StackFrame>)> = uses.into_iter().collect();
        let storing = storing_lines(&uses);
        let ordering = uses.iter().filter(|(done, _)| done.stores == 0);
        let ordering = ordering.flat_map(|(_, frames)| frames.iter().filter_map(function_of));
        let ordering: FxHashSet<Function> = ordering.collect();
        let mut candidates: FxHashMap<Function, Candidate> = FxHashMap::default();
        for (done, frames) in uses {
            let mut is_of_parts = done.stores > 0;
            for (depth, frame) in frames.iter().enumerate() {
                let Some(function) = function_of(frame) else {
                    break;
                };
                // Who calls what stores is looked at only for the innermost function, and for what it is a part of.
                let is_of_others = depth > 0 && !is_of_parts && done.stores > 0;
                // What stores through others and flushes by itself is no helper that only flushes.
                if is_of_others || done.stores == 0 && storing.contains_key(&function) {
                    break;
                }
                let lines = storing.get(&function);
                is_of_parts &= lines.is_some_and(StoringLines::are_of_part);
                let orders = ordering.contains(&function);
                let known = candidates.entry(function).or_default();
                known.orders = orders;
                if depth > 0 && done.stores > 0 {
                    known.has_parts = true;
                    known
                        .store_lines
                        .extend(lines.into_iter().flat_map(|it| &it.own));
                }
                known.stores += done.stores;
                if done.stores > 0 {
                    known.store_lines.insert(frame.line);
                }
                match frames.get(depth + 1) {
                    Some(caller) => {
                        let line = (caller.file.clone(), caller.line);
                        if let Some(function) = function_of(caller) {
                            let is_outermost = depth + 2 == frames.len();
                            let lines = known.calling_functions.entry((function, is_outermost));
                            lines.or_default().insert(line.clone());
                        }
                        let stored = known.callers.entry(line).or_default();
                        stored.extend(done.offsets.iter().copied());
                    }
                    None => known.is_outermost = true,
                }
            }
        }
        let is_part = |(name, it): &(&Function, &Candidate)| {
            !storing.contains_key(*name) && !it.is_outermost && it.callers.len() == 1
        };
        let parts = candidates.iter().filter(is_part);
        let parts = parts.map(|(name, _)| name.clone());
        let storing_parts = storing.iter().filter(|(_, it)| it.are_of_part());
        let storing_parts = storing_parts.map(|(name, _)| name.clone());
        let parts = parts.chain(storing_parts).collect();
        let helpers = candidates.into_iter().filter(|(_, it)| it.is_helper());
        Self {
            functions: helpers.map(|(name, it)| (name, it.stores)).collect(),
            parts,
        }
    }

    /// How many of the frames, innermost first, are helpers. The outermost one never is.
    pub(crate) fn count(&self, frames: &[StackFrame]) -> usize {
        let Some(callers) = frames.len().checked_sub(1) else {
            return 0;
        };
        let mut count = 0;
        for (number, frame) in frames[..callers].iter().enumerate() {
            if self.stores_in(frame).is_some() {
                count = number + 1;
            } else if !function_of(frame).is_some_and(|it| self.parts.contains(&it)) {
                break;
            }
        }
        count
    }

    /// How many stores the helper of these frames has executed; nothing if there is none.
    pub(crate) fn stores_of(&self, frames: &[StackFrame]) -> Option<u64> {
        let outermost = self.count(frames).checked_sub(1)?;
        self.stores_in(&frames[outermost])
    }

    /// How many stores a helper has executed; nothing if the function of a frame is none.
    fn stores_in(&self, frame: &StackFrame) -> Option<u64> {
        self.functions.get(&function_of(frame)?).copied()
    }
}

fn function_of(frame: &StackFrame) -> Option<Function> {
    Some((frame.file.clone()?, frame.function.clone()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str, line: u32) -> StackFrame {
        StackFrame {
            function: Some(function.into()),
            file: Some("map.c".into()),
            line: Some(line),
            module: None,
            offset: 0,
            trusted: false,
        }
    }

    fn stored(offset: u64, frames: &[(&str, u32)]) -> (StackUse, Vec<StackFrame>) {
        let done = StackUse {
            stores: 1,
            offsets: vec![(0, offset)],
        };
        let frames = frames.iter().map(|(function, line)| frame(function, *line));
        (done, frames.collect())
    }

    fn ordered(frames: &[(&str, u32)]) -> (StackUse, Vec<StackFrame>) {
        let frames = frames.iter().map(|(function, line)| frame(function, *line));
        (StackUse::default(), frames.collect())
    }

    fn count(uses: Vec<(StackUse, Vec<StackFrame>)>, frames: &[(&str, u32)]) -> usize {
        let frames: Vec<_> = frames
            .iter()
            .map(|(name, line)| frame(name, *line))
            .collect();
        Helpers::of(uses).count(&frames)
    }

    #[test]
    fn what_stores_different_things_for_different_callers_is_a_helper() {
        let uses = vec![
            stored(0, &[("put_u64", 3), ("insert", 10), ("main", 20)]),
            stored(64, &[("put_u64", 3), ("insert", 11), ("main", 20)]),
            ordered(&[("persist", 5), ("insert", 12), ("main", 20)]),
            ordered(&[("persist", 5), ("insert", 13), ("main", 20)]),
        ];
        let put = [("put_u64", 3), ("insert", 10), ("main", 20)];
        assert_eq!(count(uses.clone(), &put), 1);
        let persist = [("persist", 5), ("insert", 12), ("main", 20)];
        assert_eq!(count(uses.clone(), &persist), 1);
        assert_eq!(count(uses, &[("insert", 10), ("main", 20)]), 0);
    }

    #[test]
    fn what_two_functions_use_for_one_variable_is_a_helper() {
        let insert = [("put_u64", 3), ("insert", 11), ("main", 20)];
        let delete = [("put_u64", 3), ("delete", 15), ("main", 21)];
        let uses = vec![
            stored(0, &[("put_u64", 3), ("insert", 10), ("main", 20)]),
            stored(64, &insert),
            stored(64, &delete),
        ];
        assert_eq!(count(uses, &insert), 1);
        // The outermost function, which flushes what is stored.
        let uses = vec![
            stored(0, &[("put_u64", 3), ("main", 20)]),
            stored(64, &[("put_u64", 3), ("main", 22)]),
            stored(64, &[("put_u64", 3), ("main", 24)]),
            ordered(&[("main", 21)]),
        ];
        assert_eq!(count(uses, &[("put_u64", 3), ("main", 22)]), 1);
        // One variable for all callers.
        let uses = vec![
            stored(64, &[("set_count", 3), ("insert", 10), ("main", 20)]),
            stored(64, &[("set_count", 3), ("insert", 11), ("main", 20)]),
            stored(64, &[("set_count", 3), ("delete", 15), ("main", 21)]),
        ];
        assert_eq!(
            count(uses, &[("set_count", 3), ("insert", 10), ("main", 20)]),
            0
        );
        // Places that others have in common are one.
        let uses = vec![
            stored(0, &[("push", 3), ("fill", 10), ("main", 20)]),
            stored(8, &[("push", 3), ("fill", 11), ("main", 20)]),
            stored(0, &[("push", 3), ("refill", 15), ("main", 21)]),
            stored(8, &[("push", 3), ("refill", 15), ("main", 21)]),
        ];
        assert_eq!(count(uses, &[("push", 3), ("fill", 10), ("main", 20)]), 0);
    }

    #[test]
    fn what_only_a_helper_calls_is_a_part_of_it() {
        let uses = vec![
            ordered(&[("clwb", 1), ("persist", 5), ("insert", 12), ("main", 20)]),
            ordered(&[("clwb", 1), ("persist", 5), ("insert", 13), ("main", 20)]),
            stored(0, &[("insert", 10), ("main", 20)]),
            stored(64, &[("insert", 11), ("main", 20)]),
        ];
        let flush = [("clwb", 1), ("persist", 5), ("insert", 12), ("main", 20)];
        assert_eq!(count(uses, &flush), 2);
        // Of something that is called once, it is none.
        let once = vec![
            ordered(&[("clwb", 1), ("save", 5), ("main", 20)]),
            ordered(&[("sfence", 2), ("save", 6), ("main", 20)]),
        ];
        assert_eq!(count(once, &[("clwb", 1), ("save", 5), ("main", 20)]), 0);
        // What stores is no part of what stores elsewhere, too.
        let entry = vec![
            stored(0, &[("write_entry", 1), ("insert", 5), ("main", 20)]),
            stored(64, &[("insert", 6), ("main", 20)]),
            stored(128, &[("insert", 6), ("main", 21)]),
        ];
        let store = [("write_entry", 1), ("insert", 5), ("main", 20)];
        assert_eq!(count(entry, &store), 0);
    }

    #[test]
    fn what_stores_through_one_line_is_a_helper_with_its_parts() {
        let through = |offset: u64, line: u32| {
            let frames = [
                ("store", 1),
                ("put", 3),
                ("write_field", 5),
                ("mkfs", line),
                ("main", 20),
            ];
            stored(offset, &frames)
        };
        let frames = [
            ("store", 1),
            ("put", 3),
            ("write_field", 5),
            ("mkfs", 11),
            ("main", 20),
        ];
        assert_eq!(count(vec![through(0, 10), through(64, 11)], &frames), 3);
        // Always the same place.
        assert_eq!(count(vec![through(0, 10), through(0, 11)], &frames), 0);
        // Of what only the outermost function calls, it is not known who decides.
        let insert =
            |offset: u64, line: u32| stored(offset, &[("put", 3), ("insert", 5), ("main", line)]);
        let frames = [("put", 3), ("insert", 5), ("main", 20)];
        assert_eq!(count(vec![insert(0, 20), insert(64, 21)], &frames), 0);
        // Of what two operations call, each for a place of its own, they decide.
        let of = |offset: u64, operation, line| {
            let frames = [("put", 1), ("set", 3), (operation, line), ("main", 20)];
            stored(offset, &frames)
        };
        let stores = vec![of(0, "push", 10), of(64, "publish", 15)];
        let frames = [("put", 1), ("set", 3), ("push", 10), ("main", 20)];
        assert_eq!(count(stores.clone(), &frames), 2);
        // One that flushes itself may be an operation.
        let flush = ordered(&[("set", 4), ("push", 10), ("main", 20)]);
        assert_eq!(count([stores, vec![flush]].concat(), &frames), 0);
    }

    #[test]
    fn what_knows_where_to_store_is_none() {
        // The same place for both callers.
        let set = |offset| {
            vec![
                stored(0, &[("set", 3), ("main", 20)]),
                stored(offset, &[("set", 3), ("main", 21)]),
            ]
        };
        assert_eq!(count(set(0), &[("set", 3), ("main", 20)]), 0);
        assert_eq!(count(set(8), &[("set", 3), ("main", 20)]), 1);
        // What is stored again after `pop`.
        let again = vec![
            stored(0, &[("push", 3), ("main", 20)]),
            stored(8, &[("push", 3), ("main", 21)]),
            stored(8, &[("push", 3), ("main", 23)]),
            ordered(&[("push", 4), ("main", 20)]),
        ];
        assert_eq!(count(again, &[("push", 3), ("main", 20)]), 0);
        // Two lines that store.
        let push = vec![
            stored(0, &[("push", 3), ("main", 20)]),
            stored(8, &[("push", 4), ("main", 21)]),
        ];
        assert_eq!(count(push, &[("push", 3), ("main", 20)]), 0);
        // One caller.
        let once = vec![
            stored(0, &[("put", 3), ("main", 20)]),
            stored(8, &[("put", 3), ("main", 20)]),
        ];
        assert_eq!(count(once, &[("put", 3), ("main", 20)]), 0);
    }
}
