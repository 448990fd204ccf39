//! The two parameters of the model: what survives, and what is written in one piece.

/// What survives a crash without any instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Domain {
    /// Only memory: caches and store buffers are volatile. Flush and fence make a store durable.
    #[default]
    Adr,
    /// Memory and caches: a store is durable once it is in the cache; a non-temporal store still
    /// needs a fence.
    Eadr,
    /// An ordinary mmap'ed file: only msync, fsync and fdatasync make a store durable, in sectors
    /// of 512 bytes. Flushes and fences mean nothing.
    PageCache,
}

impl Domain {
    /// The size of the unit that becomes durable as a whole.
    pub const fn line_bytes(self) -> usize {
        match self {
            Self::Adr | Self::Eadr => 64,
            Self::PageCache => 512,
        }
    }

    /// As it is written on the command line and in traces.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Adr => "adr",
            Self::Eadr => "eadr",
            Self::PageCache => "pagecache",
        }
    }

    /// The domain with a name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Adr, Self::Eadr, Self::PageCache]
            .into_iter()
            .find(|domain| domain.name() == name)
    }
}

/// How much of one store becomes durable in one piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Atomicity {
    /// All of it that lies in one line.
    #[default]
    Store,
    /// Each aligned word of 8 bytes; the words of one store follow each other upwards.
    Word,
}

impl Atomicity {
    /// As it is written on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Word => "8",
        }
    }

    /// The atomicity with a name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Store, Self::Word]
            .into_iter()
            .find(|atomicity| atomicity.name() == name)
    }
}

/// The parameters of the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rules {
    /// What survives.
    pub domain: Domain,
    /// What is written in one piece.
    pub atomicity: Atomicity,
}

impl Rules {
    /// The size of the pieces into which a store is split: pieces end at multiples of it.
    pub(crate) const fn piece_bytes(self) -> usize {
        match self.atomicity {
            Atomicity::Store => self.domain.line_bytes(),
            Atomicity::Word => 8,
        }
    }

    /// Where the first `count` pieces of a store end that begins at an offset, if it is long enough.
    pub const fn end_of_pieces(self, begin: u64, count: usize) -> u64 {
        let piece_bytes = self.piece_bytes() as u64;
        (begin / piece_bytes + count as u64) * piece_bytes
    }
}
