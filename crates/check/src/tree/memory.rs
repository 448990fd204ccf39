//! What was wrong after the crashes so far. Recovery is a function of what it sees, so that it need not run twice on the same.

use std::collections::{BTreeMap, HashMap};

use powerfail_image::{NodeSet, TreeDigest, TreeImage};

use super::engine::Judged;
use crate::symptom::Symptom;

/// How many sets of files that recovery opens are kept: what opens others is compared as a whole.
const READ_SETS_MAX: usize = 32;

/// A tree that a crash has left, and how many operations had ended then.
pub(super) struct Seen {
    pub(super) image: TreeImage,
    pub(super) ended: usize,
}

/// Trees on which recovery ran, as far as it looked at them, and what was wrong. A tree that differs only in the bytes of files that
/// recovery did not open makes it do the same.
#[derive(Default)]
pub(super) struct Judgements(BTreeMap<NodeSet, HashMap<(TreeDigest, usize), Option<Symptom>>>);

impl Judgements {
    /// What is wrong after a crash, if recovery ran on a tree that looks the same to it.
    pub(super) fn of(&self, seen: &Seen) -> Judged {
        self.0.iter().find_map(|(opened, judged)| {
            let digest = seen.image.digest_as_read(opened);
            judged.get(&(digest, seen.ended)).cloned()
        })
    }

    /// Remembers what was wrong where recovery opened these files.
    pub(super) fn add(&mut self, seen: &Seen, opened: &NodeSet, symptom: Option<&Symptom>) {
        let is_kept = self.0.len() < READ_SETS_MAX || self.0.contains_key(opened);
        let opened = if is_kept {
            opened
        } else {
            &NodeSet::Everything
        };
        let digest = seen.image.digest_as_read(opened);
        let judged = self.0.entry(opened.clone()).or_default();
        judged.insert((digest, seen.ended), symptom.cloned());
    }
}
