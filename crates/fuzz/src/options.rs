//! What a campaign is to do.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use powerfail_check::Recovery;
use serde::{Deserialize, Serialize};

/// How the target gets its input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InputWay {
    /// From its standard input.
    #[default]
    Stdin,
    /// From the file that `{input}` stands for.
    File,
    /// As arguments, in the place of `{input}`: one for each line.
    Arguments,
}

/// Which checks a new test case goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "one for each check")]
pub struct Checks {
    /// Patterns of misuse in the trace.
    pub lint: bool,
    /// The power fails at failure points, with all stores before them durable.
    pub prefix: bool,
    /// Lost and reordered lines.
    pub lazy: bool,
    /// The reads of recovery.
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

    /// Reads names with commas between them: `lint,prefix`.
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
                        "`{name}` is no check; there are lint, prefix, lazy and races"
                    ));
                }
            }
        }
        Ok(checks)
    }
}

/// How findings are judged, as far as `check` does it, too.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecoveryOptions {
    /// How recovery is run. An empty `recover` is the target itself with an empty input. The working
    /// directory is that of the target.
    pub recovery: Recovery,
    /// Also report warnings.
    pub warnings: bool,
    /// Also let the power fail while PMDK creates a pool.
    pub include_create: bool,
}

/// Where `LibAFL`'s messages go, if several machines work together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Together {
    /// Others join here, at this port.
    Broker(u16),
    /// Join the broker at this address: `host:port`.
    Join(String),
}

/// See the module header.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "switches that are independent of each other"
)]
pub struct CampaignOptions {
    /// The target, with `{pool}` and, unless it reads its standard input, `{input}`.
    pub command: Vec<OsString>,
    /// How it gets its input.
    pub input: InputWay,
    /// Where everything is kept.
    pub out: PathBuf,
    /// Go on with what is there.
    #[serde(skip)]
    pub resume: bool,
    /// A directory with inputs to begin with; without one, an empty line.
    pub seeds: Option<PathBuf>,
    /// A directory with images to begin with: each entry is a pool, or a directory with its files. Without
    /// one the target creates its pool.
    pub images: Option<PathBuf>,
    /// Tokens, as those of AFL++.
    pub dictionary: Option<PathBuf>,
    /// A grammar of inputs.
    pub grammar: Option<PathBuf>,
    /// Threads in all: one of two checks, and fuzzes when there is nothing to check.
    pub jobs: usize,
    /// How long, this time.
    #[serde(skip)]
    pub time: Option<Duration>,
    /// How many executions, this time.
    #[serde(skip)]
    pub executions: Option<u64>,
    /// How long an execution may take.
    pub timeout: Duration,
    /// Which checks.
    pub checks: Checks,
    /// How recovery is judged.
    pub judging: RecoveryOptions,
    /// An operation is its whole call stack, not its site alone.
    pub stacks: bool,
    /// Give the target the same addresses, times, random numbers and ids in each execution.
    pub derandomise: bool,
    /// Feed sockets of the target from the input.
    pub desock: bool,
    /// Crash images at random points: how many for each new test case, on average.
    pub random_images: f64,
    /// The longest file that the target may write.
    pub file_limit_bytes: u64,
    /// What decides all that is chosen at random.
    pub seed: u64,
    /// Output directories of other instances, to import from.
    pub sync: Vec<PathBuf>,
    /// Other machines.
    pub together: Option<Together>,
    /// How long the checks of one test case may take, about.
    pub check_budget: Duration,
}

impl CampaignOptions {
    /// The usual options for a command. `recovery` says how it is judged.
    pub fn new(command: Vec<OsString>, out: PathBuf) -> Self {
        let working_directory = std::env::current_dir().unwrap_or_default();
        Self {
            command,
            input: InputWay::default(),
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
            together: None,
            check_budget: Duration::from_secs(10),
        }
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
