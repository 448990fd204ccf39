//! Options that take one of a few words.

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use powerfail_finding::{Class, Code};
use powerfail_model::files::FileSystem;
use powerfail_model::{Atomicity, Domain};
use serde::de::{Deserializer, Error};

use super::{Value, value_from_text};

/// Reads a word by the names that the command line has for it.
fn read_choice<'de, D: Deserializer<'de>, T: ValueEnum>(from: D) -> Result<T, D::Error> {
    let Word(text) = Word::read(from)?;
    T::from_str(&text, false).map_err(|_| {
        let names = T::value_variants()
            .iter()
            .filter_map(ValueEnum::to_possible_value)
            .map(|value| value.get_name().to_owned());
        unknown(&text, &names.collect::<Vec<_>>())
    })
}

/// The error for a word that is not one of the names.
fn unknown<E: Error>(text: &str, names: &[String]) -> E {
    let expected = match names {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    };
    E::custom(format!("invalid value `{text}`: expected {expected}"))
}

/// One word. A number is the word that it is written as.
struct Word(String);

impl std::str::FromStr for Word {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

value_from_text!(Word, "a word in quotes");

macro_rules! value_from_choice {
    ($($type:ty),*) => {
        $(impl Value for $type {
            fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                read_choice(from)
            }
        })*
    };
}
value_from_choice!(
    Strategy,
    FailurePoints,
    Infer,
    Deny,
    Backend,
    Mode,
    Stacks,
    Input
);

/// Which contents of memory after a crash are tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Strategy {
    /// All stores before the failure survive
    #[default]
    Prefix,
    /// Every combination of stores that may survive, up to --threshold for each segment, then a sample
    Eager,
    /// Every content that recovery can tell apart: lines are lost or kept when recovery reads them
    Lazy,
}

/// Before which events the power fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FailurePoints {
    /// Before each flush
    Flush,
    /// Before each fence
    Fence,
    /// Before each store
    Store,
    /// Before each flush, fence and store
    All,
    /// Before each clflush
    Clflush,
    /// Before each clflushopt
    Clflushopt,
    /// Before each clwb
    Clwb,
    /// Before each sfence
    Sfence,
    /// Before each mfence
    Mfence,
    /// Before each locked operation
    Locked,
    /// Before each msync, fsync and fdatasync
    Msync,
}

/// What is done with inferred commit variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Infer {
    /// Report them
    Propose,
    /// Report them, and do not report reads of them as races
    Use,
}

/// What is counted as a bug besides errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Deny {
    /// Warnings
    Warnings,
}

/// Which recorder a workload gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// QEMU for a statically linked program, else a preloaded library
    #[default]
    Auto,
    /// A preloaded library: nearly native speed, and everything can be recorded
    Preload,
    /// QEMU with a plugin: also for programs that load no libraries
    Qemu,
}

/// How the recorder intercepts stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Patch each instruction after its first fault: nearly native speed
    #[default]
    Patch,
    /// Let every store fault: slow, and independent of patching
    Trap,
}

/// What is recorded of the call stack of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Stacks {
    /// The whole call stack
    #[default]
    Full,
    /// Only the instruction: slightly faster
    Sites,
    /// Nothing
    None,
}

/// How the target of a campaign gets its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Input {
    /// On standard input
    Stdin,
    /// In a file: {input} is its path
    File,
    /// As arguments: the words of the input replace {input}
    Args,
}

/// A restriction of the report to one code or one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Only {
    /// Findings with this code.
    Code(Code),
    /// Findings of this class.
    Class(Class),
}

impl Only {
    /// Whether findings with a code are reported.
    pub fn admits(self, code: Code) -> bool {
        match self {
            Self::Code(wanted) => wanted == code,
            Self::Class(wanted) => wanted == code.class(),
        }
    }
}

impl std::str::FromStr for Only {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let code = text.parse().map(Self::Code);
        code.or_else(|_| text.parse().map(Self::Class))
            .map_err(|_| {
                format!("`{text}` is neither a code such as PF0101 nor a class such as durability")
            })
    }
}

value_from_text!(
    Only,
    "a code such as \"PF0101\" or a class such as \"durability\""
);

const DOMAINS: [(Domain, &str); 3] = [
    (Domain::Adr, "Memory only; caches are lost"),
    (Domain::Eadr, "Memory and caches"),
    (
        Domain::PageCache,
        "An ordinary mmapped file: only msync and fsync make it durable",
    ),
];

/// The command line's parser of persistence domains.
pub fn domains() -> impl TypedValueParser<Value = Domain> {
    let values = DOMAINS.map(|(domain, help)| PossibleValue::new(domain.name()).help(help));
    PossibleValuesParser::new(values).map(|name| Domain::from_name(&name).unwrap_or_default())
}

impl Value for Domain {
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Word(text) = Word::read(from)?;
        let names = DOMAINS.map(|(domain, _)| domain.name().to_owned());
        Self::from_name(&text).ok_or_else(|| unknown(&text, &names))
    }
}

const fn help_of(file_system: FileSystem) -> &'static str {
    match file_system {
        FileSystem::Linux => {
            "What at least one of ext4, xfs and btrfs permits, with default options"
        }
        FileSystem::Ext4 => "ext4 with default options: data=ordered, auto_da_alloc",
        FileSystem::Xfs => "XFS with default options",
        FileSystem::Btrfs => "Btrfs with default options",
        FileSystem::Posix => "Any file system: only what was synced is sure",
    }
}

/// The command line's parser of file systems.
pub(crate) fn file_systems() -> impl TypedValueParser<Value = FileSystem> {
    let value = |it: FileSystem| PossibleValue::new(it.as_str()).help(help_of(it));
    let values = FileSystem::ALL.map(value);
    PossibleValuesParser::new(values).map(|name| name.parse().unwrap_or_default())
}

impl Value for FileSystem {
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Word(text) = Word::read(from)?;
        let names = Self::ALL.map(|it| it.as_str().to_owned());
        text.parse().map_err(|_| unknown(&text, &names))
    }
}

const ATOMICITIES: [(Atomicity, &str); 2] = [
    (
        Atomicity::Store,
        "A store, as far as it lies in one cache line",
    ),
    (Atomicity::Word, "Aligned words of 8 bytes"),
];

/// The command line's parser of units of atomicity.
pub fn atomicities() -> impl TypedValueParser<Value = Atomicity> {
    let values = ATOMICITIES.map(|(unit, help)| PossibleValue::new(unit.name()).help(help));
    PossibleValuesParser::new(values).map(|name| Atomicity::from_name(&name).unwrap_or_default())
}

impl Value for Atomicity {
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Word(text) = Word::read(from)?;
        let names = ATOMICITIES.map(|(unit, _)| unit.name().to_owned());
        Self::from_name(&text).ok_or_else(|| unknown(&text, &names))
    }
}
