//! When the threads of a campaign execute nothing any more: it stops, or as many executions are made as it may make.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Allows executions until the campaign stops. Shared by all threads.
#[derive(Debug, Default)]
pub(crate) struct ExecutionLimit {
    stops: AtomicBool,
    allowed: AtomicU64,
    max: Option<u64>,
}

impl ExecutionLimit {
    /// At most `max` executions, if that is given.
    pub(crate) fn at_most(max: Option<u64>) -> Self {
        Self {
            max,
            ..Self::default()
        }
    }

    /// Whether one more execution may be made. If so, it counts.
    pub(crate) fn allows_one(&self) -> bool {
        if self.stops() {
            return false;
        }
        let before = self.allowed.fetch_add(1, Ordering::Relaxed);
        self.max.is_none_or(|max| before < max)
    }

    /// Whether all executions were allowed that may be made.
    pub(crate) fn is_spent(&self) -> bool {
        let allowed = self.allowed.load(Ordering::Relaxed);
        self.max.is_some_and(|max| allowed >= max)
    }

    /// Ends everything.
    pub(crate) fn stop(&self) {
        self.stops.store(true, Ordering::Relaxed);
    }

    /// Whether all threads have to stop.
    pub(crate) fn stops(&self) -> bool {
        self.stops.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_executions_are_allowed_as_were_asked_for() {
        let limit = ExecutionLimit::at_most(Some(1000));
        let count = || (0..600).filter(|_| limit.allows_one()).count();
        let made = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
            threads
                .into_iter()
                .map(|it| it.join().unwrap())
                .sum::<usize>()
        });
        assert_eq!(made, 1000);
        assert!(limit.is_spent() && !limit.stops());
        let unlimited = ExecutionLimit::at_most(None);
        assert!((0..5000).all(|_| unlimited.allows_one()));
        assert!(!unlimited.is_spent());
        unlimited.stop();
        assert!(!unlimited.allows_one());
    }
}
