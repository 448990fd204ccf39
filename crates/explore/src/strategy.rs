//! What a strategy is.

use powerfail_model::{CrashState, Frontier, Image, LineId, OpenLine, Rules};

/// A frontier, whatever holds its newest bytes.
pub trait FrontierView {
    /// The parameters of the model.
    fn rules(&self) -> Rules;
    /// A line, if it is open.
    fn open_line(&self, id: LineId) -> Option<&OpenLine>;
    /// The open lines by pool and offset. Costs all of them.
    fn open_lines_sorted(&self) -> Vec<&OpenLine>;
    /// The decimal logarithm of the number of crash states. Costs nearly nothing.
    fn crash_state_count_log10(&self) -> f64;
}

impl<I: Image> FrontierView for Frontier<I> {
    fn rules(&self) -> Rules {
        self.rules()
    }

    fn open_line(&self, id: LineId) -> Option<&OpenLine> {
        self.open_line(id)
    }

    fn open_lines_sorted(&self) -> Vec<&OpenLine> {
        self.open_lines_sorted()
    }

    fn crash_state_count_log10(&self) -> f64 {
        self.crash_state_count_log10()
    }
}

/// Given the frontier at a failure point: which crash states, in which order.
///
/// A [`CrashState`] names the lines that do not hold their newest content; a line that it does not
/// name does. All states that a strategy gives are possible: each version lies within its line's
/// frontier.
pub trait Strategy {
    /// What it is called, on the command line and in reports.
    fn name(&self) -> &'static str;

    /// Whether it asks for the frontier at all. Without it a pass only needs the newest bytes.
    fn needs_frontier(&self) -> bool {
        true
    }

    /// The crash states to try at the present position of `frontier`. `None` where there is no
    /// frontier, which only those that need none accept.
    fn crash_states<'f>(
        &'f self,
        frontier: Option<&'f dyn FrontierView>,
    ) -> Box<dyn Iterator<Item = CrashState> + 'f>;
}
