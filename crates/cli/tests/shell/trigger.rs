//! Triggers: for each planted bug, the workload that shows it.
//!
//! A trigger is a file of steps. `= run` runs commands on the pool. `= crash FUNCTION N` runs commands and leaves the
//! pool as it is before the N-th fence with this function on its call stack. `= check`, the last step, is the workload
//! for `powerfail check`: with `alone`, it is not combined with other triggers; with `lost`, lost lines are explored
//! as well.

use std::fs;
use std::path::{Path, PathBuf};

/// A step that is applied to the pool before the workload that is checked.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Run {
        commands: String,
    },
    Crash {
        function: String,
        fence: usize,
        commands: String,
    },
}

/// See the module header.
#[derive(Clone, Debug)]
pub(crate) struct Trigger {
    /// The bugs that must be found.
    pub(crate) bugs: Vec<u32>,
    pub(crate) before: Vec<Step>,
    pub(crate) commands: String,
    pub(crate) is_alone: bool,
    pub(crate) needs_lost_lines: bool,
}

/// The sources of the shell.
pub(crate) fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/targets/fuzz/kv")
}

/// The trigger of a bug.
pub(crate) fn of(bug: u32) -> Trigger {
    let path = sources().join(format!("triggers/{bug:02}.txt"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("bug {bug}: {error}"));
    let mut trigger = Trigger {
        bugs: vec![bug],
        before: Vec::new(),
        commands: String::new(),
        is_alone: false,
        needs_lost_lines: false,
    };
    for part in text.split("\n= ").skip(1) {
        let (head, commands) = part.split_once('\n').expect("commands");
        let commands = format!("{}\n", commands.trim_end());
        match head.split_whitespace().collect::<Vec<_>>()[..] {
            ["run"] => trigger.before.push(Step::Run { commands }),
            ["crash", function, fence] => trigger.before.push(Step::Crash {
                function: function.to_owned(),
                fence: fence.parse().expect("a number"),
                commands,
            }),
            ["check"] => trigger.commands = commands,
            ["check", "alone"] => {
                trigger.commands = commands;
                trigger.is_alone = true;
            }
            ["check", "lost"] => {
                trigger.commands = commands;
                trigger.is_alone = true;
                trigger.needs_lost_lines = true;
            }
            _ => panic!("bug {bug}: no step: {head}"),
        }
    }
    assert!(!trigger.commands.is_empty(), "bug {bug}: nothing to check");
    trigger
}

impl Trigger {
    /// The structure that it begins with.
    pub(crate) fn structure(&self) -> &str {
        let first = self.commands.lines().next().unwrap_or_default();
        first.strip_prefix("use ").expect("a structure comes first")
    }

    /// Whether it can be checked together with others of the same structure.
    pub(crate) fn is_mergeable(&self) -> bool {
        self.before.is_empty() && !self.is_alone
    }

    /// Adds a trigger of the same structure. Each trigger begins with an empty structure. In the radix tree, the keys
    /// of each trigger begin with different letters, so nothing has to be removed there.
    pub(crate) fn append(&mut self, other: &Self) {
        let steps = "del 0\n".repeat(HASH_STEPS);
        let reset = match self.structure() {
            "radix" => String::new(),
            "hash" => format!("drop 0 {}\n{steps}resize 4\n{steps}", u64::MAX),
            _ => format!("drop 0 {}\n", u64::MAX),
        };
        self.commands += &reset;
        self.commands += &other.commands;
        self.bugs.extend(&other.bugs);
    }
}

/// This many commands complete any resize that triggers begin.
const HASH_STEPS: usize = 17;
