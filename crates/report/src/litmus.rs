//! Verdicts on litmus files, and what a litmus file allows.

use std::io::{self, Write};

use powerfail_litmus::{
    FilesFile, Mismatch, PositionStates, ProgramFile, ProgramStates, States, TraceFile,
    TraceStates, TreeText, Trees, Verdict,
};
use powerfail_model::files::FileSystem;
use powerfail_model::program::{CrashMoment, Op, Operand, RegisterId, VariableId};
use powerfail_model::{FenceKind, FlushKind};
use serde_json::{Value, json};

use crate::text::{
    BAD, FAINT, GOOD, STRONG, big_count, big_plural, printable, width as text_width,
};
use crate::trace::event_text;

/// States of one set that a line of text shows; `--json` shows all.
const STATES_SHOWN: usize = 64;

/// One line for a file that fails: where model and file differ.
pub fn failure(out: &mut dyn Write, path: &str, verdict: &Verdict) -> io::Result<()> {
    let differences: Vec<String> = verdict.mismatches.iter().map(mismatch_text).collect();
    writeln!(out, "{BAD}FAIL{BAD:#} {path}: {}", differences.join("; "))
}

fn mismatch_text(mismatch: &Mismatch) -> String {
    match mismatch {
        Mismatch::States {
            field,
            missing,
            extra,
        } => {
            let mut parts = Vec::new();
            if !missing.is_empty() {
                parts.push(format!("missing {}", states_text(missing)));
            }
            if !extra.is_empty() {
                parts.push(format!("extra {}", states_text(extra)));
            }
            format!("{field}: {}", parts.join(", "))
        }
        Mismatch::Trees {
            field,
            missing,
            extra,
        } => {
            let mut parts = Vec::new();
            if !missing.is_empty() {
                parts.push(format!("missing {}", trees_text(missing)));
            }
            if !extra.is_empty() {
                parts.push(format!("extra {}", trees_text(extra)));
            }
            format!("{field}: {}", parts.join(", "))
        }
        Mismatch::Count {
            field,
            expected,
            found,
        } => {
            format!("{field}: expected {expected}, found {found}")
        }
    }
}

fn states_text(states: &States) -> String {
    let mut text: Vec<String> = states
        .iter()
        .take(STATES_SHOWN)
        .map(|state| format!("{state:?}"))
        .collect();
    if states.len() > STATES_SHOWN {
        text.push(format!("and {} more", states.len() - STATES_SHOWN));
    }
    text.join(" ")
}

fn tree_text(tree: &TreeText) -> String {
    let nodes = tree.iter().map(|(path, what)| {
        let (path, what) = (printable(path), printable(what));
        format!("{path} = {what}").trim_end().to_owned()
    });
    format!("{{{}}}", nodes.collect::<Vec<_>>().join(", "))
}

fn trees_text(trees: &Trees) -> String {
    let mut text: Vec<String> = trees.iter().take(STATES_SHOWN).map(tree_text).collect();
    if trees.len() > STATES_SHOWN {
        text.push(format!("and {} more", trees.len() - STATES_SHOWN));
    }
    text.join(" ")
}

/// What operations on files may leave behind, for people.
pub fn files(
    out: &mut dyn Write,
    file: &FilesFile,
    trees: &[(FileSystem, Trees)],
) -> io::Result<()> {
    title(out, &file.name, &file.doc)?;
    if !file.source.is_empty() {
        writeln!(out, "{FAINT}source: {}{FAINT:#}", printable(&file.source))?;
    }
    writeln!(out)?;
    for (at, operation) in file.operations().enumerate() {
        writeln!(out, "{STRONG}{at:>4}{STRONG:#} {}", printable(operation))?;
    }
    writeln!(out)?;
    writeln!(out, "{STRONG}after a crash at the end{STRONG:#}")?;
    let all: Trees = trees.iter().flat_map(|(_, trees)| trees).cloned().collect();
    for tree in &all {
        let permitting: Vec<&str> = trees
            .iter()
            .filter(|(_, trees)| trees.contains(tree))
            .map(|(file_system, _)| file_system.as_str())
            .collect();
        let permitting = permitting.join(", ");
        writeln!(out, "  {}   {FAINT}{permitting}{FAINT:#}", tree_text(tree))?;
    }
    Ok(())
}

/// What operations on files may leave behind, as one JSON object.
pub fn files_json(file: &FilesFile, trees: &[(FileSystem, Trees)]) -> Value {
    let trees: serde_json::Map<String, Value> = trees
        .iter()
        .map(|(file_system, trees)| (file_system.as_str().to_owned(), json!(trees)))
        .collect();
    let points: serde_json::Map<String, Value> = FileSystem::ALL
        .iter()
        .map(|fs| (fs.as_str().to_owned(), json!(file.failure_points(*fs))))
        .collect();
    json!({"name": file.name, "trees": trees, "failure_points": points})
}

/// The closing line of a check.
pub fn tally(out: &mut dyn Write, passed: usize, failed: usize) -> io::Result<()> {
    let style = if failed == 0 { GOOD } else { BAD };
    writeln!(out, "{style}{passed} passed, {failed} failed{style:#}")
}

/// The verdict on a file, as one JSON object.
pub fn verdict_json(path: &str, verdict: &Verdict) -> Value {
    let mismatches: Vec<Value> = verdict
        .mismatches
        .iter()
        .map(|mismatch| match mismatch {
            Mismatch::States {
                field,
                missing,
                extra,
            } => {
                json!({"field": field, "missing": missing, "extra": extra})
            }
            Mismatch::Trees {
                field,
                missing,
                extra,
            } => {
                json!({"field": field, "missing": missing, "extra": extra})
            }
            Mismatch::Count {
                field,
                expected,
                found,
            } => {
                json!({"field": field, "expected": expected, "found": found})
            }
        })
        .collect();
    json!({"file": path, "passed": verdict.passed(), "mismatches": mismatches})
}

/// What a program may leave behind, for people.
pub fn program(out: &mut dyn Write, file: &ProgramFile, states: &ProgramStates) -> io::Result<()> {
    title(out, &file.name, &file.doc)?;
    let variables: Vec<String> = (0..file.variables.len())
        .map(|variable| {
            let name = printable(&file.variables[variable]);
            let line = file.line_numbers[variable];
            format!("{name} = {} (line {line})", file.program.initial[variable])
        })
        .collect();
    writeln!(out, "before: {}", variables.join(", "))?;
    writeln!(out)?;
    threads(out, file)?;
    let moment = match file.crash {
        CrashMoment::Any => "at any moment",
        CrashMoment::End => "after the last operation",
    };
    writeln!(out, "{STRONG}after a crash {moment}{STRONG:#}")?;
    writeln!(
        out,
        "{FAINT}adr: caches are lost, eadr: caches are durable{FAINT:#}"
    )?;
    let all: States = states
        .allowed
        .union(&states.allowed_eadr)
        .cloned()
        .collect();
    table(out, &file.variables, &all, |state| {
        match (
            states.allowed.contains(state),
            states.allowed_eadr.contains(state),
        ) {
            (true, true) => "adr, eadr",
            (true, false) => "adr",
            _ => "eadr",
        }
    })?;
    if !file.registers.is_empty() {
        writeln!(out, "{STRONG}registers without a crash{STRONG:#}")?;
        table(out, &file.registers, &states.outcomes, |_| "")?;
    }
    writeln!(out, "{STRONG}memory without a crash{STRONG:#}")?;
    table(out, &file.variables, &states.final_mem, |_| "")
}

fn title(out: &mut dyn Write, name: &str, doc: &str) -> io::Result<()> {
    writeln!(out, "{STRONG}{}{STRONG:#}", printable(name))?;
    for line in doc.lines() {
        writeln!(out, "{}", printable(line))?;
    }
    Ok(())
}

fn threads(out: &mut dyn Write, file: &ProgramFile) -> io::Result<()> {
    let columns: Vec<Vec<String>> = file
        .program
        .threads
        .iter()
        .enumerate()
        .map(|(number, thread)| {
            let ops = thread.ops.iter().map(|op| op_text(file, number, *op));
            std::iter::once(format!("thread {number}"))
                .chain(ops)
                .collect()
        })
        .collect();
    let height = columns.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = columns
        .iter()
        .map(|column| {
            column
                .iter()
                .map(|cell| text_width(cell))
                .max()
                .unwrap_or(0)
        })
        .collect();
    for row in 0..height {
        let cells: Vec<String> = columns
            .iter()
            .zip(&widths)
            .map(|(column, width)| format!("{:width$}", column.get(row).map_or("", |s| s)))
            .collect();
        writeln!(out, "  {}", cells.join("   ").trim_end())?;
    }
    writeln!(out)
}

fn op_text(file: &ProgramFile, thread: usize, op: Op) -> String {
    let register = |register: RegisterId| printable(&file.register_names[thread][register.0]);
    let name = |variable: VariableId| printable(&file.variables[variable.0]);
    let value = |operand| match operand {
        Operand::Number(number) => number.to_string(),
        Operand::Register(used) => register(used).into_owned(),
    };
    match op {
        Op::Store(variable, operand) => format!("{} := {}", name(variable), value(operand)),
        Op::NonTemporalStore(variable, operand) => {
            format!("{} := {} (nt)", name(variable), value(operand))
        }
        Op::Load(variable, to) => format!("{} := {}", register(to), name(variable)),
        Op::Flush(FlushKind::Clflush, variable) => format!("clflush {}", name(variable)),
        Op::Flush(FlushKind::Clflushopt, variable) => format!("clflushopt {}", name(variable)),
        Op::Flush(FlushKind::Clwb, variable) => format!("clwb {}", name(variable)),
        Op::Fence(FenceKind::Sfence) => "sfence".to_owned(),
        Op::Fence(FenceKind::Mfence | FenceKind::Locked) => "mfence".to_owned(),
        Op::Add(variable, operand, to) => {
            let (variable, addend) = (name(variable), value(operand));
            format!("{} := fetch_add({variable}, {addend})", register(to))
        }
        Op::CompareAndSwap(variable, expected, new, to) => {
            let (variable, expected, new) = (name(variable), value(expected), value(new));
            format!("{} := cas({variable}, {expected}, {new})", register(to))
        }
    }
}

fn table(
    out: &mut dyn Write,
    names: &[String],
    states: &States,
    note: impl Fn(&Vec<i64>) -> &'static str,
) -> io::Result<()> {
    let names: Vec<String> = names
        .iter()
        .map(|name| printable(name).into_owned())
        .collect();
    let widths: Vec<usize> = (0..names.len())
        .map(|column| {
            let values = states.iter().map(|state| state[column].to_string().len());
            values.max().unwrap_or(0).max(text_width(&names[column]))
        })
        .collect();
    let row = |cells: Vec<String>| {
        let padded: Vec<String> = cells
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:>width$}"))
            .collect();
        padded.join("  ")
    };
    writeln!(out, "  {FAINT}{}{FAINT:#}", row(names.clone()))?;
    for state in states {
        let cells = row(state.iter().map(ToString::to_string).collect());
        let note = note(state);
        let note = if note.is_empty() {
            String::new()
        } else {
            format!("   {FAINT}{note}{FAINT:#}")
        };
        writeln!(out, "  {cells}{note}")?;
    }
    writeln!(out)
}

/// What a program may leave behind, as one JSON object.
pub fn program_json(file: &ProgramFile, states: &ProgramStates) -> Value {
    json!({
        "name": file.name,
        "vars": file.variables,
        "allowed": states.allowed,
        "allowed_eadr": states.allowed_eadr,
        "regs": file.registers,
        "outcomes": states.outcomes,
        "final_mem": states.final_mem,
    })
}

/// What a trace may leave behind at each position, for people.
pub fn trace(
    out: &mut dyn Write,
    file: &TraceFile,
    adr: &TraceStates,
    eadr: &TraceStates,
) -> io::Result<()> {
    title(out, &file.name, &file.doc)?;
    if let Some(cells) = &file.cells {
        let cells: Vec<String> = cells
            .iter()
            .map(|cell| format!("line {} +{}", cell.line, cell.offset_in_line))
            .collect();
        writeln!(out, "a state is [{}]", cells.join(", "))?;
    }
    writeln!(out)?;
    let position = |out: &mut dyn Write, at: usize| {
        // They are in the order of the trace.
        let mark = if adr.failure_points.binary_search(&(at as u64)).is_ok() {
            "  <- failure point"
        } else {
            ""
        };
        let states = position_text(&adr.positions[at]);
        writeln!(out, "  crash at {at}: {states}{FAINT}{mark}{FAINT:#}")?;
        if eadr.positions[at] != adr.positions[at] {
            let states = position_text(&eadr.positions[at]);
            writeln!(out, "  {FAINT}durable caches: {states}{FAINT:#}")?;
        }
        Ok::<_, io::Error>(())
    };
    for at in 0..file.event_count() {
        position(out, at as usize)?;
        let text = match file.step(at) {
            Some(step) => format!("thread {} {}", step.thread, event_text(&step.event)),
            None => "no effect on what is durable".to_owned(),
        };
        writeln!(out, "{STRONG}{at:>4}{STRONG:#} {text}")?;
    }
    position(out, file.event_count() as usize)
}

fn position_text(position: &PositionStates) -> String {
    let counts = &position.counts;
    let mut parts = vec![big_plural(&counts.distinct, "state")];
    if counts.combinations != counts.distinct {
        parts.push(format!(
            "in {} combinations",
            big_count(&counts.combinations)
        ));
    }
    if let Some(states) = &position.states {
        parts.push(states_text(states));
    }
    parts.join(" ")
}

/// What a trace may leave behind at each position, as one JSON object. Numbers of states are
/// strings, because they exceed what JSON readers take as numbers.
pub fn trace_json(file: &TraceFile, adr: &TraceStates, eadr: &TraceStates) -> Value {
    let domain = |states: &TraceStates| {
        let positions: Vec<Value> = states
            .positions
            .iter()
            .map(|position| {
                json!({
                    "states": position.states,
                    "combinations": position.counts.combinations.to_string(),
                    "distinct": position.counts.distinct.to_string(),
                })
            })
            .collect();
        json!({"positions": positions, "failure_points": states.failure_points})
    };
    let cells: Option<Vec<[u64; 2]>> = file.cells.as_ref().map(|cells| {
        cells
            .iter()
            .map(|cell| [cell.line, cell.offset_in_line])
            .collect()
    });
    json!({"name": file.name, "cells": cells, "adr": domain(adr), "eadr": domain(eadr)})
}
