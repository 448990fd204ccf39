//! The zygote: a small process that is isolated as recovery must be, and starts the commands of a plan there on
//! request.

mod branches;
mod capture;
mod denial_log;
mod ended_calls;
mod file_access;
mod hang_watch;
mod isolate;
mod landlock_rules;
mod launcher;
mod lazy_tree;
mod modules;
mod network;
mod plan_runner;
mod pool_mounts;
mod privileges;
mod processes;
mod run;
pub(crate) mod runtime;
mod runtime_socket;
mod serve;
mod siblings;
mod signal_filter;
mod snapshot;
mod snapshots;
mod spawn;
mod stack;
mod step;
mod system;
mod system_v;
mod tracer;
mod usage;
mod use_log;

pub(crate) use serve::ZYGOTE_NAME;
pub use serve::{serve_if_zygote, serve_if_zygote_with_expiry};
