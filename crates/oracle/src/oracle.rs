//! The oracle: a checked plan, from which slots are made.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::descriptors;
use crate::environment::environment;
use crate::error::OracleError;
use crate::hang::SharedKnowledge;
use crate::message::{IsolationLevel, Setup, Usage};
use crate::plan::{
    CommandLine, Confinement, PoolMapping, RecoveryPlan, ResolvedCommand, ResolvedPlan,
};
use crate::program;
use crate::ready::Ready;
use crate::slot::{Slot, StartedSlot};
use crate::substitute::Substitution;
use crate::verdict::Stage;
use crate::zygote::runtime::check_preload;

/// How recovery is made to open the image instead of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathMode {
    /// By mounts if possible, else by substitution.
    #[default]
    Auto,
    /// By mounts, at the path of the pool; an error where that is not possible.
    Namespace,
    /// By replacing the path in arguments and environment.
    Substitute,
}

/// How processes that recovery leaves behind are ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProcessMode {
    /// By a process namespace if possible, else by [`ProcessMode::Group`].
    #[default]
    Auto,
    /// By adoption: a process that loses its parent becomes a child of the zygote, which ends it.
    Group,
}

/// How recoveries are run, as opposed to what is run.
#[derive(Clone, Debug, Default)]
pub struct OracleSettings {
    /// How recovery is made to open the image.
    pub paths: PathMode,
    /// How processes that are left behind are ended.
    pub processes: ProcessMode,
    /// A program that calls [`serve_if_zygote`](crate::serve_if_zygote) at the beginning of `main`; `None` is
    /// this program.
    pub zygote: Option<PathBuf>,
    /// What commands may touch; `None` does not restrict them.
    pub confinement: Option<Confinement>,
    /// The bytes of the library of the runtime, which snapshots and exploring need.
    pub runtime: Option<Arc<[u8]>>,
    /// Whether to fork recoveries from snapshots where that works; [`Slot::snapshot_note`] says where it does
    /// not.
    pub snapshot: bool,
}

/// A kind of isolation to try.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    level: IsolationLevel,
    /// Whether images are mounted over pools; otherwise paths are substituted.
    mounts_pools: bool,
    /// Whether commands are confined, if the settings say so.
    confines: bool,
}

/// Judges crash images by a plan.
#[derive(Debug)]
pub struct Oracle {
    plan: RecoveryPlan,
    settings: OracleSettings,
    working_directory: PathBuf,
    environment: Vec<(OsString, OsString)>,
    /// The library of the runtime, as a file that a loader can open.
    runtime: Option<OwnedFd>,
    attempts: Vec<Attempt>,
    /// The attempts before this one have failed.
    first_attempt: AtomicUsize,
    /// What its slots have learned about hangs.
    hangs: SharedKnowledge,
}

impl Oracle {
    /// Checks a plan: its programs must exist.
    pub fn new(plan: RecoveryPlan, settings: OracleSettings) -> Result<Self, OracleError> {
        let current =
            std::env::current_dir().map_err(OracleError::system("find the working directory"))?;
        let working_directory = match &plan.working_directory {
            Some(directory) => current.join(directory),
            None => current,
        };
        let writable = settings.confinement.iter().flat_map(|it| &it.writable);
        for path in plan
            .input
            .iter()
            .chain([&working_directory])
            .chain(writable)
        {
            path.metadata().map_err(|source| OracleError::Path {
                path: path.clone(),
                source,
            })?;
        }
        let runtime = match &settings.runtime {
            Some(bytes) => Some(
                descriptors::runtime_file(bytes)
                    .map_err(OracleError::system("copy the runtime into memory"))?,
            ),
            None => None,
        };
        let oracle = Self {
            runtime,
            environment: environment(&plan.environment),
            attempts: attempts(&settings),
            first_attempt: AtomicUsize::new(0),
            hangs: SharedKnowledge::default(),
            plan,
            settings,
            working_directory,
        };
        // Only for its errors, so any path does.
        oracle.resolve(&Substitution::of_placeholder(Path::new("/")))?;
        Ok(oracle)
    }

    /// The plan.
    pub fn plan(&self) -> &RecoveryPlan {
        &self.plan
    }

    /// Whether it is restricted what commands may touch.
    pub const fn is_confined(&self) -> bool {
        self.settings.confinement.is_some()
    }

    /// Makes a slot for these pools. Their private paths stay the same for all runs; the files there may change
    /// between runs.
    pub fn slot(&self, mappings: &[PoolMapping]) -> Result<Slot, OracleError> {
        let first = mappings.first().ok_or(OracleError::NoPool)?;
        for path in mappings.iter().flat_map(|it| [&it.original, &it.private]) {
            if !path.is_absolute() {
                return Err(OracleError::Relative { path: path.clone() });
            }
        }
        let pool = self.plan.pool.as_deref().unwrap_or(&first.original);
        let tree = self.plan.directory.as_deref().unwrap_or(&first.original);
        let mut reasons: Vec<String> = Vec::new();
        let start = self.first_attempt.load(Ordering::Relaxed);
        for (number, attempt) in self.attempts.iter().enumerate().skip(start) {
            let (substitution, mounted_pools) = if attempt.mounts_pools {
                let substitution = Substitution::of_placeholder(pool).with_directory(tree);
                (substitution, mappings.to_vec())
            } else {
                let directory = &self.working_directory;
                (
                    Substitution::of_paths(pool, mappings, directory).with_directory(tree),
                    Vec::new(),
                )
            };
            let mut plan = self.resolve(&substitution)?;
            let is_forced = self.settings.paths == PathMode::Substitute;
            if !attempt.mounts_pools && !is_forced && !self.names_pool(&plan, pool, tree)? {
                return Err(OracleError::PoolNotNamed {
                    reason: reasons.join("; "),
                });
            }
            if self.is_confined() && plan.limits.file_bytes.is_none() {
                plan.limits.file_bytes = Some(longest_file(mappings));
            }
            plan.busy_limit = plan
                .busy_limit
                .map(|limit| limit.max(time_to_read(mappings)));
            let confinement = self.settings.confinement.clone();
            let setup = Setup {
                level: attempt.level,
                mounted_pools,
                mappings: mappings.to_vec(),
                confinement: confinement.filter(|_| attempt.confines),
                usage: self.settings.confinement.as_ref().map(usage),
                has_runtime: self.runtime.is_some(),
                plan,
            };
            let runtime = self.runtime.as_ref();
            match Slot::start(&self.settings, runtime, &setup, mappings, &self.hangs)? {
                StartedSlot::Ready(mut slot) => {
                    slot.note_fallback(reasons);
                    self.first_attempt.store(number, Ordering::Relaxed);
                    return Ok(*slot);
                }
                StartedSlot::NotIsolated(reason) => {
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

    /// Whether paths were replaced in a plan: otherwise recovery would open the pool itself.
    fn names_pool(
        &self,
        plan: &ResolvedPlan,
        pool: &Path,
        tree: &Path,
    ) -> Result<bool, OracleError> {
        let unchanged = Substitution::of_placeholder(pool).with_directory(tree);
        let unchanged = self.resolve(&unchanged)?;
        let words = |plan: &ResolvedPlan| {
            let mut words = Vec::new();
            let commands = [
                Some(&plan.recover),
                plan.checker.as_ref(),
                plan.dump.as_ref(),
            ];
            for command in commands.into_iter().flatten() {
                words.extend(command.words.clone());
            }
            words
        };
        Ok(words(plan) != words(&unchanged) || plan.environment != unchanged.environment)
    }

    /// The plan with programs found and everything but ports substituted.
    fn resolve(&self, substitution: &Substitution) -> Result<ResolvedPlan, OracleError> {
        let mut plan = self
            .plan
            .try_map(|stage, line| self.resolve_command(stage, line, substitution))?;
        if let Some(server) = &mut plan.server
            && let Ready::Unix(path) = &mut server.ready
        {
            *path = substitution.apply(path.as_os_str()).into();
        }
        plan.environment.clear();
        for (name, value) in &self.environment {
            let value = without_zero(substitution.apply(value))?;
            plan.environment.push((without_zero(name.clone())?, value));
        }
        plan.working_directory = Some(self.working_directory.clone());
        plan.preload &= self.runtime.is_some();
        Ok(plan)
    }

    /// The commands that open pools and into which the runtime cannot be loaded, and why, in words.
    pub fn commands_without_runtime(&self) -> Vec<String> {
        let plan = &self.plan;
        let commands = [
            (Stage::Recovery, Some(&plan.recover)),
            (Stage::Checker, plan.checker.as_ref()),
            (Stage::Dump, plan.dump.as_ref()),
        ];
        let obstacle = |(stage, line): (Stage, Option<&CommandLine>)| {
            let program = self.find_program(stage, line?.words.first()?).ok()?;
            let obstacle = check_preload(&program).err()?;
            Some(format!(
                "the {stage} command {}: {obstacle}",
                program.display()
            ))
        };
        commands.into_iter().filter_map(obstacle).collect()
    }

    fn find_program(&self, stage: Stage, name: &OsStr) -> Result<PathBuf, OracleError> {
        let mut variables = self.environment.iter();
        let search = variables.find(|(variable, _)| variable == "PATH");
        let search = search.map(|(_, value)| value.as_os_str());
        program::find(stage, name, &self.working_directory, search)
    }

    fn resolve_command(
        &self,
        stage: Stage,
        line: &CommandLine,
        substitution: &Substitution,
    ) -> Result<ResolvedCommand, OracleError> {
        let Some(first) = line.words.first() else {
            return Err(OracleError::EmptyCommand { command: stage });
        };
        let program = self.find_program(stage, first)?;
        let mut words = vec![without_zero(first.clone())?];
        for word in &line.words[1..] {
            words.push(without_zero(substitution.apply(word))?);
        }
        Ok(ResolvedCommand { program, words })
    }
}

/// How long a slow recovery takes to read all of its pools.
fn time_to_read(mappings: &[PoolMapping]) -> Duration {
    const BYTES_PER_MS: u64 = 50_000;
    let bytes: u64 = mappings.iter().flat_map(PoolMapping::file_lengths).sum();
    Duration::from_millis(bytes / BYTES_PER_MS)
}

/// How long the files that confined commands write may become.
fn longest_file(mappings: &[PoolMapping]) -> u64 {
    const USUAL: u64 = 16 << 30;
    const TIMES: u64 = 4;
    let lengths = mappings.iter().flat_map(PoolMapping::file_lengths);
    let longest = lengths.max().unwrap_or(0);
    USUAL.max(longest.saturating_mul(TIMES))
}

/// How much confined commands may use: half of the memory of this machine unless the confinement says otherwise, and more
/// processes than any recovery needs.
fn usage(confinement: &Confinement) -> Usage {
    const PROCESSES: u64 = 1000;
    if let Some(memory_bytes) = confinement.memory_bytes {
        return Usage {
            memory_bytes,
            processes: PROCESSES,
        };
    }
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| {
        let kibibytes = line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?;
        kibibytes.parse::<u64>().ok()
    });
    Usage {
        memory_bytes: total.map_or(u64::MAX, |kibibytes| kibibytes * 1024 / 2),
        processes: PROCESSES,
    }
}

/// The kinds of isolation to try, best first.
fn attempts(settings: &OracleSettings) -> Vec<Attempt> {
    let OracleSettings {
        paths, processes, ..
    } = *settings;
    let attempt = |level, mounts_pools| {
        [true, false].map(|confines| Attempt {
            level,
            mounts_pools,
            confines,
        })
    };
    let mut attempts = Vec::new();
    if paths != PathMode::Substitute {
        attempts.extend(attempt(IsolationLevel::Full, true));
        attempts.extend(attempt(IsolationLevel::Mounts, true));
    }
    if paths != PathMode::Namespace {
        attempts.extend(attempt(IsolationLevel::Full, false));
        attempts.extend(attempt(IsolationLevel::None, false));
    }
    if processes == ProcessMode::Group {
        attempts.retain(|it| it.level != IsolationLevel::Full);
    }
    if settings.confinement.is_none() {
        attempts.retain(|it| !it.confines);
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
