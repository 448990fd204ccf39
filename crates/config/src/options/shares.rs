//! Resumed runs, and runs on several machines.

use super::options;
use crate::value::Partition;

options! {
    /// Resumed runs, and runs on several machines.
    ShareArgs => ShareSettings, "Shares" {
        /// Try only this share of the failure points, such as 3/8; powerfail merge joins the results of all shares
        ///
        /// Shares are disjoint, and together they are the whole run. Each needs the same trace and the same options, and
        /// an output directory of its own [default: powerfail-out.3-of-8].
        [long, value_name = "I/N"]
        partition: Partition,
        /// Resume a killed or interrupted run: recoveries whose results are in its output directory do not run again
        [long, num_args = 0, default_missing_value = "true"]
        resume: bool = false,
    }
}
