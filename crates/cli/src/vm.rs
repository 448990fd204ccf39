//! `powerfail vm`: file systems of a guest's kernel. The machine is prepared and the workload recorded here; what follows is
//! `powerfail crash` with a recovery command that asks a guest.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Parser as _;
use powerfail_check::{
    Replay, Session, SessionResult, WatchedRecovery, WatchedStep, output_directory,
};
use powerfail_config::{
    CommandText, Count, CrashSettings, CrashStrategy, FailureArgs, RecoveryArgs, ServerArgs,
    ShareArgs, Strategy, TestSettings,
};
use powerfail_files::{Directory, output};
use powerfail_finding::Severity;
use powerfail_vm::archive::Archive;
use powerfail_vm::{
    FileSystem, Guest, Kernel, Machine, MachineOptions, MemoryLayout, Promise, Recorded, Recording,
    RecoveryReply, RecoveryRequest, Reference, Service, VmError, Watch, Workload,
};

use crate::args::{
    Cli, Command, FsArg, PromiseArg, VmCheckArgs, VmCommand, VmRecoverArgs, VmShellArgs,
};
use crate::check::{conclude, run_with, say_interrupted};
use crate::configuration::configuration;
use crate::exit::{Exit, complain};
use crate::interrupt;
use crate::output::print;
use crate::record::QEMU_PLUGIN;

/// How long a recovery may take. A busy computer runs guests slowly, and one that hangs is found once.
const RECOVERY_LIMIT: Duration = Duration::from_secs(30);
/// How long a workload may take, recorded.
const WORKLOAD_LIMIT: Duration = Duration::from_mins(20);
/// How much longer the command of a recovery may take than its guest: it may have to start a fresh one, twice.
const MARGIN: Duration = Duration::from_mins(1);
/// The trace was recorded here, so its commands need no consent.
const IS_OURS: bool = true;
/// How many times longer a recovery may take that is watched.
const WATCHED_FACTOR: u32 = 10;
/// How many combinations of a segment are tried if nothing else is said: each takes a tenth of a second.
const COMBINATIONS: u64 = 50;
/// How long combinations are tried if nothing else is said.
const COMBINATIONS_BUDGET: Duration = Duration::from_mins(2);
/// The directory of the machine in the output directory.
const MACHINE: &str = "machine";
/// The archive of the files that guests get, in the output directory.
const FILES: &str = "guest-files";
/// The directory with the pool of the trace.
const MEMORY: &str = "memory";
/// The name of the pool.
const POOL: &str = "pmem0";

pub(crate) fn check(args: &VmCheckArgs) -> anyhow::Result<Exit> {
    let settings = crash_settings(args)?;
    interrupt::watch();
    match run(args, settings) {
        Ok(exit) => Ok(exit),
        // A signal of the terminal ends QEMU as well, and what that causes is no error.
        Err(_) if interrupt::is_interrupted() => Ok(say_interrupted()),
        Err(error) => match error.downcast_ref::<VmError>() {
            Some(missing) if missing.is_unsupported() => {
                complain(&missing.to_string());
                Ok(Exit::Unsupported)
            }
            Some(VmError::SelfCheck(sentence)) => {
                complain(sentence);
                Ok(Exit::Internal)
            }
            _ => Err(error),
        },
    }
}

fn run(args: &VmCheckArgs, mut settings: CrashSettings) -> anyhow::Result<Exit> {
    let config = configuration()?;
    // What a run has left that was killed.
    let _ = powerfail_image::sweep_leftovers(&powerfail_image::default_parent());
    let out = settings.test.output.out.clone();
    let out = out.unwrap_or_else(|| PathBuf::from(output_directory::DEFAULT));
    settings.test.output.out = Some(out.clone());
    let workload = Workload::read(&args.workload)?;
    let files = files(args, &workload)?;
    let archive = std::path::absolute(out.join(FILES))?;
    let socket = std::path::absolute(out.join("service"))?;
    let trace = out.join(output_directory::TRACE);
    let (machine, recorded) = {
        // The crash test takes the lock again.
        let _lock = output_directory::create(&out)?;
        let machine = machine(args, &out)?;
        output::replace(&archive, &files.bytes()).with_context(|| archive.display().to_string())?;
        let recorded = record(args, &machine, &workload, &files, &out, &trace)?;
        (machine, recorded)
    };
    let limit = args.timeout.unwrap_or(RECOVERY_LIMIT);
    let guests = settings.test.failures.jobs.to_usize();
    let watch = {
        let (code, limit) = (&recorded.code, limit * WATCHED_FACTOR);
        Watch::start(&machine, &archive, QEMU_PLUGIN, code, limit, guests)?
    };
    let watched: Arc<dyn WatchedRecovery> = Arc::new(WatchedGuests(watch));
    settings.test.recovery.recover = Some(command(vec![
        std::env::current_exe()
            .context("the path of powerfail")?
            .into(),
        "vm".into(),
        "recover".into(),
        "--machine".into(),
        machine.directory().into(),
        "--files".into(),
        archive.clone().into(),
        "--service".into(),
        socket.clone().into(),
        "--limit".into(),
        limit.as_secs().max(1).to_string().into(),
        "{pool}".into(),
    ]));
    if shows_content(args) {
        settings.test.recovery.dump = Some(command(vec!["/bin/cat".into(), "{pool}.tree".into()]));
    }
    settings.test.failures.timeout = Some(limit + MARGIN);
    // QEMU opens the file of its memory to write, although it only maps a copy.
    settings.test.recovery.writable = vec![machine.directory().to_path_buf()];
    let service = Service::start(&machine, &archive, &socket, guests)?;
    let crash = |session: &mut Session<'_>, settings: &CrashSettings| {
        session.watched = Some(Arc::clone(&watched));
        session.crash(&trace, settings)
    };
    let mut result = run_with(&config.suppress, None, IS_OURS, |session| {
        crash(session, &settings)
    });
    // Combinations take longer, so they come only if no bug was found without. ext4 and XFS need sectors that are written as a
    // whole, which persistent memory does not promise: combinations always find that.
    let wants_combinations = args.strategy.is_none() && machine.file_system() == FileSystem::None;
    let has_no_bug = |result: &SessionResult| {
        let mut findings = result.report.findings.iter();
        !result.is_interrupted && findings.all(|it| it.severity != Severity::Error)
    };
    if wants_combinations && result.as_ref().is_ok_and(has_no_bug) {
        settings.strategy = combinations(args);
        let failures = &mut settings.test.failures;
        failures.budget = failures.budget.or(Some(COMBINATIONS_BUDGET));
        result = run_with(&config.suppress, None, IS_OURS, |session| {
            crash(session, &settings)
        });
    }
    drop(service);
    conclude(result, &settings.test.report, &settings.test.output)
}

/// How combinations of stores are tried.
fn combinations(args: &VmCheckArgs) -> CrashStrategy {
    let mut eager = args.eager.clone().resolve();
    eager.threshold = eager.threshold.or(Some(Count::clamped(COMBINATIONS)));
    // A guest cannot be forked.
    eager.no_snapshot = true;
    CrashStrategy::Eager(eager)
}

fn command(words: Vec<OsString>) -> CommandText {
    let text: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    CommandText {
        text: text.join(" "),
        words,
    }
}

/// Whether what is stored can be compared.
fn shows_content(args: &VmCheckArgs) -> bool {
    args.fs != FsArg::None || args.list.is_some()
}

/// The settings of the crash test, from those flags that have the meaning that they have elsewhere.
fn crash_settings(args: &VmCheckArgs) -> anyhow::Result<CrashSettings> {
    let failures = FailureArgs {
        failure_points: args.failure_points,
        per_stack: Some(args.per_stack),
        budget: args.budget,
        jobs: args.jobs,
        seed: Some(args.seed),
        ..FailureArgs::default()
    };
    let strategy = match args.strategy.unwrap_or_default() {
        Strategy::Prefix => CrashStrategy::Prefix,
        Strategy::Eager => combinations(args),
        Strategy::Lazy => anyhow::bail!(
            "guests cannot be explored lazily: --strategy is prefix or eager for powerfail vm check"
        ),
    };
    Ok(CrashSettings {
        strategy,
        test: TestSettings {
            recovery: RecoveryArgs::default().resolve(),
            server: ServerArgs::default().resolve(),
            failures: failures.resolve(),
            domain: None,
            report: args.report.clone().resolve(),
            output: args.output.clone().settle()?,
            shares: ShareArgs::default().resolve(),
        },
    })
}

/// The files that guests get.
fn files(args: &VmCheckArgs, workload: &Workload) -> anyhow::Result<Archive> {
    let mut archive = Archive::default();
    archive.file("workload", 0o755, workload.text().as_bytes().to_vec());
    let scripts = [
        ("recover", &args.recover),
        ("attach", &args.attach),
        ("detach", &args.detach),
        ("list", &args.list),
    ];
    for (name, path) in scripts {
        if let Some(path) = path {
            archive.file(name, 0o755, read(path)?);
        }
    }
    for path in &args.file {
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.with_context(|| format!("{} has no name", path.display()))?;
        archive.file(name, 0o755, read(path)?);
    }
    Ok(archive)
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(path).with_context(|| path.display().to_string())
}

/// Boots a machine, or opens one that is kept.
fn machine(args: &VmCheckArgs, out: &Path) -> anyhow::Result<Machine> {
    let directory = match &args.machine {
        Some(directory) if Machine::exists(directory) => {
            let machine = Machine::open(directory, interrupt::is_interrupted)?;
            is_as_asked(args, &machine)?;
            return Ok(machine);
        }
        Some(directory) => directory.clone(),
        None => out.join(MACHINE),
    };
    let file_system = file_system(args.fs);
    let pm = args.pm.unwrap_or_else(|| file_system.default_pm_len());
    let layout =
        MemoryLayout::new(pm).context("a guest has at most 2G of persistent memory: --pm")?;
    let needed = file_system.min_pm_len();
    anyhow::ensure!(
        args.image.is_some() || pm >= needed,
        "{} needs {}M of persistent memory or more: --pm",
        file_system.name(),
        needed >> 20
    );
    let options = MachineOptions {
        kernel: Kernel::find(args.kernel.as_deref(), args.modules.as_deref())?,
        file_system,
        layout,
        modules: args.module.clone(),
        initramfs: args.initrd.clone(),
        kernel_options: args.append.clone(),
    };
    say("booting the machine");
    let machine = Machine::boot(&directory, &options, interrupt::is_interrupted)?;
    Ok(machine)
}

const fn file_system(fs: FsArg) -> FileSystem {
    match fs {
        FsArg::Ext4 => FileSystem::Ext4,
        FsArg::Xfs => FileSystem::Xfs,
        FsArg::None => FileSystem::None,
    }
}

/// Refuses a machine that was made with other options than those that are given now.
fn is_as_asked(args: &VmCheckArgs, machine: &Machine) -> anyhow::Result<()> {
    let directory = machine.directory().display();
    let has = machine.file_system();
    anyhow::ensure!(
        has == file_system(args.fs),
        "the machine in {directory} was made with --fs {0}: give --fs {0}, or another --machine",
        has.name()
    );
    let pm_len = machine.layout().pm_len;
    let pm = args.pm.map(MemoryLayout::new);
    anyhow::ensure!(
        pm.is_none_or(|pm| pm == Some(machine.layout())),
        "the machine in {directory} has {pm_len} bytes of persistent memory: leave out --pm, or give another --machine"
    );
    anyhow::ensure!(
        args.append.is_empty() || args.append == machine.kernel_options(),
        "the machine in {directory} was made with other words of --append: leave them out, or give another --machine"
    );
    if let Some(kernel) = &args.kernel {
        anyhow::ensure!(
            machine.has_kernel(kernel)?,
            "the machine in {directory} has another kernel than {}: leave out --kernel, or give another --machine",
            kernel.display()
        );
    }
    Ok(())
}

/// One line about what takes long.
fn say(sentence: &str) {
    let _ = writeln!(anstream::stderr(), "{sentence}");
}

/// Records the workload.
fn record(
    args: &VmCheckArgs,
    machine: &Machine,
    workload: &Workload,
    files: &Archive,
    out: &Path,
    trace: &Path,
) -> anyhow::Result<Recorded> {
    let memory = out.join(MEMORY);
    Directory::create(&memory).with_context(|| memory.display().to_string())?;
    let memory = fs::canonicalize(&memory).with_context(|| memory.display().to_string())?;
    let pool = memory.join(POOL);
    let image = initial_image(args, machine, &pool)?;
    let promise = match (args.promise, machine.file_system()) {
        (Some(PromiseArg::Sync), _) => Promise::Sync,
        (Some(PromiseArg::Return), _) => Promise::Return,
        (None, file_system) => file_system.promise(),
    };
    say("running the workload");
    let reference = Reference::run(machine, workload, files, &image, WORKLOAD_LIMIT)?;
    say("recording the workload");
    let recorded = powerfail_vm::record(&Recording {
        machine,
        workload,
        files,
        reference: &reference,
        promise,
        image: &image,
        plugin: QEMU_PLUGIN,
        limit: WORKLOAD_LIMIT,
        trace,
        pool: &pool,
        symbols: &out.join("symbols"),
        debug_files: &args.debug_info,
    })?;
    for (line, why) in &recorded.whole_lines {
        say(&format!(
            "note: `{}` {why}: it is compared as a whole",
            workload.name(*line)
        ));
    }
    say(&format!(
        "{} lines, {} operations: {} stores, {} flushes, {} fences",
        workload.operations().len(),
        recorded.operations,
        recorded.stores,
        recorded.flushes,
        recorded.fences
    ));
    if recorded.unknown_flushes > 0 {
        say(&format!(
            "warning: the addresses of {} flushes are not known: what they flush counts as not flushed",
            recorded.unknown_flushes
        ));
    }
    Ok(recorded)
}

/// Guests whose recoveries are watched.
#[derive(Debug)]
struct WatchedGuests(Watch);

impl WatchedRecovery for WatchedGuests {
    fn reads(&self, pool: &Path) -> Result<Vec<Range<u64>>, String> {
        self.0.reads(pool).map_err(|error| error.to_string())
    }

    fn steps(&self, pool: &Path) -> Result<Vec<WatchedStep>, String> {
        let steps = self.0.steps(pool).map_err(|error| error.to_string())?;
        let steps = steps.into_iter().map(|step| WatchedStep {
            frames: step.frames,
            stored: step.stored,
        });
        Ok(steps.collect())
    }
}

/// What persistent memory has before the workload: a file, which stays for replays.
fn initial_image(args: &VmCheckArgs, machine: &Machine, pool: &Path) -> anyhow::Result<File> {
    let create = || -> std::io::Result<File> {
        let file = output::create(pool)?;
        file.set_len(machine.layout().pm_len)?;
        Ok(file)
    };
    let mut file = create().with_context(|| pool.display().to_string())?;
    match &args.image {
        Some(given) => {
            let pm_len = machine.layout().pm_len;
            let mut content = Vec::new();
            let given_file = File::open(given);
            // It may be a device, which has no end.
            given_file
                .and_then(|file| file.take(pm_len + 1).read_to_end(&mut content))
                .with_context(|| given.display().to_string())?;
            anyhow::ensure!(
                content.len() as u64 <= pm_len,
                "{} is larger than persistent memory: --pm",
                given.display()
            );
            file.write_all(&content)
                .with_context(|| pool.display().to_string())?;
        }
        None => machine.file_system().make(pool)?,
    }
    Ok(file)
}

/// Recovers a crash image: asks the service of the check, or starts a guest.
pub(crate) fn recover(args: &VmRecoverArgs) -> anyhow::Result<Exit> {
    let image = File::options().read(true).write(true).open(&args.pool);
    let image = image.with_context(|| args.pool.display().to_string())?;
    let limit = Duration::from_secs(args.limit);
    let machine = Machine::open(&args.machine, interrupt::is_interrupted)?;
    let reply = match powerfail_vm::ask(&args.service, &image, limit) {
        Some(reply) => reply.map_err(anyhow::Error::msg)?,
        None => powerfail_vm::recover(
            &machine,
            &RecoveryRequest {
                image: &image,
                files: &args.files,
                limit,
            },
        )?,
    };
    finish(args, &reply)
}

fn finish(args: &VmRecoverArgs, reply: &RecoveryReply) -> anyhow::Result<Exit> {
    let mut tree = args.pool.clone().into_os_string();
    tree.push(".tree");
    fs::write(&tree, &reply.tree).with_context(|| tree.display().to_string())?;
    print(|to| Ok(write!(to, "{}", reply.output)?))?;
    Ok(if reply.success {
        Exit::Clean
    } else {
        Exit::Findings
    })
}

/// Opens a shell in a guest.
pub(crate) fn shell(args: &VmShellArgs) -> anyhow::Result<Exit> {
    open_shell(&args.machine, &args.files, &args.image)?;
    Ok(Exit::Clean)
}

fn open_shell(machine: &Path, files: &Path, image: &Path) -> anyhow::Result<()> {
    let machine = Machine::open(machine, interrupt::is_interrupted)?;
    let image = File::open(image).with_context(|| image.display().to_string())?;
    Ok(Guest::shell(&machine, &image, files, interrupt::type_into)?)
}

/// Opens a shell in a guest on the crash image of a finding, if its recovery is that of a guest.
pub(crate) fn shell_on_crash(replay: &Replay<'_>, recover: &[OsString]) -> anyhow::Result<Exit> {
    let command = Cli::try_parse_from(recover).map(|cli| cli.command);
    let Ok(Command::Vm(VmCommand::Recover(args))) = command else {
        anyhow::bail!("--shell is for findings of powerfail vm check: here recovery is a command")
    };
    let directory = tempfile::tempdir().context("a directory for the crash image")?;
    replay.write_image(directory.path())?;
    let name = Path::new(POOL);
    let image = find_image(directory.path(), name).context("the crash image of the guest")?;
    open_shell(&args.machine, &args.files, &image)?;
    Ok(Exit::Findings)
}

/// The file of this name below a directory.
fn find_image(directory: &Path, name: &Path) -> Option<PathBuf> {
    for entry in fs::read_dir(directory).ok()?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            if let Some(found) = find_image(&path, name) {
                return Some(found);
            }
        } else if path.file_name() == name.file_name() {
            return Some(path);
        }
    }
    None
}
