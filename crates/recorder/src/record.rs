//! One recording, from the command to the checked trace.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use powerfail_protocol::shared::{
    DERANDOMISE_VARIABLE, DESOCK_VARIABLE, ListenerName, Mode, RequestCounts, Schedule, Stacks,
};
use powerfail_trace::recording::{ClientRequests, RecordingSummary, TargetStatus};
use powerfail_trace::{
    DERANDOMISE_NOTE, DIRECTORY_NOTE, DOMAIN_NOTE, HEAP_NOTE, Meta, POOL_NOTE, TraceWriter,
    WriterOptions,
};
use rustix::process::Signal;
use rustix::time::Timespec;

use crate::author;
use crate::backend;
use crate::check::self_check;
use crate::doorbell::Doorbell;
use crate::drain::Drain;
use crate::error::RecordError;
use crate::fresh_pool::FreshPool;
use crate::generated_code;
use crate::input::InputChannel;
use crate::input::memory_file;
use crate::interrupt::Forwarder;
use crate::memory::MemoryDirectory;
use crate::mounts::Mounts;
use crate::options::RecordOptions;
use crate::output::Output;
use crate::pool::Pools;
use crate::pool_filter::PoolFilter;
use crate::shared_file::SharedFile;
use crate::sleepers::Sleepers;
use crate::socket::Socket;
use crate::target::{Inheritance, Target, host_address, runtime_file, start};
use crate::tree::Trees;
use crate::wait::Exit;

/// How long a record waits for older records: longer than a thread that is preempted in the middle of an append
/// usually waits for a processor.
const SLACK: Duration = Duration::from_millis(50);

/// The longest pause between passes while records wait to be ordered.
const BUSY_WAIT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 2_000_000,
};
/// The longest pause between passes while no records wait.
const IDLE_WAIT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};

/// Runs a command with the runtime preloaded and writes what it does to its pools.
///
/// `runtime` is the shared object that is preloaded. If it is empty nothing is preloaded, for targets that
/// implement the protocol themselves.
///
/// # Errors
///
/// See [`RecordError`]. After an error, no process of the target that has connected is left, and the trace exists
/// if the target ran.
pub fn record(options: &RecordOptions, runtime: &[u8]) -> Result<RecordingSummary, RecordError> {
    record_and_tell(options, runtime, &mut |_| {})
}

/// As [`record`]. `tell` gets a sentence if the target has ended and processes that it has started take longer.
///
/// # Errors
///
/// As [`record`].
pub fn record_and_tell(
    options: &RecordOptions,
    runtime: &[u8],
    tell: &mut dyn FnMut(&str),
) -> Result<RecordingSummary, RecordError> {
    let (command, arguments) = options
        .command
        .split_first()
        .ok_or(RecordError::EmptyCommand)?;
    let start_of_target = backend::choose(options, command)?;
    let is_emulated = start_of_target.is_emulated();
    let fresh = FreshPool::new(arguments, options)?;
    let memory = MemoryDirectory::new(&options.trace, options.heap_bytes)?;
    let filter = filter(options, &fresh, &memory)?;

    let shared = shared_file(options)?;
    let (mut socket, target_socket) = Socket::pair()
        .map_err(|error| RecordError::system("create a socket for the target", error))?;
    let listener = ListenerName(host_address(&shared, None)?);
    socket
        .listen(&listener.to_string())
        .map_err(|error| RecordError::system("listen for the target", error))?;
    let runtime = runtime_file(if is_emulated { &[] } else { runtime })?;
    let doorbell = doorbell(&socket, &shared)?;
    let meta = meta(options, &fresh, &memory, is_emulated);
    let mut writer = TraceWriter::create(&options.trace, &meta, WriterOptions::default())?;
    let trees = trees(options, &fresh, &mut writer)?;
    let mounts = Mounts::of(options.private_trees.as_ref())?;
    if trees.are_recorded() {
        shared.record_files();
        shared.show_trees(trees.candidate(), trees.root_paths());
    }
    let output = Output::new(
        writer,
        Pools::new(filter, memory.path()),
        trees,
        options.stacks,
        options.output_prefix_bytes,
    );
    let mut recording = Drain::new(Arc::clone(&shared), socket, output, SLACK);

    let sleepers = (options.schedule.depth > 0)
        .then(|| Sleepers::start(&shared))
        .transpose()?;
    let mut forwarder = Forwarder::new(options.forward_signals);
    let inheritance = Inheritance {
        shared: &shared,
        socket: target_socket,
        runtime,
        variables: variables(options, &memory),
        stdin: stdin(options)?,
        discards_output: options.discard_output,
        file_limit_bytes: options.file_limit_bytes,
        mounts: mounts.as_ref(),
    };
    let arguments = [&start_of_target.prefix[..], &fresh.arguments].concat();
    let executable = &start_of_target.executable;
    let name = if is_emulated {
        executable.path.as_os_str()
    } else {
        command
    };
    let mut target = start(executable, name, &arguments, inheritance)?;
    forwarder.target_started();
    let drained = drain(
        &mut recording,
        &mut target,
        &mut forwarder,
        &shared,
        &doorbell,
        options,
        tell,
    );
    let ended = match drained {
        Ok(ended) => ended,
        Err(error) => {
            recording.processes.signal(Signal::KILL);
            recording.executed.signal(Signal::KILL);
            return Err(error);
        }
    };
    drop((doorbell, sleepers));
    // What came until now was passed on, or has ended the wait. One that comes from now on ends the recording.
    let _ = forwarder.interrupted();
    recording.finish(&mut || forwarder.interrupted())?;
    summarise(recording, &shared, ended, &options.trace, &mut || {
        forwarder.interrupted()
    })
}

/// The trees, as they are before the target starts.
fn trees(
    options: &RecordOptions,
    fresh: &FreshPool,
    writer: &mut TraceWriter<File>,
) -> Result<Trees, RecordError> {
    let mut trees = Trees::default();
    let own = options.not_in_trees.iter().map(PathBuf::as_path);
    let outputs = [Path::new("/proc/self/fd/1"), Path::new("/proc/self/fd/2")];
    for path in own.chain(outputs).chain([options.trace.as_path()]) {
        trees.exclude(path);
    }
    let fresh = if options.automatic_trees {
        fresh.directory()
    } else {
        fresh.named_directory()
    };
    for tree in options.trees.iter().map(PathBuf::as_path).chain(fresh) {
        trees.add(writer, tree)?;
    }
    let private = options.private_trees.iter().flat_map(|it| &it.trees);
    for (original, private) in private {
        trees.add_private(writer, original, private)?;
    }
    if options.automatic_trees
        && trees.roots().is_empty()
        && let Ok(current) = std::env::current_dir()
    {
        trees.add_candidate(&current);
    }
    Ok(trees)
}

/// Completes the trace, and checks it, unless it is interrupted.
fn summarise(
    mut recording: Drain,
    shared: &SharedFile,
    ended: Ended,
    trace: &Path,
    is_interrupted: &mut dyn FnMut() -> bool,
) -> Result<RecordingSummary, RecordError> {
    let mut judged = recording
        .executed
        .judge_unrecorded(&recording.output.pools.precious());
    let images = recording.output.pools.final_images()?;
    let (pools, ignored) = recording.output.pools.summary(&images);
    for path in recording.output.pools.removed() {
        recording.warnings.push(format!(
            "{} was removed by the target after it was mapped; crashes are tried as if it were still there, so leave it \
             out with --not-pool if recovery never needs it",
            path.display()
        ));
    }
    let companions = recording.written.companions(&pools);
    let elsewhere = recording.written.outside(&pools, &recording.output.trees);
    // A target that only stores to its pools does not need the files beside them.
    if pools.is_empty() || !companions.is_empty() {
        recording.warnings.extend(recording.output.trees.warnings());
    }
    judged.suspects.extend(recording.written.unrecorded());
    judged.suspects.extend(refused_call(ended.exit.status));
    recording.warnings.extend(recording.written.warning());
    let Output {
        mut writer,
        pools: recorded,
        trees,
        sites,
        counts,
        trap_events,
        unmapped_bytes,
        order,
        ..
    } = recording.output;
    let mut unnamed = sites.outside_of_modules();
    for process in recording.processes.all_ids() {
        if unnamed.is_empty() {
            break;
        }
        for (address, name) in generated_code::names(process, &unnamed) {
            unnamed.remove(&address);
            writer.define_generated(address, &name)?;
        }
    }
    trees.finish(&mut writer)?;
    let written = writer.finish(&images)?;
    let client_requests = client_requests(shared.requests());
    let mut warnings = recording.warnings;
    warnings.extend(unknown_requests(&client_requests));
    let summary = RecordingSummary {
        status: ended.exit.status,
        timed_out: ended.timed_out,
        waiting: ended.waiting,
        process_count: recording.processes.count() as u32,
        thread_count: recording.thread_count,
        pools,
        trees: trees.summary(),
        elsewhere,
        ignored,
        companions,
        sites: sites.counts(),
        trap_events,
        uncommitted_records: recording.uncommitted,
        unperformed_stores: recording.unperformed,
        unmapped_bytes,
        wall_time: ended.wall_time,
        cpu_time: ended.exit.cpu_time,
        trace_bytes: written.file_bytes,
        warnings,
        client_requests,
        fatal: recording.fatal,
        unrecorded: judged.suspects,
        notes: judged.harmless,
        schedule_steps: shared.schedule_steps(),
        schedule_lapses: shared.schedule_lapses(),
        counts,
    };
    if !recording.greeted {
        return Err(RecordError::RuntimeSilent {
            status: summary.status,
        });
    }
    self_check(trace, &recorded, &order, summary, is_interrupted)
}

/// The Valgrind client requests, as the runtime has counted them.
fn client_requests(counts: &RequestCounts) -> ClientRequests {
    let number = |count: &AtomicU64| count.load(Ordering::Relaxed);
    ClientRequests {
        understood: number(&counts.understood),
        of_other_tools: number(&counts.of_other_tools),
        unknown: number(&counts.unknown),
        first_unknown: number(&counts.first_unknown),
    }
}

/// The warning about unknown client requests, if there were any.
fn unknown_requests(requests: &ClientRequests) -> Option<String> {
    (requests.unknown > 0).then(|| {
        format!(
            "the target made {} unknown client requests (the first is {:#x}); \
             they returned their default results",
            requests.unknown, requests.first_unknown
        )
    })
}

/// What is said of a target that was killed because of a system call.
fn refused_call(status: TargetStatus) -> Option<String> {
    (status == TargetStatus::Killed(libc::SIGSYS)).then(|| {
        "the target was killed by SIGSYS: a seccomp filter does not allow a system call of the target or of the runtime; run \
         it without its sandbox"
            .to_owned()
    })
}

/// Further variables of the environment of the target.
fn variables(options: &RecordOptions, memory: &MemoryDirectory) -> Vec<(OsString, OsString)> {
    let switch = |on: bool, name| on.then(|| (name, OsString::from("1")));
    let switches = [
        switch(options.derandomise, DERANDOMISE_VARIABLE),
        switch(options.desock, DESOCK_VARIABLE),
    ];
    let variables = memory.variables().into_iter();
    let all = variables.chain(switches.into_iter().flatten());
    all.map(|(name, value)| (name.into(), value)).collect()
}

/// The standard input of the target, if it is not that of this process.
fn stdin(options: &RecordOptions) -> Result<Option<File>, RecordError> {
    let Some(input) = &options.input else {
        return Ok(None);
    };
    let file = if input.channel == InputChannel::Stdin {
        memory_file(&input.bytes)
    } else {
        File::open("/dev/null")
    };
    let file = file.map_err(|error| RecordError::system("create the input", error))?;
    Ok(Some(file))
}

/// Which files are pools.
fn filter(
    options: &RecordOptions,
    fresh: &FreshPool,
    memory: &MemoryDirectory,
) -> Result<PoolFilter, RecordError> {
    let mut filter = PoolFilter::new(&options.pools, &options.not_pools)?;
    if let Some(path) = fresh.path() {
        filter.also(path);
    }
    filter.also_within(memory.path());
    Ok(filter)
}

fn shared_file(options: &RecordOptions) -> Result<Arc<SharedFile>, RecordError> {
    let shared = SharedFile::create(
        options.chunk_count,
        options.mode,
        options.stacks,
        options.schedule,
        options.valgrind_requests,
    )?;
    Ok(Arc::new(shared))
}

fn doorbell(socket: &Socket, shared: &Arc<SharedFile>) -> Result<Doorbell, RecordError> {
    let failed = |error| RecordError::system("watch the socket of the target", error);
    let watched =
        rustix::io::fcntl_dupfd_cloexec(socket, 0).map_err(|error| failed(error.into()))?;
    Doorbell::start(watched, Arc::clone(shared)).map_err(failed)
}

/// How long processes that outlive the target are waited for without a word.
const TOLD_AFTER: Duration = Duration::from_secs(1);

/// How a target ended.
struct Ended {
    exit: Exit,
    wall_time: Duration,
    timed_out: bool,
    waiting: Vec<String>,
}

/// Makes passes until the target and all its descendants have ended.
fn drain(
    recording: &mut Drain,
    target: &mut Target,
    forwarder: &mut Forwarder,
    shared: &SharedFile,
    doorbell: &Doorbell,
    options: &RecordOptions,
    tell: &mut dyn FnMut(&str),
) -> Result<Ended, RecordError> {
    let mut is_told = false;
    let mut ended = None;
    let mut timed_out = false;
    let mut waiting = Vec::new();
    let mut passed_on = None;
    loop {
        let seen = shared.retirements();
        let stop = options.stop.take().then_some(Signal::TERM);
        for signal in forwarder.pending().chain(stop) {
            target.signal(signal);
            passed_on = Some(signal);
        }
        let interrupted = forwarder.interrupted();
        if ended.is_none() {
            ended = target.look()?.map(|exit| (exit, target.started.elapsed()));
        }
        // What the target was asked to end it has left to its children: a signal of the terminal reaches them, too.
        if ended.is_some()
            && let Some(signal) = passed_on.take()
        {
            recording.processes.signal(signal);
            recording.executed.signal(signal);
        }
        let progress = recording.pass(&mut || forwarder.interrupted())?;
        let time_limit = options.time_limit;
        if !timed_out && time_limit.is_some_and(|limit| target.started.elapsed() > limit) {
            timed_out = true;
            waiting = recording.describe_threads(target.id().as_raw_nonzero().get());
            target.signal(Signal::KILL);
            recording.processes.signal(Signal::KILL);
            recording.executed.signal(Signal::KILL);
        }
        // Descendants that are not recorded may live on, but neither an interrupt nor the time limit waits for them.
        let is_left = interrupted || timed_out && recording.processes.all_gone();
        if let Some((exit, wall_time)) = ended
            && (progress.deserted || is_left)
        {
            return Ok(Ended {
                exit,
                wall_time,
                timed_out,
                waiting,
            });
        }
        if let Some((_, wall_time)) = ended
            && !is_told
            && target.started.elapsed() > wall_time + TOLD_AFTER
        {
            is_told = true;
            let processes = recording.describe_threads(target.id().as_raw_nonzero().get());
            tell(&format!(
                "the workload has ended; its recording ends when the processes do that it has started: {}",
                processes.join("; ")
            ));
        }
        let timeout = if progress.active {
            BUSY_WAIT
        } else {
            IDLE_WAIT
        };
        doorbell.arm();
        // The target is about to end, or a process to connect again.
        if !recording.is_disconnected() || !recording.processes.wait_for_end(&BUSY_WAIT) {
            shared.wait_for_retirement(seen, timeout);
        }
    }
}

fn meta(
    options: &RecordOptions,
    fresh: &FreshPool,
    memory: &MemoryDirectory,
    is_emulated: bool,
) -> Meta {
    let system = rustix::system::uname();
    let note = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let mode = match options.mode {
        Mode::Patch => "patch",
        Mode::Trap => "trap",
    };
    let stacks = match options.stacks {
        Stacks::None => "none",
        Stacks::Sites => "sites",
        Stacks::Full => "full",
    };
    let domain = options
        .domain
        .map(|domain| note(DOMAIN_NOTE, domain.name()));
    let schedule = options.schedule;
    let scheduled = (schedule.depth > 0).then(|| {
        let Schedule {
            depth,
            seed,
            length,
        } = schedule;
        note(
            "schedule",
            &format!("seed {seed}, depth {depth}, length {length}"),
        )
    });
    let derandomised = options.derandomise.then(|| note(DERANDOMISE_NOTE, "yes"));
    let pool = fresh.path().and_then(Path::to_str);
    let directory = fresh.named_directory().and_then(Path::to_str);
    let heap = memory
        .heap()
        .map(|path| note(HEAP_NOTE, &path.to_string_lossy()));
    let started = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let mut meta = Meta {
        powerfail_version: env!("CARGO_PKG_VERSION").into(),
        command: options.command.clone(),
        working_directory: std::env::current_dir().unwrap_or_default(),
        started_unix_ms: started.as_millis() as u64,
        notes: [
            note("mode", mode),
            note("stacks", stacks),
            note("kernel", &system.release().to_string_lossy()),
        ]
        .into_iter()
        .chain(is_emulated.then(|| note("backend", "qemu")))
        .chain(domain)
        .chain(scheduled)
        .chain(pool.map(|path| note(POOL_NOTE, path)))
        .chain(directory.map(|path| note(DIRECTORY_NOTE, path)))
        .chain(heap)
        .chain(derandomised)
        .collect(),
    };
    author::seal(&mut meta);
    meta
}
