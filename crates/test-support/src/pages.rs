//! Commands that pages of the documentation show.

/// The commands of powerfail in blocks of a page. `is_chosen` is given the line that opens a block. A command may continue on
/// the next line after a backslash. The prompt of a terminal is left out.
pub fn commands(page: &str, is_chosen: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    let (mut is_inside, mut line) = (false, String::new());
    for part in page.lines() {
        if part.starts_with("```") {
            is_inside = is_chosen(part);
            continue;
        }
        match part.strip_suffix('\\') {
            Some(part) => line += part,
            None => {
                line += part;
                let command = line.strip_prefix("$ ").unwrap_or(&line).trim();
                if is_inside && command.starts_with("powerfail ") {
                    found.push(command.to_owned());
                }
                line.clear();
            }
        }
    }
    found
}
