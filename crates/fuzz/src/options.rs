//! The options of a campaign. They are stored in its directory, for `--resume`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use powerfail_check::Recovery;
use powerfail_recorder::InputChannel;
use serde::{Deserialize, Serialize};

/// The checks that each new test case goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "one for each check")]
pub struct Checks {
    /// The trace is searched for patterns of misuse.
    pub lint: bool,
    /// The power fails at failure points, with all stores before them durable.
    pub prefix: bool,
    /// Lost and reordered lines are explored.
    pub lazy: bool,
    /// The reads of recovery are watched.
    pub races: bool,
}

impl Checks {
    /// None of them.
    pub const NONE: Self = Self {
        lint: false,
        prefix: false,
        lazy: false,
        races: false,
    };

    /// Whether the power fails in any of them.
    pub(crate) const fn has_crashes(self) -> bool {
        self.prefix || self.lazy || self.races
    }
}

impl Default for Checks {
    fn default() -> Self {
        Self {
            lint: true,
            prefix: true,
            lazy: true,
            races: true,
        }
    }
}

impl std::str::FromStr for Checks {
    type Err = String;

    /// Parses names separated by commas: `lint,prefix`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut checks = Self::NONE;
        for name in text.split(',').map(str::trim).filter(|it| !it.is_empty()) {
            match name {
                "lint" => checks.lint = true,
                "prefix" => checks.prefix = true,
                "lazy" => checks.lazy = true,
                "races" => checks.races = true,
                _ => {
                    return Err(format!(
                        "invalid check `{name}`: expected lint, prefix, lazy or races"
                    ));
                }
            }
        }
        Ok(checks)
    }
}

/// How recovery is run and judged.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecoveryOptions {
    /// How recovery is run. An empty `recover` stands for the target itself with an empty input. The working
    /// directory is that of the target.
    pub recovery: Recovery,
    /// The persistence domain is that of `recovery`. Otherwise what a recorded run does decides.
    #[serde(default)]
    pub is_domain_given: bool,
    /// Report warnings, too.
    pub warnings: bool,
    /// Let the power fail while PMDK creates a pool, too.
    pub include_create: bool,
}

/// The connection between instances on several machines, which exchange messages of `LibAFL`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MachineLink {
    /// Listen on this port for others.
    Broker(u16),
    /// Connect to the broker at this address: `host:port`.
    Join(String),
}

/// The options of a campaign.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "switches that are independent of each other"
)]
pub struct CampaignOptions {
    /// The command of the target, with `{pool}` and, unless it reads its standard input, `{input}`.
    pub command: Vec<OsString>,
    /// How the target receives its input.
    pub input: InputChannel,
    /// The directory of the campaign.
    pub out: PathBuf,
    /// Continue an existing campaign.
    #[serde(skip)]
    pub resume: bool,
    /// A directory with initial inputs; without one, the initial input is an empty line.
    pub seeds: Option<PathBuf>,
    /// A directory with initial images: each entry is a pool, or a directory with the files of one image. Without it,
    /// the target creates its pool.
    pub images: Option<PathBuf>,
    /// A dictionary of tokens, in the format of AFL++.
    pub dictionary: Option<PathBuf>,
    /// A grammar of inputs.
    pub grammar: Option<PathBuf>,
    /// The number of threads. Every second one checks, and fuzzes only while there is nothing to check.
    pub jobs: usize,
    /// How long this run of the campaign takes.
    #[serde(skip)]
    pub time: Option<Duration>,
    /// How many executions this run of the campaign makes.
    #[serde(skip)]
    pub executions: Option<u64>,
    /// How long an execution may take.
    pub timeout: Duration,
    /// The checks of new test cases.
    pub checks: Checks,
    /// How recovery is run and judged.
    pub judging: RecoveryOptions,
    /// Identify an operation by its whole call stack, not by its instruction alone.
    pub stacks: bool,
    /// Give the target the same addresses, times, random numbers and ids in each execution.
    pub derandomise: bool,
    /// Feed sockets of the target from the input.
    pub desock: bool,
    /// The average number of crash images at random moments for each new test case.
    pub random_images: f64,
    /// The longest file that the target may write.
    pub file_limit_bytes: u64,
    /// The seed of all random choices.
    pub seed: u64,
    /// Output directories of other instances to import test cases from.
    pub sync: Vec<PathBuf>,
    /// The connection to instances on other machines.
    #[serde(rename = "together")]
    pub machines: Option<MachineLink>,
    /// About how long the checks of one test case may take.
    pub check_budget: Duration,
}

impl CampaignOptions {
    /// The default options for a command.
    pub fn new(command: Vec<OsString>, out: PathBuf) -> Self {
        let working_directory = std::env::current_dir().unwrap_or_default();
        Self {
            command,
            input: InputChannel::default(),
            out,
            resume: false,
            seeds: None,
            images: None,
            dictionary: None,
            grammar: None,
            jobs: std::thread::available_parallelism().map_or(1, usize::from),
            time: None,
            executions: None,
            timeout: Duration::from_millis(150),
            checks: Checks::default(),
            judging: RecoveryOptions {
                recovery: Recovery::new(Vec::new(), working_directory),
                is_domain_given: false,
                warnings: false,
                include_create: false,
            },
            stacks: false,
            derandomise: true,
            desock: false,
            random_images: 1.0,
            file_limit_bytes: 1 << 30,
            seed: 0,
            sync: Vec::new(),
            machines: None,
            check_budget: Duration::from_secs(10),
        }
    }

    /// How recovery is run by default: by its own command, or else by the target with an empty input.
    pub fn recovery(&self) -> Recovery {
        let mut recovery = self.judging.recovery.clone();
        if recovery.recover.is_empty() {
            recovery.recover = self.command_with(b"");
            recovery.desock = self.desock;
        }
        recovery
    }

    /// The command of the target. An input that comes as arguments is put in its place; another one stays a
    /// placeholder.
    pub(crate) fn command_with(&self, input: &[u8]) -> Vec<OsString> {
        if self.input != InputChannel::Arguments {
            return self.command.clone();
        }
        let lines = powerfail_recorder::split_arguments(input);
        let words = self.command.iter();
        words
            .flat_map(|word| match word.as_bytes() {
                b"{input}" => lines.clone(),
                _ => vec![word.clone()],
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Checks;

    #[test]
    fn checks_are_read() {
        let checks: Checks = "lint, races".parse().unwrap();
        assert!(checks.lint && checks.races && !checks.prefix && !checks.lazy);
        assert_eq!("lint,prefix,lazy,races".parse(), Ok(Checks::default()));
        assert!("lint,magic".parse::<Checks>().is_err());
    }
}
