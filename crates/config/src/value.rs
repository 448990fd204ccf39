//! Values of options: how each type is written on the command line and in the configuration file.
//!
//! A type reads text by [`FromStr`], which the command line uses, and the configuration file reads the same
//! text through [`Value`]. Where TOML has a type of its own (numbers, booleans, lists), the file takes that
//! as well. An error says what was expected, and nothing about where: the caller knows the flag or the line.

mod checks;
mod choices;
mod command;
mod duration;
mod name_pattern;
mod number;
mod partition;
mod pattern;
mod place;
mod report_output;
mod size;

use std::ffi::OsString;
use std::fmt;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::str::FromStr;

use serde::de::{Deserializer, Error, IntoDeserializer, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, de};

pub use checks::CheckNames;
pub(crate) use choices::file_systems;
pub use choices::{Backend, Deny, FailurePoints, Infer, Input, Mode, Only, Stacks, Strategy};
pub use choices::{atomicities, domains};
pub use command::CommandText;
pub use duration::parse_duration;
pub use name_pattern::NamePattern;
pub use number::{Byte, Count, Mebibytes, Rate, ScheduleDepth, Segments, Threads, Whole};
pub use partition::Partition;
pub use pattern::Pattern;
pub use place::{Address, Port};
pub use report_output::{Format, ReportOutput};
pub use size::{HeapSize, parse_size};

/// A value that the configuration file can hold.
pub(crate) trait Value: Sized {
    /// Whether a single value may stand for a list of one.
    const MAY_STAND_ALONE: bool = true;

    /// Reads one.
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error>;
}

/// Reads the value of an option; the form that serde's `deserialize_with` takes.
pub(crate) fn read<'de, D: Deserializer<'de>, T: Value>(from: D) -> Result<Option<T>, D::Error> {
    T::read(from).map(Some)
}

/// Reads text, or a whole number as the text that it is written as, and parses it.
pub(crate) fn read_text<'de, D, T>(expected: &'static str, from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr,
    T::Err: fmt::Display,
{
    struct Text<T>(&'static str, PhantomData<T>);

    impl<T> Visitor<'_> for Text<T>
    where
        T: FromStr,
        T::Err: fmt::Display,
    {
        type Value = T;

        fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
            to.write_str(self.0)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            let parsed = text.parse::<T>();
            parsed.map_err(|error| E::custom(format!("invalid value `{text}`: {error}")))
        }

        fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
            let wrong = || E::invalid_type(Unexpected::Signed(number), &self);
            number.to_string().parse().map_err(|_| wrong())
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
            let wrong = || E::invalid_type(Unexpected::Unsigned(number), &self);
            number.to_string().parse().map_err(|_| wrong())
        }
    }

    from.deserialize_any(Text(expected, PhantomData))
}

/// Lets the configuration file hold what [`FromStr`] reads.
macro_rules! value_from_text {
    ($type:ty, $expected:literal) => {
        impl crate::value::Value for $type {
            fn read<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                crate::value::read_text($expected, from)
            }
        }
    };
}
pub(crate) use value_from_text;

/// Lets the configuration file hold what serde reads by itself.
macro_rules! value_as_it_is {
    ($($type:ty),*) => {
        $(impl Value for $type {
            fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                Self::deserialize(from)
            }
        })*
    };
}
value_as_it_is!(bool, u8, u64, String, PathBuf);
value_from_text!(
    powerfail_oracle::Ready,
    "port, port:N, unix:PATH or output:REGEX"
);
value_from_text!(powerfail_finding::Code, "a code such as PF0101");

impl Value for OsString {
    const MAY_STAND_ALONE: bool = false;

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from).map(Into::into)
    }
}

/// An element of a list.
struct Element<T>(T);

impl<'de, T: Value> Deserialize<'de> for Element<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        T::read(from).map(Self)
    }
}

impl<T: Value> Value for Vec<T> {
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct List<T>(PhantomData<T>);

        impl<T: Value> List<T> {
            fn single<'de, E: Error>(
                &self,
                value: impl IntoDeserializer<'de, E>,
                unexpected: Unexpected<'_>,
            ) -> Result<Vec<T>, E> {
                if !T::MAY_STAND_ALONE {
                    return Err(E::invalid_type(unexpected, self));
                }
                Ok(vec![T::read(value.into_deserializer())?])
            }
        }

        impl<'de, T: Value> Visitor<'de> for List<T> {
            type Value = Vec<T>;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("a list")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Vec<T>, E> {
                self.single(text, Unexpected::Str(text))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Vec<T>, E> {
                self.single(number, Unexpected::Signed(number))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Vec<T>, E> {
                self.single(number, Unexpected::Unsigned(number))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
                let mut all = Vec::new();
                while let Some(Element(element)) = list.next_element()? {
                    all.push(element);
                }
                if all.is_empty() && !T::MAY_STAND_ALONE {
                    return Err(de::Error::invalid_length(0, &"at least one element"));
                }
                Ok(all)
            }
        }

        from.deserialize_any(List(PhantomData))
    }
}
