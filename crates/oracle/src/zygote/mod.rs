//! The zygote: a small process that lives where recovery is to run and starts it on request.

mod branches;
mod capture;
mod conversation;
mod cover;
mod isolate;
mod kit;
mod modules;
mod run;
mod runtime;
mod serve;
mod session;
mod snapshots;
mod spawn;
mod stack;
mod stages;
mod system;
mod template;
mod tracer;
mod tree;

pub(crate) use serve::ZYGOTE_NAME;
pub use serve::serve_if_zygote;
