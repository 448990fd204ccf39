//! Crash states of a tree, and what they mean.

use super::ids::{Entry, NodeId, OperationIndex, PageIndex, SECTORS_PER_PAGE, Source};
use super::operation::{ByteRange, NodeKind};

/// What a crash leaves, as what it takes: everything that is not named here has survived. Two states of
/// one position are the same tree of operations exactly if they are equal. Operations are named by
/// their indexes, so a state can be given to another frontier over the same operations, with other rules or with a
/// sync more.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CrashState {
    /// The operations on names that are lost, ascending.
    pub lost: Vec<OperationIndex>,
    /// The files whose length is not the newest one, by node.
    pub lengths: Vec<LostLength>,
    /// The pages whose content is not the newest one, by node and page. Only of files that have a name
    /// in this state, and only sectors that begin before the end of the file in it.
    pub pages: Vec<LostPage>,
}

impl CrashState {
    /// Whether nothing is lost.
    pub const fn is_newest(&self) -> bool {
        self.lost.is_empty() && self.lengths.is_empty() && self.pages.is_empty()
    }
}

/// The length of a file that has lost a part of its history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LostLength {
    /// The file.
    pub node: NodeId,
    /// The first operation whose change of the length is lost, at least in part.
    pub first_lost: OperationIndex,
    /// The length that is left: the one before `first_lost`, or a multiple of the page size between that
    /// one and the one after it.
    pub len_bytes: u64,
}

/// A page that has lost a part of its history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LostPage {
    /// The file.
    pub node: NodeId,
    /// The page.
    pub page: PageIndex,
    /// For each sector the first operation that is lost, with all later ones, or [`Self::NOTHING`].
    pub first_lost: [OperationIndex; SECTORS_PER_PAGE],
}

impl LostPage {
    /// The sector has lost nothing.
    pub const NOTHING: OperationIndex = OperationIndex(u64::MAX);
    pub(super) const WHOLE: [OperationIndex; SECTORS_PER_PAGE] = [Self::NOTHING; SECTORS_PER_PAGE];
}

/// What became of an operation in a crash state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fate {
    /// All of it survived.
    Survived,
    /// Some of it survived.
    Torn,
    /// None of it survived.
    Lost,
}

/// What a directory of the newest tree must change to become that of a crash state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// The names that are others than in the newest tree: the node that has the name, or none. A node that
    /// lost its last name in the newest tree may have one here.
    pub entries: Vec<(Entry, Option<NodeId>)>,
    /// The files whose length or content is another than the newest one.
    pub files: Vec<FileDifference>,
}

/// What a file must change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDifference {
    /// The file.
    pub node: NodeId,
    /// Its length.
    pub len_bytes: u64,
    /// What to write into it after it has got that length: all that differs from the newest content,
    /// ascending and without overlaps. None of it is beyond the length.
    pub pieces: Vec<Piece>,
}

/// A part of a file and where its bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Piece {
    /// Which bytes of the file.
    pub range: ByteRange,
    /// Where the first of them is; the others follow it there.
    pub source: Source,
}

/// The tree before the first operation. Everything in it is durable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InitialTree {
    /// Its nodes, each once.
    pub nodes: Vec<InitialNode>,
    /// All names. A directory without a name is a root: what hangs on no root is not there.
    pub entries: Vec<(Entry, NodeId)>,
}

/// A node of the initial tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitialNode {
    /// The node.
    pub node: NodeId,
    /// What it is.
    pub kind: NodeKind,
    /// The length of a file; 0 for others.
    pub len_bytes: u64,
}

impl InitialTree {
    /// A tree that has only an empty root.
    pub fn with_root(root: NodeId) -> Self {
        let mut tree = Self::default();
        tree.add(root, NodeKind::Directory, 0, None);
        tree
    }

    /// Adds a node, with its first name.
    pub fn add(&mut self, node: NodeId, kind: NodeKind, len_bytes: u64, entry: Option<Entry>) {
        self.nodes.push(InitialNode {
            node,
            kind,
            len_bytes,
        });
        self.entries.extend(entry.map(|entry| (entry, node)));
    }
}
