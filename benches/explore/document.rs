//! A document with generated tables, each between two comments.

use std::fmt::Write;
use std::path::PathBuf;

pub(crate) struct Document {
    path: PathBuf,
    text: String,
}

impl Document {
    pub(crate) fn open(path: PathBuf) -> Self {
        let text = std::fs::read_to_string(&path).expect("the document is there");
        Self { path, text }
    }

    /// Replaces a table.
    pub(crate) fn replace(&mut self, table: &str, rows: &[String]) {
        let (first, last) = (
            format!("<!-- begin {table} -->\n"),
            format!("<!-- end {table} -->"),
        );
        let begin = self.text.find(&first).expect("the table begins") + first.len();
        let end = self.text.find(&last).expect("the table ends");
        let mut lines = String::new();
        for row in rows {
            let _ = writeln!(lines, "{row}");
        }
        self.text.replace_range(begin..end, &lines);
    }

    pub(crate) fn write(&self) {
        std::fs::write(&self.path, &self.text).expect("the document can be written");
    }
}
