//! Lazy executions, with a stand-in for the runtime that a recovery tells where it chooses.
