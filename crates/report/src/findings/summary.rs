//! The end of a report: how many bugs, and what was covered.

use std::io::{self, Write};

use powerfail_finding::{
    Eager, Exploration, NotChecked, PointsNotRun, Races, Report, Severity, Totals, TreeTotals,
};

use super::{TextOptions, schedules_sentence, shown};
use crate::text::{BAD, GOOD, STRONG, WARNING, count, plural, printable};

/// Counts, coverage, notes. A clear sentence if nothing was found.
pub fn summary(out: &mut dyn Write, report: &Report, options: &TextOptions<'_>) -> io::Result<()> {
    let mut codes: Vec<&str> = shown(report, options)
        .map(|finding| finding.code.as_str())
        .collect();
    codes.sort_unstable();
    codes.dedup();
    match &codes[..] {
        [] => {}
        [code] => writeln!(out, "run `powerfail explain {code}` for an explanation")?,
        [code, others @ ..] => {
            let others = others.join(", ");
            writeln!(
                out,
                "run `powerfail explain {code}` for an explanation; also {others}"
            )?;
        }
    }
    for note in &report.notes {
        writeln!(out, "{STRONG}note{STRONG:#}: {}", printable(note))?;
    }
    let of = |severity| {
        let findings = report.findings.iter();
        findings
            .filter(|finding| finding.severity == severity)
            .count() as u64
    };
    let errors = of(Severity::Error);
    let performance = of(Severity::Performance);
    let not_checked = report.totals.not_checked;
    // Bugs were found without power failures.
    let is_half_checked = not_checked.is_some() && errors + performance > 0;
    if let Some(reason) = not_checked.filter(|_| is_half_checked) {
        let reason = not_checked_text(reason).0;
        writeln!(
            out,
            "{WARNING}warning{WARNING:#}: nothing was checked with power failures: {reason}"
        )?;
    }
    let style = match (errors, performance) {
        (0, 0) if not_checked.is_some() => WARNING,
        (0, 0) => GOOD,
        (0, _) => WARNING,
        _ => BAD,
    };
    let mut sentence = match (errors, performance) {
        (0, 0) => match not_checked {
            Some(reason) => format!("nothing was checked: {}", not_checked_text(reason).0),
            None if report.totals.in_baseline > 0 => "no new bugs found".to_owned(),
            None => "no bugs found".to_owned(),
        },
        (errors, 0) => plural(errors, "correctness bug"),
        (0, performance) => plural(performance, "performance bug"),
        (errors, performance) => format!(
            "{}: {} correctness, {} performance",
            plural(errors + performance, "bug"),
            count(errors),
            count(performance)
        ),
    };
    let warnings = of(Severity::Warning) + u64::from(is_half_checked);
    if warnings > 0 {
        let hidden = (report.findings.len() - shown(report, options).count()) as u64;
        sentence = format!("{sentence}; {}", plural(warnings, "warning"));
        match hidden {
            0 => {}
            all if all == warnings => sentence += " not shown",
            some => sentence = format!("{sentence}, {} of them not shown", count(some)),
        }
    }
    writeln!(out, "{style}{sentence}{style:#}")?;
    if let Some(reason) = not_checked {
        let help = not_checked_text(reason).1;
        writeln!(out, "{STRONG}help{STRONG:#}: {help}")?;
    }
    let totals = &report.totals;
    writeln!(out, "{}", coverage(totals))?;
    explorations(out, totals)?;
    let taken = [
        (totals.suppressed, "suppressed"),
        (totals.in_baseline, "in the baseline"),
        (totals.fixed, "fixed since the baseline"),
    ];
    let taken: Vec<String> = taken
        .into_iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, what)| format!("{} {what}", count(number)))
        .collect();
    if !taken.is_empty() {
        writeln!(out, "{}", taken.join(", "))?;
    }
    Ok(())
}

/// Why nothing was checked, and what to do, as one sentence.
pub(crate) fn not_checked_sentence(reason: NotChecked) -> String {
    let (reason, help) = not_checked_text(reason);
    format!("nothing was checked: {reason}; {help}")
}

/// What was tried besides prefix crashes, in one line each.
fn explorations(out: &mut dyn Write, totals: &Totals) -> io::Result<()> {
    if let Some(eager) = &totals.eager {
        writeln!(out, "{}", combinations(eager))?;
    }
    if let Some(exploration) = &totals.exploration {
        writeln!(out, "{}", explored(exploration))?;
    }
    if let Some(tree) = &totals.tree {
        writeln!(out, "{}", files(tree))?;
    }
    if let Some(races) = &totals.races {
        writeln!(out, "{}", watched(races))?;
    }
    if totals.schedules > 0 {
        let schedules = schedules_sentence(totals.schedules, totals.distinct_schedules);
        writeln!(out, "{schedules}")?;
    }
    Ok(())
}

/// Why nothing was checked, and what to do.
pub(crate) const fn not_checked_text(reason: NotChecked) -> (&'static str, &'static str) {
    match reason {
        NotChecked::NoStore => (
            "the workload stored nothing in a pool",
            "give a workload that changes its pool, and see `powerfail record --help` for what counts as a pool",
        ),
        NotChecked::NoFailurePoint => (
            "there is no flush, fence or msync after a store, so there is no moment at which to let the power fail",
            "`--failure-points store` lets it fail before each store; `--domain` says what makes stores durable",
        ),
        NotChecked::NoFailurePointOfKind => (
            "no operation of the kind that --failure-points names follows a store",
            "leave --failure-points out, or name another kind; `powerfail trace info` counts the operations",
        ),
        NotChecked::NoTime => (
            "the run ended before the first crash was tried",
            "give it more time with --budget",
        ),
        NotChecked::PoolNotOpened => (
            "recovery did not open the pool",
            "pass the path of the pool to --recover: {pool} stands for it",
        ),
        NotChecked::FilesNotOpened => (
            "recovery opened none of the files that the workload changed, and accepts whatever is in them",
            "pass the path of the directory to --recover, where {dir} stands for it, or give a --checker",
        ),
        NotChecked::RecoveryCannotFail => (
            "recovery does the same with each pool that was tried, an empty one and changed ones among them",
            "let recovery check what it recovers and exit with a code other than 0, or give a --checker or a --dump",
        ),
        NotChecked::NeedsFile => (
            "recovery may need a file that crash images lack or that it may not write, so no correctness bug is certain",
            "test the program without its journal, if it can be turned off, or allow recovery to write with --writable; \
             `--warnings` shows what recovery does without the file",
        ),
    }
}

/// What was done, so that a reader can judge what "no bugs" means.
pub(crate) fn coverage(totals: &Totals) -> String {
    let events = plural(totals.events, "event");
    if totals.events == 0 {
        return "the workload did nothing to persistent memory, so nothing was checked".to_owned();
    }
    if totals.recovery_runs == 0 {
        return format!("examined {events}; recovery was not run");
    }
    format!(
        "examined {events}; ran recovery {} at {} of {} with {}",
        match totals.recovery_runs {
            1 => "once".to_owned(),
            runs => format!("{} times", count(runs)),
        },
        count(totals.failure_points_run),
        plural(totals.failure_points, "failure point"),
        plural(totals.failure_point_stacks, "distinct call stack"),
    ) + &not_run(totals.failure_points_not_run)
}

/// Why recovery did not run at the other failure points.
fn not_run(points: PointsNotRun) -> String {
    let reasons = [
        (
            points.same_stack,
            "with a call stack that was tried often enough (--per-stack)",
        ),
        (points.equal_image, "with the crash image of another one"),
        (
            points.failing_stack,
            "with a call stack at which recovery fails",
        ),
        (points.no_time, "for lack of time"),
    ];
    let reasons = reasons.iter().filter(|(number, _)| *number > 0);
    let parts: Vec<String> = reasons
        .map(|(number, why)| format!("{} {why}", count(*number)))
        .collect();
    if parts.is_empty() {
        return String::new();
    }
    format!("\nnot run: {}", parts.join(", "))
}

/// How many combinations of stores that may survive were tried, and of which kinds.
fn combinations(eager: &Eager) -> String {
    let all = eager
        .combinations
        .parse()
        .map_or_else(|_| eager.combinations.clone(), count);
    let reads = eager.reads.as_ref().map_or_else(String::new, |reads| {
        format!(
            "\nnot varied: {} that recovery does not read; {} combinations of those that it reads",
            plural(reads.unread_lines, "line"),
            printable(&reads.combinations),
        )
    });
    format!(
        "lost lines: {} of {} exhaustive, {} of {} combinations in {}; {} of {} covered{reads}",
        count(eager.exhaustive_segments),
        plural(eager.segments, "segment"),
        count(eager.run + eager.equal_images),
        all,
        plural(eager.run, "crash state"),
        count(eager.groups_covered),
        plural(eager.groups, "update behaviour"),
    )
}

/// How far lost and reordered lines were explored, including what was not tried.
fn explored(exploration: &Exploration) -> String {
    let mut parts = vec![format!(
        "{} of {} explored exhaustively",
        count(exploration.exhaustive),
        plural(exploration.failure_points, "moment"),
    )];
    for (number, what) in [
        (exploration.sampled, "sampled"),
        (exploration.not_tried, "not tried"),
    ] {
        if number > 0 {
            parts.push(format!("{} {what}", count(number)));
        }
    }
    if exploration.second_failures > 0 {
        let again = plural(exploration.second_failures, "failure");
        parts.push(format!("{again} during recovery"));
    }
    let mut work = plural(exploration.executions, "execution");
    if exploration.executions_saved > 0 {
        work = format!("{work} ({} saved)", count(exploration.executions_saved));
    }
    let states = match &exploration.states[..] {
        "1" => "1 crash state".to_owned(),
        states => format!("{} crash states", printable(states)),
    };
    format!(
        "lost and reordered lines: {}\n{work} with {}, for {states}",
        parts.join(", "),
        plural(exploration.choices, "choice"),
    )
}

/// How many crashes of ordinary files were tried.
fn files(tree: &TreeTotals) -> String {
    let again = match tree.second_states {
        0 => String::new(),
        states => format!(
            "; {} of power failures during recovery",
            plural(states, "crash state")
        ),
    };
    format!(
        "files, on {}: {}, {} ({} the same tree as another, {} the same as far as recovery opens files); {} explored \
         exhaustively, {} sampled{again}",
        printable(&tree.file_system),
        plural(tree.operations, "operation"),
        plural(tree.states, "crash state"),
        count(tree.repeated),
        count(tree.unread),
        plural(tree.exhausted_points, "failure point"),
        count(tree.sampled_points),
    )
}

/// At how many failure points the reads of recovery were watched, and what was seen.
fn watched(races: &Races) -> String {
    let mut parts = vec![format!(
        "watched at {} of {}",
        count(races.watched + races.unchanged),
        plural(races.failure_points, "failure point"),
    )];
    for (number, what) in [
        (races.refused, "that cannot be watched"),
        (races.not_tried, "not tried"),
    ] {
        if number > 0 {
            parts.push(format!("{} {what}", count(number)));
        }
    }
    let mut work = plural(races.executions, "execution");
    if races.confirmations > 0 {
        work = format!("{work} and {} to confirm", count(races.confirmations));
    }
    let validated = match races.validated {
        0 => String::new(),
        number => format!(", {} validated by recovery", count(number)),
    };
    format!(
        "reads of recovery: {}; {work}; {} of reader and writer, {} confirmed{validated}",
        parts.join(", "),
        plural(races.pairs, "unsafe pair"),
        count(races.confirmed),
    )
}
