//! What must hold for any bytes that a reader of powerfail is given: a value or a typed error, in bounded time and memory, and
//! nothing outside of the directory in which it works. A body panics if that does not hold.
//!
//! Each body is a cargo-fuzz target (`fuzz/fuzz_targets`). A test runs all of them on mutations of their seeds, with the
//! stable compiler. There checksums are right or the trace is refused; in a build for fuzzing, `powerfail-trace` and the
//! reader of outcomes take every checksum for right, so the fuzzer reaches the code behind them.

mod archive;
mod bundle;
mod campaign;
mod guest;
mod outcomes;
mod text;
mod trace;
mod trace_seeds;

/// A reader under attack.
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    /// The name of its fuzz target.
    pub name: &'static str,
    /// What must hold for any bytes.
    pub body: fn(&[u8]),
    /// Inputs that are right, to start from.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All of them.
pub const ALL: [Reader; 9] = [
    Reader {
        name: "trace",
        body: trace::body,
        seeds: trace_seeds::seeds,
    },
    Reader {
        name: "bundle",
        body: bundle::body,
        seeds: bundle::seeds,
    },
    Reader {
        name: "report",
        body: text::report,
        seeds: text::report_seeds,
    },
    Reader {
        name: "campaign",
        body: campaign::body,
        seeds: campaign::seeds,
    },
    Reader {
        name: "configuration",
        body: text::configuration,
        seeds: text::configuration_seeds,
    },
    Reader {
        name: "litmus",
        body: text::litmus,
        seeds: text::litmus_seeds,
    },
    Reader {
        name: "outcomes",
        body: outcomes::body,
        seeds: outcomes::seeds,
    },
    Reader {
        name: "guest",
        body: guest::body,
        seeds: guest::seeds,
    },
    Reader {
        name: "pmemcheck",
        body: text::pmemcheck,
        seeds: text::pmemcheck_seeds,
    },
];

/// Runs the body of a reader.
///
/// # Panics
/// If there is no reader of this name, or if what must hold does not.
pub fn run(name: &str, bytes: &[u8]) {
    let reader = ALL.iter().find(|reader| reader.name == name);
    (reader.expect("a reader of this name").body)(bytes);
}
