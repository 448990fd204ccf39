//! A program for tests: a zygote, or a campaign whose events are lines.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use powerfail_campaign::{CampaignOptions, Observer, Stats, resumed_options, run};
use powerfail_finding::Finding;

/// Tells everything on standard output.
struct Lines;

impl Lines {
    fn say(line: &str) {
        let _ = writeln!(std::io::stdout().lock(), "{line}");
    }
}

impl Observer for Lines {
    fn stats(&self, stats: &Stats) {
        if let Ok(text) = serde_json::to_string(stats) {
            Self::say(&format!("stats {text}"));
        }
    }

    fn finding(&self, finding: &Finding, directory: &Path) {
        let place = finding.places.first();
        let file = place.and_then(|place| place.file.as_deref()).unwrap_or("?");
        let line = place.and_then(|place| place.line).unwrap_or(0);
        Self::say(&format!(
            "finding {} {} {file}:{line} {} {}",
            finding.code,
            finding.id,
            directory.display(),
            finding.message
        ));
    }

    fn warning(&self, sentence: &str) {
        Self::say(&format!("warning {sentence}"));
    }

    fn is_interrupted(&self) -> bool {
        false
    }
}

fn main() -> ExitCode {
    powerfail_oracle::serve_if_zygote();
    let mut arguments = std::env::args_os().skip(1);
    let mut next = || arguments.next().unwrap_or_default();
    let runtime = std::fs::read(PathBuf::from(next())).unwrap_or_default();
    let runtime: Arc<[u8]> = runtime.into();
    let out = PathBuf::from(next());
    let number = |text: std::ffi::OsString| text.to_str().and_then(|it| it.parse::<u64>().ok());
    let milliseconds = number(next()).unwrap_or(1000);
    let jobs = number(next()).unwrap_or(1);
    let command: Vec<_> = arguments.collect();
    let mut options = if command.is_empty() {
        match resumed_options(&out) {
            Ok(options) => options,
            Err(error) => {
                Lines::say(&format!("error {error}"));
                return ExitCode::from(2);
            }
        }
    } else {
        CampaignOptions::new(command, out)
    };
    options.jobs = usize::try_from(jobs).unwrap_or(1);
    options.time = Some(Duration::from_millis(milliseconds));
    match run(&options, &runtime, &Lines) {
        Ok(summary) => {
            Lines::say(&format!("end {}", summary.findings.len()));
            ExitCode::SUCCESS
        }
        Err(error) => {
            Lines::say(&format!("error {error}: {error:?}"));
            ExitCode::from(2)
        }
    }
}
