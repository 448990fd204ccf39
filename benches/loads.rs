//! The slowdown of a recovery that reads its pool for a long time, when it runs as a lazy execution. Rounds alternate,
//! and the best of each counts: the loops are shorter than the time slices that a busy machine takes away.
//!
//! Needs gcc. Builds the runtime itself.

use std::path::{Path, PathBuf};
use std::time::Instant;

use powerfail_benches::{compile, here};
use powerfail_oracle::{
    Branch, CommandLine, ExploreRequest, LineTable, Oracle, OracleSettings, PageMask, PoolMapping,
    RecoveryPlan, Slot, TableLine, Verdict,
};
use powerfail_test_support::runtime;

const ROUNDS: usize = 7;
const POOL_LEN: u64 = 1 << 20;
const PAGE: u64 = 4096;
const LINE: usize = 64;
const BUDGET_RATIO: f64 = 5.0;

/// Which lines are open.
#[derive(Clone, Copy)]
enum Open {
    /// Ten lines in ten pages; they are read.
    Ten,
    /// The same, and all other lines are watched for reads.
    TenWatched,
    /// One line at the end of the page in use. It is never read.
    Near,
}

const CASES: [(&str, &str, Open); 6] = [
    ("1 MiB scanned, 10 lines open", "scan", Open::Ten),
    ("the same, all lines watched", "scan", Open::TenWatched),
    ("1e6 loads on an open page", "load", Open::Near),
    ("1e6 stores", "store", Open::Near),
    ("1e6 additions", "modify", Open::Near),
    ("1e4 copies of 512 to 1023 bytes", "copy", Open::Near),
];

fn main() {
    powerfail_oracle::serve_if_zygote();
    let directory = tempfile::tempdir().expect("a directory");
    let program = compile(&here().join("loads/recovery.c"), directory.path(), &["-O2"]);
    println!(
        "{:<34}{:>11}{:>11}{:>8}{:>12}{:>12}{:>8}",
        "", "native ms", "lazy ms", "ratio", "in all ms", "lazy ms", "traps"
    );
    for (name, mode, open) in CASES {
        let settings = OracleSettings {
            runtime: Some(runtime::bytes().into()),
            snapshot: true,
            ..OracleSettings::default()
        };
        measure(name, mode, open, &program, settings);
    }
}

fn table(open: Open, pool: &Path, image: &[u8]) -> LineTable {
    let offsets: Vec<u64> = match open {
        Open::Near => vec![2 * PAGE - LINE as u64],
        Open::Ten | Open::TenWatched => (0..10).map(|it| it * 25 * PAGE + it * 64).collect(),
    };
    let lines = offsets.into_iter().map(|offset| {
        let newest = &image[offset as usize..][..LINE];
        TableLine {
            pool: 0,
            offset,
            contents: [newest, &[0xee; LINE]].concat(),
        }
    });
    let watched = (0..POOL_LEN / PAGE).map(|page| PageMask {
        pool: 0,
        offset: page * PAGE,
        lines: u64::MAX,
    });
    LineTable {
        line_bytes: LINE as u32,
        pools: vec![pool.to_owned()],
        lines: lines.collect(),
        watched: match open {
            Open::TenWatched => watched.collect(),
            _ => Vec::new(),
        },
    }
}

/// The duration of a run, in milliseconds.
#[derive(Clone, Copy)]
struct Times {
    /// The measured loop, by the program's own clock.
    own: f64,
    /// The whole run, by our clock.
    all: f64,
}

fn best(times: &[Times]) -> Times {
    let least = |which: fn(&Times) -> f64| times.iter().map(which).fold(f64::MAX, f64::min);
    Times {
        own: least(|it| it.own),
        all: least(|it| it.all),
    }
}

fn time(result: &Path, run: impl FnOnce()) -> Times {
    let start = Instant::now();
    run();
    let all = start.elapsed().as_secs_f64() * 1e3;
    let text = std::fs::read_to_string(result).expect("a result");
    let own: f64 = text.split(' ').next().unwrap_or("").parse().expect("time");
    Times {
        own: own / 1e6,
        all,
    }
}

fn measure(name: &str, mode: &str, open: Open, program: &Path, settings: OracleSettings) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| -> PathBuf { directory.path().join(name) };
    let image: Vec<u8> = (0..POOL_LEN).map(|at| ((at * 37) >> 3) as u8).collect();
    for name in ["pools", "image"] {
        std::fs::create_dir(path(name)).expect("a directory");
        std::fs::write(path(name).join("pool"), &image).expect("a pool");
    }
    let result = path("result");
    let arguments = [
        program.to_str(),
        Some(mode),
        Some("{pool}"),
        result.to_str(),
    ];
    let command = CommandLine::new(arguments.map(|it| it.expect("a path of text")));
    let plan = RecoveryPlan::new(command);
    let oracle = Oracle::new(plan, settings).expect("an oracle");
    let mut slot = oracle
        .slot(&[PoolMapping {
            original: path("pools/pool"),
            private: path("image/pool"),
        }])
        .expect("a slot");
    let table = table(open, &path("pools/pool"), &image);
    let mut traps = 0;
    let (mut native, mut lazy) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let unwatched = time(&result, || {
            let verdict = slot.run_plain().expect("a verdict");
            assert!(matches!(verdict, Verdict::Success { .. }), "{verdict:?}");
        });
        std::fs::write(path("image/pool"), &image).expect("a pool");
        let explored = time(&result, || traps = explore(&mut slot, &table));
        std::fs::write(path("image/pool"), &image).expect("a pool");
        // The first run discovers the instructions.
        if round > 0 {
            native.push(unwatched);
            lazy.push(explored);
        }
    }
    let (native, lazy) = (best(&native), best(&lazy));
    let ratio = lazy.own / native.own;
    println!(
        "{name:<34}{:>11.3}{:>11.3}{ratio:>8.2}{:>12.3}{:>12.3}{traps:>8}{}",
        native.own,
        lazy.own,
        native.all,
        lazy.all,
        if ratio <= BUDGET_RATIO {
            ""
        } else {
            "  over budget"
        }
    );
}

/// Runs one execution, and returns its number of traps.
fn explore(slot: &mut Slot, table: &LineTable) -> u64 {
    let request = ExploreRequest {
        table,
        prefix: &[],
        branch: Branch::Repeat,
        watches: &[],
        observations: false,
        log: false,
        max_executions: 1,
    };
    let explored = slot.explore(&request).expect("executions");
    let verdict = &explored.executions[0].verdict;
    assert!(matches!(verdict, Verdict::Success { .. }), "{verdict:?}");
    explored.traps
}
