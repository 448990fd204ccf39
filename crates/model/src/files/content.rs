//! The versions of one page of a file, and where their bytes come from.

use super::ids::{
    NodeId, OperationIndex, PAGE_BYTES, PageIndex, SECTOR_BYTES, SECTORS_PER_PAGE, Source,
};
use super::operation::ByteRange;
use super::state::{LostPage, Piece};

const PAGE_LEN: u16 = PAGE_BYTES as u16;
const SECTOR_LEN: u16 = SECTOR_BYTES as u16;

/// A part of a page; what no part covers is zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) start: u16,
    pub(super) end: u16,
    pub(super) source: Source,
}

/// What a version does to a page.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// Bytes of one source.
    Source(Source),
    /// Other parts, from the start of the version to its end.
    Parts(Box<[Part]>),
}

/// One change of a page.
#[derive(Clone, Debug)]
pub(super) struct Version {
    pub(super) operation: OperationIndex,
    pub(super) start: u16,
    pub(super) end: u16,
    pub(super) change: Change,
    pub(super) kind: VersionKind,
    /// After it, the page has no block.
    pub(super) fresh_after: bool,
}

/// How a version becomes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VersionKind {
    /// When the page is written back.
    Data,
    /// With its operation in the log, and not without it.
    Logged,
    /// The zeros behind the new end of a file in its last page: when the page is written back, or with the
    /// truncation in the log.
    Tail,
    /// No version of its own: if its operation is in the log, what came before it ends there.
    Trim,
}

impl Version {
    pub(super) const fn touches(&self, sector: usize) -> bool {
        if matches!(self.kind, VersionKind::Trim) {
            return false;
        }
        let start = sector as u16 * SECTOR_LEN;
        self.start < start + SECTOR_LEN && self.end > start
    }

    /// Whether it sets all of a sector.
    pub(super) const fn covers(&self, sector: usize) -> bool {
        let start = sector as u16 * SECTOR_LEN;
        self.start <= start && self.end >= start + SECTOR_LEN
    }
}

/// A page that an operation has touched.
#[derive(Clone, Debug, Default)]
pub(super) struct Page {
    /// What is surely durable.
    base: Vec<Part>,
    /// The page had no block when the first of its versions came.
    pub(super) base_fresh: bool,
    /// What came after it.
    pub(super) versions: Vec<Version>,
}

impl Page {
    /// A page of which nothing is known but what the initial file has there.
    pub(super) fn initial(node: NodeId, page: PageIndex, initial_len: u64) -> Self {
        let start = page.0 * PAGE_BYTES;
        let mut base = Vec::new();
        if initial_len > start {
            base.push(Part {
                start: 0,
                end: (initial_len - start).min(PAGE_BYTES) as u16,
                source: Source::Initial {
                    node,
                    offset: start,
                },
            });
        }
        Self {
            base,
            ..Self::default()
        }
    }

    pub(super) fn is_open(&self) -> bool {
        !self.versions.is_empty()
    }

    pub(super) fn push(&mut self, version: Version) {
        if self.versions.is_empty() {
            self.base_fresh = self.base.is_empty();
        }
        self.versions.push(version);
    }

    /// Whether it waits for a block.
    pub(super) fn has_delayed(&self) -> bool {
        let whole =
            |v: &Version| v.kind == VersionKind::Logged && v.start == 0 && v.end == PAGE_LEN;
        let last = self.versions.iter().rposition(whole);
        let fresh = last.map_or(self.base_fresh, |place| self.versions[place].fresh_after);
        let after = last.map_or(0, |place| place + 1);
        let mut later = self.versions[after..].iter();
        fresh && later.any(|v| v.kind == VersionKind::Data)
    }

    /// Whether it reads as zeros now.
    pub(super) fn is_zeros(&self) -> bool {
        self.newest()
            .iter()
            .all(|part| part.source == Source::Zeros)
    }

    /// Forgets the history: the newest content is durable.
    pub(super) fn close(&mut self) {
        if self.is_open() {
            self.base = self.newest();
            self.versions = Vec::new();
        }
    }

    pub(super) fn newest(&self) -> Vec<Part> {
        self.content(&LostPage::WHOLE, LostPage::NOTHING, PAGE_BYTES)
    }

    /// The content in a state that names its sectors so, and in which the changes of the file's length
    /// from `length_lost` on are lost, below `len_in_page`.
    pub(super) fn content(
        &self,
        first_lost: &[OperationIndex; SECTORS_PER_PAGE],
        length_lost: OperationIndex,
        len_in_page: u64,
    ) -> Vec<Part> {
        let mut parts = self.base.clone();
        for version in &self.versions {
            if version.kind == VersionKind::Trim {
                if version.operation < length_lost {
                    overlay(&mut parts, version, 0, PAGE_LEN);
                }
                continue;
            }
            if first_lost.iter().all(|&lost| version.operation < lost) {
                if version.fresh_after {
                    parts.clear();
                } else {
                    overlay(&mut parts, version, 0, PAGE_LEN);
                }
                continue;
            }
            for (sector, &lost) in first_lost.iter().enumerate() {
                if version.operation < lost && version.touches(sector) {
                    let from = sector as u16 * SECTOR_LEN;
                    overlay(&mut parts, version, from, from + SECTOR_LEN);
                }
            }
        }
        clip(&mut parts, 0, len_in_page.min(PAGE_BYTES) as u16);
        join(&mut parts);
        parts
    }

    /// The operations that touched a sector, in order.
    pub(super) fn touching(&self, sector: usize) -> impl Iterator<Item = &Version> {
        self.versions.iter().filter(move |v| v.touches(sector))
    }
}

/// Whole-file pieces of a page's parts.
pub(super) fn pieces(page: PageIndex, parts: &[Part]) -> impl Iterator<Item = Piece> {
    let start = page.0 * PAGE_BYTES;
    parts.iter().map(move |part| Piece {
        range: ByteRange::new(
            start + u64::from(part.start),
            u64::from(part.end - part.start),
        ),
        source: part.source,
    })
}

/// The same parts with all gaps up to `end` filled with zeros, and neighbours of one source joined.
pub(super) fn filled(parts: &[Part], end: u16) -> Vec<Part> {
    let mut all: Vec<Part> = Vec::new();
    let mut at = 0;
    let gap = |all: &mut Vec<Part>, start: u16, end: u16| {
        if start < end {
            all.push(Part {
                start,
                end,
                source: Source::Zeros,
            });
        }
    };
    for part in parts {
        gap(&mut all, at, part.start);
        all.push(*part);
        at = part.end;
    }
    gap(&mut all, at, end);
    join(&mut all);
    all
}

/// Joins neighbours that are one run of one source.
fn join(parts: &mut Vec<Part>) {
    parts.dedup_by(|next, last| {
        let joined = last.end == next.start
            && last.source.advanced(u64::from(next.start - last.start)) == next.source;
        if joined {
            last.end = next.end;
        }
        joined
    });
}

/// Puts what `version` has between `from` and `to` over `parts`.
fn overlay(parts: &mut Vec<Part>, version: &Version, from: u16, to: u16) {
    let (start, end) = (version.start.max(from), version.end.min(to));
    if start >= end {
        return;
    }
    let mut rest = Vec::with_capacity(parts.len() + 2);
    for part in parts.iter() {
        if part.start < start {
            rest.push(Part {
                end: part.end.min(start),
                ..*part
            });
        }
        if part.end > end {
            let cut = part.start.max(end);
            rest.push(Part {
                start: cut,
                end: part.end,
                source: part.source.advanced(u64::from(cut - part.start)),
            });
        }
    }
    match &version.change {
        Change::Source(source) => rest.push(Part {
            start,
            end,
            source: source.advanced(u64::from(start - version.start)),
        }),
        Change::Parts(new) => {
            let mut new = new.to_vec();
            clip(&mut new, start, end);
            rest.extend(new);
        }
    }
    rest.sort_unstable_by_key(|part| part.start);
    *parts = rest;
}

/// Keeps what is between `from` and `to`.
pub(super) fn clip(parts: &mut Vec<Part>, from: u16, to: u16) {
    parts.retain_mut(|part| {
        let start = part.start.max(from);
        let end = part.end.min(to);
        if start >= end {
            return false;
        }
        part.source = part.source.advanced(u64::from(start - part.start));
        (part.start, part.end) = (start, end);
        true
    });
}
