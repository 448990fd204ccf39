//! How much of a file is explored before powerfail gives up. Limits are about memory: a file of a
//! few lines can have more states than any machine holds.

use powerfail_model::program::Program;

/// The most threads of a program. Interleavings make more of them hopeless anyway.
pub const THREADS_MAX: usize = 16;

/// The most different states that are listed at one position of a trace.
pub const POSITION_STATE_LIMIT: usize = 100_000;

/// What the states of one file may take, about.
const MEMORY_LIMIT_BYTES: usize = 1 << 30;

/// The most states of a program, however small they are.
const PROGRAM_STATE_LIMIT: usize = 10_000_000;

/// What a set spends on each of its members, about, beside the values.
const MEMBER_BYTES: usize = 64;

/// Why the model gives no answer: a limit of this tool, and nothing that is wrong with the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not decided: {what} has more than {limit} states, the most that powerfail explores of it")]
pub struct Undecided {
    /// What has too many states.
    pub what: String,
    /// How many are explored.
    pub limit: usize,
}

/// How many states of a program the explorer may visit.
pub(crate) fn program_state_limit(program: &Program) -> usize {
    // The explorer packs a state into words of 4 bytes: three for each thread, one for each
    // register, two for each variable.
    let registers: usize = program.threads.iter().map(|code| code.register_count).sum();
    let words = 3 * program.threads.len() + registers + 2 * program.lines.len();
    (MEMORY_LIMIT_BYTES / (4 * words + MEMBER_BYTES)).min(PROGRAM_STATE_LIMIT)
}

/// How many states of `cells` words all positions of a trace may have together, in one of the two
/// domains.
pub(crate) fn trace_state_limit(cells: usize) -> usize {
    MEMORY_LIMIT_BYTES / 2 / (8 * cells + MEMBER_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use powerfail_model::program::ThreadCode;

    #[test]
    fn the_state_limit_is_a_bound_of_memory() {
        for (threads, registers, variables) in [(1, 0, 1), (4, 14, 6), (16, 63, 64)] {
            let thread = ThreadCode {
                ops: Vec::new(),
                register_count: registers,
            };
            let program = Program {
                lines: (0..variables).collect(),
                initial: vec![0; variables],
                threads: vec![thread; threads],
            };
            let state_bytes = 4 * (3 * threads + threads * registers + 2 * variables) + 64;
            let limit = program_state_limit(&program);
            assert!(limit * state_bytes <= 1 << 30, "{threads} threads");
            assert!(limit > 100_000, "{threads} threads: {limit}");
        }
    }
}
