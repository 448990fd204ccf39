//! What this machine, and a program, offer to powerfail: what `powerfail doctor` finds out.
//!
//! Each probe tries what a check will do, with the code that does it then: it starts the process that runs recoveries to
//! learn how far those are isolated, and examines a program as the recorder does. Nothing is recorded and no program of
//! the user runs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use powerfail_finding::{Diagnosis, Health};
use powerfail_oracle::{
    CommandLine, Confinement, Oracle, OracleError, OracleSettings, PoolMapping, RecoveryPlan,
};
use powerfail_recorder::{RecordError, Unsupported, check_machine, emulator, inspect, limits};
use powerfail_symbol::{BuildId, LineSource, Symbolizer};
use powerfail_trace::{Module, ModuleIndex};
use rustix::process::{Resource, getrlimit};

/// Where fresh pools and crash images are kept.
const SHARED_MEMORY: &str = "/dev/shm";
/// Less than this is soon filled by crash images.
const SHARED_MEMORY_MIN_BYTES: u64 = 256 << 20;
/// What a script has instead of lines of its own.
const OF_SCRIPTS: &str =
    "those of the programs that the script runs, as far as they have debug information";
/// Where findings are.
const LINES: &str = "source lines";
/// Fewer descriptors are soon used up by several recoveries at a time.
const DESCRIPTORS_MIN: u64 = 256;

/// Probes this machine and, if there is one, a program.
pub fn diagnose(program: Option<&OsStr>) -> Vec<Diagnosis> {
    let mut diagnoses = vec![
        kernel(),
        processor(),
        isolation(),
        shared_memory(),
        descriptors(),
        limit("file size", limits::file_size_limit(), "-f"),
        limit("address space", limits::address_space_limit(), "-v"),
        debugger(),
    ];
    if let Some(program) = program {
        diagnoses.extend(self::program(program));
    }
    diagnoses
}

fn kernel() -> Diagnosis {
    const OLDEST: (u32, u32) = (5, 9);
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy().into_owned();
    let fact = format!("Linux {release}");
    match version(&release) {
        Some(version) if version < OLDEST => {
            Diagnosis::bad("kernel", Health::Missing, fact, "use Linux 5.9 or later")
        }
        _ => Diagnosis::good("kernel", fact),
    }
}

/// The first two numbers of a release, `6.1` of `6.1.0-18-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|it: char| !it.is_ascii_digit());
    let mut next = || numbers.next()?.parse().ok();
    Some((next()?, next()?))
}

fn processor() -> Diagnosis {
    const SUBJECT: &str = "processor";
    match check_machine() {
        Ok(()) => Diagnosis::good(SUBJECT, "programs may set their GS base (FSGSBASE)"),
        Err(error) => Diagnosis::bad(
            SUBJECT,
            Health::Missing,
            error.to_string(),
            "in a virtual machine, pass the processor of the host through",
        ),
    }
}

/// How far recoveries are isolated, learned by starting the process that would run them.
fn isolation() -> Diagnosis {
    const SUBJECT: &str = "isolation";
    let remedy = "run as root, or allow user namespaces: sysctl kernel.unprivileged_userns_clone=1 and, on Ubuntu, \
                  kernel.apparmor_restrict_unprivileged_userns=0";
    match probe_isolation() {
        Err(reason) => Diagnosis::bad(
            SUBJECT,
            Health::Missing,
            format!("recoveries cannot be started: {reason}"),
            remedy,
        ),
        Ok(reasons) if reasons.is_empty() => Diagnosis::good(
            SUBJECT,
            "recoveries have their own mounts, processes and network, and are confined",
        ),
        Ok(reasons) => Diagnosis::bad(
            SUBJECT,
            Health::Limited,
            format!("recoveries are not fully isolated: {}", reasons.join("; ")),
            remedy,
        ),
    }
}

/// Starts the process that runs recoveries, and returns why it is not fully isolated.
fn probe_isolation() -> Result<Vec<String>, String> {
    let scratch = powerfail_image::scratch_directory().map_err(|error| error.to_string())?;
    let file = |name: &str| -> Result<PathBuf, String> {
        let path = scratch.path().join(name);
        match std::fs::write(&path, [0; 4096]) {
            Ok(()) => Ok(path),
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    };
    let mapping = PoolMapping {
        original: file("pool")?,
        private: file("image")?,
    };
    let slot = || -> Result<Vec<String>, OracleError> {
        let plan = RecoveryPlan::new(CommandLine::shell("exit 0"));
        let settings = OracleSettings {
            confinement: Some(Confinement::default()),
            ..OracleSettings::default()
        };
        let slot = Oracle::new(plan, settings)?.slot(&[mapping])?;
        Ok(slot.isolation().reasons.clone())
    };
    slot().map_err(|error| error.to_string())
}

fn shared_memory() -> Diagnosis {
    const SUBJECT: &str = "shared memory";
    match rustix::fs::statvfs(SHARED_MEMORY) {
        Err(error) => Diagnosis::bad(
            SUBJECT,
            Health::Limited,
            format!("{SHARED_MEMORY} cannot be used: {error}"),
            format!("mount a tmpfs at {SHARED_MEMORY}"),
        ),
        Ok(status) => {
            let free = status.f_bavail.saturating_mul(status.f_frsize);
            let fact = format!("{} MB are free in {SHARED_MEMORY}", free >> 20);
            if free < SHARED_MEMORY_MIN_BYTES {
                let remedy = format!(
                    "mount -o remount,size=2G {SHARED_MEMORY}, or --shm-size=2g for a container: fresh pools and crash \
                     images are kept there"
                );
                Diagnosis::bad(SUBJECT, Health::Limited, fact, remedy)
            } else {
                Diagnosis::good(SUBJECT, fact)
            }
        }
    }
}

fn descriptors() -> Diagnosis {
    const SUBJECT: &str = "open files";
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < DESCRIPTORS_MIN => Diagnosis::bad(
            SUBJECT,
            Health::Limited,
            format!("at most {limit} files can be open"),
            "ulimit -n 1024",
        ),
        Some(limit) => Diagnosis::good(SUBJECT, format!("at most {limit} files can be open")),
        None => Diagnosis::good(SUBJECT, "no limit"),
    }
}

fn limit(subject: &'static str, limit_bytes: Option<u64>, option: &str) -> Diagnosis {
    match limit_bytes {
        None => Diagnosis::good(subject, "no limit"),
        Some(bytes) => Diagnosis::bad(
            subject,
            Health::Limited,
            format!("limited to {} MB", bytes >> 20),
            format!("ulimit {option} unlimited: targets and recoveries inherit the limit"),
        ),
    }
}

fn debugger() -> Diagnosis {
    const SUBJECT: &str = "gdb";
    match find_program(SUBJECT) {
        Some(path) => Diagnosis::good(SUBJECT, path.display().to_string()),
        None => Diagnosis::bad(
            SUBJECT,
            Health::Limited,
            "not found: powerfail replay --gdb does not work",
            "install gdb",
        ),
    }
}

/// The file of a program in PATH.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|file| rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok())
}

/// Whether a program can be recorded, and whether reports will have its source lines.
pub(crate) fn program(program: &OsStr) -> Vec<Diagnosis> {
    const SUBJECT: &str = "program";
    let found = match inspect(program) {
        Ok(found) => found,
        Err(RecordError::Unsupported(
            Unsupported::Static { program } | Unsupported::Go { program },
        )) if emulator().is_some() => {
            let fact = format!(
                "{} is statically linked and can be recorded under QEMU",
                program.display()
            );
            return vec![Diagnosis::good(SUBJECT, fact), debug_information(&program)];
        }
        Err(error) => {
            let (fact, remedy) = match &error {
                RecordError::NotFound { program } => (
                    format!("{} was not found", program.display()),
                    "check the name and PATH",
                ),
                RecordError::NotExecutable { program } => (
                    format!("{} is not executable", program.display()),
                    "check its permissions, or give the program that runs it",
                ),
                _ => (
                    error.to_string(),
                    "give a dynamically linked x86-64 program, or a script that runs one; with the package qemu-user, also a \
                     static one",
                ),
            };
            return vec![Diagnosis::bad(SUBJECT, Health::Missing, fact, remedy)];
        }
    };
    if found.path == found.program {
        let fact = format!("{} can be recorded", found.path.display());
        return vec![
            Diagnosis::good(SUBJECT, fact),
            debug_information(&found.program),
        ];
    }
    // The interpreter is seldom what the user wants to see.
    let (script, interpreter) = (found.path.display(), found.program.display());
    vec![
        Diagnosis::good(
            SUBJECT,
            format!("{script} can be recorded; {interpreter} runs it"),
        ),
        Diagnosis::good(LINES, OF_SCRIPTS),
    ]
}

fn debug_information(program: &Path) -> Diagnosis {
    const SUBJECT: &str = LINES;
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    if name.starts_with("python3") {
        return Diagnosis::good(SUBJECT, "those of Python code, with CPython 3.11 to 3.13");
    }
    if ["sh", "bash", "dash", "zsh", "ksh"].contains(&&*name) {
        return Diagnosis::good(SUBJECT, OF_SCRIPTS);
    }
    let module = Module {
        path: program.to_owned(),
        build_id: BuildId::of(program).unwrap_or_default().0,
        load_address: 0,
        len_bytes: 0,
        function: None,
    };
    let mut symbolizer = Symbolizer::new(&[module]);
    let report = symbolizer.module_report(ModuleIndex(0));
    match report.map(|report| (&report.lines, report.problems.first())) {
        Some((LineSource::Module, _)) => {
            Diagnosis::good(SUBJECT, "the program has debug information")
        }
        Some((LineSource::BuildId(path) | LineSource::DebugLink(path), _)) => Diagnosis::good(
            SUBJECT,
            format!("debug information is in {}", path.display()),
        ),
        Some((LineSource::None, problem)) => Diagnosis::bad(
            SUBJECT,
            Health::Limited,
            problem.map_or_else(|| "none".to_owned(), ToString::to_string),
            "compile with -g, or install the package with its debug information: without it reports have functions at \
             most",
        ),
        None => Diagnosis::bad(
            SUBJECT,
            Health::Limited,
            "the program cannot be read",
            "make it readable",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_their_numbers() {
        assert_eq!(version("6.1.0-18-amd64"), Some((6, 1)));
        assert_eq!(version("5.15-rc1"), Some((5, 15)));
        assert_eq!(version("unknown"), None);
    }

    #[test]
    fn a_program_that_does_not_exist_is_missing() {
        let diagnoses = program(OsStr::new("/nowhere/program"));
        let [found] = &diagnoses[..] else {
            panic!("{diagnoses:?}");
        };
        assert_eq!(found.health, Health::Missing);
        assert!(found.fact.contains("/nowhere/program"), "{found:?}");
    }
}
