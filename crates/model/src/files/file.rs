//! One file: the history of its length and of its pages, and which parts of it a crash may keep.

use std::collections::{BTreeMap, BTreeSet};

use super::content::{Change, Page, Part, Version, VersionKind};
use super::ids::{
    NodeId, OperationIndex, PAGE_BYTES, PageIndex, SECTOR_BYTES, SECTORS_PER_PAGE, Source,
};
use super::operation::ByteRange;
use super::rules::{Gap, LengthNeeds, Rules};
use super::state::{LostLength, LostPage};

/// How much of the log is durable: the operations before this index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cut(pub(super) OperationIndex);

impl Cut {
    /// All of it.
    pub(super) const END: Self = Self(OperationIndex(u64::MAX));
}

/// A change of the length.
#[derive(Clone, Copy, Debug)]
struct LengthVersion {
    operation: OperationIndex,
    len: u64,
    /// Where the write begins that made it.
    from: u64,
    logged: bool,
}

/// A length that a crash can leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LengthOption {
    pub(super) len: u64,
    /// The first change that is lost; [`LostPage::NOTHING`] if none.
    pub(super) first_lost: OperationIndex,
    /// The write that made this length, if it was one.
    made_by: Option<OperationIndex>,
}

impl LengthOption {
    /// How a state names it.
    pub(super) fn name(&self, node: NodeId) -> Option<LostLength> {
        (self.first_lost != LostPage::NOTHING).then_some(LostLength {
            node,
            first_lost: self.first_lost,
            len_bytes: self.len,
        })
    }
}

/// How a state names the sectors of a page, or one of them.
pub(super) type PageName = [OperationIndex; SECTORS_PER_PAGE];

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct File {
    node: NodeId,
    /// How much of the initial content was never cut off.
    initial_len: u64,
    base_len: u64,
    lengths: Vec<LengthVersion>,
    pages: BTreeMap<PageIndex, Page>,
    open_pages: BTreeSet<PageIndex>,
    /// When its delayed blocks were forced into the log.
    forced: Vec<OperationIndex>,
    /// It was truncated to nothing and not closed since.
    pub(super) truncated_to_nothing: bool,
}

impl File {
    pub(super) fn new(node: NodeId, len: u64) -> Self {
        Self {
            node,
            initial_len: len,
            base_len: len,
            lengths: Vec::new(),
            pages: BTreeMap::new(),
            open_pages: BTreeSet::new(),
            forced: Vec::new(),
            truncated_to_nothing: false,
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.lengths.last().map_or(self.base_len, |v| v.len)
    }

    pub(super) fn is_open(&self) -> bool {
        !self.lengths.is_empty() || !self.open_pages.is_empty()
    }

    pub(super) fn open_pages(&self) -> impl Iterator<Item = (PageIndex, &Page)> {
        self.open_pages
            .iter()
            .map(|&index| (index, &self.pages[&index]))
    }

    /// All pages that may hold something else than zeros, with their newest parts.
    pub(super) fn newest_parts(&self) -> Vec<(PageIndex, Vec<Part>)> {
        let mut all: BTreeMap<PageIndex, Vec<Part>> = BTreeMap::new();
        for page in 0..self.initial_len.div_ceil(PAGE_BYTES) {
            let page = PageIndex(page);
            all.insert(
                page,
                Page::initial(self.node, page, self.initial_len).newest(),
            );
        }
        for (&index, page) in &self.pages {
            all.insert(index, page.newest());
        }
        let len = self.len();
        let mut parts: Vec<_> = all.into_iter().collect();
        for (index, parts) in &mut parts {
            let rest = len.saturating_sub(index.0 * PAGE_BYTES).min(PAGE_BYTES);
            super::content::clip(parts, 0, rest as u16);
        }
        parts
    }

    /// The open changes of the length: operation, and length after it.
    pub(super) fn length_changes(&self) -> impl Iterator<Item = (OperationIndex, u64)> {
        self.lengths.iter().map(|v| (v.operation, v.len))
    }

    /// Whether an operation has a part in a history; one on a range only there.
    pub(super) fn has_open(&self, index: OperationIndex, range: Option<ByteRange>) -> bool {
        let has = |page: &Page| page.versions.iter().any(|v| v.operation == index);
        let pages = match range {
            Some(range) => self.open_pages_in(range),
            None => self.open_pages.iter().copied().collect(),
        };
        self.lengths.iter().any(|v| v.operation == index)
            || pages.iter().any(|page| has(&self.pages[page]))
    }

    // Operations.

    pub(super) fn write(
        &mut self,
        index: OperationIndex,
        range: ByteRange,
        source: Option<Source>,
    ) {
        self.put(range, |offset| {
            let change = source.map_or(Source::Zeros, |source| source.advanced(offset));
            Version {
                operation: index,
                start: 0,
                end: 0,
                change: Change::Source(change),
                kind: VersionKind::Data,
                fresh_after: false,
            }
        });
        if range.end() > self.len() {
            self.lengths.push(LengthVersion {
                operation: index,
                len: range.end(),
                from: range.offset,
                logged: false,
            });
        }
    }

    /// A change of the length that the log has.
    fn set_len(&mut self, operation: OperationIndex, len: u64) {
        self.lengths.push(LengthVersion {
            operation,
            len,
            from: 0,
            logged: true,
        });
    }

    /// Adds a version to each page of a range; the function gets the distance from its start.
    fn put(&mut self, range: ByteRange, version: impl Fn(u64) -> Version) {
        if range.len_bytes == 0 {
            return;
        }
        for page in range.offset / PAGE_BYTES..=(range.end() - 1) / PAGE_BYTES {
            let page_start = page * PAGE_BYTES;
            let start = range.offset.max(page_start);
            let end = range.end().min(page_start + PAGE_BYTES);
            let version = Version {
                start: (start - page_start) as u16,
                end: (end - page_start) as u16,
                ..version(start - range.offset)
            };
            self.add_version(PageIndex(page), version);
        }
    }

    fn add_version(&mut self, index: PageIndex, version: Version) {
        let (node, initial_len) = (self.node, self.initial_len);
        let page = self
            .pages
            .entry(index)
            .or_insert_with(|| Page::initial(node, index, initial_len));
        page.push(version);
        self.open_pages.insert(index);
    }

    /// Whether the page may hold something else than zeros.
    fn has_content(&self, index: PageIndex) -> bool {
        match self.pages.get(&index) {
            Some(page) => page.is_open() || !page.is_zeros(),
            None => index.0 * PAGE_BYTES < self.initial_len,
        }
    }

    /// The pages from `first` on that may hold something else than zeros.
    fn pages_from(&self, first: u64) -> Vec<PageIndex> {
        let initial = first..self.initial_len.div_ceil(PAGE_BYTES);
        let mut all: BTreeSet<PageIndex> = initial.map(PageIndex).collect();
        all.extend(
            self.pages
                .range(PageIndex(first)..)
                .map(|(&index, _)| index),
        );
        all.into_iter().filter(|&p| self.has_content(p)).collect()
    }

    /// Whether it is a change.
    pub(super) fn truncate(&mut self, index: OperationIndex, len: u64) -> bool {
        let before = self.len();
        if len == before {
            return false;
        }
        if len < before {
            let tail = PageIndex(len / PAGE_BYTES);
            let inside = len % PAGE_BYTES;
            if inside != 0 && self.has_content(tail) {
                // The rest of the page is zeroed in the cache and written back like data, perhaps before
                // the log has the truncation; with the truncation it is gone in any case.
                let zeros = zeros(index, inside, PAGE_BYTES);
                self.add_version(
                    tail,
                    Version {
                        kind: VersionKind::Trim,
                        ..zeros.clone()
                    },
                );
                self.add_version(
                    tail,
                    Version {
                        kind: VersionKind::Tail,
                        ..zeros
                    },
                );
            }
            for page in self.pages_from(len.div_ceil(PAGE_BYTES)) {
                self.add_version(page, hole(index));
            }
            self.initial_len = self.initial_len.min(len);
            self.truncated_to_nothing |= len == 0;
        }
        self.set_len(index, len);
        true
    }

    pub(super) fn allocate(&mut self, index: OperationIndex, range: ByteRange) -> bool {
        let grows = range.end() > self.len();
        if grows {
            self.set_len(index, range.end());
        }
        grows
    }

    /// Zeros in a range: pages as a whole lose their blocks, which is logged; the rest is written.
    /// Whether something was logged.
    pub(super) fn zero(&mut self, index: OperationIndex, range: ByteRange) -> bool {
        let end = range.end().min(self.len());
        if range.offset >= end {
            return false;
        }
        let first_whole = range.offset.div_ceil(PAGE_BYTES);
        // The last page of the file is whole if the range covers what the file has of it.
        let past_whole = if end == self.len() {
            end.div_ceil(PAGE_BYTES)
        } else {
            end / PAGE_BYTES
        };
        let mut logged = false;
        if first_whole < past_whole {
            for page in self.pages_from(first_whole) {
                if page.0 < past_whole {
                    self.add_version(page, hole(index));
                    logged = true;
                }
            }
        }
        let mut edges = Vec::new();
        if first_whole <= past_whole {
            edges.push((range.offset, first_whole * PAGE_BYTES));
            edges.push((past_whole * PAGE_BYTES, end));
        } else {
            edges.push((range.offset, end));
        }
        for (start, end) in edges {
            let end = end.min(self.len());
            if start < end && self.has_content(PageIndex(start / PAGE_BYTES)) {
                let page = PageIndex(start / PAGE_BYTES);
                let (start, end) = (start - page.0 * PAGE_BYTES, end - page.0 * PAGE_BYTES);
                self.add_version(page, zeros(index, start, end));
            }
        }
        logged
    }

    /// Removes a range, or inserts a hole: all pages from its start on change, and the length.
    pub(super) fn shift(&mut self, index: OperationIndex, range: ByteRange, insert: bool) -> bool {
        let len = self.len();
        if range.len_bytes == 0 || range.offset >= len || (!insert && range.end() > len) {
            return false;
        }
        let mut moved: BTreeMap<u64, Vec<Part>> = BTreeMap::new();
        for (page, parts) in self.newest_parts() {
            for part in parts {
                let start = page.0 * PAGE_BYTES + u64::from(part.start);
                let end = page.0 * PAGE_BYTES + u64::from(part.end);
                let kept_from = if insert { range.offset } else { range.end() };
                let from = start.max(kept_from);
                if from >= end {
                    continue;
                }
                let source = part.source.advanced(from - start);
                let to = if insert {
                    from + range.len_bytes
                } else {
                    from - range.len_bytes
                };
                spread(&mut moved, to, end - from, source);
            }
        }
        let first = range.offset / PAGE_BYTES;
        let inside = range.offset % PAGE_BYTES;
        let mut pages: BTreeSet<u64> = self.pages_from(first).iter().map(|p| p.0).collect();
        pages.extend(moved.keys());
        for page in pages {
            let parts = moved.remove(&page).unwrap_or_default();
            let start = if page == first { inside as u16 } else { 0 };
            let version = Version {
                start,
                end: PAGE_BYTES as u16,
                fresh_after: parts.is_empty() && start == 0,
                change: Change::Parts(parts.into_boxed_slice()),
                operation: index,
                kind: VersionKind::Logged,
            };
            self.add_version(PageIndex(page), version);
        }
        self.initial_len = self.initial_len.min(range.offset);
        let new_len = if insert {
            len + range.len_bytes
        } else {
            len - range.len_bytes
        };
        self.set_len(index, new_len);
        true
    }

    pub(super) fn force(&mut self, index: OperationIndex) {
        self.forced.push(index);
    }

    // Syncs.

    /// The operations of its histories that are in the log.
    pub(super) fn logged(&self) -> BTreeSet<OperationIndex> {
        let lengths = self.lengths.iter().filter(|v| v.logged);
        let pages = self.open_pages().flat_map(|(_, page)| &page.versions);
        let pages = pages
            .filter(|v| v.kind != VersionKind::Data)
            .map(|v| v.operation);
        let all = lengths.map(|v| v.operation).chain(pages);
        all.chain(self.forced.iter().copied()).collect()
    }

    /// Whether a sync of it has to put something into the log that is not there yet.
    pub(super) fn has_delayed(&self) -> bool {
        self.lengths.last().is_some_and(|v| !v.logged)
            || self.open_pages().any(|(_, page)| page.has_delayed())
    }

    /// All of it is durable.
    pub(super) fn close(&mut self) {
        self.base_len = self.len();
        self.lengths.clear();
        self.forced.clear();
        for index in std::mem::take(&mut self.open_pages) {
            if let Some(page) = self.pages.get_mut(&index) {
                page.close();
            }
        }
    }

    fn open_pages_in(&self, range: ByteRange) -> Vec<PageIndex> {
        if range.len_bytes == 0 {
            return Vec::new();
        }
        let pages =
            PageIndex(range.offset / PAGE_BYTES)..=PageIndex((range.end() - 1) / PAGE_BYTES);
        self.open_pages.range(pages).copied().collect()
    }

    pub(super) fn is_open_in(&self, range: ByteRange) -> bool {
        !self.open_pages_in(range).is_empty()
    }

    /// The pages of a range are durable, and the length as far as writes to them have made it. Whether
    /// that puts something into the log.
    pub(super) fn close_range(&mut self, range: ByteRange) -> bool {
        let mut delayed = false;
        let mut writes = BTreeSet::new();
        for index in self.open_pages_in(range) {
            if let Some(page) = self.pages.get_mut(&index) {
                delayed |= page.has_delayed();
                writes.extend(page.versions.iter().map(|v| v.operation));
                page.close();
            }
            self.open_pages.remove(&index);
        }
        let last = self
            .lengths
            .iter()
            .rposition(|v| writes.contains(&v.operation));
        if let Some(last) = last {
            delayed |= self.lengths[..=last].iter().any(|v| !v.logged);
            self.base_len = self.lengths[last].len;
            self.lengths.drain(..=last);
        }
        delayed
    }

    /// Whether operations of the log have changed open pages: a truncation that cut them, a hole, a shift.
    pub(super) fn has_logged_pages(&self) -> bool {
        let mut versions = self.open_pages().flat_map(|(_, page)| &page.versions);
        versions.any(|v| v.kind != VersionKind::Data)
    }

    /// The lengths that are in the log are durable: the operations that made them.
    pub(super) fn close_logged_lengths(&mut self) -> Vec<OperationIndex> {
        let Some(last) = self.lengths.iter().rposition(|v| v.logged) else {
            return Vec::new();
        };
        self.base_len = self.lengths[last].len;
        let closed = self.lengths.drain(..=last).filter(|v| v.logged);
        closed.map(|v| v.operation).collect()
    }

    /// Whether a length of it is in the log.
    pub(super) fn has_logged_length(&self) -> bool {
        self.lengths.iter().any(|v| v.logged)
    }

    // Choices.

    /// The lengths that a crash can leave, the oldest first.
    pub(super) fn length_options(&self, rules: Rules, cut: Cut) -> Vec<LengthOption> {
        let (mut low, mut high) = (0, self.lengths.len());
        if rules.ordered {
            high = 0;
            for (place, version) in self.lengths.iter().enumerate() {
                if version.operation >= cut.0 {
                    break;
                }
                high = place + 1;
                if version.logged {
                    low = high;
                }
            }
            if let Some(&forced) = self.forced.iter().rev().find(|&&at| at < cut.0) {
                let before = self.lengths.iter().take_while(|v| v.operation < forced);
                low = low.max(before.count());
            }
        }
        let mut options = Vec::new();
        for position in low..=high {
            let first_lost = |position: usize| {
                self.lengths
                    .get(position)
                    .map_or(LostPage::NOTHING, |v| v.operation)
            };
            let Some(version) = position.checked_sub(1).map(|p| self.lengths[p]) else {
                options.push(LengthOption {
                    len: self.base_len,
                    first_lost: first_lost(0),
                    made_by: None,
                });
                continue;
            };
            let before = position
                .checked_sub(2)
                .map_or(self.base_len, |p| self.lengths[p].len);
            let made_by = (!version.logged).then_some(version.operation);
            let first_page = before.max(version.from) / PAGE_BYTES + 1;
            let gap = before.div_ceil(PAGE_BYTES);
            let has_gap = !version.logged && !before.is_multiple_of(PAGE_BYTES) && gap < first_page;
            if position > low && !version.logged {
                let before_gap = (has_gap && rules.gap == Gap::EndsWithPage).then_some(gap);
                for page in
                    { before_gap.into_iter() }.chain(first_page..version.len.div_ceil(PAGE_BYTES))
                {
                    options.push(LengthOption {
                        len: page * PAGE_BYTES,
                        first_lost: version.operation,
                        made_by,
                    });
                }
            }
            let needs_nothing = has_gap && rules.gap == Gap::FreesLength;
            options.push(LengthOption {
                len: version.len,
                first_lost: first_lost(position),
                made_by: made_by.filter(|_| !needs_nothing),
            });
        }
        options
    }

    /// For each choice that a crash has about a page, the names that it chooses from, the oldest first, in a
    /// list that is used again for the next choice.
    pub(super) fn for_each_choice(
        &self,
        rules: Rules,
        cut: Cut,
        length: &LengthOption,
        mut visit: impl FnMut(PageIndex, &[PageName]) -> bool,
    ) {
        let mut names: Vec<PageName> = Vec::new();
        for (index, page) in self.open_pages() {
            let page_start = index.0 * PAGE_BYTES;
            if page_start >= length.len {
                break;
            }
            let sectors = (length.len - page_start)
                .div_ceil(SECTOR_BYTES)
                .min(SECTORS_PER_PAGE as u64) as usize;
            let mut ranges = [(0, 0); SECTORS_PER_PAGE];
            for (sector, range) in ranges.iter_mut().enumerate().take(sectors) {
                *range = sector_range(rules, cut, length, index, page, sector);
            }
            let name_at = |sector: usize, position: usize| {
                page.touching(sector)
                    .nth(position)
                    .map_or(LostPage::NOTHING, |v| v.operation)
            };
            if rules.torn_pages {
                for (sector, &(low, high)) in ranges.iter().enumerate().take(sectors) {
                    names.clear();
                    for position in low..=high {
                        let mut name = LostPage::WHOLE;
                        name[sector] = name_at(sector, position);
                        names.push(name);
                    }
                    if !visit(index, &names) {
                        return;
                    }
                }
            } else {
                names.clear();
                for position in 0..=page.versions.len() {
                    let mut name = LostPage::WHOLE;
                    for (sector, &(low, high)) in ranges.iter().enumerate().take(sectors) {
                        let first = page.versions[..position].iter();
                        let survive = first.filter(|v| v.touches(sector)).count();
                        name[sector] = name_at(sector, survive.clamp(low, high));
                    }
                    if names.last() != Some(&name) {
                        names.push(name);
                    }
                }
                if !visit(index, &names) {
                    return;
                }
            }
        }
    }
}

/// How many of the versions of a sector survive: at least and at most.
fn sector_range(
    rules: Rules,
    cut: Cut,
    length: &LengthOption,
    index: PageIndex,
    page: &Page,
    sector: usize,
) -> (usize, usize) {
    let count_before = |limit: OperationIndex| {
        page.touching(sector)
            .take_while(|v| v.operation < limit)
            .count()
    };
    let (mut low, mut high) = (0, page.touching(sector).count());
    if !rules.ordered {
        return (low, high);
    }
    let mut barrier: Option<&Version> = None;
    for (place, version) in page.touching(sector).enumerate() {
        let survives = version.operation < cut.0;
        match version.kind {
            VersionKind::Logged if !survives => {
                high = place;
                break;
            }
            // Bytes of this sector before the new end can be older than the truncation.
            VersionKind::Tail if !survives || (!version.covers(sector) && place > 0) => {}
            VersionKind::Logged | VersionKind::Tail => {
                low = place + 1;
                barrier = Some(version);
            }
            VersionKind::Data | VersionKind::Trim => {}
        }
    }
    if !rules.in_place {
        high = high.min(count_before(cut.0)).max(low);
    }
    let fresh = barrier.map_or(page.base_fresh, |v| v.fresh_after);
    // The write that gave the page its block.
    let first = page
        .versions
        .iter()
        .filter(|v| v.kind == VersionKind::Data)
        .find(|v| barrier.is_none_or(|b| v.operation > b.operation))
        .filter(|_| fresh);
    if let Some(first) = first
        && rules.in_place
        && first.operation >= cut.0
    {
        high = low;
    }
    if let Some(made_by) = length.made_by {
        let page_start = index.0 * PAGE_BYTES;
        match rules.length_needs {
            LengthNeeds::Nothing => {}
            LengthNeeds::LastPage => {
                if page_start < length.len && length.len <= page_start + PAGE_BYTES {
                    let after = OperationIndex(made_by.0 + 1);
                    low = low.max(count_before(after));
                }
            }
        }
    }
    debug_assert!(low <= high, "a sector always has a version");
    (low, high.max(low))
}

/// Zeros are written.
fn zeros(index: OperationIndex, start: u64, end: u64) -> Version {
    Version {
        operation: index,
        start: start as u16,
        end: end as u16,
        change: Change::Source(Source::Zeros),
        kind: VersionKind::Data,
        fresh_after: false,
    }
}

/// A page loses its block.
fn hole(index: OperationIndex) -> Version {
    Version {
        fresh_after: true,
        kind: VersionKind::Logged,
        ..zeros(index, 0, PAGE_BYTES)
    }
}

/// Puts bytes of one source into the pages that they lie in.
fn spread(pages: &mut BTreeMap<u64, Vec<Part>>, to: u64, len: u64, source: Source) {
    let mut done = 0;
    while done < len {
        let at = to + done;
        let (page, start) = (at / PAGE_BYTES, at % PAGE_BYTES);
        let here = (len - done).min(PAGE_BYTES - start);
        pages.entry(page).or_default().push(Part {
            start: start as u16,
            end: (start + here) as u16,
            source: source.advanced(done),
        });
        done += here;
    }
}
