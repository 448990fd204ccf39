//! `powerfail record`: runs a command and writes what it did to its pools.

use anyhow::Context;
use powerfail_recorder::{Mode, Options, RecordError, Schedule, Stacks};
use powerfail_report::record as report;

use crate::args::{ModeArg, RecordArgs, StacksArg};
use crate::exit::{Exit, complain};
use crate::output::print_json;

/// The runtime that is preloaded into the target.
pub(crate) const RUNTIME: &[u8] = include_bytes!(env!("POWERFAIL_RUNTIME"));

pub(crate) fn record(args: &RecordArgs) -> anyhow::Result<Exit> {
    let mut options = Options::new(args.command.clone(), &args.output);
    options.pools.clone_from(&args.pool);
    options.pm_dir.clone_from(&args.pm_dir);
    options.mode = match args.mode {
        ModeArg::Patch => Mode::Patch,
        ModeArg::Trap => Mode::Trap,
    };
    options.stacks = match args.stacks {
        StacksArg::Full => Stacks::Full,
        StacksArg::Sites => Stacks::Sites,
        StacksArg::None => Stacks::None,
    };
    options.domain = args.domain.map(Into::into);
    options.heap_bytes = args.heap;
    if let Some(seed) = args.schedule_seed {
        options.schedule = Schedule {
            depth: args.schedule_depth,
            seed,
            length: args.schedule_length.unwrap_or(0),
        };
    }
    let (summary, failure) = match powerfail_recorder::record(&options, RUNTIME) {
        Ok(summary) => (summary, None),
        Err(RecordError::Unsupported(unsupported)) => {
            complain(&unsupported.to_string());
            return Ok(Exit::Unsupported);
        }
        Err(RecordError::SelfCheck(failure)) => {
            let sentence = failure.to_string();
            (failure.summary, Some(sentence))
        }
        Err(RecordError::Trace(error)) => {
            return Err(error).with_context(|| args.output.display().to_string());
        }
        Err(error) => return Err(error.into()),
    };
    if args.json {
        print_json(&report::summary_json(
            &args.output,
            &summary,
            failure.as_deref(),
        ))?;
    } else {
        // Standard output belongs to the target. If nobody reads standard error, so be it.
        let _ = report::summary(&mut anstream::stderr(), &args.output, &summary);
    }
    if let Some(sentence) = failure {
        complain(&sentence);
        return Ok(Exit::Internal);
    }
    for sentence in &summary.fatal {
        complain(sentence);
    }
    Ok(if summary.fatal.is_empty() {
        Exit::Clean
    } else {
        Exit::Unsupported
    })
}
