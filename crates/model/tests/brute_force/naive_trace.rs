//! All crash states of a recorded trace, from the definition: each line holds the result of a prefix of its stores
//! that contains at least those that are guaranteed to be durable.

use std::collections::{BTreeMap, BTreeSet};

use powerfail_model::{Atomicity, Domain, Event, FlushKind, Rules, Step, StoreKind};

/// The pieces of one store, each of which becomes durable as a whole: (address, byte values).
type Piece = (u64, Vec<u8>);

fn pieces(rules: Rules, at: u64, bytes: &[u8]) -> Vec<Piece> {
    let unit = match rules.atomicity {
        Atomicity::Store => line_bytes(rules),
        Atomicity::Word => 8,
    };
    let mut pieces: Vec<Piece> = Vec::new();
    for (i, &byte) in bytes.iter().enumerate() {
        let address = at + i as u64;
        match pieces.last_mut() {
            Some((start, values)) if *start / unit == address / unit => values.push(byte),
            _ => pieces.push((address, vec![byte])),
        }
    }
    pieces
}

fn line_bytes(rules: Rules) -> u64 {
    if rules.domain == Domain::PageCache {
        512
    } else {
        64
    }
}

/// The whole memory of `len` bytes (one pool) in every state that a crash after `steps` can leave.
pub(crate) fn states(
    rules: Rules,
    len: usize,
    initial: &[u8],
    steps: &[Step<'_>],
) -> BTreeSet<Vec<u8>> {
    let line_of = |address: u64| address / line_bytes(rules);
    let mut initial = initial.to_vec();
    // Every piece stored so far, with its line; and for each line how many of its pieces are durable.
    let mut stored: BTreeMap<u64, Vec<Piece>> = BTreeMap::new();
    let mut sure: BTreeMap<u64, usize> = BTreeMap::new();
    // Pending write-backs of each thread: (line, number of pieces).
    let mut promises: Vec<(u32, u64, usize)> = Vec::new();
    for step in steps {
        let thread = step.thread.0;
        let is_fence = matches!(
            step.event,
            Event::Fence(_)
                | Event::Sync { .. }
                | Event::Store {
                    kind: StoreKind::Locked,
                    ..
                }
        );
        if is_fence && rules.domain != Domain::PageCache {
            for &(of, line, count) in &promises {
                if of == thread {
                    let sure = sure.entry(line).or_default();
                    *sure = (*sure).max(count);
                }
            }
            promises.retain(|&(of, ..)| of != thread);
        }
        match step.event {
            Event::Store { kind, at, bytes } => {
                for (address, values) in pieces(rules, at.offset.0, bytes) {
                    let line = line_of(address);
                    let list = stored.entry(line).or_default();
                    list.push((address, values));
                    match (rules.domain, kind) {
                        (Domain::Eadr | Domain::Adr, StoreKind::NonTemporal) => {
                            promises.push((thread, line, list.len()));
                        }
                        (Domain::Eadr, _) => {
                            sure.insert(line, list.len());
                        }
                        _ => {}
                    }
                }
            }
            Event::Flush { kind, at } if rules.domain == Domain::Adr => {
                let line = line_of(at.offset.0);
                let count = stored.get(&line).map_or(0, Vec::len);
                if kind == FlushKind::Clflush {
                    sure.insert(line, count);
                } else {
                    promises.push((thread, line, count));
                }
            }
            Event::Sync {
                offset, len_bytes, ..
            } => {
                for (&line, list) in &stored {
                    let start = line * line_bytes(rules);
                    let end = start + line_bytes(rules);
                    if len_bytes > 0 && start < offset.0 + len_bytes && offset.0 < end {
                        sure.insert(line, list.len());
                    }
                }
            }
            Event::Resize { len_bytes, .. } => {
                for (address, values) in stored.values_mut().flatten() {
                    let kept = len_bytes.saturating_sub(*address) as usize;
                    values.truncate(kept);
                }
                initial.resize(len_bytes as usize, 0);
            }
            _ => {}
        }
    }
    let mut memory = initial;
    memory.resize(len, 0);
    let mut states = BTreeSet::from([memory]);
    for (line, list) in &stored {
        let least = sure.get(line).copied().unwrap_or(0);
        let mut more = BTreeSet::new();
        for memory in &states {
            for count in least..=list.len() {
                let mut memory = memory.clone();
                for (address, values) in &list[..count] {
                    memory[*address as usize..*address as usize + values.len()]
                        .copy_from_slice(values);
                }
                more.insert(memory);
            }
        }
        states = more;
    }
    states
}
