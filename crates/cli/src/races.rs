//! `powerfail races`: the reads of recovery that are not safe, from a trace.

use powerfail_check::RaceOptions;

use crate::args::RacesCommand;
use crate::crash::{self, Subject, Work};
use crate::exit::Exit;
use crate::settings;

pub(crate) fn races(args: &RacesCommand) -> anyhow::Result<Exit> {
    let config = settings::configuration()?;
    let settings = args.options.clone().settle(config.races)?;
    let subject = Subject::open(&args.trace, &settings.test)?;
    crash::judge(&Work {
        trace: &subject.trace,
        trace_path: &args.trace,
        recovery: &subject.recovery,
        settings: &settings.test,
        suppress: &config.suppress,
        baseline: subject.baseline.as_ref(),
        out: subject.out.as_deref(),
        prefix: false,
        lazy: None,
        eager: None,
        races: Some(RaceOptions {
            alone: true,
            ..settings::races(&settings.races)
        }),
        no_snapshot: false,
        schedule: 0,
        share: 1,
    })
}
