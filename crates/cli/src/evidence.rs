//! The output directory: the trace, the report, and how recovery was run, for `powerfail replay`.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use powerfail_detect::{Standing, Trust};
use powerfail_finding::Report;
use powerfail_image::{Fill, FillExtent};
use powerfail_model::{Atomicity, Domain, Rules};
use powerfail_oracle::{CommandLine, Limits, RecoveryPlan, Server};
use powerfail_trace::Trace;
use serde::{Deserialize, Serialize};

use crate::persistent::Persistent;

/// Where evidence goes if nobody says.
pub(crate) const DEFAULT: &str = "powerfail-out";
pub(crate) const TRACE: &str = "run.trace";
const REPORT: &str = "report.json";
const RECOVERY: &str = "recovery.json";

/// How recovery was run: everything that decides its result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Recovery {
    pub(crate) recover: Vec<OsString>,
    pub(crate) checker: Option<Vec<OsString>>,
    pub(crate) dump: Option<Vec<OsString>>,
    pub(crate) client: Option<Vec<OsString>>,
    pub(crate) ready: Option<String>,
    pub(crate) stop: Option<Vec<OsString>>,
    pub(crate) timeout: Duration,
    pub(crate) ok_exit: Vec<u8>,
    pub(crate) fail_patterns: Vec<String>,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) file_bytes: Option<u64>,
    pub(crate) working_directory: PathBuf,
    pub(crate) domain: String,
    #[serde(default)]
    pub(crate) atomicity: Option<String>,
    pub(crate) fill: Option<u8>,
    /// Modules that are trusted besides the usual ones, and those that are not.
    #[serde(default)]
    pub(crate) trust: Vec<String>,
    #[serde(default)]
    pub(crate) no_trust: Vec<String>,
}

/// A regular expression of the user.
pub(crate) fn regex(text: &str) -> anyhow::Result<regex::bytes::Regex> {
    regex::bytes::Regex::new(text).with_context(|| format!("`{text}` is not a regular expression"))
}

impl Recovery {
    /// The plan of the oracle.
    pub(crate) fn plan(&self, trace: &Trace) -> anyhow::Result<RecoveryPlan> {
        let command = |words: &Vec<OsString>| CommandLine::new(words.clone());
        let mut plan = RecoveryPlan::new(command(&self.recover));
        plan.checker = self.checker.as_ref().map(command);
        plan.dump = self.dump.as_ref().map(command);
        if let Some(ready) = &self.ready {
            plan.server = Some(Server {
                ready: ready.parse().map_err(anyhow::Error::msg)?,
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
        Persistent::of(trace).equip(&mut plan);
        Ok(plan)
    }

    /// What survives.
    pub(crate) fn rules(&self) -> Rules {
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
    pub(crate) fn trusted(&self) -> Trust {
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
    pub(crate) fn fill(&self) -> Option<Fill> {
        self.fill.map(|byte| Fill {
            byte,
            extent: FillExtent::TouchedPages,
        })
    }
}

fn write(path: &Path, value: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    fs::write(path, text + "\n").with_context(|| path.display().to_string())
}

fn read<T: for<'de> Deserialize<'de>>(path: &Path) -> anyhow::Result<T> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

/// Makes the directory. It belongs to this run for as long as the result lives.
pub(crate) fn create(out: &Path) -> anyhow::Result<fs::File> {
    let name = || out.display().to_string();
    fs::create_dir_all(out).with_context(name)?;
    let directory = fs::File::open(out).with_context(name)?;
    match directory.try_lock() {
        Ok(()) => Ok(directory),
        Err(fs::TryLockError::WouldBlock) => {
            anyhow::bail!("{} is in use by another run; give another --out", name())
        }
        Err(fs::TryLockError::Error(error)) => Err(error).with_context(name),
    }
}

/// Puts the trace into the directory, unless it is there.
pub(crate) fn keep_trace(out: &Path, trace: &Path) -> anyhow::Result<()> {
    let to = out.join(TRACE);
    let same = to.canonicalize().ok() == trace.canonicalize().ok();
    if !same {
        fs::copy(trace, &to).with_context(|| to.display().to_string())?;
    }
    Ok(())
}

/// Writes what a replay needs besides the trace.
pub(crate) fn save(out: &Path, report: &Report, recovery: &Recovery) -> anyhow::Result<()> {
    write(&out.join(REPORT), report)?;
    write(&out.join(RECOVERY), recovery)
}

/// The report and how recovery was run.
pub(crate) fn load(out: &Path) -> anyhow::Result<(Report, Recovery)> {
    let report = read(&out.join(REPORT)).context("there is no evidence to replay")?;
    Ok((report, read(&out.join(RECOVERY))?))
}

/// Copies everything into a new directory.
pub(crate) fn export(out: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir(to).with_context(|| to.display().to_string())?;
    let (report, _) = load(out)?;
    let evidence = report.findings.iter().filter_map(|it| it.evidence.as_ref());
    let mut names = vec![TRACE, REPORT, RECOVERY];
    names.extend(evidence.filter_map(|evidence| evidence.trace.as_deref()));
    let reads = report.findings.iter().filter_map(|it| it.read.as_ref());
    names.extend(reads.filter_map(|read| read.trace.as_deref()));
    names.sort_unstable();
    names.dedup();
    for name in names {
        let (from, to) = (out.join(name), to.join(name));
        fs::copy(&from, &to).with_context(|| from.display().to_string())?;
    }
    Ok(())
}
