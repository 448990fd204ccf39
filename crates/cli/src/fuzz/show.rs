//! `powerfail fuzz show`: shows what a campaign has found, whether it is running or not. Changes nothing.

use std::path::Path;

use anyhow::{Context, bail, ensure};
use powerfail_check::output_directory;
use powerfail_files::Directory;
use powerfail_fuzz_store::{Images, StoredFinding, read_record, read_stats};
use powerfail_report::fuzz::{
    case_json, image_json, stored_json, write_cases, write_findings, write_images, write_numbers,
};
use serde_json::json;

use crate::args::FuzzShowArgs;
use crate::exit::Exit;
use crate::output::{print, print_json};

pub(crate) fn show(args: &FuzzShowArgs) -> anyhow::Result<Exit> {
    let out = &args.out;
    let record = read_record(out)?;
    let images = Images::follow(out)?;
    if let (Some(id), Some(to)) = (&args.image, &args.to) {
        return write_image(&images, id, to);
    }
    let stats = read_stats(out)?.pop();
    let findings = findings(out)?;
    let cases = powerfail_fuzz_store::read_cases(out)?;
    if args.json {
        print_json(&json!({
            "schema": 1,
            "command": record.command,
            "stats": stats,
            "findings": findings.iter().map(stored_json).collect::<Vec<_>>(),
            "cases": cases.iter().map(case_json).collect::<Vec<_>>(),
            "images": images.nodes().iter().map(image_json).collect::<Vec<_>>(),
        }))?;
        return Ok(Exit::Clean);
    }
    print(|to| {
        writeln!(to, "{}", record.command.join(" "))?;
        if let Some(stats) = &stats {
            write_numbers(to, stats)?;
        }
        if !findings.is_empty() {
            write_findings(to, out, &findings)?;
        }
        if args.cases {
            write_cases(to, &cases)?;
        }
        if args.images {
            write_images(to, &images.nodes())?;
        }
        Ok(())
    })?;
    Ok(Exit::Clean)
}

/// All findings, in the order of their names, without incomplete ones.
fn findings(out: &Path) -> anyhow::Result<Vec<StoredFinding>> {
    let directory = out.join(output_directory::FINDINGS);
    let mut found = Vec::new();
    let entries = std::fs::read_dir(&directory).with_context(|| directory.display().to_string())?;
    for entry in entries {
        let directory = entry?.path();
        let Ok((report, _)) = output_directory::load(&directory) else {
            continue;
        };
        let findings = report.findings.into_iter();
        found.extend(findings.map(|finding| StoredFinding::new(finding, directory.clone())));
    }
    found.sort_by(|left, right| left.directory.cmp(&right.directory));
    Ok(found)
}

/// Writes the image whose hash has this prefix.
fn write_image(images: &Images, beginning: &str, to: &Path) -> anyhow::Result<Exit> {
    let nodes = images.nodes();
    let mut fitting = nodes
        .iter()
        .filter(|node| node.id.to_string().starts_with(beginning));
    let Some(node) = fitting.next().filter(|_| !beginning.is_empty()) else {
        bail!("no image {beginning} in this campaign; --images lists them");
    };
    ensure!(
        fitting.next().is_none(),
        "several images begin with {beginning}; give more digits"
    );
    let contents = images.load(node.id)?;
    Directory::create_new(to)
        .and_then(|to| contents.write(&to))
        .with_context(|| to.display().to_string())?;
    Ok(Exit::Clean)
}
