//! The output of a command: its beginning and its end are kept, and its lines are matched as they come, so that
//! a pattern is found even in the part that is cut.

use std::collections::VecDeque;
use std::rc::Rc;

use regex::bytes::Regex;

use crate::verdict::SuspectLine;

const HEAD_BYTES: usize = 4 << 10;
const TAIL_BYTES: usize = 12 << 10;
/// What is kept of the beginning of standard error, and what is shown of that.
const ERROR_BYTES: usize = 2 << 10;
const ERROR_LINES: usize = 3;
/// What is kept of a line that looks like a failure.
const SUSPECT_BYTES: usize = 200;
/// A longer line is matched in pieces.
const MAX_LINE_BYTES: usize = 64 << 10;

/// The patterns that lines are matched with.
#[derive(Debug, Default)]
pub(crate) struct Patterns {
    /// A line that matches one of these is a failure.
    pub(crate) fail: Vec<Regex>,
    /// A line that matches this means that a server is ready.
    pub(crate) ready: Option<Regex>,
    /// A line that matches this looks like a failure, though it is none. Its group is the word that does.
    pub(crate) suspect: Option<Regex>,
}

/// The output of one command.
#[derive(Clone, Debug)]
pub(crate) struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    cut_bytes: u64,
    line: Vec<u8>,
    /// The beginning of standard error, if it has a pipe of its own, and its last line.
    errors: Vec<u8>,
    error_line: Vec<u8>,
    patterns: Rc<Patterns>,
    /// The first failure pattern that matched.
    pub(crate) failed: Option<usize>,
    /// Whether the readiness pattern matched.
    pub(crate) ready: bool,
    /// The first line that looks like a failure.
    pub(crate) suspect: Option<SuspectLine>,
}

impl Capture {
    pub(crate) fn new(patterns: Rc<Patterns>) -> Self {
        Self {
            head: Vec::new(),
            tail: VecDeque::new(),
            cut_bytes: 0,
            line: Vec::new(),
            errors: Vec::new(),
            error_line: Vec::new(),
            patterns,
            failed: None,
            ready: false,
            suspect: None,
        }
    }

    /// Adds output.
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        self.match_lines(bytes);
        self.keep(bytes);
    }

    /// Adds what came from a pipe for standard error alone.
    pub(crate) fn take_errors(&mut self, bytes: &[u8]) {
        // Lines of two pipes are not mixed.
        std::mem::swap(&mut self.line, &mut self.error_line);
        self.match_lines(bytes);
        std::mem::swap(&mut self.line, &mut self.error_line);
        let room = ERROR_BYTES - self.errors.len();
        self.errors.extend(&bytes[..bytes.len().min(room)]);
        self.keep(bytes);
    }

    fn keep(&mut self, bytes: &[u8]) {
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
        std::mem::swap(&mut self.line, &mut self.error_line);
        if !self.line.is_empty() {
            self.end_line();
        }
    }

    /// The output, with the first lines of standard error at its beginning.
    pub(crate) fn text_with_errors_first(&self) -> String {
        let text = self.text();
        let errors = String::from_utf8_lossy(&self.errors);
        let mut first: String = errors.split_inclusive('\n').take(ERROR_LINES).collect();
        if first.is_empty() || text.starts_with(&first) {
            return text;
        }
        if !first.ends_with('\n') {
            first.push('\n');
        }
        format!("{first}[powerfail: that was standard error; all output:]\n{text}")
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
        let patterns = &self.patterns;
        if patterns.fail.is_empty() && patterns.ready.is_none() && patterns.suspect.is_none() {
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
        if self.suspect.is_none()
            && let Some(pattern) = &patterns.suspect
            && let Some(found) = pattern.captures(line)
        {
            let word = found.get(1).map_or(&b""[..], |it| it.as_bytes());
            self.suspect = Some(SuspectLine {
                word: String::from_utf8_lossy(word).to_lowercase(),
                line: String::from_utf8_lossy(&line[..line.len().min(SUSPECT_BYTES)]).into_owned(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture(fail: &[&str]) -> Capture {
        Capture::new(Rc::new(Patterns {
            fail: fail.iter().map(|it| Regex::new(it).unwrap()).collect(),
            ready: None,
            suspect: Some(Regex::new("(?i)\\b(corrupt)").unwrap()),
        }))
    }

    #[test]
    fn standard_error_comes_first() {
        let mut capture = capture(&[]);
        capture.take(b"1\n2\n3\n4\n");
        capture.take_errors(b"a\nb\nc\nd\n");
        assert_eq!(
            capture.text_with_errors_first(),
            "a\nb\nc\n[powerfail: that was standard error; all output:]\n1\n2\n3\n4\na\nb\nc\nd\n"
        );
    }

    #[test]
    fn a_suspicious_line_is_kept_and_pipes_are_not_mixed() {
        let mut capture = capture(&["^ab$"]);
        capture.take(b"a");
        capture.take_errors(b"pool is Corru");
        capture.take(b"b\n");
        capture.take_errors(b"pted\n");
        assert_eq!(capture.failed, Some(0));
        let suspect = capture.suspect.unwrap();
        assert_eq!(
            (&*suspect.word, &*suspect.line),
            ("corrupt", "pool is Corrupted")
        );
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
