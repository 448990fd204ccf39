//! The oracle with real processes.

mod backtraces;
mod confined;
mod exploring;
mod hangs;
mod hostile;
mod judging;
mod noting;
mod observing;
mod paths;
mod processes;
mod servers;
mod snapshots;
mod support;
