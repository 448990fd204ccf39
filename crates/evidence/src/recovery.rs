//! How recovery was run: everything that decides its result.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use powerfail_image::{Fill, FillExtent};
use powerfail_lint::{Standing, Trust};
use powerfail_model::{Atomicity, Domain, Rules};
use powerfail_oracle::{CommandLine, Limits, RecoveryPlan, Server};
use powerfail_recorder::DESOCK_VARIABLE;
use powerfail_trace::Trace;
use serde::{Deserialize, Serialize};

use crate::error::EvidenceError;
use crate::persistent::Persistent;

/// What stands for a file with what recovery is given, in its arguments.
const INPUT_PLACEHOLDER: &str = "{input}";

/// See the module header.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Recovery {
    /// Opens the pool after a crash.
    pub recover: Vec<OsString>,
    /// Judges what was recovered.
    pub checker: Option<Vec<OsString>>,
    /// Prints what was recovered.
    pub dump: Option<Vec<OsString>>,
    /// Runs against a recovery that is a server.
    pub client: Option<Vec<OsString>>,
    /// When the server is ready for it.
    pub ready: Option<String>,
    /// Stops the server.
    pub stop: Option<Vec<OsString>>,
    /// How long each command may take.
    pub timeout: Duration,
    /// Exit statuses that are a success besides 0.
    pub ok_exit: Vec<u8>,
    /// What must not be in the output.
    pub fail_patterns: Vec<String>,
    /// Limit of address space.
    pub memory_bytes: Option<u64>,
    /// Limit of files.
    pub file_bytes: Option<u64>,
    /// Where it runs.
    pub working_directory: PathBuf,
    /// What makes stores durable.
    pub domain: String,
    /// What survives as a whole.
    #[serde(default)]
    pub atomicity: Option<String>,
    /// What fresh memory holds.
    pub fill: Option<u8>,
    /// Modules that are trusted besides the usual ones.
    #[serde(default)]
    pub trust: Vec<String>,
    /// Modules that are not trusted.
    #[serde(default)]
    pub no_trust: Vec<String>,
    /// What recovery reads from its standard input, or from the file that `{input}` stands for; a name
    /// alone is a file of the output directory. `None` is nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<PathBuf>,
    /// Recovery is a server whose connections come from its input: without any, it ends when it first waits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub desock: bool,
}

/// A regular expression of the user.
pub fn regex(text: &str) -> Result<regex::bytes::Regex, EvidenceError> {
    regex::bytes::Regex::new(text).map_err(|source| EvidenceError::Pattern {
        text: text.to_owned(),
        source,
    })
}

impl Recovery {
    /// The plan of the oracle.
    pub fn plan(&self, trace: &Trace) -> Result<RecoveryPlan, EvidenceError> {
        let command = |words: &Vec<OsString>| CommandLine::new(self.with_input(words));
        let mut plan = RecoveryPlan::new(command(&self.recover));
        plan.checker = self.checker.as_ref().map(command);
        plan.dump = self.dump.as_ref().map(command);
        if let Some(ready) = &self.ready {
            plan.server = Some(Server {
                ready: ready.parse().map_err(EvidenceError::Ready)?,
                client: self.client.as_ref().map(command),
                stop: self.stop.as_ref().map(command),
                judge_exit: true,
            });
        }
        plan.timeout = self.timeout;
        plan.ok_exit = self.ok_exit.iter().map(|code| (*code).into()).collect();
        plan.fail_patterns = self
            .fail_patterns
            .iter()
            .map(|pattern| regex(pattern))
            .collect::<Result<_, _>>()?;
        plan.limits = Limits {
            memory_bytes: self.memory_bytes,
            file_bytes: self.file_bytes,
        };
        plan.working_directory = Some(self.working_directory.clone());
        plan.input.clone_from(&self.input);
        Persistent::of(trace).equip(&mut plan);
        if self.desock {
            plan.preload = true;
            plan.environment.push((DESOCK_VARIABLE.into(), "1".into()));
        }
        Ok(plan)
    }

    /// Words in which the placeholder of the input is replaced.
    pub fn with_input(&self, words: &[OsString]) -> Vec<OsString> {
        let path = self.input.as_deref().unwrap_or(Path::new("/dev/null"));
        let path = path.to_string_lossy();
        let replaced = |word: &OsString| match word.to_str() {
            Some(text) if text.contains(INPUT_PLACEHOLDER) => {
                text.replace(INPUT_PLACEHOLDER, &path).into()
            }
            _ => word.clone(),
        };
        words.iter().map(replaced).collect()
    }

    /// Gives an input that is named alone the path of its directory.
    pub(crate) fn find_input(&mut self, directory: &Path) {
        if let Some(input) = &mut self.input
            && input.is_relative()
        {
            let directory = std::path::absolute(directory);
            *input = directory.unwrap_or_default().join(&input);
        }
    }

    /// The name of the input.
    pub(crate) fn input_name(&self) -> Option<&str> {
        self.input.as_deref()?.file_name()?.to_str()
    }

    /// What survives.
    pub fn rules(&self) -> Rules {
        Rules {
            domain: Domain::from_name(&self.domain).unwrap_or_default(),
            atomicity: self
                .atomicity
                .as_deref()
                .and_then(Atomicity::from_name)
                .unwrap_or_default(),
        }
    }

    /// Whom to trust.
    pub fn trusted(&self) -> Trust {
        let mut trust = Trust::default();
        for module in &self.trust {
            trust.add(module, Standing::Opaque);
        }
        for module in &self.no_trust {
            trust.add(module, Standing::User);
        }
        trust
    }

    /// What fresh memory holds.
    pub fn fill(&self) -> Option<Fill> {
        self.fill.map(|byte| Fill {
            byte,
            extent: FillExtent::TouchedPages,
        })
    }
}
