//! Trees of files as crash images.
//!
//! - [`FileContent`]: the bytes of a file, in pages that copies share. A copy costs a pointer for every 256 KiB.
//! - [`TreeImage`]: directories, files and links, as a crash leaves them.
//! - [`TreeSlot`]: directories on disk that are brought to one image after the other.
//!
//! What an image does not have: owners, times, extended attributes, devices, sockets and pipes.

mod content;
mod image;
mod nodes;
mod slot;
mod watch;

pub use content::FileContent;
pub use image::{NodeKey, TreeDigest, TreeEntry, TreeFile, TreeImage};
pub use nodes::{TreeNode, TreeNodes};
pub use slot::{TreePrepared, TreeSlot, TreeUse, write_tree};
pub use watch::NodeSet;
