//! The command line of the benchmark.

use std::path::PathBuf;
use std::time::Duration;

/// A part of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Which bugs are found when.
    Bugs,
    /// The comparison with AFL++.
    Afl,
    /// Which commands are learnt.
    Learning,
}

pub(crate) struct Options {
    only: Option<Part>,
    minutes: Option<f64>,
    /// Whether to write documents.
    pub(crate) write: bool,
    /// An older `powerfail` to compare with.
    pub(crate) before: Option<PathBuf>,
    executions: Option<u64>,
}

/// The length of a campaign that learns commands.
const EXECUTIONS: u64 = 1000;
const MINUTES_FOR_BUGS: f64 = 30.0;
const MINUTES_FOR_EACH_FUZZER: f64 = 15.0;

impl Options {
    pub(crate) fn read(mut arguments: impl Iterator<Item = String>) -> Self {
        let mut options = Self {
            only: None,
            minutes: None,
            write: false,
            before: None,
            executions: None,
        };
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                // Cargo passes this to every benchmark.
                "--bench" => {}
                "--write" => options.write = true,
                "--minutes" => {
                    let minutes = arguments.next().and_then(|it| it.parse().ok());
                    options.minutes = Some(minutes.expect("--minutes needs a number"));
                }
                "--before" => {
                    let binary = arguments.next().expect("--before needs a path");
                    options.before = Some(binary.into());
                }
                "--execs" => {
                    let executions = arguments.next().and_then(|it| it.parse().ok());
                    options.executions = Some(executions.expect("--execs needs a number"));
                }
                "--only" => {
                    options.only = Some(match arguments.next().as_deref() {
                        Some("bugs") => Part::Bugs,
                        Some("afl") => Part::Afl,
                        Some("learning") => Part::Learning,
                        _ => panic!("--only needs bugs, afl or learning"),
                    });
                }
                other => panic!("no such option: {other}"),
            }
        }
        options.write |= options.minutes.is_none();
        options
    }

    /// The number of executions of a campaign that learns commands.
    pub(crate) fn executions(&self) -> u64 {
        self.executions.unwrap_or(EXECUTIONS)
    }

    pub(crate) fn includes(&self, part: Part) -> bool {
        self.only.is_none_or(|only| only == part)
    }

    /// The running time of a part; the comparison uses it twice, once per fuzzer.
    pub(crate) fn time(&self, part: Part) -> Duration {
        let usual = match part {
            Part::Bugs => MINUTES_FOR_BUGS,
            Part::Afl => MINUTES_FOR_EACH_FUZZER,
            // Limited by the number of executions.
            Part::Learning => 0.0,
        };
        Duration::from_secs_f64(60.0 * self.minutes.unwrap_or(usual))
    }
}
