//! The strategy `prefix`: all stores so far are durable, in program order.

use powerfail_model::CrashState;

use crate::strategy::{FrontierView, Strategy};

/// One state per failure point: everything newest. Finds what is wrong in the order of the program
/// itself, whatever the hardware does; needs no frontier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prefix;

impl Strategy for Prefix {
    fn name(&self) -> &'static str {
        "prefix"
    }

    fn needs_frontier(&self) -> bool {
        false
    }

    fn crash_states<'f>(
        &'f self,
        _frontier: Option<&'f dyn FrontierView>,
    ) -> Box<dyn Iterator<Item = CrashState> + 'f> {
        Box::new(std::iter::once(CrashState {
            versions: Vec::new(),
        }))
    }
}
