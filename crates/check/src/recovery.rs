//! How recovery is run: everything that decides its result.
//!
//! It is written to `recovery.json` in the output directory, so that a replay runs recovery in the same way.
//! The values are typed here; their text form is read and written in `recovery/form.rs` only.

mod form;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use powerfail_image::{Fill, FillExtent};
use powerfail_lint::{LintOptions, Trust};
use powerfail_model::files::FileSystem;
use powerfail_model::{Atomicity, Domain, Rules};
use powerfail_oracle::{
    CommandLine, Confinement, Limits, Oracle, OracleSettings, Ready, RecoveryPlan, Server,
};
use powerfail_protocol::shared::{DERANDOMISE_VARIABLE, DESOCK_VARIABLE};
use powerfail_trace::{DIRECTORY_NOTE, Trace};
use regex::bytes::Regex;
use serde::{Deserialize, Serialize};

use crate::error::CheckError;
use crate::persistent::Persistent;

/// Stands for the path of the input in the arguments of recovery.
const INPUT_PLACEHOLDER: &str = "{input}";

/// How long each command may take if no timeout is given.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// How long it may be busy then, if that is also much longer than a recovery that succeeds.
const BUSY_LIMIT_DEFAULT: Duration = Duration::from_secs(2);

/// How recovery is run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Recovery {
    /// The command that opens the pool after a crash.
    pub recover: Vec<OsString>,
    /// The command that judges what was recovered.
    pub checker: Option<Vec<OsString>>,
    /// The command that prints what was recovered.
    pub dump: Option<Vec<OsString>>,
    /// The client of a recovery that is a server.
    pub client: Option<Vec<OsString>>,
    /// When the server is ready for the client.
    #[serde(with = "form::ready")]
    pub ready: Option<Ready>,
    /// The command that stops the server.
    pub stop: Option<Vec<OsString>>,
    /// How long each command may take. `None` is [`TIMEOUT_DEFAULT`], or less if it is busy all the time.
    pub timeout: Option<Duration>,
    /// Exit statuses besides 0 that count as success.
    pub ok_exit: Vec<u8>,
    /// Output that counts as failure.
    #[serde(with = "form::patterns")]
    pub fail_patterns: Vec<Regex>,
    /// Limit of the address space.
    pub memory_bytes: Option<u64>,
    /// Limit of the size of a file.
    pub file_bytes: Option<u64>,
    /// Files and directories that it may write to, besides its pools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writable: Vec<PathBuf>,
    /// It may write everywhere and use the network.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unconfined: bool,
    /// The directory in which it runs.
    pub working_directory: PathBuf,
    /// What makes stores durable.
    #[serde(with = "form::domain")]
    pub domain: Domain,
    /// The unit that survives as a whole.
    #[serde(default, with = "form::atomicity")]
    pub atomicity: Atomicity,
    /// Whose rules say what a crash leaves of ordinary files.
    #[serde(default, with = "form::file_system")]
    pub file_system: FileSystem,
    /// The byte that fresh memory holds.
    pub fill: Option<u8>,
    /// Modules that are trusted besides the default ones.
    #[serde(default)]
    pub trust: Vec<String>,
    /// Modules that are not trusted.
    #[serde(default)]
    pub no_trust: Vec<String>,
    /// After how many fences a store that is not flushed is late. `None` is the usual number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dirty_fences: Option<u32>,
    /// The file that recovery reads as its standard input, or through `{input}` in its arguments. A bare file
    /// name is a file of the output directory. `None` is an empty input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<PathBuf>,
    /// Variables of the environment that decide what recovery does, as they were.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environment: Vec<(OsString, OsString)>,
    /// Recovery is a server whose connections come from its input. Without input it ends when it first waits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub desock: bool,
    /// Recovery has the same time, random numbers and process ids in every run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub derandomise: bool,
}

impl Recovery {
    /// A command that is run in a directory, with defaults for everything else.
    pub fn new(recover: Vec<OsString>, working_directory: PathBuf) -> Self {
        Self {
            recover,
            checker: None,
            dump: None,
            client: None,
            ready: None,
            stop: None,
            timeout: None,
            ok_exit: Vec::new(),
            fail_patterns: Vec::new(),
            memory_bytes: None,
            file_bytes: None,
            writable: Vec::new(),
            unconfined: false,
            working_directory,
            domain: Domain::default(),
            atomicity: Atomicity::default(),
            file_system: FileSystem::default(),
            fill: None,
            trust: Vec::new(),
            no_trust: Vec::new(),
            dirty_fences: None,
            input: None,
            environment: Vec::new(),
            desock: false,
            derandomise: false,
        }
    }

    /// The variables of this process that can decide what recovery does. A replay sets them again.
    pub fn environment_that_matters() -> Vec<(OsString, OsString)> {
        const NAMES: [&str; 7] = [
            "LANG",
            "LANGUAGE",
            "LD_LIBRARY_PATH",
            "LD_PRELOAD",
            "LD_BIND_NOW",
            "TZ",
            "GLIBC_TUNABLES",
        ];
        const PREFIXES: [&str; 7] = [
            "LC_", "PMEM", "MALLOC_", "ASAN_", "UBSAN_", "MSAN_", "TSAN_",
        ];
        let matters = |name: &OsString| {
            let name = name.to_string_lossy();
            NAMES.contains(&&*name) || PREFIXES.iter().any(|it| name.starts_with(it))
        };
        let mut variables: Vec<_> = std::env::vars_os()
            .filter(|(name, _)| matters(name))
            .collect();
        variables.sort();
        variables
    }

    /// Fails if a command of recovery cannot be run, or a path that it needs does not exist. Needs no trace, so that
    /// a campaign can ask before it records anything.
    pub fn inspect(&self) -> Result<(), CheckError> {
        let settings = OracleSettings {
            confinement: self.confinement(),
            ..OracleSettings::default()
        };
        Oracle::new(self.plan_without_trace(), settings)?;
        Ok(())
    }

    /// The plan of the oracle. `progress` hears how many bytes of the trace were read.
    pub(crate) fn plan(&self, trace: &Trace, progress: &mut dyn FnMut(u64)) -> RecoveryPlan {
        let mut plan = self.plan_without_trace();
        Persistent::of(trace).equip(&mut plan, progress);
        plan.directory = trace.meta().note(DIRECTORY_NOTE).map(PathBuf::from);
        plan
    }

    /// The plan of the oracle without what only the trace says: the memory that recovery must find again.
    fn plan_without_trace(&self) -> RecoveryPlan {
        let command = |words: &Vec<OsString>| CommandLine::new(self.with_input(words));
        let mut plan = RecoveryPlan::new(command(&self.recover));
        plan.checker = self.checker.as_ref().map(command);
        plan.dump = self.dump.as_ref().map(command);
        if let Some(ready) = &self.ready {
            plan.server = Some(Server {
                ready: ready.clone(),
                client: self.client.as_ref().map(command),
                stop: self.stop.as_ref().map(command),
                judge_exit: true,
            });
        }
        plan.timeout = self.timeout.unwrap_or(TIMEOUT_DEFAULT);
        plan.busy_limit = self.timeout.is_none().then_some(BUSY_LIMIT_DEFAULT);
        plan.ok_exit = self.ok_exit.iter().map(|code| (*code).into()).collect();
        plan.fail_patterns.clone_from(&self.fail_patterns);
        plan.limits = Limits {
            memory_bytes: self.memory_bytes,
            file_bytes: self.file_bytes,
        };
        plan.working_directory = Some(self.working_directory.clone());
        plan.input.clone_from(&self.input);
        plan.environment.clone_from(&self.environment);
        for (is_on, variable) in [
            (self.desock, DESOCK_VARIABLE),
            (self.derandomise, DERANDOMISE_VARIABLE),
        ] {
            if is_on {
                plan.preload = true;
                plan.environment.push((variable.into(), "1".into()));
            }
        }
        plan
    }

    /// What its commands may touch; `None` does not restrict them.
    pub(crate) fn confinement(&self) -> Option<Confinement> {
        (!self.unconfined).then(|| Confinement {
            writable: self.writable.clone(),
            memory_bytes: None,
        })
    }

    /// The words of a command, with `{input}` replaced by the path of the input.
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

    /// Its commands, each with what it is for.
    pub fn commands(&self) -> impl Iterator<Item = (&'static str, &[OsString])> {
        let others = [
            ("checker", &self.checker),
            ("dump", &self.dump),
            ("client", &self.client),
            ("stop", &self.stop),
        ];
        let others = others
            .into_iter()
            .filter_map(|(name, command)| Some((name, command.as_deref()?)));
        std::iter::once(("recovery", self.recover.as_slice())).chain(others)
    }

    /// The same commands, to change them.
    pub(crate) fn commands_mut(&mut self) -> impl Iterator<Item = &mut Vec<OsString>> {
        let others = [
            &mut self.checker,
            &mut self.dump,
            &mut self.client,
            &mut self.stop,
        ];
        std::iter::once(&mut self.recover).chain(others.into_iter().flatten())
    }

    /// The file name of the input.
    pub(crate) fn input_name(&self) -> Option<&str> {
        self.input.as_deref()?.file_name()?.to_str()
    }

    /// The rules that say what a crash can leave.
    pub const fn rules(&self) -> Rules {
        Rules {
            domain: self.domain,
            atomicity: self.atomicity,
        }
    }

    /// The modules that are trusted.
    pub fn trusted(&self) -> Trust {
        Trust::with(&self.trust, &self.no_trust)
    }

    /// How the trace is linted.
    pub fn lint_options(&self, warnings: bool) -> LintOptions {
        LintOptions {
            domain: self.domain,
            trust: self.trusted(),
            warnings,
            dirty_fences: self.dirty_fences.unwrap_or(LintOptions::DIRTY_FENCES),
        }
    }

    /// What fresh memory holds.
    pub fn fill(&self) -> Option<Fill> {
        self.fill.map(|byte| Fill {
            byte,
            extent: FillExtent::TouchedPages,
        })
    }
}
