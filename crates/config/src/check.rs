//! `[check]`: what `powerfail check` is told by flags otherwise.

use std::path::PathBuf;
use std::time::Duration;

use powerfail_finding::{Class, Code};

use crate::error::ConfigError;
use crate::table::Table;

/// The section. Every field is what the flag of the same name takes; absent means "not said here".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckSection {
    /// The workload: a command and its arguments.
    pub command: Option<Vec<String>>,
    /// The recovery command, for a shell.
    pub recover: Option<String>,
    /// The command that judges what was recovered.
    pub checker: Option<String>,
    /// The command that talks to a server during the workload.
    pub client: Option<String>,
    /// The command that talks to the recovered server.
    pub client_recover: Option<String>,
    /// How a server tells that it is ready.
    pub ready: Option<String>,
    /// How a server is stopped.
    pub stop: Option<String>,
    /// The command that prints the logical content.
    pub dump: Option<String>,
    /// What in the output of the workload acknowledges an operation.
    pub ack: Option<String>,
    /// How long one recovery may take.
    pub timeout: Option<Duration>,
    /// How long all recoveries together may take.
    pub budget: Option<Duration>,
    /// Recoveries at a time.
    pub jobs: Option<u64>,
    /// Where evidence goes.
    pub out: Option<PathBuf>,
    /// Seed of everything that is chosen at random.
    pub seed: Option<u64>,
    /// How often the workload is recorded, with other orders of its threads.
    pub schedules: Option<u64>,
    /// Which moments are failure points; the words are those of the flag.
    pub failure_points: Option<String>,
    /// Failure points for each distinct call stack.
    pub per_stack: Option<u64>,
    /// Report only these: codes or classes.
    pub only: Option<Vec<Only>>,
    /// What bytes that were never written contain in crash images; the words are those of the flag.
    pub fill: Option<String>,
    /// Exit codes of recovery that count as success.
    pub ok_exit: Option<Vec<u8>>,
    /// Modules to trust besides those that are trusted anyway.
    pub trust: Option<Vec<String>>,
    /// Modules not to trust.
    pub no_trust: Option<Vec<String>>,
    /// Which files are pools.
    pub pool: Option<Vec<PathBuf>>,
    /// Where the pool for `{pool}` is made.
    pub pm_dir: Option<PathBuf>,
    /// How much persistent memory the workload allocates from; the words are those of the flag.
    pub heap: Option<String>,
    /// What survives a crash without any instruction.
    pub domain: Option<String>,
    /// What becomes durable in one piece.
    pub atomicity: Option<String>,
    /// Whether crashes during the creation of a pool count.
    pub include_create: Option<bool>,
    /// What is tried of what a crash can leave; the words are those of the flag of `crash`.
    pub strategy: Option<String>,
    /// Up to how many combinations of a segment all are tried.
    pub threshold: Option<u64>,
    /// How many combinations of a larger segment are tried.
    pub sample: Option<u64>,
    /// Whether adjacent stores to one line are one.
    pub coalesce: Option<bool>,
    /// Whether recoveries are forked from a snapshot where that works.
    pub snapshot: Option<bool>,
    /// Whether `check` explores lost and reordered lines.
    pub lazy: Option<bool>,
    /// How often the power fails, at most.
    pub depth: Option<u64>,
    /// With how many executions lost and reordered lines are explored, about.
    pub max_executions: Option<u64>,
    /// Whether they are explored without limits.
    pub exhaustive: Option<bool>,
    /// Whether recovery is forked where it can observe several values.
    pub fork: Option<bool>,
    /// Whether `check` watches what recovery reads.
    pub races: Option<bool>,
    /// Whether reads of bytes that may not be durable are reported whatever they hold.
    pub strict: Option<bool>,
}

/// What a run is restricted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Only {
    /// One kind of finding.
    Code(Code),
    /// A class of them.
    Class(Class),
}

impl Only {
    /// Whether a kind of finding is wanted.
    pub fn admits(self, code: Code) -> bool {
        match self {
            Self::Code(wanted) => wanted == code,
            Self::Class(wanted) => wanted == code.class(),
        }
    }
}

impl std::str::FromStr for Only {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let code = text.parse().map(Self::Code);
        code.or_else(|_| text.parse().map(Self::Class))
            .map_err(|_| format!("`{text}` is neither a code such as PF0101 nor a class"))
    }
}

pub(crate) const KEYS: &[&str] = &[
    "command",
    "recover",
    "checker",
    "client",
    "client-recover",
    "ready",
    "stop",
    "dump",
    "ack",
    "timeout",
    "budget",
    "jobs",
    "out",
    "seed",
    "schedules",
    "failure-points",
    "per-stack",
    "only",
    "fill",
    "ok-exit",
    "trust",
    "no-trust",
    "pool",
    "pm-dir",
    "heap",
    "domain",
    "atomicity",
    "include-create",
    "strategy",
    "threshold",
    "sample",
    "coalesce",
    "snapshot",
    "lazy",
    "depth",
    "max-executions",
    "exhaustive",
    "fork",
    "races",
    "strict",
];

const STRATEGIES: &[&str] = &["prefix", "eager", "lazy"];

const DOMAINS: &[&str] = &["adr", "eadr", "pagecache"];
const ATOMICITIES: &[&str] = &["store", "8"];

impl CheckSection {
    pub(crate) fn read(table: &Table<'_>) -> Result<Self, ConfigError> {
        table.allow(KEYS)?;
        let positive = |key: &str| match table.number(key)? {
            Some(0) => Err(table.wrong(key, "a whole number above 0")),
            number => Ok(number),
        };
        let path = |key: &str| Ok::<_, ConfigError>(table.string(key)?.map(PathBuf::from));
        let command = match table.strings("command")? {
            Some(command) if command.is_empty() || table.string("command").is_ok() => {
                let expected = "a list: the program and its arguments, each in quotes";
                return Err(table.wrong("command", expected));
            }
            command => command,
        };
        let only = match table.strings("only")? {
            None => None,
            Some(names) => {
                let only: Result<Vec<Only>, _> = names.iter().map(|name| name.parse()).collect();
                let expected = "codes such as \"PF0101\" or classes such as \"durability\"";
                Some(only.map_err(|_| table.wrong("only", expected))?)
            }
        };
        Ok(Self {
            command,
            recover: table.string("recover")?,
            checker: table.string("checker")?,
            client: table.string("client")?,
            client_recover: table.string("client-recover")?,
            ready: table.string("ready")?,
            stop: table.string("stop")?,
            dump: table.string("dump")?,
            ack: table.string("ack")?,
            timeout: table.duration("timeout")?,
            budget: table.duration("budget")?,
            jobs: positive("jobs")?,
            out: path("out")?,
            seed: table.number("seed")?,
            schedules: positive("schedules")?,
            failure_points: table.string("failure-points")?,
            per_stack: table.number("per-stack")?,
            only,
            fill: table.string("fill")?,
            ok_exit: table.exit_codes("ok-exit")?,
            trust: table.strings("trust")?,
            no_trust: table.strings("no-trust")?,
            pool: table
                .strings("pool")?
                .map(|paths| paths.into_iter().map(PathBuf::from).collect()),
            pm_dir: path("pm-dir")?,
            heap: table.string("heap")?,
            domain: table.word(
                "domain",
                &format!("one of {}", DOMAINS.join(", ")),
                |word| DOMAINS.contains(&word).then(|| word.to_owned()),
            )?,
            atomicity: table.word(
                "atomicity",
                &format!("one of {}", ATOMICITIES.join(", ")),
                |word| ATOMICITIES.contains(&word).then(|| word.to_owned()),
            )?,
            include_create: table.boolean("include-create")?,
            strategy: table.word(
                "strategy",
                &format!("one of {}", STRATEGIES.join(", ")),
                |word| STRATEGIES.contains(&word).then(|| word.to_owned()),
            )?,
            threshold: positive("threshold")?,
            sample: positive("sample")?,
            coalesce: table.boolean("coalesce")?,
            snapshot: table.boolean("snapshot")?,
            lazy: table.boolean("lazy")?,
            depth: positive("depth")?,
            max_executions: positive("max-executions")?,
            exhaustive: table.boolean("exhaustive")?,
            fork: table.boolean("fork")?,
            races: table.boolean("races")?,
            strict: table.boolean("strict")?,
        })
    }
}
