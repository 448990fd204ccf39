//! The licences of the crates that are linked into powerfail: whether they are allowed, and their texts.
//!
//! `deny.toml` has the list of allowed licences, so that cargo-deny says the same.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::Value;

/// The platform that powerfail runs on.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";
/// How the names of files with a licence begin.
const TEXTS: [&str; 6] = [
    "LICENSE",
    "LICENCE",
    "COPYING",
    "COPYRIGHT",
    "NOTICE",
    "UNLICENSE",
];

/// A crate of others.
#[derive(Clone, Debug)]
pub struct Crate {
    /// Its name and version.
    pub name: String,
    /// Its licence, as an SPDX expression.
    pub license: String,
    /// Where it comes from.
    pub repository: String,
    directory: PathBuf,
}

/// The crates of others that are linked into the binary, sorted by name.
pub fn crates() -> anyhow::Result<Vec<Crate>> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["metadata", "--locked", "--format-version", "1"]);
    command
        .args(["--filter-platform", PLATFORM])
        .current_dir(root());
    let output = command.output().context("cargo metadata")?;
    if !output.status.success() {
        bail!(
            "cargo metadata: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let linked = linked(&metadata).context("the graph of cargo metadata")?;
    let packages = metadata["packages"].as_array().context("packages")?;
    let text = |package: &Value, key: &str| package[key].as_str().unwrap_or_default().to_owned();
    let mut crates: Vec<Crate> = packages
        .iter()
        .filter(|package| !package["source"].is_null() && linked.contains(&text(package, "id")))
        .map(|package| Crate {
            name: format!("{} {}", text(package, "name"), text(package, "version")),
            license: text(package, "license"),
            repository: text(package, "repository"),
            directory: Path::new(&text(package, "manifest_path")).with_file_name(""),
        })
        .collect();
    crates.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(crates)
}

/// The ids of all packages that the binary, or the runtime that it carries, needs when it runs.
fn linked(metadata: &Value) -> Option<BTreeSet<String>> {
    let nodes = metadata["resolve"]["nodes"].as_array()?;
    let nodes: BTreeMap<&str, &Value> = nodes
        .iter()
        .filter_map(|node| Some((node["id"].as_str()?, node)))
        .collect();
    let packages = metadata["packages"].as_array()?;
    let roots = packages.iter().filter(|package| {
        let name = package["name"].as_str().unwrap_or_default();
        package["source"].is_null() && ["powerfail", "powerfail-runtime"].contains(&name)
    });
    let mut waiting: Vec<&str> = roots.filter_map(|package| package["id"].as_str()).collect();
    let mut linked = BTreeSet::new();
    while let Some(id) = waiting.pop() {
        if !linked.insert(id.to_owned()) {
            continue;
        }
        for dependency in nodes.get(id)?["deps"].as_array()? {
            let mut kinds = dependency["dep_kinds"].as_array()?.iter();
            if kinds.any(|kind| kind["kind"].is_null()) {
                waiting.push(dependency["pkg"].as_str()?);
            }
        }
    }
    Some(linked)
}

/// The licences that `deny.toml` allows.
pub fn allowed() -> anyhow::Result<Vec<String>> {
    let text = fs::read_to_string(root().join("deny.toml")).context("deny.toml")?;
    let list = text
        .split_once("\nallow = [")
        .and_then(|(_, rest)| rest.split_once(']'));
    let (list, _) = list.context("deny.toml has no list of allowed licences")?;
    let names = list.split('"').skip(1).step_by(2);
    Ok(names.map(str::to_owned).collect())
}

/// Whether an SPDX expression can be met with these licences.
pub fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    // Old crates write a slash for OR.
    let text = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut at = 0;
    any(&words, &mut at, allowed) && at == words.len()
}

/// `A OR B`.
fn any(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut result = all(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        result |= all(words, at, allowed);
    }
    result
}

/// `A AND B`.
fn all(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut result = one(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        result &= one(words, at, allowed);
    }
    result
}

/// `A`, `A WITH B` or an expression in brackets.
fn one(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let Some(word) = words.get(*at) else {
        return false;
    };
    *at += 1;
    if *word == "(" {
        let result = any(words, at, allowed);
        let is_closed = words.get(*at) == Some(&")");
        *at += 1;
        return result && is_closed;
    }
    let mut name = (*word).to_owned();
    if words.get(*at) == Some(&"WITH") {
        let exception = words.get(*at + 1).copied().unwrap_or_default();
        name = format!("{name} WITH {exception}");
        *at += 2;
    }
    allowed.contains(&name)
}

/// All crates with their licences, and each text of a licence once.
pub fn text() -> anyhow::Result<String> {
    let crates = crates()?;
    let mut text = String::from("# Third-party notices\n\npowerfail contains these crates.\n\n");
    let mut texts: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for it in &crates {
        let _ = writeln!(text, "- {}: {}, {}", it.name, it.license, it.repository);
        for content in license_texts(&it.directory)? {
            texts.entry(content).or_default().push(&it.name);
        }
    }
    for (content, names) in texts {
        let _ = write!(
            text,
            "\n## {}\n\n{}\n",
            names.join(", "),
            content.trim_end()
        );
    }
    Ok(text)
}

fn license_texts(directory: &Path) -> anyhow::Result<Vec<String>> {
    let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .to_uppercase();
        if path.is_file() && TEXTS.iter().any(|it| name.starts_with(it)) {
            paths.push(path);
        }
    }
    paths.sort();
    let read =
        |path: &PathBuf| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok(paths.iter().map(read).collect::<Result<_, _>>()?)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
