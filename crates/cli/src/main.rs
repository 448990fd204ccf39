//! The `powerfail` binary: flags, configuration and glue. What it knows is in the other crates.

mod args;
mod exit;
mod explain;
mod generated;
mod import;
mod memory;
mod model;
mod output;
mod progress;
mod record;
mod trace;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command, ModelCommand, TraceCommand};
use crate::exit::Exit;

fn main() -> ExitCode {
    exit::report_panics();
    let cli = Cli::parse();
    cli.color.write_global();
    let outcome = std::panic::catch_unwind(|| run(cli.command));
    let exit = match outcome {
        Ok(Ok(exit)) => exit,
        Ok(Err(error)) => exit::explain(&error),
        Err(_) => Exit::Internal,
    };
    exit.into()
}

fn run(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Record(args) => record::record(&args),
        Command::Model(ModelCommand::Check(args)) => model::check(&args),
        Command::Model(ModelCommand::Show(args)) => model::show(&args),
        Command::Trace(TraceCommand::Info(args)) => trace::info(&args),
        Command::Trace(TraceCommand::Events(args)) => trace::events(&args),
        Command::Trace(TraceCommand::States(args)) => trace::states(&args),
        Command::Trace(TraceCommand::Check(args)) => trace::check(&args),
        Command::Trace(TraceCommand::Import(args)) => import::import(&args),
        Command::Explain(args) => explain::explain(&args),
        Command::Completions(args) => generated::completions(&args),
        Command::Man(args) => generated::man(&args),
    }
}
