//! Small functions that store, flush, write or sync for others, such as `put_u64`, `persist` and `write_all`: what they do is
//! to be blamed on the line that calls them.
//!
//! The trace shows which functions these are. A helper has one line that stores, or none and flushes or fences; it is
//! called from several lines; and what it stores for one of them it never stores for another, so the caller says where.
//! A function such as `insert` stores in several lines, or stores to the same place for all of its callers. Calls that
//! the compiler has inlined count like others. A function that only flushes or fences, and that one line of a helper calls,
//! is a part of that helper.
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
            Body::Pm(Event::Flush { .. } | Event::Fence(_)) => None,
            Body::File(FileOperation::SyncFile { .. } | FileOperation::SyncFileSystem) => None,
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
    /// It is also seen without a caller.
    is_outermost: bool,
}

impl Candidate {
    fn is_helper(&self) -> bool {
        let mut seen = BTreeSet::new();
        let mut offsets = self.callers.values().flatten();
        !self.is_outermost
            && self.callers.len() > 1
            && self.store_lines.len() <= 1
            && offsets.all(|offset| seen.insert(offset))
    }
}

/// The helpers of a program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Helpers {
    functions: FxHashMap<Function, u64>,
    /// Functions that flush or fence and never store, and are called from one line.
    parts: FxHashSet<Function>,
}

impl Helpers {
    /// Of what was done at call stacks; the frames are those of the program's own sources, innermost first.
    pub(crate) fn of(uses: impl IntoIterator<Item = (StackUse, Vec<StackFrame>)>) -> Self {
        let uses: Vec<(StackUse, Vec<StackFrame>)> = uses.into_iter().collect();
        let storing = uses.iter().filter(|(done, _)| done.stores > 0);
        let storing = storing.flat_map(|(_, frames)| frames.iter().filter_map(function_of));
        let storing: FxHashSet<Function> = storing.collect();
        let mut candidates: FxHashMap<Function, Candidate> = FxHashMap::default();
        for (done, frames) in uses {
            for (depth, frame) in frames.iter().enumerate() {
                let Some(function) = function_of(frame) else {
                    break;
                };
                // Who calls what stores is looked at only for the innermost function.
                if depth > 0 && (done.stores > 0 || storing.contains(&function)) {
                    break;
                }
                let known = candidates.entry(function).or_default();
                known.stores += done.stores;
                if done.stores > 0 {
                    known.store_lines.insert(frame.line);
                }
                match frames.get(depth + 1) {
                    Some(caller) => {
                        let line = (caller.file.clone(), caller.line);
                        let stored = known.callers.entry(line).or_default();
                        stored.extend(done.offsets.iter().copied());
                    }
                    None => known.is_outermost = true,
                }
            }
        }
        let is_part = |(name, it): &(&Function, &Candidate)| {
            !storing.contains(*name) && !it.is_outermost && it.callers.len() == 1
        };
        let parts = candidates.iter().filter(is_part);
        let parts = parts.map(|(name, _)| name.clone()).collect();
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

    /// How many stores a helper has executed; nothing if the function of a frame is none.
    pub(crate) fn stores_in(&self, frame: &StackFrame) -> Option<u64> {
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
        // What stores is no part of what calls it.
        let entry = vec![
            stored(0, &[("write_entry", 1), ("insert", 5), ("main", 20)]),
            stored(64, &[("insert", 6), ("main", 20)]),
            stored(128, &[("insert", 6), ("main", 21)]),
        ];
        let store = [("write_entry", 1), ("insert", 5), ("main", 20)];
        assert_eq!(count(entry, &store), 0);
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
