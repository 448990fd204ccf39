//! The image tree in memory: its nodes, and the shortest path to each.
//!
//! Knows no files. It receives the lines of `images.jsonl` in order, and refers to contents and long inputs by their
//! positions.

use std::sync::Arc;

use powerfail_image::{DirectoryContents, ImageId};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::pack::BlobPosition;
use crate::text::{IdText, InputText};

/// The number of an image, in the order of lines. 0 is the empty image.
pub(crate) type NodeNumber = u32;

/// A line of `images.jsonl`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TreeLine {
    /// A new image; its number is that of the line among lines of this kind, from 1.
    Image {
        id: IdText,
        #[serde(flatten)]
        way: OriginText,
        #[serde(flatten)]
        stored: StoredText,
    },
    /// A shorter path to a known image.
    Shorter {
        image: NodeNumber,
        #[serde(flatten)]
        way: OriginText,
    },
    /// The contents of a known image again, because they were lost.
    Again {
        image: NodeNumber,
        #[serde(flatten)]
        stored: StoredText,
    },
}

/// The origin of an image in a line: a parent and an edge, or a name.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OriginText {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<NodeNumber>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<InputText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_point: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// The position of contents in a line: a difference to another image, or to none.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct StoredText {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<NodeNumber>,
    pub at: u64,
    pub len: u32,
}

/// An input in memory, or its position.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    Here(Arc<[u8]>),
    Stored(BlobPosition),
}

/// The origin of an image.
#[derive(Clone, Debug)]
pub(crate) enum ImageOrigin {
    /// The empty image.
    Empty,
    /// The user gave it, under this name.
    Given(Arc<str>),
    /// The target made it from its parent.
    Made {
        parent: NodeNumber,
        input: Input,
        input_len: u64,
        failure_point: Option<u64>,
    },
}

/// An image in the tree.
#[derive(Debug)]
pub(crate) struct Node {
    pub id: ImageId,
    pub way: ImageOrigin,
    pub base: Option<NodeNumber>,
    /// `None` if it has no files, and so no bytes in the pack.
    pub place: Option<BlobPosition>,
    /// The number of differences that lead to it, including its own.
    pub chain: u32,
    /// The image that was last made from it, which is probably similar to the next one.
    pub last_child: Option<NodeNumber>,
}

/// The number of edges from a root, then the bytes of their inputs.
pub(crate) type Cost = (usize, u64);

/// The image tree.
pub(crate) struct Tree {
    nodes: Vec<Node>,
    numbers: FxHashMap<ImageId, NodeNumber>,
    /// The positions of long inputs, by their hashes.
    pub inputs: FxHashMap<String, BlobPosition>,
    /// The ends of the last blobs in both packs.
    pub pack_end: u64,
    pub inputs_end: u64,
}

impl Tree {
    pub(crate) fn new() -> Self {
        let id = DirectoryContents::default().id();
        let empty = Node {
            id,
            way: ImageOrigin::Empty,
            base: None,
            place: None,
            chain: 0,
            last_child: None,
        };
        Self {
            nodes: vec![empty],
            numbers: FxHashMap::from_iter([(id, 0)]),
            inputs: FxHashMap::default(),
            pack_end: 0,
            inputs_end: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn find(&self, id: ImageId) -> Option<NodeNumber> {
        self.numbers.get(&id).copied()
    }

    pub(crate) fn node(&self, number: NodeNumber) -> &Node {
        &self.nodes[number as usize]
    }

    /// Adds a line; `None` if it contradicts earlier ones.
    pub(crate) fn absorb(&mut self, line: TreeLine) -> Option<()> {
        match line {
            TreeLine::Image { id, way, stored } => {
                let number = NodeNumber::try_from(self.nodes.len()).ok()?;
                if self.numbers.contains_key(&id.0) {
                    return None;
                }
                let way = self.way(way)?;
                let (chain, place) = self.stored(stored, number)?;
                if let ImageOrigin::Made { parent, .. } = way {
                    self.nodes[parent as usize].last_child = Some(number);
                }
                self.nodes.push(Node {
                    id: id.0,
                    way,
                    base: stored.base,
                    place: Some(place),
                    chain,
                    last_child: None,
                });
                self.numbers.insert(id.0, number);
            }
            TreeLine::Shorter { image, way } => {
                self.nodes.get(image as usize)?;
                let way = self.way(way)?;
                // Checked again: this is what keeps the tree a tree, whatever the file says.
                if !self.is_shorter(image, &way) {
                    return None;
                }
                self.nodes[image as usize].way = way;
            }
            TreeLine::Again { image, stored } => {
                let (chain, place) = self.stored(stored, image)?;
                let node = self.nodes.get_mut(image as usize)?;
                (node.base, node.chain, node.place) = (stored.base, chain, Some(place));
            }
        }
        Some(())
    }

    fn way(&mut self, text: OriginText) -> Option<ImageOrigin> {
        let Some(parent) = text.parent else {
            return Some(ImageOrigin::Given(text.name?.into()));
        };
        self.nodes.get(parent as usize)?;
        let bytes = match text.input? {
            InputText::Text(text) => text.into_bytes(),
            InputText::Hex(digits) => powerfail_finding::from_hex(&digits)?,
            InputText::Stored {
                at,
                len,
                input_len,
                hash,
            } => {
                let place = BlobPosition { at, len };
                self.inputs_end = self.inputs_end.max(place.end());
                self.inputs.insert(hash, place);
                return Some(ImageOrigin::Made {
                    parent,
                    input: Input::Stored(place),
                    input_len,
                    failure_point: text.failure_point,
                });
            }
        };
        Some(ImageOrigin::Made {
            parent,
            input_len: bytes.len() as u64,
            input: Input::Here(bytes.into()),
            failure_point: text.failure_point,
        })
    }

    /// A base has a smaller number than the images that are based on it, so no chain is a circle.
    fn stored(&mut self, text: StoredText, image: NodeNumber) -> Option<(u32, BlobPosition)> {
        let chain = match text.base {
            Some(base) if base < image => self.node(base).chain + 1,
            Some(_) => return None,
            None => 1,
        };
        let StoredText { at, len, .. } = text;
        let place = BlobPosition { at, len };
        self.pack_end = self.pack_end.max(place.end());
        Some((chain, place))
    }

    /// The numbers of the images on the shortest path to one, from its root.
    pub(crate) fn path(&self, image: NodeNumber) -> Vec<NodeNumber> {
        let mut path = vec![image];
        let mut at = image;
        while let ImageOrigin::Made { parent, .. } = self.node(at).way {
            path.push(parent);
            at = parent;
        }
        path.reverse();
        path
    }

    pub(crate) fn cost(&self, image: NodeNumber) -> Cost {
        let mut cost = (0, 0);
        let mut at = image;
        while let ImageOrigin::Made {
            parent, input_len, ..
        } = &self.node(at).way
        {
            cost = (cost.0 + 1, cost.1 + input_len);
            at = *parent;
        }
        cost
    }

    /// The cost of the path to a child of this image.
    pub(crate) fn cost_of_child(&self, parent: NodeNumber, input_len: u64) -> Cost {
        let (edges, bytes) = self.cost(parent);
        (edges + 1, bytes + input_len)
    }

    /// Whether another path to an image is shorter. Never true for a path through the image itself, which is longer.
    fn is_shorter(&self, image: NodeNumber, way: &ImageOrigin) -> bool {
        let cost = match way {
            ImageOrigin::Empty | ImageOrigin::Given(_) => (0, 0),
            ImageOrigin::Made {
                parent, input_len, ..
            } => self.cost_of_child(*parent, *input_len),
        };
        cost < self.cost(image)
    }
}

impl OriginText {
    pub(crate) fn given(name: &str) -> Self {
        Self {
            parent: None,
            input: None,
            failure_point: None,
            name: Some(name.to_owned()),
        }
    }
}

impl StoredText {
    pub(crate) fn new(base: Option<NodeNumber>, place: BlobPosition) -> Self {
        let BlobPosition { at, len } = place;
        Self { base, at, len }
    }
}
