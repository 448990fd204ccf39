//! A finding, and the report that all of them make.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::code::{Class, Code, Severity};
use crate::commit::InferredCommitVariable;
use crate::exploration::{Choice, Eager, Exploration, SecondFailure, Written};
use crate::fix::Fix;
use crate::mark::Marks;
use crate::place::SourcePlace;
use crate::read::{Races, UnsafeRead};
use crate::tree::{TreeCrash, TreeTotals};

/// One distinct bug.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// Names the finding in its output directory: what `powerfail replay` takes. The same for the
    /// same bug in the same program.
    pub id: String,
    /// The kind of finding.
    pub code: Code,
    /// Its class.
    pub class: Class,
    /// How much it matters.
    pub severity: Severity,
    /// What is wrong, in one sentence.
    pub message: String,
    /// How often it was seen.
    pub count: u64,
    /// Where. The store that is lost comes first; if nothing is lost that was stored before the failure, the store that
    /// comes too early does.
    pub places: Vec<SourcePlace>,
    /// What to do about it, in words: only what is verified, so there is a `fix`, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
    /// The same as operations on the trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<Fix>,
    /// What else is known about the cause. It explains and does not advise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explanation: Option<String>,
    /// What a crash showed, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
    /// What recovery does after other crashes because of the same bug, as far as that differs from the evidence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub consequences: Vec<RecoveryOutcome>,
    /// What recovery reads, if the finding is about that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<UnsafeRead>,
    /// Where that is in the run, by the marks of the program: of the failure if a crash showed the bug, else of the
    /// first place.
    #[serde(default, skip_serializing_if = "Marks::is_empty")]
    pub marks: Marks,
    /// What would have made the stores durable.
    #[serde(default, skip_serializing_if = "DurableBy::is_usual")]
    pub durable_by: DurableBy,
    /// What the crash left of ordinary files, if the finding is about these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<TreeCrash>,
    /// Stores without a flush that are not shown: what this finding asks for is for them, too. Only known in the run that
    /// made the finding.
    #[serde(skip)]
    pub beside: Vec<SourcePlace>,
}

/// What makes stores durable, where the program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DurableBy {
    /// Flushes and fences: persistent memory.
    #[default]
    Flush,
    /// `msync`, `fsync` and `fdatasync`: an ordinary file.
    Sync,
}

impl DurableBy {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde passes a reference"
    )]
    fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

impl Finding {
    /// A finding that was seen once. It gets its id when all findings of a report are known
    /// ([`assign_ids`](crate::assign_ids)).
    pub const fn new(code: Code, message: String, places: Vec<SourcePlace>) -> Self {
        Self {
            id: String::new(),
            code,
            class: code.class(),
            severity: code.severity(),
            message,
            count: 1,
            places,
            suggestion: None,
            fix: None,
            explanation: None,
            evidence: None,
            consequences: Vec::new(),
            read: None,
            marks: Marks::NONE,
            durable_by: DurableBy::Flush,
            tree: None,
            beside: Vec::new(),
        }
    }

    /// Adds to what is known about the cause, once.
    pub fn explain(&mut self, text: String) {
        match &mut self.explanation {
            Some(known) if known.contains(&text) => {}
            Some(known) => {
                known.push_str("; ");
                known.push_str(&text);
            }
            None => self.explanation = Some(text),
        }
    }
}

/// What a crash showed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// When the power failed.
    pub failure: FailurePoint,
    /// What recovery did.
    pub recovery: RecoveryOutcome,
    /// The newest failure point before it at which recovery succeeded: an event's number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_good_event: Option<u64>,
    /// The first failure point after it at which recovery succeeded again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_good_event: Option<u64>,
    /// The trace that shows it, in the output directory, if that is not `run.trace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// What differs between what was recovered and what should have been, if content was compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<String>,
    /// The first store is torn: a part of it survived, and the rest is lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub torn: bool,
    /// The loads of recovery that could have read from several stores, in their order. If there are very
    /// many, some of those that are not decisive are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<Choice>,
}

/// When the power failed, and what was lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FailurePoint {
    /// Just before this event.
    pub event: u64,
    /// Lines that did not have their newest content: empty for a prefix crash.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_lines: Vec<LostLine>,
    /// The power failed again while recovery ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<SecondFailure>,
    /// Memory that was allocated and never written, and what it held: it can hold anything.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filled: Vec<Written>,
}

/// A line of a pool in a crash state that is not at its newest version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LostLine {
    /// The pool, by its number in the trace.
    pub pool: u32,
    /// The offset of the line.
    pub pool_offset: u64,
    /// How many of its stores since it was last sure survive. Where stores become durable in pieces, each piece counts.
    pub version: usize,
    /// How many whole stores those pieces are, where pieces were counted and each store is whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stores: Option<usize>,
}

/// What recovery (or the checker after it) did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum RecoveryOutcome {
    /// It ended with this status, which counts as a failure.
    Exit {
        /// The status.
        status: i32,
        /// Which command: `recovery` or `checker`.
        command: String,
        /// The end of what it wrote.
        output: String,
    },
    /// It was ended by a signal.
    Signal {
        /// Its number.
        signal: i32,
        /// Which command: `recovery` or `checker`.
        command: String,
        /// The end of what it wrote.
        output: String,
    },
    /// It did not end in time.
    Timeout {
        /// How long it was given.
        after_ms: u64,
        /// Which command: `recovery` or `checker`.
        command: String,
        /// The end of what it wrote.
        output: String,
    },
    /// It wrote something that counts as a failure.
    Output {
        /// The pattern that matched.
        pattern: String,
        /// Which command: `recovery` or `checker`.
        command: String,
        /// The end of what it wrote.
        output: String,
    },
    /// It succeeded, and what it recovered is wrong.
    Content {
        /// The content, or the end of it.
        output: String,
    },
}

impl RecoveryOutcome {
    /// Which command did it: `recovery` or `checker`.
    pub fn command(&self) -> &str {
        match self {
            Self::Exit { command, .. }
            | Self::Signal { command, .. }
            | Self::Timeout { command, .. }
            | Self::Output { command, .. } => command,
            Self::Content { .. } => "recovery",
        }
    }

    /// The end of what the command wrote, or the recovered content.
    pub fn output(&self) -> &str {
        match self {
            Self::Exit { output, .. }
            | Self::Signal { output, .. }
            | Self::Timeout { output, .. }
            | Self::Output { output, .. }
            | Self::Content { output } => output,
        }
    }
}

impl fmt::Display for RecoveryOutcome {
    /// What it did, as the end of a sentence: `exited with status 1`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit { status, .. } => write!(formatter, "exited with status {status}"),
            Self::Signal { signal, .. } => match signal_name(*signal) {
                Some(name) => write!(formatter, "was killed by {name} (signal {signal})"),
                None => write!(formatter, "was killed by signal {signal}"),
            },
            Self::Timeout { after_ms, .. } => match (after_ms / 1000, after_ms % 1000) {
                (1, 0) => formatter.write_str("did not end (time limit 1 second)"),
                (seconds, 0) => write!(formatter, "did not end (time limit {seconds} seconds)"),
                _ => write!(formatter, "did not end (time limit {after_ms} ms)"),
            },
            Self::Output { pattern, .. } => write!(
                formatter,
                "wrote a line that matches the failure pattern `{pattern}`"
            ),
            Self::Content { .. } => {
                formatter.write_str("succeeded, but the recovered content is wrong")
            }
        }
    }
}

const fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return None,
    })
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// All that a run has to say, as `--format json` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// Version of this format: 1.
    pub schema: u32,
    /// The version of powerfail.
    pub powerfail: String,
    /// The workload.
    pub command: Vec<String>,
    /// The findings: errors first, then bugs of performance, then warnings.
    pub findings: Vec<Finding>,
    /// What was done.
    pub totals: Totals,
    /// Whatever limits what was done: sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Why nothing was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NotChecked {
    /// The workload stored nothing in persistent memory.
    NoStore,
    /// There is no moment at which a power failure could make a difference.
    NoFailurePoint,
    /// There is no operation of the kind that failure points were restricted to.
    NoFailurePointOfKind,
    /// The time was up before the first crash was tried.
    NoTime,
    /// Recovery did not open a pool.
    PoolNotOpened,
    /// Recovery opened none of the files that the workload changed.
    FilesNotOpened,
    /// Recovery does the same whatever the pools hold.
    RecoveryCannotFail,
    /// There are correctness bugs, but none is certain: recovery may need a file that the workload wrote with system
    /// calls, which crash images lack.
    NeedsFile,
}

/// Failure points of prefix crashes at which recovery was not tried, by reason. With those at which it was tried, they are
/// all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PointsNotRun {
    /// As many others with the same call stack are tried as `--per-stack` says.
    pub same_stack: u64,
    /// The crash image is that of one that was chosen.
    pub equal_image: u64,
    /// Recovery fails at another one with the same call stack.
    pub failing_stack: u64,
    /// The time was up, or the run was interrupted.
    pub no_time: u64,
}

impl PointsNotRun {
    /// Whether there are none.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Adds those of another run.
    pub const fn add(&mut self, more: Self) {
        self.same_stack += more.same_stack;
        self.equal_image += more.equal_image;
        self.failing_stack += more.failing_stack;
        self.no_time += more.no_time;
    }
}

/// What was done, in numbers. No times: the same seed and trace give the same bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Totals {
    /// Events in the trace.
    pub events: u64,
    /// Failure points in the trace, before those with the same call stack were put together.
    pub failure_points: u64,
    /// Distinct call stacks among them.
    pub failure_point_stacks: u64,
    /// Failure points at which recovery was tried.
    pub failure_points_run: u64,
    /// Prefix crashes: failure points at which recovery was not tried, by reason.
    #[serde(default, skip_serializing_if = "PointsNotRun::is_none")]
    pub failure_points_not_run: PointsNotRun,
    /// Runs of recovery, all in all.
    pub recovery_runs: u64,
    /// Why nothing was checked, if that is so: the absence of findings says nothing then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_checked: Option<NotChecked>,
    /// Findings that suppressions took away.
    pub suppressed: u64,
    /// Findings that the baseline knows.
    pub in_baseline: u64,
    /// Findings of the baseline that are there no more.
    #[serde(default)]
    pub fixed: u64,
    /// How far all that a crash can leave was explored, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exploration: Option<Exploration>,
    /// The combinations that eager exploration tried, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eager: Option<Eager>,
    /// The crashes of ordinary files that were tried, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<TreeTotals>,
    /// How the reads of recovery were watched, if they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub races: Option<Races>,
    /// Variables that seem to decide which other data is valid, if that was asked for, the most convincing first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commit_variables: Vec<InferredCommitVariable>,
    /// How often the workload was recorded, if its threads were scheduled.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub schedules: u64,
    /// How many of the recordings were different; each was looked at.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub distinct_schedules: u64,
}
