//! `powerfail fuzz plot`: draws the statistics of campaigns.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use powerfail_files::output;
use powerfail_fuzz_store::{Stats, read_stats};
use powerfail_report::plot::{Plot, Scale, Series};
use serde_json::Value;

use crate::args::FuzzPlotArgs;
use crate::exit::Exit;
use crate::output::print;

pub(crate) fn plot(args: &FuzzPlotArgs) -> anyhow::Result<Exit> {
    let mut series = Vec::new();
    for out in &args.out {
        series.push(line_of(out, &args.of)?);
    }
    let scale = |is_log| {
        if is_log {
            Scale::Logarithmic
        } else {
            Scale::Linear
        }
    };
    let label = label(&args.of);
    let plot = Plot {
        title: args
            .title
            .clone()
            .unwrap_or_else(|| format!("{label} over time")),
        label,
        over: None,
        time: scale(args.log_time),
        values: scale(args.log),
        series,
    };
    let svg = plot.svg();
    match &args.output {
        Some(path) => output::create(path)
            .and_then(|mut file| file.write_all(svg.as_bytes()))
            .with_context(|| path.display().to_string())?,
        None => print(|out| Ok(out.write_all(svg.as_bytes())?))?,
    }
    Ok(Exit::Clean)
}

/// The series of one campaign.
fn line_of(out: &Path, field: &str) -> anyhow::Result<Series> {
    let lines = read_stats(out)?;
    anyhow::ensure!(
        !lines.is_empty(),
        "{} has no statistics in stats.jsonl; expected the output directory of a campaign",
        out.display()
    );
    let mut points = Vec::with_capacity(lines.len());
    let mut dots = Vec::new();
    let mut findings = 0;
    for line in &lines {
        let Some(value) = value_of(line, field)? else {
            // An older powerfail did not write the field.
            continue;
        };
        points.push((line.time_s, value));
        if line.findings > findings {
            dots.push(line.time_s);
        }
        findings = line.findings;
    }
    anyhow::ensure!(
        !points.is_empty(),
        "{}: the statistics have no number `{field}`; expected one of {}",
        out.display(),
        fields_of(&lines[0]).join(", ")
    );
    let name = out.file_name().unwrap_or(out.as_os_str());
    Ok(Series {
        name: name.to_string_lossy().into_owned(),
        points,
        dots,
    })
}

/// The fields of a line.
fn fields(line: &Stats) -> anyhow::Result<serde_json::Map<String, Value>> {
    match serde_json::to_value(line)? {
        Value::Object(fields) => Ok(fields),
        _ => anyhow::bail!("a line of statistics is not an object"),
    }
}

fn value_of(line: &Stats, field: &str) -> anyhow::Result<Option<f64>> {
    Ok(fields(line)?.get(field).and_then(Value::as_f64))
}

/// The names of fields that are numbers.
fn fields_of(line: &Stats) -> Vec<String> {
    let fields = fields(line).unwrap_or_default().into_iter();
    fields
        .filter(|(_, value)| value.is_number())
        .map(|(name, _)| name)
        .collect()
}

/// The label of a field.
fn label(field: &str) -> String {
    match field {
        "pm_paths" => "PM paths".into(),
        "pm_locations" => "locations of PM paths".into(),
        "execs" => "executions".into(),
        "execs_per_s" => "executions per second".into(),
        "corpus" => "test cases".into(),
        other => other.replace('_', " "),
    }
}
