//! `powerfail.toml` as a whole: its sections, and which of them stand in for each other.

use toml::de::DeTable;

use crate::error::{ConfigError, Problem};
use crate::options::{CheckArgs, CrashArgs, FuzzArgs, LintArgs, RacesArgs, RecordArgs, Section};
use crate::suppress::Suppression;
use crate::table::{Key, Table, keys, line_of};

/// The name of the file, which is looked for in the working directory.
pub const FILE_NAME: &str = "powerfail.toml";

/// The content of a configuration file.
///
/// Options that `[crash]`, `[races]`, `[lint]` and `[fuzz]` do not have are those of `[check]`, which is about the
/// same program.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// `[check]`.
    pub check: CheckArgs,
    /// `[crash]`, and `[check]` where that has no option.
    pub crash: CrashArgs,
    /// `[races]`, and `[check]` where that has no option.
    pub races: RacesArgs,
    /// `[lint]`, and `[check]` where that has no option.
    pub lint: LintArgs,
    /// `[fuzz]`, and what of `[check]` is about recovery where that has no option.
    pub fuzz: FuzzArgs,
    /// `[record]`.
    pub record: RecordArgs,
    /// `[[suppress]]`, in the order of the file.
    pub suppress: Vec<Suppression>,
}

impl Config {
    /// Reads the text of a file.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let parsed = DeTable::parse(text).map_err(|error| ConfigError {
            line: line_of(text, error.span().map_or(0, |span| span.start)),
            // Some messages of the parser have several lines.
            problem: Problem::Syntax(error.message().replace('\n', "; ")),
        })?;
        let root = Table {
            name: "",
            text,
            start: 0,
            content: parsed.into_inner(),
        };
        root.allow(&[
            "check", "crash", "races", "lint", "fuzz", "record", "suppress",
        ])?;
        let section = |name, key, keys: &[Key]| {
            let mut table = root.table(name, key)?;
            if let Some(table) = &mut table {
                table.normalise(keys)?;
            }
            Ok::<_, ConfigError>(table)
        };
        let check = section("[check]", "check", &keys_of_check())?;
        let crash = section("[crash]", "crash", &keys::<CrashArgs>())?;
        let races = section("[races]", "races", &keys::<RacesArgs>())?;
        let lint = section("[lint]", "lint", &keys::<LintArgs>())?;
        let fuzz = section("[fuzz]", "fuzz", &keys::<FuzzArgs>())?;
        let record = section("[record]", "record", &keys::<RecordArgs>())?;
        let base: CheckArgs = read(check.as_ref())?;
        Ok(Self {
            crash: read::<CrashArgs>(crash.as_ref())?.over(read(check.as_ref())?),
            races: read::<RacesArgs>(races.as_ref())?.over(read(check.as_ref())?),
            lint: read::<LintArgs>(lint.as_ref())?.over(read(check.as_ref())?),
            fuzz: read::<FuzzArgs>(fuzz.as_ref())?.over(FuzzArgs::of_check(&base)),
            record: read(record.as_ref())?,
            check: base,
            suppress: root
                .tables("[[suppress]]", "suppress")?
                .iter()
                .map(Suppression::read)
                .collect::<Result<_, _>>()?,
        })
    }
}

/// `[check]` also has the options of the commands that it stands in for.
fn keys_of_check() -> Vec<Key> {
    let mut keys = keys::<CheckArgs>();
    keys.extend(self::keys::<CrashArgs>());
    keys.sort();
    keys.dedup();
    keys
}

fn read<T: Section + Default>(table: Option<&Table<'_>>) -> Result<T, ConfigError> {
    table.map_or_else(|| Ok(T::default()), T::read)
}
