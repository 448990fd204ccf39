//! `powerfail replay`: shows a finding again, from its output directory.

use anyhow::Context;
use powerfail_check::{Replay, Replayed, output_directory, trace_name};
use powerfail_files::Directory;
use powerfail_finding::{Finding, Report};
use powerfail_report::findings;
use powerfail_report::foreign::Purpose;

use crate::args::ReplayArgs;
use crate::consent;
use crate::exit::{Exit, complain};
use crate::interrupt;
use crate::output::{print, width};
use crate::progress::read_trace;
use crate::runtime::runtime;
use crate::vm;
use crate::watcher::Watcher;

pub(crate) fn replay(args: &ReplayArgs) -> anyhow::Result<Exit> {
    let args = &ReplayArgs {
        out: output_directory::locate(&args.out, &args.id),
        ..args.clone()
    };
    let (report, mut recovery) =
        output_directory::load(&args.out).context("there is no evidence to replay")?;
    let finding = find(&report, args)?;
    if let Some(command) = &args.recover {
        recovery.recover.clone_from(&command.words);
        recovery.working_directory = std::env::current_dir().context("the current directory")?;
    }
    if let Some(to) = &args.export {
        consent::ask(&args.out, args.yes, &recovery, Purpose::Copy)?;
        output_directory::export(&args.out, to)?;
        return Ok(Exit::Clean);
    }
    let trace = trace_name(finding)
        .map(|name| -> anyhow::Result<_> {
            let file = output_directory::open_trace(&args.out, name)?;
            read_trace(file).with_context(|| args.out.join(name).display().to_string())
        })
        .transpose()?;
    let replay = match &trace {
        Some(trace) => Replay::new(trace, &recovery, finding)?,
        None => None,
    };
    let Some(replay) = replay else {
        anyhow::ensure!(
            args.image.is_none() && !args.gdb && !args.shell,
            "finding {} needs no crash to be seen, so it has no crash image",
            finding.id
        );
        show(finding, args)?;
        return Ok(Exit::Findings);
    };
    if let Some(to) = &args.image {
        Directory::create_new(to).with_context(|| to.display().to_string())?;
        replay.write_image(to)?;
        return Ok(Exit::Clean);
    }
    consent::ask(&args.out, args.yes, &recovery, Purpose::Run)?;
    if args.gdb {
        return debug(&replay);
    }
    if args.shell {
        return vm::shell_on_crash(&replay, &recovery.recover);
    }
    interrupt::watch();
    let replayed = replay.run(runtime(), &mut Watcher::default())?;
    show(finding, args)?;
    conclude(&replayed, args)
}

fn find<'r>(report: &'r Report, args: &ReplayArgs) -> anyhow::Result<&'r Finding> {
    let mut findings = report.findings.iter();
    if let Some(finding) = findings.find(|finding| finding.id == args.id) {
        return Ok(finding);
    }
    let ids: Vec<&str> = report.findings.iter().map(|it| it.id.as_str()).collect();
    let ids = match ids.as_slice() {
        [] => "none".to_owned(),
        ids => ids.join(", "),
    };
    anyhow::bail!(
        "there is no finding {} in {}; there are {ids}",
        args.id,
        args.out.display(),
    )
}

/// Opens recovery in gdb, on a private crash image.
fn debug(replay: &Replay<'_>) -> anyhow::Result<Exit> {
    let directory =
        powerfail_image::scratch_directory().context("a directory for the crash image")?;
    let mut command = replay.debugger(runtime(), directory.path())?;
    interrupt::leave_to_child();
    command
        .status()
        .context("gdb cannot be started; is it installed?")?;
    Ok(Exit::Findings)
}

fn show(finding: &Finding, args: &ReplayArgs) -> anyhow::Result<()> {
    let base = std::env::current_dir().unwrap_or_default();
    print(|to| {
        let options = findings::TextOptions {
            width: width(),
            base: &base,
            out: Some(&args.out),
            warnings: true,
        };
        Ok(findings::finding(to, finding, &options)?)
    })
}

/// Says whether recovery did the same again.
fn conclude(replayed: &Replayed, args: &ReplayArgs) -> anyhow::Result<Exit> {
    let sentence = match replayed {
        Replayed::Failed => "the same again: recovery did what is shown above".to_owned(),
        Replayed::Read { command, bytes } => {
            format!("the same again: {command} read {bytes} where it is shown above")
        }
        Replayed::Different {
            failure: Some(failure),
        } => format!(
            "not the same: on the same image, {} {failure}",
            failure.command()
        ),
        Replayed::Different { failure: None } => {
            complain(match &args.recover {
                Some(_) => {
                    "not reproduced: on this image, the given recovery does not do what is shown above"
                }
                None => {
                    "not reproduced: on the same image, recovery does not do what is shown above, so it was changed, \
                     or depends on something besides the pool"
                }
            });
            return Ok(Exit::Clean);
        }
        Replayed::NotRead => {
            complain(
                "not reproduced: recovery did not read these bytes this time, so it depends on \
                 something besides the pool",
            );
            return Ok(Exit::Clean);
        }
    };
    print(|to| Ok(writeln!(to, "{sentence}")?))?;
    Ok(Exit::Findings)
}
