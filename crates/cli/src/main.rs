//! The `powerfail` binary: flags, configuration and glue. What it knows is in the other crates.

mod args;
mod changed;
mod check;
mod configuration;
mod consent;
mod demo;
mod demo_store;
mod doctor;
mod exit;
mod explain;
mod fuzz;
mod generated;
mod header;
mod html;
mod import;
mod init;
mod issue;
mod memory;
mod merge;
mod model;
mod output;
mod progress;
mod record;
mod replay;
mod report;
mod report_output;
mod runtime;
mod trace;
mod view;
mod vm;
mod watcher;

use std::process::ExitCode;

use clap::Parser;
use powerfail_recorder::{interrupt, limits};

use crate::args::{Cli, Command, ModelCommand, TraceCommand, VmCommand};
use crate::exit::Exit;

fn main() -> ExitCode {
    limits::survive_file_size_limit();
    // Recoveries are started by a small process of this same program.
    powerfail_oracle::serve_if_zygote();
    exit::report_panics();
    if let Some(limit) = limits::unbearable_limit() {
        exit::complain(&limit);
        return Exit::Setup.into();
    }
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
        Command::Check(args) => check::check(&args),
        Command::Lint(args) => check::lint(&args),
        Command::Crash(args) => check::crash(&args),
        Command::Races(args) => check::races(&args),
        Command::Merge(args) => merge::merge(&args),
        Command::Replay(args) => replay::replay(&args),
        Command::Report(args) => report::report(&args),
        Command::View(args) => view::view(&args),
        Command::Fuzz(args) => fuzz::fuzz(args),
        Command::Demo(args) => demo::demo(&args),
        Command::DemoStore(args) => demo_store::run(&args),
        Command::Record(args) => record::record(&args),
        Command::Model(ModelCommand::Check(args)) => model::check(&args),
        Command::Model(ModelCommand::Show(args)) => model::show(&args),
        Command::Trace(TraceCommand::Info(args)) => trace::info(&args),
        Command::Trace(TraceCommand::Events(args)) => trace::events(&args),
        Command::Trace(TraceCommand::States(args)) => trace::states(&args),
        Command::Trace(TraceCommand::Check(args)) => trace::check(&args),
        Command::Trace(TraceCommand::Import(args)) => import::import(&args),
        Command::Trace(TraceCommand::Export(args)) => import::export(&args),
        Command::Vm(VmCommand::Check(args)) => vm::check(&args),
        Command::Vm(VmCommand::Recover(args)) => vm::recover(&args),
        Command::Vm(VmCommand::Shell(args)) => vm::shell(&args),
        Command::Explain(args) => explain::explain(&args),
        Command::Init(args) => init::init(&args),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Header(args) => header::header(&args),
        Command::Completions(args) => generated::completions(&args),
        Command::Man(args) => generated::man(&args),
    }
}
