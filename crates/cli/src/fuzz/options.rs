//! From flags, the configuration file and an older campaign to what a campaign is to do. What is wrong is
//! said here, before anything runs.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use powerfail_check::CheckError;
use powerfail_config::CheckSection;
use powerfail_fuzz::{CampaignError, CampaignOptions, InputWay, Together, resumed_options};
use powerfail_fuzz_store::{CorpusError, read_record};
use powerfail_model::{Atomicity, Domain};
use powerfail_oracle::{CommandLine, Oracle, RecoveryPlan, Settings};

use crate::args::{FuzzCampaignArgs, FuzzRecoveryArgs, InputArg};
use crate::settings::fail_patterns;
use crate::words::command;

/// Where a campaign is if nobody says.
const DEFAULT_OUT: &str = "powerfail-fuzz";
const MIB: u64 = 1 << 20;

/// A campaign that can be run.
pub(super) struct Campaign {
    pub(super) options: CampaignOptions,
    /// Where it is, as the user would write it.
    pub(super) shown_out: PathBuf,
}

/// The campaign that flags ask for.
pub(super) fn campaign(
    args: &FuzzCampaignArgs,
    section: &CheckSection,
) -> anyhow::Result<Campaign> {
    refuse_slips(args)?;
    let (shown_out, mut sync) = place(args)?;
    let mut options = if args.resume {
        resumed(args, &shown_out)?
    } else {
        fresh(args, section, &shown_out)?
    };
    sync.extend(args.sync.iter().cloned());
    apply(args, &mut options)?;
    if !sync.is_empty() {
        let sync = sync.iter().map(|path| absolute(path));
        options.sync = sync.collect::<Result<_, _>>()?;
    }
    if args.resume {
        // After all paths of flags, which are those of the user.
        enter_working_directory(&options)?;
    }
    Ok(Campaign { options, shown_out })
}

/// Where everything is kept, and what belongs to the same team.
fn place(args: &FuzzCampaignArgs) -> anyhow::Result<(PathBuf, Vec<PathBuf>)> {
    let out = args.out.clone().unwrap_or_else(|| DEFAULT_OUT.into());
    let Some(name) = &args.name else {
        return Ok((out, Vec::new()));
    };
    let is_plain = !name.is_empty()
        && name
            .chars()
            .all(|letter| letter.is_alphanumeric() || "-_.".contains(letter))
        && !name.starts_with('.');
    ensure!(
        is_plain,
        "--name: `{name}` is to be the name of a directory: letters, digits, - and _"
    );
    Ok((out.join(name), vec![out]))
}

/// Finds what is wrong with paths and commands by themselves.
fn refuse_slips(args: &FuzzCampaignArgs) -> anyhow::Result<()> {
    for (flag, directory) in [("--seeds", &args.seeds), ("--images", &args.images)] {
        let Some(directory) = directory else { continue };
        let mut entries = fs::read_dir(directory)
            .with_context(|| format!("{flag}: {} cannot be read", directory.display()))?;
        ensure!(
            entries.next().is_some(),
            "{flag}: there is nothing in {}",
            directory.display()
        );
    }
    for (flag, file) in [("--dict", &args.dict), ("--grammar", &args.grammar)] {
        let Some(file) = file else { continue };
        fs::read(file).with_context(|| format!("{flag}: {} cannot be read", file.display()))?;
    }
    for directory in &args.sync {
        ensure!(
            directory.is_dir(),
            "--sync: {} is no directory",
            directory.display()
        );
    }
    let recovery = &args.recovery;
    for (flag, text) in [
        ("--recover", &recovery.recover),
        ("--checker", &recovery.checker),
        ("--dump", &recovery.dump),
    ] {
        // To a shell it would be a command that always succeeds.
        ensure!(
            text.as_ref().is_none_or(|text| !text.trim().is_empty()),
            "{flag}: the command is empty"
        );
    }
    fail_patterns(&recovery.fail_pattern)?;
    Ok(())
}

/// Finds commands that cannot be run.
pub(super) fn refuse_commands(options: &CampaignOptions) -> Result<(), CampaignError> {
    let target = options.command.first().map(OsString::as_os_str);
    powerfail_recorder::inspect(target.unwrap_or_default())?;
    let recovery = &options.judging.recovery;
    let recover = match recovery.recover.as_slice() {
        [] => &options.command,
        _ => &recovery.recover,
    };
    let mut plan = RecoveryPlan::new(CommandLine::new(recover));
    plan.checker = recovery.checker.as_ref().map(CommandLine::new);
    plan.dump = recovery.dump.as_ref().map(CommandLine::new);
    plan.working_directory = Some(recovery.working_directory.clone());
    Oracle::new(plan, Settings::default()).map_err(CheckError::from)?;
    Ok(())
}

/// A campaign that is to be begun.
fn fresh(
    args: &FuzzCampaignArgs,
    section: &CheckSection,
    out: &Path,
) -> anyhow::Result<CampaignOptions> {
    ensure!(
        args.target
            .first()
            .is_some_and(|program| !program.is_empty()),
        "there is no target: give a command after --, as in powerfail fuzz -- ./my-program {{pool}}"
    );
    match read_record(out) {
        Err(CorpusError::NoCampaign { .. }) => {}
        // Another version or a damaged one is a campaign, too.
        Ok(_) | Err(_) => bail!(
            "{} holds a campaign already; give --resume to go on with it, or another --out",
            out.display()
        ),
    }
    let mut options = CampaignOptions::new(args.target.clone(), absolute(out)?);
    options.input = input_way(&args.target, args.input)?;
    configure(&mut options, section);
    Ok(options)
}

/// A campaign that is there.
fn resumed(args: &FuzzCampaignArgs, out: &Path) -> anyhow::Result<CampaignOptions> {
    let mut options = match resumed_options(out) {
        Ok(options) => options,
        Err(CampaignError::Corpus(CorpusError::NoCampaign { .. })) => bail!(
            "there is no campaign in {} to go on with; leave --resume out to begin one",
            out.display()
        ),
        Err(error) => return Err(error.into()),
    };
    ensure!(
        args.target.is_empty() || args.target == options.command,
        "{} holds a campaign with another command, {}; leave the command out to go on with it, or give another --out",
        out.display(),
        shown(&options.command)
    );
    let way = input_way(&options.command, args.input)?;
    ensure!(
        args.input.is_none() || way == options.input,
        "{} holds a campaign with another --input; leave it out to go on with it, or give another --out",
        out.display()
    );
    options.out = absolute(out)?;
    Ok(options)
}

/// Goes where the campaign was begun: its command may have relative paths.
pub(super) fn enter_working_directory(options: &CampaignOptions) -> anyhow::Result<()> {
    let directory = &options.judging.recovery.working_directory;
    std::env::set_current_dir(directory)
        .with_context(|| format!("{}: the campaign was begun there", directory.display()))
}

/// What flags say, over everything else.
fn apply(args: &FuzzCampaignArgs, options: &mut CampaignOptions) -> anyhow::Result<()> {
    let path = |path: &Option<PathBuf>| path.as_deref().map(absolute).transpose();
    options.seeds = path(&args.seeds)?.or(options.seeds.take());
    options.images = path(&args.images)?.or(options.images.take());
    options.dictionary = path(&args.dict)?.or(options.dictionary.take());
    options.grammar = path(&args.grammar)?.or(options.grammar.take());
    if let Some(jobs) = args.jobs {
        options.jobs = usize::try_from(jobs).unwrap_or(usize::MAX);
    }
    options.time = args.time;
    options.executions = args.execs;
    options.timeout = args.timeout.unwrap_or(options.timeout);
    options.checks = args.check_with.unwrap_or(options.checks);
    options.stacks |= args.stacks;
    options.derandomise &= !args.no_derandomise;
    options.desock |= args.desock;
    options.random_images = args.crash_rate.unwrap_or(options.random_images);
    options.seed = args.seed.unwrap_or(options.seed);
    options.together = match (args.broker, &args.join) {
        (Some(port), _) => Some(Together::Broker(port)),
        (None, Some(address)) => Some(Together::Join(address.clone())),
        (None, None) => None,
    };
    judge(&args.recovery, options)
}

/// What flags say about recovery.
fn judge(args: &FuzzRecoveryArgs, options: &mut CampaignOptions) -> anyhow::Result<()> {
    let words = |text: &Option<String>| text.as_ref().map(|text| command(text).words);
    if let Some(limit) = args.file_limit {
        options.file_limit_bytes = limit * MIB;
    }
    options.check_budget = args.budget.unwrap_or(options.check_budget);
    let judging = &mut options.judging;
    judging.warnings |= args.warnings || args.deny.is_some();
    judging.include_create |= args.include_create;
    let recovery = &mut judging.recovery;
    if let Some(words) = words(&args.recover) {
        recovery.recover = words;
    }
    recovery.checker = words(&args.checker).or(recovery.checker.take());
    recovery.dump = words(&args.dump).or(recovery.dump.take());
    recovery.timeout = args.recover_timeout.unwrap_or(recovery.timeout);
    if !args.ok_exit.is_empty() {
        recovery.ok_exit.clone_from(&args.ok_exit);
    }
    if !args.fail_pattern.is_empty() {
        recovery.fail_patterns = fail_patterns(&args.fail_pattern)?;
    }
    let bytes = |limit: Option<u64>| limit.map(|limit| limit.saturating_mul(MIB));
    recovery.memory_bytes = bytes(args.memory_limit).or(recovery.memory_bytes);
    recovery.file_bytes = bytes(args.file_limit).or(recovery.file_bytes);
    if let Some(domain) = args.domain {
        recovery.domain = domain.into();
    }
    if let Some(atomicity) = args.atomicity {
        recovery.atomicity = atomicity.into();
    }
    add(&mut recovery.trust, &args.trust);
    add(&mut recovery.no_trust, &args.no_trust);
    Ok(())
}

/// Adds what is not there: a campaign that is resumed has the flags of earlier runs.
fn add(known: &mut Vec<String>, more: &[String]) {
    for it in more {
        if !known.contains(it) {
            known.push(it.clone());
        }
    }
}

/// What powerfail.toml says about recovery: the section of `check` is about the same program.
fn configure(options: &mut CampaignOptions, section: &CheckSection) {
    let words = |text: &Option<String>| text.as_ref().map(|text| command(text).words);
    let judging = &mut options.judging;
    judging.include_create = section.include_create.unwrap_or(false);
    let recovery = &mut judging.recovery;
    // Without an input of its own it might be the workload again, as check would have it.
    recovery.recover = words(&section.recover).unwrap_or_default();
    recovery.checker = words(&section.checker);
    recovery.dump = words(&section.dump);
    recovery.timeout = section.timeout.unwrap_or(recovery.timeout);
    recovery.ok_exit = section.ok_exit.clone().unwrap_or_default();
    if let Some(domain) = section.domain.as_deref().and_then(Domain::from_name) {
        recovery.domain = domain;
    }
    let atomicity = section.atomicity.as_deref().and_then(Atomicity::from_name);
    recovery.atomicity = atomicity.unwrap_or_default();
    recovery.trust = section.trust.clone().unwrap_or_default();
    recovery.no_trust = section.no_trust.clone().unwrap_or_default();
}

/// How the target gets its input, if its command fits that.
pub(super) fn input_way(target: &[OsString], asked: Option<InputArg>) -> anyhow::Result<InputWay> {
    let has = |name: &str| {
        let arguments = target.iter().skip(1);
        arguments
            .map(|word| word.as_encoded_bytes())
            .any(|word| contains(word, name.as_bytes()))
    };
    ensure!(
        has("{pool}"),
        "the command has no {{pool}}, in whose place the path of its pool is to stand: powerfail fuzz -- {} {{pool}}",
        target
            .first()
            .map_or(OsStr::new("./my-program"), OsString::as_os_str)
            .to_string_lossy()
    );
    let asked = asked.unwrap_or(if has("{input}") {
        InputArg::File
    } else {
        InputArg::Stdin
    });
    match asked {
        InputArg::Stdin => {
            ensure!(
                !has("{input}"),
                "the command has {{input}}, which is for --input file and --input args"
            );
            Ok(InputWay::Stdin)
        }
        InputArg::File => {
            ensure!(
                has("{input}"),
                "the command has no {{input}}, in whose place the path of its input is to stand"
            );
            Ok(InputWay::File)
        }
        InputArg::Args => {
            ensure!(
                target.iter().skip(1).any(|word| word == "{input}"),
                "the command has no argument {{input}}, in whose place the words of the input are to stand"
            );
            Ok(InputWay::Arguments)
        }
    }
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window == word)
}

/// A command as a user would write it, nearly.
fn shown(command: &[OsString]) -> String {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    format!("`{}`", words.join(" "))
}

/// A path that is the same wherever the process goes.
fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    let absolute: io::Result<_> = std::path::absolute(path);
    absolute.with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(words: &[&str], asked: Option<InputArg>) -> Result<InputWay, String> {
        let words: Vec<OsString> = words.iter().map(Into::into).collect();
        input_way(&words, asked).map_err(|error| error.to_string())
    }

    #[test]
    fn the_command_says_how_it_gets_its_input() {
        assert_eq!(way(&["kv", "{pool}"], None), Ok(InputWay::Stdin));
        assert_eq!(
            way(&["kv", "--pool={pool}", "-f{input}"], None),
            Ok(InputWay::File)
        );
        let asked = Some(InputArg::Args);
        assert_eq!(
            way(&["kv", "{pool}", "{input}"], asked),
            Ok(InputWay::Arguments)
        );
    }

    #[test]
    fn a_command_that_does_not_fit_is_refused() {
        for (words, asked, reason) in [
            (&["kv"][..], None, "no {pool}"),
            (&["{pool}"], None, "no {pool}"),
            (&["kv", "{pool}"], Some(InputArg::File), "no {input}"),
            (
                &["kv", "{pool}", "{input}"],
                Some(InputArg::Stdin),
                "has {input}",
            ),
            (
                &["kv", "{pool}", "x{input}"],
                Some(InputArg::Args),
                "no argument {input}",
            ),
        ] {
            let error = way(words, asked).unwrap_err();
            assert!(error.contains(reason), "{words:?}: {error}");
        }
    }
}
