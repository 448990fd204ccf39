//! The repository's Markdown: every relative link leads to a file or folder, every `#fragment` to a heading; the code
//! that ARCHITECTURE.md and the design pages mention exists.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use xtask::book;
use xtask::markdown::{self, links, prose, resolves};

#[test]
fn every_relative_link_resolves() {
    let pages = pages();
    assert!(
        pages.len() > 50,
        "only {} pages: is this the root?",
        pages.len()
    );
    let broken: Vec<String> = pages
        .iter()
        .flat_map(|page| {
            let text = fs::read_to_string(page).expect("a page");
            let broken: Vec<String> = links(&text)
                .into_iter()
                .filter(|link| !resolves(page, link))
                .map(|link| format!("{}: {link}", page.display()))
                .collect();
            broken
        })
        .collect();
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

/// A path in `code` may be followed by a name, as in `crates/model/src/frontier.rs:Frontier`: the file must contain
/// that word.
#[test]
fn every_path_and_name_in_the_design_exists() {
    let mut wrong = Vec::new();
    let mut checked = 0;
    for page in design() {
        let text = fs::read_to_string(&page).expect("a page");
        for code in prose(&text).flat_map(codes) {
            let (path, name) = code.split_once(':').unwrap_or((code, ""));
            if !is_path(path) {
                continue;
            }
            checked += 1;
            let file = root().join(path);
            let has_name = name.is_empty()
                || fs::read_to_string(&file)
                    .is_ok_and(|source| words(&source).any(|it| it == name));
            if !file.exists() || !has_name {
                wrong.push(format!("{}: {code}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "not there:\n{}", wrong.join("\n"));
    assert!(checked > 100, "only {checked} paths: are these the pages?");
}

#[test]
fn the_architecture_is_short() {
    let len = fs::metadata(root().join("ARCHITECTURE.md"))
        .expect("the page")
        .len();
    assert!(len <= 12 * 1024, "ARCHITECTURE.md has {len} bytes");
}

/// The map in ARCHITECTURE.md has every crate, and each depends on crates of lower layers only.
#[test]
fn crates_depend_on_lower_layers_only() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the page");
    let layers = layers(&text);
    let mut wrong = Vec::new();
    for entry in fs::read_dir(root().join("crates")).expect("the crates") {
        let folder = entry.expect("an entry").path();
        let name = folder
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let Some(layer) = layers.get(&name) else {
            wrong.push(format!("{name} is not in the map"));
            continue;
        };
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
        for dependency in dependencies(&manifest) {
            if layers.get(&dependency).is_none_or(|it| it >= layer) {
                wrong.push(format!("{name} depends on {dependency}"));
            }
        }
    }
    for name in layers.keys() {
        if !root().join("crates").join(name).exists() {
            wrong.push(format!("{name} does not exist"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The table of contents of the book has every page of `docs` once, under its own title.
#[test]
fn the_book_has_every_page() {
    let docs = root().join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).expect("the table of contents");
    let mut listed: Vec<PathBuf> = links(&summary).iter().map(|link| docs.join(link)).collect();
    listed.sort();
    let pages = pages().into_iter().filter(|page| page.starts_with(&docs));
    let pages: Vec<PathBuf> = pages.filter(|page| !page.ends_with("SUMMARY.md")).collect();
    let missing: Vec<&PathBuf> = pages.iter().filter(|page| !listed.contains(page)).collect();
    assert!(missing.is_empty(), "not in docs/SUMMARY.md: {missing:?}");
    assert_eq!(listed, pages, "each page once");
    for page in &pages {
        let text = fs::read_to_string(page).expect("a page");
        let title = markdown::title(&text).unwrap_or_default();
        let link = page.strip_prefix(&docs).expect("a page of docs").display();
        let is_index = link.to_string() == "README.md";
        let entry = format!("[{title}]({link})");
        assert!(
            is_index || summary.contains(&entry),
            "not in docs/SUMMARY.md: {entry}"
        );
    }
}

/// mdBook gets a copy of the pages with all files that they name. In it every link leads to a file, because a folder has no
/// page of its own in a browser, and the table of contents has every page.
#[test]
fn the_source_of_the_book_is_complete() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path();
    book::stage(&root(), source).expect("a source");
    let mut broken = Vec::new();
    let mut listed = Vec::new();
    let pages = markdown::pages(source);
    for page in &pages {
        let text = fs::read_to_string(page).expect("a page");
        for link in links(&text) {
            let path = link.split('#').next().unwrap_or_default();
            let is_folder = !path.is_empty() && page.with_file_name(path).is_dir();
            if is_folder || !resolves(page, &link) {
                broken.push(format!("{}: {link}", page.display()));
            }
            if page.ends_with("SUMMARY.md") {
                listed.push(source.join(link));
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
    listed.push(source.join("SUMMARY.md"));
    listed.sort();
    assert_eq!(listed, pages, "each page once");
    assert!(source.join("ARCHITECTURE.md").exists());
    assert!(source.join("examples/notes.c").exists());
}

/// All Markdown files of the repository, except those that a build creates.
fn pages() -> Vec<PathBuf> {
    markdown::pages(&root())
}

/// ARCHITECTURE.md and the pages of `docs/design`.
fn design() -> Vec<PathBuf> {
    let mut design = vec![root().join("ARCHITECTURE.md")];
    let folder = root().join("docs/design");
    design.extend(pages().into_iter().filter(|page| page.starts_with(&folder)));
    design
}

/// The texts between backquotes in a line.
fn codes(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Whether `code` names a file or folder of the repository.
fn is_path(code: &str) -> bool {
    let Some((folder, rest)) = code.split_once('/') else {
        return false;
    };
    let folders = [
        "benches", "crates", "docs", "examples", "include", "tests", "xtask",
    ];
    folders.contains(&folder) && !rest.contains(['*', ' ', '{']) && rest != rest.to_uppercase()
}

fn words(source: &str) -> impl Iterator<Item = &str> {
    source.split(|c: char| !c.is_alphanumeric() && c != '_')
}

/// The layer of each crate, from the table of the map. A row without a layer belongs to the one above it.
fn layers(text: &str) -> BTreeMap<String, u32> {
    let mut layers = BTreeMap::new();
    let mut layer = 0;
    let rows = text
        .lines()
        .skip_while(|line| !line.starts_with("| layer |"))
        .skip(2);
    for row in rows.take_while(|line| line.starts_with('|')) {
        let mut cells = row.split('|').map(str::trim).skip(1);
        let first = cells.next().expect("a layer");
        layer = first.parse().unwrap_or(layer);
        let name = cells.next().expect("a crate").trim_matches('`');
        layers.insert(name.to_owned(), layer);
    }
    layers
}

/// The crates of the workspace that a manifest depends on, except for its tests.
fn dependencies(manifest: &str) -> Vec<String> {
    manifest
        .lines()
        .skip_while(|line| *line != "[dependencies]")
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.strip_prefix("powerfail-"))
        .map(|line| {
            let end = line.find(['.', ' ', '=']).unwrap_or(line.len());
            line[..end].to_owned()
        })
        .collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace")
        .to_owned()
}
