//! Which test case comes next: corpus, priorities by PM paths, mutators. LibAFL does the work; nothing of
//! it is visible outside of this crate.
