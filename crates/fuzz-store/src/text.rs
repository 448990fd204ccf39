//! How identifiers and inputs are written in lines of JSON.

use powerfail_finding::hex;
use powerfail_image::ImageId;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An image in a line: its hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IdText(pub ImageId);

impl Serialize for IdText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for IdText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

/// An input in a line: as text if it is UTF-8, else as digits, or as a position in a pack if it is long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum InputText {
    Text(String),
    Hex(String),
    Stored {
        at: u64,
        len: u32,
        input_len: u64,
        hash: String,
    },
}

impl InputText {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Hex(hex(bytes)),
        }
    }
}
