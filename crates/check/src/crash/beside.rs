//! Stores that the lint has found beside a lost one: a function that forgets to flush a record forgets it for all of its
//! fields, also for those that recovery does not read.

use powerfail_finding::{Code, Finding, NotDurable};
use powerfail_lint::{Hit, Linted};
use powerfail_model::Event;
use powerfail_trace::Body;

use super::Crashed;
use super::engine::Engine;
use crate::error::CheckError;
use crate::root_cause::{absorb, is_of_missing_flush, lacks_flush, share_function};

/// A line of a pool: the number of the pool, and the offset in it.
type PoolLine = (u32, u64);

impl Engine<'_, '_> {
    /// Adds what the lint says about a store to the finding of a crash that loses another store of the same function to the
    /// same line of the pool: one flush is for both.
    pub(super) fn join_beside(
        &self,
        linted: &Linted,
        crashed: &mut Crashed,
    ) -> Result<(), CheckError> {
        let mut lines = Vec::new();
        for finding in &crashed.findings {
            let hit = hit_of(finding, linted);
            lines.push(hit.map_or_else(|| Ok(Vec::new()), |hit| self.lines_of(hit))?);
        }
        join(&mut crashed.findings, lines);
        Ok(())
    }

    /// The lines of pools in which a hit was seen, as far as that is kept.
    fn lines_of(&self, hit: &Hit) -> Result<Vec<PoolLine>, CheckError> {
        let line_bytes = self.runner.line_bytes();
        let mut lines = Vec::new();
        for &event in &hit.more {
            let mut records = self.trace.records_from(event);
            if let Some(Body::Pm(Event::Store { at, bytes, .. })) =
                records.next_record()?.map(|record| record.body)
            {
                let end = at.offset.0 + (bytes.len() as u64).max(1);
                let first = at.offset.0 / line_bytes * line_bytes;
                let touched = (first..end).step_by(usize::try_from(line_bytes).unwrap_or(64));
                lines.extend(touched.map(|offset| (at.pool.0, offset)));
            }
        }
        Ok(lines)
    }
}

/// The hit of the lint that a finding without evidence comes from, if it says that a flush is missing.
fn hit_of<'l>(finding: &Finding, linted: &'l Linted) -> Option<&'l Hit> {
    if finding.evidence.is_some() || !lacks_flush(finding) {
        return None;
    }
    let first = finding.places.first().and_then(|place| place.event);
    let is_it = |hit: &&Hit| {
        let site = hit.sites.first();
        site.map(|site| site.event.0) == first && first.is_some() && !hit.more.is_empty()
    };
    linted.hits.iter().find(is_it)
}

/// Makes one of findings that lack the same flush. `lines` are those in which each of them was seen by the lint.
fn join(findings: &mut Vec<Finding>, lines: Vec<Vec<PoolLine>>) {
    let mut others = Vec::new();
    let mut shown = Vec::new();
    for (finding, lines) in std::mem::take(findings).into_iter().zip(lines) {
        if lines.is_empty() {
            shown.push(finding);
        } else {
            others.push((finding, lines));
        }
    }
    for (other, lines) in others {
        let mut causes = shown.iter_mut();
        match causes.find(|cause| loses(cause, &lines) && share_function(cause, &other)) {
            Some(cause) => {
                let count = cause.count;
                absorb(cause, other);
                cause.count = count;
            }
            None => findings.push(other),
        }
    }
    findings.extend(shown);
}

/// Whether a crash loses one of these lines because a flush is missing.
fn loses(finding: &Finding, lines: &[PoolLine]) -> bool {
    let failure = finding.evidence.as_ref().map(|it| &it.failure);
    let is_unflushed_read = finding.code == Code::CrossFailureRace && { finding.read.iter() }
        .any(|it| it.not_durable == Some(NotDurable::NeverFlushed));
    (is_of_missing_flush(finding.code) || is_unflushed_read)
        && failure.is_some_and(|failure| {
            let mut lost = failure.lost_lines.iter();
            failure.again.is_none() && lost.any(|it| lines.contains(&(it.pool, it.pool_offset)))
        })
}

#[cfg(test)]
mod tests {
    use powerfail_finding::{Evidence, FailurePoint, LostLine, RecoveryOutcome, Role, SourcePlace};

    use super::*;
    use crate::root_cause::tests::unsafe_read;

    fn store(function: &str, line: u32) -> Vec<SourcePlace> {
        vec![SourcePlace {
            file: Some("log.c".into()),
            line: Some(line),
            function: Some(function.into()),
            ..SourcePlace::new(Role::Store)
        }]
    }

    fn shown(code: Code, pool_offset: u64) -> Finding {
        let lost = LostLine {
            pool: 0,
            pool_offset,
            version: 0,
            stores: None,
        };
        Finding {
            count: 3,
            evidence: Some(Evidence {
                failure: FailurePoint {
                    event: 5,
                    lost_lines: vec![lost],
                    again: None,
                    filled: Vec::new(),
                },
                recovery: RecoveryOutcome::Content {
                    output: String::new(),
                },
                last_good_event: None,
                next_good_event: None,
                trace: None,
                difference: None,
                torn: false,
                choices: Vec::new(),
            }),
            ..Finding::new(code, String::new(), store("append", 8))
        }
    }

    fn codes(mut findings: Vec<Finding>, lines: Vec<Vec<PoolLine>>) -> Vec<Code> {
        join(&mut findings, lines);
        findings.iter().map(|it| it.code).collect()
    }

    #[test]
    fn a_read_of_what_is_never_flushed_is_about_the_stores_beside_it() {
        let read = |why| Finding {
            read: Some(unsafe_read(30, why)),
            ..shown(Code::CrossFailureRace, 64)
        };
        let lint = Finding::new(Code::StoreNotFlushed, String::new(), store("append", 9));
        let lines = || vec![Vec::new(), vec![(0, 64)]];
        let mut findings = vec![read(NotDurable::NeverFlushed), lint.clone()];
        join(&mut findings, lines());
        let [race] = &findings[..] else {
            panic!("{findings:#?}")
        };
        assert_eq!(race.code, Code::CrossFailureRace);
        assert_eq!(race.beside, lint.places);
        let found = codes(vec![read(NotDurable::NotFenced), lint], lines());
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn fields_of_one_record_lack_one_flush() {
        let linted = |function| {
            let code = Code::TransientData;
            Finding::new(code, String::new(), store(function, 9))
        };
        // The record that is lost is the second one; the field beside it was first seen in the first one.
        let lines = || vec![Vec::new(), vec![(0, 64), (0, 128)]];
        let missing = |offset| shown(Code::StoreNotFlushed, offset);
        let found = codes(vec![missing(128), linted("append")], lines());
        assert_eq!(found, [Code::StoreNotFlushed]);
        let both = [Code::TransientData, Code::StoreNotFlushed];
        assert_eq!(codes(vec![missing(192), linted("append")], lines()), both);
        assert_eq!(codes(vec![missing(128), linted("other")], lines()), both);
        // What is flushed too late is another mistake.
        let late = shown(Code::RecoveryRejects, 128);
        let found = codes(vec![late, linted("append")], lines());
        assert_eq!(found, [Code::TransientData, Code::RecoveryRejects]);
    }
}
