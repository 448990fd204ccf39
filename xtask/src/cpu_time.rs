//! The time that processors have spent: the figure to compare where other things run as well.

use std::time::Duration;

/// What one entry of `/proc` says: the process itself, and those of its children that have ended, with theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuTime {
    pub(crate) own: Duration,
    pub(crate) children: Duration,
}

impl CpuTime {
    /// The time of a process, by its number or as `self`. It is zero if the process has been waited for.
    pub(crate) fn of(process: &str) -> Self {
        let status = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        Self::of_status(&status).unwrap_or_default()
    }

    pub(crate) fn total(self) -> Duration {
        self.own + self.children
    }

    /// The times in `/proc/PID/stat`, which are in hundredths of a second.
    fn of_status(status: &str) -> Option<Self> {
        // The name of the program, which may contain anything, ends with the last bracket. Fields are counted from one,
        // and the third follows.
        let (_, fields) = status.rsplit_once(')')?;
        let mut times = fields.split_whitespace().skip(14 - 3);
        let mut next = || times.next()?.parse::<u64>().ok();
        let mut next_pair = || Some(Duration::from_millis(10 * (next()? + next()?)));
        Some(Self {
            own: next_pair()?,
            children: next_pair()?,
        })
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn the_times_of_children_follow_those_of_the_process() {
        let status = "7 (a) b) S 4 5 6 7 8 9 10 11 12 13 14 15 160 17 18 19 20";
        let time = CpuTime {
            own: Duration::from_millis(290),
            children: Duration::from_millis(1770),
        };
        assert_eq!(CpuTime::of_status(status), Some(time));
        assert_eq!(CpuTime::of_status("7 (a"), None);
    }
}
