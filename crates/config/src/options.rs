//! Options of the commands: one definition for the command line, the configuration file and the default.
//!
//! A group of options is written once, with [`options!`]: name, help, type and default of each. That makes
//! - `…Args`, in which every option may be absent. clap fills it from the command line, serde from a section
//!   of `powerfail.toml`, and `over` combines the two.
//! - `…Settings`, in which absent options have their defaults. The rest of powerfail sees only settings.
//!
//! A command's options are several groups, combined with [`sections!`]. What depends on more than one option
//! is decided in the `settle` method of the command's arguments, and nowhere else.

mod check;
mod crash;
mod explore;
mod failures;
mod fuzz;
mod races;
mod record;
mod recovery;
mod report;
mod server;
mod shares;

pub use check::{CHECK_BUDGET, CheckArgs, CheckOwnArgs, CheckOwnSettings, CheckSettings};
pub use crash::{CrashArgs, CrashSettings, CrashStrategy, StrategyArgs, StrategySettings};
pub use explore::{EagerArgs, EagerSettings, LazyArgs, LazySettings, RaceArgs, RaceSettings};
pub use failures::{FailureArgs, FailureSettings};
pub use fuzz::{
    CampaignArgs, CampaignSettings, FuzzArgs, FuzzCheckArgs, FuzzCheckSettings, FuzzSettings,
    InstanceArgs, InstanceSettings, TargetArgs, TargetSettings,
};
pub use races::{RacesArgs, RacesSettings};
pub use record::{
    RecordArgs, RecordOwnArgs, RecordOwnSettings, RecordSettings, RecordingArgs, RecordingSettings,
    Schedule,
};
pub use recovery::{RecoveryArgs, RecoverySettings};
pub use report::{
    DomainArgs, DomainSettings, LintArgs, LintSettings, OutputArgs, OutputSettings, ReportArgs,
    ReportSettings,
};
pub use server::{ServerArgs, ServerSettings, TestArgs, TestSettings};
pub use shares::{ShareArgs, ShareSettings};

use crate::error::ConfigError;
use crate::table::Table;

/// Options that can be read from a section of the configuration file.
pub(crate) trait Section: clap::Args + Sized {
    /// Reads those of its keys that are there. Other keys are ignored.
    fn read(table: &Table<'_>) -> Result<Self, ConfigError>;
}

/// Defines a group of options; see the module.
///
/// The groups have a heading in the help of the command, unless they are general. Each option is its help, what clap is told besides, its name and type, and its default if it has one. A
/// function before the name combines the option with that of the fallback; usually the option replaces it.
macro_rules! options {
    (
        $(#[$about:meta])*
        $args:ident => $settings:ident $(, $heading:literal)? {
            $(
                $(#[$help:meta])*
                [$($arg:tt)*]
                $(($merge:path))? $name:ident: $type:ty $(= $default:expr)?,
            )*
        }
    ) => {
        #[derive(Clone, Debug, Default, clap::Args, serde::Deserialize)]
        $(#[$about])*
        ///
        /// As given: an option may be absent.
        $(#[command(next_help_heading = $heading)])?
        #[serde(default, rename_all = "kebab-case")]
        pub struct $args {
            $(
                $(#[$help])*
                #[arg($($arg)*)]
                #[serde(deserialize_with = "crate::value::read")]
                pub $name: Option<$type>,
            )*
        }

        $(#[$about])*
        ///
        /// Absent options have their defaults.
        #[derive(Clone, Debug)]
        pub struct $settings {
            $(
                $(#[$help])*
                pub $name: $crate::options::settings_type!($type $(= $default)?),
            )*
        }

        impl $args {
            /// These options, and those of `fallback` where an option is absent.
            #[must_use]
            pub fn over(self, fallback: Self) -> Self {
                Self {
                    $($name: $crate::options::merged!(self.$name, fallback.$name $(, $merge)?),)*
                }
            }

            /// The settings: absent options get their defaults.
            pub fn resolve(self) -> $settings {
                $settings {
                    $($name: $crate::options::resolved!(self.$name $(, $default)?),)*
                }
            }
        }

        impl $crate::options::Section for $args {
            fn read(table: &$crate::table::Table<'_>) -> Result<Self, $crate::error::ConfigError> {
                table.deserialize()
            }
        }
    };
}

/// The type of a setting: that of the option, optional unless it has a default.
macro_rules! settings_type {
    ($type:ty) => { Option<$type> };
    ($type:ty = $default:expr) => { $type };
}

/// An option over its fallback.
macro_rules! merged {
    ($value:expr, $fallback:expr) => {
        $value.or($fallback)
    };
    ($value:expr, $fallback:expr, $merge:path) => {
        $merge($value, $fallback)
    };
}

/// A list after its fallback.
fn appended<T>(given: Option<Vec<T>>, fallback: Option<Vec<T>>) -> Option<Vec<T>> {
    match (fallback, given) {
        (Some(mut all), Some(more)) => {
            all.extend(more);
            Some(all)
        }
        (fallback, given) => given.or(fallback),
    }
}

/// The value of a setting.
macro_rules! resolved {
    ($value:expr) => {
        $value
    };
    ($value:expr, $default:expr) => {
        $value.unwrap_or_else(|| $default)
    };
}

/// Combines groups of options.
macro_rules! sections {
    (
        $(#[$about:meta])*
        $args:ident {
            $(
                $(#[$how:meta])*
                $group:ident: $type:ty,
            )*
        }
    ) => {
        #[derive(Clone, Debug, Default, clap::Args)]
        $(#[$about])*
        pub struct $args {
            $(
                #[doc = concat!("See [`", stringify!($type), "`].")]
                $(#[$how])*
                #[command(flatten)]
                pub $group: $type,
            )*
        }

        impl $args {
            /// These options, and those of `fallback` where an option is absent.
            #[must_use]
            pub fn over(self, fallback: Self) -> Self {
                Self { $($group: self.$group.over(fallback.$group),)* }
            }
        }

        impl $crate::options::Section for $args {
            fn read(table: &$crate::table::Table<'_>) -> Result<Self, $crate::error::ConfigError> {
                Ok(Self { $($group: $crate::options::Section::read(table)?,)* })
            }
        }
    };
}

pub(crate) use {merged, options, resolved, sections, settings_type};
