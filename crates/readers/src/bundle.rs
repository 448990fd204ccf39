//! A bundle of others: loaded, judged by its seal, and exported again. Nothing in it runs.

use powerfail_check::{ChangedSince, output_directory, trace_name};
use powerfail_trace::Trace;

use crate::archive::{Unpacked, pack};
use crate::{text, trace_seeds};

pub(crate) fn body(bytes: &[u8]) {
    let place = Unpacked::new(bytes);
    let inside = place.path("inside");
    if let Ok((report, _)) = output_directory::load(&inside) {
        let _ = output_directory::origin(&inside);
        if let Ok((Some(coverage), sources)) = output_directory::load_details(&inside) {
            let _ = ChangedSince::run("inside", &coverage, sources.as_ref());
        }
        for finding in &report.findings {
            let Some(name) = trace_name(finding) else {
                continue;
            };
            if let Ok(file) = output_directory::open_trace(&inside, name) {
                let _ = Trace::from_source(file);
            }
        }
        let _ = output_directory::export(&inside, &place.path("exported"));
    }
    place.is_confined(&["exported"]);
}

/// One call stack whose failure point was tried.
const COVERAGE: &[u8] = br#"{"schema":1,"frames":[{"function":"put","file":"/a/store.c","line":2,"module":"store",
    "offset":4096,"trusted":false}],"stacks":[{"stack":[0],"prefix":{"points":1,"tried":1,"sampled":0,"failed":0}}]}"#;
const SOURCES: &[u8] = br#"{"schema":1,"files":{"/a/store.c":"int a;\nput(a);\n"},"left_out":[]}"#;

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let report = text::report_seeds().remove(0);
    let trace = trace_seeds::seeds().remove(0);
    let recovery = |more: &str| {
        format!(
            r#"{{"recover":[{{"Unix":[46,47,112]}},{{"Unix":[120]}}],"checker":null,"dump":null,"client":null,"ready":null,
            "stop":null,"timeout":null,"ok_exit":[3],"fail_patterns":["bad"],"memory_bytes":null,"file_bytes":1024,
            "working_directory":"files","domain":"adr","atomicity":"store","fill":null,"trust":[],"no_trust":[]{more}}}"#
        )
    };
    let with_input =
        recovery(r#","input":"recovery.input","environment":[[{"Unix":[76]},{"Unix":[77]}]]"#);
    let plain = recovery("");
    [plain, with_input]
        .iter()
        .map(|recovery| {
            pack(&[
                ("report.json", &report),
                ("recovery.json", recovery.as_bytes()),
                ("run.trace", &trace),
                ("recovery.input", b"input"),
                ("coverage.json", COVERAGE),
                ("sources.json", SOURCES),
                ("files/p", b"#!/bin/false\n"),
                ("files/lib/l.so", b""),
            ])
        })
        .collect()
}
