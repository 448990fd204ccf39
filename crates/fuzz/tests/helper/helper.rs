//! A test program: a zygote, or a campaign that prints its events as lines.
//!
//! ```text
//! helper RUNTIME OUT new MILLISECONDS JOBS UNTIL COMMAND...
//! helper RUNTIME OUT resume MILLISECONDS JOBS UNTIL
//! helper RUNTIME OUT rebuild
//! ```
//!
//! `UNTIL` says when to stop early: when a comma-separated list of codes is found, or `images=N`. The initial inputs
//! are in the directory `seeds`, if it exists.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use powerfail_finding::Finding;
use powerfail_fuzz::{
    CampaignError, CampaignObserver, CampaignOptions, Stats, rebuild_all, resumed_options, run,
};

/// Prints every event on standard output.
struct Lines {
    codes: Mutex<Vec<String>>,
    images: Option<u64>,
    is_over: AtomicBool,
}

fn say(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

impl Lines {
    fn new(until: &str) -> Self {
        let images = until.strip_prefix("images=").and_then(|it| it.parse().ok());
        let codes = match (until, images) {
            ("" | "none", _) | (_, Some(_)) => Vec::new(),
            _ => until.split(',').map(str::to_owned).collect(),
        };
        Self {
            codes: Mutex::new(codes),
            images,
            is_over: AtomicBool::new(false),
        }
    }
}

impl CampaignObserver for Lines {
    fn stats(&self, stats: &Stats) {
        if let Ok(text) = serde_json::to_string(stats) {
            say(&format!("stats {text}"));
        }
        if self.images.is_some_and(|images| stats.images >= images) {
            self.is_over.store(true, Ordering::Relaxed);
        }
    }

    fn finding(&self, finding: &Finding, directory: &Path) {
        let place = finding.places.first();
        let file = place.and_then(|place| place.file.as_deref()).unwrap_or("?");
        let line = place.and_then(|place| place.line).unwrap_or(0);
        say(&format!(
            "finding {} {} {file}:{line} {} {}",
            finding.code,
            finding.id,
            directory.display(),
            finding.message
        ));
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        let left = codes.len();
        codes.retain(|code| *code != finding.code.as_str());
        if codes.is_empty() && left > 0 {
            self.is_over.store(true, Ordering::Relaxed);
        }
    }

    fn warning(&self, sentence: &str) {
        say(&format!("warning {sentence}"));
    }

    fn is_interrupted(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

fn main() -> ExitCode {
    powerfail_oracle::serve_if_zygote();
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match act(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("error {error}: {error:?}"));
            ExitCode::from(2)
        }
    }
}

fn act(arguments: &[OsString]) -> Result<(), CampaignError> {
    let word = |place: usize| {
        arguments
            .get(place)
            .and_then(|it| it.to_str())
            .unwrap_or("")
    };
    let path = |place: usize| arguments.get(place).map(PathBuf::from).unwrap_or_default();
    let runtime: Arc<[u8]> = std::fs::read(path(0)).unwrap_or_default().into();
    let out = path(1);
    if word(2) == "rebuild" {
        let images = powerfail_fuzz_store::Images::follow(&out)?.len();
        for (image, sentence) in rebuild_all(&out, &runtime)? {
            say(&format!("wrong {image} {sentence}"));
        }
        say(&format!("images {images}"));
        return Ok(());
    }
    let mut options = match word(2) {
        "resume" => resumed_options(&out)?,
        _ => CampaignOptions::new(arguments.get(6..).unwrap_or_default().to_vec(), out),
    };
    options.jobs = word(4).parse().unwrap_or(1);
    options.time = word(3).parse().ok().map(Duration::from_millis);
    // Test machines are sometimes slow; but a hang is only reported after five times this time.
    options.timeout = Duration::from_secs(1);
    options.file_limit_bytes = 64 << 20;
    let seeds = PathBuf::from("seeds");
    options.seeds = seeds.is_dir().then_some(seeds);
    let summary = run(&options, &runtime, &Lines::new(word(5)))?;
    say(&format!("end {}", summary.findings.len()));
    Ok(())
}
