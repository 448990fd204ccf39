//! The oracle with real processes.

mod backtraces;
mod exploring;
mod judging;
mod observing;
mod paths;
mod processes;
mod servers;
mod snapshots;
mod support;
