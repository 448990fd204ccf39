//! From flags, the configuration file and an older campaign to the options of a campaign. Mistakes are reported here,
//! before anything runs.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use powerfail_config::{CommandText, FuzzSettings, Input};
use powerfail_fuzz::{
    CampaignError, CampaignOptions, Checks, InputChannel, MachineLink, resumed_options,
};
use powerfail_fuzz_store::{StoreError, read_record};

use crate::consent;

/// A campaign that can be run.
pub(super) struct Campaign {
    pub(super) options: CampaignOptions,
    /// Where it is, as the user would write it.
    pub(super) shown_out: PathBuf,
}

/// The campaign that flags ask for.
pub(super) fn campaign(settings: &FuzzSettings, yes: bool) -> anyhow::Result<Campaign> {
    refuse_slips(settings)?;
    let (shown_out, mut sync) = place(settings)?;
    let is_resumed = settings.campaign.resume;
    let mut options = if is_resumed {
        resumed(settings, &shown_out)?
    } else {
        fresh(settings, &shown_out)?
    };
    sync.extend(settings.instances.sync.iter().cloned());
    apply(settings, &mut options)?;
    if !sync.is_empty() {
        let sync = sync.iter().map(|path| absolute(path));
        options.sync = sync.collect::<Result<_, _>>()?;
    }
    if is_resumed {
        consent::ask_for_campaign(&shown_out, &options, yes)?;
        // After all paths of flags, which are those of the user.
        enter_working_directory(&options)?;
    }
    Ok(Campaign { options, shown_out })
}

/// Where everything is kept, and what belongs to the same team.
fn place(settings: &FuzzSettings) -> anyhow::Result<(PathBuf, Vec<PathBuf>)> {
    let out = settings.campaign.out.clone();
    let Some(name) = &settings.instances.name else {
        return Ok((out, Vec::new()));
    };
    let is_plain = !name.is_empty()
        && name
            .chars()
            .all(|letter| letter.is_alphanumeric() || "-_.".contains(letter))
        && !name.starts_with('.');
    ensure!(
        is_plain,
        "invalid value `{name}` for --name: expected the name of a directory, of letters, digits, - and _"
    );
    Ok((out.join(name), vec![out]))
}

/// Refuses paths that cannot be right.
fn refuse_slips(settings: &FuzzSettings) -> anyhow::Result<()> {
    let target = &settings.target;
    for (flag, directory) in [("--seeds", &target.seeds), ("--images", &target.images)] {
        let Some(directory) = directory else { continue };
        let mut entries = fs::read_dir(directory)
            .with_context(|| format!("{flag}: {} cannot be read", directory.display()))?;
        ensure!(
            entries.next().is_some(),
            "{flag}: there is nothing in {}",
            directory.display()
        );
    }
    for (flag, file) in [("--dict", &target.dict), ("--grammar", &target.grammar)] {
        let Some(file) = file else { continue };
        fs::read(file).with_context(|| format!("{flag}: {} cannot be read", file.display()))?;
    }
    for directory in &settings.instances.sync {
        ensure!(
            directory.is_dir(),
            "--sync: {} is not a directory",
            directory.display()
        );
    }
    Ok(())
}

/// Refuses commands that cannot be run.
pub(super) fn refuse_commands(options: &CampaignOptions) -> Result<(), CampaignError> {
    let target = options.command.first().map(OsString::as_os_str);
    powerfail_recorder::inspect(target.unwrap_or_default())?;
    options.recovery().inspect()?;
    Ok(())
}

/// A new campaign.
fn fresh(settings: &FuzzSettings, out: &Path) -> anyhow::Result<CampaignOptions> {
    let target = &settings.target;
    ensure!(
        target
            .command
            .first()
            .is_some_and(|program| !program.is_empty()),
        "no target: give a command after --, as in powerfail fuzz -- ./my-program {{pool}}"
    );
    match read_record(out) {
        Err(StoreError::NoCampaign { .. }) => {}
        // Another version or a damaged one is a campaign, too.
        Ok(_) | Err(_) => bail!(
            "{} already holds a campaign; give --resume to continue it, or another --out",
            out.display()
        ),
    }
    let mut options = CampaignOptions::new(target.command.clone(), absolute(out)?);
    options.input = input_way(&target.command, target.input)?;
    Ok(options)
}

/// An existing campaign, continued.
fn resumed(settings: &FuzzSettings, out: &Path) -> anyhow::Result<CampaignOptions> {
    let mut options = match resumed_options(out) {
        Ok(options) => options,
        Err(CampaignError::Store(StoreError::NoCampaign { .. })) => bail!(
            "there is no campaign in {} to continue; leave --resume out to start one",
            out.display()
        ),
        Err(error) => return Err(error.into()),
    };
    ensure!(
        settings.target.command.is_empty() || settings.target.command == options.command,
        "{} holds a campaign with another command, {}; leave the command out to continue it, or give another --out",
        out.display(),
        shown(&options.command)
    );
    let way = input_way(&options.command, settings.target.input)?;
    ensure!(
        settings.target.input.is_none() || way == options.input,
        "{} holds a campaign with another --input; leave it out to continue it, or give another --out",
        out.display()
    );
    options.out = absolute(out)?;
    Ok(options)
}

/// Prepares to run the commands of a campaign: asks whether it may, and enters its working directory.
pub(super) fn enter(out: &Path, yes: bool) -> anyhow::Result<()> {
    let options = resumed_options(out)?;
    consent::ask_for_campaign(out, &options, yes)?;
    enter_working_directory(&options)
}

/// Changes to the directory in which the campaign was started: its command may have relative paths.
fn enter_working_directory(options: &CampaignOptions) -> anyhow::Result<()> {
    let directory = &options.judging.recovery.working_directory;
    std::env::set_current_dir(directory)
        .with_context(|| format!("{}: the campaign was started there", directory.display()))
}

/// What settings say, over everything else.
fn apply(settings: &FuzzSettings, options: &mut CampaignOptions) -> anyhow::Result<()> {
    let path = |path: &Option<PathBuf>| path.as_deref().map(absolute).transpose();
    let target = &settings.target;
    options.seeds = path(&target.seeds)?.or(options.seeds.take());
    options.images = path(&target.images)?.or(options.images.take());
    options.dictionary = path(&target.dict)?.or(options.dictionary.take());
    options.grammar = path(&target.grammar)?.or(options.grammar.take());
    let input = &mut options.judging.recovery.input;
    *input = path(&settings.recovery.recover_input)?.or(input.take());
    if let Some(jobs) = settings.campaign.jobs {
        options.jobs = jobs.to_usize();
    }
    options.time = settings.campaign.time;
    options.executions = settings.campaign.execs;
    options.timeout = target.timeout.unwrap_or(options.timeout);
    if let Some(names) = settings.checks.check_with {
        options.checks = Checks {
            lint: names.lint,
            prefix: names.prefix,
            lazy: names.lazy,
            races: names.races,
        };
    }
    options.stacks = target.stacks.unwrap_or(options.stacks);
    if let Some(is_off) = target.no_derandomise {
        options.derandomise = !is_off;
    }
    options.desock = target.desock.unwrap_or(options.desock);
    options.random_images = target.crash_rate.map_or(options.random_images, |it| it.0);
    options.seed = target.seed.unwrap_or(options.seed);
    let instances = &settings.instances;
    options.machines = match (instances.broker, &instances.join) {
        (Some(port), _) => Some(MachineLink::Broker(port.0)),
        (None, Some(address)) => Some(MachineLink::Join(address.0.clone())),
        (None, None) => None,
    };
    apply_to_recovery(settings, options);
    Ok(())
}

/// What settings say about recovery.
fn apply_to_recovery(settings: &FuzzSettings, options: &mut CampaignOptions) {
    let words = |command: &Option<CommandText>| command.as_ref().map(|it| it.words.clone());
    let (given, report) = (&settings.recovery, &settings.report);
    if let Some(limit) = given.file_limit {
        options.file_limit_bytes = limit.bytes();
    }
    options.check_budget = settings.checks.budget.unwrap_or(options.check_budget);
    let judging = &mut options.judging;
    judging.warnings |= report.warnings.unwrap_or(false) || report.deny.is_some();
    judging.include_create = given.include_create.unwrap_or(judging.include_create);
    let recovery = &mut judging.recovery;
    if let Some(words) = words(&given.recover) {
        recovery.recover = words;
    }
    recovery.checker = words(&given.checker).or(recovery.checker.take());
    recovery.dump = words(&given.dump).or(recovery.dump.take());
    recovery.timeout = settings.checks.recover_timeout.or(recovery.timeout);
    if let Some(codes) = &given.ok_exit {
        recovery.ok_exit.clone_from(codes);
    }
    if let Some(patterns) = &given.fail_pattern {
        let patterns = patterns.iter().map(|it| it.0.clone());
        recovery.fail_patterns = patterns.collect();
    }
    recovery.memory_bytes = given
        .memory_limit
        .map(powerfail_config::Mebibytes::bytes)
        .or(recovery.memory_bytes);
    recovery.file_bytes = given
        .file_limit
        .map(powerfail_config::Mebibytes::bytes)
        .or(recovery.file_bytes);
    for path in given.writable.iter().flatten() {
        // A path that cannot be made absolute is refused with the others that cannot be used.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        if !recovery.writable.contains(&path) {
            recovery.writable.push(path);
        }
    }
    recovery.unconfined = given.no_confine.unwrap_or(recovery.unconfined);
    if let Some(domain) = settings.domain {
        recovery.domain = domain;
        judging.is_domain_given = true;
    }
    if let Some(atomicity) = given.atomicity {
        recovery.atomicity = atomicity;
    }
    recovery.dirty_fences = report
        .dirty_fences
        .map(powerfail_config::Whole::to_u32)
        .or(recovery.dirty_fences);
    add(&mut recovery.trust, report.trust.iter().flatten());
    add(&mut recovery.no_trust, report.no_trust.iter().flatten());
}

/// Adds what is missing: a resumed campaign has the flags of earlier runs.
fn add<'a>(known: &mut Vec<String>, more: impl Iterator<Item = &'a String>) {
    for it in more {
        if !known.contains(it) {
            known.push(it.clone());
        }
    }
}

/// How the target gets its input, if its command fits that.
pub(super) fn input_way(target: &[OsString], asked: Option<Input>) -> anyhow::Result<InputChannel> {
    let has = |name: &str| {
        let arguments = target.iter().skip(1);
        arguments
            .map(|word| word.as_encoded_bytes())
            .any(|word| contains(word, name.as_bytes()))
    };
    ensure!(
        has("{pool}") || has("{dir}"),
        "the command has no {{pool}}, which stands for the path of its pool, and no {{dir}} for a directory of files: powerfail \
         fuzz -- {} {{pool}}",
        target
            .first()
            .map_or(OsStr::new("./my-program"), OsString::as_os_str)
            .to_string_lossy()
    );
    let asked = asked.unwrap_or(if has("{input}") {
        Input::File
    } else {
        Input::Stdin
    });
    match asked {
        Input::Stdin => {
            ensure!(
                !has("{input}"),
                "the command has {{input}}, which is for --input file and --input args"
            );
            Ok(InputChannel::Stdin)
        }
        Input::File => {
            ensure!(
                has("{input}"),
                "the command has no {{input}}, which stands for the path of its input"
            );
            Ok(InputChannel::File)
        }
        Input::Args => {
            ensure!(
                target.iter().skip(1).any(|word| word == "{input}"),
                "the command has no argument {{input}}, which stands for the words of the input"
            );
            Ok(InputChannel::Arguments)
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

    fn way(words: &[&str], asked: Option<Input>) -> Result<InputChannel, String> {
        let words: Vec<OsString> = words.iter().map(Into::into).collect();
        input_way(&words, asked).map_err(|error| error.to_string())
    }

    #[test]
    fn the_command_says_how_it_gets_its_input() {
        assert_eq!(way(&["kv", "{pool}"], None), Ok(InputChannel::Stdin));
        assert_eq!(
            way(&["kv", "--pool={pool}", "-f{input}"], None),
            Ok(InputChannel::File)
        );
        let asked = Some(Input::Args);
        assert_eq!(
            way(&["kv", "{pool}", "{input}"], asked),
            Ok(InputChannel::Arguments)
        );
    }

    #[test]
    fn a_command_that_does_not_fit_is_refused() {
        for (words, asked, reason) in [
            (&["kv"][..], None, "no {pool}"),
            (&["{pool}"], None, "no {pool}"),
            (&["kv", "{pool}"], Some(Input::File), "no {input}"),
            (
                &["kv", "{pool}", "{input}"],
                Some(Input::Stdin),
                "has {input}",
            ),
            (
                &["kv", "{pool}", "x{input}"],
                Some(Input::Args),
                "no argument {input}",
            ),
        ] {
            let error = way(words, asked).unwrap_err();
            assert!(error.contains(reason), "{words:?}: {error}");
        }
    }
}
