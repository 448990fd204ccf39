//! The names of a fresh pool and of a fresh directory in results.
//!
//! The directory of a fresh pool has a random name, which is in the trace. In a report it would differ from run to run, and
//! it means nothing to a user. So results show what the user wrote: `{pool}` or `{dir}`. Nothing else needs to know: paths are replaced
//! in everything that is found, when it is complete.

use powerfail_finding::{Finding, Totals};
use powerfail_trace::{DIRECTORY_NOTE, POOL_NOTE, Trace};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

const SHOWN: &str = "{pool}";
const TREE_SHOWN: &str = "{dir}";
/// The directory of the pool, in which a program may have other files.
const DIRECTORY_SHOWN: &str = "{pool}/..";

/// Replaces the path of a fresh pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FreshName<'t> {
    pool: Option<&'t str>,
    directory: Option<&'t str>,
}

impl<'t> FreshName<'t> {
    pub(crate) fn of(trace: &'t Trace) -> Self {
        Self {
            pool: trace.meta().note(POOL_NOTE),
            directory: trace.meta().note(DIRECTORY_NOTE),
        }
    }

    /// A text without the path.
    pub(crate) fn hide(&self, text: &str) -> String {
        let mut text = text.to_owned();
        if let Some(directory) = self.directory {
            let own = |text: &str| match self.pool {
                Some(pool) => text.replace(pool, SHOWN),
                None => text.to_owned(),
            };
            text = own(&text).replace(directory, TREE_SHOWN);
        }
        let Some(pool) = self.pool else {
            return text;
        };
        let text = text.replace(pool, SHOWN);
        match pool.rsplit_once('/') {
            Some((directory, _)) if !directory.is_empty() => {
                text.replace(directory, DIRECTORY_SHOWN)
            }
            _ => text,
        }
    }

    /// Findings, totals and notes without the path.
    pub(crate) fn hide_in(
        &self,
        findings: &mut [Finding],
        totals: &mut Totals,
        notes: &mut [String],
    ) {
        if self.pool.is_none() && self.directory.is_none() {
            return;
        }
        for finding in findings {
            self.hide_in_value(finding);
        }
        self.hide_in_value(totals);
        for note in notes {
            *note = self.hide(note);
        }
    }

    /// Replaces it in all texts, by way of the form in which they are reported.
    fn hide_in_value<T: Serialize + DeserializeOwned>(&self, value: &mut T) {
        let Ok(mut form) = serde_json::to_value(&*value) else {
            return;
        };
        self.hide_in_form(&mut form);
        if let Ok(hidden) = serde_json::from_value(form) {
            *value = hidden;
        }
    }

    fn hide_in_form(&self, form: &mut Value) {
        match form {
            Value::String(text) => *text = self.hide(text),
            Value::Array(values) => values.iter_mut().for_each(|it| self.hide_in_form(it)),
            Value::Object(fields) => fields.values_mut().for_each(|it| self.hide_in_form(it)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_in_the_directory_of_the_pool_are_shown_as_they_were_written() {
        let name = FreshName {
            pool: Some("/dev/shm/powerfail-fresh-a/pm/pool"),
            directory: None,
        };
        let hidden = name
            .hide("/dev/shm/powerfail-fresh-a/pm/pool.log and /dev/shm/powerfail-fresh-a/pm/other");
        assert_eq!(hidden, "{pool}.log and {pool}/../other");
        let none = FreshName {
            pool: None,
            directory: None,
        };
        assert_eq!(none.hide("/a/pool"), "/a/pool");
        let tree = FreshName {
            pool: None,
            directory: Some("/dev/shm/powerfail-fresh-a/pm"),
        };
        assert_eq!(tree.hide("/dev/shm/powerfail-fresh-a/pm/x"), "{dir}/x");
    }
}
