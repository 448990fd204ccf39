//! A test program: a zygote, or an oracle with a recovery that never ends.

use std::path::PathBuf;
use std::time::Duration;

use powerfail_oracle::{
    CommandLine, Oracle, OracleSettings, PathMode, PoolMapping, ProcessMode, RecoveryPlan,
};

fn main() {
    powerfail_oracle::serve_if_zygote_with_expiry("EXPIRE");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mode, original, private, script] = &arguments[..] else {
        eprintln!("this program is started by tests");
        std::process::exit(2);
    };
    let mut plan = RecoveryPlan::new(CommandLine::shell(script));
    plan.timeout = Duration::from_hours(1);
    let settings = match mode.as_str() {
        "namespaces" => OracleSettings {
            paths: PathMode::Namespace,
            ..OracleSettings::default()
        },
        _ => OracleSettings {
            paths: PathMode::Substitute,
            processes: ProcessMode::Group,
            ..OracleSettings::default()
        },
    };
    let mapping = PoolMapping {
        original: PathBuf::from(original),
        private: PathBuf::from(private),
    };
    let mut slot = Oracle::new(plan, settings)
        .unwrap()
        .slot(&[mapping])
        .unwrap();
    let _ = slot.run();
}
