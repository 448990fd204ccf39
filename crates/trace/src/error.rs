//! What can go wrong with a trace, one sentence each.

use std::io;

/// Why a trace cannot be written, opened or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file has no bytes.
    #[error("the trace file is empty; nothing was recorded")]
    Empty,
    /// The file does not begin like a trace.
    #[error("this is not a powerfail trace (its first bytes are wrong)")]
    NotATrace,
    /// The file was written by a powerfail whose format this one does not know.
    #[error(
        "the trace has format version {found}, this powerfail reads up to version {supported}; \
         update powerfail to read it"
    )]
    NewerVersion {
        /// The major version in the file.
        found: u16,
        /// The newest major version that this crate reads.
        supported: u16,
    },
    /// The file ends inside something that cannot be read in part.
    #[error("the trace ends inside its {what}; the file was cut off")]
    Truncated {
        /// What is incomplete.
        what: &'static str,
    },
    /// Bytes contradict their checksum, the format, or each other.
    #[error("the trace is damaged at byte {offset}: {what}")]
    Corrupt {
        /// What is wrong.
        what: &'static str,
        /// Where in the file: the first byte of the block or structure that is wrong.
        offset: u64,
    },
    /// A code that this version of the format does not assign. Never skipped: what it stands for
    /// could matter.
    #[error("the trace holds an unknown {what} (code {code}) at byte {offset}; update powerfail")]
    UnknownCode {
        /// What the code is a code of.
        what: &'static str,
        /// The code.
        code: u64,
        /// Where in the file: the first byte of the block that holds it.
        offset: u64,
    },
    /// More of something than the format allows.
    #[error("the trace has too much of one thing: {what} may be at most {limit}")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// How much the format allows.
        limit: u64,
    },
    /// Something is named that does not exist.
    #[error("there is no {what} {index} in the trace")]
    Undefined {
        /// What is named.
        what: &'static str,
        /// Its index.
        index: u64,
    },
    /// A name of a file that cannot be one.
    #[error("a name of a file is empty, too long, or has a slash or a zero byte")]
    BadName,
    /// Bytes that lie outside of a pool.
    #[error("{len_bytes} bytes at {offset:#x} lie outside of pool {pool}")]
    OutsidePool {
        /// The index of the pool.
        pool: u32,
        /// The first byte.
        offset: u64,
        /// How many bytes.
        len_bytes: u64,
    },
    /// An earlier write failed, so the file ends in the middle of a block.
    #[error("the trace cannot be continued after a failed write")]
    WriterFailed,
    /// The operating system refused. The sentence says why, so the reason is not a source as well:
    /// it would be printed twice.
    #[error("cannot access the trace: {0}")]
    Io(io::Error),
}

impl From<io::Error> for TraceError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl TraceError {
    pub(crate) const fn corrupt(what: &'static str, offset: u64) -> Self {
        Self::Corrupt { what, offset }
    }
}

/// The result of reading or writing a trace.
pub type Result<T, E = TraceError> = std::result::Result<T, E>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_the_operating_system_is_said_once() {
        let error = TraceError::from(io::Error::other("the disk is on fire"));
        let mut said = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(next) = cause {
            said.push_str(&next.to_string());
            cause = next.source();
        }
        assert_eq!(said, "cannot access the trace: the disk is on fire");
    }
}
