//! The checks that a campaign runs, by name.

use std::str::FromStr;

use super::value_from_text;

/// Which checks are named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "one for each check")]
pub struct CheckNames {
    /// `lint`
    pub lint: bool,
    /// `prefix`
    pub prefix: bool,
    /// `lazy`
    pub lazy: bool,
    /// `races`
    pub races: bool,
}

impl FromStr for CheckNames {
    type Err = String;

    /// Reads names with commas between them, or `none`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut names = Self::default();
        if text.trim() == "none" {
            return Ok(names);
        }
        for name in text.split(',').map(str::trim) {
            match name {
                "lint" => names.lint = true,
                "prefix" => names.prefix = true,
                "lazy" => names.lazy = true,
                "races" => names.races = true,
                _ => {
                    return Err(format!(
                        "`{name}` is not a check: expected some of lint, prefix, lazy and races, or none"
                    ));
                }
            }
        }
        Ok(names)
    }
}

value_from_text!(CheckNames, "checks such as \"lint,prefix\", or \"none\"");

#[cfg(test)]
mod tests {
    use super::CheckNames;

    #[test]
    fn checks_can_be_none() {
        assert_eq!("none".parse(), Ok(CheckNames::default()));
        let some: CheckNames = "lint, races".parse().unwrap();
        assert!(some.lint && some.races && !some.prefix && !some.lazy);
        for wrong in ["", "lint,none", "lint,,lazy", "magic"] {
            assert!(wrong.parse::<CheckNames>().is_err(), "{wrong}");
        }
    }
}
