//! `powerfail fuzz afl`: the target of afl-fuzz, which runs another target for it.
//!
//! To afl-fuzz this process is a fork server: it says hello, is told to run, says which process runs, and then how
//! that one ended. The process that it names is a stand-in that does nothing: executions are made by the repeater,
//! and are no children of ours. afl-fuzz uses the name for one thing only, to kill what takes too long. So the
//! stand-in's end is how we learn that afl-fuzz has lost its patience; and when the repeater loses its own first, the
//! answer waits for that, because a status without it would be taken for a crash.
//!
//! The protocol is that of AFL++ 4.04c; older and newer ones understand it as well.

mod broom;
mod host;
mod stand_in;

use std::path::Path;

use anyhow::{Context, bail};
use powerfail_image::{Contents, FileContents};
use powerfail_recorder::RecordError;
use powerfail_recorder::repeat::{End, InputWay, Opened, RepeatError, RepeatOptions, Repeater};

use self::broom::Broom;
use self::host::{Host, Order};
use self::stand_in::StandIn;
use super::options::input_way;
use crate::args::FuzzAflArgs;
use crate::exit::{Exit, complain};
use crate::interrupt;
use crate::record::RUNTIME;

/// What the status of a process says that SIGKILL has ended.
const KILLED: i32 = libc::SIGKILL;

pub(crate) fn afl(args: &FuzzAflArgs) -> anyhow::Result<Exit> {
    let input = match input_way(&args.target, args.input)? {
        powerfail_fuzz::InputWay::Stdin => InputWay::Stdin,
        powerfail_fuzz::InputWay::File => InputWay::File,
        powerfail_fuzz::InputWay::Arguments => InputWay::Arguments,
    };
    let image = args
        .image
        .as_deref()
        .map_or_else(|| Ok(Contents::default()), read_image)?;
    let host = Host::find()?;
    interrupt::watch();
    let mut options = RepeatOptions::new(args.target.clone(), input);
    options.timeout = args.timeout;
    options.stacks = args.stacks;
    options.derandomise = !args.no_derandomise;
    options.desock = args.desock;
    let parent = powerfail_image::default_parent();
    let _ = powerfail_image::sweep_leftovers(&parent);
    let place = powerfail_image::RunDirectory::create_in(&parent)?;
    let _broom = Broom::for_directory(place.path())?;
    options.directory = place.path().join("afl");
    match serve(host, &options, &image) {
        Ok(()) => Ok(Exit::Clean),
        Err(error) => match error.downcast_ref() {
            Some(RepeatError::Record(RecordError::Unsupported(unsupported))) => {
                complain(&unsupported.to_string());
                Ok(Exit::Unsupported)
            }
            _ => Err(error),
        },
    }
}

/// The image in a file or directory.
fn read_image(path: &Path) -> anyhow::Result<Contents> {
    let name = || format!("--image: {} cannot be read", path.display());
    if path.is_dir() {
        return Contents::read(path).with_context(name);
    }
    let file = std::fs::File::open(path).with_context(name)?;
    let mut image = Contents::default();
    let contents = FileContents::read(&file).with_context(name)?;
    image.files.insert(POOL.into(), contents);
    Ok(image)
}

/// What the file of a pool is called in its directory.
const POOL: &str = "pool";

/// Runs what afl-fuzz asks for until it asks for no more.
fn serve(mut host: Host, options: &RepeatOptions, image: &Contents) -> anyhow::Result<()> {
    let mut repeater = Repeater::start(options, RUNTIME)?;
    if let Opened::Ended(outcome) = repeater.open(image)? {
        bail!(
            "the target ends with {} before it looks at its input, so all inputs are the same to it",
            outcome.end
        );
    }
    // Says how many branches the target has, which decides how long the map is.
    repeater.run(b"")?;
    let coverage = repeater.coverage();
    host.greet(coverage.pm.len() + coverage.branches.len())?;
    let mut stand_in = StandIn::start()?;
    let mut input = Vec::new();
    while host.next_order(&mut input)? == Order::Run {
        if stand_in.is_killed()? {
            // Too late for the execution before.
            stand_in = StandIn::start()?;
        }
        host.say(stand_in.id())?;
        let end = repeater.run(&input)?.end;
        let coverage = repeater.coverage();
        host.cover(&[coverage.pm, coverage.branches]);
        let mut status = status(end);
        if end == End::Timeout {
            // Nobody waits for it if afl-fuzz has gone.
            if !stand_in.wait_until_killed(&host)? {
                return Ok(());
            }
        }
        if stand_in.is_killed()? {
            status = KILLED;
            stand_in = StandIn::start()?;
        }
        host.say(status)?;
        if interrupt::is_interrupted() {
            break;
        }
    }
    Ok(())
}

/// As `waitpid` gives it.
const fn status(end: End) -> i32 {
    match end {
        End::Exit(code) => (code & 0xff) << 8,
        End::Signal(signal) => signal & 0x7f,
        End::Timeout => KILLED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_those_of_the_kernel() {
        use std::os::unix::process::ExitStatusExt;
        let of = |end| std::process::ExitStatus::from_raw(status(end));
        assert_eq!(of(End::Exit(3)).code(), Some(3));
        assert_eq!(of(End::Signal(libc::SIGSEGV)).signal(), Some(libc::SIGSEGV));
        assert_eq!(of(End::Timeout).signal(), Some(libc::SIGKILL));
    }
}
