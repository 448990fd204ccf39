//! A directory with a pool and its image, and programs in C.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use powerfail_finding::RecoveryOutcome;
use powerfail_oracle::{
    CommandLine, Failure, Oracle, OracleSettings, PathMode, PoolMapping, ProcessMode, RecoveryPlan,
    Slot, Verdict,
};
use powerfail_test_support::runtime;

/// The timeout of all commands: long enough for a busy machine. A program that hangs on purpose expires it
/// immediately, with [`Place::expiring`].
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
/// The ways in which recoveries are isolated.
pub(crate) const WAYS: [(PathMode, ProcessMode); 4] = [
    (PathMode::Namespace, ProcessMode::Auto),
    (PathMode::Namespace, ProcessMode::Group),
    (PathMode::Substitute, ProcessMode::Auto),
    (PathMode::Substitute, ProcessMode::Group),
];

pub(crate) fn settings((paths, processes): (PathMode, ProcessMode)) -> OracleSettings {
    OracleSettings {
        paths,
        processes,
        zygote: Some(env!("CARGO_BIN_EXE_powerfail-oracle-helper").into()),
        ..OracleSettings::default()
    }
}

pub(crate) struct Place {
    pub(crate) directory: tempfile::TempDir,
}

impl Place {
    /// The pool contains `pool`, the image contains `image`.
    pub(crate) fn new() -> Self {
        let place = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        std::fs::create_dir(place.path("pools")).unwrap();
        std::fs::create_dir(place.path("image")).unwrap();
        std::fs::create_dir(place.path("elsewhere")).unwrap();
        std::fs::write(place.original(), "pool").unwrap();
        std::fs::write(place.private(), "image").unwrap();
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn original(&self) -> PathBuf {
        self.path("pools/pool")
    }

    pub(crate) fn private(&self) -> PathBuf {
        self.path("image/pool")
    }

    pub(crate) fn mapping(&self) -> PoolMapping {
        PoolMapping {
            original: self.original(),
            private: self.private(),
        }
    }

    /// The same plan with a FIFO in the variable `EXPIRE`: a byte in it expires the timeout of a command.
    pub(crate) fn expiring(&self, plan: &RecoveryPlan) -> RecoveryPlan {
        let fifo = self.path("elsewhere/expire");
        if !fifo.exists() {
            let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
            assert!(made.success());
        }
        let mut plan = plan.clone();
        plan.environment.push(("EXPIRE".into(), fifo.into()));
        plan
    }

    pub(crate) fn slot(&self, plan: &RecoveryPlan, way: (PathMode, ProcessMode)) -> Slot {
        let oracle = Oracle::new(plan.clone(), settings(way)).unwrap();
        oracle.slot(&[self.mapping()]).unwrap()
    }

    /// Runs a plan once.
    pub(crate) fn run(&self, plan: &RecoveryPlan, way: (PathMode, ProcessMode)) -> Verdict {
        self.slot(plan, way).run().unwrap()
    }
}

pub(crate) fn shell(script: &str) -> RecoveryPlan {
    plan(CommandLine::shell(script))
}

pub(crate) fn plan(recover: CommandLine) -> RecoveryPlan {
    let mut plan = RecoveryPlan::new(recover);
    plan.timeout = PATIENCE;
    plan
}

pub(crate) fn failure(verdict: Verdict) -> Failure {
    match verdict {
        Verdict::Failure(failure) => *failure,
        Verdict::Success { .. } => panic!("recovery succeeded"),
    }
}

pub(crate) fn is_success(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Success { .. })
}

pub(crate) fn output(failure: &Failure) -> &str {
    match &failure.outcome {
        RecoveryOutcome::Exit { output, .. }
        | RecoveryOutcome::Signal { output, .. }
        | RecoveryOutcome::Timeout { output, .. }
        | RecoveryOutcome::Output { output, .. }
        | RecoveryOutcome::Content { output } => output,
    }
}

/// Settings with the real runtime.
pub(crate) fn with_real_runtime(way: (PathMode, ProcessMode)) -> OracleSettings {
    OracleSettings {
        runtime: Some(runtime::bytes().into()),
        snapshot: true,
        ..settings(way)
    }
}

/// Settings with the fake runtime.
pub(crate) fn with_runtime(way: (PathMode, ProcessMode)) -> OracleSettings {
    OracleSettings {
        runtime: Some(std::fs::read(program("runtime")).unwrap().into()),
        snapshot: true,
        ..settings(way)
    }
}

/// A plan whose recovery executes these words.
pub(crate) fn recovery(words: &str) -> RecoveryPlan {
    plan(recovery_command(words))
}

pub(crate) fn recovery_command(words: &str) -> CommandLine {
    let program = program("recovery").into_os_string();
    let words = words.split_whitespace().map(Into::into);
    CommandLine::new([program].into_iter().chain(words))
}

/// A program of `programs/`, compiled.
pub(crate) fn program(name: &str) -> PathBuf {
    static DIRECTORY: OnceLock<tempfile::TempDir> = OnceLock::new();
    let directory = DIRECTORY.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        for (name, options) in [
            ("stack", &[][..]),
            ("server", &[]),
            ("recovery", &["-rdynamic"]),
            ("runtime", &["-shared", "-fPIC"]),
            ("mapped", &[]),
            ("hang", &[]),
        ] {
            let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/programs");
            let status = Command::new("gcc")
                .args(["-g", "-O1", "-pthread", "-I"])
                .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include"))
                .arg("-o")
                .arg(directory.path().join(name))
                .arg(sources.join(name).with_extension("c"))
                .args(options)
                .status()
                .unwrap();
            assert!(status.success());
        }
        directory
    });
    directory.path().join(name)
}
