//! The zygote: a small process that lives where recovery is to run and starts it on request.

mod capture;
mod cover;
mod isolate;
mod modules;
mod serve;
mod session;
mod spawn;
mod stack;
mod stages;
mod system;
mod tracer;

pub(crate) use serve::ZYGOTE_NAME;
pub use serve::serve_if_zygote;
