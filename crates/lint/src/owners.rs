//! Whose business a record is: the user's, or that of a trusted library.

use powerfail_model::{Event, StoreKind};
use powerfail_trace::{Body, Record, Trace};

use crate::attribution::{Attribution, Symbols};
use crate::trust::Trust;

/// Knows, for each record of a trace, whether it is a trusted library's own business. Each call stack is worked
/// out once.
pub struct Owners<'t>(Attribution<'t>);

impl<'t> Owners<'t> {
    /// For a trace.
    pub fn new(trace: &'t Trace, trust: &Trust, symbols: &'t mut dyn Symbols) -> Self {
        Self(Attribution::new(trace, trust, symbols))
    }

    /// Whether a record is a trusted library's own business. Marks of calls are the user's, who calls.
    pub fn is_librarys(&mut self, record: &Record<'_>) -> bool {
        let Body::Pm(event) = &record.body else {
            return false;
        };
        let user = match event {
            Event::Store { kind, .. } if *kind != StoreKind::Locked => {
                self.0.of_store(record.stack)
            }
            Event::Resize { .. } => self.0.of_store(record.stack),
            _ => self.0.of_order(record.stack),
        };
        !user.is_attributed()
    }
}
