//! The oracle with real processes.

mod backtraces;
mod exploring;
mod judging;
mod paths;
mod processes;
mod servers;
mod snapshots;
mod support;
