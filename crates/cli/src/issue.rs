//! `powerfail report --issue`: one finding as a bug report.

use std::ffi::OsString;
use std::path::Path;

use anyhow::Context;
use powerfail_check::{Recovery, Replay, output_directory, trace_name};
use powerfail_files::Directory;
use powerfail_finding::{Finding, Report};
use powerfail_report::issue::{IssueFacts, issue};
use powerfail_report::shell_words;
use powerfail_trace::Trace;

use crate::args::ReportCommand;
use crate::output;
use crate::progress::read_trace;

/// A longer input is not printed.
const INPUT_BYTES_MAX: u64 = 4096;

/// Prints the bug report, and writes the image if that is asked for.
pub(crate) fn print(
    report: &Report,
    recovery: &Recovery,
    id: &str,
    args: &ReportCommand,
) -> anyhow::Result<()> {
    // `PF0301-296ddfad` names a finding in links and fingerprints.
    let is_it = |it: &&Finding| it.id == id || format!("{}-{}", it.code, it.id) == id;
    let Some(finding) = report.findings.iter().find(is_it) else {
        let ids: Vec<&str> = report.findings.iter().map(|it| it.id.as_str()).collect();
        anyhow::bail!(
            "there is no finding {id} in {}; there are {}",
            args.run.display(),
            if ids.is_empty() {
                "none".to_owned()
            } else {
                ids.join(", ")
            }
        );
    };
    let (_, sources) = output_directory::load_details(&args.run)?;
    let name = trace_name(finding).unwrap_or(output_directory::TRACE);
    let file = output_directory::open_trace(&args.run, name)?;
    let trace = read_trace(file).with_context(|| args.run.join(name).display().to_string())?;
    let mut facts = facts(&trace, recovery, finding, &args.run);
    if let Some(directory) = &args.image {
        let replay = Replay::new(&trace, recovery, finding)?;
        let replay = replay.with_context(|| {
            format!(
                "finding {} needs no crash to be seen, so it has no crash image",
                finding.id
            )
        })?;
        Directory::create_new(directory).with_context(|| directory.display().to_string())?;
        replay.write_image(directory)?;
        let on = replay.commands_on(directory)?;
        facts.needs_runtime = on.needs_runtime;
        let variables = on.variables.iter();
        let variables = variables.map(|(name, value)| {
            let value = shell_words(std::slice::from_ref(value));
            format!("export {}={value}", name.to_string_lossy())
        });
        // A stop command is for powerfail, which starts the server.
        let commands = on.commands.iter().filter(|(name, _)| *name != "stop");
        let commands = commands.map(|(_, words)| shell_words(words));
        let all = variables.chain(commands).collect();
        facts.image = Some((directory.display().to_string(), all));
    }
    output::print(|to| Ok(issue(to, report, finding, sources.as_ref(), &facts)?))
}

fn facts(trace: &Trace, recovery: &Recovery, finding: &Finding, out: &Path) -> IssueFacts {
    let mut versions = Vec::new();
    if let Some(module) = trace.modules().first() {
        versions.push(("program".to_owned(), module.path.display().to_string()));
        if !module.build_id.is_empty() {
            let id = powerfail_finding::hex(&module.build_id);
            versions.push(("its build-id".to_owned(), id));
        }
    }
    let known = ["kernel", "cpu"];
    let notes = trace.meta().notes.iter();
    let notes = notes.filter(|(name, _)| known.contains(&name.as_str()));
    versions.extend(notes.cloned());
    let commands = recovery.commands();
    let commands = commands.map(|(name, words)| (name.to_owned(), shell_words(words)));
    let replay = (finding.evidence.is_some() || finding.read.is_some()).then(|| {
        let out: OsString = out.into();
        format!(
            "powerfail replay {} --out {}",
            finding.id,
            shell_words(&[out])
        )
    });
    IssueFacts {
        versions,
        domain: recovery.domain.name().to_owned(),
        recovery: commands.collect(),
        input: recovery.input.as_deref().and_then(input_text),
        image: None,
        needs_runtime: false,
        replay,
    }
}

/// The input of recovery, if it is a short text.
fn input_text(path: &Path) -> Option<String> {
    let metadata = std::fs::metadata(path).ok()?;
    let is_short = metadata.is_file() && metadata.len() <= INPUT_BYTES_MAX;
    is_short
        .then(|| std::fs::read_to_string(path).ok())
        .flatten()
}
