//! The oracle with real processes.

mod backtraces;
mod exploring;
mod judging;
mod noting;
mod observing;
mod paths;
mod processes;
mod servers;
mod snapshots;
mod support;
