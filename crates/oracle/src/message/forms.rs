//! The serde forms of types that have none of their own: paths that need not be UTF-8, regular expressions,
//! and the modules and frames of call stacks. Each module is for `#[serde(with = "...")]`.

/// A path, as the bytes that the kernel knows.
pub(crate) mod path {
    use std::ffi::OsString;
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        path.as_os_str().serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        OsString::deserialize(from).map(PathBuf::from)
    }

    /// A path that may be missing.
    pub(crate) mod option {
        use super::{Deserialize, Deserializer, OsString, PathBuf, Serialize, Serializer};

        #[expect(clippy::ref_option, reason = "serde passes a reference to the field")]
        pub(crate) fn serialize<S: Serializer>(
            path: &Option<PathBuf>,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            path.as_ref().map(|it| it.as_os_str()).serialize(serializer)
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
            from: D,
        ) -> Result<Option<PathBuf>, D::Error> {
            Ok(Option::<OsString>::deserialize(from)?.map(PathBuf::from))
        }
    }

    /// A list of paths.
    pub(crate) mod list {
        use super::{Deserialize, Deserializer, OsString, PathBuf, Serializer};

        pub(crate) fn serialize<S: Serializer>(
            paths: &[PathBuf],
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            serializer.collect_seq(paths.iter().map(|it| it.as_os_str()))
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
            from: D,
        ) -> Result<Vec<PathBuf>, D::Error> {
            let paths = Vec::<OsString>::deserialize(from)?;
            Ok(paths.into_iter().map(PathBuf::from).collect())
        }
    }
}

/// A regular expression, as its text.
pub(crate) mod regex {
    use regex::bytes::Regex;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        pattern: &Regex,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        pattern.as_str().serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Regex, D::Error> {
        Regex::new(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// A list of regular expressions.
pub(crate) mod regexes {
    use regex::bytes::Regex;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        patterns: &[Regex],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(patterns.iter().map(Regex::as_str))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Regex>, D::Error> {
        let patterns = Vec::<String>::deserialize(from)?;
        let compile = |it: &String| Regex::new(it).map_err(D::Error::custom);
        patterns.iter().map(compile).collect()
    }
}

/// A list of modules.
pub(crate) mod modules {
    use std::ffi::OsString;

    use powerfail_trace::Module;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        modules: &[Module],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let forms = modules.iter().map(|it| {
            let path = it.path.as_os_str();
            (path, &it.build_id, it.load_address, it.len_bytes)
        });
        serializer.collect_seq(forms)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Module>, D::Error> {
        let forms = Vec::<(OsString, Vec<u8>, u64, u64)>::deserialize(from)?;
        let module = |(path, build_id, load_address, len_bytes): (OsString, _, _, _)| Module {
            path: path.into(),
            build_id,
            load_address,
            len_bytes,
            function: None,
        };
        Ok(forms.into_iter().map(module).collect())
    }
}

/// The frames of a thread: the number of a module, if there is one, and an offset or address.
pub(crate) mod thread_frames {
    use powerfail_trace::{Frame, ModuleIndex};
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        frames: &[Frame],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(frames.iter().map(|frame| match frame {
            Frame::Module { module, offset } => (Some(module.0), *offset),
            Frame::Absolute { address } => (None, *address),
        }))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Frame>, D::Error> {
        let frames = Vec::<(Option<u32>, u64)>::deserialize(from)?;
        let frame = |(module, offset)| match module {
            Some(module) => Frame::Module {
                module: ModuleIndex(module),
                offset,
            },
            None => Frame::Absolute { address: offset },
        };
        Ok(frames.into_iter().map(frame).collect())
    }
}
