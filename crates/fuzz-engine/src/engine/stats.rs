//! The statistics of an engine.

/// The statistics of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EngineStats {
    /// Runs, including those for calibration.
    pub executions: u64,
    /// Distinct PM paths, by the buckets of all counters, of all engines that share a set of paths.
    pub pm_paths: usize,
    /// Stable PM path locations that were reached.
    pub pm_locations: usize,
    /// Stable branches that were taken.
    pub branches: usize,
    /// Test cases that are mutated.
    pub corpus: usize,
    /// Favoured test cases: they reach everything together, and each is the cheapest at a location.
    pub favoured: usize,
    /// Test cases that wait to be run for the first time.
    pub pending: usize,
    /// Images that the engine knows.
    pub images: usize,
    /// Share of stable locations in all PM path locations that were reached.
    pub stability: f64,
    /// Locations of both maps that are ignored because they are unstable.
    pub unstable: usize,
    /// Runs that ended by a signal.
    pub signals: u64,
    /// Runs that timed out.
    pub timeouts: u64,
    /// The number of the execution with the last discovery.
    pub last_discovery: u64,
    /// Steps.
    pub steps: u64,
}
