//! The unit of images.

use powerfail_trace::PAGE_BYTES;

/// The length of a page, where offsets are computed.
pub(crate) const PAGE: u64 = PAGE_BYTES as u64;

/// The bytes of a page. Aligned like a line, which makes comparing it faster.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Page(pub(crate) [u8; PAGE_BYTES]);

impl Page {
    pub(crate) const ZERO: Self = Self([0; PAGE_BYTES]);

    /// A page of which the first `len` bytes are `byte` and the others zero.
    pub(crate) fn filled(byte: u8, len: usize) -> Box<Self> {
        let mut page = Box::new(Self::ZERO);
        page.0[..len].fill(byte);
        page
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.0 == Self::ZERO.0
    }
}
