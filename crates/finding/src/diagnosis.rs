//! What is found about a machine or a program before anything is checked.

use serde::Serialize;

/// How well something works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Health {
    /// Everything that needs it works.
    Good,
    /// Checks work without it, but less of them, slower, or with less in the report.
    Limited,
    /// Nothing can be checked without it.
    Missing,
}

/// What a probe has found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// What was probed.
    pub subject: &'static str,
    /// How well it works.
    pub health: Health,
    /// What was found.
    pub fact: String,
    /// What to do about it; `None` if there is nothing to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Diagnosis {
    /// Something that works.
    pub fn good(subject: &'static str, fact: impl Into<String>) -> Self {
        Self {
            subject,
            health: Health::Good,
            fact: fact.into(),
            remedy: None,
        }
    }

    /// Something that does not work, or not well, and what to do about it.
    pub fn bad(
        subject: &'static str,
        health: Health,
        fact: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            subject,
            health,
            fact: fact.into(),
            remedy: Some(remedy.into()),
        }
    }
}
