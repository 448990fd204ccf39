//! One tree of everything that recovery has observed, for many failure points.
//!
//! Recovery is a function of what it reads. A node of the tree is what recovery reads next, an edge is the value that it
//! reads, and a leaf is an execution. At a failure point the tree is walked with the values that are possible there:
//! an edge that exists needs no execution, because recovery has already shown what it does after that value. An edge
//! that is missing must be executed, and everything after it is new.
//!
//! That holds as long as every byte that differs between failure points is *watched*: its first read is in the tree,
//! also where its line has one content only. [`Segments`](crate::lazy::Segments) says which bytes these are. After a nested
//! failure there are others, which only recovery has changed: they select the [root](Watching).
//!
//! A read of bytes that were read before, or that recovery has overwritten, tells nothing new and is not in the tree.
//! An execution whose next read differs from that of the node shows that recovery is not a function of what it reads: a
//! [`Conflict`].

use std::borrow::Cow;
use std::collections::BTreeMap;

use powerfail_model::LineId;
use powerfail_protocol::observe::ByteSet;
use rustc_hash::FxHashMap;

use crate::lazy::digest::digest_bytes;
use crate::lazy::nested::CrashPoint;
use crate::lazy::seen::{Observed, Seen};
use crate::lazy::table::CrashTable;

/// The root of the executions after a crash that leaves nothing but watched lines in another state.
pub const COMMON_ROOT: u128 = 0;

/// The first read of some bytes of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Which line.
    pub id: LineId,
    /// Its bytes that were not read before.
    pub bytes: ByteSet,
    /// Not a read of recovery's: from here on the line is not watched any more, so all of the rest counts as read. Only
    /// if one value of it is possible; if there are several, nothing happens.
    pub is_rest: bool,
}

/// A step of an execution: what was read, and the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadStep<R> {
    /// What was read.
    pub reading: Reading,
    /// The bytes, in ascending order. Nothing where the rest of a line was not read, because several values of it were
    /// possible.
    pub value: Option<Box<[u8]>>,
    /// What else is known of the read. The first execution that makes it decides.
    pub about: R,
}

/// After the same values, recovery read something else, or did not end: it depends on more than what it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict;

/// The number of a leaf: an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeafIndex(u32);

/// Everything that recovery has observed. `R` is what is kept of a read, `L` of an execution.
#[derive(Clone, Debug)]
pub struct ObservationTree<R, L> {
    roots: FxHashMap<u128, Link>,
    nodes: Vec<Node<R>>,
    leaves: Vec<L>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Node(usize),
    Leaf(LeafIndex),
}

#[derive(Clone, Debug)]
struct Node<R> {
    reading: Reading,
    about: R,
    /// By the value of the read: there can be one for each failure point.
    edges: FxHashMap<Box<[u8]>, Link>,
    /// Where the read has no value.
    open: Option<Link>,
}

impl<R> Node<R> {
    fn edge(&self, value: Option<&[u8]>) -> Option<Link> {
        match value {
            Some(value) => self.edges.get(value).copied(),
            None => self.open,
        }
    }
}

impl<R, L> Default for ObservationTree<R, L> {
    fn default() -> Self {
        Self {
            roots: FxHashMap::default(),
            nodes: Vec::new(),
            leaves: Vec::new(),
        }
    }
}

/// Where a link of the tree is kept.
enum Place {
    Root(u128),
    Edge {
        node: usize,
        value: Option<Box<[u8]>>,
    },
}

impl<R, L> ObservationTree<R, L> {
    /// Adds an execution. Returns its leaf, and whether it is new. `root` stands for what differs in lines that are not
    /// watched.
    pub fn insert(
        &mut self,
        root: u128,
        steps: impl IntoIterator<Item = ReadStep<R>>,
        leaf: L,
    ) -> Result<(LeafIndex, bool), Conflict> {
        let mut place = Place::Root(root);
        let mut link = self.roots.get(&root).copied();
        for step in steps {
            let node = match link {
                Some(Link::Node(node)) if self.nodes[node].reading == step.reading => node,
                Some(_) => return Err(Conflict),
                None => {
                    let node = self.nodes.len();
                    self.nodes.push(Node {
                        reading: step.reading,
                        about: step.about,
                        edges: FxHashMap::default(),
                        open: None,
                    });
                    self.put(place, Link::Node(node));
                    node
                }
            };
            let value = step.value;
            link = self.nodes[node].edge(value.as_deref());
            place = Place::Edge { node, value };
        }
        match link {
            Some(Link::Leaf(known)) => Ok((known, false)),
            Some(Link::Node(_)) => Err(Conflict),
            None => {
                let number = u32::try_from(self.leaves.len()).map_err(|_| Conflict)?;
                self.leaves.push(leaf);
                self.put(place, Link::Leaf(LeafIndex(number)));
                Ok((LeafIndex(number), true))
            }
        }
    }

    fn put(&mut self, place: Place, link: Link) {
        match place {
            Place::Root(root) => {
                self.roots.insert(root, link);
            }
            Place::Edge {
                node,
                value: Some(value),
            } => {
                self.nodes[node].edges.insert(value, link);
            }
            Place::Edge { node, value: None } => self.nodes[node].open = Some(link),
        }
    }

    /// An execution.
    pub fn leaf(&self, leaf: LeafIndex) -> &L {
        &self.leaves[leaf.0 as usize]
    }

    /// How many executions there are.
    pub fn leaf_count(&self) -> usize {
        self.leaves.len()
    }

    /// How many reads there are.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }
}

/// The bytes that are watched after a crash, and the root of the executions there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watching<'s> {
    /// What is different in bytes that the segment does not watch.
    pub root: u128,
    /// Of each line, the bytes whose first read is noted: those of the segment, unless recovery has changed others.
    pub bytes: Cow<'s, BTreeMap<LineId, ByteSet>>,
}

impl<'s> Watching<'s> {
    /// `watched` are the bytes of the segment. `newest` gives the newest content of a line at the failure point of the
    /// recorded run.
    pub fn after(
        watched: &'s BTreeMap<LineId, ByteSet>,
        crash: &CrashPoint,
        newest: &dyn Fn(LineId) -> Vec<u8>,
    ) -> Self {
        let table = &crash.table;
        // Only recovery has changed these.
        let mut others: BTreeMap<LineId, Vec<&[u8]>> = BTreeMap::new();
        let mut more: BTreeMap<LineId, ByteSet> = BTreeMap::new();
        for (id, bytes) in crash.overlay.lines() {
            match watched.get(&id) {
                Some(watched) => {
                    let changed = ByteSet::differing(&newest(id), bytes).without(watched);
                    more.insert(id, changed);
                }
                None if newest(id) != bytes => {
                    others.insert(id, vec![bytes]);
                }
                None => {}
            }
        }
        for line in &table.lines {
            let contents = line.contents.iter().map(|content| &content.bytes[..]);
            match watched.get(&line.id) {
                // At the first failure, contents differ in watched bytes only.
                Some(_) if crash.origins.is_empty() => {}
                Some(watched) => {
                    let newest = newest(line.id);
                    let changed = contents.map(|bytes| ByteSet::differing(&newest, bytes));
                    let changed = changed.fold(ByteSet::EMPTY, |all, it| all.union(&it));
                    let more = more.entry(line.id).or_default();
                    *more = more.union(&changed.without(watched));
                }
                None => {
                    others.insert(line.id, contents.collect());
                }
            }
        }
        more.retain(|_, bytes| !bytes.is_empty());
        let whole = ByteSet::range(0, table.line_bytes);
        let mut bytes = Cow::Borrowed(watched);
        if !others.is_empty() || !more.is_empty() {
            let bytes = bytes.to_mut();
            bytes.extend(others.keys().map(|id| (*id, whole)));
            for (id, more) in &more {
                let bytes = bytes.entry(*id).or_default();
                *bytes = bytes.union(more);
            }
        }
        Self {
            root: root_of(others).wrapping_add(digest_of(&more)),
            bytes,
        }
    }
}

/// The digest of sets of bytes of lines; zero for none.
fn digest_of(lines: &BTreeMap<LineId, ByteSet>) -> u128 {
    let mut bytes: Vec<u8> = Vec::new();
    for (id, set) in lines {
        let numbers = [u64::from(id.pool.0), id.line.0];
        let words = numbers.into_iter().chain(set.words());
        bytes.extend(words.flat_map(u64::to_le_bytes));
    }
    if bytes.is_empty() {
        0
    } else {
        digest_bytes(&bytes)
    }
}

/// What stands at the root for lines that are not watched, and the contents that each can have. No line twice, in
/// ascending order.
fn root_of<'l>(lines: impl IntoIterator<Item = (LineId, Vec<&'l [u8]>)>) -> u128 {
    let mut bytes: Vec<u8> = Vec::new();
    for (id, contents) in lines {
        let numbers = [u64::from(id.pool.0), id.line.0, contents.len() as u64];
        bytes.extend(numbers.into_iter().flat_map(u64::to_le_bytes));
        let digests = contents.into_iter().map(digest_bytes);
        bytes.extend(digests.flat_map(u128::to_le_bytes));
    }
    if bytes.is_empty() {
        COMMON_ROOT
    } else {
        digest_bytes(&bytes)
    }
}

/// A load that could observe several values at a failure point, and the one that the walk takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenChoice {
    /// How many values there are.
    pub class_count: usize,
    /// Which is taken.
    pub class: usize,
    /// The line, by its place in the table; its bytes; and the first content that has the value.
    pub observed: Observed,
}

/// Where a walk has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// An execution that the tree knows.
    Known(LeafIndex),
    /// The values so far are possible, and no execution has shown what recovery does after them. The choices that lead
    /// to it, by class.
    Missing(Vec<u32>),
    /// There is nothing else.
    End,
}

/// Walks a tree with what is possible after a crash: shows each thing that recovery can observe there once, the newest
/// contents first.
#[derive(Clone, Debug)]
pub struct TreeWalk<'t> {
    table: &'t CrashTable,
    root: u128,
    seen: Seen<'t>,
    position: Position,
    /// The nodes on the way, with the place in `branches` of those that are choices.
    steps: Vec<(usize, Option<usize>)>,
    branches: Vec<Branch<'t>>,
}

#[derive(Clone, Debug)]
enum Position {
    Root,
    /// At the value that was taken last.
    Edge {
        node: usize,
        value: Option<Box<[u8]>>,
    },
    Leaf,
    End,
}

/// A choice on the way.
#[derive(Clone, Debug)]
struct Branch<'t> {
    /// How many steps were made before it.
    steps: usize,
    node: usize,
    line: usize,
    bytes: ByteSet,
    /// The first content of each class.
    firsts: Vec<usize>,
    class: usize,
    before: Seen<'t>,
}

impl<'t> TreeWalk<'t> {
    /// At the root.
    pub fn new(table: &'t CrashTable, root: u128) -> Self {
        Self {
            table,
            root,
            seen: Seen::nothing(table),
            position: Position::Root,
            steps: Vec::new(),
            branches: Vec::new(),
        }
    }

    /// Moves to the next execution, or to the next observation that no execution has covered. After [`Stop::Missing`] it
    /// tries the same place again. `read` gives the content of a line that is not in the table.
    pub fn next<R, L>(
        &mut self,
        tree: &ObservationTree<R, L>,
        read: &dyn Fn(LineId) -> Vec<u8>,
    ) -> Stop {
        if matches!(self.position, Position::Leaf) {
            self.turn();
        }
        loop {
            let link = match &self.position {
                Position::Root => tree.roots.get(&self.root).copied(),
                Position::Edge { node, value } => tree.nodes[*node].edge(value.as_deref()),
                Position::Leaf | Position::End => return Stop::End,
            };
            match link {
                None => return Stop::Missing(self.classes()),
                Some(Link::Leaf(leaf)) => {
                    self.position = Position::Leaf;
                    return Stop::Known(leaf);
                }
                Some(Link::Node(node)) => self.step(node, &tree.nodes[node].reading, read),
            }
        }
    }

    /// Takes the first value that is possible at a node.
    fn step(&mut self, node: usize, reading: &Reading, read: &dyn Fn(LineId) -> Vec<u8>) {
        let Some(line) = self.table.index_of(reading.id) else {
            let value = Some(value_of(&read(reading.id), &reading.bytes));
            self.steps.push((node, None));
            self.position = Position::Edge { node, value };
            return;
        };
        let contents = &self.table.lines[line].contents;
        let mut firsts: Vec<usize> = Vec::new();
        for content in self.seen.possible(line) {
            let bytes = &contents[content].bytes;
            let agrees = |first: &usize| reading.bytes.agree(&contents[*first].bytes, bytes);
            if !firsts.iter().any(agrees) {
                firsts.push(content);
            }
        }
        let newest = firsts.first().copied().unwrap_or(0);
        let mut value = Some(value_of(&contents[newest].bytes, &reading.bytes));
        let is_choice = firsts.len() > 1;
        if is_choice && reading.is_rest {
            value = None;
        }
        if is_choice && !reading.is_rest {
            self.steps.push((node, Some(self.branches.len())));
            self.branches.push(Branch {
                steps: self.steps.len() - 1,
                node,
                line,
                bytes: reading.bytes,
                firsts,
                class: 0,
                before: self.seen.clone(),
            });
            self.take_class();
        } else {
            self.steps.push((node, None));
            self.position = Position::Edge { node, value };
        }
    }

    /// Takes the class of the last branch.
    fn take_class(&mut self) {
        let Some(branch) = self.branches.last() else {
            return;
        };
        let content = branch.firsts[branch.class];
        let observed = branch.observed();
        let bytes = &self.table.lines[branch.line].contents[content].bytes;
        self.position = Position::Edge {
            node: branch.node,
            value: Some(value_of(bytes, &branch.bytes)),
        };
        // The content was possible.
        let _ = self.seen.observe(&observed);
    }

    /// Takes the next value of the last choice that has one.
    fn turn(&mut self) {
        while let Some(branch) = self.branches.last_mut() {
            if branch.class + 1 < branch.firsts.len() {
                branch.class += 1;
                self.seen = branch.before.clone();
                let steps = branch.steps + 1;
                self.steps.truncate(steps);
                self.take_class();
                return;
            }
            self.branches.pop();
        }
        self.position = Position::End;
    }

    fn classes(&self) -> Vec<u32> {
        let classes = self.branches.iter().map(|branch| branch.class);
        classes
            .map(|class| u32::try_from(class).unwrap_or(u32::MAX))
            .collect()
    }

    /// The reads on the way, and the choices among them.
    pub fn steps<'w, R, L>(
        &'w self,
        tree: &'w ObservationTree<R, L>,
    ) -> impl Iterator<Item = (&'w R, Option<TakenChoice>)> {
        self.steps.iter().map(|(node, branch)| {
            let choice = branch.map(|branch| self.branches[branch].taken());
            (&tree.nodes[*node].about, choice)
        })
    }
}

impl Branch<'_> {
    fn observed(&self) -> Observed {
        Observed {
            line: self.line,
            bytes: self.bytes,
            content: self.firsts[self.class],
        }
    }

    fn taken(&self) -> TakenChoice {
        TakenChoice {
            class_count: self.firsts.len(),
            class: self.class,
            observed: self.observed(),
        }
    }
}

/// Some bytes of a line.
fn value_of(line: &[u8], bytes: &ByteSet) -> Box<[u8]> {
    let bytes = bytes.iter().filter_map(|at| line.get(at).copied());
    bytes.collect()
}

/// The value of a read in an execution whose choices are known. `seen` is what is known when it has ended, `read` gives the
/// content of a line that is not in its table.
pub fn value_read(
    seen: &Seen<'_>,
    reading: &Reading,
    read: &dyn Fn(LineId) -> Vec<u8>,
) -> Box<[u8]> {
    // What was read of a line is the same in all contents that are still possible.
    match seen.table().index_of(reading.id) {
        Some(line) => {
            let newest = seen.newest(line);
            let bytes = &seen.table().lines[line].contents[newest].bytes;
            value_of(bytes, &reading.bytes)
        }
        None => value_of(&read(reading.id), &reading.bytes),
    }
}
