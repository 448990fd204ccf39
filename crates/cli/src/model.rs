//! `powerfail model`: litmus files and what the model says of them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use powerfail_litmus::{LitmusFile, Verdict};
use powerfail_model::Domain;
use powerfail_model::files::FileSystem;
use powerfail_model::program::NonTemporal;
use powerfail_report::litmus as report;
use rayon::prelude::*;
use serde_json::json;

use crate::args::{ModelCheckArgs, ModelShowArgs, NonTemporalArg};
use crate::exit::{Exit, complain};
use crate::output::{print, print_json};
use crate::progress::Progress;

pub(crate) fn check(args: &ModelCheckArgs) -> anyhow::Result<Exit> {
    let files = expand(&args.files)?;
    let progress = Progress::items(files.len() as u64);
    let results: Vec<anyhow::Result<Verdict>> = files
        .par_iter()
        .map(|path| {
            let verdict = check_file(path);
            progress.advance(1);
            verdict
        })
        .collect();
    drop(progress);
    let named = || {
        files
            .iter()
            .map(|path| path.display().to_string())
            .zip(&results)
    };
    let verdicts = || named().filter_map(|(path, result)| Some((path, result.as_ref().ok()?)));
    let failed = verdicts().filter(|(_, verdict)| !verdict.passed()).count();
    let passed = verdicts().count() - failed;
    let errors = || results.iter().filter_map(|result| result.as_ref().err());
    errors().for_each(|error| complain(&format!("{error:#}")));
    if args.json {
        let files: Vec<_> = verdicts()
            .map(|(path, verdict)| report::verdict_json(&path, verdict))
            .collect();
        let errors: Vec<_> = errors().map(|error| format!("{error:#}")).collect();
        print_json(&json!({"passed": passed, "failed": failed, "files": files, "errors": errors}))?;
    } else {
        print(|out| {
            for (path, verdict) in verdicts().filter(|(_, verdict)| !verdict.passed()) {
                report::failure(out, &path, verdict)?;
            }
            Ok(report::tally(out, passed, failed)?)
        })?;
    }
    Ok(if errors().count() > 0 {
        Exit::Setup
    } else if failed > 0 {
        Exit::Findings
    } else {
        Exit::Clean
    })
}

fn check_file(path: &Path) -> anyhow::Result<Verdict> {
    let file = read(path)?;
    powerfail_litmus::check(&file).with_context(|| path.display().to_string())
}

fn read(path: &Path) -> anyhow::Result<LitmusFile> {
    let parse = || Ok::<_, anyhow::Error>(LitmusFile::parse_bytes(&fs::read(path)?)?);
    parse().with_context(|| path.display().to_string())
}

/// Replaces each directory by the litmus files below it.
fn expand(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            let before = files.len();
            collect(path, &mut files).with_context(|| path.display().to_string())?;
            anyhow::ensure!(
                files.len() > before,
                "{}: no *.json files in it",
                path.display()
            );
        } else {
            files.push(path.clone());
        }
    }
    Ok(files)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<anyhow::Result<_>>()?;
    entries.sort();
    for path in entries {
        if path.is_dir() && !path.is_symlink() {
            collect(&path, files)?;
        } else if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            files.push(path);
        }
    }
    Ok(())
}

pub(crate) fn show(args: &ModelShowArgs) -> anyhow::Result<Exit> {
    let context = || args.file.display().to_string();
    match read(&args.file)? {
        LitmusFile::Program(file) => {
            let non_temporal = match args.non_temporal {
                NonTemporalArg::Weak => NonTemporal::Weak,
                NonTemporalArg::InOrder => NonTemporal::InOrder,
                NonTemporalArg::DurableAtFence => NonTemporal::DurableAtFence,
            };
            let states = file.states(non_temporal).with_context(context)?;
            if args.json {
                print_json(&report::program_json(&file, &states))?;
            } else {
                print(|out| Ok(report::program(out, &file, &states)?))?;
            }
        }
        LitmusFile::Trace(file) => {
            anyhow::ensure!(
                args.non_temporal == NonTemporalArg::Weak,
                "{}: a trace has its order already; --non-temporal is for programs",
                args.file.display()
            );
            let adr = file.states(Domain::Adr).with_context(context)?;
            let eadr = file.states(Domain::Eadr).with_context(context)?;
            if args.json {
                print_json(&report::trace_json(&file, &adr, &eadr))?;
            } else {
                print(|out| Ok(report::trace(out, &file, &adr, &eadr)?))?;
            }
        }
        LitmusFile::Files(file) => {
            anyhow::ensure!(
                args.non_temporal == NonTemporalArg::Weak,
                "{}: operations on files have no stores; --non-temporal is for programs",
                args.file.display()
            );
            let trees = [
                FileSystem::Ext4,
                FileSystem::Xfs,
                FileSystem::Btrfs,
                FileSystem::Posix,
            ]
            .into_iter()
            .map(|file_system| Ok((file_system, file.trees(file_system)?)))
            .collect::<anyhow::Result<Vec<_>>>()
            .with_context(context)?;
            if args.json {
                print_json(&report::files_json(&file, &trees))?;
            } else {
                print(|out| Ok(report::files(out, &file, &trees)?))?;
            }
        }
    }
    Ok(Exit::Clean)
}
