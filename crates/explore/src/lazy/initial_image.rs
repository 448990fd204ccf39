//! The pools of a trace before its first event.

use powerfail_model::{Image, Place, SparseImage};
use powerfail_trace::Trace;

/// The initial images of a trace. Reads like the crash images of `powerfail-image` with the same fill byte: a fresh
/// pool, one that was all zero when it was mapped, holds the byte where nothing was stored.
pub fn initial_image(trace: &Trace, fill: Option<u8>) -> powerfail_trace::Result<SparseImage> {
    let mut image = SparseImage::filled(fill.unwrap_or(0));
    let mut runs = trace.initial_images();
    while let Some(run) = runs.next_run()? {
        image.zero(run.pool);
        image.write(Place::new(run.pool, run.offset), run.bytes);
    }
    Ok(image)
}
