//! Enumeration of crash states: one version for each open line.

use crate::ids::LineId;

/// One version chosen for each open line; closed lines hold their newest content.
///
/// The default state is the newest content of every line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CrashState {
    /// The choices, by pool and offset of the line.
    pub versions: Vec<(LineId, usize)>,
}

/// Counts through the combinations of versions like an odometer, the first line fastest.
#[derive(Clone, Debug)]
pub struct CrashStates {
    lines: Vec<(LineId, Vec<usize>)>,
    /// Which of its versions each line shows next; `None` when all combinations were shown.
    wheels: Option<Vec<usize>>,
}

impl CrashStates {
    /// All combinations of the given versions of each line.
    pub(crate) fn new(lines: Vec<(LineId, Vec<usize>)>) -> Self {
        let wheels = Some(vec![0; lines.len()]);
        Self { lines, wheels }
    }
}

impl Iterator for CrashStates {
    type Item = CrashState;

    fn next(&mut self) -> Option<CrashState> {
        let wheels = self.wheels.as_mut()?;
        let versions = self
            .lines
            .iter()
            .zip(wheels.iter())
            .map(|((id, versions), &wheel)| (*id, versions[wheel]))
            .collect();
        let mut turned = false;
        for (wheel, (_, versions)) in wheels.iter_mut().zip(&self.lines) {
            *wheel += 1;
            if *wheel < versions.len() {
                turned = true;
                break;
            }
            *wheel = 0;
        }
        if !turned {
            self.wheels = None;
        }
        Some(CrashState { versions })
    }
}
