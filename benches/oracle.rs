//! What a run of the oracle costs, relative to starting the same command with `posix_spawn` and waiting for it. Rounds
//! alternate and the median round counts, so a slow machine slows both equally.
//!
//! Then: how many crash states per second one core tries, each prepared in a slot and given to an almost empty
//! recovery, which is executed, forked from a snapshot, or explored lazily. The same for trees of ordinary files. Needs
//! gcc.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use powerfail_benches::{compile, here};
use powerfail_image::{
    CursorOptions, FileContent, ImageCursor, Layout, NodeKey, RunDirectory, TreeEntry, TreeFile,
    TreeImage, default_parent,
};
use powerfail_model::{
    CrashState, Event, LineId, LineIndex, Place, PoolIndex, PoolOffset, Rules, StoreKind,
    ThreadIndex,
};
use powerfail_oracle::{
    Branch, CommandLine, ExploreRequest, LineTable, Oracle, OracleSettings, PathMode, PoolMapping,
    ProcessMode, RecoveryPlan, Slot, TableLine,
};
use powerfail_test_support::runtime;
use powerfail_trace::{
    Body, Meta, Pool, PoolKind, StackId, Thread, Trace, TraceWriter, WriterOptions,
};

const ROUNDS: usize = 15;
const RUNS: u32 = 100;
const BUDGET_RATIO: f64 = 2.0;
/// How many states are tried with each method.
const STATES: u32 = 3000;
/// States per second and core.
const BUDGET_EXECUTED: f64 = 300.0;
const BUDGET_FORKED: f64 = 1500.0;
const POOL_BYTES: u64 = 64 << 10;
/// Lines of the pool that a crash leaves open.
const OPEN_LINES: u64 = 8;

fn main() {
    powerfail_oracle::serve_if_zygote();
    // As in other benchmarks, an argument selects the part to run.
    let wanted = std::env::args().skip(1).find(|it| !it.starts_with('-'));
    let wanted = wanted.unwrap_or_default();
    ratios(&wanted);
    states_a_second(&wanted);
    trees_a_second(&wanted);
}

/// How many crashed trees of 20 files and 100 MB one core tries, each with another rename lost and another page old.
fn trees_a_second(wanted: &str) {
    const FILES: u64 = 20;
    const FILE_BYTES: usize = 5 << 20;
    const RUNS: u32 = 500;
    const BUDGET: f64 = 50.0;
    if !"trees".contains(wanted) {
        return;
    }
    let mut newest = TreeImage::default();
    let root = TreeImage::root(0);
    let directory = TreeEntry::Directory { mode: 0o755 };
    newest.entries.insert(root.clone(), directory);
    for number in 0..FILES {
        let mut content = FileContent::default();
        content.write(0, &vec![number as u8 + 1; FILE_BYTES]);
        let file = TreeFile {
            mode: 0o644,
            content,
        };
        let path = root.join(format!("file-{number}"));
        newest
            .entries
            .insert(path, TreeEntry::File(NodeKey(number)));
        newest.files.insert(NodeKey(number), file);
    }
    let run = RunDirectory::create_in(&default_parent()).expect("a directory");
    let original = tempfile::tempdir().expect("a directory");
    let mut tree = run.tree_slot(0, vec![original.path().into()]);
    tree.prepare(&newest).expect("a tree");
    let mappings = tree.roots().map(|(original, private)| PoolMapping {
        original: original.into(),
        private,
    });
    let mappings: Vec<PoolMapping> = mappings.collect();
    println!(
        "\n{:<30}{:>14}{:>14}",
        "20 files, 100 MB", "trees/s", "budget"
    );
    // The second recovery opens a file of 5 MB for writing, which is compared as a whole afterwards.
    let touch = CommandLine::shell("exec 3>>{dir}/file-0");
    for (name, command) in [
        ("reads", CommandLine::new(["/bin/true", "{dir}"])),
        ("opens a file for writing", touch),
    ] {
        let oracle = Oracle::new(RecoveryPlan::new(command), OracleSettings::default());
        let mut slot = oracle.and_then(|it| it.slot(&mappings)).expect("a slot");
        let begun = Instant::now();
        for number in 0..u64::from(RUNS) {
            let mut image = newest.clone();
            let node = NodeKey(number % FILES);
            let (old, new) = (root.join(format!("file-{}", node.0)), root.join("renamed"));
            if let Some(entry) = image.entries.remove(&old) {
                image.entries.insert(new, entry);
            }
            if let Some(file) = image.files.get_mut(&NodeKey((number + 1) % FILES)) {
                file.content
                    .write(number * 4096 % FILE_BYTES as u64, b"old");
            }
            tree.prepare(&image).expect("a tree");
            slot.run_plain().expect("a verdict");
        }
        let rate = f64::from(RUNS) / begun.elapsed().as_secs_f64();
        let verdict = if rate >= BUDGET { "" } else { "  under budget" };
        println!("{name:<30}{rate:>14.0}{BUDGET:>14.0}{verdict}");
    }
}

fn ratios(wanted: &str) {
    let ways = [
        (
            "own mounts, own processes",
            PathMode::Namespace,
            ProcessMode::Auto,
        ),
        ("own mounts", PathMode::Namespace, ProcessMode::Group),
        ("own processes", PathMode::Substitute, ProcessMode::Auto),
        ("neither", PathMode::Substitute, ProcessMode::Group),
    ];
    println!(
        "{:<30}{:>14}{:>14}{:>8}",
        "/bin/true", "posix_spawn", "oracle", "ratio"
    );
    for (name, paths, processes) in ways {
        if !name.contains(wanted) {
            continue;
        }
        let settings = OracleSettings {
            paths,
            processes,
            ..OracleSettings::default()
        };
        match measure(settings) {
            Ok((plain, ours)) => {
                let ratio = ours.as_secs_f64() / plain.as_secs_f64();
                let verdict = if ratio <= BUDGET_RATIO {
                    ""
                } else {
                    "  over budget"
                };
                println!(
                    "{name:<30}{:>11.0?}/s{:>12.0?}/s{ratio:>8.2}{verdict}",
                    1.0 / plain.as_secs_f64(),
                    1.0 / ours.as_secs_f64()
                );
            }
            Err(error) => println!("{name:<30}{error}"),
        }
    }
}

/// The time of one run, plain and with the oracle.
fn measure(
    settings: OracleSettings,
) -> Result<(Duration, Duration), powerfail_oracle::OracleError> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| -> PathBuf { directory.path().join(name) };
    for name in ["pools", "image"] {
        std::fs::create_dir(path(name)).expect("a directory");
        std::fs::write(path(name).join("pool"), "").expect("a pool");
    }
    let plan = RecoveryPlan::new(CommandLine::new(["/bin/true", "{pool}"]));
    let mut slot = Oracle::new(plan, settings)?.slot(&[PoolMapping {
        original: path("pools/pool"),
        private: path("image/pool"),
    }])?;
    let mut spawned = Vec::new();
    let mut ours = Vec::new();
    for _ in 0..ROUNDS {
        spawned.push(time(run_plain));
        ours.push(time(|| run_ours(&mut slot)));
    }
    Ok((median(spawned), median(ours)))
}

fn run_plain() {
    // Without a closure to run in the child, the standard library uses posix_spawn.
    let status = Command::new("/bin/true")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    assert!(status.expect("/bin/true").success());
}

fn run_ours(slot: &mut Slot) {
    slot.run().expect("a verdict");
}

fn time(mut run: impl FnMut()) -> Duration {
    let start = Instant::now();
    for _ in 0..RUNS {
        run();
    }
    start.elapsed() / RUNS
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// How many states per second one core tries.
fn states_a_second(wanted: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let source = here().join("oracle/recovery.c");
    let recovery = compile(&source, directory.path(), &["-O2"]);
    let runtime: Arc<[u8]> = runtime::bytes().into();
    let trace = trace();
    println!(
        "\n{:<30}{:>14}{:>14}{:>14}",
        "a trivial recovery", "states/s", "by processor", "budget"
    );
    for (name, snapshot, budget) in [
        ("executed", false, BUDGET_EXECUTED),
        ("forked from a snapshot", true, BUDGET_FORKED),
    ] {
        if !name.contains(wanted) {
            continue;
        }
        let (start, used) = (Instant::now(), processor_seconds());
        let mut states = States::new(&trace, &recovery, &runtime, snapshot);
        for _ in 0..STATES {
            states.try_next();
        }
        let note = states.recovery.snapshot_note();
        assert_eq!(states.recovery.uses_snapshots(), snapshot, "{note:?}");
        drop(states);
        report(name, STATES, start, used, Some(budget));
    }
    for (name, fork) in [
        ("explored by forking", true),
        ("explored one by one", false),
    ] {
        if !name.contains(wanted) {
            continue;
        }
        let (start, used) = (Instant::now(), processor_seconds());
        let mut states = States::new(&trace, &recovery, &runtime, true);
        let mut executions = 0;
        while executions < STATES {
            executions += states.explore(fork);
        }
        drop(states);
        report(name, executions, start, used, None);
    }
}

/// One row. It counts the processor time of all processes: that is the load of one core, regardless of how many cores
/// share the work and what else runs.
fn report(name: &str, states: u32, start: Instant, used: f64, budget: Option<f64>) {
    let each = |seconds: f64| f64::from(states) / seconds;
    let (wall, processor) = (
        each(start.elapsed().as_secs_f64()),
        each(processor_seconds() - used),
    );
    let verdict = match budget {
        Some(budget) if processor < budget => format!("{budget:>14.0}  under budget"),
        Some(budget) => format!("{budget:>14.0}"),
        None => String::new(),
    };
    println!("{name:<30}{wall:>14.0}{processor:>14.0}{verdict}");
}

/// Processor time of this process and of all of its terminated descendants.
fn processor_seconds() -> f64 {
    const TICKS_PER_SECOND: f64 = 100.0;
    let text = std::fs::read_to_string("/proc/self/stat").expect("/proc");
    let (_, after_name) = text.rsplit_once(") ").expect("a name");
    let fields: Vec<&str> = after_name.split(' ').collect();
    // User and system time, then the same of the children.
    let ticks = fields[11..15].iter().map(|it| it.parse::<f64>());
    ticks.map(|it| it.expect("a number")).sum::<f64>() / TICKS_PER_SECOND
}

/// A pool with one store to each of its first lines, none of which is flushed.
fn trace() -> Trace {
    let mut file = Vec::new();
    let mut writer = TraceWriter::new(&mut file, &Meta::default(), WriterOptions::default())
        .expect("a trace in memory");
    let pool = Pool {
        path: "/pm/pool".into(),
        kind: PoolKind::File,
        len_bytes: POOL_BYTES,
        address: 0,
    };
    let pool = writer.define_pool(&pool).expect("one pool");
    let thread = Thread {
        os_id: 1,
        name: None,
    };
    writer.define_thread(&thread).expect("one thread");
    for line in 0..OPEN_LINES {
        let store = Event::Store {
            kind: StoreKind::Plain,
            at: Place::new(pool, PoolOffset(64 * line)),
            bytes: &1_u64.to_le_bytes(),
        };
        writer
            .append(ThreadIndex(0), StackId::NONE, Body::Pm(store))
            .expect("a store");
    }
    writer.finish(&[]).expect("the end");
    Trace::from_bytes(file).expect("it is a trace")
}

/// Crash states of the trace, one after another.
struct States<'t> {
    cursor: ImageCursor<'t>,
    image: powerfail_image::ImageSlot,
    recovery: Slot,
    next: u64,
    _directory: RunDirectory,
}

impl<'t> States<'t> {
    fn new(trace: &'t Trace, recovery: &Path, runtime: &Arc<[u8]>, snapshot: bool) -> Self {
        let directory = RunDirectory::create_in(&default_parent()).expect("a directory");
        let layout = Layout::of(trace, &[]).expect("a layout");
        let mut image = directory.slot(0, &layout);
        let options = CursorOptions {
            rules: Some(Rules::default()),
            ..CursorOptions::default()
        };
        let mut cursor = ImageCursor::new(trace, options).expect("a cursor");
        cursor.move_to_end().expect("the end");
        let newest = CrashState::default();
        image.prepare(&cursor, &newest).expect("an image");
        let settings = OracleSettings {
            runtime: Some(Arc::clone(runtime)),
            snapshot,
            ..OracleSettings::default()
        };
        let plan = RecoveryPlan::new(CommandLine::new([recovery.as_os_str(), "{pool}".as_ref()]));
        let mappings: Vec<PoolMapping> = image
            .files()
            .map(|(original, private)| PoolMapping {
                original: original.to_owned(),
                private,
            })
            .collect();
        let oracle = Oracle::new(plan, settings).expect("a plan");
        let slot = oracle.slot(&mappings).expect("a slot");
        image.leave_extras();
        Self {
            cursor,
            image,
            recovery: slot,
            next: 0,
            _directory: directory,
        }
    }

    fn try_next(&mut self) {
        self.next += 1;
        let versions = (0..OPEN_LINES)
            .filter(|line| self.next >> line & 1 == 1)
            .map(|line| {
                let id = LineId {
                    pool: PoolIndex(0),
                    line: LineIndex(line),
                };
                (id, 0)
            })
            .collect();
        let state = CrashState { versions };
        self.image.prepare(&self.cursor, &state).expect("an image");
        self.recovery.run().expect("a verdict");
    }

    /// The number of executions.
    fn explore(&mut self, fork: bool) -> u32 {
        let newest = CrashState::default();
        self.image.prepare(&self.cursor, &newest).expect("an image");
        let content = |first: u64| {
            let mut content = vec![0; 64];
            content[..8].copy_from_slice(&first.to_le_bytes());
            content
        };
        let table = LineTable {
            line_bytes: 64,
            pools: vec!["/pm/pool".into()],
            lines: (0..OPEN_LINES)
                .map(|line| TableLine {
                    pool: 0,
                    offset: 64 * line,
                    contents: [content(1), content(0)].concat(),
                })
                .collect(),
            watched: Vec::new(),
        };
        let request = ExploreRequest {
            table: &table,
            prefix: &[],
            branch: if fork { Branch::Fork } else { Branch::Repeat },
            watches: &[],
            observations: false,
            log: false,
            max_executions: u64::MAX,
        };
        let explored = self.recovery.explore(&request).expect("executions");
        explored.executions.len() as u32
    }
}
