//! The repository's Markdown: every relative link leads to a file or folder, every `#fragment` to a heading.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

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

#[test]
fn links_in_code_are_not_links() {
    let text =
        "[a](b.md) `[c](d.md)` [e](<f g.md>)\n```\n[h](i.md)\n```\n![j](k.svg) [l](https://m)\n";
    assert_eq!(links(text), ["b.md", "f g.md", "k.svg"]);
}

#[test]
fn headings_are_named_as_github_names_them() {
    let text = "# What it does *not* see\n## `check`, and `crash`\n```\n# a comment\n```\n## `check`, and `crash`\n";
    let expected = [
        "check-and-crash",
        "check-and-crash-1",
        "what-it-does-not-see",
    ];
    assert_eq!(
        headings(text),
        expected.into_iter().map(str::to_owned).collect()
    );
}

/// All Markdown files of the repository, except those that a build leaves behind.
fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy();
            if path.is_dir() {
                if name != "target" && name != ".git" {
                    folders.push(path);
                }
            } else if name.ends_with(".md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace")
        .to_owned()
}

/// The targets of the links and pictures of a page that stay inside the repository.
fn links(text: &str) -> Vec<String> {
    prose(text)
        .flat_map(|line| {
            let line = without_code(line);
            line.split("](")
                .skip(1)
                .filter_map(|rest| match rest.strip_prefix('<') {
                    Some(rest) => rest.split_once(">)"),
                    None => rest.split_once(')'),
                })
                .map(|(target, _)| target.to_owned())
                .collect::<Vec<_>>()
        })
        .filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
        .collect()
}

/// The lines outside fenced code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// A line without its `code`.
fn without_code(line: &str) -> String {
    line.split('`')
        .step_by(2)
        .collect::<Vec<_>>()
        .join("\u{1a}")
}

fn resolves(page: &Path, link: &str) -> bool {
    let (path, fragment) = link
        .split_once('#')
        .map_or((link, None), |(path, fragment)| (path, Some(fragment)));
    let target = if path.is_empty() {
        page.to_owned()
    } else {
        page.parent().expect("a folder").join(path)
    };
    match fragment {
        None => target.exists(),
        Some(fragment) => {
            fs::read_to_string(target).is_ok_and(|text| headings(&text).contains(fragment))
        }
    }
}

/// The fragments that name the headings of a page: lower case, hyphens for spaces, no punctuation.
fn headings(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for line in prose(text).filter(|line| line.starts_with('#')) {
        let name: String = line
            .trim_start_matches('#')
            .trim()
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| {
                if c == ' ' {
                    '-'
                } else {
                    c.to_ascii_lowercase()
                }
            })
            .collect();
        let mut unique = name.clone();
        let mut count = 0;
        while !names.insert(unique.clone()) {
            count += 1;
            unique = format!("{name}-{count}");
        }
    }
    names
}
