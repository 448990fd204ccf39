//! The configuration file of the working directory.

use anyhow::Context;
use powerfail_config::{Config, FILE_NAME};

/// The configuration file, or an empty one if there is none.
pub(crate) fn configuration() -> anyhow::Result<Config> {
    match std::fs::read_to_string(FILE_NAME) {
        Ok(text) => Config::parse(&text).context(FILE_NAME),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Config::default()),
        Err(error) => Err(error).context(FILE_NAME),
    }
}
