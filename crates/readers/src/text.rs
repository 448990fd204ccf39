//! Readers of text: reports, configuration, litmus files, and logs of pmemcheck.

use std::io::{self, Write};
use std::path::Path;

use powerfail_config::{Baseline, Config};
use powerfail_finding::Report;
use powerfail_litmus::LitmusFile;
use powerfail_report::findings;
use powerfail_trace::{Trace, pmemcheck as log};

/// A report of others: it becomes text without control characters, JSON again, and a baseline.
pub(crate) fn report(bytes: &[u8]) {
    let Ok(report) = serde_json::from_slice::<Report>(bytes) else {
        return;
    };
    let options = findings::TextOptions {
        width: Some(100),
        base: Path::new("/"),
        out: Some(Path::new("out")),
        warnings: true,
    };
    let mut text = Vec::new();
    findings::report(&mut text, &report, &options).expect("memory");
    let mut json = Vec::new();
    findings::json(&mut json, &report).expect("memory");
    let again: Report = serde_json::from_slice(&json).expect("what was written is readable");
    assert_eq!(again.findings.len(), report.findings.len());
    if let Ok(baseline) = std::str::from_utf8(&json).map(Baseline::parse) {
        let _ = baseline.map(|baseline| baseline.compare(report.findings));
    }
}

pub(crate) fn report_seeds() -> Vec<Vec<u8>> {
    vec![include_bytes!("seeds/report.json").to_vec()]
}

/// `powerfail.toml`.
pub(crate) fn configuration(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Err(error) = Config::parse(text)
    {
        assert!(!error.to_string().is_empty());
    }
}

pub(crate) fn configuration_seeds() -> Vec<Vec<u8>> {
    vec![include_bytes!("seeds/powerfail.toml").to_vec()]
}

/// A litmus file. What it means is not computed: that takes as long as it takes.
pub(crate) fn litmus(bytes: &[u8]) {
    match LitmusFile::parse_bytes(bytes) {
        Ok(file) => drop(file.name().to_owned()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

pub(crate) fn litmus_seeds() -> Vec<Vec<u8>> {
    vec![
        include_bytes!("../../../tests/litmus/traces/yat_figure3.json").to_vec(),
        include_bytes!("../../../tests/litmus/MP.json").to_vec(),
        include_bytes!("../../../tests/litmus/files/rename_over_old.json").to_vec(),
    ]
}

/// Takes only so many bytes: a short log can be about long flushes.
struct Limited(Vec<u8>);

const LIMIT_BYTES: usize = 1 << 20;

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > LIMIT_BYTES {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A log of pmemcheck: it becomes a trace that is good, and a log again.
pub(crate) fn pmemcheck(bytes: &[u8]) {
    let _ = log::is_log(bytes);
    let Ok(parsed) = log::Log::parse(bytes) else {
        return;
    };
    let mut out = Limited(Vec::new());
    let Ok(events) = log::import(&parsed, b"", &mut out) else {
        return;
    };
    let trace = Trace::from_bytes(out.0).expect("what was written is readable");
    assert_eq!(trace.event_count(), events);
    trace.verify().expect("what was written is good");
    let mut again = Limited(Vec::new());
    if log::export(&trace, &mut again).is_ok() {
        log::Log::parse(&again.0).expect("what was exported is a log");
    }
}

pub(crate) fn pmemcheck_seeds() -> Vec<Vec<u8>> {
    vec![
        b"START|REGISTER_FILE;/mnt/pmem/pool;0x10000;0x2000;0x0|STORE;0x10040;0x2a;0x8|FLUSH;0x10040;0x40|FENCE|STOP\n".to_vec(),
        b"==7== START\n|REGISTER_FILE;p;0x10000;0x1000;0x0|REGISTER_FILE;q;0x30000;0x1000;0x1000|STORE;0x30001;0xffff;0x2;at a.c:3|FENCE|STOP".to_vec(),
        // A mutation whose export was no log.
        b"START|REGISTER_FILE;q;0x30000;0x1000;0x1000001;0xffff|FENCE|STOP".to_vec(),
    ]
}
