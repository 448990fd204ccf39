//! Failure points and plans of small traces, against naive readings of their definitions.

mod change_log;
mod common;
mod creation;
<<<<<<< HEAD
mod eager;
=======
mod history;
>>>>>>> wt-runtime
mod naive;
mod plan;
