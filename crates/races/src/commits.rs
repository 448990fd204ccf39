//! Commit variables: what they decide about, and when they were stored.

use powerfail_model::{EventIndex, LineId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::cells::{NEVER, Needs, Span, Time};
use crate::options::CommitError;
use powerfail_lint::ranges::PoolRange;
use powerfail_lint::ranges::{Cell, RangeMap};

/// A variable, by its place among those that are known.
pub(crate) type Variable = u32;

/// Whether bytes that are durable are committed: figure 10 of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consistency {
    Consistent,
    /// See [`Judgement::Uncommitted`](super::Judgement::Uncommitted).
    Uncommitted(Option<EventIndex>),
    /// See [`Judgement::Stale`](super::Judgement::Stale).
    Stale([EventIndex; 2]),
}

/// What a new variable or range changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Nothing,
    /// Who decides about these bytes.
    Of(PoolRange),
    /// Who decides about all bytes.
    Everything,
}

/// A store to a commit variable, or several without an ordering point between them.
#[derive(Clone, Debug)]
struct CommitWrite {
    /// Its first store.
    event: EventIndex,
    /// Its last store so far.
    last_event: EventIndex,
    stored: Time,
    /// The first moment at which all of it was durable.
    durable: Time,
    /// All of its stores were durable as soon as they were made.
    at_once: bool,
    /// The lines in which it is not durable, and the stores.
    pending: Vec<(LineId, EventIndex)>,
}

impl CommitWrite {
    /// Whether stored bytes were surely durable when it was made.
    fn follows(&self, span: &Span) -> bool {
        span.durable <= self.stored || span.needs == Needs::Nothing && span.writer < self.event
    }

    /// Whether all of it was surely durable when bytes were stored.
    fn precedes(&self, span: &Span) -> bool {
        self.durable <= span.stored || self.at_once && self.last_event < span.writer
    }
}

#[derive(Clone, Debug)]
struct State {
    at: PoolRange,
    last: Option<CommitWrite>,
    before_last: Option<CommitWrite>,
    /// Lines with stores since the last commit write.
    fresh: FxHashSet<Cell>,
    /// Lines with stores between the last two.
    current: FxHashSet<Cell>,
}

/// All commit variables.
#[derive(Clone, Debug, Default)]
pub(crate) struct Commits {
    states: Vec<State>,
    /// The bytes of the variables themselves.
    own: RangeMap<Variable>,
    /// The bytes that they decide about.
    decided: RangeMap<Variable>,
    /// Variables with commit writes that are not durable, by line.
    pending: FxHashMap<LineId, Vec<Variable>>,
}

impl Commits {
    pub(crate) fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    /// Notes a variable, and bytes that it decides about. Both may be known already.
    pub(crate) fn register(
        &mut self,
        at: PoolRange,
        range: Option<PoolRange>,
    ) -> Result<Change, CommitError> {
        let at = PoolRange {
            len: at.len.max(1),
            ..at
        };
        let had_everything = self.decides_about_everything();
        let (variable, grown) = self.variable(at)?;
        let mut change = if grown {
            Change::Of(at)
        } else {
            Change::Nothing
        };
        if let Some(range) = range
            && self.add_range(variable, range)?
        {
            change = match change {
                Change::Nothing => Change::Of(range),
                _ => Change::Everything,
            };
        }
        if had_everything != self.decides_about_everything() {
            change = Change::Everything;
        }
        Ok(change)
    }

    /// The variable at `at`, and whether that is news.
    fn variable(&mut self, at: PoolRange) -> Result<(Variable, bool), CommitError> {
        let other = self
            .own
            .overlapping(at)
            .find(|(_, variable)| self.state(*variable).at.offset != at.offset);
        if let Some((overlap, variable)) = other {
            let variables = [self.state(variable).at, at];
            return Err(CommitError::new(variables, common(overlap, at)));
        }
        let known = self.own.overlapping(at).next();
        if let Some((_, variable)) = known {
            let state = &mut self.states[variable as usize];
            let grown = at.len > state.at.len;
            if grown {
                state.at = at;
                self.own.insert(at, variable);
            }
            return Ok((variable, grown));
        }
        let variable = Variable::try_from(self.states.len()).unwrap_or(Variable::MAX);
        self.states.push(State {
            at,
            last: None,
            before_last: None,
            fresh: FxHashSet::default(),
            current: FxHashSet::default(),
        });
        self.own.insert(at, variable);
        Ok((variable, true))
    }

    /// Whether a range is news.
    fn add_range(&mut self, variable: Variable, range: PoolRange) -> Result<bool, CommitError> {
        let mut known = 0;
        for (decided, owner) in self.decided.overlapping(range) {
            let overlap = common(decided, range);
            if owner != variable {
                let variables = [owner, variable].map(|variable| self.state(variable).at);
                return Err(CommitError::new(variables, overlap));
            }
            known += overlap.len;
        }
        let is_news = known < range.len;
        if is_news {
            self.decided.insert(range, variable);
        }
        Ok(is_news)
    }

    /// Whether the only variable has no range.
    fn decides_about_everything(&self) -> bool {
        self.states.len() == 1 && self.decided.is_empty()
    }

    fn state(&self, variable: Variable) -> &State {
        &self.states[variable as usize]
    }

    /// The bytes of a line that belong to commit variables.
    pub(crate) fn own_bytes(&self, cell: Cell) -> u64 {
        self.own.mask(cell)
    }

    /// Whether some bytes of a range belong to commit variables.
    pub(crate) fn touches(&self, range: PoolRange) -> bool {
        self.own.overlapping(range).next().is_some()
    }

    /// Which variables decide about which bytes of a line.
    pub(crate) fn deciding(&self, cell: Cell) -> impl Iterator<Item = (u64, Variable)> {
        let others = !self.own.mask(cell);
        let everything = self.decides_about_everything().then_some((u64::MAX, 0));
        everything
            .into_iter()
            .chain(self.decided.in_cell(cell))
            .map(move |(bytes, variable)| (bytes & others, variable))
            .filter(|(bytes, _)| *bytes != 0)
    }

    /// The bytes of a line that some variable decides about.
    pub(crate) fn decided_bytes(&self, cell: Cell) -> u64 {
        self.deciding(cell).fold(0, |all, (bytes, _)| all | bytes)
    }

    /// A variable decides about bytes of this line that are stored now, or that were when it was not known.
    pub(crate) fn note_store(&mut self, cell: Cell, bytes: u64) {
        if self.is_empty() {
            return;
        }
        let others = !self.own.mask(cell);
        if self.decides_about_everything() {
            if bytes & others != 0 {
                self.states[0].fresh.insert(cell);
            }
            return;
        }
        for (decided, variable) in self.decided.in_cell(cell) {
            if decided & bytes & others != 0 {
                self.states[variable as usize].fresh.insert(cell);
            }
        }
    }

    /// A store to `range`: the commit writes that it is, and the lines that they change, appended to `changed`.
    /// `lines` are those in which it is not durable at once.
    pub(crate) fn write(
        &mut self,
        range: PoolRange,
        event: EventIndex,
        now: Time,
        lines: &dyn Fn(PoolRange) -> Vec<LineId>,
        changed: &mut Vec<Cell>,
    ) {
        let written: Vec<(PoolRange, Variable)> = self.own.overlapping(range).collect();
        for (own, variable) in written {
            let state = &mut self.states[variable as usize];
            let pending = lines(common(own, range));
            let write = match &mut state.last {
                Some(last) if last.stored == now => last,
                _ => {
                    changed.extend(state.fresh.iter().chain(&state.current));
                    state.current = std::mem::take(&mut state.fresh);
                    state.before_last = state.last.take();
                    state.last.insert(CommitWrite {
                        event,
                        last_event: event,
                        stored: now,
                        durable: now + 1,
                        at_once: true,
                        pending: Vec::new(),
                    })
                }
            };
            write.last_event = event;
            for line in pending {
                write.pending.push((line, event));
                write.durable = NEVER;
                write.at_once = false;
                let waiting = self.pending.entry(line).or_default();
                if !waiting.contains(&variable) {
                    waiting.push(variable);
                }
            }
        }
    }

    /// All stores to a line up to `event` are durable now.
    pub(crate) fn rise(&mut self, line: LineId, event: EventIndex, now: Time) {
        let Some(mut waiting) = self.pending.remove(&line) else {
            return;
        };
        waiting.retain(|&variable| {
            let state = &mut self.states[variable as usize];
            let mut waits = false;
            for write in [&mut state.last, &mut state.before_last]
                .into_iter()
                .flatten()
            {
                let before = write.pending.len();
                write
                    .pending
                    .retain(|&(of, store)| of != line || store > event);
                if write.pending.is_empty() && before > 0 {
                    write.durable = now;
                }
                waits |= write.pending.iter().any(|&(of, _)| of == line);
            }
            waits
        });
        if !waiting.is_empty() {
            self.pending.insert(line, waiting);
        }
    }

    /// Formula (3) of the paper for bytes that are durable.
    pub(crate) fn consistency(&self, variable: Variable, span: &Span) -> Consistency {
        if span.protected || span.left_out {
            return Consistency::Consistent;
        }
        let state = self.state(variable);
        let Some(last) = &state.last else {
            return Consistency::Uncommitted(None);
        };
        if !last.follows(span) {
            let came_too_early = span.writer < last.event;
            return Consistency::Uncommitted(came_too_early.then_some(last.event));
        }
        match &state.before_last {
            Some(before) if !before.precedes(span) => {
                Consistency::Stale([before.event, last.event])
            }
            _ => Consistency::Consistent,
        }
    }
}

/// The bytes that are in both ranges, which do overlap.
fn common(one: PoolRange, other: PoolRange) -> PoolRange {
    let offset = one.offset.max(other.offset);
    PoolRange {
        pool: one.pool,
        offset,
        len: one.end().min(other.end()).saturating_sub(offset.0),
    }
}
