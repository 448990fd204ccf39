//! The oracle: a plan that was checked, from which slots are made.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::descriptors;
use crate::environment::environment;
use crate::error::OracleError;
use crate::message::{Level, Prepared, PreparedReady, PreparedServer, Setup};
use crate::plan::{CommandLine, PoolMapping, Ready, RecoveryPlan};
use crate::program;
use crate::slot::{Slot, Started};
use crate::substitute::Substitution;

/// How recovery gets to see the image instead of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathMode {
    /// By mounts if possible, else by substitution.
    #[default]
    Auto,
    /// By mounts, at the pool's own path; an error where that is not possible.
    Namespace,
    /// By replacing the path in arguments and environment.
    Substitute,
}

/// How it is made sure that no process is left behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProcessMode {
    /// By a namespace of processes if possible, else by [`ProcessMode::Group`].
    #[default]
    Auto,
    /// By following children: a process that loses its parent becomes one of the zygote's, which ends
    /// it.
    Group,
}

/// How recoveries are run, as opposed to what is run.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// How recovery gets to see the image.
    pub paths: PathMode,
    /// How processes are kept together.
    pub processes: ProcessMode,
    /// A program that calls [`serve_if_zygote`](crate::serve_if_zygote) first thing; `None` is this one.
    pub zygote: Option<PathBuf>,
    /// The runtime, as the bytes of its library: needed for snapshots and to explore.
    pub runtime: Option<Arc<[u8]>>,
    /// Whether to fork recoveries from snapshots where that works: [`Slot::snapshot_note`] says where it does
    /// not.
    pub snapshot: bool,
}

/// One way to keep recovery apart.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    level: Level,
    covers: bool,
}

/// Judges crash images by a plan.
#[derive(Debug)]
pub struct Oracle {
    plan: RecoveryPlan,
    settings: Settings,
    working_directory: PathBuf,
    environment: Vec<(OsString, OsString)>,
    /// The runtime, where loaders find it.
    runtime: Option<OwnedFd>,
    attempts: Vec<Attempt>,
    /// Those before it are known not to work here.
    first_attempt: AtomicUsize,
}

impl Oracle {
    /// Checks a plan: its programs must be there.
    pub fn new(plan: RecoveryPlan, settings: Settings) -> Result<Self, OracleError> {
        let current = std::env::current_dir()
            .map_err(|error| OracleError::system("find the working directory", &error))?;
        let working_directory = match &plan.working_directory {
            Some(directory) => current.join(directory),
            None => current,
        };
        for path in plan.input.iter().chain([&working_directory]) {
            path.metadata().map_err(|source| OracleError::Path {
                path: path.clone(),
                source,
            })?;
        }
        let runtime = match &settings.runtime {
            Some(bytes) => Some(
                descriptors::runtime_file(bytes)
                    .map_err(|error| OracleError::system("put the runtime into memory", &error))?,
            ),
            None => None,
        };
        let oracle = Self {
            runtime,
            environment: environment(&plan.environment),
            attempts: attempts(settings.paths, settings.processes),
            first_attempt: AtomicUsize::new(0),
            plan,
            settings,
            working_directory,
        };
        // Any path does: this is for the errors.
        oracle.setup(
            Level::Plain,
            Vec::new(),
            &Substitution::of_placeholder(Path::new("/")),
        )?;
        Ok(oracle)
    }

    /// The plan.
    pub fn plan(&self) -> &RecoveryPlan {
        &self.plan
    }

    /// Makes a slot for these pools, whose private paths stay the same for all its runs; what is there
    /// may change between runs.
    pub fn slot(&self, mappings: &[PoolMapping]) -> Result<Slot, OracleError> {
        let first = mappings.first().ok_or(OracleError::NoPool)?;
        for path in mappings.iter().flat_map(|it| [&it.original, &it.private]) {
            if !path.is_absolute() {
                return Err(OracleError::Relative { path: path.clone() });
            }
        }
        let pool = self.plan.pool.as_deref().unwrap_or(&first.original);
        let mut reasons: Vec<String> = Vec::new();
        let start = self.first_attempt.load(Ordering::Relaxed);
        for (place, attempt) in self.attempts.iter().enumerate().skip(start) {
            let setup = if attempt.covers {
                let substitution = Substitution::of_placeholder(pool);
                self.setup(attempt.level, mappings.to_vec(), &substitution)?
            } else {
                let substitution = Substitution::of_paths(pool, mappings);
                self.setup(attempt.level, Vec::new(), &substitution)?
            };
            match Slot::start(&self.settings, self.runtime.as_ref(), &setup, mappings)? {
                Started::Ready(mut slot) => {
                    slot.note_fallback(&reasons);
                    self.first_attempt.store(place, Ordering::Relaxed);
                    return Ok(slot);
                }
                Started::NotPossible(reason) => {
                    if !reasons.contains(&reason) {
                        reasons.push(reason);
                    }
                }
            }
        }
        Err(OracleError::NoNamespace {
            reason: reasons.join("; "),
        })
    }

    /// The plan with everything replaced.
    fn setup(
        &self,
        level: Level,
        cover: Vec<PoolMapping>,
        substitution: &Substitution,
    ) -> Result<Setup, OracleError> {
        let plan = &self.plan;
        let prepare = |name, line: &CommandLine| self.prepare(name, line, substitution);
        let prepare_any = |name, line: Option<&CommandLine>| match line {
            Some(line) => prepare(name, line).map(Some),
            None => Ok(None),
        };
        let server = match &plan.server {
            Some(server) => Some(PreparedServer {
                ready: match &server.ready {
                    Ready::Port(port) => PreparedReady::Port(*port),
                    Ready::Unix(path) => PreparedReady::Unix(substitution.apply(path.as_os_str())),
                    Ready::Output(pattern) => PreparedReady::Output(pattern.as_str().into()),
                },
                client: prepare_any("client", server.client.as_ref())?,
                stop: prepare_any("stop", server.stop.as_ref())?,
                judge_exit: server.judge_exit,
            }),
            None => None,
        };
        let mut variables = Vec::with_capacity(self.environment.len());
        for (name, value) in &self.environment {
            let mut variable = name.clone();
            variable.push("=");
            variable.push(substitution.apply(value));
            variables.push(without_zero(variable)?);
        }
        Ok(Setup {
            level,
            cover,
            working_directory: self.working_directory.clone(),
            input: plan.input.clone().unwrap_or_else(|| "/dev/null".into()),
            environment: variables,
            recover: prepare("recovery", &plan.recover)?,
            server,
            checker: prepare_any("checker", plan.checker.as_ref())?,
            dump: prepare_any("dump", plan.dump.as_ref())?,
            timeout_ms: u64::try_from(plan.timeout.as_millis()).unwrap_or(u64::MAX),
            ok_exit: plan.ok_exit.clone(),
            fail_patterns: plan.fail_patterns.iter().map(ToString::to_string).collect(),
            limits: plan.limits,
            max_dump_bytes: plan.max_dump_bytes,
            has_runtime: self.runtime.is_some(),
            preload: plan.preload && self.runtime.is_some(),
        })
    }

    fn prepare(
        &self,
        name: &'static str,
        line: &CommandLine,
        substitution: &Substitution,
    ) -> Result<Prepared, OracleError> {
        let Some(first) = line.words.first() else {
            return Err(OracleError::EmptyCommand { command: name });
        };
        let search = self
            .environment
            .iter()
            .find(|(variable, _)| variable == "PATH");
        let search = search.map(|(_, value)| value.as_os_str());
        let program = program::find(name, first, &self.working_directory, search)?;
        let mut words = vec![without_zero(first.clone())?];
        for word in &line.words[1..] {
            words.push(without_zero(substitution.apply(word))?);
        }
        Ok(Prepared { program, words })
    }
}

/// What to try, best first.
fn attempts(paths: PathMode, processes: ProcessMode) -> Vec<Attempt> {
    let attempt = |level, covers| Attempt { level, covers };
    let mut attempts = Vec::new();
    if paths != PathMode::Substitute {
        attempts.extend([attempt(Level::Full, true), attempt(Level::Mounts, true)]);
    }
    if paths != PathMode::Namespace {
        attempts.extend([attempt(Level::Full, false), attempt(Level::Plain, false)]);
    }
    if processes == ProcessMode::Group {
        attempts.retain(|it| it.level != Level::Full);
    }
    attempts
}

fn without_zero(text: OsString) -> Result<OsString, OracleError> {
    if text.as_bytes().contains(&0) {
        return Err(OracleError::ZeroByte {
            text: text.to_string_lossy().into_owned(),
        });
    }
    Ok(text)
}
