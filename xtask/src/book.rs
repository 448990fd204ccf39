//! The documentation as a book, made by mdBook.
//!
//! The pages link to files outside of `docs`: to the README, the map of the code, examples. So the source of the book is a copy
//! of `docs` with all files that its pages name, at the same relative places; links need no change but for the names that
//! mdBook gives: `README.md` becomes `index.md`, and a folder gets a page that lists its files.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};

use crate::{markdown, run};

/// Builds the book in a folder, and returns its first page. Every link of every page must lead somewhere.
pub fn build(root: &Path, out: &Path) -> anyhow::Result<PathBuf> {
    let source = out.join("source");
    if out.exists() {
        fs::remove_dir_all(out)?;
    }
    stage(root, &source)?;
    fs::write(
        out.join("book.toml"),
        fs::read(root.join("docs/book.toml"))?,
    )?;
    run(Command::new(program(root)?).arg("build").arg(out))?;
    let html = out.join("html");
    let broken = broken_links(&html)?;
    ensure!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
    Ok(html.join("index.html"))
}

/// mdBook, which is built once below `target` if it is not installed: Debian 12 has no package of it.
fn program(root: &Path) -> anyhow::Result<PathBuf> {
    const VERSION: &str = "0.5.4";
    if Command::new("mdbook").arg("--version").output().is_ok() {
        return Ok("mdbook".into());
    }
    let tools = root.join("target/tools");
    let program = tools.join("bin/mdbook");
    if !program.exists() {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["install", "mdbook", "--version", VERSION, "--locked"]);
        // It is run once or twice: building it should not take long.
        cargo.args(["--debug", "--no-default-features", "--quiet", "--root"]);
        run(cargo.arg(&tools).env_remove("CARGO_TARGET_DIR"))?;
    }
    Ok(program)
}

/// Makes the source of the book.
pub fn stage(root: &Path, to: &Path) -> anyhow::Result<()> {
    let mut wanted: Vec<PathBuf> = vec!["README.md".into()];
    files(root, Path::new("docs"), &mut wanted)?;
    let mut folders = BTreeSet::new();
    let mut texts: BTreeMap<PathBuf, String> = BTreeMap::new();
    let mut copied = BTreeSet::new();
    while let Some(path) = wanted.pop() {
        if texts.contains_key(&path) || folders.contains(&path) || !copied.insert(path.clone()) {
            continue;
        }
        if root.join(&path).is_dir() {
            for entry in fs::read_dir(root.join(&path))? {
                let entry = entry?;
                if entry.file_type()?.is_file() {
                    wanted.push(path.join(entry.file_name()));
                }
            }
            copied.remove(&path);
            folders.insert(path);
        } else if is_page(&path) {
            let text = read(&root.join(&path))?;
            for link in markdown::links(&text) {
                wanted.extend(target(&path, &link)?);
            }
            copied.remove(&path);
            texts.insert(path, text);
        }
    }
    texts.retain(|path, _| !path.ends_with("SUMMARY.md"));
    let pages: Vec<PathBuf> = texts.keys().cloned().collect();
    for folder in &folders {
        let index = folder.join("README.md");
        let page = texts.entry(index);
        page.or_insert_with(|| listing(folder, &copied, &pages));
    }
    for path in copied.iter().filter(|it| !it.ends_with("SUMMARY.md")) {
        write(&to.join(path), &fs::read(root.join(path))?)?;
    }
    for (path, text) in &texts {
        let text = markdown::map_links(text, |link| renamed(path, link, &folders));
        write(&to.join(staged(path)), text.as_bytes())?;
    }
    let summary = read(&root.join("docs/SUMMARY.md"))?;
    write(
        &to.join("SUMMARY.md"),
        contents(&summary, &texts).as_bytes(),
    )
}

/// The table of contents: that of `docs`, and then the other pages that it leads to.
fn contents(summary: &str, texts: &BTreeMap<PathBuf, String>) -> String {
    let mut listed = BTreeSet::new();
    let mut out = markdown::map_links(summary, |link| {
        let path = Path::new("docs").join(link);
        let name = staged(&path).display().to_string();
        listed.insert(path);
        Some(name)
    });
    out = out.replacen(
        "[powerfail](docs/index.md)",
        "[powerfail](index.md)\n[All pages](docs/index.md)",
        1,
    );
    listed.insert("README.md".into());
    out.push_str("\n# Repository\n\n");
    for (path, text) in texts.iter().filter(|(path, _)| !listed.contains(*path)) {
        let title = markdown::title(text).unwrap_or_else(|| path.display().to_string());
        let _ = writeln!(out, "- [{title}]({})", staged(path).display());
    }
    out
}

/// A page that lists the files of a folder.
fn listing(folder: &Path, copied: &BTreeSet<PathBuf>, pages: &[PathBuf]) -> String {
    let mut text = format!("# {}\n\n", folder.display());
    let all: BTreeSet<&PathBuf> = copied.iter().chain(pages).collect();
    for path in all.into_iter().filter(|it| it.parent() == Some(folder)) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let _ = writeln!(text, "- [{name}](<{name}>)");
    }
    text
}

fn is_page(path: &Path) -> bool {
    path.extension().is_some_and(|it| it == "md")
}

/// The name of a page in the book.
fn staged(path: &Path) -> PathBuf {
    if path.ends_with("README.md") {
        path.with_file_name("index.md")
    } else {
        path.to_owned()
    }
}

/// What a link has to be in the book, if that is something else.
fn renamed(page: &Path, link: &str, folders: &BTreeSet<PathBuf>) -> Option<String> {
    let (path, fragment) = match link.split_once('#') {
        Some((path, fragment)) => (path, format!("#{fragment}")),
        None => (link, String::new()),
    };
    let to = target(page, link).ok().flatten()?;
    if folders.contains(&to) {
        Some(format!("{}/index.md", path.trim_end_matches('/')))
    } else if to.ends_with("README.md") {
        let folder = path.strip_suffix("README.md")?;
        Some(format!("{folder}index.md{fragment}"))
    } else {
        None
    }
}

/// The file or folder of the repository that a link leads to, relative to its root.
fn target(page: &Path, link: &str) -> anyhow::Result<Option<PathBuf>> {
    let path = link.split('#').next().unwrap_or_default();
    if path.is_empty() {
        return Ok(None);
    }
    let folder = page.parent().unwrap_or(Path::new(""));
    let mut parts = Vec::new();
    for part in folder.join(path).components() {
        match part {
            Component::ParentDir => {
                let inside = parts.pop().is_some();
                ensure!(inside, "{}: {link} leaves the repository", page.display());
            }
            Component::Normal(name) => parts.push(name.to_owned()),
            _ => {}
        }
    }
    Ok(Some(parts.iter().collect()))
}

/// The files below a folder, relative to the root.
fn files(root: &Path, folder: &Path, to: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            files(root, &path, to)?;
        } else {
            to.push(path);
        }
    }
    Ok(())
}

/// The links of the pages of a book that lead nowhere.
fn broken_links(html: &Path) -> anyhow::Result<Vec<String>> {
    let mut all = Vec::new();
    files(html, Path::new(""), &mut all)?;
    // These repeat what other pages have, with links of the first page.
    let repeated = ["print.html", "404.html", "toc.html"];
    let pages: Vec<&PathBuf> = all
        .iter()
        .filter(|it| it.extension().is_some_and(|it| it == "html"))
        .filter(|it| !repeated.iter().any(|name| it.ends_with(name)))
        .collect();
    if pages.len() < 50 {
        bail!("only {} pages in {}", pages.len(), html.display());
    }
    let mut texts = BTreeMap::new();
    for page in &pages {
        texts.insert((*page).clone(), read(&html.join(page))?);
    }
    let mut broken = Vec::new();
    for (page, text) in &texts {
        // What the theme of mdBook needs is not ours.
        let anchors = text.split("<a ").skip(1);
        let anchors = anchors.filter_map(|rest| rest.split_once('>').map(|it| it.0));
        for link in anchors.flat_map(|it| attributes(it, "href")) {
            let is_outside = link.contains("://") || link.starts_with("mailto:");
            let fragment = link.split_once('#').map(|it| it.1);
            let to = if is_outside {
                None
            } else {
                target(page, link)?
            };
            let to = to.unwrap_or_else(|| page.clone());
            let exists = html.join(&to).exists();
            let has_name = match (fragment, texts.get(&to)) {
                (Some(name), Some(text)) => attributes(text, "id").any(|it| it == name),
                _ => true,
            };
            if !exists || !has_name {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    Ok(broken)
}

/// The values of an attribute in the elements of a page, or in one of them.
fn attributes<'t>(text: &'t str, name: &str) -> impl Iterator<Item = &'t str> {
    let start = format!("{name}=\"");
    let values: Vec<&str> = text
        .split(&start)
        .skip(1)
        .filter_map(|rest| rest.split_once('"').map(|it| it.0))
        .collect();
    values.into_iter()
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let folder = path.parent().context("a folder")?;
    fs::create_dir_all(folder)?;
    fs::write(path, bytes).with_context(|| path.display().to_string())
}
