//! Where in the sources something happened.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What happened at a place.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The store that is lost, or that the finding is about.
    Store,
    /// The store that made the state bad: it survived and should not have, alone.
    Survivor,
    /// The store that came later and overwrote.
    Overwrite,
    /// The store that made data reachable.
    Publish,
    /// A flush.
    Flush,
    /// A fence.
    Fence,
    /// Where the power failed.
    Failure,
    /// Where recovery was when it crashed, hung or gave up.
    Recovery,
    /// A load of recovery.
    Load,
    /// A store to a commit variable, or the commit of a transaction.
    Commit,
    /// Where a transaction begins.
    Transaction,
    /// Where a range is added to a transaction.
    Add,
    /// Where memory is allocated.
    Allocation,
}

impl Role {
    /// As it is written in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Survivor => "survivor",
            Self::Overwrite => "overwrite",
            Self::Publish => "publish",
            Self::Flush => "flush",
            Self::Fence => "fence",
            Self::Failure => "failure",
            Self::Recovery => "recovery",
            Self::Load => "load",
            Self::Commit => "commit",
            Self::Transaction => "transaction",
            Self::Add => "add",
            Self::Allocation => "allocation",
        }
    }
}

/// A place in the sources, with the calls that led to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct SourcePlace {
    /// What happened there.
    pub role: Role,
    /// The source file, if known.
    pub file: Option<String>,
    /// The line, if known; lines count from 1.
    pub line: Option<u32>,
    /// The column, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// The function, if known.
    pub function: Option<String>,
    /// The module, if known: executable or library.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// The pool that was accessed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The offset of the first byte in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_offset: Option<u64>,
    /// How many bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub len_bytes: Option<u64>,
    /// What was stored, in hexadecimal; a prefix if it is long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<String>,
    /// What was done there, if it is an operation on an ordinary file: `write`, `rename to config`. `pool` is the path of
    /// the file then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// The number of the event in the trace (the first, if there are many).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<u64>,
    /// The number of the thread in the trace, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<u32>,
    /// The small function that did it for this line, if the line is its caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub helper: Option<Helper>,
    /// The calls that led here, innermost first; the first frame may lie in a library.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stack: Vec<StackFrame>,
}

impl SourcePlace {
    /// `map.c:17`: the name of the file without its directory, and the line.
    pub fn file_and_line(&self) -> Option<String> {
        let file = self.file.as_deref()?;
        let name = file.rsplit('/').next().unwrap_or(file);
        Some(format!("{name}:{}", self.line?))
    }

    /// ` in insert`, to continue a sentence; empty if the function is unknown.
    pub fn in_function(&self) -> String {
        let function = self.function.as_deref();
        function.map_or_else(String::new, |function| format!(" in {function}"))
    }

    /// The module and the offset in it, of the frame that this place is: they tell places apart that have no line.
    pub fn code(&self) -> Option<(Option<&str>, u64)> {
        // Frames have the name of a module, places can have its path.
        let name = |module: &Option<String>| {
            let module = module.as_deref();
            module.map(|path| path.rsplit('/').next().unwrap_or(path).to_owned())
        };
        let module = name(&self.module);
        let is_it =
            |frame: &&StackFrame| frame.function == self.function && name(&frame.module) == module;
        let frame = self.stack.iter().find(is_it)?;
        Some((frame.module.as_deref(), frame.offset))
    }

    /// A place of which nothing is known but what happened there.
    pub const fn new(role: Role) -> Self {
        Self {
            role,
            file: None,
            line: None,
            column: None,
            function: None,
            module: None,
            pool: None,
            pool_offset: None,
            len_bytes: None,
            bytes: None,
            operation: None,
            event: None,
            thread: None,
            helper: None,
            stack: Vec::new(),
        }
    }
}

/// A small function that stores or flushes for several callers, such as `put_u64` or `persist`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Helper {
    /// Its name.
    pub function: Option<String>,
    /// Its source file.
    pub file: Option<String>,
    /// The line in it.
    pub line: Option<u32>,
}

/// One frame of a call stack; inlined calls have frames of their own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct StackFrame {
    /// The function, if known.
    pub function: Option<String>,
    /// The source file, if known.
    pub file: Option<String>,
    /// The line, if known.
    pub line: Option<u32>,
    /// The module, by the last part of its path.
    pub module: Option<String>,
    /// The distance from the module's load address, or the address if there is no module.
    pub offset: u64,
    /// Whether the frame lies in a library that is trusted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trusted: bool,
}
