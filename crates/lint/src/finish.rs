//! What is known only at the end of a trace: what was never made durable. Then the hits are put
//! together, described and sorted.

use powerfail_finding::{Code, Role};
use powerfail_model::{Domain, Event, EventIndex, Place, PoolOffset, ThreadIndex};
use powerfail_trace::{
    AnnotatedRange, Body, EventBlock, Frame, MarkKind, Record, Result, StackId, Trace,
};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::attribution::Attribution;
use crate::blame::{Culprit, culprits, lines_with};
use crate::hit::{Caution, Hit, HitSite, Linted, NeededCall};
use crate::lines::{LINE_BYTES, LineSlot, flag as line_flag};
use crate::pass::{Pass, words};
use crate::ranges::PoolRange;
use crate::stores::{NO_FLUSH, Store, flag};
use crate::tally::{EVENTS_MAX, Seen, Tallies, Tally, Uses};
use crate::transactions::Partner;

/// All hits of a pass that is over.
pub(crate) fn hits(mut pass: Pass<'_>, trace: &Trace) -> Result<Linted> {
    let out_of_scope = pass.out_of_scope;
    pass.end_calls();
    pass.end_all_lucky();
    count_overwrites(&mut pass);
    count_losses(&mut pass, trace);
    let needed = needed_calls(&pass);
    let threads = pass.threads.storing();
    let mut hits = useless_calls(&mut pass);
    hits.extend(by_frames(pass, trace));
    describe(trace, &mut hits)?;
    hits.sort_by_key(|hit| {
        let events: Vec<EventIndex> = hit.sites.iter().map(|site| site.event).collect();
        let users: Vec<StackId> = hit.sites.iter().map(|site| site.user).collect();
        (hit.code, events, users)
    });
    Ok(Linted {
        hits,
        out_of_scope,
        needed,
        threads,
    })
}

/// The flushes, fences and adds that did something.
fn needed_calls(pass: &Pass<'_>) -> Vec<NeededCall> {
    let kinds = [
        (Code::RedundantFlush, &pass.flushes),
        (Code::VolatileFlush, &pass.flushes),
        (Code::RedundantFence, &pass.fences),
        (Code::RedundantFence, &pass.full_fences),
        (Code::DuplicateAdd, &pass.transactions.duplicates),
        (Code::AddWithoutStore, &pass.transactions.unused),
    ];
    let mut needed = Vec::new();
    for (code, calls) in kinds {
        // A flush of a pool is not one of volatile memory, whatever it does.
        let is_needed = |uses: &Uses| code == Code::VolatileFlush || uses.useless < uses.all;
        let calls = calls.0.iter().filter(|(_, uses)| is_needed(uses));
        needed.extend(calls.map(|(&user, uses)| NeededCall {
            code,
            user,
            is_site: uses.is_site,
        }));
    }
    needed.sort_unstable();
    needed
}

fn frame(trace: &Trace, node: StackId) -> Option<Frame> {
    trace.stack_node(node).map(|node| node.frame)
}

/// Overwrites in lines that were flushed after all.
fn count_overwrites(pass: &mut Pass<'_>) {
    for ((line, ..), (places, count)) in std::mem::take(&mut pass.overwrites) {
        if pass.ever_flushed(line) {
            pass.tallies.add_many(Code::DirtyOverwrite, &places, count);
        }
    }
}

/// Stores of which at least one byte is not durable in the end.
fn count_losses(pass: &mut Pass<'_>, trace: &Trace) {
    let mut meant = MeantToLast::new(pass, trace);
    // A store that crosses lines is one loss, and the worst that any of its lines says.
    let mut crossing: FxHashMap<u64, (Code, LineSlot, Store)> = FxHashMap::default();
    let (lines, stores) = (&pass.lines, &pass.stores);
    for open in lines.open_slots() {
        let opened = lines.opened(open);
        for store in stores.list(opened.stores) {
            if store.has(flag::SILENT) {
                continue;
            }
            let user = pass.users.of_store(store.stack).node();
            let line = opened.line;
            let is_meant = meant.contains(trace, store.stack, user);
            let Some(mut code) = judge(pass, line, store, is_meant) else {
                continue;
            };
            if code == Code::StoreNotFlushed && is_of_neglected_object(pass, line, store) {
                code = Code::ObjectNotPersisted;
            }
            if store.has(flag::CROSSING) {
                let found = (code, line, *store);
                let entry = crossing.entry(store.event).or_insert(found);
                if (code, line) < (entry.0, entry.1) {
                    *entry = found;
                }
            } else {
                add_loss(&mut pass.tallies, &mut pass.users, code, store);
            }
        }
    }
    for (code, _, store) in crossing.into_values() {
        add_loss(&mut pass.tallies, &mut pass.users, code, &store);
    }
}

fn add_loss(tallies: &mut Tallies, users: &mut Attribution<'_>, code: Code, store: &Store) {
    let lost = Seen::new(store.event, store.stack, users.of_store(store.stack));
    if code == Code::FlushNotFenced && store.flush_event != NO_FLUSH {
        let user = users.of_order(store.flush_stack);
        if user.is_attributed() {
            let flush = Seen::new(store.flush_event, store.flush_stack, user);
            tallies.add_loss(code, &[lost, flush]);
            return;
        }
    }
    tallies.add_loss(code, &[lost]);
}

/// The frames whose stores are meant to last, as others of them show.
struct MeantToLast {
    frames: FxHashSet<Option<Frame>>,
    /// The answer for each stack that was asked about.
    by_stack: Vec<Option<bool>>,
}

/// The user's frames of the stores at these call stacks.
fn users_frames(
    stacks: &[bool],
    users: &mut Attribution<'_>,
    trace: &Trace,
) -> FxHashSet<Option<Frame>> {
    let mut frames = FxHashSet::default();
    for (stack, _) in stacks.iter().enumerate().filter(|(_, is_in)| **is_in) {
        let user = users.of_store(StackId(stack as u32));
        if user.is_attributed() {
            frames.insert(frame(trace, user.node()));
        }
    }
    frames
}

impl MeantToLast {
    fn new(pass: &mut Pass<'_>, trace: &Trace) -> Self {
        Self {
            frames: users_frames(&pass.flushed_sites, &mut pass.users, trace),
            by_stack: vec![None; trace.stack_count() as usize + 1],
        }
    }

    fn contains(&mut self, trace: &Trace, stack: StackId, user: StackId) -> bool {
        let frames = &self.frames;
        let answer = &mut self.by_stack[stack.0 as usize];
        *answer.get_or_insert_with(|| frames.contains(&frame(trace, user)))
    }
}

/// What the loss of a store is, if it is anything.
fn judge(pass: &Pass<'_>, line: LineSlot, store: &Store, meant_to_last: bool) -> Option<Code> {
    if store.has(flag::FLUSHED) {
        return (pass.domain != Domain::PageCache).then_some(Code::FlushNotFenced);
    }
    if pass.domain == Domain::Eadr {
        return None;
    }
    let is_lock = pass.lines.line(line).locked_words & words(store.live) != 0
        && pass.addresses.at_address(store.value).is_none();
    match (pass.ever_flushed(line), is_lock) {
        (true, true) => None,
        (true, false) => Some(Code::StoreNotFlushed),
        (false, false) if meant_to_last => Some(Code::StoreNotFlushed),
        (false, _) => Some(Code::TransientData),
    }
}

/// Whether a store outside of transactions changed an object that only its library has ever flushed there.
fn is_of_neglected_object(pass: &Pass<'_>, line: LineSlot, store: &Store) -> bool {
    if store.has(flag::TRANSACTION) || pass.lines.line(line).has(line_flag::USER_FLUSHED) {
        return false;
    }
    let (pool, number) = pass.lines.id(line);
    let byte = PoolRange {
        pool,
        offset: PoolOffset(number * LINE_BYTES + u64::from(store.live.trailing_zeros())),
        len: 1,
    };
    let objects = &pass.transactions.objects;
    objects.overlapping(byte).next().is_some()
}

/// Flushes and fences that did nothing, and adds.
fn useless_calls(pass: &mut Pass<'_>) -> Vec<Hit> {
    // A function that flushes volatile memory for one caller flushes pools for others.
    if !pass.volatile_flushes.0.is_empty() {
        pass.volatile_flushes.add_useful(&pass.flushes);
    }
    let completing = lines_with(&pass.completing_fences, &mut pass.users);
    let kinds = [
        (Code::RedundantFlush, Role::Flush, &pass.flushes),
        (Code::RedundantFence, Role::Fence, &pass.fences),
        (Code::VolatileFlush, Role::Flush, &pass.volatile_flushes),
    ];
    let mut hits = Vec::new();
    for (code, role, calls) in kinds {
        let culprits = culprits(calls, &mut pass.users).into_iter();
        // A flush of volatile memory is the wrong flush, however often it is the right one.
        let culprits = culprits.filter(|it| code == Code::VolatileFlush || it.is_mostly_useless());
        hits.extend(culprits.map(|culprit| {
            let hit = of_culprit(code, role, &culprit);
            let has_fence = role == Role::Flush && completing.contains(&culprit.key);
            Hit {
                caution: has_fence.then_some(Caution::NeededFence),
                ..hit
            }
        }));
    }
    // What it does for other threads is not seen, so that one execution which may be needed is enough.
    let full = culprits(&pass.full_fences, &mut pass.users).into_iter();
    let full = full.filter(Culprit::is_always_useless);
    hits.extend(full.map(|culprit| Hit {
        caution: Some(Caution::OrdersThreads),
        ..of_culprit(Code::RedundantFence, Role::Fence, &culprit)
    }));
    hits.extend(useless_adds(pass));
    hits
}

fn of_culprit(code: Code, role: Role, culprit: &Culprit) -> Hit {
    let site = HitSite {
        inlined: culprit.inlined,
        ..site(role, culprit.first)
    };
    Hit {
        code,
        sites: vec![site],
        count: culprit.useless,
        of: Some(culprit.all),
        is_caller: culprit.is_caller,
        caution: None,
        is_left_dirty: false,
        confirmed: true,
        more: Vec::new(),
    }
}

/// Adds to transactions that were not needed.
fn useless_adds(pass: &mut Pass<'_>) -> Vec<Hit> {
    let transactions = &pass.transactions;
    let duplicates = culprits(&transactions.duplicates, &mut pass.users);
    let unused = culprits(&transactions.unused, &mut pass.users);
    let duplicates = duplicates.into_iter().filter(Culprit::is_mostly_useless);
    // What is stored to at other times is added for those.
    let unused = unused.into_iter().filter(Culprit::is_always_useless);
    let duplicates = duplicates.map(|it| (Code::DuplicateAdd, it));
    let unused = unused.map(|it| (Code::AddWithoutStore, it));
    let hits = duplicates.chain(unused).map(|(code, culprit)| {
        let mut hit = of_culprit(code, Role::Add, &culprit);
        let partner = transactions.partners.get(&culprit.first.event);
        hit.sites.extend(partner.map(|partner| match *partner {
            Partner::Add(seen) => site(Role::Add, seen),
            Partner::Allocation(seen) => site(Role::Allocation, seen),
            Partner::Commit(seen) => site(Role::Commit, seen),
        }));
        hit
    });
    hits.collect()
}

/// The tallies, put together where the frames are the same.
fn by_frames(mut pass: Pass<'_>, trace: &Trace) -> Vec<Hit> {
    let prompt = std::mem::take(&mut pass.prompt_sites);
    let prompt = users_frames(&prompt, &mut pass.users, trace);
    let late = std::mem::take(&mut pass.late_sites);
    let late = users_frames(&late, &mut pass.users, trace);
    let mut stores: FxHashMap<Option<Frame>, Vec<EventIndex>> = FxHashMap::default();
    for (node, events) in &pass.transactions.stores {
        let all = stores.entry(frame(trace, *node)).or_default();
        all.extend(events.iter().copied().map(EventIndex));
    }
    for events in stores.values_mut() {
        events.sort_unstable();
    }
    // What is said of a neighbour says that the line is shared, and what is wrong with that.
    let neighbours = pass.neighbour_flushes.iter();
    let neighbours: FxHashSet<_> = neighbours.map(|node| frame(trace, *node)).collect();
    let mut merged: FxHashMap<(Code, Option<Frame>, Option<Frame>, usize), Tally> =
        FxHashMap::default();
    for (code, tally) in pass.tallies.into_iter() {
        let flush = tally.first.first().map(|seen| frame(trace, seen.user));
        if code == Code::SharedFlush && flush.is_some_and(|flush| neighbours.contains(&flush)) {
            continue;
        }
        let distinct = match code {
            Code::SharedFlush
            | Code::UnorderedFlushes
            | Code::NeighbourFlush
            | Code::LateFlush
            | Code::StoreNotAdded => 1,
            _ => tally.first.len(),
        };
        let of = |place: usize| {
            let seen = tally.first.get(place).filter(|_| place < distinct);
            seen.and_then(|seen| frame(trace, seen.user))
        };
        match merged.entry((code, of(0), of(1), distinct)) {
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(tally);
            }
            std::collections::hash_map::Entry::Occupied(mut entry) => {
                let entry = entry.get_mut();
                entry.count += tally.count;
                entry.events.extend(&tally.events);
                if tally.first < entry.first {
                    entry.first = tally.first;
                }
            }
        }
    }
    let hits = merged.into_iter().map(|((code, place, ..), tally)| {
        let more = match code {
            Code::StoreNotAdded => stores.remove(&place).unwrap_or_default(),
            _ => {
                let mut events: Vec<_> = tally.events.iter().copied().map(EventIndex).collect();
                events.sort_unstable();
                events.truncate(EVENTS_MAX);
                events
            }
        };
        let roles = roles(code);
        let sites = tally.first.iter().zip(roles);
        Hit {
            code,
            sites: sites.map(|(seen, role)| site(*role, *seen)).collect(),
            count: tally.count,
            of: None,
            is_caller: false,
            caution: None,
            is_left_dirty: code == Code::StoreNotFlushed
                && late.contains(&place)
                && !prompt.contains(&place),
            confirmed: !matches!(code, Code::PublishedBeforeDurable | Code::StoreNotAdded),
            more,
        }
    });
    hits.collect()
}

/// The parts of the events of a hit, in their order.
fn roles(code: Code) -> &'static [Role] {
    match code {
        Code::FlushNotFenced | Code::NeighbourFlush | Code::LateFlush => {
            &[Role::Store, Role::Flush]
        }
        Code::PublishedBeforeDurable => &[Role::Store, Role::Publish],
        Code::StoreNotAdded => &[Role::Store, Role::Transaction],
        Code::DirtyOverwrite => &[Role::Store, Role::Overwrite],
        Code::SharedFlush => &[Role::Flush, Role::Store, Role::Store],
        Code::UnorderedFlushes => &[Role::Fence, Role::Flush, Role::Flush],
        _ => &[Role::Store],
    }
}

fn site(role: Role, seen: Seen) -> HitSite {
    HitSite {
        role,
        stack: seen.stack,
        user: seen.user,
        inlined: 0,
        event: EventIndex(seen.event),
        thread: ThreadIndex(0),
        place: None,
        address: None,
        len_bytes: 0,
        bytes: Vec::new(),
    }
}

/// Reads the events of the hits once more and takes from them what the pass had no room for.
fn describe(trace: &Trace, hits: &mut [Hit]) -> Result<()> {
    let mut sites: Vec<&mut HitSite> = hits.iter_mut().flat_map(|hit| &mut hit.sites).collect();
    sites.sort_by_key(|site| site.event);
    let mut next = 0;
    let mut block = EventBlock::default();
    for (number, descriptor) in trace.event_blocks().iter().enumerate() {
        let end = descriptor.first_event + u64::from(descriptor.event_count);
        if sites.get(next).is_none_or(|site| site.event.0 >= end) {
            continue;
        }
        trace.read_block_into(number, &mut block)?;
        for record in block.records() {
            let record = record?;
            while let Some(site) = sites.get_mut(next)
                && site.event == record.index
            {
                describe_site(site, &record);
                next += 1;
            }
        }
    }
    Ok(())
}

fn describe_site(site: &mut HitSite, record: &Record<'_>) {
    site.thread = record.thread;
    match record.body {
        Body::Pm(Event::Store { at, bytes, .. }) => {
            site.place = Some(at);
            site.len_bytes = bytes.len() as u64;
            site.bytes = bytes[..bytes.len().min(HitSite::MAX_BYTES)].to_vec();
        }
        Body::Pm(Event::Flush { at, .. }) => site.place = Some(at),
        Body::Pm(Event::Sync { pool, offset, .. }) => site.place = Some(Place::new(pool, offset)),
        Body::VolatileFlush { address, .. } => site.address = Some(address),
        Body::Mark(mark) => {
            let MarkKind::Annotation(annotation) = mark.kind else {
                return;
            };
            let has_ranges = annotation.has_ranges();
            let first = AnnotatedRange::all(mark.payload)
                .next()
                .filter(|_| has_ranges);
            if let Some(range) = first.and_then(PoolRange::of_mark) {
                site.place = Some(Place::new(range.pool, range.offset));
                site.len_bytes = range.len;
            }
        }
        _ => {}
    }
}
