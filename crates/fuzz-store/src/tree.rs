//! The tree of images in memory: nodes, and of each the shortest way to it.
//!
//! Knows nothing of files. It is fed with the lines of `images.jsonl`, in their order, and refers to contents
//! and to long inputs by their places.

use std::sync::Arc;

use powerfail_image::{Contents, ImageId};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::pack::Place;
use crate::text::{IdText, InputText, from_hex};

/// Numbers images in the order of their lines. 0 is the empty image.
pub(crate) type NodeNumber = u32;

/// A line of `images.jsonl`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TreeLine {
    /// A new image; its number is that of the line among lines of this kind, from 1.
    Image {
        id: IdText,
        #[serde(flatten)]
        way: WayText,
        #[serde(flatten)]
        stored: StoredText,
    },
    /// A shorter way to an image that is known.
    Shorter {
        image: NodeNumber,
        #[serde(flatten)]
        way: WayText,
    },
    /// The contents of an image that is known, once more, because they were lost.
    Again {
        image: NodeNumber,
        #[serde(flatten)]
        stored: StoredText,
    },
}

/// Where an image comes from: a parent and an edge, or it was given.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WayText {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<NodeNumber>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<InputText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_point: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Where the contents of an image are: the difference to another one, or to none.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct StoredText {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<NodeNumber>,
    pub at: u64,
    pub len: u32,
}

/// An input in memory, or where it is.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    Here(Arc<[u8]>),
    Stored(Place),
}

/// Where an image comes from.
#[derive(Clone, Debug)]
pub(crate) enum Way {
    /// The empty image.
    Empty,
    /// It was given under this name.
    Given(Arc<str>),
    /// The program made it.
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
    pub way: Way,
    pub base: Option<NodeNumber>,
    /// `None`: it has no bytes in the pack, because it has no files.
    pub place: Option<Place>,
    /// Differences that lead to it, itself included.
    pub chain: u32,
    /// The image that was made from it last: probably much like the next one.
    pub last_child: Option<NodeNumber>,
}

/// Edges from a root, then bytes of inputs on them.
pub(crate) type Cost = (usize, u64);

/// All images.
pub(crate) struct Tree {
    nodes: Vec<Node>,
    numbers: FxHashMap<ImageId, NodeNumber>,
    /// Long inputs that are stored, by their hashes.
    pub inputs: FxHashMap<String, Place>,
    /// The ends of the last blobs in both packs.
    pub pack_end: u64,
    pub inputs_end: u64,
}

impl Tree {
    pub(crate) fn new() -> Self {
        let id = Contents::default().id();
        let empty = Node {
            id,
            way: Way::Empty,
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

    /// Adds what a line says. `None`: it contradicts those before it.
    pub(crate) fn absorb(&mut self, line: TreeLine) -> Option<()> {
        match line {
            TreeLine::Image { id, way, stored } => {
                let number = NodeNumber::try_from(self.nodes.len()).ok()?;
                if self.numbers.contains_key(&id.0) {
                    return None;
                }
                let way = self.way(way)?;
                let (chain, place) = self.stored(stored, number)?;
                if let Way::Made { parent, .. } = way {
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

    fn way(&mut self, text: WayText) -> Option<Way> {
        let Some(parent) = text.parent else {
            return Some(Way::Given(text.name?.into()));
        };
        self.nodes.get(parent as usize)?;
        let bytes = match text.input? {
            InputText::Text(text) => text.into_bytes(),
            InputText::Hex(digits) => from_hex(&digits)?,
            InputText::Stored {
                at,
                len,
                input_len,
                hash,
            } => {
                let place = Place { at, len };
                self.inputs_end = self.inputs_end.max(place.end());
                self.inputs.insert(hash, place);
                return Some(Way::Made {
                    parent,
                    input: Input::Stored(place),
                    input_len,
                    failure_point: text.failure_point,
                });
            }
        };
        Some(Way::Made {
            parent,
            input_len: bytes.len() as u64,
            input: Input::Here(bytes.into()),
            failure_point: text.failure_point,
        })
    }

    /// Bases have smaller numbers than what is based on them, so that no chain is a circle.
    fn stored(&mut self, text: StoredText, image: NodeNumber) -> Option<(u32, Place)> {
        let chain = match text.base {
            Some(base) if base < image => self.node(base).chain + 1,
            Some(_) => return None,
            None => 1,
        };
        let StoredText { at, len, .. } = text;
        let place = Place { at, len };
        self.pack_end = self.pack_end.max(place.end());
        Some((chain, place))
    }

    /// The numbers of the images on the shortest way to one, from its root.
    pub(crate) fn path(&self, image: NodeNumber) -> Vec<NodeNumber> {
        let mut path = vec![image];
        let mut at = image;
        while let Way::Made { parent, .. } = self.node(at).way {
            path.push(parent);
            at = parent;
        }
        path.reverse();
        path
    }

    pub(crate) fn cost(&self, image: NodeNumber) -> Cost {
        let mut cost = (0, 0);
        let mut at = image;
        while let Way::Made {
            parent, input_len, ..
        } = &self.node(at).way
        {
            cost = (cost.0 + 1, cost.1 + input_len);
            at = *parent;
        }
        cost
    }

    /// What a way to a child of this image costs.
    pub(crate) fn cost_of_child(&self, parent: NodeNumber, input_len: u64) -> Cost {
        let (edges, bytes) = self.cost(parent);
        (edges + 1, bytes + input_len)
    }

    /// Whether another way to an image is shorter. Never true of a way that goes through the image itself,
    /// because that one is longer.
    fn is_shorter(&self, image: NodeNumber, way: &Way) -> bool {
        let cost = match way {
            Way::Empty | Way::Given(_) => (0, 0),
            Way::Made {
                parent, input_len, ..
            } => self.cost_of_child(*parent, *input_len),
        };
        cost < self.cost(image)
    }
}

impl WayText {
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
    pub(crate) fn new(base: Option<NodeNumber>, place: Place) -> Self {
        let Place { at, len } = place;
        Self { base, at, len }
    }
}
