//! `powerfail fuzz afl`: from flags to the target of afl-fuzz, which is in `powerfail_fuzz`.

use powerfail_fuzz::{AflError, AflOptions, serve_afl};
use powerfail_recorder::RecordError;
use powerfail_recorder::executor::ExecutorError;

use super::options::input_way;
use crate::args::FuzzAflArgs;
use crate::exit::{Exit, complain};
use crate::interrupt;
use crate::runtime::runtime;

pub(crate) fn afl(args: &FuzzAflArgs) -> anyhow::Result<Exit> {
    let options = AflOptions {
        command: args.target.clone(),
        input: input_way(&args.target, args.input)?,
        image: args.image.clone(),
        timeout: args.timeout,
        stacks: args.stacks,
        derandomise: !args.no_derandomise,
        desock: args.desock,
    };
    let served = serve_afl(
        &options,
        runtime(),
        interrupt::watch,
        interrupt::is_interrupted,
    );
    match served {
        Ok(()) => Ok(Exit::Clean),
        Err(AflError::Execute(ExecutorError::Record(RecordError::Unsupported(unsupported)))) => {
            complain(&unsupported.to_string());
            Ok(Exit::Unsupported)
        }
        Err(error) => Err(error.into()),
    }
}
