//! From reads to pairs: each reader with each writer once, as lines of code.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use powerfail_finding::{Evidence, Role, SourcePlace, Tried};
use powerfail_model::EventIndex;
use powerfail_trace::{Frame, Module, ModuleIndex, StackId, Trace};
use rustc_hash::FxHashMap;

use super::confirm::ShownBy;
use super::watch::{OtherValue, ReadKind, SuspectRead, WatchedPoint};
use crate::crash::Failed;
use crate::error::CheckError;
use crate::lazy::Load;
use crate::lazy::driver::Progress;
use crate::places::{CodeLine, Places, RecoveryPlaces, line_of};

/// How far the next event may be to be reached by going on.
const GAP_MAX: u64 = 1 << 14;

/// A reader and a writer.
#[derive(Debug)]
pub(super) struct Pair {
    key: FailureKey,
    pub(super) kind: ReadKind,
    pub(super) reader: SourcePlace,
    /// To whom the store is attributed.
    pub(super) writer_user: Option<StackId>,
    /// The read at the first failure point.
    pub(super) first: SuspectRead,
    /// Where it was seen, with what is needed to see it again, in the order of the trace.
    pub(super) instances: Vec<Instance>,
    /// The failure points that those of its instances stand for: recovery reads the same there as long as it sees the
    /// newest values.
    pub(super) elsewhere: Vec<EventIndex>,
    /// Where it was seen at such failure points, by round, and in the order of the trace.
    pub(super) more: Vec<Instance>,
    /// At how many failure points.
    pub(super) failure_points: u64,
    /// What was tried to make recovery fail because of it; nothing if that was not asked for.
    pub(super) tried: Option<Tried>,
    /// What shows that it matters, and how.
    pub(super) evidence: Option<Evidence>,
    pub(super) shown_by: Option<ShownBy>,
    /// The crash that shows it, and the loads of the execution that chose so.
    pub(super) failed: Option<Failed>,
    pub(super) loads: Vec<Load>,
    /// Recovery validates what it reads: no finding.
    pub(super) is_validated: bool,
}

/// A read at a failure point.
#[derive(Clone, Debug)]
pub(super) struct Instance {
    pub(super) at: EventIndex,
    /// How it is made to see something else.
    pub(super) other: OtherValue,
    /// Recovery fails there although every store is durable.
    pub(super) is_failing: bool,
    /// What it reads is not committed there.
    pub(super) is_uncommitted: bool,
}

impl Instance {
    /// Whether a run can show that it matters. Memory that was never written shows nothing where recovery fails
    /// in any case.
    pub(super) fn can_be_tried(&self) -> bool {
        match self.other {
            OtherValue::Class { .. } => true,
            OtherValue::Fill(_) => !self.is_failing,
            OtherValue::None => false,
        }
    }
}

impl Pair {
    /// Whether it is more than a warning: a run shows that it matters, or the program itself says so.
    pub(super) const fn is_error(&self) -> bool {
        self.evidence.is_some() || matches!(self.kind, ReadKind::Uncommitted | ReadKind::Stale)
    }

    /// It was seen once more, at a failure point that stands for others.
    fn add(&mut self, instance: Instance, covered: &[EventIndex]) {
        match self.instances.last_mut() {
            Some(last) if last.at == instance.at => {
                if let (OtherValue::Fill(known), OtherValue::Fill(more)) =
                    (&mut last.other, &instance.other)
                {
                    known.extend(more);
                    return;
                }
            }
            _ => {
                self.failure_points += 1 + covered.len() as u64;
                self.elsewhere.extend(covered);
            }
        }
        self.instances.push(instance);
    }

    /// Whether a run can show that it matters.
    pub(super) fn can_be_tried(&self) -> bool {
        self.instances.iter().any(Instance::can_be_tried)
    }
}

/// What makes suspect reads the same.
type FailureKey = (ReadKind, CodeLine, Option<CodeLine>);

/// All pairs, in the order in which they were first seen in the trace.
pub(super) struct Pairs {
    pub(super) all: Vec<Pair>,
}

impl Pairs {
    pub(super) fn of(
        trace: &Trace,
        progress: &Progress<WatchedPoint>,
        places: &mut Places<'_>,
    ) -> Result<Self, CheckError> {
        let mut watched: Vec<&WatchedPoint> = progress.results.iter().collect();
        watched.sort_by_key(|watched| watched.at);
        let mut readers = Readers::of(&watched, places);
        let mut writers = Writers::of(trace, &watched)?;
        let mut numbers: BTreeMap<FailureKey, usize> = BTreeMap::new();
        let mut all: Vec<Pair> = Vec::new();
        for watched in watched {
            let covered = progress.covered.get(&watched.at);
            let covered = covered.map_or(&[][..], Vec::as_slice);
            for suspect in &watched.suspect_reads {
                let Some((reader_line, reader)) = readers.place(suspect) else {
                    continue;
                };
                let Some((writer_line, user)) = writers.line(suspect, places)? else {
                    continue;
                };
                let instance = Instance {
                    at: watched.at,
                    other: suspect.other.clone(),
                    is_failing: watched.failed.is_some(),
                    is_uncommitted: suspect.is_uncommitted,
                };
                let key = (suspect.kind, reader_line, writer_line);
                if let Some(number) = numbers.get(&key) {
                    all[*number].add(instance, covered);
                    continue;
                }
                numbers.insert(key.clone(), all.len());
                all.push(Pair {
                    key,
                    kind: suspect.kind,
                    reader,
                    writer_user: user,
                    first: suspect.clone(),
                    instances: vec![instance],
                    elsewhere: covered.to_vec(),
                    more: Vec::new(),
                    failure_points: 1 + covered.len() as u64,
                    tried: None,
                    evidence: None,
                    shown_by: None,
                    failed: None,
                    loads: Vec::new(),
                    is_validated: false,
                });
            }
        }
        Ok(Self {
            all: said_once(all, &numbers),
        })
    }

    /// Whether a race says nothing that is not said about the same store without it: no run shows that it matters, and
    /// wherever recovery reads the store before it is durable it is not committed either, which is an error by itself.
    pub(super) fn is_said(&self, pair: &Pair) -> bool {
        let is_race = matches!(pair.kind, ReadKind::Race | ReadKind::Strict);
        let mut instances = pair.instances.iter().chain(&pair.more);
        is_race
            && pair.evidence.is_none()
            && instances.all(|it| it.is_uncommitted)
            && self
                .all
                .iter()
                .any(|other| other.kind == ReadKind::Uncommitted && other.key.2 == pair.key.2)
    }

    /// Adds what was seen where recovery was watched again, at failure points for which others stood. A pair can be new:
    /// lines have the same contents there, but not always by the same stores.
    pub(super) fn join(&mut self, again: Self) {
        for mut other in again.all {
            let (kind, reader, writer) = &other.key;
            let is_said = *kind == ReadKind::Strict && {
                let better = (ReadKind::Race, reader.clone(), writer.clone());
                self.all.iter().any(|pair| pair.key == better)
            };
            if is_said {
                continue;
            }
            let known = self.all.iter_mut().find(|pair| pair.key == other.key);
            let Some(known) = known else {
                other.more.clone_from(&other.instances);
                other.tried = Some(Tried::default());
                self.all.push(other);
                continue;
            };
            let moments: BTreeSet<EventIndex> = other.instances.iter().map(|it| it.at).collect();
            let is_counted = |at: &&EventIndex| known.elsewhere.contains(at);
            let counted = moments.iter().filter(is_counted).count();
            known.failure_points += (moments.len() - counted) as u64;
            known.more.append(&mut other.instances);
        }
    }
}

/// Leaves out what another pair of the same lines says better: what can see several values is not said again by the
/// strict rule.
fn said_once(all: Vec<Pair>, numbers: &BTreeMap<FailureKey, usize>) -> Vec<Pair> {
    let is_said = |(kind, reader, writer): &FailureKey| {
        *kind == ReadKind::Strict
            && numbers.contains_key(&(ReadKind::Race, reader.clone(), writer.clone()))
    };
    let said: BTreeSet<usize> = numbers
        .iter()
        .filter(|(key, _)| is_said(key))
        .map(|(_, number)| *number)
        .collect();
    let numbered = all.into_iter().enumerate();
    let kept = numbered.filter(|(number, _)| !said.contains(number));
    kept.map(|(_, pair)| pair).collect()
}

/// Who reads. Modules of different processes are the same by their files.
struct Readers {
    modules: Vec<Module>,
    places: RecoveryPlaces,
    known: FxHashMap<Vec<Frame>, Option<(CodeLine, SourcePlace)>>,
}

impl Readers {
    fn of(watched: &[&WatchedPoint], places: &Places<'_>) -> Self {
        let mut modules: Vec<Module> = Vec::new();
        let mut last = None;
        for suspect in watched.iter().flat_map(|it| &it.suspect_reads) {
            let Some(these) = &suspect.modules else {
                continue;
            };
            if last.is_some_and(|last| std::ptr::eq(last, these.as_ptr())) {
                continue;
            }
            last = Some(these.as_ptr());
            for module in these.iter() {
                if number_of(&modules, module).is_none() {
                    modules.push(module.clone());
                }
            }
        }
        Self {
            places: RecoveryPlaces::new(modules.clone(), places.trust()),
            modules,
            known: FxHashMap::default(),
        }
    }

    /// The line of a reader, and its place; nothing if it is a trusted library's own business.
    fn place(&mut self, suspect: &SuspectRead) -> Option<(CodeLine, SourcePlace)> {
        let frames: Vec<Frame> = suspect
            .frames
            .iter()
            .map(|frame| match (frame, &suspect.modules) {
                (Frame::Module { module, offset }, Some(modules)) => {
                    let known = modules.get(module.0 as usize);
                    let number = known.and_then(|it| number_of(&self.modules, it));
                    Frame::Module {
                        module: ModuleIndex(number.unwrap_or(u32::MAX)),
                        offset: *offset,
                    }
                }
                (frame, _) => *frame,
            })
            .collect();
        let places = &mut self.places;
        let known = self.known.entry(frames);
        let place = known.or_insert_with_key(|frames| {
            let place = places.of_load(frames)?;
            Some((line_of(&place), place))
        });
        place.clone()
    }
}

fn number_of(modules: &[Module], module: &Module) -> Option<u32> {
    let is_it = |known: &Module| known.path == module.path && known.build_id == module.build_id;
    let number = modules.iter().position(is_it)?;
    u32::try_from(number).ok()
}

/// Who wrote.
struct Writers {
    stacks: FxHashMap<EventIndex, StackId>,
    lines: FxHashMap<StackId, Option<(CodeLine, StackId)>>,
}

impl Writers {
    /// Finds the call stacks of all writers in one pass.
    fn of(trace: &Trace, watched: &[&WatchedPoint]) -> Result<Self, CheckError> {
        let suspect_reads = watched.iter().flat_map(|it| &it.suspect_reads);
        let mut events: Vec<EventIndex> = suspect_reads.filter_map(|it| it.writer).collect();
        events.sort_unstable();
        events.dedup();
        let mut stacks = FxHashMap::default();
        let mut events = events.into_iter().peekable();
        while let Some(&first) = events.peek() {
            let mut records = trace.records_from(first);
            let mut last = first;
            while let Some(wanted) = events.next_if(|next| next.0 - last.0 <= GAP_MAX) {
                last = wanted;
                while let Some(record) = records.next_record()? {
                    if record.index == wanted {
                        stacks.insert(wanted, record.stack);
                        break;
                    }
                }
            }
        }
        Ok(Self {
            stacks,
            lines: FxHashMap::default(),
        })
    }

    /// The line of a writer, and the frame to which the store is attributed; nothing if it is a trusted
    /// library's own business.
    #[expect(clippy::type_complexity, reason = "two things that are known together")]
    fn line(
        &mut self,
        suspect: &SuspectRead,
        places: &mut Places<'_>,
    ) -> Result<Option<(Option<CodeLine>, Option<StackId>)>, CheckError> {
        let Some(event) = suspect.writer else {
            return Ok(Some((None, None)));
        };
        let stack = self.stacks.get(&event).copied().unwrap_or(StackId::NONE);
        let known = match self.lines.entry(stack) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(unknown) => {
                // An allocation belongs to the user who asked for it, also if a library does it.
                let is_allocation = suspect.kind == ReadKind::Uninitialised;
                let user = places.user_of(stack);
                let line = match user.or(is_allocation.then_some(stack)) {
                    Some(user) => {
                        let place = places.of_event_by(Role::Store, event, Some(user))?;
                        Some((line_of(&place), user))
                    }
                    None => None,
                };
                unknown.insert(line).clone()
            }
        };
        Ok(known.map(|(line, user)| (Some(line), Some(user))))
    }
}
