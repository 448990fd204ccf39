//! Standard output, buffered, with styles only where they can be shown.

use std::io::{self, BufWriter, Write};

use serde_json::Value;

/// Runs `write` on standard output and flushes it, so that a full disk or a closed pipe is seen.
pub(crate) fn print(
    write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, anstream::stdout().lock());
    write(&mut out)?;
    out.flush()?;
    Ok(())
}

/// One JSON value on a line of its own.
pub(crate) fn json_line(out: &mut dyn Write, value: &Value) -> io::Result<()> {
    writeln!(out, "{value}")
}

/// One JSON value over several lines, as the whole of standard output.
pub(crate) fn print_json(value: &Value) -> anyhow::Result<()> {
    print(|out| {
        serde_json::to_writer_pretty(&mut *out, value)?;
        writeln!(out)?;
        Ok(())
    })
}
