//! How far the search for a cause looks: not into the creation of a pool, and not out of a region of interest. A crash
//! there is another one, and was not asked for.

use powerfail_trace::{Annotation, Body, MarkKind};

fn annotation(body: &Body<'_>) -> Option<Annotation> {
    match body {
        Body::Mark(mark) => match mark.kind {
            MarkKind::Annotation(annotation) => Some(annotation),
            _ => None,
        },
        _ => None,
    }
}

/// Whether what came before this record is not looked at.
pub(crate) fn begins(body: &Body<'_>) -> bool {
    matches!(
        annotation(body),
        Some(Annotation::CreationEnd | Annotation::InterestBegin)
    )
}

/// Whether what comes after this record is not looked at.
pub(crate) fn ends(body: &Body<'_>) -> bool {
    matches!(
        annotation(body),
        Some(Annotation::CreationBegin | Annotation::InterestEnd | Annotation::Complete)
    )
}
