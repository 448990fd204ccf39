//! Where an engine stands.

/// Numbers of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EngineStats {
    /// Runs, those of calibration included.
    pub executions: u64,
    /// Distinct PM paths: buckets of all counters together. Of all engines that share a set of paths.
    pub pm_paths: usize,
    /// Stable PM path locations that were reached.
    pub pm_locations: usize,
    /// Stable branches that were taken.
    pub branches: usize,
    /// Test cases that are mutated.
    pub corpus: usize,
    /// Those of them that together reach everything, each the cheapest at one location.
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
    /// Runs that were killed.
    pub timeouts: u64,
    /// Number of the execution that found something last.
    pub last_discovery: u64,
    /// Steps.
    pub steps: u64,
}
