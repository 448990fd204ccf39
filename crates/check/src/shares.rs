//! The shares of a run: output directories of commands with `--partition`, which `powerfail merge` joins.
//!
//! [`Shares::open`] proves that they are the shares of one run and that each is there once and was finished. Then the run
//! is done as a whole, with the outcomes of all shares.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use powerfail_config::Partition;

use crate::outcomes::{About, NAME, Outcomes, OutcomesError, Stored};

/// How many lost shares are named.
const NAMED_MAX: usize = 16;

/// Why directories are not the shares of a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SharesError {
    /// There are none.
    #[error("there is nothing to merge")]
    None,
    /// The outcomes of a directory cannot be read.
    #[error(transparent)]
    Outcomes(#[from] OutcomesError),
    /// A directory is not that of a share.
    #[error(
        "{} is not the output directory of a command with --partition: it has no file `{NAME}` of a share",
        path.display()
    )]
    NotAShare {
        /// The directory.
        path: PathBuf,
    },
    /// Two directories are of different runs.
    #[error("{} and {} are not shares of one run: {what}", one.display(), other.display())]
    Differ {
        /// One of them.
        one: PathBuf,
        /// The other.
        other: PathBuf,
        /// What is different.
        what: &'static str,
    },
    /// Two directories are the same share.
    #[error("share {share} is there twice: {} and {}", one.display(), other.display())]
    Double {
        /// The share.
        share: Partition,
        /// One of them.
        one: PathBuf,
        /// The other.
        other: PathBuf,
    },
    /// Shares are not there, or did not come to their end.
    #[error("{}", Lost(lost))]
    Lost {
        /// The shares.
        lost: Vec<LostShare>,
    },
    /// The result would replace a share.
    #[error("{} is one of the shares, and the result would replace it; give another --out", path.display())]
    Replaced {
        /// The directory.
        path: PathBuf,
    },
    /// The command that the shares name does something else now.
    #[error(
        "the command of the shares is not the same here: {what}; merge in the directory in which they ran, with the same \
         powerfail.toml, trace and environment"
    )]
    Changed {
        /// What is different.
        what: &'static str,
    },
}

/// A share that is not there, or did not come to its end.
#[derive(Clone, Debug)]
pub struct LostShare {
    /// Which one.
    pub share: Partition,
    /// Its directory, if it was begun.
    pub directory: Option<PathBuf>,
    /// The command that runs the rest of it.
    pub command: String,
}

/// All lost shares as one sentence.
struct Lost<'a>(&'a [LostShare]);

impl fmt::Display for Lost<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, lost) in self.0.iter().take(NAMED_MAX).enumerate() {
            if number > 0 {
                to.write_str("; ")?;
            }
            match &lost.directory {
                Some(directory) => write!(
                    to,
                    "share {} in {} was not finished",
                    lost.share,
                    directory.display()
                )?,
                None => write!(to, "share {} is missing", lost.share)?,
            }
            write!(to, ", run `{}`", lost.command)?;
        }
        match self.0.len().saturating_sub(NAMED_MAX) {
            0 => Ok(()),
            more => write!(to, "; and {more} more"),
        }
    }
}

/// The shares of a run, each of them once, in their order.
pub struct Shares {
    stored: Vec<Stored>,
}

impl fmt::Debug for Shares {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Shares")
            .field("count", &self.stored.len())
            .finish_non_exhaustive()
    }
}

impl Shares {
    /// Opens the output directories of all shares of a run, in any order.
    pub fn open(directories: &[PathBuf]) -> Result<Self, SharesError> {
        let mut shares: BTreeMap<u64, (PathBuf, Partition, Stored)> = BTreeMap::new();
        let mut first: Option<(PathBuf, Partition, About)> = None;
        for path in directories {
            let not_a_share = || SharesError::NotAShare { path: path.clone() };
            let stored = Stored::read(path)?.ok_or_else(not_a_share)?;
            let share = stored.about.partition().ok_or_else(not_a_share)?;
            let (one, first_share, about) =
                first.get_or_insert_with(|| (path.clone(), share, stored.about.clone()));
            let is_other = first_share.of() != share.of();
            let what = about.difference(&stored.about);
            let what = what.or(is_other.then_some("the number of shares is another one"));
            if let Some(what) = what {
                return Err(SharesError::Differ {
                    one: one.clone(),
                    other: path.clone(),
                    what,
                });
            }
            if let Some((one, _, _)) = shares.get(&share.number()) {
                return Err(SharesError::Double {
                    share,
                    one: one.clone(),
                    other: path.clone(),
                });
            }
            shares.insert(share.number(), (path.clone(), share, stored));
        }
        let Some((_, share, about)) = first else {
            return Err(SharesError::None);
        };
        let known: Vec<(&Path, Partition)> = { shares.values() }
            .map(|(path, share, _)| (&**path, *share))
            .collect();
        let lost = (1..=share.of()).filter_map(|number| {
            let share = Partition::new(number, share.of())?;
            match shares.get(&number) {
                Some((_, _, stored)) if stored.is_finished => None,
                Some((path, _, stored)) => Some(LostShare {
                    share,
                    directory: Some(path.clone()),
                    command: command(&stored.about.arguments, share, Output::Begun(path)),
                }),
                None => Some(LostShare {
                    share,
                    directory: None,
                    command: command(
                        &about.arguments,
                        share,
                        Output::New(&directory_of(share, &known)),
                    ),
                }),
            }
        });
        let lost: Vec<LostShare> = lost.collect();
        if !lost.is_empty() {
            return Err(SharesError::Lost { lost });
        }
        let stored = shares.into_values().map(|(_, _, stored)| stored);
        Ok(Self {
            stored: stored.collect(),
        })
    }

    /// Refuses an output directory that is one of the shares: what is merged would be gone before it is read.
    pub fn refuse(directories: &[PathBuf], out: &Path) -> Result<(), SharesError> {
        let Ok(found) = out.canonicalize() else {
            return Ok(());
        };
        let is_out = |path: &PathBuf| path.canonicalize().is_ok_and(|it| it == found);
        match directories.iter().find(|path| is_out(path)) {
            Some(path) => Err(SharesError::Replaced { path: path.clone() }),
            None => Ok(()),
        }
    }

    /// The arguments of powerfail in the first share.
    pub fn arguments(&self) -> &[OsString] {
        self.stored
            .first()
            .map_or(&[], |stored| &stored.about.arguments)
    }

    /// The outcomes of all shares. New ones are kept in `out`.
    pub(crate) fn outcomes(self, about: &About, out: &Path) -> Result<Outcomes, SharesError> {
        if let Some(stored) = self.stored.first()
            && let Some(what) = stored.about.difference(about)
        {
            return Err(SharesError::Changed { what });
        }
        Ok(Outcomes::join(self.stored, about, out)?)
    }
}

/// Where the outcomes of a share are kept.
#[derive(Clone, Copy)]
enum Output<'a> {
    /// In a new directory.
    New(&'a Path),
    /// In the directory of a run that was not finished.
    Begun(&'a Path),
}

/// The directory for a share that is missing, named like that of another one if its name has the number of its share.
fn directory_of(share: Partition, others: &[(&Path, Partition)]) -> PathBuf {
    let alike = others.iter().find_map(|(path, other)| {
        let name = path.file_name()?.to_str()?;
        let number = other.number().to_string();
        let is_digit = |letter: char| letter.is_ascii_digit();
        let parts = { name.match_indices(&number) }
            .map(|(at, _)| (&name[..at], &name[at + number.len()..]));
        let mut whole = parts
            .filter(|(before, after)| !before.ends_with(is_digit) && !after.starts_with(is_digit));
        let (before, after) = whole.next()?;
        Some(path.with_file_name(format!("{before}{}{after}", share.number())))
    });
    let usual = || format!("powerfail-out.{}-of-{}", share.number(), share.of()).into();
    alike.unwrap_or_else(usual)
}

/// The command that runs a share, or resumes it if it was begun.
fn command(arguments: &[OsString], share: Partition, output: Output<'_>) -> String {
    let mut words = vec!["powerfail".to_owned()];
    let mut given = arguments.iter().map(|it| it.to_string_lossy().into_owned());
    let mut added = vec!["--partition".to_owned(), share.to_string()];
    let (Output::New(directory) | Output::Begun(directory)) = output;
    added.extend(["--out".to_owned(), directory.display().to_string()]);
    if matches!(output, Output::Begun(_)) {
        added.push("--resume".to_owned());
    }
    while let Some(word) = given.next() {
        match word.split_once('=').map_or(&*word, |(name, _)| name) {
            "--partition" | "--out" if !word.contains('=') => {
                given.next();
            }
            "--partition" | "--out" | "--resume" => {}
            // What follows is a command.
            "--" => {
                words.append(&mut added);
                words.push(word);
                words.extend(given.by_ref());
            }
            _ => words.push(word),
        }
    }
    words.append(&mut added);
    let joined = shlex::try_join(words.iter().map(String::as_str));
    joined.unwrap_or_else(|_| words.join(" "))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::Path;

    use powerfail_config::Partition;

    use super::{Output, command, directory_of};

    #[test]
    fn the_command_of_a_share_is_that_of_another_with_its_number() {
        let words = "crash run.trace --partition 1/4 --out a --recover './x {pool}' --seed=3";
        let words = shlex::split(words).unwrap();
        let words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
        let share = Partition::new(3, 4).unwrap();
        let split = |command: String| shlex::split(&command).unwrap();
        let same = ["powerfail", "crash", "run.trace", "--recover", "./x {pool}"];
        let mut expected = same.to_vec();
        expected.extend(["--seed=3", "--partition", "3/4", "--out", "b c"]);
        let directory = "b c".as_ref();
        assert_eq!(
            split(command(&words, share, Output::New(directory))),
            expected
        );
        expected.push("--resume");
        assert_eq!(
            split(command(&words, share, Output::Begun(directory))),
            expected
        );
    }

    #[test]
    fn a_missing_share_gets_a_directory_like_the_others() {
        let share = |number| Partition::new(number, 12).unwrap();
        let named = |path: &str, number| {
            let others = [(Path::new(path), share(number))];
            directory_of(share(3), &others).display().to_string()
        };
        assert_eq!(named("runs/share-1", 1), "runs/share-3");
        assert_eq!(named("runs/part1of12", 1), "runs/part3of12");
        // It does not end in the number of its share.
        assert_eq!(named("runs/share-12", 2), "powerfail-out.3-of-12");
        assert_eq!(named("runs/out", 1), "powerfail-out.3-of-12");
    }
}
