//! When the power fails, and how long recoveries may take.

use std::time::Duration;

use powerfail_model::files::FileSystem;

use super::options;
use crate::value::{Byte, Count, FailurePoints, Pattern, file_systems, parse_duration};

options! {
    /// When the power fails, and how long recoveries may take.
    FailureArgs => FailureSettings, "Failures" {
        /// Events before which the power fails [default: each flush and fence]
        [long, value_enum, value_name = "WHICH"]
        failure_points: FailurePoints,
        /// Let the power fail only before this event, as reports and powerfail trace events number them
        ///
        /// 0 is before the first event, the number of events after the last one. With --failure-points, the event must
        /// be one of those. Suspicions of the lint that other crashes would confirm are not tried.
        [long, value_name = "EVENT"]
        at: u64,
        /// Failure points for each call stack: 1 is the first, 2 adds the last, more are chosen at random; 0 is all
        /// [default: 3]
        [long, value_name = "K"]
        per_stack: u64 = 3,
        /// Pattern in the workload's output that acknowledges an operation: its group must be a line of the
        /// dump from then on
        [long, value_name = "REGEX"]
        ack: Pattern,
        /// File system whose rules say what a crash leaves of ordinary files [default: linux]
        [long, value_name = "FS", value_parser = file_systems()]
        fs: FileSystem = FileSystem::Linux,
        /// Byte that never-written bytes of a fresh pool hold, such as 0xff or 165 [default: 0]
        [long, value_name = "BYTE"]
        fill: Byte,
        /// Time limit for each command of a recovery; exceeding it is a bug [default: 10s; busy: 2s]
        [long, value_name = "TIME", value_parser = parse_duration]
        timeout: Duration,
        /// Time limit for all recoveries and explanations together; the most valuable run first [default: 2m for
        /// check without --exhaustive, else none]
        [long, value_name = "TIME", value_parser = parse_duration]
        budget: Duration,
        /// Try call stacks first that are new since a run or a revision
        ///
        /// RUN is the output directory of an earlier run: new is what it has not tried. REV is a revision of git: new is
        /// what passes through a function that was changed since. Without a budget everything is tried anyway, only in
        /// another order.
        [long, value_name = "REV|RUN"]
        changed_since: String,
        /// Number of recoveries to run in parallel [default: number of processors]
        [long, value_name = "N"]
        jobs: Count = Count::clamped(
            std::thread::available_parallelism().map_or(1, usize::from) as u64
        ),
        /// Seed of all random choices [default: 0]
        [long, value_name = "N"]
        seed: u64 = 0,
    }
}
