//! Whether a campaign has checked anything, and why it has not.

use std::sync::Mutex;

use powerfail_fuzz_store::Unchecked;

use crate::shared_state::lock;

/// Whether anything was checked. Can be shared between threads.
#[derive(Debug)]
pub(crate) struct Checked(Mutex<State>);

#[derive(Clone, Copy, Debug)]
struct State {
    /// In this run of the campaign.
    is_checked: bool,
    /// Or not: nothing is known about recovery.
    is_perhaps_checked: bool,
    was_checked: bool,
    reason: Option<Unchecked>,
}

impl Checked {
    /// `was_checked` says that earlier runs of the campaign have checked something.
    pub(crate) fn new(was_checked: bool) -> Self {
        Self(Mutex::new(State {
            is_checked: false,
            is_perhaps_checked: false,
            was_checked,
            reason: None,
        }))
    }

    /// Something was checked.
    pub(crate) fn is(&self) {
        lock(&self.0).is_checked = true;
    }

    /// Something was checked, unless recovery cannot fail.
    pub(crate) fn is_perhaps(&self) {
        lock(&self.0).is_perhaps_checked = true;
    }

    /// A test case was not checked.
    pub(crate) fn is_not(&self, reason: Unchecked) {
        let mut state = lock(&self.0);
        state.reason = state.reason.max(Some(reason));
    }

    /// Whether this run of the campaign has checked something.
    pub(crate) fn is_known(&self) -> bool {
        lock(&self.0).is_checked
    }

    /// Why nothing was checked, if that is so.
    pub(crate) fn reason(&self) -> Option<Unchecked> {
        let state = *lock(&self.0);
        match state.reason {
            _ if state.is_checked => None,
            // What was tried now could not be judged, and neither could what was tried before.
            Some(reason) if reason > Unchecked::NoFailurePoint => Some(reason),
            _ if state.was_checked || state.is_perhaps_checked => None,
            reason => Some(reason.unwrap_or(Unchecked::NoTime)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_reason_counts_until_something_is_checked() {
        let checked = Checked::new(false);
        assert_eq!(checked.reason(), Some(Unchecked::NoTime));
        for reason in [Unchecked::RecoveryFails, Unchecked::NoPool] {
            checked.is_not(reason);
            assert_eq!(checked.reason(), Some(Unchecked::RecoveryFails));
        }
        checked.is();
        assert_eq!(checked.reason(), None);
    }

    #[test]
    fn a_check_counts_if_it_is_not_known_that_recovery_cannot_fail() {
        let checked = Checked::new(false);
        checked.is_perhaps();
        assert_eq!((checked.reason(), checked.is_known()), (None, false));
        checked.is_not(Unchecked::RecoveryCannotFail);
        checked.is_perhaps();
        assert_eq!(checked.reason(), Some(Unchecked::RecoveryCannotFail));
        checked.is();
        assert_eq!((checked.reason(), checked.is_known()), (None, true));
    }

    #[test]
    fn what_earlier_runs_have_checked_counts_unless_recovery_is_to_blame() {
        let checked = Checked::new(true);
        assert_eq!(checked.reason(), None);
        checked.is_not(Unchecked::NoPool);
        assert_eq!(checked.reason(), None);
        checked.is_not(Unchecked::PoolNotOpened);
        assert_eq!(checked.reason(), Some(Unchecked::PoolNotOpened));
    }
}
