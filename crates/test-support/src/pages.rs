//! What pages of the documentation show of a shell.

/// A command of a page.
#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    /// As a shell takes it, without the prompt.
    pub command: String,
    /// What it prints, where the page shows a terminal; it can be nothing. In a block of commands alone there is none.
    pub shown: Option<Vec<String>>,
}

/// All commands in blocks of a page, in their order: those of ```` ```sh ````, which are commands alone, and those of
/// ```` ```console ````, which have a prompt and are followed by what they print. A command may continue on the next line
/// after a backslash.
pub fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let (mut block, mut begun) = ("", String::new());
    for line in page.lines() {
        if let Some(opening) = line.strip_prefix("```") {
            block = opening;
            continue;
        }
        let command = match block {
            "console" if begun.is_empty() => line.strip_prefix("$ "),
            // After a backslash there is no prompt.
            "sh" | "console" => Some(line),
            _ => continue,
        };
        let Some(command) = command else {
            let step = steps.last_mut().and_then(|it| it.shown.as_mut());
            step.expect("a command comes first").push(line.to_owned());
            continue;
        };
        if let Some(part) = command.strip_suffix('\\') {
            begun += part;
            continue;
        }
        let command = std::mem::take(&mut begun) + command;
        if !command.is_empty() && !command.starts_with('#') {
            steps.push(Step {
                command: command.trim().to_owned(),
                shown: (block == "console").then(Vec::new),
            });
        }
    }
    steps
}

/// The commands of powerfail in a page.
pub fn commands(page: &str) -> Vec<String> {
    let all = steps(page).into_iter().map(|it| it.command);
    all.filter(|it| it.starts_with("powerfail ")).collect()
}

/// Whether lines are what a page shows. There `...` is any number of lines, `[..]` any text in a line.
pub fn matches(shown: &[String], lines: &[&str]) -> bool {
    match shown.split_first() {
        None => lines.is_empty(),
        Some((first, rest)) if first == "..." => {
            (0..=lines.len()).any(|skipped| matches(rest, &lines[skipped..]))
        }
        Some((first, rest)) => lines.split_first().is_some_and(|(line, lines)| {
            line_matches(first, line.trim_end()) && matches(rest, lines)
        }),
    }
}

fn line_matches(shown: &str, line: &str) -> bool {
    let Some((before, after)) = shown.split_once("[..]") else {
        return shown == line;
    };
    let Some(rest) = line.strip_prefix(before) else {
        return false;
    };
    let ends = rest.char_indices().map(|it| it.0).chain([rest.len()]);
    ends.into_iter().any(|at| line_matches(after, &rest[at..]))
}

#[cfg(test)]
mod tests {
    use super::{matches, steps};

    fn lines(text: &str) -> Vec<String> {
        text.split('|').map(str::to_owned).collect()
    }

    #[test]
    fn patterns_match_what_they_should() {
        let all = ["a 5 b", "c", "d"];
        assert!(matches(&lines("a [..] b|...|d"), &all));
        assert!(matches(&lines("[..]a [..] b|...|[..]"), &all));
        assert!(matches(&lines("..."), &all));
        assert!(!matches(&lines("a [..] b|c"), &all));
        assert!(!matches(&lines("a [..] x|..."), &all));
        assert!(!matches(&lines("a [..] b [..]|..."), &all));
        assert!(!matches(&[], &all));
    }

    #[test]
    fn steps_are_commands_with_what_they_print() {
        let page = "$ no\n```sh\na \\\n  b  # why\n\n# c\n```\n```text\n$ no\n```\n```console\n$ d \\\n  e\nf\n\n$ g\n```\n";
        let found = steps(page);
        let found: Vec<_> = found.iter().map(|it| (&*it.command, &it.shown)).collect();
        let (shown, empty) = (Some(lines("f|")), Some(Vec::new()));
        assert_eq!(
            found,
            [("a   b  # why", &None), ("d   e", &shown), ("g", &empty)]
        );
    }
}
