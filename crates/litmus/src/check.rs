//! Comparing what the model gives with what a file expects, in both directions.

use powerfail_model::files::FileSystem;
use powerfail_model::program::NonTemporal;
use powerfail_model::{BigUint, Domain};

use crate::trace_file::{Counts, CountsExpectation, TraceExpectation};
use crate::{FilesFile, FormatError, LitmusFile, ProgramFile, States, TraceFile, Trees, Undecided};

/// The result of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Where model and file differ; empty if the file passes.
    pub mismatches: Vec<Mismatch>,
}

impl Verdict {
    /// Whether model and file agree.
    pub fn passed(&self) -> bool {
        self.mismatches.is_empty()
    }
}

/// One set or number in which model and file differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// A set.
    States {
        /// The field of the file.
        field: String,
        /// Expected, but the model does not allow them: missed bugs.
        missing: States,
        /// Not expected, but the model allows them: false alarms.
        extra: States,
    },
    /// A set of trees.
    Trees {
        /// The field of the file.
        field: String,
        /// Expected, but the model does not allow them: missed bugs.
        missing: Trees,
        /// Not expected, but the model allows them: false alarms.
        extra: Trees,
    },
    /// A number.
    Count {
        /// The field of the file.
        field: String,
        /// The file's.
        expected: String,
        /// The model's.
        found: String,
    },
}

/// Why there is no verdict on a file. Never a finding.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LitmusError {
    /// The file does not list what it should, or not well.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The file is too large for powerfail.
    #[error(transparent)]
    Undecided(#[from] Undecided),
}

/// Compares the model with what `file` expects.
pub fn check(file: &LitmusFile) -> Result<Verdict, LitmusError> {
    let mismatches = match file {
        LitmusFile::Program(file) => check_program(file)?,
        LitmusFile::Trace(file) => check_trace(file)?,
        LitmusFile::Files(file) => check_files(file)?,
    };
    Ok(Verdict { mismatches })
}

fn check_program(file: &ProgramFile) -> Result<Vec<Mismatch>, LitmusError> {
    let expected = file.expected()?;
    let found = file.states(NonTemporal::Weak)?;
    let mut mismatches = Vec::new();
    mismatches.extend(compare("allowed", &expected.allowed, &found.allowed));
    mismatches.extend(compare(
        "allowed_eadr",
        &expected.allowed_eadr,
        &found.allowed_eadr,
    ));
    mismatches.extend(compare("outcomes", &expected.outcomes, &found.outcomes));
    mismatches.extend(compare("final_mem", &expected.final_mem, &found.final_mem));
    for variant in &expected.variants {
        let found = file.states(variant.variant.non_temporal)?;
        let mut compare_variant = |name: &str, expected: &Option<States>, found: &States| {
            if let Some(expected) = expected {
                let field = format!("nt_variants.{}.{name}", variant.variant.name);
                mismatches.extend(compare(&field, expected, found));
            }
        };
        compare_variant("allowed", &variant.allowed, &found.allowed);
        compare_variant("allowed_eadr", &variant.allowed_eadr, &found.allowed_eadr);
        compare_variant("outcomes", &variant.outcomes, &found.outcomes);
        compare_variant("final_mem", &variant.final_mem, &found.final_mem);
    }
    Ok(mismatches)
}

fn check_trace(file: &TraceFile) -> Result<Vec<Mismatch>, LitmusError> {
    let mut mismatches = Vec::new();
    match file.expected()? {
        TraceExpectation::States { adr, eadr } => {
            let domains = [
                ("states_at", Domain::Adr, adr),
                ("states_at_eadr", Domain::Eadr, eadr),
            ];
            for (name, domain, expected) in domains {
                let found = file.states(domain)?;
                for (at, (expected, found)) in expected.iter().zip(&found.positions).enumerate() {
                    // A file that lists states names the cells that they consist of.
                    let Some(found) = &found.states else { continue };
                    mismatches.extend(compare(&format!("{name}.{at}"), expected, found));
                }
            }
        }
        TraceExpectation::Counts(expected) => {
            let found = file.counts(Domain::Adr);
            mismatches.extend(compare_counts(expected, &found));
        }
    }
    Ok(mismatches)
}

fn check_files(file: &FilesFile) -> Result<Vec<Mismatch>, LitmusError> {
    let expected = file.expected()?;
    let mut mismatches = Vec::new();
    let mut compare = |file_system: FileSystem, expected: &Trees| {
        let found = file.trees(file_system)?;
        if *expected != found {
            mismatches.push(Mismatch::Trees {
                field: format!("trees.{file_system}"),
                missing: expected.difference(&found).cloned().collect(),
                extra: found.difference(expected).cloned().collect(),
            });
        }
        Ok::<_, LitmusError>(())
    };
    for (file_system, trees) in expected {
        compare(*file_system, trees)?;
    }
    let real: Vec<&Trees> = FileSystem::REAL
        .iter()
        .filter_map(|real| expected.get(real))
        .collect();
    if real.len() == FileSystem::REAL.len() {
        let union = real.into_iter().flatten().cloned().collect();
        compare(FileSystem::Linux, &union)?;
    }
    Ok(mismatches)
}

fn compare_counts(expected: &CountsExpectation, found: &[Counts]) -> Vec<Mismatch> {
    let mut mismatches = Vec::new();
    let mut compare = |field: String, expected: &BigUint, found: &BigUint| {
        if expected != found {
            let (expected, found) = (expected.to_string(), found.to_string());
            mismatches.push(Mismatch::Count {
                field,
                expected,
                found,
            });
        }
    };
    for (at, (expected, found)) in expected.counts.iter().zip(found).enumerate() {
        let combinations = format!("counts_at.{at}.prefix_combinations");
        compare(combinations, &expected.combinations, &found.combinations);
        compare(
            format!("counts_at.{at}.distinct_images"),
            &expected.distinct,
            &found.distinct,
        );
    }
    for (index, (at, combinations)) in expected.segments.iter().enumerate() {
        let found = &found[*at as usize].combinations;
        compare(
            format!("segments[{index}].combinations"),
            combinations,
            found,
        );
    }
    mismatches
}

fn compare(field: &str, expected: &States, found: &States) -> Option<Mismatch> {
    (expected != found).then(|| Mismatch::States {
        field: field.to_owned(),
        missing: expected.difference(found).cloned().collect(),
        extra: found.difference(expected).cloned().collect(),
    })
}
