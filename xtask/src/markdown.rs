//! Links and headings of Markdown pages. It knows what the pages of this repository use, and no more.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The targets of the links and pictures of a page that stay inside the repository.
pub fn links(text: &str) -> Vec<String> {
    let mut links = Vec::new();
    map_links(text, |target| {
        links.push(target.to_owned());
        None
    });
    links
}

/// A page with other targets: `replace` is given each target inside the repository, and what it returns takes its
/// place.
pub fn map_links(text: &str, mut replace: impl FnMut(&str) -> Option<String>) -> String {
    let mut out = String::new();
    let mut is_fenced = false;
    for line in text.split_inclusive('\n') {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        if is_fenced || is_fence {
            out.push_str(line);
            continue;
        }
        // What is between backquotes is code.
        for (number, part) in line.split('`').enumerate() {
            if number > 0 {
                out.push('`');
            }
            if number % 2 == 1 {
                out.push_str(part);
            } else {
                map_part(part, &mut out, &mut replace);
            }
        }
    }
    out
}

fn map_part(part: &str, out: &mut String, replace: &mut impl FnMut(&str) -> Option<String>) {
    let mut pieces = part.split("](");
    out.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        out.push_str("](");
        let (open, found) = match piece.strip_prefix('<') {
            Some(rest) => ("<", rest.split_once(">)").map(|it| (it.0, ">)", it.1))),
            None => ("", piece.split_once(')').map(|it| (it.0, ")", it.1))),
        };
        let Some((target, close, rest)) = found else {
            out.push_str(piece);
            continue;
        };
        let is_inside = !target.contains("://") && !target.starts_with("mailto:");
        let other = is_inside.then(|| replace(target)).flatten();
        out.push_str(open);
        out.push_str(other.as_deref().unwrap_or(target));
        out.push_str(close);
        out.push_str(rest);
    }
}

/// The lines outside fenced code.
pub fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// The title of a page.
pub fn title(text: &str) -> Option<String> {
    let title = prose(text).find_map(|line| line.strip_prefix("# "));
    title.map(|title| title.replace(['`', '*'], ""))
}

/// The fragments that name the headings of a page: lower case, hyphens for spaces, no punctuation.
pub fn headings(text: &str) -> BTreeSet<String> {
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

/// All Markdown files below a folder, except those that a build creates.
pub fn pages(folder: &Path) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    let mut folders = vec![folder.to_owned()];
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

/// Whether a link of a page leads to a file or folder, and its fragment to a heading.
pub fn resolves(page: &Path, link: &str) -> bool {
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

#[cfg(test)]
mod tests {
    use super::{headings, links, map_links};

    #[test]
    fn links_in_code_are_not_links() {
        let text = "[a](b.md) `[c](d.md)` [e](<f g.md>)\n```\n[h](i.md)\n```\n![j](k.svg) [l](https://m)\n";
        assert_eq!(links(text), ["b.md", "f g.md", "k.svg"]);
        let other = map_links(text, |target| (target == "b.md").then(|| "x".to_owned()));
        assert_eq!(other, text.replacen("b.md", "x", 1));
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
}
