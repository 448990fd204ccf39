//! The programs to explore, and their sizes.

/// Indexes, each called with `insert N` and `recover`.
pub(crate) const INDEXES: [&str; 4] = ["hash_table", "extendible_hash", "tree", "radix_tree"];
/// The one that is also explored with a pool that exists before the run: making it is no part of what is counted then.
pub(crate) const WITH_POOL: &str = "hash_table";
/// The number of keys inserted into each of them.
pub(crate) const INSERTS: [u32; 5] = [2, 4, 8, 16, 32];
/// Lengths of the array with a commit store.
pub(crate) const ARRAY_LENGTHS: [u32; 10] = [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];

/// A figure of the Jaaru paper.
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) program: &'static str,
    pub(crate) workload: &'static str,
    pub(crate) recover: &'static str,
    pub(crate) reads: &'static str,
    /// The number of executions that the paper counts, over all failure points.
    pub(crate) executions: u32,
}

pub(crate) const FIGURES: [Figure; 4] = [
    Figure {
        name: "figures 2 and 3",
        program: "two_variables",
        workload: "store",
        recover: "recover",
        reads: "`x`",
        executions: 5,
    },
    Figure {
        name: "figures 2 and 3",
        program: "two_variables",
        workload: "store",
        recover: "recover-both",
        reads: "`x`, then `y`",
        executions: 8,
    },
    Figure {
        name: "figure 4",
        program: "commit_store",
        workload: "add",
        recover: "read",
        reads: "the data if there is a child",
        executions: 4,
    },
    Figure {
        name: "figure 4",
        program: "commit_store",
        workload: "add",
        recover: "read-data",
        reads: "the data in any case",
        executions: 4,
    },
];
