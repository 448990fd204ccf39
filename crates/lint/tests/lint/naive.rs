//! A second, naive implementation of the rules in `docs/reference/findings`: it answers every question by a pass over
//! the whole trace. Shares no code with the lint.

use std::collections::BTreeMap;

use crate::common::{POOL_ADDRESS, POOL_BYTES, Script, hits, summary};
use powerfail_finding::Code;
use powerfail_lint::LintOptions;
use powerfail_model::{Domain, Event, FenceKind, FlushKind, StoreKind};
use powerfail_trace::Annotation;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Act {
    Store(StoreKind, u64, Vec<u8>),
    /// By whom it is asked for, if that is known: a library that was given a range of the line.
    Flush(FlushKind, u64, Option<(u64, u64)>),
    Fence(FenceKind),
    Sync(u64, u64),
    Transaction(bool),
}

#[derive(Clone, Debug)]
struct Step {
    thread: u32,
    /// The line of code.
    site: u64,
    act: Act,
}

type Found = Vec<(Code, Vec<u64>, u64)>;

/// The part of a store in one line.
#[derive(Clone, Debug, PartialEq)]
struct Piece {
    event: usize,
    line: u64,
    start: u64,
    bytes: Vec<u8>,
}

struct Naive<'a> {
    domain: Domain,
    is_single_thread: bool,
    steps: &'a [Step],
}

impl Naive<'_> {
    fn kind(&self, event: usize) -> Option<StoreKind> {
        match self.steps[event].act {
            Act::Store(kind, ..) => Some(kind),
            _ => None,
        }
    }

    fn pieces(&self) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        for (event, step) in self.steps.iter().enumerate() {
            let Act::Store(_, offset, bytes) = &step.act else {
                continue;
            };
            for (at, byte) in (*offset..).zip(bytes) {
                match pieces.last_mut() {
                    Some(last) if last.event == event && last.line == at / 64 => {
                        last.bytes.push(*byte);
                    }
                    _ => pieces.push(Piece {
                        event,
                        line: at / 64,
                        start: at,
                        bytes: vec![*byte],
                    }),
                }
            }
        }
        pieces
    }

    fn stores_to_line(&self, event: usize, line: u64) -> bool {
        self.pieces()
            .iter()
            .any(|piece| piece.event == event && piece.line == line)
    }

    /// Whether the event is a non-temporal store to the line that counts as its write-back.
    fn streams(&self, event: usize, line: u64) -> bool {
        self.domain != Domain::PageCache
            && self.kind(event) == Some(StoreKind::NonTemporal)
            && self.stores_to_line(event, line)
    }

    fn flushes(&self, event: usize, line: u64) -> bool {
        self.domain == Domain::Adr
            && matches!(self.steps[event].act, Act::Flush(_, at, _) if at / 64 == line)
    }

    fn syncs(&self, event: usize, line: u64) -> bool {
        let unit = self.domain.line_bytes() as u64;
        match self.steps[event].act {
            Act::Sync(offset, len) if len > 0 => {
                let first = offset / unit * unit;
                let last = (offset + len - 1) / unit * unit + unit - 1;
                first <= line * 64 && line * 64 <= last
            }
            _ => false,
        }
    }

    fn fences(&self, event: usize, thread: u32) -> bool {
        self.steps[event].thread == thread
            && matches!(
                self.steps[event].act,
                Act::Fence(_) | Act::Sync(..) | Act::Store(StoreKind::Locked, ..)
            )
    }

    fn in_transaction(&self, event: usize) -> bool {
        let marks = self.steps[..event].iter().rev();
        let mut marks = marks.filter(|step| step.thread == self.steps[event].thread);
        marks
            .find_map(|step| match step.act {
                Act::Transaction(begins) => Some(begins),
                _ => None,
            })
            .unwrap_or(false)
    }

    /// Whether a piece is guaranteed to be durable after the events before `end`.
    fn durable(&self, piece: &Piece, end: usize) -> bool {
        let line = piece.line;
        if self.domain == Domain::Eadr
            && (piece.event..end).any(|event| {
                self.kind(event)
                    .is_some_and(|kind| kind != StoreKind::NonTemporal)
                    && self.stores_to_line(event, line)
            })
        {
            return true;
        }
        (piece.event..end).any(|event| {
            if event > piece.event && self.syncs(event, line) {
                return true;
            }
            if event > piece.event && self.flushes(event, line) {
                if matches!(self.steps[event].act, Act::Flush(FlushKind::Clflush, ..)) {
                    return true;
                }
            } else if !self.streams(event, line) {
                return false;
            }
            (event + 1..end).any(|fence| self.fences(fence, self.steps[event].thread))
        })
    }

    /// The bytes of a piece that no event before `end` has overwritten.
    fn live(&self, piece: &Piece, end: usize) -> Vec<u64> {
        let bytes = piece.start..piece.start + piece.bytes.len() as u64;
        bytes
            .filter(|at| {
                !(piece.event + 1..end).any(|event| match &self.steps[event].act {
                    Act::Store(_, offset, bytes) => {
                        (*offset..offset + bytes.len() as u64).contains(at)
                    }
                    _ => false,
                })
            })
            .collect()
    }

    fn pending(&self, piece: &Piece, end: usize) -> bool {
        piece.event < end && !self.live(piece, end).is_empty() && !self.durable(piece, end)
    }

    /// The event that flushed a piece first, before `end`.
    fn flushed(&self, piece: &Piece, end: usize) -> Option<usize> {
        (piece.event..end).find(|&event| {
            event > piece.event
                && (self.flushes(event, piece.line) || self.syncs(event, piece.line))
                || self.streams(event, piece.line)
        })
    }

    fn ever_flushed(&self, line: u64) -> bool {
        (0..self.steps.len()).any(|event| {
            self.flushes(event, line) || self.syncs(event, line) || self.streams(event, line)
        })
    }

    fn nonzero(piece: &Piece) -> bool {
        piece.bytes.iter().any(|byte| *byte != 0)
    }

    fn value(piece: &Piece) -> u64 {
        if piece.bytes.len() > 8 {
            return 0;
        }
        let bytes = piece.bytes.iter().rev();
        bytes.fold(0, |value, byte| value << 8 | u64::from(*byte))
    }

    /// Whether a locked operation before `end` wrote to a word of these bytes.
    fn locked(&self, bytes: &[u64], end: usize) -> bool {
        self.steps[..end].iter().any(|step| match &step.act {
            Act::Store(StoreKind::Locked, offset, written) => {
                let written = *offset..offset + written.len() as u64;
                written
                    .into_iter()
                    .any(|at| bytes.iter().any(|byte| byte / 8 == at / 8))
            }
            _ => false,
        })
    }

    fn site(&self, event: usize) -> u64 {
        self.steps[event].site
    }

    fn is_open(&self, line: u64, end: usize) -> bool {
        let pieces = self.pieces();
        let mut pieces = pieces.iter().filter(|piece| piece.line == line);
        pieces.any(|piece| self.pending(piece, end))
    }

    fn meant_to_last(&self, site: u64) -> bool {
        let end = self.steps.len();
        self.pieces().iter().any(|piece| {
            let by_flush = self.flushed(piece, end).is_some_and(|flush| {
                !self.live(piece, flush + 1).is_empty() && !self.durable(piece, flush)
            });
            self.site(piece.event) == site && by_flush
        })
    }

    fn losses(&self, found: &mut Found) {
        let end = self.steps.len();
        let mut worst: BTreeMap<usize, (Code, Vec<u64>)> = BTreeMap::new();
        for piece in self.pieces() {
            if !self.pending(&piece, end) {
                continue;
            }
            let site = self.site(piece.event);
            let lost = if let Some(flush) = self.flushed(&piece, end) {
                let mut sites = vec![site];
                if self.kind(flush).is_none() {
                    sites.push(self.site(flush));
                }
                (Code::FlushNotFenced, sites)
            } else {
                let value = Self::value(&piece);
                let is_pointer = (POOL_ADDRESS..POOL_ADDRESS + POOL_BYTES).contains(&value);
                let is_lock = self.locked(&self.live(&piece, end), end) && !is_pointer;
                let code = match self.ever_flushed(piece.line) {
                    true if is_lock => continue,
                    true => Code::StoreNotFlushed,
                    false if !is_lock && self.meant_to_last(site) => Code::StoreNotFlushed,
                    false => Code::TransientData,
                };
                (code, vec![site])
            };
            let entry = worst.entry(piece.event).or_insert_with(|| lost.clone());
            if lost.0 < entry.0 {
                *entry = lost;
            }
        }
        found.extend(worst.into_values().map(|(code, sites)| (code, sites, 1)));
    }

    fn is_useful(&self, flush: usize, line: u64) -> bool {
        let written = (0..flush).any(|event| {
            self.stores_to_line(event, line)
                && self.kind(event) != Some(StoreKind::NonTemporal)
                && !(event + 1..flush).any(|later| {
                    self.flushes(later, line)
                        || self.syncs(later, line) && self.is_open(line, later)
                })
        });
        let thread = self.steps[flush].thread;
        let written_by_it = (0..flush).any(|event| {
            self.steps[event].thread == thread
                && self.stores_to_line(event, line)
                && self.kind(event) != Some(StoreKind::NonTemporal)
                && !(event + 1..flush).any(|later| {
                    self.flushes(later, line) && self.steps[later].thread == thread
                        || self.syncs(later, line) && self.is_open(line, later)
                })
        });
        let flushed_by_it = (0..flush).any(|event| {
            self.steps[event].thread == thread
                && (self.flushes(event, line) || self.streams(event, line))
                && !(event + 1..flush)
                    .any(|later| self.stores_to_line(later, line) || self.fences(later, thread))
        });
        written || written_by_it || self.is_open(line, flush) && !flushed_by_it
    }

    /// Adds a place that was useless, unless it was needed more often.
    fn add_useless(code: Code, calls: &[(u64, bool)], found: &mut Found) {
        for &(site, useless) in calls.iter().filter(|(_, useless)| *useless) {
            let all = calls.iter().filter(|call| call.0 == site).count();
            let in_vain = calls
                .iter()
                .filter(|call| **call == (site, useless))
                .count();
            if 2 * in_vain >= all {
                found.push((code, vec![site], 1));
            }
        }
    }

    fn redundant_flushes(&self, found: &mut Found) {
        let mut calls: Vec<(u64, bool)> = Vec::new();
        for thread in 0..3 {
            // The current call: its site, the line after it, whether it was useful.
            let mut call: Option<(u64, u64, bool)> = None;
            for (event, step) in self.steps.iter().enumerate() {
                if step.thread != thread {
                    continue;
                }
                let mut next = None;
                if let (Act::Flush(_, at, _), Domain::Adr) = (&step.act, self.domain) {
                    let line = at / 64;
                    let useful = self.is_useful(event, line);
                    next = Some((step.site, line + 1, useful));
                    if let Some((site, expected, before)) = call
                        && (site, expected) == (step.site, line)
                    {
                        call = Some((site, line + 1, before || useful));
                        continue;
                    }
                }
                if let Act::Sync(offset, len) = step.act
                    && self.domain == Domain::PageCache
                {
                    let mut lines = 0..(offset + len).div_ceil(64) + 8;
                    let useful =
                        lines.any(|line| self.syncs(event, line) && self.is_open(line, event));
                    calls.push((step.site, !useful));
                }
                calls.extend(call.map(|(site, _, useful)| (site, !useful)));
                call = next;
            }
            calls.extend(call.map(|(site, _, useful)| (site, !useful)));
        }
        Self::add_useless(Code::RedundantFlush, &calls, found);
    }

    fn redundant_fences(&self, found: &mut Found) {
        let mut calls = Vec::new();
        for (event, step) in self.steps.iter().enumerate() {
            if !matches!(step.act, Act::Fence(FenceKind::Sfence))
                || self.domain == Domain::PageCache
            {
                continue;
            }
            let before = self.steps[..event].iter().rev();
            let before = before.filter(|other| other.thread == step.thread);
            let mut before = before.take_while(|other| {
                !matches!(
                    other.act,
                    Act::Fence(FenceKind::Sfence | FenceKind::Mfence) | Act::Sync(..)
                )
            });
            let worked = before.any(|other| {
                matches!(
                    other.act,
                    Act::Flush(..) | Act::Store(StoreKind::NonTemporal, ..)
                )
            });
            calls.push((step.site, !worked));
        }
        Self::add_useless(Code::RedundantFence, &calls, found);
    }

    /// An mfence with nothing to wait for, right before a flush of its thread, or right after a fence if there is only one
    /// thread, each time it is executed.
    fn full_fences(&self, found: &mut Found) {
        let mut calls = Vec::new();
        for (event, step) in self.steps.iter().enumerate() {
            if !matches!(step.act, Act::Fence(FenceKind::Mfence)) || self.domain != Domain::Adr {
                continue;
            }
            let of_thread = |other: &&Step| other.thread == step.thread;
            let before = self.steps[..event].iter().rev().filter(of_thread);
            let mut before = before.take_while(|other| {
                !matches!(
                    other.act,
                    Act::Fence(FenceKind::Sfence | FenceKind::Mfence) | Act::Sync(..)
                )
            });
            let worked = before.any(|other| {
                matches!(
                    other.act,
                    Act::Flush(..) | Act::Store(StoreKind::NonTemporal, ..)
                )
            });
            let next = self.steps[event + 1..].iter().find(of_thread);
            let is_leading = next.is_some_and(|next| match next.act {
                Act::Flush(..) => true,
                Act::Store(StoreKind::Plain, ..) => self.is_single_thread,
                _ => false,
            });
            let last = self.steps[..event].iter().rev().find(of_thread);
            let repeats = last.is_some_and(|last| {
                matches!(last.act, Act::Fence(FenceKind::Sfence | FenceKind::Mfence))
            });
            let is_useless = is_leading || repeats && self.is_single_thread;
            calls.push((step.site, !worked && is_useless));
        }
        for &(site, useless) in &calls {
            if useless && calls.iter().all(|call| call.0 != site || call.1) {
                found.push((Code::RedundantFence, vec![site], 1));
            }
        }
    }

    fn overwrites(&self, found: &mut Found) {
        if self.domain != Domain::Adr {
            return;
        }
        let pieces = self.pieces();
        let judged = |piece: &Piece| {
            self.kind(piece.event) == Some(StoreKind::Plain) && !self.in_transaction(piece.event)
        };
        for new in &pieces {
            for old in &pieces {
                let range: Vec<u64> = (old.start..old.start + old.bytes.len() as u64).collect();
                if old.event < new.event
                    && judged(old)
                    && judged(new)
                    && self.steps[old.event].thread == self.steps[new.event].thread
                    && (old.start, old.bytes.len()) == (new.start, new.bytes.len())
                    && old.bytes.len() <= 8
                    && Self::nonzero(old)
                    && old.bytes != new.bytes
                    && self.live(old, new.event) == range
                    && self.flushed(old, new.event).is_none()
                    && !self.locked(&range, new.event)
                    && self.site(old.event) != self.site(new.event)
                    && self.ever_flushed(new.line)
                {
                    let sites = vec![self.site(old.event), self.site(new.event)];
                    found.push((Code::DirtyOverwrite, sites, 1));
                }
            }
        }
    }

    /// Whether a line had content that was durable before an event.
    fn reachable(&self, line: u64, before: usize) -> bool {
        self.pieces().iter().any(|piece| {
            piece.line == line && Self::nonzero(piece) && {
                let first = (piece.event + 1..=before).find(|end| self.durable(piece, *end));
                first.is_some_and(|end| {
                    let end = if self.completes(end - 1, line) {
                        end - 1
                    } else {
                        end
                    };
                    !self.live(piece, end).is_empty()
                })
            }
        })
    }

    /// Whether an event is a fence of a thread that has flushed the line or stored past the cache: its other effects
    /// come after that.
    fn completes(&self, event: usize, line: u64) -> bool {
        (0..event).any(|flush| {
            (self.flushes(flush, line) || self.streams(flush, line))
                && self.fences(event, self.steps[flush].thread)
        })
    }

    fn publishes(&self, found: &mut Found) {
        let pieces = self.pieces();
        for pointer in &pieces {
            let event = pointer.event;
            let Act::Store(StoreKind::Plain, offset, bytes) = &self.steps[event].act else {
                continue;
            };
            if bytes.len() != 8 || offset % 8 != 0 || self.in_transaction(event) {
                continue;
            }
            let value = Self::value(pointer);
            let target = match value.checked_sub(POOL_ADDRESS) {
                Some(target) if target < POOL_BYTES => target,
                _ if value >= 64 && value % 8 == 0 && value < POOL_BYTES => value,
                _ => continue,
            };
            if target / 64 == pointer.line || !self.reachable(pointer.line, event) {
                continue;
            }
            let data = pieces.iter().rev().find(|piece| {
                piece.event < event
                    && piece.line == target / 64
                    && self.steps[piece.event].thread == self.steps[event].thread
                    && self.live(piece, event).contains(&target)
                    && !self.durable(piece, event)
            });
            let Some(data) = data else {
                continue;
            };
            let end = self.steps.len();
            let Some(sure) = (event + 1..=end).find(|end| self.durable(pointer, *end)) else {
                continue;
            };
            // A locked operation is first a fence and then a store.
            let whole = self.live(pointer, sure - 1).len() == 8;
            if whole || sure == event + 1 {
                let sites = vec![self.site(data.event), self.site(event)];
                found.push((Code::PublishedBeforeDurable, sites, 1));
            }
        }
    }

    /// The bytes of its line that a flush is made for.
    fn extent(&self, flush: usize) -> Vec<u64> {
        let Act::Flush(_, at, range) = self.steps[flush].act else {
            return Vec::new();
        };
        let line = at / 64 * 64..at / 64 * 64 + 64;
        if let Some((offset, len)) = range {
            return (offset..offset + len).collect();
        }
        // The next line of a call that has begun before it.
        let of_thread = |other: &&Step| other.thread == self.steps[flush].thread;
        let last = self.steps[..flush].iter().rev().find(of_thread);
        let continues = last.is_some_and(|last| {
            matches!(last.act, Act::Flush(_, before, _) if before / 64 + 1 == at / 64)
                && last.site == self.site(flush)
        });
        line.filter(|byte| continues || *byte >= at).collect()
    }

    /// Stores whose bytes are in no range that is flushed, before they are stored to again.
    fn neighbours(&self, found: &mut Found) {
        let pieces = self.pieces();
        let mut firsts: BTreeMap<u64, (usize, usize, u64)> = BTreeMap::new();
        for flush in 0..self.steps.len() {
            let Act::Flush(_, at, Some(_)) = self.steps[flush].act else {
                continue;
            };
            if self.domain != Domain::Adr {
                continue;
            }
            let extent = self.extent(flush);
            let new: Vec<(&Piece, Vec<u64>)> = pieces
                .iter()
                .filter(|piece| {
                    piece.event < flush
                        && piece.line == at / 64
                        && self.steps[piece.event].thread == self.steps[flush].thread
                        && self.flushed(piece, flush).is_none()
                })
                .map(|piece| (piece, self.live(piece, flush)))
                .filter(|(_, live)| !live.is_empty())
                .collect();
            let is_in = |live: &[u64]| live.iter().any(|byte| extent.contains(byte));
            if !new.iter().any(|(_, live)| is_in(live)) {
                continue;
            }
            for (piece, live) in new {
                let is_judged = self.kind(piece.event) == Some(StoreKind::Plain)
                    && !self.in_transaction(piece.event)
                    && !self.locked(&live, flush);
                if is_in(&live) || !is_judged || self.has_own_flush(&live, flush) {
                    continue;
                }
                let this = (piece.event, flush, 0);
                let first = firsts.entry(self.site(piece.event)).or_insert(this);
                *first = (*first).min((piece.event, flush, first.2));
                first.2 += 1;
            }
        }
        self.add_stores(Code::NeighbourFlush, firsts, found);
    }

    /// Whether bytes that are stored before an event are flushed for their own sake after it.
    fn has_own_flush(&self, bytes: &[u64], after: usize) -> bool {
        let line = bytes[0] / 64;
        let later = (after + 1..self.steps.len()).find_map(|event| match &self.steps[event].act {
            Act::Store(_, offset, stored) => {
                let stored = *offset..offset + stored.len() as u64;
                bytes.iter().any(|it| stored.contains(it)).then_some(false)
            }
            Act::Flush(..) => {
                let extent = self.extent(event);
                bytes.iter().any(|it| extent.contains(it)).then_some(true)
            }
            _ => self.syncs(event, line).then_some(true),
        });
        later.unwrap_or(false)
    }

    /// Stores that are flushed after many fences of their thread.
    fn late_flushes(&self, found: &mut Found) {
        let mut firsts: BTreeMap<u64, (usize, usize, u64)> = BTreeMap::new();
        for piece in self.pieces() {
            let Some(flush) = self.flushed(&piece, self.steps.len()) else {
                continue;
            };
            let live = self.live(&piece, flush);
            if self.domain != Domain::Adr
                || self.kind(piece.event) != Some(StoreKind::Plain)
                || self.kind(flush).is_some()
                || self.in_transaction(piece.event)
                || live.is_empty()
                || self.locked(&live, flush)
            {
                continue;
            }
            let since = self.dirty_since(&piece);
            let thread = self.steps[piece.event].thread;
            let fences = (since..flush).filter(|event| self.waits(*event, thread));
            if fences.count() >= DIRTY_FENCES as usize {
                let this = (piece.event, flush, 0);
                let first = firsts.entry(self.site(piece.event)).or_insert(this);
                *first = (*first).min((piece.event, flush, first.2));
                first.2 += 1;
            }
        }
        self.add_stores(Code::LateFlush, firsts, found);
    }

    /// Since when bytes that a piece stores to are dirty: since it, or since a piece that it replaces.
    fn dirty_since(&self, piece: &Piece) -> usize {
        let bytes = piece.start..piece.start + piece.bytes.len() as u64;
        let pieces = self.pieces();
        let replaced = pieces.iter().filter(|old| {
            old.event < piece.event
                && self.steps[old.event].thread == self.steps[piece.event].thread
                && old.line == piece.line
                && self.flushed(old, piece.event).is_none()
                && self
                    .live(old, piece.event)
                    .iter()
                    .any(|it| bytes.contains(it))
        });
        let since = replaced.map(|old| self.dirty_since(old)).min();
        since.unwrap_or(piece.event).min(piece.event)
    }

    /// Whether an event is a fence instruction of a thread that has something to wait for.
    fn waits(&self, event: usize, thread: u32) -> bool {
        let is_fence =
            |step: &Step| matches!(step.act, Act::Fence(FenceKind::Sfence | FenceKind::Mfence));
        let step = &self.steps[event];
        let before = self.steps[..event].iter().rev();
        let before = before.filter(|other| other.thread == thread);
        let mut before =
            before.take_while(|other| !is_fence(other) && !matches!(other.act, Act::Sync(..)));
        step.thread == thread
            && is_fence(step)
            && before.any(|other| {
                matches!(
                    other.act,
                    Act::Flush(..) | Act::Store(StoreKind::NonTemporal, ..)
                )
            })
    }

    /// One finding for each line of code that stores, with the first flush.
    fn add_stores(
        &self,
        code: Code,
        firsts: BTreeMap<u64, (usize, usize, u64)>,
        found: &mut Found,
    ) {
        for (site, (_, flush, count)) in firsts {
            found.push((code, vec![site, self.site(flush)], count));
        }
    }

    fn found(&self) -> Found {
        let mut found = Vec::new();
        self.losses(&mut found);
        self.redundant_flushes(&mut found);
        self.redundant_fences(&mut found);
        self.full_fences(&mut found);
        self.overwrites(&mut found);
        self.publishes(&mut found);
        self.neighbours(&mut found);
        self.late_flushes(&mut found);
        let mut counts: BTreeMap<(Code, Vec<u64>), u64> = BTreeMap::new();
        for (code, sites, count) in found {
            *counts.entry((code, sites)).or_default() += count;
        }
        let counts = counts.into_iter();
        counts
            .map(|((code, sites), count)| (code, sites, count))
            .collect()
    }
}

/// After how many fences a store is late.
const DIRTY_FENCES: u32 = 2;

fn write(steps: &[Step], threads: u32) -> powerfail_trace::Trace {
    let mut script = Script::with_threads(threads);
    for step in steps {
        script.thread(step.thread).line(step.site);
        match &step.act {
            Act::Store(kind, offset, bytes) => script.store_as(*kind, *offset, bytes),
            Act::Flush(kind, offset, range) => {
                if let Some(range) = range {
                    script.mark_ranges(Annotation::FlushRange, 0, &[*range]);
                }
                script.flush_as(*kind, *offset)
            }
            Act::Fence(kind) => script.pm(Event::Fence(*kind)),
            Act::Sync(offset, len) => script.sync(*offset, *len),
            Act::Transaction(true) => script.mark(Annotation::TransactionBegin),
            Act::Transaction(false) => script.mark(Annotation::TransactionEnd),
        };
    }
    script.trace()
}

fn an_act() -> impl Strategy<Value = Act> {
    let offset = prop::sample::select(vec![0u64, 0, 8, 16, 56, 60, 64, 72, 128, 192, 512]);
    let value = prop::sample::select(vec![
        0,
        1,
        2,
        3,
        POOL_ADDRESS + 64,
        POOL_ADDRESS + 128,
        POOL_ADDRESS,
        64,
        128,
    ]);
    let kind = prop::sample::select(vec![
        StoreKind::Plain,
        StoreKind::Plain,
        StoreKind::Plain,
        StoreKind::NonTemporal,
        StoreKind::Locked,
        StoreKind::System,
    ]);
    let store = (kind, offset.clone(), value, 0..6).prop_map(|(kind, offset, value, shape)| {
        let bytes = u64::to_le_bytes(value);
        match shape {
            0 => Act::Store(kind, offset, bytes[..4].to_vec()),
            1 => Act::Store(kind, offset, [bytes, bytes].concat()),
            _ => Act::Store(kind, offset, bytes.to_vec()),
        }
    });
    let flush = prop::sample::select(vec![
        FlushKind::Clwb,
        FlushKind::Clwb,
        FlushKind::Clflushopt,
        FlushKind::Clflush,
    ]);
    let fence = prop::sample::select(vec![
        FenceKind::Sfence,
        FenceKind::Sfence,
        FenceKind::Mfence,
        FenceKind::Locked,
    ]);
    prop_oneof![
        12 => store,
        6 => (flush.clone(), offset.clone())
            .prop_map(|(kind, offset)| Act::Flush(kind, offset, None)),
        4 => (flush, offset.clone(), 0u64..64).prop_map(|(kind, offset, len)| {
            let len = len.clamp(1, 64 - offset % 64);
            Act::Flush(kind, offset / 64 * 64, Some((offset, len)))
        }),
        5 => fence.prop_map(Act::Fence),
        1 => (offset, 0u64..600).prop_map(|(offset, len)| Act::Sync(offset, len)),
        1 => any::<bool>().prop_map(Act::Transaction),
    ]
}

fn a_step() -> impl Strategy<Value = Step> {
    let thread = prop::sample::select(vec![0u32, 0, 0, 1, 2]);
    (thread, 10u64..15, an_act()).prop_map(|(thread, site, act)| Step { thread, site, act })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_lint_finds_what_the_naive_reading_finds(
        steps in prop::collection::vec(a_step(), 1..28),
        domain in prop::sample::select(vec![
            Domain::Adr, Domain::Adr, Domain::Adr, Domain::Eadr, Domain::PageCache,
        ]),
        threads in prop::sample::select(vec![1u32, 3]),
    ) {
        let mut steps = steps;
        for step in &mut steps {
            step.thread %= threads;
        }
        let trace = write(&steps, threads);
        let options = LintOptions {
            domain,
            warnings: true,
            dirty_fences: DIRTY_FENCES,
            ..LintOptions::default()
        };
        // An sfence and an mfence of one line are two hits.
        let mut counts: BTreeMap<(Code, Vec<u64>), u64> = BTreeMap::new();
        for (code, sites, count) in summary(&trace, &hits(&trace, &options)) {
            // They have tests of their own.
            if matches!(code, Code::SharedFlush | Code::UnorderedFlushes) {
                continue;
            }
            *counts.entry((code, sites)).or_default() += count;
        }
        let found: Found = counts
            .into_iter()
            .map(|((code, sites), count)| (code, sites, count))
            .collect();
        let naive = Naive { domain, is_single_thread: threads == 1, steps: &steps };
        prop_assert_eq!(found, naive.found());
    }
}
