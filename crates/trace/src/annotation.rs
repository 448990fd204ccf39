//! Annotations: what the program, or a library in it, says about its work.
//!
//! A trace stores each of them as a number, its code. The codes are part of the format, so they are listed here and
//! nowhere else; those that the runtime writes into its buffers (`powerfail_protocol::mark`) are the same, which a test
//! checks. A code that is not listed is read as [`Annotation::Other`], so reading stays total.
//!
//! The mark that carries an annotation has a value and a payload as well. The bits of the value are in [`add`] and
//! [`allocation`]; the payload of an annotation about memory is a sequence of [`AnnotatedRange`].

use powerfail_model::PoolIndex;

/// Bit of the codes whose payload is a sequence of [`AnnotatedRange`].
const HAS_RANGES: u32 = 0x8000;

macro_rules! annotations {
    ($($(#[$doc:meta])* $annotation:ident = $code:expr, $name:literal;)*) => {
        /// What an annotation says.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Annotation {
            $($(#[$doc])* $annotation,)*
            /// A code without a meaning here. [`Annotation::from_code`] makes one only of codes that no other variant has.
            Other(u32),
        }

        impl Annotation {
            /// All annotations that have a meaning.
            pub const ALL: &[Self] = &[$(Self::$annotation,)*];

            /// The annotation with this code.
            pub const fn from_code(code: u32) -> Self {
                $(const $annotation: u32 = $code;)*
                match code {
                    $($annotation => Self::$annotation,)*
                    _ => Self::Other(code),
                }
            }

            /// Its number in a trace.
            pub const fn code(self) -> u32 {
                match self {
                    $(Self::$annotation => $code,)*
                    Self::Other(code) => code,
                }
            }

            /// Its name in text and in JSON, if it has a meaning.
            pub const fn name(self) -> Option<&'static str> {
                Some(match self {
                    $(Self::$annotation => $name,)*
                    Self::Other(_) => return None,
                })
            }
        }
    };
}

#[expect(
    non_upper_case_globals,
    reason = "the macro names a code after its variant"
)]
mod table {
    use super::HAS_RANGES;

    annotations! {
        /// The thread begins its outermost transaction of libpmemobj.
        TransactionBegin = 0x0100, "transaction-begin";
        /// The thread's outermost transaction of libpmemobj has ended.
        TransactionEnd = 0x0101, "transaction-end";
        /// The thread begins to create a pool of PMDK.
        CreationBegin = 0x0102, "creation-begin";
        /// The pool of PMDK is created, or creating it has failed.
        CreationEnd = 0x0103, "creation-end";
        /// The thread begins a transaction inside another one.
        NestedBegin = 0x0104, "nested-transaction-begin";
        /// A transaction inside another one has ended.
        NestedEnd = 0x0105, "nested-transaction-end";
        /// The thread's transaction is about to be committed.
        TransactionCommit = 0x0106, "transaction-commit";
        /// The thread's transaction is about to be rolled back.
        TransactionAbort = 0x0107, "transaction-abort";
        /// The thread calls a function of libpmemobj. The value is the function's number.
        LibraryEnter = 0x0110, "library-enter";
        /// The function has returned, or a failed transaction has jumped out of it.
        LibraryLeave = 0x0111, "library-leave";
        /// A range was added to the thread's transaction. Value: bits of [`add`](super::add).
        TransactionAdd = HAS_RANGES | 0x0120, "transaction-add";
        /// The thread's transaction has allocated an object. Value: bits of [`allocation`](super::allocation).
        TransactionAllocate = HAS_RANGES | 0x0121, "transaction-allocate";
        /// The thread's transaction will free an object when it is committed.
        TransactionFree = HAS_RANGES | 0x0122, "transaction-free";
        /// An object was allocated. Value: bits of [`allocation`](super::allocation).
        Allocate = HAS_RANGES | 0x0130, "allocate";
        /// An object was freed.
        Free = HAS_RANGES | 0x0131, "free";
        /// Reserved objects are allocated from here on, or will be when the thread's transaction is committed
        /// (value 1). The ranges are their first bytes.
        Publish = HAS_RANGES | 0x0132, "publish";
        /// The range is the first byte of a pool of libpmemobj that was created or opened.
        Open = HAS_RANGES | 0x0133, "open";
        /// The thread asks a library to flush a range: the flushes that follow are made for it.
        FlushRange = HAS_RANGES | 0x0134, "flush-range";
        /// The target's heap begins to write its own data: no failure points of the thread until it ends.
        HeapBegin = 0x0140, "heap-begin";
        /// The heap has written its data, and it is durable.
        HeapEnd = 0x0141, "heap-end";
        /// The program calls `msync` without `MS_SYNC` for a range, which makes nothing durable.
        AsynchronousSync = HAS_RANGES | 0x0142, "asynchronous-sync";
        /// A region of interest begins: failure points and findings outside such regions are left out.
        InterestBegin = 0x0200, "interest-begin";
        /// A region of interest ends.
        InterestEnd = 0x0201, "interest-end";
        /// Nothing after this is of interest.
        Complete = 0x0202, "complete";
        /// No failure points of the thread from here on.
        SkipFailureBegin = 0x0203, "skip-failure-begin";
        /// Failure points of the thread again.
        SkipFailureEnd = 0x0204, "skip-failure-end";
        /// No findings about the thread from here on.
        SkipDetectionBegin = 0x0205, "skip-detection-begin";
        /// Findings about the thread again.
        SkipDetectionEnd = 0x0206, "skip-detection-end";
        /// A failure point that the program asks for.
        FailurePoint = 0x0207, "failure-point";
        /// A mark of the user's; the value and the payload are theirs.
        User = 0x0208, "mark";
        /// The range is a commit variable.
        CommitVariable = HAS_RANGES | 0x0210, "commit-variable";
        /// The first range is a commit variable, the second one what it decides about.
        CommitRange = HAS_RANGES | 0x0211, "commit-range";
        /// A client request of pmemcheck without an annotation of its own. The value is the request's number there.
        ClientRequest = HAS_RANGES | 0x0300, "client-request";
        /// The program says that a range needs no flush: pmemcheck's `SET_CLEAN`.
        Clean = HAS_RANGES | 0x0301, "clean";
    }
}

pub use table::Annotation;

impl Annotation {
    /// Whether the payload is a sequence of [`AnnotatedRange`].
    pub const fn has_ranges(self) -> bool {
        self.code() & HAS_RANGES != 0
    }
}

/// Bits of the value of [`Annotation::TransactionAdd`].
pub mod add {
    /// The old content is not kept: a rollback leaves the new one.
    pub const NO_SNAPSHOT: u64 = 1;
    /// The commit does not flush it.
    pub const NO_FLUSH: u64 = 2;
}

/// Bits of the value of [`Annotation::Allocate`] and [`Annotation::TransactionAllocate`].
pub mod allocation {
    /// It is full of zeros.
    pub const ZEROED: u64 = 1;
    /// A constructor of the user's has run, or the content was copied: it is written.
    pub const WRITTEN: u64 = 2;
    /// The commit does not flush it.
    pub const NO_FLUSH: u64 = 4;
    /// It becomes a lasting allocation only when it is published; a crash before that frees it.
    pub const RESERVED: u64 = 8;
}

/// A range of memory that an annotation is about, as stored in its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnnotatedRange {
    /// The pool; `None` if the memory is in no pool.
    pub pool: Option<PoolIndex>,
    /// The offset in the pool, or the address.
    pub offset: u64,
    /// How many bytes.
    pub len: u64,
}

impl AnnotatedRange {
    /// Length of a range in a payload.
    pub const LEN: usize = 24;

    /// The bytes of the range in a payload.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let pool = self.pool.map_or(u64::MAX, |pool| u64::from(pool.0));
        bytes[..8].copy_from_slice(&pool.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    /// All ranges of a payload.
    pub fn all(payload: &[u8]) -> impl Iterator<Item = Self> + '_ {
        let word = |bytes: &[u8], at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        payload.chunks_exact(Self::LEN).map(move |bytes| Self {
            pool: u32::try_from(word(bytes, 0)).ok().map(PoolIndex),
            offset: word(bytes, 8),
            len: word(bytes, 16),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{AnnotatedRange, Annotation, add, allocation};
    use powerfail_model::PoolIndex;
    use powerfail_protocol::mark;

    #[test]
    fn codes_agree_with_those_of_the_runtime() {
        use Annotation as A;
        let pairs = [
            (A::TransactionBegin, mark::TRANSACTION_BEGIN),
            (A::TransactionEnd, mark::TRANSACTION_END),
            (A::CreationBegin, mark::CREATION_BEGIN),
            (A::CreationEnd, mark::CREATION_END),
            (A::NestedBegin, mark::NESTED_BEGIN),
            (A::NestedEnd, mark::NESTED_END),
            (A::TransactionCommit, mark::TRANSACTION_COMMIT),
            (A::TransactionAbort, mark::TRANSACTION_ABORT),
            (A::LibraryEnter, mark::LIBRARY_ENTER),
            (A::LibraryLeave, mark::LIBRARY_LEAVE),
            (A::TransactionAdd, mark::TRANSACTION_ADD),
            (A::TransactionAllocate, mark::TRANSACTION_ALLOCATE),
            (A::TransactionFree, mark::TRANSACTION_FREE),
            (A::Allocate, mark::ALLOCATE),
            (A::Free, mark::FREE),
            (A::Publish, mark::PUBLISH),
            (A::Open, mark::OPEN),
            (A::FlushRange, mark::FLUSH_RANGE),
            (A::HeapBegin, mark::HEAP_BEGIN),
            (A::HeapEnd, mark::HEAP_END),
            (A::AsynchronousSync, mark::ASYNCHRONOUS_SYNC),
            (A::InterestBegin, mark::INTEREST_BEGIN),
            (A::InterestEnd, mark::INTEREST_END),
            (A::Complete, mark::COMPLETE),
            (A::SkipFailureBegin, mark::SKIP_FAILURE_BEGIN),
            (A::SkipFailureEnd, mark::SKIP_FAILURE_END),
            (A::SkipDetectionBegin, mark::SKIP_DETECTION_BEGIN),
            (A::SkipDetectionEnd, mark::SKIP_DETECTION_END),
            (A::FailurePoint, mark::FAILURE_POINT),
            (A::User, mark::USER),
            (A::CommitVariable, mark::COMMIT_VARIABLE),
            (A::CommitRange, mark::COMMIT_RANGE),
            (A::ClientRequest, mark::CLIENT_REQUEST),
            (A::Clean, mark::CLEAN),
        ];
        assert!(pairs.iter().map(|(annotation, _)| annotation).eq(A::ALL));
        for (annotation, code) in pairs {
            assert_eq!(annotation.code(), code, "{annotation:?}");
            assert_eq!(A::from_code(code), annotation);
            assert_eq!(annotation.has_ranges(), code & mark::HAS_RANGES != 0);
        }
        assert_eq!(A::from_code(0x7777), A::Other(0x7777));
        assert_eq!(A::Other(0x7777).code(), 0x7777);
        assert_eq!(add::NO_SNAPSHOT, mark::add::NO_SNAPSHOT);
        assert_eq!(add::NO_FLUSH, mark::add::NO_FLUSH);
        assert_eq!(allocation::ZEROED, mark::allocation::ZEROED);
        assert_eq!(allocation::WRITTEN, mark::allocation::WRITTEN);
        assert_eq!(allocation::NO_FLUSH, mark::allocation::NO_FLUSH);
        assert_eq!(allocation::RESERVED, mark::allocation::RESERVED);
    }

    #[test]
    fn ranges_survive_their_payload() {
        let in_pool = AnnotatedRange {
            pool: Some(PoolIndex(3)),
            offset: 4096,
            len: 17,
        };
        let elsewhere = AnnotatedRange {
            pool: None,
            ..in_pool
        };
        let mut payload = [0; 2 * AnnotatedRange::LEN + 5];
        payload[..AnnotatedRange::LEN].copy_from_slice(&in_pool.to_bytes());
        payload[AnnotatedRange::LEN..2 * AnnotatedRange::LEN]
            .copy_from_slice(&elsewhere.to_bytes());
        assert!(AnnotatedRange::all(&payload).eq([in_pool, elsewhere]));
    }
}
