//! The trace in the browser: a window of events, and what is open before the chosen one: lines of pools, or operations on
//! files.

use std::collections::BTreeMap;

use powerfail_model::files::FileSystem;
use powerfail_model::{BigUint, EventIndex, FailurePoints, Frontier, LineId, Rules};
use powerfail_trace::{Record, Trace, TraceError};

use super::file_state::FileState;
use crate::trace::Places;

/// So many checkpoints at most.
const CHECKPOINTS_MAX: u64 = 64;
/// At least so many events between two of them.
const STRIDE_MIN: u64 = 1 << 14;
/// Open lines that are listed.
const LINES_MAX: usize = 200;

/// See the module.
pub(super) struct Events<'a> {
    trace: &'a Trace,
    rules: Rules,
    places: Places<'a>,
    /// The model before some events. It holds no bytes, so that a copy is small.
    checkpoints: BTreeMap<u64, Frontier<()>>,
    /// The same for files, if it is files that crash.
    files: Option<BTreeMap<u64, FileState>>,
    stride: u64,
    cursor: u64,
    top: u64,
    height: u64,
}

/// What is shown.
pub(super) struct Window {
    pub(super) rows: Vec<EventRow>,
    /// The lines that are open before the chosen event, with what the event does to them.
    pub(super) open: Vec<OpenRow>,
    /// How many are open before it.
    pub(super) open_count: usize,
    /// How many crash states there are before it. They are not counted for files.
    pub(super) states: Option<BigUint>,
}

pub(super) struct EventRow {
    pub(super) event: u64,
    pub(super) thread: u32,
    pub(super) text: String,
    pub(super) place: String,
    /// It opens a line, or makes stores durable.
    pub(super) opens: bool,
    pub(super) closes: bool,
    pub(super) is_failure_point: bool,
}

pub(super) struct OpenRow {
    pub(super) name: String,
    /// How many stores are open in a line; none for an operation on files.
    pub(super) stores: Option<usize>,
    pub(super) change: Change,
}

/// What an event does to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    None,
    Opens,
    Grows,
    Closes,
}

impl Change {
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Opens => ", opened by the event",
            Self::Grows => ", one more by the event",
            Self::Closes => ", durable by the event",
        }
    }
}

impl<'a> Events<'a> {
    pub(super) fn new(trace: &'a Trace, rules: Rules, files: Option<FileSystem>) -> Self {
        let stride = (trace.event_count() / CHECKPOINTS_MAX).max(STRIDE_MIN);
        Self {
            trace,
            rules,
            places: Places::new(trace, true, false),
            checkpoints: BTreeMap::from([(0, Frontier::new(rules, ()))]),
            files: files.map(|it| BTreeMap::from([(0, FileState::new(trace, it))])),
            stride,
            cursor: 0,
            top: 0,
            height: 1,
        }
    }

    pub(super) const fn cursor(&self) -> u64 {
        self.cursor
    }

    const fn last(&self) -> u64 {
        self.trace.event_count().saturating_sub(1)
    }

    pub(super) fn go(&mut self, event: u64) {
        self.cursor = event.min(self.last());
    }

    pub(super) fn step(&mut self, by: i64) {
        self.go(self.cursor.saturating_add_signed(by));
    }

    pub(super) fn page(&mut self, by: i64) {
        let height = i64::try_from(self.height).unwrap_or(1);
        self.step(by * height.max(1));
    }

    /// The model before an event.
    fn frontier_before(&mut self, event: u64) -> Result<Frontier<()>, TraceError> {
        let start = self.checkpoints.range(..=event).next_back();
        let (mut at, mut frontier) = match start {
            Some((at, frontier)) => (*at, frontier.clone()),
            None => (0, Frontier::new(self.rules, ())),
        };
        let mut records = self.trace.records_from(EventIndex(at));
        while at < event
            && let Some(record) = records.next_record()?
        {
            if let Some(step) = record.step() {
                frontier.apply(&step);
            }
            at = record.index.0 + 1;
            if at.is_multiple_of(self.stride) && !self.checkpoints.contains_key(&at) {
                self.checkpoints.insert(at, frontier.clone());
            }
        }
        Ok(frontier)
    }

    /// The model of files before an event, if it is files that crash.
    fn files_before(&mut self, event: u64) -> Result<Option<FileState>, TraceError> {
        let Some(checkpoints) = &mut self.files else {
            return Ok(None);
        };
        let start = checkpoints.range(..=event).next_back();
        let Some((mut at, mut state)) = start.map(|(at, state)| (*at, state.clone())) else {
            return Ok(None);
        };
        let mut records = self.trace.records_from(EventIndex(at));
        while at < event
            && let Some(record) = records.next_record()?
        {
            state.apply(&record);
            at = record.index.0 + 1;
            if at.is_multiple_of(self.stride) && !checkpoints.contains_key(&at) {
                checkpoints.insert(at, state.clone());
            }
        }
        Ok(Some(state))
    }

    /// Moves to the next or the previous moment that covers crash states; whether there is one.
    pub(super) fn go_to_failure_point(&mut self, is_next: bool) -> Result<bool, TraceError> {
        if is_next {
            let from = self.cursor + 1;
            let found = self.failure_points(from, self.trace.event_count(), true)?;
            if let Some(event) = found {
                self.go(event);
            }
            return Ok(found.is_some());
        }
        let mut end = self.cursor;
        while end > 0 {
            let start = match &self.files {
                Some(files) => files.range(..end).next_back().map(|(at, _)| *at),
                None => self.checkpoints.range(..end).next_back().map(|it| *it.0),
            };
            let start = start.unwrap_or(0);
            if let Some(event) = self.failure_points(start, end, false)? {
                self.go(event);
                return Ok(true);
            }
            end = start;
        }
        Ok(false)
    }

    /// The first or the last failure point in a range of events.
    fn failure_points(
        &mut self,
        from: u64,
        to: u64,
        is_first: bool,
    ) -> Result<Option<u64>, TraceError> {
        let mut found = None;
        if let Some(mut state) = self.files_before(from)? {
            let mut records = self.trace.records_from(EventIndex(from));
            while let Some(record) = records.next_record()?
                && record.index.0 < to
            {
                if state.apply(&record).is_failure_point {
                    found = Some(record.index.0);
                    if is_first {
                        break;
                    }
                }
            }
            return Ok(found);
        }
        let mut frontier = self.frontier_before(from)?;
        let mut records = self.trace.records_from(EventIndex(from));
        while let Some(record) = records.next_record()?
            && record.index.0 < to
        {
            let Some(step) = record.step() else { continue };
            if frontier.is_failure_point(FailurePoints::Covering, &step) {
                found = Some(record.index.0);
                if is_first {
                    break;
                }
            }
            frontier.apply(&step);
        }
        Ok(found)
    }

    /// The events around the chosen one.
    pub(super) fn window(&mut self, height: usize) -> Result<Window, TraceError> {
        self.height = height as u64;
        let margin = (self.height / 4).min(4);
        if self.cursor < self.top + margin || self.cursor + margin >= self.top + self.height {
            self.top = self.cursor.saturating_sub(self.height / 2);
        }
        if let Some(state) = self.files_before(self.top)? {
            return self.window_of_files(height, state);
        }
        let mut frontier = self.frontier_before(self.top)?;
        let mut window = Window {
            rows: Vec::new(),
            open: Vec::new(),
            open_count: 0,
            states: Some(frontier.crash_state_count()),
        };
        let mut records = self.trace.records_from(EventIndex(self.top));
        while window.rows.len() < height
            && let Some(record) = records.next_record()?
        {
            let is_chosen = record.index.0 == self.cursor;
            let mut row = self.row(&record);
            let before = is_chosen.then(|| stores_of(&frontier));
            if is_chosen {
                window.states = Some(frontier.crash_state_count());
            }
            if let Some(step) = record.step() {
                row.is_failure_point = frontier.is_failure_point(FailurePoints::Covering, &step);
                let open = frontier.open_lines().len();
                let mut closes = false;
                frontier.apply_and(&step, |_, _| closes = true);
                row.closes = closes;
                row.opens = frontier.open_lines().len() > open;
            }
            if let Some(before) = before {
                window.open_count = before.len();
                window.open = changes(&before, &stores_of(&frontier), self.rules);
            }
            window.rows.push(row);
        }
        Ok(window)
    }
}

impl Events<'_> {
    /// An event, without what it does.
    fn row(&mut self, record: &Record<'_>) -> EventRow {
        EventRow {
            event: record.index.0,
            thread: record.thread.0,
            text: self.places.short_text(&record.body),
            place: self.places.own(record).unwrap_or_default(),
            opens: false,
            closes: false,
            is_failure_point: false,
        }
    }

    /// The same for files. `state` is that before the first event.
    fn window_of_files(
        &mut self,
        height: usize,
        mut state: FileState,
    ) -> Result<Window, TraceError> {
        let mut window = Window {
            rows: Vec::new(),
            open: Vec::new(),
            open_count: 0,
            states: None,
        };
        let mut open: Vec<(u64, Change)> = Vec::new();
        let mut records = self.trace.records_from(EventIndex(self.top));
        while window.rows.len() < height
            && let Some(record) = records.next_record()?
        {
            let mut row = self.row(&record);
            let is_chosen = record.index.0 == self.cursor;
            if is_chosen {
                open = state.open().map(|it| (it.0, Change::None)).collect();
                window.open_count = open.len();
            }
            let effect = state.apply(&record);
            row.opens = effect.opens;
            row.closes = !effect.closed.is_empty();
            row.is_failure_point = effect.is_failure_point;
            if is_chosen {
                for (event, change) in &mut open {
                    if effect.closed.iter().any(|it| it.0 == *event) {
                        *change = Change::Closes;
                    }
                }
                if effect.opens {
                    open.push((record.index.0, Change::Opens));
                }
            }
            window.rows.push(row);
        }
        // What changes comes first.
        open.sort_by_key(|(_, change)| *change == Change::None);
        for (event, change) in open.into_iter().take(LINES_MAX) {
            let mut records = self.trace.records_from(EventIndex(event));
            if let Some(record) = records.next_record()? {
                window.open.push(OpenRow {
                    name: format!("{event} {}", self.places.short_text(&record.body)),
                    stores: None,
                    change,
                });
            }
        }
        Ok(window)
    }
}

fn stores_of(frontier: &Frontier<()>) -> BTreeMap<LineId, usize> {
    let lines = frontier.open_lines();
    lines.map(|line| (line.id(), line.stores().len())).collect()
}

/// What is open before an event, what it does to that, and what it opens.
fn changes(
    before: &BTreeMap<LineId, usize>,
    after: &BTreeMap<LineId, usize>,
    rules: Rules,
) -> Vec<OpenRow> {
    let line_bytes = rules.domain.line_bytes() as u64;
    let row = |id: &LineId, stores: usize, change| OpenRow {
        name: format!("{}:{:#x}", id.pool.0, id.line.0 * line_bytes),
        stores: Some(stores),
        change,
    };
    let known = before.iter().map(|(id, stores)| {
        let change = match after.get(id) {
            None => Change::Closes,
            Some(now) if now > stores => Change::Grows,
            Some(now) if now < stores => Change::Closes,
            Some(_) => Change::None,
        };
        row(id, *stores, change)
    });
    let new = after.iter().filter(|(id, _)| !before.contains_key(id));
    let new = new.map(|(id, stores)| row(id, *stores, Change::Opens));
    let mut rows: Vec<OpenRow> = known.chain(new).collect();
    // What changes comes first.
    rows.sort_by_key(|row| row.change == Change::None);
    rows.truncate(LINES_MAX);
    rows
}
