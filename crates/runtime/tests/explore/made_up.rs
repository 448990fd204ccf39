//! Made-up recoveries on made-up crashes: exploration must observe exactly what runs on all crash states observe.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::process::Command;

use powerfail_protocol::explore::{LogKind, flag};

use super::zygote::{Table, Zygote, program};

const LINE: u64 = 64;

/// Pseudorandom numbers that are the same in every run.
pub(super) struct Numbers(pub(super) u64);

impl Numbers {
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    /// An offset near one of the lines.
    pub(super) fn place(&mut self, lines: &[u64], len: u64) -> u64 {
        let line = lines[self.below(lines.len() as u64) as usize];
        (line + self.below(LINE + 16))
            .saturating_sub(8)
            .min(16384 - len)
    }
}

pub(super) fn table(numbers: &mut Numbers) -> Table {
    let mut table = Table::default();
    let places = [0, 64, 512, 4032, 4096, 8128];
    for _ in 0..3 {
        let mut contents: Vec<[u8; 64]> = Vec::new();
        for _ in 0..3 {
            let mut content = contents.last().copied().unwrap_or([0x11; 64]);
            for _ in 0..2 {
                content[numbers.below(LINE) as usize] = numbers.below(4) as u8;
            }
            if !contents.contains(&content) {
                contents.push(content);
            }
        }
        let place = places[numbers.below(places.len() as u64) as usize];
        table.lines.insert(place, contents);
    }
    if numbers.below(2) == 0 {
        table.watched.insert(0, numbers.below(u64::MAX));
    }
    if numbers.below(2) == 0 {
        note_some(numbers, &mut table);
    }
    table
}

/// Watches bytes of some lines, open and others.
pub(super) fn note_some(numbers: &mut Numbers, table: &mut Table) {
    for line in [0, 64, 128, 4032, 4096, 8128, 12288] {
        if numbers.below(2) == 0 {
            table.noted.insert(line, numbers.below(u64::MAX) | 1);
        }
    }
}

fn script(numbers: &mut Numbers, lines: &[u64]) -> String {
    const WORDS: [&str; 17] = [
        "load", "load", "load", "store", "store", "vector", "copy", "move", "set", "rep", "repset",
        "add", "pread", "pwrite", "if", "other", "sum",
    ];
    const RARE: [&str; 4] = ["push", "again", "equal", "peek"];
    let mut script = String::new();
    for _ in 0..8 + numbers.below(8) {
        let what = if numbers.below(8) == 0 {
            RARE[numbers.below(4) as usize]
        } else {
            WORDS[numbers.below(17) as usize]
        };
        let len = match what {
            "load" | "store" => 1 << numbers.below(4),
            _ => 1 + numbers.below(80),
        };
        let at = numbers.place(lines, 128);
        let value = match what {
            "move" | "equal" => numbers.place(lines, 128),
            // The kernel guarantees nothing if source and destination overlap.
            "push" => 12288 + numbers.below(1024),
            _ => numbers.below(256),
        };
        writeln!(script, "{what} {at} {len} {value}").unwrap();
    }
    script
}

/// The output of the recovery on each crash state.
fn all_states(table: &Table, command: &mut Command) -> BTreeSet<String> {
    let counts: Vec<usize> = table.lines.values().map(Vec::len).collect();
    let mut zygote = Zygote::new(table.clone());
    zygote.prepare();
    zygote.start(command.arg(zygote.pool.clone()));
    let snapshot = zygote.snapshot();
    let mut outputs = BTreeSet::new();
    for state in 0..counts.iter().product() {
        zygote.prepare_with(|line| {
            let below: usize = counts[..line].iter().product();
            state / below % counts[line]
        });
        zygote.begin(0, &[]);
        let outcomes = zygote.run(snapshot, |_| ()).unwrap();
        outputs.extend(outcomes.into_iter().map(|outcome| outcome.output));
    }
    zygote.stop();
    outputs
}

/// The log, applied to the original pool, must give the final pool.
fn check_log(table: &Table, command: &mut Command, name: &str) {
    let mut zygote = Zygote::new(table.clone());
    zygote.prepare();
    zygote.start(command.arg(zygote.pool.clone()));
    let snapshot = zygote.snapshot();
    zygote.prepare();
    zygote.begin(flag::LOG, &[]);
    let mut image = std::fs::read(&zygote.pool).unwrap();
    zygote.run(snapshot, |_| ()).unwrap();
    for (kind, offset, bytes) in zygote.log() {
        if kind <= LogKind::StoreNonTemporal as u32 {
            image[offset as usize..offset as usize + bytes.len()].copy_from_slice(&bytes);
        }
    }
    assert!(std::fs::read(&zygote.pool).unwrap() == image, "{name}");
    zygote.stop();
}

fn check(seed: u64) {
    let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let table = table(&mut numbers);
    let lines: Vec<u64> = table.lines.keys().copied().collect();
    let script = script(&mut numbers, &lines);
    let command = || {
        let mut command = Command::new(program());
        command.arg("scripted").env("SCRIPT", &script);
        command
    };
    check_log(&table, &mut command(), &format!("{seed}: {script}"));
    let expected = all_states(&table, &mut command());
    let forked = Zygote::fork_all_of(&table, &mut command()).unwrap();
    let states: usize = table.lines.values().map(Vec::len).product();
    assert!(forked.len() <= states, "{seed}: {script}");
    let outputs = forked.iter().map(|outcome| outcome.output.clone());
    let outputs: BTreeSet<String> = outputs.collect();
    assert_eq!(outputs, expected, "{seed}: {script}{lines:?}");
    let repeated = Zygote::reexecute_all_of(&table, &mut command()).unwrap();
    let (mut forked, mut repeated) = (forked, repeated);
    forked.sort();
    repeated.sort();
    assert_eq!(forked, repeated, "{seed}: {script}");
}

#[test]
fn exploring_is_as_good_as_running_all_crash_states() {
    for seed in 1..=40 {
        check(seed);
    }
}
