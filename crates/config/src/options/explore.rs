//! What is explored: lost and reordered lines, combinations of stores, reads of recovery.

#![expect(
    clippy::doc_markdown,
    reason = "these comments are help texts, and a terminal shows backticks as they are"
)]

use super::options;
use crate::error::SettingsError;
use crate::value::{Count, Infer, Segments, Whole};

options! {
    /// How far lost and reordered lines are explored.
    LazyArgs => LazySettings, "Lost and reordered lines" {
        /// Maximum number of power failures in a row: 2 adds one during recovery [default: 2 for check, else 1]
        [long, value_name = "N"]
        depth: Whole<1, { u32::MAX as u64 }>,
        /// Maximum number of executions of recovery
        [long, value_name = "N"]
        max_executions: Count,
        /// Explore without limits on time and on executions at a failure point
        [long, conflicts_with = "max_executions", num_args = 0, default_missing_value = "true"]
        exhaustive: bool = false,
        /// Run recovery on N random crash states at each failure point, instead of exploring them
        ///
        /// They are drawn by --seed, and none twice. Nothing lost, everything lost, and each single line lost or
        /// kept come first.
        [long, conflicts_with_all = ["max_executions", "exhaustive"], value_name = "N"]
        random: Count,
        /// Execute recovery again for each value that it can read, instead of forking it
        [long, num_args = 0, default_missing_value = "true"]
        no_fork: bool = false,
    }
}

impl LazyArgs {
    /// These options over those of the configuration file. A limit on the command line takes back that the file
    /// asks for none, and the other way round.
    pub(crate) fn settle(self, file: Self) -> Result<LazySettings, SettingsError> {
        let limitless = file.exhaustive == Some(true);
        if file.max_executions.is_some() && limitless {
            return Err(SettingsError::Limitless);
        }
        if file.random.is_some() && (limitless || file.max_executions.is_some()) {
            return Err(SettingsError::RandomAndLimit);
        }
        let mut file = file;
        if self.max_executions.is_some() || self.exhaustive == Some(true) || self.random.is_some() {
            file.max_executions = None;
            file.exhaustive = None;
            file.random = None;
        }
        Ok(self.over(file).resolve())
    }
}

options! {
    /// Which combinations of stores are tried. A segment is what happens between two moments at which stores become
    /// durable.
    EagerArgs => EagerSettings, "Combinations of stores (--strategy eager)" {
        /// Try all combinations of a segment up to this number, and a sample of more [default: 250]
        [long, value_name = "N"]
        threshold: Count,
        /// Number of combinations to try of a larger segment [default: that of --threshold]
        ///
        /// They are chosen at random, by --seed, and none twice. Nothing lost, everything lost, and each
        /// single line lost or kept come first.
        [long, value_name = "N"]
        sample: Count,
        /// Treat adjacent stores to one line, without a flush or fence between them, as one
        ///
        /// A string that is copied byte by byte is then durable as a whole or not at all. Hardware does not
        /// promise that, so bugs may be missed.
        [long, num_args = 0, default_missing_value = "true"]
        coalesce: bool = false,
        /// Only these segments, counted from 0 and without the last: 10..20, ..5, 7..
        [long, value_name = "A..B"]
        segments: Segments,
        /// Start recovery anew for each crash state
        ///
        /// By default recovery is started once, stopped before it first touches the pool, and forked there
        /// for each state, where that works. The first states are also run without the fork, and compared.
        [long, num_args = 0, default_missing_value = "true"]
        no_snapshot: bool = false,
    }
}

options! {
    /// Which reads of recovery are reported.
    RaceArgs => RaceSettings, "Races" {
        /// Report every race as an error, also those that no crash confirms
        ///
        /// These are the rules of XFDetector. Reads of bytes that may not be durable are also reported if the bytes
        /// are the same in every crash state: that is harmless now, and depends on values that happen to be equal.
        [long, num_args = 0, default_missing_value = "true"]
        strict: bool = false,
        /// Infer commit variables: words that decide what else recovery reads
        ///
        /// They are reported with the evidence for them. With --infer=use, reads of them are not races.
        [long, value_enum, value_name = "HOW", num_args = 0..=1, require_equals = true,
            default_missing_value = "propose"]
        infer: Infer,
    }
}
