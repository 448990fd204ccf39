//! Workflow commands: a line on standard output becomes an annotation of a line in a pull request.

use std::io::{self, Write};

use powerfail_finding::{Report, Severity};

use super::location;
use crate::findings::{TextOptions, outcome_sentence, shown};
use crate::text::printable;

/// One command for each finding.
pub fn github(out: &mut dyn Write, report: &Report, options: &TextOptions<'_>) -> io::Result<()> {
    for finding in shown(report, options) {
        let command = match finding.severity {
            Severity::Error => "error",
            Severity::Performance => "warning",
            Severity::Warning => "notice",
        };
        let mut properties = Vec::new();
        if let Some(location) = location::of_finding(finding, options.base) {
            properties.push(format!("file={}", property(location.path.as_str())));
            properties.push(format!("line={}", location.line));
            properties.extend(location.column.map(|column| format!("col={column}")));
        }
        let title = format!("{}: {}", finding.code, finding.code.title());
        properties.push(format!("title={}", property(&title)));
        let mut message = finding.message.clone();
        if let Some(evidence) = &finding.evidence {
            message = format!("{message}\n{}", outcome_sentence(evidence));
        }
        if let Some(suggestion) = &finding.suggestion {
            message = format!("{message}\nhelp: {suggestion}");
        }
        message = format!("{message}\nfinding {}-{}", finding.code, finding.id);
        writeln!(
            out,
            "::{command} {}::{}",
            properties.join(","),
            data(&message)
        )?;
    }
    Ok(())
}

/// The message of a command.
fn data(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(printable).collect();
    lines.join("\n").replace('%', "%25").replace('\n', "%0A")
}

/// The value of a property.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::{data, property};

    #[test]
    fn what_ends_a_command_is_escaped() {
        assert_eq!(data("100%\nlost: a, b"), "100%25%0Alost: a, b");
        assert_eq!(property("a:b,c%"), "a%3Ab%2Cc%25");
        assert_eq!(data("a\r\nb"), "a%0Ab");
    }
}
