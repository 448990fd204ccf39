//! `--format`: a format of the report, and the file that it is written to.

use std::path::PathBuf;
use std::str::FromStr;

use super::value_from_text;

/// A format of the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Text for people.
    #[default]
    Text,
    /// One JSON object: all that is known.
    Json,
    /// SARIF 2.1.0, which code scanning of GitHub, editors and others read.
    Sarif,
    /// `JUnit` XML, which CI systems show as tests.
    Junit,
    /// Workflow commands that become annotations on GitHub.
    Github,
    /// The code quality report of GitLab.
    Gitlab,
}

impl Format {
    /// All formats, in the order of the help.
    pub const ALL: [Self; 6] = [
        Self::Text,
        Self::Json,
        Self::Sarif,
        Self::Junit,
        Self::Github,
        Self::Gitlab,
    ];

    /// As it is written on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
            Self::Sarif => "sarif",
            Self::Junit => "junit",
            Self::Github => "github",
            Self::Gitlab => "gitlab",
        }
    }
}

/// One output of the report: `json`, or `sarif=out.sarif`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportOutput {
    /// The format.
    pub format: Format,
    /// The file; standard output if there is none.
    pub file: Option<PathBuf>,
}

impl FromStr for ReportOutput {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, file) = match text.split_once('=') {
            Some((name, file)) => (name, Some(file)),
            None => (text, None),
        };
        let mut formats = Format::ALL.into_iter();
        let Some(format) = formats.find(|format| format.as_str() == name) else {
            let names = Format::ALL.map(Format::as_str);
            let (last, first) = names.split_last().unwrap_or((&"", &[]));
            return Err(format!(
                "expected {} or {last}, as in sarif or sarif=FILE",
                first.join(", ")
            ));
        };
        if file == Some("") {
            return Err(format!("the name of the file is missing after {name}="));
        }
        let file = file.map(PathBuf::from);
        Ok(Self { format, file })
    }
}

value_from_text!(
    ReportOutput,
    "a format such as \"json\", or a format with a file such as \"sarif=out.sarif\""
);

#[cfg(test)]
mod tests {
    use super::{Format, ReportOutput};

    #[test]
    fn a_format_may_have_a_file() {
        let parsed = |text: &str| text.parse::<ReportOutput>();
        for format in Format::ALL {
            let (name, file) = (format.as_str(), None);
            assert_eq!(parsed(name), Ok(ReportOutput { format, file }));
        }
        let sarif = parsed("sarif=a=b.sarif").unwrap();
        assert_eq!(sarif.format, Format::Sarif);
        assert_eq!(sarif.file, Some("a=b.sarif".into()));
        assert!(parsed("sarif=").is_err());
        let error = parsed("xml").unwrap_err();
        assert!(error.contains("github or gitlab"), "{error}");
    }
}
