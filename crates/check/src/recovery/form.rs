//! The text forms of typed values in `recovery.json`. Older files have the same texts.

#![allow(
    clippy::trivially_copy_pass_by_ref,
    clippy::ref_option,
    reason = "serde calls these functions with references to fields"
)]

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A domain by its name.
pub(super) mod domain {
    use super::{Deserialize, Deserializer, Error, Serializer};
    use powerfail_model::Domain;

    pub(in super::super) fn serialize<S: Serializer>(
        domain: &Domain,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_str(domain.name())
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Domain, D::Error> {
        let name = String::deserialize(from)?;
        Domain::from_name(&name)
            .ok_or_else(|| D::Error::custom(format!("unknown persistency domain `{name}`")))
    }
}

/// An atomicity by its name. Older files may have none.
pub(super) mod atomicity {
    use super::{Deserialize, Deserializer, Error, Serializer};
    use powerfail_model::Atomicity;

    pub(in super::super) fn serialize<S: Serializer>(
        atomicity: &Atomicity,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_str(atomicity.name())
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Atomicity, D::Error> {
        let Some(name) = Option::<String>::deserialize(from)? else {
            return Ok(Atomicity::default());
        };
        Atomicity::from_name(&name)
            .ok_or_else(|| D::Error::custom(format!("unknown atomicity `{name}`")))
    }
}

/// A file system by its name. Older files may have none.
pub(super) mod file_system {
    use super::{Deserialize, Deserializer, Error, Serializer};
    use powerfail_model::files::FileSystem;

    pub(in super::super) fn serialize<S: Serializer>(
        file_system: &FileSystem,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_str(file_system.as_str())
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<FileSystem, D::Error> {
        let Some(name) = Option::<String>::deserialize(from)? else {
            return Ok(FileSystem::default());
        };
        name.parse()
            .map_err(|_| D::Error::custom(format!("unknown file system `{name}`")))
    }
}

/// A readiness check as `--ready` has it.
pub(super) mod ready {
    use super::{Deserialize, Deserializer, Error, Serialize, Serializer};
    use powerfail_oracle::Ready;

    pub(in super::super) fn serialize<S: Serializer>(
        ready: &Option<Ready>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        ready.as_ref().map(ToString::to_string).serialize(to)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Ready>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        let ready = text.map(|text| text.parse()).transpose();
        ready.map_err(D::Error::custom)
    }
}

/// Regular expressions.
pub(super) mod patterns {
    use super::{Deserialize, Deserializer, Error, Serializer};
    use regex::bytes::Regex;

    pub(in super::super) fn serialize<S: Serializer>(
        patterns: &[Regex],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(patterns.iter().map(Regex::as_str))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<Regex>, D::Error> {
        let texts = Vec::<String>::deserialize(from)?;
        let patterns = texts.iter().map(|text| Regex::new(text));
        let patterns: Result<_, _> = patterns.collect();
        patterns.map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use powerfail_model::{Atomicity, Domain};

    use crate::recovery::Recovery;

    /// What earlier versions have written.
    const OLD: &str = r#"{
        "recover": [{"Unix": [97]}], "checker": null, "dump": null, "client": null,
        "ready": "output:ready.*", "stop": null, "timeout": {"secs": 10, "nanos": 0},
        "ok_exit": [3], "fail_patterns": ["panic(ked)?"], "memory_bytes": null, "file_bytes": null,
        "working_directory": "/tmp", "domain": "eadr", "atomicity": null, "fill": 7
    }"#;

    #[test]
    fn older_files_are_read() {
        let recovery: Recovery = serde_json::from_str(OLD).unwrap();
        assert_eq!(recovery.domain, Domain::Eadr);
        assert_eq!(recovery.atomicity, Atomicity::default());
        assert_eq!(recovery.fail_patterns[0].as_str(), "panic(ked)?");
        let text = serde_json::to_string(&recovery).unwrap();
        assert!(text.contains(r#""ready":"output:ready.*""#), "{text}");
        assert!(text.contains(r#""domain":"eadr""#), "{text}");
        assert!(
            text.contains(r#""fail_patterns":["panic(ked)?"]"#),
            "{text}"
        );
        let again: Recovery = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&again).unwrap(), text);
    }

    #[test]
    fn an_unknown_domain_is_an_error() {
        let text = OLD.replace("eadr", "magic");
        let error = serde_json::from_str::<Recovery>(&text).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("unknown persistency domain `magic`")
        );
    }
}
