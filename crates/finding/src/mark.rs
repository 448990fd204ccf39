//! The marks of a program around what a finding is about.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::hex::hex;

/// Where in the workload a finding lies, by the annotations of the program: those of the thread that was to act next, and
/// what others had marked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Marks {
    /// The nearest mark before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<ProgramMark>,
    /// The next mark of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<ProgramMark>,
    /// The operation that had begun and not ended, by its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<u64>,
    /// The newest mark before it of each other thread, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<ProgramMark>,
}

impl Marks {
    /// No marks, and no operation.
    pub const NONE: Self = Self {
        after: None,
        before: None,
        operation: None,
        others: Vec::new(),
    };

    /// Whether the annotations of the program say nothing about the finding.
    pub const fn is_empty(&self) -> bool {
        self.after.is_none()
            && self.before.is_none()
            && self.operation.is_none()
            && self.others.is_empty()
    }
}

/// A mark that the program made with `powerfail_mark`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProgramMark {
    /// The event of the trace that it is.
    pub event: u64,
    /// The number that the program gave it.
    pub number: u64,
    /// Its bytes, if they are text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Its bytes in hexadecimal, if they are not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<String>,
}

impl ProgramMark {
    /// The mark with these bytes. A zero byte at the end, as of a string in C, is no part of a text.
    pub fn new(event: u64, number: u64, payload: &[u8]) -> Self {
        let string = payload.strip_suffix(b"\0").unwrap_or(payload);
        let text = str::from_utf8(string).ok();
        let text = text.filter(|text| !text.is_empty() && !text.contains('\0'));
        Self {
            event,
            number,
            text: text.map(str::to_owned),
            bytes: (text.is_none() && !payload.is_empty()).then(|| hex(payload)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_text_if_they_can_be() {
        let mark = |payload: &[u8]| {
            let mark = ProgramMark::new(4, 17, payload);
            (mark.text, mark.bytes)
        };
        let text = Some("insert 17".to_owned());
        assert_eq!(mark(b"insert 17"), (text.clone(), None));
        assert_eq!(mark(b"insert 17\0"), (text, None));
        assert_eq!(mark(b""), (None, None));
        assert_eq!(mark(b"\xff\x01"), (None, Some("ff01".to_owned())));
        assert_eq!(mark(b"a\0b"), (None, Some("610062".to_owned())));
        // All zero: a number, and not an empty text.
        assert_eq!(mark(b"\0\0"), (None, Some("0000".to_owned())));
    }
}
