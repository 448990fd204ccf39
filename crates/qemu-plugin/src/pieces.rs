//! A store that QEMU makes in several pieces: of a long register, or of a string.
//!
//! Bytes are taken with each piece: when the next store shows that no more pieces come, it has been made already.

use powerfail_protocol::MAX_VALUE_LEN;

use crate::translate::Site;

/// A store of which more pieces may come.
#[derive(Clone, Debug)]
pub(crate) struct Pieces {
    pub(crate) site: &'static Site,
    /// Where its lowest byte is.
    pub(crate) start: u64,
    pub(crate) bytes: Vec<u8>,
    /// How many bytes have come.
    count: u64,
}

impl Pieces {
    /// The first piece.
    pub(crate) fn new(site: &'static Site, start: u64, bytes: &[u8]) -> Self {
        Self {
            site,
            start,
            bytes: bytes.to_vec(),
            count: bytes.len() as u64,
        }
    }

    /// Whether no more pieces can come.
    pub(crate) fn are_complete(&self) -> bool {
        !self.site.is_string && self.count >= u64::from(self.site.len_bytes)
    }

    /// Adds a piece. Says whether it belongs to the same store.
    pub(crate) fn add(&mut self, site: &'static Site, at: u64, bytes: &[u8]) -> bool {
        if !core::ptr::eq(self.site, site) {
            return false;
        }
        let len = bytes.len() as u64;
        let end = self.start + self.bytes.len() as u64;
        let limit = if site.is_string {
            u64::from(MAX_VALUE_LEN)
        } else {
            u64::from(site.len_bytes)
        };
        // Elements of a string follow each other. Pieces of a register come in any order, and leave no gap in the end.
        let is_next = at == end || !site.is_string;
        let (start, new_end) = (self.start.min(at), end.max(at + len));
        if !is_next || new_end - start > limit || self.count + len > limit {
            return false;
        }
        let before = (self.start - start) as usize;
        self.bytes.splice(..0, core::iter::repeat_n(0, before));
        self.bytes.resize((new_end - start) as usize, 0);
        self.start = start;
        let place = (at - start) as usize;
        self.bytes[place..place + bytes.len()].copy_from_slice(bytes);
        self.count += len;
        true
    }
}
