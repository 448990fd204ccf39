//! The output of a command: its beginning and its end are kept, and its lines are matched as they come, so that
//! a pattern is found even in the part that is cut.

use std::collections::VecDeque;
use std::rc::Rc;

use regex::bytes::Regex;

const HEAD_BYTES: usize = 4 << 10;
const TAIL_BYTES: usize = 12 << 10;
/// A longer line is matched in pieces.
const MAX_LINE_BYTES: usize = 64 << 10;

/// The patterns that lines are matched with.
#[derive(Debug, Default)]
pub(crate) struct Patterns {
    /// A line that matches one of these is a failure.
    pub(crate) fail: Vec<Regex>,
    /// A line that matches this means that a server is ready.
    pub(crate) ready: Option<Regex>,
}

/// The output of one command.
#[derive(Clone, Debug)]
pub(crate) struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    cut_bytes: u64,
    line: Vec<u8>,
    patterns: Rc<Patterns>,
    /// The first failure pattern that matched.
    pub(crate) failed: Option<usize>,
    /// Whether the readiness pattern matched.
    pub(crate) ready: bool,
}

impl Capture {
    pub(crate) fn new(patterns: Rc<Patterns>) -> Self {
        Self {
            head: Vec::new(),
            tail: VecDeque::new(),
            cut_bytes: 0,
            line: Vec::new(),
            patterns,
            failed: None,
            ready: false,
        }
    }

    /// Adds output.
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        self.match_lines(bytes);
        let (head, rest) = bytes.split_at(bytes.len().min(HEAD_BYTES - self.head.len()));
        self.head.extend_from_slice(head);
        let skipped = rest.len().saturating_sub(TAIL_BYTES);
        self.tail.extend(&rest[skipped..]);
        let surplus = self.tail.len().saturating_sub(TAIL_BYTES);
        self.tail.drain(..surplus);
        self.cut_bytes += (skipped + surplus) as u64;
    }

    /// The output is complete.
    pub(crate) fn end(&mut self) {
        if !self.line.is_empty() {
            self.end_line();
        }
    }

    /// The output, with a note where it is cut.
    pub(crate) fn text(&self) -> String {
        let mut bytes = self.head.clone();
        if self.cut_bytes > 0 {
            let note = format!("\n[powerfail: {} bytes left out]\n", self.cut_bytes);
            bytes.extend_from_slice(note.as_bytes());
        }
        bytes.extend(&self.tail);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn match_lines(&mut self, bytes: &[u8]) {
        if self.patterns.fail.is_empty() && self.patterns.ready.is_none() {
            return;
        }
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.line.len() >= MAX_LINE_BYTES {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let line = line.strip_suffix(b"\n").unwrap_or(&line);
        let patterns = &self.patterns;
        self.failed = self
            .failed
            .or_else(|| patterns.fail.iter().position(|it| it.is_match(line)));
        self.ready |= patterns.ready.as_ref().is_some_and(|it| it.is_match(line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture(fail: &[&str]) -> Capture {
        Capture::new(Rc::new(Patterns {
            fail: fail.iter().map(|it| Regex::new(it).unwrap()).collect(),
            ready: None,
        }))
    }

    #[test]
    fn beginning_and_end_are_kept_however_the_pieces_fall() {
        let whole: Vec<u8> = (0..40_000_u32).map(|at| b'a' + (at % 26) as u8).collect();
        for piece_bytes in [1, 7, 4096, 12_288, 40_000] {
            let mut capture = capture(&[]);
            for piece in whole.chunks(piece_bytes) {
                capture.take(piece);
            }
            let cut = whole.len() - HEAD_BYTES - TAIL_BYTES;
            let expected = format!(
                "{}\n[powerfail: {cut} bytes left out]\n{}",
                String::from_utf8_lossy(&whole[..HEAD_BYTES]),
                String::from_utf8_lossy(&whole[whole.len() - TAIL_BYTES..])
            );
            assert_eq!(capture.text(), expected, "pieces of {piece_bytes}");
        }
    }

    #[test]
    fn what_fits_is_whole() {
        let mut capture = capture(&[]);
        capture.take(&[b'x'; HEAD_BYTES]);
        capture.take(&[b'y'; TAIL_BYTES]);
        assert_eq!(capture.text().len(), HEAD_BYTES + TAIL_BYTES);
    }

    #[test]
    fn a_pattern_is_found_in_what_is_cut_and_across_pieces() {
        let mut capture = capture(&["^never$", "^bad [0-9]+$"]);
        let text = [
            vec![b'.'; 20_000],
            b"\nbad 7\n".to_vec(),
            vec![b'.'; 20_000],
        ]
        .concat();
        for piece in text.chunks(3) {
            capture.take(piece);
        }
        assert_eq!(capture.failed, Some(1));
        assert!(!capture.text().contains("bad"));
    }

    #[test]
    fn the_last_line_needs_no_end() {
        let mut capture = capture(&["broken$"]);
        capture.take(b"it is broken");
        assert_eq!(capture.failed, None);
        capture.end();
        assert_eq!(capture.failed, Some(0));
    }
}
