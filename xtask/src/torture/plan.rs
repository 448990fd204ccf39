//! What a round does: everything that its seed decides.

use std::fmt;

use super::programs::{STATIC, planted_count, planted_name};
use crate::random::Random;

/// What a round does.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) action: Action,
    /// The words of the workload; `{pool}` is a fresh pool.
    pub(crate) workload: Vec<String>,
    /// The recovery command.
    pub(crate) recover: String,
    pub(crate) stress: Stress,
    /// What damages files that powerfail reads.
    pub(crate) damage_seed: u64,
}

/// What powerfail is told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Check,
    Schedules,
    Record,
    Fuzz,
    /// A check, then a replay of evidence that was damaged meanwhile.
    ReplayDamaged,
    /// A recording, then all commands on the trace, which was damaged meanwhile.
    ReadDamaged,
    /// A check, then the same with `--resume`; its outcomes were damaged meanwhile.
    Resume,
    /// The shares of a crash test, which are damaged before they are merged.
    Merge,
    /// A check, then another one that asks what is new since; what the first has kept was damaged meanwhile.
    Changed,
    /// `powerfail init`.
    Init,
}

/// What goes wrong meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stress {
    None,
    /// A signal after some time.
    Signal {
        signal: &'static str,
        after_ms: u64,
    },
    /// The output directory is on a disk of this size.
    Disk {
        kib: u64,
    },
    /// A limit of `ulimit`: the flag, and the value.
    Limit {
        flag: &'static str,
        value: u64,
    },
}

/// What `tests/torture/hostile.c` can do as a recovery.
const HOSTILE: [&str; 16] = [
    "kill-parent",
    "stop-parent",
    "kill-all",
    "stop-self",
    "daemon",
    "forks",
    "memory",
    "output",
    "file",
    "truncate",
    "unlink",
    "link",
    "mode",
    "close",
    "sleep",
    "unmount",
];
/// What `tests/torture/tree.c` can make of a directory.
const TREES: [&str; 8] = [
    "plain", "special", "names", "deep", "denied", "sparse", "many", "gone",
];
const SIGNALS: [&str; 8] = ["INT", "TERM", "HUP", "QUIT", "KILL", "USR1", "PIPE", "SEGV"];
/// Flags of `ulimit`, each with values from those that let nothing run to those that are almost enough.
const LIMITS: [(&str, [u64; 4]); 4] = [
    ("-f", [0, 8, 64, 1024]),
    ("-v", [150_000, 200_000, 600_000, 2_000_000]),
    ("-n", [4, 16, 32, 64]),
    ("-t", [1, 2, 4, 8]),
];
/// Programs of the system that know nothing of pools, with arguments.
const STRANGERS: [&str; 6] = [
    "sh -c 'echo x > {pool}; cat {pool}'",
    "dd if=/dev/zero of={pool} bs=4k count=4",
    "sort --version",
    "python3 -c 'import mmap,sys;f=open(sys.argv[1],\"w+b\");f.truncate(8192);m=mmap.mmap(f.fileno(),8192);m[0:5]=b\"hello\";m.flush()' {pool}",
    "false",
    "sqlite3 {pool} 'create table t(a);insert into t values(1)'",
];

impl Plan {
    pub(crate) fn of(seed: u64) -> Self {
        let random = &mut Random::new(seed);
        let action = *random.one_of(&[
            Action::Check,
            Action::Check,
            Action::Check,
            Action::Schedules,
            Action::Record,
            Action::Fuzz,
            Action::ReplayDamaged,
            Action::ReadDamaged,
            Action::Resume,
            Action::Merge,
            Action::Changed,
            Action::Init,
        ]);
        let (workload, own_recovery) = workload(random);
        let recover = if random.below(3) == 0 {
            let subject = if own_recovery.contains("{dir}") {
                "{dir}"
            } else {
                "{pool}"
            };
            format!("hostile {} {subject}", random.one_of(&HOSTILE))
        } else {
            own_recovery
        };
        Self {
            action,
            workload,
            recover,
            stress: stress(random),
            damage_seed: random.next(),
        }
    }

    /// Whether powerfail may be unable to remove a directory: that takes a descriptor. The next run removes it.
    pub(crate) const fn forbids_descriptors(&self) -> bool {
        matches!(self.stress, Stress::Limit { flag, .. } if matches!(flag.as_bytes(), b"-n"))
    }

    /// Whether what was written first is worth reading again without damage.
    pub(crate) const fn can_succeed(&self) -> bool {
        matches!(
            self.action,
            Action::Resume | Action::Merge | Action::Changed
        )
    }

    /// Whether powerfail may be ended by this signal.
    pub(crate) fn sends(&self, number: i32) -> bool {
        match self.stress {
            Stress::Signal { signal, .. } => number_of(signal) == Some(number),
            // The kernel ends what has used up its processor time.
            Stress::Limit { flag: "-t", .. } => [9, 24].contains(&number),
            _ => false,
        }
    }
}

fn workload(random: &mut Random) -> (Vec<String>, String) {
    match random.below(11) {
        8 | 9 => (
            words(&format!("tree {} {{dir}}", random.one_of(&TREES))),
            "tree recover {dir}".to_owned(),
        ),
        10 => (
            words(&format!("{STATIC} {{pool}}")),
            format!("{STATIC} {{pool}} recover"),
        ),
        0 => (
            words(STRANGERS[random.below(STRANGERS.len() as u64) as usize]),
            "true".to_owned(),
        ),
        1 => {
            let threads = 2 + random.below(14);
            let workload = format!("racing {threads} {{pool}}");
            (words(&workload), "racing recover {pool}".to_owned())
        }
        _ => {
            let program = planted_name(random.below(planted_count() as u64) as usize);
            let recover = format!("{program} {{pool}} recover");
            (words(&format!("{program} {{pool}}")), recover)
        }
    }
}

/// The words of a command, with single quotes.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (number, part) in command.split('\'').enumerate() {
        if number % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

fn stress(random: &mut Random) -> Stress {
    match random.below(5) {
        0 => Stress::None,
        1 => Stress::Disk {
            kib: *random.one_of(&[0, 4, 16, 64, 256, 1024]),
        },
        2 => {
            let (flag, values) = random.one_of(&LIMITS);
            let value = *random.one_of(values);
            Stress::Limit { flag, value }
        }
        _ => Stress::Signal {
            signal: SIGNALS[random.below(SIGNALS.len() as u64) as usize],
            after_ms: random.below(2000),
        },
    }
}

/// The number of a signal.
pub(crate) fn number_of(signal: &str) -> Option<i32> {
    let numbers = [2, 15, 1, 3, 9, 10, 13, 11];
    let place = SIGNALS.iter().position(|name| *name == signal)?;
    Some(numbers[place])
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let program = &self.workload[0];
        let mut recover = self.recover.split_whitespace();
        let recovery = match recover.next() {
            Some("hostile") => recover.next().unwrap_or_default(),
            _ => "own",
        };
        let program = if program.starts_with("planted-") {
            "planted"
        } else {
            program
        };
        write!(f, "{:?} of {program}, {recovery} recovery, ", self.action)?;
        match self.stress {
            Stress::None => write!(f, "no stress"),
            Stress::Signal { signal, .. } => write!(f, "SIG{signal}"),
            Stress::Disk { .. } => write!(f, "small disk"),
            Stress::Limit { flag, .. } => write!(f, "ulimit {flag}"),
        }
    }
}
