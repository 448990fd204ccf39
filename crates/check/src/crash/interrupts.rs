//! Failure points in interrupt handlers of a guest's kernel.
//!
//! The handler of a timer executes locked operations wherever the timer happens to expire, for instance between two stores
//! of one record. Such a fence is part of the recording, but a failure point before it is a matter of chance: the next
//! recording of the same workload has others. So prefix crashes leave it out, and the report counts it. Handlers that flush
//! persistent memory keep their failure points.

use std::collections::BTreeMap;

use powerfail_explore::{FailurePoint, FailurePointsByStack, Trigger};
use powerfail_finding::StackFrame;
use powerfail_trace::StackId;

use super::words::points_are;
use crate::places::Places;

/// Remembers which call stacks are those of interrupt handlers.
#[derive(Debug, Default)]
pub(super) struct InterruptHandlers {
    known: BTreeMap<StackId, bool>,
}

impl InterruptHandlers {
    /// Whether a failure point is only a fence in an interrupt handler.
    pub(super) fn have(&mut self, point: &FailurePoint, places: &mut Places<'_>) -> bool {
        point.trigger == Trigger::Fence
            && *self
                .known
                .entry(point.stack)
                .or_insert_with(|| is_handler(&places.stack(point.stack)))
    }

    /// Leaves their failure points out, and says how many there were.
    pub(super) fn leave_out(
        &mut self,
        points: &mut FailurePointsByStack,
        places: &mut Places<'_>,
    ) -> Option<String> {
        let before = points.point_count();
        points.retain(|point| !self.have(point, places));
        let left_out = before - points.point_count();
        (left_out > 0).then(|| {
            format!(
                "{} not tried: a fence in an interrupt handler, which is executed at a random moment",
                points_are(left_out)
            )
        })
    }
}

/// Whether code runs because of an interrupt: so Linux names the entries on x86-64.
fn is_handler(frames: &[StackFrame]) -> bool {
    frames.iter().any(|frame| {
        let function = frame.function.as_deref().unwrap_or_default();
        let name = function.strip_prefix("asm_").unwrap_or(function);
        name.starts_with("sysvec_") || name == "common_interrupt" || name == "exc_nmi"
    })
}

#[cfg(test)]
mod unit {
    use super::*;

    fn stack(functions: &[&str]) -> Vec<StackFrame> {
        let frame = |name: &&str| StackFrame {
            function: Some((*name).to_owned()),
            file: None,
            line: None,
            module: None,
            offset: 0,
            trusted: false,
        };
        functions.iter().map(frame).collect()
    }

    #[test]
    fn handlers_are_known_by_the_entries_of_linux() {
        assert!(is_handler(&stack(&[
            "rcu_core",
            "handle_softirqs",
            "sysvec_apic_timer_interrupt"
        ])));
        assert!(is_handler(&stack(&[
            "handle_irq_event",
            "common_interrupt",
            "asm_common_interrupt"
        ])));
        assert!(is_handler(&stack(&["asm_exc_nmi"])));
        assert!(!is_handler(&stack(&[
            "pmem_do_write",
            "submit_bio",
            "kjournald2",
            "kthread"
        ])));
        assert!(!is_handler(&[]));
    }
}
