//! From a minimal failure to a finding: the lost operation, the one that survives, and the sync that was missing.

use std::collections::BTreeSet;

use powerfail_finding::{
    Action, Change, Code, Evidence, FailurePoint, FileSystemResult, Finding, Fix, LostFileLength,
    LostFilePage, Operation as Inserted, Role, SourcePlace, TreeCrash,
};
use powerfail_image::NodeKey;
use powerfail_model::EventIndex;
use powerfail_model::files::{
    CrashState, Fate, FileSystem, Frontier, LostPage, NodeId, Operation, OperationIndex,
};

use super::engine::TreeEngine;
use super::minimal::Minimal;
use super::prefix::symptom_words;
use super::remedy::{Insertion, Moment, Remedy};
use super::runner::TreeTrial;
use super::words::{both_in_sentence, directories, in_sentence, noun};
use crate::error::CheckError;
use crate::places::{Places, hex_prefix};
use crate::symptom::Symptom;

/// How many states of another file system are tried, to see whether recovery fails there.
const TRIED_ELSEWHERE: usize = 4;

/// What a finding needs besides where recovery was.
pub(super) struct FinishedPlaces {
    pub(super) places: Vec<SourcePlace>,
    pub(super) message: String,
    pub(super) evidence: Evidence,
    pub(super) crash: TreeCrash,
    pub(super) code: Code,
}

/// An operation that is lost, and a later write of which a part survives, as places of the list.
struct Overtaken {
    lost: usize,
    survivor: usize,
    /// Whether a part of the lost one survives as well.
    is_torn: bool,
}

/// The state that has lost what either of two has, which are about different files. Not all of them are possible.
fn union(one: &CrashState, other: &CrashState) -> CrashState {
    let lost = one.lost.iter().chain(&other.lost).copied();
    let lengths = one.lengths.iter().chain(&other.lengths).copied();
    let pages = one.pages.iter().chain(&other.pages).copied();
    let mut both = CrashState {
        lost: lost.collect::<BTreeSet<_>>().into_iter().collect(),
        lengths: lengths.collect(),
        pages: pages.collect(),
    };
    both.lengths.sort_by_key(|it| it.node);
    both.lengths.dedup();
    both.pages.sort_by_key(|it| (it.node, it.page));
    both.pages.dedup();
    both
}

/// Before which operation a sync of what was lost would have helped.
fn first_sync_place(minimal: &Minimal, lost: usize, survivor: Option<usize>) -> usize {
    survivor.filter(|it| *it > lost).unwrap_or(minimal.place)
}

/// If the same line makes two operations: the call of the first one that the second one does not share.
fn call_that_differs(one: &SourcePlace, other: &SourcePlace) -> Option<String> {
    fn lines(place: &SourcePlace) -> Vec<(&String, u32)> {
        let frames = place.stack.iter();
        let lines = frames.filter_map(|it| Some((it.file.as_ref()?, it.line?)));
        // Frames before that of the place are those of libraries.
        lines
            .skip_while(|(file, line)| {
                (Some(*file), Some(*line)) != (place.file.as_ref(), place.line)
            })
            .collect()
    }
    let is_same_line = one.file.is_some() && (&one.file, one.line) == (&other.file, other.line);
    let (calls, others) = (lines(one), lines(other));
    let mut pairs = calls.iter().zip(&others).filter(|_| is_same_line);
    let ((file, line), _) = pairs.find(|(one, other)| one != other)?;
    let name = file.rsplit('/').next().unwrap_or(file);
    Some(format!("{name}:{line}"))
}

impl TreeEngine<'_, '_> {
    /// The place in the sources of the operation at a place of the list.
    pub(super) fn place_of(
        &mut self,
        role: Role,
        at: usize,
        places: &mut Places<'_>,
    ) -> Result<SourcePlace, CheckError> {
        let Some(traced) = self.recording.operations.get(at) else {
            return Ok(SourcePlace::new(role));
        };
        let mut place = places.of_event(role, EventIndex(traced.index.0))?;
        place.operation = Some(noun(self.recording, at));
        let path = traced
            .operation
            .node()
            .and_then(|node| self.recording.path_of(node, at));
        place.pool = path.map(|path| path.display().to_string());
        place.pool_offset = None;
        if let Operation::Write { range, .. } = &traced.operation {
            place.pool_offset = Some(range.offset);
            place.len_bytes = Some(range.len_bytes);
            place.bytes = Some(hex_prefix(&traced.bytes).trim_end_matches("...").to_owned());
        }
        Ok(place)
    }

    /// The finding of a minimal failure, and what would have prevented it. Where else it shows is found out if it is new.
    pub(super) fn finding(
        &mut self,
        minimal: &Minimal,
        is_new: bool,
        places: &mut Places<'_>,
    ) -> Result<(Finding, Option<Remedy>), CheckError> {
        let frontier = self.frontier(self.file_system, minimal.place);
        let fates = frontier.fates(&minimal.state);
        let torn = fates.iter().find(|(_, fate)| *fate == Fate::Torn);
        // Where names are lost, what is lost besides could not be had without them.
        let is_name = |index: &OperationIndex| minimal.state.lost.contains(index);
        let all_lost = || fates.iter().filter(|(_, fate)| *fate == Fate::Lost);
        let lost = torn
            .or_else(|| all_lost().find(|(index, _)| is_name(index)))
            .or_else(|| all_lost().next());
        let overtaken = self.overtaken(minimal, &fates);
        let (lost, survivor) = match &overtaken {
            Some(it) => (Some(it.lost), Some(it.survivor)),
            None => {
                let lost = lost.and_then(|(index, _)| self.place_in_list(*index));
                (lost, self.survivor(minimal, lost, &fates))
            }
        };
        let keeps_length = survivor.is_none() && self.keeps_length(minimal, lost);
        let is_torn = match &overtaken {
            Some(it) => it.is_torn,
            None => torn.is_some() || keeps_length,
        };
        let fix = lost.and_then(|lost| self.preventing(minimal, lost, survivor));
        let is_promised = self.is_promised(minimal, lost);
        // A sync between a write and what depends on it keeps both whole: then that sync is what is missing.
        let is_atomicity = is_torn && (survivor.is_none() || fix.is_none());
        let mut found = Vec::new();
        if let Some(lost) = lost {
            found.push(self.place_of(Role::Store, lost, places)?);
        }
        if let Some(survivor) = survivor {
            let mut place = self.place_of(Role::Survivor, survivor, places)?;
            if overtaken.is_some() {
                place.operation = place.operation.map(|it| format!("part of the {it}"));
            }
            found.push(place);
        }
        if minimal.place < self.recording.len() {
            found.push(self.place_of(Role::Failure, minimal.place, places)?);
        }
        let crash = self.crash_of(minimal, is_new, lost, survivor)?;
        let evidence = Evidence {
            failure: FailurePoint {
                event: self.event_at(minimal.place).0,
                lost_lines: Vec::new(),
                again: None,
                filled: Vec::new(),
            },
            recovery: minimal.symptom.outcome.clone(),
            last_good_event: None,
            next_good_event: None,
            trace: None,
            difference: minimal.symptom.difference.clone(),
            torn: is_torn,
            choices: Vec::new(),
        };
        let message = if keeps_length {
            let does = symptom_words(&minimal.symptom);
            let lost = in_sentence(self.recording, lost.unwrap_or_default());
            format!("{does} if the data of {lost} is lost and the length that it made survives")
        } else if let Some(it) = &overtaken {
            let does = symptom_words(&minimal.symptom);
            let (lost, survivor) = both_in_sentence(self.recording, (it.lost, it.survivor));
            let part = if it.is_torn { "a part of " } else { "" };
            format!("{does} if {part}{lost} is lost and a part of {survivor} survives")
        } else {
            self.message(minimal, lost, survivor, is_torn)
        };
        let trial = TreeTrial {
            place: minimal.place,
            difference: frontier.difference(&minimal.state),
        };
        let is_torn_record = is_atomicity && !is_promised;
        let code = self.code_of(&minimal.symptom, lost, survivor, is_torn_record);
        let finished = FinishedPlaces {
            places: found,
            message,
            evidence,
            crash,
            code,
        };
        let mut finding = self.finish(finished, &trial, &minimal.symptom, places)?;
        let mut remedy = None;
        if let Some(lost) = lost {
            let before = first_sync_place(minimal, lost, survivor);
            if is_torn_record && before <= lost + 1 {
                finding.explain(self.torn_words(lost));
            } else if let Some(fix) = fix {
                self.advise(&mut finding, minimal, (lost, survivor), &fix, places)?;
                let moment = match survivor.filter(|it| *it > lost) {
                    Some(survivor) => Moment::Before(survivor),
                    None => Moment::After(lost),
                };
                remedy = self.remedy(&fix, moment, minimal, places)?;
            }
        }
        Ok((finding, remedy))
    }

    /// Completes a finding with where recovery was.
    pub(super) fn finish(
        &mut self,
        finished: FinishedPlaces,
        trial: &TreeTrial,
        symptom: &Symptom,
        places: &mut Places<'_>,
    ) -> Result<Finding, CheckError> {
        let backtrace = if symptom.code == Code::RecoveryCrashes {
            let observer = &mut *self.observer;
            self.runner
                .backtrace(trial, &|| observer.is_interrupted())?
        } else {
            symptom.backtrace.clone()
        };
        let mut found = finished.places;
        found.extend(backtrace.map(|it| places.of_backtrace(Role::Recovery, &it)));
        let mut finding = Finding {
            evidence: Some(finished.evidence),
            tree: Some(finished.crash),
            ..Finding::new(finished.code, finished.message, found)
        };
        if let Some(again) = &self.again {
            finding
                .message
                .push_str(" in a power failure during recovery");
            finding.explain(format!(
                "the power failed before {} of the workload, and again while recovery ran",
                again.first
            ));
            if let Some(evidence) = &mut finding.evidence {
                evidence.trace = Some(again.trace.clone());
            }
        }
        Ok(finding)
    }

    /// The kind of bug, by the operations: how recovery fails because of it is in the evidence.
    fn code_of(
        &self,
        symptom: &Symptom,
        lost: Option<usize>,
        survivor: Option<usize>,
        is_torn_record: bool,
    ) -> Code {
        let operation = |place: usize| self.recording.operations.get(place).map(|it| &it.operation);
        let Some(lost) = lost.and_then(operation) else {
            return symptom.code;
        };
        let survivor = survivor.and_then(operation);
        if is_torn_record {
            return Code::WriteTorn;
        }
        let is_write = matches!(lost, Operation::Write { .. });
        match survivor {
            Some(Operation::Rename { node, .. } | Operation::Link { node, .. })
                if lost.node() == Some(*node) && !lost.is_namespace() =>
            {
                Code::NamedBeforeSynced
            }
            Some(Operation::Exchange {
                first_node,
                second_node,
                ..
            }) if !lost.is_namespace()
                && [*first_node, *second_node].map(Some).contains(&lost.node()) =>
            {
                Code::NamedBeforeSynced
            }
            Some(
                Operation::Unlink { .. }
                | Operation::Truncate { .. }
                | Operation::PunchHole { .. }
                | Operation::CollapseRange { .. },
            ) => Code::RemovedBeforeSynced,
            Some(Operation::Write { .. }) if is_write => Code::WritesReordered,
            None if lost.is_namespace() => Code::DirectoryNotSynced,
            None if is_write => Code::WriteNotSynced,
            _ => symptom.code,
        }
    }

    /// Where an operation is lost and a part of a later write to another file survives, recovery fails because of both: the
    /// earlier one had to be durable first. A sync between the two must make the state impossible.
    fn overtaken(&self, minimal: &Minimal, fates: &[(OperationIndex, Fate)]) -> Option<Overtaken> {
        let mut gone = fates.iter().filter(|(_, fate)| *fate != Fate::Survived);
        let (first, fate) = gone.clone().min_by_key(|(index, _)| *index)?;
        let lost = self.place_in_list(*first)?;
        if self.is_promised(minimal, Some(lost)) {
            return None;
        }
        let file = self.recording.operations[lost].operation.node();
        let later = gone.find_map(|(index, fate)| {
            let place = self.place_in_list(*index)?;
            let is_later = *fate == Fate::Torn && place > lost;
            let other = self.recording.operations[place].operation.node();
            (is_later && other != file).then_some(place)
        })?;
        self.preventing(minimal, lost, Some(later))?;
        Some(Overtaken {
            lost,
            survivor: later,
            is_torn: *fate == Fate::Torn,
        })
    }

    /// Whether what was acknowledged is gone because an operation before that was not durable: losing it is wrong from the next
    /// acknowledgement on. If it is wrong only later, what was acknowledged was durable elsewhere until then, as in a log. If it is
    /// wrong before that, something older is gone, which was durable elsewhere as well.
    fn is_promised(&self, minimal: &Minimal, lost: Option<usize>) -> bool {
        let lost = lost.and_then(|lost| self.recording.operations.get(lost));
        let Some(lost) = lost.filter(|_| minimal.symptom.code == Code::AcknowledgedLost) else {
            return false;
        };
        let ends = self.contents.operations().map(|it| it.end);
        let next = ends.filter(|end| end.0 > lost.index.0).min();
        next.is_some_and(|end| minimal.place == self.recording.place_at(end))
    }

    fn place_in_list(&self, index: OperationIndex) -> Option<usize> {
        let operations = &self.recording.operations;
        operations.binary_search_by_key(&index, |it| it.index).ok()
    }

    /// The operation that makes the loss bad: the one that gave a file its name before its data was durable, or else the
    /// last one before the failure that changes something and survives.
    fn survivor(
        &self,
        minimal: &Minimal,
        lost: Option<usize>,
        fates: &[(OperationIndex, Fate)],
    ) -> Option<usize> {
        // What was promised is gone, whatever survives.
        if self.is_promised(minimal, lost) {
            return None;
        }
        let lost = lost?;
        let frontier = self.frontier(self.file_system, minimal.place);
        let difference = frontier.difference(&minimal.state);
        let image = self.recording.image(minimal.place, &difference);
        // What was done to a file that has no name after the crash cannot be seen.
        let is_seen = |operation: &Operation| {
            let file = operation.file();
            file.is_none_or(|it| image.files.contains_key(&NodeKey(it.0.into())))
        };
        let changes = |place: &usize| {
            let it = &self.recording.operations[*place];
            let fate = fates.iter().find(|(index, _)| *index == it.index);
            !it.operation.is_sync()
                && !matches!(it.operation, Operation::Close { .. })
                && fate.is_none_or(|(_, fate)| *fate == Fate::Survived)
                && is_seen(&it.operation)
        };
        let operation = |place: usize| &self.recording.operations[place].operation;
        let file = operation(lost)
            .node()
            .filter(|_| !operation(lost).is_namespace());
        let names = |place: &usize| match operation(*place) {
            Operation::Rename { node, .. } | Operation::Link { node, .. } => Some(*node) == file,
            Operation::Exchange {
                first_node,
                second_node,
                ..
            } => [*first_node, *second_node].map(Some).contains(&file),
            _ => false,
        };
        let survivors = || (lost + 1..minimal.place).rev().filter(changes);
        survivors().find(names).or_else(|| survivors().next())
    }

    /// What to do about a write of which a part survives.
    fn torn_words(&self, lost: usize) -> String {
        let remedy = if self.overwrites(lost) {
            "the old content is gone as well, so that a copy of the old or of the new content has to be durable before it is \
             overwritten, in a journal or in a second file"
        } else {
            "recovery has to recognise a record of which a part is missing, by a checksum or a length that is written later"
        };
        format!("no fsync makes one write atomic: {remedy}")
    }

    /// Whether a write replaces content that its file had before.
    fn overwrites(&self, place: usize) -> bool {
        let Operation::Write { node, range } = self.recording.operations[place].operation else {
            return false;
        };
        let before = self.recording.newest(place);
        let content = before.nodes.get(&node).map(|it| &it.content);
        content.is_some_and(|it| range.offset < it.len_bytes())
    }

    /// Whether a write has made its file longer, and a crash keeps the length and loses the data: a part of it survives.
    fn keeps_length(&self, minimal: &Minimal, lost: Option<usize>) -> bool {
        let Some(lost) = lost else { return false };
        let Operation::Write { node, range } = self.recording.operations[lost].operation else {
            return false;
        };
        let before = self.recording.newest(lost);
        let len_bytes = before.nodes.get(&node).map(|it| it.content.len_bytes());
        !self.is_promised(minimal, Some(lost))
            && len_bytes.is_some_and(|it| it < range.end())
            && !minimal.state.lengths.iter().any(|it| it.node == node)
    }

    fn message(
        &self,
        minimal: &Minimal,
        lost: Option<usize>,
        survivor: Option<usize>,
        is_torn: bool,
    ) -> String {
        let does = symptom_words(&minimal.symptom);
        let is_promised = self.is_promised(minimal, lost);
        let Some(lost) = lost else {
            return format!("{does} after a crash");
        };
        let (lost, survivor) = match survivor {
            Some(survivor) => {
                let (lost, survivor) = both_in_sentence(self.recording, (lost, survivor));
                (lost, Some(survivor))
            }
            None => (in_sentence(self.recording, lost), None),
        };
        match (survivor, is_torn) {
            _ if is_promised => {
                format!("{does}: {lost} is not durable when it is acknowledged")
            }
            (None, true) => format!("{does} if only a part of {lost} survives a crash"),
            (Some(survivor), true) => {
                format!("{does} if a part of {lost} is lost and {survivor} survives")
            }
            (Some(survivor), false) => {
                format!("{does} if {lost} is lost and {survivor} survives")
            }
            (None, false) => format!("{does} if {lost} is lost"),
        }
    }

    /// The crash, and the file systems on which recovery fails so.
    fn crash_of(
        &mut self,
        minimal: &Minimal,
        is_new: bool,
        lost: Option<usize>,
        survivor: Option<usize>,
    ) -> Result<TreeCrash, CheckError> {
        let state = &minimal.state;
        let linux = self.frontier(FileSystem::Linux, minimal.place);
        let mut shows_on = Vec::new();
        for (file_system, permits) in linux.permitted_by(state) {
            let shows = permits || is_new && self.fails_on(file_system, minimal, lost, survivor)?;
            shows_on.push(FileSystemResult {
                file_system: file_system.to_string(),
                shows,
            });
        }
        Ok(TreeCrash {
            file_system: self.file_system.to_string(),
            shows_on,
            lost: state.lost.iter().map(|it| it.0).collect(),
            lengths: { state.lengths.iter() }
                .map(|it| LostFileLength {
                    node: it.node.0,
                    first_lost: it.first_lost.0,
                    len_bytes: it.len_bytes,
                })
                .collect(),
            pages: { state.pages.iter() }
                .map(|it| LostFilePage {
                    node: it.node.0,
                    page: it.page.0,
                    first_lost: { it.first_lost.iter() }
                        .map(|it| (*it != LostPage::NOTHING).then_some(it.0))
                        .collect(),
                })
                .collect(),
        })
    }

    /// Whether recovery fails on a file system that does not permit the very state, because of the same loss.
    fn fails_on(
        &mut self,
        file_system: FileSystem,
        minimal: &Minimal,
        lost: Option<usize>,
        survivor: Option<usize>,
    ) -> Result<bool, CheckError> {
        let Some(lost) = lost else { return Ok(false) };
        let frontier = self.frontier(file_system, minimal.place);
        let losing = &self.recording.operations[lost];
        let mut states = frontier.losing(losing.index, &losing.operation);
        states.extend(frontier.tearing(losing.index, &losing.operation));
        let fate_in = |frontier: &Frontier, state: &CrashState, index: OperationIndex| {
            let fates = frontier.fates(state);
            fates.iter().find(|(it, _)| *it == index).map(|it| it.1)
        };
        let mut is_part = false;
        if let Some(survivor) = survivor {
            let keeping = &self.recording.operations[survivor];
            let found = self.frontier(self.file_system, minimal.place);
            is_part = fate_in(&found, &minimal.state, keeping.index) == Some(Fate::Torn);
            if is_part {
                let torn = frontier.tearing(keeping.index, &keeping.operation);
                let with_torn = |one: CrashState| {
                    let both = torn.iter().map(|it| union(&one, it));
                    both.collect::<Vec<_>>()
                };
                states = states.into_iter().flat_map(with_torn).collect();
                states.retain(|it| frontier.permits(it));
            } else {
                states.extend(frontier.keeping(keeping.index, &keeping.operation));
            }
        }
        let has_survivor = |frontier: &Frontier, state: &CrashState| {
            let kept = survivor.map(|it| self.recording.operations[it].index);
            kept.is_none_or(|kept| match fate_in(frontier, state, kept) {
                None | Some(Fate::Survived) => true,
                Some(Fate::Torn) => is_part,
                Some(Fate::Lost) => false,
            }) && matches!(
                fate_in(frontier, state, losing.index),
                Some(Fate::Lost | Fate::Torn)
            )
        };
        states.retain(|state| has_survivor(&frontier, state));
        for state in states.into_iter().take(TRIED_ELSEWHERE) {
            let judged = self.judge_state(&frontier, minimal.place, &state)?;
            if judged.is_some_and(|it| it.code == minimal.symptom.code) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The syncs that would have prevented a failure, if some would: they are inserted into the operations, and the
    /// state must be impossible then.
    fn preventing(
        &self,
        minimal: &Minimal,
        lost: usize,
        survivor: Option<usize>,
    ) -> Option<Vec<Insertion>> {
        let operation = &self.recording.operations[lost].operation;
        let before = first_sync_place(minimal, lost, survivor);
        let sync = |node: NodeId, is_directory: bool| Insertion {
            node,
            before,
            is_directory,
        };
        let mut candidates: Vec<Vec<Insertion>> = Vec::new();
        let directories = directories(operation);
        if operation.is_namespace() {
            if let Some(directory) = directories.first() {
                candidates.push(vec![sync(*directory, true)]);
            }
            candidates.push(directories.iter().map(|it| sync(*it, true)).collect());
        }
        if let Some(file) = operation.node() {
            candidates.push(vec![sync(file, false)]);
            if let Some(directory) = directories.first() {
                candidates.push(vec![sync(file, false), sync(*directory, true)]);
            } else if let Some(parent) = self.parent_of(file, before) {
                candidates.push(vec![sync(file, false), sync(parent, true)]);
            }
        }
        candidates
            .into_iter()
            .find(|it| !it.is_empty() && self.prevents(it, minimal))
    }

    /// Says which syncs would have prevented a failure.
    fn advise(
        &mut self,
        finding: &mut Finding,
        minimal: &Minimal,
        (lost, survivor): (usize, Option<usize>),
        fix: &[Insertion],
        places: &mut Places<'_>,
    ) -> Result<(), CheckError> {
        let before = first_sync_place(minimal, lost, survivor);
        let mut changes = Vec::new();
        let mut words = Vec::new();
        let at = self.place_of(Role::Store, before.min(self.recording.len()), places)?;
        for insertion in fix {
            let path = self.recording.path_of(insertion.node, insertion.before);
            let name = path.map_or_else(|| "it".to_owned(), |path| self.recording.name_of(&path));
            words.push(if insertion.is_directory {
                format!("the directory {name}")
            } else {
                name
            });
            let event = self.event_at(insertion.before).0;
            changes.push(Change {
                action: Action::Insert,
                operation: if insertion.is_directory {
                    Inserted::SyncDirectory
                } else {
                    Inserted::SyncFile
                },
                event: event.saturating_sub(1),
                file: at.file.clone(),
                line: at.line,
                pool: None,
                pool_offset: None,
                len_bytes: None,
            });
        }
        let moment = match survivor {
            _ if self.is_promised(minimal, Some(lost)) => {
                "before the operation is acknowledged".to_owned()
            }
            Some(survivor) => {
                let (_, survivor) = both_in_sentence(self.recording, (lost, survivor));
                let line = at.file_and_line();
                let line = line.map_or_else(String::new, |line| format!(" at {line}"));
                let lost = self.place_of(Role::Store, lost, places)?;
                let call = call_that_differs(&at, &lost);
                let call = call.map_or_else(String::new, |line| format!(", called at {line}"));
                format!("before {survivor}{line}{call}")
            }
            None => format!("after {}", in_sentence(self.recording, lost)),
        };
        finding.suggestion = Some(format!("call fsync on {} {moment}", words.join(" and on ")));
        finding.fix = Some(Fix::verified(changes));
        Ok(())
    }

    /// The directory in which a file has its name.
    fn parent_of(&self, node: NodeId, place: usize) -> Option<NodeId> {
        let nodes = self.recording.newest(place);
        nodes.name_of(node).map(|entry| entry.directory)
    }
}
