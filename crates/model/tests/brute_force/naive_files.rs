//! A second reading of the rules in `docs/design/files.md`: whole histories, every cut of the log, every length and every
//! number of surviving writes of every sector, and a look at each combination whether the rules permit it.

#![allow(
    clippy::similar_names,
    clippy::collapsible_match,
    clippy::double_ended_iterator_last,
    clippy::too_many_lines,
    reason = "the plainest form of a rule, not the shortest"
)]

use std::collections::{BTreeMap, BTreeSet};

pub(crate) const SECTOR: u64 = 512;
pub(crate) const PAGE: u64 = 4096;

pub(crate) type Node = u32;
/// A directory and a name.
pub(crate) type Place = (Node, &'static str);

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Create(Node, Place),
    Mkdir(Node, Place),
    Link(Node, Place),
    Unlink(Node, Place),
    Rename(Node, Place, Place, Option<Node>),
    Write(Node, u64, u64),
    Truncate(Node, u64),
    Punch(Node, u64, u64),
    Allocate(Node, u64),
    Sync(Node, bool),
    SyncAll,
    Close(Node),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fs {
    Posix,
    Ext4,
    Xfs,
    Btrfs,
}

/// A tree: paths, and for files their length and the operation whose bytes begin at each offset (-1: zeros, -2: the initial
/// content).
pub(crate) type Tree = BTreeMap<String, Option<Content>>;
/// The length of a file, and what begins where.
pub(crate) type Content = (u64, Vec<(u64, i64)>);

pub(crate) struct World {
    pub(crate) fs: Fs,
    pub(crate) ops: Vec<Op>,
    /// Files that exist from the beginning, with their lengths. Node 0 is the root.
    pub(crate) initial: Vec<(Node, Place, u64)>,
}

impl World {
    fn entries(op: &Op) -> Vec<(Place, Option<Node>)> {
        match *op {
            Op::Create(n, p) | Op::Mkdir(n, p) | Op::Link(n, p) => vec![(p, Some(n))],
            Op::Unlink(_, p) => vec![(p, None)],
            Op::Rename(n, from, to, _) => vec![(from, None), (to, Some(n))],
            _ => vec![],
        }
    }

    fn named_nodes(op: &Op) -> Vec<Node> {
        match *op {
            Op::Create(n, _) | Op::Mkdir(n, _) | Op::Link(n, _) | Op::Unlink(n, _) => vec![n],
            Op::Rename(n, _, _, replaced) => std::iter::once(n).chain(replaced).collect(),
            _ => vec![],
        }
    }

    fn is_names(op: &Op) -> bool {
        !Self::entries(op).is_empty()
    }

    fn len_before(&self, node: Node, at: usize) -> u64 {
        let initial = self.initial.iter().find(|(n, _, _)| *n == node);
        let mut len = initial.map_or(0, |(_, _, len)| *len);
        for op in &self.ops[..at] {
            match *op {
                Op::Write(n, offset, count) if n == node => len = len.max(offset + count),
                Op::Truncate(n, new) if n == node => len = new,
                Op::Allocate(n, end) if n == node => len = len.max(end),
                _ => {}
            }
        }
        len
    }

    /// The history of the length: operation, length, whether the log has it.
    fn lengths(&self, node: Node) -> Vec<(usize, u64, bool)> {
        let mut all = vec![];
        for (i, op) in self.ops.iter().enumerate() {
            let before = self.len_before(node, i);
            let after = self.len_before(node, i + 1);
            let logged = match *op {
                Op::Write(n, _, _) if n == node => false,
                Op::Truncate(n, _) | Op::Allocate(n, _) if n == node => true,
                _ => continue,
            };
            if before != after {
                all.push((i, after, logged));
            }
        }
        all
    }

    /// The history of a sector: operation, whether the log has it, and whether it takes something away: with both, the
    /// block is gone; with the second alone, it is the zeros behind the new end of the file in its last page.
    fn sector(&self, node: Node, sector: u64) -> Vec<(usize, bool, bool)> {
        let (start, end) = (sector * SECTOR, (sector + 1) * SECTOR);
        let page = sector * SECTOR / PAGE * PAGE;
        let mut all = vec![];
        for (i, op) in self.ops.iter().enumerate() {
            let len = self.len_before(node, i);
            match *op {
                Op::Write(n, offset, count) if n == node && count > 0 => {
                    if offset < end && offset + count > start {
                        all.push((i, false, false));
                    }
                }
                Op::Truncate(n, new) if n == node && new < len => {
                    if page >= new {
                        all.push((i, true, true));
                    } else if end > new {
                        all.push((i, false, true));
                    }
                }
                // Whole pages lose their block; the model is only asked for such.
                Op::Punch(n, offset, count) if n == node => {
                    let to = if offset + count >= len {
                        len.div_ceil(PAGE) * PAGE
                    } else {
                        offset + count
                    };
                    if offset.min(len) <= start && end <= to && offset < len {
                        all.push((i, true, true));
                    }
                }
                _ => {}
            }
        }
        all
    }

    /// Whether all of a sector lies behind the end that a truncation gave the file.
    fn cuts_off(&self, i: usize, sector: u64) -> bool {
        matches!(self.ops[i], Op::Truncate(_, new) if sector * SECTOR >= new)
    }

    fn full_syncs(&self, node: Node) -> impl Iterator<Item = usize> + '_ {
        let ops = self.ops.iter().enumerate();
        ops.filter(move |(_, op)| match op {
            Op::Sync(n, _) => *n == node,
            Op::SyncAll => true,
            _ => false,
        })
        .map(|(i, _)| i)
    }

    /// When all of a file was durable for the last time before a moment: a number of operations.
    fn sure(&self, node: Node, before: usize) -> usize {
        let last = self.full_syncs(node).filter(|&i| i < before).last();
        last.unwrap_or(0)
    }

    /// Whether a page has a block at a moment at which all of the file is durable.
    fn has_block(&self, node: Node, page: u64, at: usize) -> bool {
        let initial = self.initial.iter().find(|(n, _, _)| *n == node);
        let mut block = initial.is_some_and(|(_, _, len)| page * PAGE < *len);
        for i in 0..at {
            for s in 0..PAGE / SECTOR {
                let history = self.sector(node, page * (PAGE / SECTOR) + s);
                if let Some((_, logged, gone)) = history.iter().find(|e| e.0 == i) {
                    match (*logged, *gone) {
                        (true, true) => block = false,
                        (false, false) => block = true,
                        _ => {}
                    }
                }
            }
        }
        block
    }

    /// The first write to a page after a moment.
    fn first_write(&self, node: Node, page: u64, after: usize) -> Option<usize> {
        let sectors = page * (PAGE / SECTOR)..(page + 1) * (PAGE / SECTOR);
        let writes = sectors.flat_map(|s| self.sector(node, s));
        writes
            .filter(|(i, logged, gone)| !logged && !gone && *i >= after)
            .map(|(i, _, _)| i)
            .min()
    }

    fn forced(&self, node: Node) -> Vec<usize> {
        if self.fs != Fs::Ext4 {
            return vec![];
        }
        let mut all = vec![];
        let mut emptied = false;
        let is_file = |n: Node| {
            let made = self
                .ops
                .iter()
                .any(|op| matches!(op, Op::Create(m, _) if *m == n));
            made || self.initial.iter().any(|(m, _, _)| *m == n)
        };
        for (i, op) in self.ops.iter().enumerate() {
            match *op {
                Op::Truncate(n, 0) if n == node => emptied |= self.len_before(node, i) > 0,
                Op::Close(n) if n == node => {
                    if std::mem::take(&mut emptied) && self.delayed(node, i) {
                        all.push(i);
                    }
                }
                Op::Rename(n, _, _, Some(replaced)) if n == node && is_file(replaced) => {
                    if self.delayed(node, i) {
                        all.push(i);
                    }
                }
                _ => {}
            }
        }
        all
    }

    /// Whether a file has a length or pages that are not in the log at a moment.
    fn delayed(&self, node: Node, at: usize) -> bool {
        let sure = self.sure(node, at);
        let lengths = self.lengths(node);
        let open = lengths.iter().filter(|(i, _, _)| *i >= sure && *i < at);
        if open.last().is_some_and(|(_, _, logged)| !logged) {
            return true;
        }
        let pages = self.len_max(node).div_ceil(PAGE);
        (0..pages).any(|page| {
            // The last time that the whole page lost its block.
            let first = page * (PAGE / SECTOR);
            let gone = self.sector(node, first);
            let gone = gone
                .iter()
                .filter(|(i, logged, _)| *logged && *i >= sure && *i < at);
            let (fresh, after) = match gone.last() {
                Some((i, _, _)) => (true, i + 1),
                None => (!self.has_block(node, page, sure), sure),
            };
            fresh && self.first_write(node, page, after).is_some_and(|i| i < at)
        })
    }

    fn len_max(&self, node: Node) -> u64 {
        (0..=self.ops.len())
            .map(|i| self.len_before(node, i))
            .max()
            .unwrap_or(0)
    }

    fn files(&self) -> BTreeSet<Node> {
        let made = self.ops.iter().filter_map(|op| match op {
            Op::Create(n, _) => Some(*n),
            _ => None,
        });
        made.chain(self.initial.iter().map(|(n, _, _)| *n))
            .collect()
    }

    /// The operations on names that are surely durable, and how much of the log is.
    fn sure_names(&self) -> (BTreeSet<usize>, usize) {
        let mut names = BTreeSet::new();
        let mut log = 0;
        for (j, op) in self.ops.iter().enumerate() {
            let earlier = || (0..j).filter(|&i| Self::is_names(&self.ops[i]));
            match *op {
                Op::SyncAll => {
                    names.extend(earlier());
                    log = j;
                }
                Op::Sync(node, data_only) => match self.fs {
                    Fs::Ext4 | Fs::Xfs => {
                        let touches = |i: usize| match self.ops[i] {
                            Op::Write(n, offset, count) => {
                                let grows = offset + count > self.len_before(n, i);
                                n == node && count > 0 && (grows || !data_only)
                            }
                            Op::Truncate(n, len) => {
                                n == node && (!data_only || len != self.len_before(n, i))
                            }
                            Op::Punch(n, offset, _) => {
                                let some = offset < self.len_before(n, i)
                                    && self.something_between(n, i, offset);
                                n == node && (!data_only || some)
                            }
                            Op::Allocate(n, end) => {
                                n == node && (!data_only || end > self.len_before(n, i))
                            }
                            Op::Create(n, p) | Op::Mkdir(n, p) => n == node || p.0 == node,
                            ref other => {
                                let named = Self::named_nodes(other).contains(&node) && !data_only;
                                named || Self::entries(other).iter().any(|(p, _)| p.0 == node)
                            }
                        };
                        let target = if self.delayed(node, j) {
                            j
                        } else {
                            (0..j).rfind(|&i| touches(i)).map_or(0, |i| i + 1)
                        };
                        log = log.max(target);
                    }
                    Fs::Btrfs | Fs::Posix => {
                        let mut set: BTreeSet<usize> = earlier()
                            .filter(|&i| {
                                let entries = Self::entries(&self.ops[i]);
                                entries.iter().any(|(p, _)| p.0 == node)
                            })
                            .collect();
                        if self.fs == Fs::Btrfs {
                            let mut nodes = BTreeSet::from([node]);
                            for _ in 0..=self.ops.len() {
                                for i in earlier().filter(|i| !names.contains(i)) {
                                    let of = Self::named_nodes(&self.ops[i]);
                                    if of.iter().any(|n| nodes.contains(n)) {
                                        set.insert(i);
                                        nodes.extend(
                                            Self::entries(&self.ops[i]).iter().map(|(p, _)| p.0),
                                        );
                                    }
                                }
                            }
                        }
                        for _ in 0..=self.ops.len() {
                            for i in earlier() {
                                let later = set.iter().any(|&k| k > i && self.share(i, k));
                                if later {
                                    set.insert(i);
                                }
                            }
                        }
                        names.extend(set);
                    }
                },
                _ => {}
            }
        }
        if matches!(self.fs, Fs::Ext4 | Fs::Xfs) {
            names.extend((0..log).filter(|&i| Self::is_names(&self.ops[i])));
        }
        (names, log)
    }

    /// Whether a file may have something but holes from a page on.
    fn something_between(&self, node: Node, at: usize, offset: u64) -> bool {
        let last = self.len_before(node, at).div_ceil(PAGE);
        (offset / PAGE..last).any(|page| {
            let sure = self.sure(node, at);
            self.has_block(node, page, sure)
                || (0..PAGE / SECTOR).any(|s| {
                    let history = self.sector(node, page * (PAGE / SECTOR) + s);
                    history.iter().any(|(i, _, _)| *i >= sure && *i < at)
                })
        })
    }

    fn share(&self, a: usize, b: usize) -> bool {
        let (a, b) = (Self::entries(&self.ops[a]), Self::entries(&self.ops[b]));
        a.iter().any(|(p, _)| b.iter().any(|(q, _)| p == q))
    }

    /// All trees that a crash after the last operation can leave.
    pub(crate) fn trees(&self) -> BTreeSet<Tree> {
        let mut all = BTreeSet::new();
        let (sure, log) = self.sure_names();
        let of_names: Vec<usize> = (0..self.ops.len())
            .filter(|&i| Self::is_names(&self.ops[i]))
            .collect();
        if self.fs == Fs::Posix {
            for bits in 0..1_u32 << of_names.len() {
                let kept: BTreeSet<usize> = of_names
                    .iter()
                    .enumerate()
                    .filter(|(place, _)| bits >> place & 1 == 1)
                    .map(|(_, &i)| i)
                    .collect();
                let closed = kept.iter().all(|&k| {
                    of_names
                        .iter()
                        .all(|&i| i > k || kept.contains(&i) || !self.share(i, k))
                });
                if closed && sure.is_subset(&kept) {
                    self.trees_of(&kept, self.ops.len(), &mut all);
                }
            }
        } else {
            for cut in log..=self.ops.len() {
                let kept = of_names
                    .iter()
                    .copied()
                    .filter(|&i| i < cut || sure.contains(&i));
                self.trees_of(&kept.collect(), cut, &mut all);
            }
        }
        all
    }

    fn trees_of(&self, kept: &BTreeSet<usize>, cut: usize, all: &mut BTreeSet<Tree>) {
        let mut names: BTreeMap<Place, Node> =
            self.initial.iter().map(|(n, p, _)| (*p, *n)).collect();
        for &i in kept {
            for (place, node) in Self::entries(&self.ops[i]) {
                match node {
                    Some(node) => names.insert(place, node),
                    None => names.remove(&place),
                };
            }
        }
        let mut paths = BTreeMap::new();
        Self::walk(&names, 0, "", &mut paths, 0);
        let files = self.files();
        let mut trees = vec![Tree::new()];
        let mut contents: BTreeMap<Node, BTreeSet<Content>> = BTreeMap::new();
        for node in paths.values().copied().collect::<BTreeSet<Node>>() {
            let mut next = vec![];
            let mine: Vec<&String> = paths
                .iter()
                .filter(|(_, n)| **n == node)
                .map(|(p, _)| p)
                .collect();
            let options: Vec<Option<Content>> = if files.contains(&node) {
                let found = contents
                    .entry(node)
                    .or_insert_with(|| self.contents(node, cut));
                found.iter().cloned().map(Some).collect()
            } else {
                vec![None]
            };
            for tree in &trees {
                for option in &options {
                    let mut tree = tree.clone();
                    for path in &mine {
                        tree.insert((*path).clone(), option.clone());
                    }
                    next.push(tree);
                }
            }
            trees = next;
        }
        all.extend(trees);
    }

    fn walk(
        names: &BTreeMap<Place, Node>,
        directory: Node,
        path: &str,
        paths: &mut BTreeMap<String, Node>,
        depth: usize,
    ) {
        if depth > 8 {
            return;
        }
        for ((parent, name), node) in names {
            if *parent == directory {
                let path = format!("{path}/{name}");
                Self::walk(names, *node, &path, paths, depth + 1);
                paths.insert(path, *node);
            }
        }
    }

    /// All lengths and contents of a file if the log is durable up to a cut.
    fn contents(&self, node: Node, cut: usize) -> BTreeSet<Content> {
        let ordered = self.fs != Fs::Posix;
        let end = self.ops.len();
        let sure = self.sure(node, end);
        let history = self.lengths(node);
        let sure_len = self.len_before(node, sure);
        let forced: Vec<usize> = self
            .forced(node)
            .into_iter()
            .filter(|&x| x >= sure)
            .collect();
        let must_have = |i: usize| forced.iter().any(|&x| x < cut && i < x);
        let mut all = BTreeSet::new();
        // Each length: how many changes survive, and an end inside of the next one.
        let open: Vec<(usize, u64, bool)> =
            history.iter().copied().filter(|e| e.0 >= sure).collect();
        let mut lens: Vec<(u64, usize, Option<usize>)> = vec![];
        for kept in 0..=open.len() {
            let fits = open.iter().enumerate().all(|(place, &(i, _, logged))| {
                let there = place < kept;
                if !ordered {
                    true
                } else if logged {
                    there == (i < cut)
                } else {
                    !there || i < cut
                }
            });
            let superseded = |place: usize| {
                open[place + 1..]
                    .iter()
                    .any(|&(j, _, logged)| logged && ordered && j < cut)
            };
            let forced_fits = (0..open.len())
                .all(|place| place < kept || superseded(place) || !must_have(open[place].0));
            let before = if kept == 0 {
                sure_len
            } else {
                open[kept - 1].1
            };
            let mut by = (kept > 0 && !open[kept - 1].2).then(|| open[kept - 1].0);
            // Btrfs has the new length when it has written the zeros behind the old end.
            if let Some(i) = by
                && let Op::Write(_, from, _) = self.ops[i]
                && self.fs == Fs::Btrfs
            {
                let old = if kept > 1 { open[kept - 2].1 } else { sure_len };
                if old % PAGE != 0 && old.div_ceil(PAGE) * PAGE <= from {
                    by = None;
                }
            }
            if fits && forced_fits {
                lens.push((before, kept, by));
            }
            if let Some(&(i, after, false)) = open.get(kept) {
                let partly_fits = !ordered
                    || (i < cut
                        && !must_have(i)
                        && open.iter().enumerate().all(|(place, &(j, _, logged))| {
                            let there = place < kept;
                            if logged {
                                there == (j < cut)
                            } else {
                                !there || j < cut
                            }
                        })
                        && forced_fits);
                if partly_fits {
                    // The file can end inside of what is written, not in the hole before it; on xfs with the page of its old
                    // end, whose rest is zeroed.
                    let Op::Write(_, from, _) = self.ops[i] else {
                        unreachable!("only writes are delayed")
                    };
                    let page_end = before.div_ceil(PAGE) * PAGE;
                    if self.fs == Fs::Xfs && before != page_end && page_end <= from {
                        lens.push((page_end, kept, Some(i)));
                    }
                    let mut at = (before.max(from) / PAGE + 1) * PAGE;
                    while at < after {
                        lens.push((at, kept, Some(i)));
                        at += PAGE;
                    }
                }
            }
        }
        for (len, kept, made_by) in lens {
            let length_cut = open.get(kept).map_or(end, |e| e.0);
            self.sectors(node, cut, len, length_cut, made_by, &mut all);
        }
        all
    }

    fn sectors(
        &self,
        node: Node,
        cut: usize,
        len: u64,
        length_cut: usize,
        made_by: Option<usize>,
        all: &mut BTreeSet<Content>,
    ) {
        let end = self.ops.len();
        let sure = self.sure(node, end);
        let count = len.div_ceil(SECTOR);
        let per_page = PAGE / SECTOR;
        // For each sector the moments up to which its writes can have survived.
        let mut options: Vec<Vec<usize>> = vec![];
        for s in 0..count {
            let history: Vec<_> = self
                .sector(node, s)
                .into_iter()
                .filter(|e| e.0 >= sure)
                .collect();
            let page = s / per_page;
            let mut moments = BTreeSet::new();
            for kept in 0..=history.len() {
                let fits = |place: usize| {
                    let (i, logged, gone) = history[place];
                    let there = place < kept;
                    if self.fs == Fs::Posix {
                        return true;
                    }
                    if logged {
                        return there == (i < cut);
                    }
                    if there && self.fs == Fs::Btrfs && i >= cut {
                        return false;
                    }
                    // What is sure because the log says so: a block that is gone, an end of the file before this sector.
                    let decided = |e: &&(usize, bool, bool)| {
                        e.0 < cut && (e.1 || (e.2 && self.cuts_off(e.0, s)))
                    };
                    let removed = history.iter().filter(decided).last();
                    let after = removed.map_or(sure, |e| e.0 + 1);
                    if i < after {
                        // Nothing before it, nor itself, can be lost.
                        return there;
                    }
                    if gone {
                        return true;
                    }
                    let fresh = removed.map_or(!self.has_block(node, page, sure), |e| e.1);
                    let first = self.first_write(node, page, after).filter(|_| fresh);
                    if self.fs != Fs::Btrfs && there && first.is_some_and(|first| first >= cut) {
                        return false;
                    }
                    let Some(made_by) = made_by else { return true };
                    match self.fs {
                        Fs::Xfs | Fs::Btrfs => {
                            let last_page = (len - 1) / PAGE == page;
                            there || !(last_page && i <= made_by)
                        }
                        Fs::Ext4 | Fs::Posix => true,
                    }
                };
                if (0..history.len()).all(fits) {
                    moments.insert(history.get(kept).map_or(end, |e| e.0));
                }
            }
            options.push(moments.into_iter().collect());
        }
        // One moment for each sector, or for each page.
        let mut choices: Vec<Vec<usize>> = vec![vec![]];
        if self.fs == Fs::Btrfs {
            for page in 0..len.div_ceil(PAGE) {
                let mine = &options
                    [(page * per_page) as usize..((page + 1) * per_page).min(count) as usize];
                let moments: BTreeSet<Vec<usize>> = (0..=end)
                    .map(|moment| {
                        // The nearest that the sector can have: what the log has decided is decided.
                        mine.iter()
                            .enumerate()
                            .map(|(s, options)| {
                                let history = self.sector(node, page * per_page + s as u64);
                                let count_at =
                                    |m: usize| history.iter().filter(|e| e.0 < m).count();
                                let wanted = count_at(moment);
                                let (low, high) = (options[0], options[options.len() - 1]);
                                if wanted < count_at(low) {
                                    low
                                } else if wanted > count_at(high) {
                                    high
                                } else {
                                    moment
                                }
                            })
                            .collect()
                    })
                    .collect();
                choices = choices
                    .iter()
                    .flat_map(|c| moments.iter().map(move |m| [c.clone(), m.clone()].concat()))
                    .collect();
            }
        } else {
            for moments in &options {
                choices = choices
                    .iter()
                    .flat_map(|c| moments.iter().map(move |m| [c.clone(), vec![*m]].concat()))
                    .collect();
            }
        }
        for choice in choices {
            all.insert((len, self.content(node, len, length_cut, &choice)));
        }
    }

    /// The bytes of a file where the sectors have lost the operations from their moments on, and the length those from
    /// its cut on.
    fn content(
        &self,
        node: Node,
        len: u64,
        length_cut: usize,
        moments: &[usize],
    ) -> Vec<(u64, i64)> {
        let initial = self.initial.iter().find(|(n, _, _)| *n == node);
        let initial = initial.map_or(0, |(_, _, len)| *len);
        let mut runs: Vec<(u64, i64)> = vec![];
        for at in (0..len).step_by(4) {
            let moment = moments[(at / SECTOR) as usize];
            let mut tag = if at < initial { -2 } else { -1 };
            for (i, op) in self.ops.iter().enumerate() {
                match *op {
                    Op::Write(n, offset, count) if n == node => {
                        if i < moment && offset <= at && at < offset + count {
                            tag = i64::try_from(i).expect("a short list");
                        }
                    }
                    Op::Truncate(n, new) if n == node && new < self.len_before(node, i) => {
                        // The last page is cut with the length, or when its zeros are there; the others have versions.
                        let inside = at / PAGE == new / PAGE && !new.is_multiple_of(PAGE);
                        let there = i < moment || (inside && i < length_cut);
                        if there && at >= new {
                            tag = -1;
                        }
                    }
                    Op::Punch(n, offset, count) if n == node => {
                        let before = self.len_before(node, i);
                        let to = if offset + count >= before {
                            u64::MAX
                        } else {
                            offset + count
                        };
                        if i < moment && offset <= at && at < to && offset < before {
                            tag = -1;
                        }
                    }
                    _ => {}
                }
            }
            if runs.last().is_none_or(|(_, last)| *last != tag) {
                runs.push((at, tag));
            }
        }
        runs
    }
}
