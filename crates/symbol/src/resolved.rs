//! What is known about a place in the code, and how it is written.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use powerfail_trace::Frame;

use crate::NoSource;

/// A function at a place in the code, and the line of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SourceFrame {
    /// The function, as it is written in Rust or C++.
    pub function: Option<String>,
    /// If the function's name is from a symbol table: the distance from its first address.
    pub symbol_offset: Option<u64>,
    /// The source file, as the compiler named it; mostly an absolute path.
    pub file: Option<PathBuf>,
    /// The line, counted from one.
    pub line: Option<u32>,
    /// The column, counted from one.
    pub column: Option<u32>,
    /// Whether the function was inlined into the next frame.
    pub is_inlined: bool,
}

/// Writes `insert (btree.c:42)`; the alternate form has the whole path and the column,
/// `insert (/src/btree.c:42:7)`.
impl fmt::Display for SourceFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.function, &self.file) {
            (Some(function), Some(_)) => {
                write!(f, "{function} (")?;
                self.write_location(f)?;
                f.write_str(")")
            }
            (Some(function), None) => {
                f.write_str(function)?;
                self.symbol_offset
                    .map_or(Ok(()), |offset| write!(f, "+{offset:#x}"))
            }
            (None, Some(_)) => self.write_location(f),
            (None, None) => f.write_str("?"),
        }
    }
}

impl SourceFrame {
    fn write_location(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            let short = file.file_name().filter(|_| !f.alternate());
            write!(f, "{}", short.map_or(file.as_path(), Path::new).display())?;
        }
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
            if let Some(column) = self.column.filter(|_| f.alternate()) {
                write!(f, ":{column}")?;
            }
        }
        Ok(())
    }
}

/// A frame of a recorded call stack, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The frame, as it was recorded.
    pub frame: Frame,
    /// The name of its module's file, without directories. Nothing if it is in no module.
    pub module: Option<Arc<str>>,
    /// The functions, innermost first: each but the last is inlined into the next. Empty if nothing is
    /// known.
    pub frames: Vec<SourceFrame>,
    /// Why the innermost function has no source file; nothing if it has one.
    pub no_source: Option<NoSource>,
}

impl Resolved {
    /// The distance from the module's load address; nothing if the frame is in no module.
    pub fn offset(&self) -> Option<u64> {
        match self.frame {
            Frame::Module { offset, .. } => Some(offset),
            Frame::Absolute { .. } => None,
        }
    }

    /// The innermost function.
    pub fn innermost(&self) -> Option<&SourceFrame> {
        self.frames.first()
    }
}

/// Writes, depending on what is known, `insert (btree.c:42) inlined into update (btree.c:60)`,
/// `insert+0x1c (libfoo.so+0x1234)`, `libfoo.so+0x1234` or `0x7ffff7fc1000`. The alternate form has whole
/// paths and columns.
impl fmt::Display for Resolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, frame) in self.frames.iter().enumerate() {
            if index > 0 {
                f.write_str(" inlined into ")?;
            }
            fmt::Display::fmt(frame, f)?;
        }
        if self.frames.is_empty() {
            self.write_place(f)
        } else if self.no_source.is_some() {
            f.write_str(" (")?;
            self.write_place(f)?;
            f.write_str(")")
        } else {
            Ok(())
        }
    }
}

impl Resolved {
    fn write_place(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.frame, &self.module) {
            (Frame::Absolute { address }, _) => write!(f, "{address:#x}"),
            (Frame::Module { offset, .. }, Some(name)) => write!(f, "{name}+{offset:#x}"),
            (Frame::Module { module, offset }, None) => write!(f, "module {module}+{offset:#x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use powerfail_trace::ModuleIndex;

    use super::*;

    fn frame(function: &str, line: u32) -> SourceFrame {
        SourceFrame {
            function: Some(function.into()),
            file: Some("/src/btree.c".into()),
            line: Some(line),
            column: Some(7),
            ..SourceFrame::default()
        }
    }

    fn resolved(frames: Vec<SourceFrame>) -> Resolved {
        let has_file = frames.first().is_some_and(|it| it.file.is_some());
        Resolved {
            frame: Frame::Module {
                module: ModuleIndex(3),
                offset: 0x1234,
            },
            module: Some("libfoo.so".into()),
            frames,
            no_source: (!has_file).then_some(NoSource::NotCovered),
        }
    }

    #[test]
    fn each_degree_of_knowledge_has_its_form() {
        let full = resolved(vec![frame("insert", 42)]);
        assert_eq!(full.to_string(), "insert (btree.c:42)");
        assert_eq!(format!("{full:#}"), "insert (/src/btree.c:42:7)");

        let inlined = resolved(vec![frame("insert", 42), frame("main", 60)]);
        assert_eq!(
            inlined.to_string(),
            "insert (btree.c:42) inlined into main (btree.c:60)"
        );

        let without_line = resolved(vec![SourceFrame {
            line: None,
            ..frame("insert", 42)
        }]);
        assert_eq!(without_line.to_string(), "insert (btree.c)");

        let without_function = resolved(vec![SourceFrame {
            function: None,
            ..frame("insert", 42)
        }]);
        assert_eq!(without_function.to_string(), "btree.c:42");

        let symbol = resolved(vec![SourceFrame {
            function: Some("insert".into()),
            symbol_offset: Some(0x1c),
            ..SourceFrame::default()
        }]);
        assert_eq!(symbol.to_string(), "insert+0x1c (libfoo.so+0x1234)");

        let nothing = resolved(vec![]);
        assert_eq!(nothing.to_string(), "libfoo.so+0x1234");
        assert_eq!(
            Resolved {
                module: None,
                ..nothing
            }
            .to_string(),
            "module 3+0x1234"
        );
    }
}
