//! Standard output, buffered, with styles only where they can be shown.

use std::io::{self, BufWriter, Write};

use serde_json::Value;

/// Runs `write` on standard output and flushes it, so that a full disk is seen.
///
/// A closed pipe is not an error: the reader has seen enough, as in `powerfail trace events FILE | head`.
/// The rest is not written, and the command continues to its own verdict.
pub(crate) fn print(
    write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let choice = anstream::AutoStream::choice(&io::stdout());
    // The buffer is below the stripping of styles, which writes in small pieces.
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let written = match choice {
        anstream::ColorChoice::Never => {
            write(&mut anstream::StripStream::new(&mut out as &mut dyn Write))
        }
        _ => write(&mut out),
    };
    let written = written.and_then(|()| Ok(out.flush()?));
    match written {
        Err(error) if is_closed_pipe(&error) => {
            // What is still in the buffer must not be tried again.
            let _ = out.into_parts();
            Ok(())
        }
        other => other,
    }
}

/// The width of the terminal, if standard output is one.
pub(crate) fn width() -> Option<usize> {
    let (width, _) = terminal_size::terminal_size_of(io::stdout())?;
    Some(width.0.into())
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// One JSON value on a line of its own.
pub(crate) fn json_line(out: &mut dyn Write, value: &Value) -> io::Result<()> {
    writeln!(out, "{value}")
}

/// One JSON value over several lines, as the whole of standard output.
pub(crate) fn print_json(value: &Value) -> anyhow::Result<()> {
    print(|out| {
        serde_json::to_writer_pretty(&mut *out, value).map_err(io::Error::from)?;
        writeln!(out)?;
        Ok(())
    })
}
