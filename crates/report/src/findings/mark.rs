//! Where a finding lies among the marks of the program.

use powerfail_finding::{Marks, ProgramMark};

use crate::text::{printable, width};

/// Columns of a mark's text that are shown; JSON has all of it.
const TEXT_COLUMNS: usize = 60;
/// Threads whose marks are shown beside those of the thread that the finding is about; JSON has all of them.
const OTHERS_SHOWN: usize = 3;

pub(super) fn texts(marks: &Marks) -> Vec<(&'static str, String)> {
    let mut texts = Vec::new();
    let after = marks.after.as_ref().map(|it| format!("after {}", name(it)));
    let before = marks.before.as_ref();
    let before = before.map(|it| format!("before {}", name(it)));
    let around: Vec<String> = after.into_iter().chain(before).collect();
    if !around.is_empty() {
        texts.push(("mark", around.join(", ")));
    }
    if !marks.others.is_empty() {
        let shown = marks.others.iter().take(OTHERS_SHOWN);
        let shown: Vec<String> = shown.map(|it| format!("after {}", name(it))).collect();
        let others = if marks.others.len() == 1 {
            "another thread"
        } else {
            "other threads"
        };
        texts.push(("mark", format!("{others}: {}", shown.join(", "))));
    }
    if let Some(operation) = marks.operation {
        texts.push(("operation", format!("{operation}, which has not ended")));
    }
    texts
}

/// `"insert 17"`, or with its number if it has one: `17 "insert"`.
fn name(mark: &ProgramMark) -> String {
    let number = mark.number;
    match (&mark.text, &mark.bytes) {
        (Some(text), _) if number == 0 => format!("\"{}\"", cut(text)),
        (Some(text), _) => format!("{number} \"{}\"", cut(text)),
        (None, Some(bytes)) => format!("{number} ({})", cut(bytes)),
        (None, None) => number.to_string(),
    }
}

fn cut(text: &str) -> String {
    let text = printable(text);
    if width(&text) <= TEXT_COLUMNS {
        return text.into_owned();
    }
    let first: String = text.chars().take(TEXT_COLUMNS - 3).collect();
    format!("{first}...")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_its_text_and_its_number() {
        let of = |number, payload: &[u8]| name(&ProgramMark::new(1, number, payload));
        assert_eq!(of(0, b"insert 17"), "\"insert 17\"");
        assert_eq!(of(17, b"insert"), "17 \"insert\"");
        assert_eq!(of(17, b""), "17");
        assert_eq!(of(17, b"\xff\x01"), "17 (ff01)");
        assert_eq!(of(0, b"a\nb"), "\"a\\nb\"");
        let long = of(0, &[b'x'; 300]);
        assert_eq!(long, format!("\"{}...\"", "x".repeat(57)));
    }

    #[test]
    fn one_line_for_marks_and_one_for_the_operation() {
        let mark = |text: &str| Some(ProgramMark::new(1, 0, text.as_bytes()));
        let marks = Marks {
            after: mark("insert 17"),
            before: mark("insert 18"),
            operation: Some(17),
            others: mark("remove 3").into_iter().collect(),
        };
        let lines = [
            (
                "mark",
                "after \"insert 17\", before \"insert 18\"".to_owned(),
            ),
            ("mark", "another thread: after \"remove 3\"".to_owned()),
            ("operation", "17, which has not ended".to_owned()),
        ];
        assert_eq!(texts(&marks), lines);
        assert_eq!(texts(&Marks::NONE), []);
        let others = ["5", "4", "3", "2"].map(|text| ProgramMark::new(1, 0, text.as_bytes()));
        let marks = Marks {
            others: others.to_vec(),
            ..Marks::NONE
        };
        let line = "other threads: after \"5\", after \"4\", after \"3\"".to_owned();
        assert_eq!(texts(&marks), [("mark", line)]);
    }
}
