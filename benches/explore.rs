//! What lazy exploration costs: executions, time and the number of states, for the programs in
//! `tests/targets/explore`.
//!
//! Not a criterion bench: it measures the number of executions and the cost of each. Writes its tables into
//! `docs/figures/exploration.md`, between the comments that name them. Needs gcc, and `powerfail` built in release
//! mode, which `cargo xtask bench explore` builds.

#[path = "explore/document.rs"]
mod document;
#[path = "explore/measure.rs"]
mod measure;
#[path = "explore/programs.rs"]
mod programs;

use document::Document;
use measure::{Bench, Measured};
use powerfail_benches::{here, powerfail};
use programs::{ARRAY_LENGTHS, FIGURES, INDEXES, INSERTS, WITH_POOL};

fn main() {
    let bench = Bench::new(powerfail(), here().join("../tests/targets/explore"));
    let mut document = Document::open(here().join("../docs/figures/exploration.md"));
    document.replace("indexes", &indexes(&bench));
    document.replace("array", &array(&bench));
    document.replace("figures", &figures(&bench));
    document.write();
}

fn indexes(bench: &Bench) -> Vec<String> {
    let mut rows = vec![
        "| program | inserts | events | failure points | executions | saved | choices | states | time | ms per execution | native ms |"
            .to_owned(),
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |".to_owned(),
    ];
    for name in INDEXES {
        let program = bench.build(name);
        for count in INSERTS {
            let count = count.to_string();
            let measured = bench.explore(&program, &["insert", &count], &["recover"]);
            rows.push(index_row(name, &count, &measured));
        }
    }
    let program = bench.build(WITH_POOL);
    for count in INSERTS {
        let count = count.to_string();
        let workload = ["insert", &count];
        let measured = bench.explore_from(&["insert", "0"], &program, &workload, &["recover"]);
        let name = format!("{WITH_POOL}, pool made before");
        rows.push(index_row(&name, &count, &measured));
    }
    rows
}

fn index_row(name: &str, count: &str, measured: &Measured) -> String {
    measured.require_exhaustive(name);
    let Measured {
        events,
        failure_points,
        executions,
        saved,
        choices,
        states,
        time_s,
        native_ms,
        ..
    } = measured;
    let each_ms = measured.each_ms();
    let row = format!(
        "| {name} | {count} | {events} | {failure_points} | {executions} | {saved} | {choices} | {states} | {time_s:.2} s | {each_ms:.2} | {native_ms:.2} |"
    );
    println!("{row}");
    row
}

fn array(bench: &Bench) -> Vec<String> {
    let mut rows = vec![
        "| integers | failure points | executions | states | time |".to_owned(),
        "| ---: | ---: | ---: | ---: | ---: |".to_owned(),
    ];
    let program = bench.build("array");
    for len in ARRAY_LENGTHS {
        let len = len.to_string();
        let measured = bench.explore(&program, &["fill", &len], &["recover", &len]);
        measured.require_exhaustive("array");
        rows.push(format!(
            "| {len} | {} | {} | {} | {:.2} s |",
            measured.failure_points, measured.executions, measured.states, measured.time_s
        ));
        println!("{}", rows.last().map_or("", String::as_str));
    }
    rows
}

fn figures(bench: &Bench) -> Vec<String> {
    let mut rows = vec![
        "| | recovery reads | executions in the paper | executions here |".to_owned(),
        "| --- | --- | ---: | ---: |".to_owned(),
    ];
    for figure in FIGURES {
        let program = bench.build(figure.program);
        let measured = bench.explore(&program, &[figure.workload], &[figure.recover]);
        measured.require_exhaustive(figure.program);
        rows.push(format!(
            "| {} | {} | {} | {} |",
            figure.name, figure.reads, figure.executions, measured.executions
        ));
        println!("{}", rows.last().map_or("", String::as_str));
    }
    rows
}
