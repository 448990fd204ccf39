//! The oracle with real processes.

mod backtraces;
mod judging;
mod paths;
mod processes;
mod servers;
mod support;
