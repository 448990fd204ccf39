//! Attributes output to processes in a tree of processes that share a pipe and run one at a time.
//!
//! A branch that is about to fork writes a mark. What it has written until then begins both its own output and
//! that of its child. When the child has ended, the branch continues from there.

use powerfail_protocol::explore::OUTPUT_MARK_BYTES;

use crate::zygote::capture::Capture;

/// The processes that wait, outermost first: what they had written when they forked.
#[derive(Debug)]
pub(crate) struct Branches {
    mark: [u8; OUTPUT_MARK_BYTES],
    /// The end of what was read, which may be the beginning of a mark.
    held: Vec<u8>,
    waiting: Vec<Capture>,
}

impl Branches {
    pub(crate) fn new(mark: [u8; OUTPUT_MARK_BYTES]) -> Self {
        Self {
            mark,
            held: Vec::new(),
            waiting: Vec::new(),
        }
    }

    /// Takes what was read from the pipe.
    pub(crate) fn take(&mut self, capture: &mut Capture, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
        let mut from = 0;
        while let Some(at) = find(&self.held[from..], &self.mark) {
            capture.take(&self.held[from..from + at]);
            self.waiting.push(capture.clone());
            from += at + self.mark.len();
        }
        let rest = &self.held[from..];
        let longest = rest.len().min(self.mark.len() - 1);
        let kept = (0..=longest)
            .rev()
            .find(|len| rest.ends_with(&self.mark[..*len]))
            .unwrap_or(0);
        capture.take(&rest[..rest.len() - kept]);
        self.held.drain(..self.held.len() - kept);
    }

    /// An execution has ended, and all that it wrote was read.
    pub(crate) fn end(&mut self, capture: &mut Capture) {
        capture.take(&self.held);
        self.held.clear();
        capture.end();
    }

    /// The innermost process that waits continues, while `others` wait: what it has written so far. `None` if
    /// it wrote no mark when it forked.
    pub(crate) fn resume(&mut self, others: usize) -> Option<Capture> {
        // A fork that failed has also left a mark.
        self.waiting.truncate(others + 1);
        self.waiting.pop()
    }
}

fn find(bytes: &[u8], mark: &[u8]) -> Option<usize> {
    bytes.windows(mark.len()).position(|it| it == mark)
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::zygote::capture::Patterns;

    const MARK: [u8; OUTPUT_MARK_BYTES] = *b"0123456789abcdef0123456789abcdeX";

    /// What each execution wrote: a `!` in the stream is the end of one, a `|` a fork, a `~` one that fails.
    fn executions(stream: &str, piece_bytes: usize) -> Vec<String> {
        let mut waiting = 0;
        let mut branches = Branches::new(MARK);
        let mut capture = Capture::new(Rc::new(Patterns::default()));
        let mut ended = Vec::new();
        for written in stream.split_inclusive('!') {
            let mut bytes = Vec::new();
            for byte in written.trim_end_matches('!').bytes() {
                match byte {
                    b'|' | b'~' => bytes.extend_from_slice(&MARK),
                    byte => bytes.push(byte),
                }
                waiting += usize::from(byte == b'|');
            }
            for piece in bytes.chunks(piece_bytes) {
                branches.take(&mut capture, piece);
            }
            branches.end(&mut capture);
            ended.push(capture.text());
            if waiting > 0 {
                waiting -= 1;
                capture = branches.resume(waiting).unwrap();
            }
        }
        ended
    }

    #[test]
    fn a_branch_begins_with_what_its_parent_wrote() {
        for piece_bytes in [1, 3, 31, 32, 33, 1000] {
            assert_eq!(executions("ab!", piece_bytes), ["ab"]);
            // The parent forks twice at one place, and takes the third value itself.
            assert_eq!(
                executions("a|b!|c!d!", piece_bytes),
                ["ab", "ac", "ad"],
                "{piece_bytes}"
            );
            assert_eq!(
                executions("a|b|c!d!e|f!g!", piece_bytes),
                ["abc", "abd", "aef", "aeg"]
            );
            assert_eq!(executions("a|b~c!d!", piece_bytes), ["abc", "ad"]);
        }
    }

    #[test]
    fn what_only_looks_like_a_mark_is_output() {
        for piece_bytes in [1, 5, 40] {
            let stream = "0123456789abcdef0123456789abcde|0123!456!";
            let expected = [
                "0123456789abcdef0123456789abcde0123",
                "0123456789abcdef0123456789abcde456",
            ];
            assert_eq!(executions(stream, piece_bytes), expected);
        }
    }
}
