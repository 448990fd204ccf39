//! Call stacks: the frames of the program, and one faint line for those of libraries.

use powerfail_finding::{DurableBy, Finding, Role, StackFrame};

use super::snippet::Sources;
use crate::text::{FAINT, plural, printable, width};

/// Frames shown of one stack; recursion can make thousands.
const FRAMES_SHOWN: usize = 12;

/// Names longer than this do not push the files of all frames to the right.
const NAME_COLUMNS_MAX: usize = 40;

/// The stacks of a finding, with their names. A stack that says no more than its place is left out,
/// and one that was shown already.
pub(super) fn texts(finding: &Finding, sources: &Sources<'_>) -> Vec<(&'static str, String)> {
    let mut texts = Vec::new();
    let mut shown: Vec<&[StackFrame]> = Vec::new();
    for place in &finding.places {
        let stack = up_to_main(&place.stack);
        if stack.len() < 2 || shown.contains(&stack) {
            continue;
        }
        // What the callers of an earlier stack did to get there is not said twice.
        let common = shown.iter().map(|other| common_callers(stack, other)).max();
        let common = common.filter(|common| *common > 1).unwrap_or(0);
        let name = match (place.role, finding.durable_by) {
            (Role::Flush, DurableBy::Sync) => "stack of the msync",
            (role, _) => name(role),
        };
        texts.push((name, text(stack, common, sources)));
        shown.push(stack);
    }
    texts
}

const fn name(role: Role) -> &'static str {
    match role {
        Role::Store => "stack",
        Role::Survivor => "stack of the survivor",
        Role::Overwrite => "stack of the overwrite",
        Role::Publish => "stack of the publication",
        Role::Flush => "stack of the flush",
        Role::Fence => "stack of the fence",
        Role::Failure => "stack at the failure",
        Role::Recovery => "stack of recovery",
        Role::Load => "stack of the load",
        Role::Commit => "stack of the commit",
        Role::Transaction => "stack of the transaction",
        Role::Add => "stack of the add",
        Role::Allocation => "stack of the allocation",
    }
}

/// Without the frames that start a program.
fn up_to_main(stack: &[StackFrame]) -> &[StackFrame] {
    let main = stack
        .iter()
        .position(|frame| frame.function.as_deref().is_some_and(is_main));
    main.map_or(stack, |main| &stack[..=main])
}

/// `main`, or `store::main` as Rust calls it.
fn is_main(function: &str) -> bool {
    function == "main" || function.ends_with("::main")
}

fn common_callers(one: &[StackFrame], other: &[StackFrame]) -> usize {
    let pairs = one.iter().rev().zip(other.iter().rev());
    pairs.take_while(|(one, other)| one == other).count()
}

fn text(stack: &[StackFrame], common: usize, sources: &Sources<'_>) -> String {
    let own = &stack[..stack.len() - common];
    let names = own.iter().filter(|frame| !frame.trusted).map(function);
    let columns = names.map(|name| width(&name)).max().unwrap_or(0);
    let columns = columns.min(NAME_COLUMNS_MAX);
    let mut lines = Vec::new();
    let mut at = 0;
    while at < own.len() && lines.len() < FRAMES_SHOWN {
        let trusted = own[at..].iter().take_while(|frame| frame.trusted).count();
        if trusted > 0 {
            lines.push(folded(&own[at..at + trusted]));
            at += trusted;
            continue;
        }
        let frame = &own[at];
        // Inlined calls have frames of their own, at the address of the function that took them in.
        let inlined = stack
            .get(at + 1)
            .is_some_and(|caller| (&caller.module, caller.offset) == (&frame.module, frame.offset));
        let inlined = if inlined {
            format!(" {FAINT}(inlined){FAINT:#}")
        } else {
            String::new()
        };
        lines.push(format!(
            "{:columns$}  {}{inlined}",
            function(frame),
            location(frame, sources)
        ));
        at += 1;
    }
    if at < own.len() {
        let left = plural((own.len() - at) as u64, "more frame");
        lines.push(format!("{FAINT}{left}{FAINT:#}"));
    }
    if common > 0 {
        let callers = plural(common as u64, "caller");
        lines.push(format!("{FAINT}the same {callers} as above{FAINT:#}"));
    }
    lines.join("\n")
}

/// `3 frames in libpmemobj, libc`.
fn folded(frames: &[StackFrame]) -> String {
    let mut modules: Vec<String> = Vec::new();
    for frame in frames {
        let module = frame.module.as_deref().unwrap_or("a library");
        let name = module.split(".so").next().unwrap_or(module);
        let name = printable(name).into_owned();
        if !modules.contains(&name) {
            modules.push(name);
        }
    }
    let frames = plural(frames.len() as u64, "frame");
    format!("{FAINT}{frames} in {}{FAINT:#}", modules.join(", "))
}

fn function(frame: &StackFrame) -> String {
    let name = frame.function.as_deref().unwrap_or("?");
    printable(name).into_owned()
}

fn location(frame: &StackFrame, sources: &Sources<'_>) -> String {
    match (&frame.file, frame.line) {
        (Some(file), Some(line)) => format!("{}:{line}", sources.shown(file)),
        (Some(file), None) => sources.shown(file),
        (None, _) => match &frame.module {
            Some(module) => format!("{}+{:#x}", printable(module), frame.offset),
            None => format!("{:#x}", frame.offset),
        },
    }
}
