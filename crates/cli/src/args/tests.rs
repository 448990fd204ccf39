//! The command line is consistent, and powerfail.toml has every flag.

use std::fmt::Debug;

use clap::{Arg, CommandFactory, Parser};
use powerfail_config::Config;
use powerfail_test_support::pages;

use super::{Cli, Command};

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

/// What every command prints for `--help`, so that a change of it can be reviewed.
#[test]
fn help_is_as_expected() {
    let mut cli = Cli::command()
        .term_width(100)
        .color(clap::ColorChoice::Never);
    cli.build();
    let mut names = Vec::new();
    help(&mut cli, "powerfail", &mut names);
    let mut files: Vec<_> = std::fs::read_dir(HELP)
        .expect("the folder of expected texts")
        .map(|entry| entry.expect("readable").file_name())
        .collect();
    files.sort();
    names.sort();
    assert_eq!(files, names, "a text for each command");
}

/// Where the expected texts are.
const HELP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/help");

fn help(command: &mut clap::Command, name: &str, names: &mut Vec<std::ffi::OsString>) {
    let file = format!("{}.txt", name.replace(' ', "-"));
    let text = command.render_long_help().to_string();
    powerfail_test_support::expected::assert_file(&std::path::Path::new(HELP).join(&file), &text);
    names.push(file.into());
    for inner in command.get_subcommands_mut() {
        if inner.get_name() != "help" && !inner.is_hide_set() {
            let name = format!("{name} {}", inner.get_name());
            help(inner, &name, names);
        }
    }
}

/// Every command of README.md and docs is one that this binary understands.
#[test]
fn every_command_of_the_documentation_is_understood() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders = vec![root.join("docs"), root.join("examples")];
    let mut pages = vec![root.join("README.md")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "md") {
                pages.push(path);
            }
        }
    }
    let (mut count, mut wrong) = (0, Vec::new());
    for page in &pages {
        let text = std::fs::read_to_string(page).expect("a page");
        for line in pages::commands(&text) {
            count += 1;
            let words = shlex::split(&line).unwrap_or_default();
            let is_word = |it: &&String| ![">", "|", "&&", ";"].contains(&it.as_str());
            let words = words.iter().take_while(is_word);
            if let Err(error) = Cli::try_parse_from(words) {
                wrong.push(format!("{}: {line}\n{error}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 80, "only {count} commands");
}

/// Two valid values of each flag, as they are written on the command line.
const VALUES: &[(&str, &str, &str)] = &[
    ("ack", "ok (.*)", "put (.*)"),
    ("at", "1200", "1300"),
    ("atomicity", "8", "store"),
    ("backend", "qemu", "preload"),
    ("baseline", "a.json", "b.json"),
    ("broker", "1337", "1338"),
    ("budget", "5m", "6m"),
    ("changed-since", "main", "last-run"),
    ("check-with", "lint,lazy", "none"),
    ("checker", "./fsck {pool}", "true"),
    ("client", "./client put", "true"),
    ("client-recover", "./client get", "true"),
    ("crash-rate", "0.5", "2"),
    ("deny", "warnings", "warnings"),
    ("depth", "2", "3"),
    ("dict", "a.dict", "b.dict"),
    ("dirty-fences", "3", "4"),
    ("domain", "eadr", "pagecache"),
    ("dump", "./dump {pool}", "true"),
    ("execs", "1000", "2000"),
    ("fail-pattern", "assert", "panic"),
    ("failure-points", "store", "all"),
    ("file-limit", "64", "128"),
    ("fill", "0xff", "165"),
    ("format", "json", "text"),
    ("fs", "ext4", "xfs"),
    ("grammar", "a.grammar", "b.grammar"),
    ("heap", "512M", "2G"),
    ("html", "a.html", "b.html"),
    ("images", "images", "others"),
    ("infer", "use", "propose"),
    ("input", "file", "args"),
    ("jobs", "3", "4"),
    ("join", "10.0.0.7:1337", "10.0.0.8:1337"),
    ("max-executions", "5000", "6000"),
    ("memory-limit", "256", "512"),
    ("mode", "trap", "patch"),
    ("name", "a", "b"),
    ("no-trust", "libpmemobj.so.1", "libother.so"),
    ("not-pool", "/mnt/pmem/*.log", "log"),
    ("ok-exit", "3", "4"),
    ("only", "PF0101", "durability"),
    ("out", "evidence", "elsewhere"),
    ("output", "a.trace", "b.trace"),
    ("partition", "3/8", "1/2"),
    ("per-stack", "1", "0"),
    ("pm-dir", "/mnt/pmem", "/tmp"),
    ("pool", "/mnt/pmem/*.pool", "pool"),
    ("random", "30", "40"),
    ("ready", "port", "unix:/tmp/socket"),
    ("record-timeout", "5m", "6m"),
    ("recover", "./kv --check {pool}", "a | b"),
    ("recover-input", "commands", "others"),
    ("recover-timeout", "3s", "4s"),
    ("sample", "64", "65"),
    ("schedule-depth", "4", "5"),
    ("schedule-length", "1000", "2000"),
    ("schedule-seed", "7", "8"),
    ("schedules", "20", "30"),
    ("seed", "42", "43"),
    ("seeds", "inputs", "others"),
    ("segments", "10..20", "7.."),
    ("stop", "./stop", "true"),
    ("strategy", "eager", "lazy"),
    ("sync", "a", "b"),
    ("threshold", "1000", "2000"),
    ("time", "10m", "20m"),
    ("timeout", "30s", "40s"),
    ("trace", "a.trace", "b.trace"),
    ("tree", "data", "auto"),
    ("trust", "libmine.so", "libother.so"),
    ("writable", "logs", "data"),
];

/// `--stacks` is a switch of `fuzz` and a choice of `record`.
fn values(command: &str, arg: &Arg) -> (&'static str, &'static str) {
    let name = arg.get_long().expect("a flag");
    let count = arg.get_num_args();
    let is_switch = count.is_some_and(|count| !count.takes_values());
    match (command, name) {
        _ if is_switch => ("", ""),
        ("record", "stacks") => ("sites", "none"),
        _ => {
            let value = VALUES.iter().find(|(known, ..)| *known == name);
            let (_, one, other) = value.unwrap_or_else(|| panic!("no values for --{name}"));
            (one, other)
        }
    }
}

/// The options of a command, by what is printed of them: given, in the file, and merged.
fn printed(command: &str, flags: &[String], file: &str) -> [String; 3] {
    fn all<T: Clone + Debug>(given: T, file: T, over: impl Fn(T, T) -> T) -> [String; 3] {
        let merged = over(given.clone(), file.clone());
        [given, file, merged].map(|it| format!("{it:#?}"))
    }
    let config = Config::parse(file).unwrap_or_else(|error| panic!("{file}: {error}"));
    let mut words = vec!["powerfail".to_owned(), command.to_owned()];
    if ["crash", "races"].contains(&command) {
        words.push("run.trace".to_owned());
    }
    words.extend_from_slice(flags);
    let cli = Cli::try_parse_from(&words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
    match cli.command {
        Command::Check(args) => {
            let over = powerfail_config::CheckArgs::over;
            all(args.options, config.check, over)
        }
        Command::Crash(args) => {
            let over = powerfail_config::CrashArgs::over;
            all(args.options, config.crash, over)
        }
        Command::Races(args) => {
            let over = powerfail_config::RacesArgs::over;
            all(args.options, config.races, over)
        }
        Command::Fuzz(args) => {
            let over = powerfail_config::FuzzArgs::over;
            all(*args.options, config.fuzz, over)
        }
        Command::Record(args) => all(*args, config.record, powerfail_config::RecordArgs::over),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_flag_can_stand_in_the_configuration_file() {
    let mut count = 0;
    for name in ["check", "crash", "races", "fuzz", "record"] {
        let cli = Cli::command();
        let command = cli.find_subcommand(name).expect("a command");
        let none = printed(name, &[], "");
        for arg in command.get_arguments() {
            let Some(flag) = arg.get_long() else { continue };
            // Consent is given by a person, not by a file that may come with what it is asked for.
            if ["color", "help", "version", "yes"].contains(&flag) {
                continue;
            }
            count += 1;
            let (one, other) = values(name, arg);
            let given = |value: &str| match value {
                "" => vec![format!("--{flag}")],
                value => vec![format!("--{flag}={value}")],
            };
            // The same value in the file as on the command line is the same option.
            let written = match one {
                "" => "true".to_owned(),
                number if number.parse::<f64>().is_ok() => number.to_owned(),
                text => format!("{text:?}"),
            };
            let file = format!("[{name}]\n{flag} = {written}");
            let [of_flag, of_file, _] = printed(name, &given(one), &file);
            assert_eq!(of_flag, of_file, "{name} --{flag}");
            assert_ne!(of_file, none[1], "{name} --{flag} has no effect");
            let [_, of_file, merged] = printed(name, &[], &file);
            assert_eq!(merged, of_file, "{name} --{flag}: the file counts");
            let [of_flag, _, merged] = printed(name, &given(other), &file);
            match flag {
                "trust" | "no-trust" => {
                    assert!(merged.contains(one) && merged.contains(other), "{merged}");
                }
                _ => assert_eq!(merged, of_flag, "{name} --{flag}: the flag wins"),
            }
            // All of them can also be in the section that stands in for the others.
            if ["crash", "races"].contains(&name) {
                let file = format!("[check]\n{flag} = {written}");
                let [_, of_check, _] = printed(name, &[], &file);
                assert_eq!(of_check, of_flag_of(name, &given(one)), "{name} --{flag}");
            }
            // A slip is named.
            let file = format!("\n[{name}]\n{flag}x = {written}");
            let error = Config::parse(&file).expect_err(&file).to_string();
            assert!(
                error.starts_with(&format!("line 3: unknown key `{flag}x` in [{name}]")),
                "{error}"
            );
            assert!(error.contains("did you mean `"), "{error}");
        }
    }
    assert!(count > 120, "{count}");
}

fn of_flag_of(command: &str, flags: &[String]) -> String {
    let [of_flag, ..] = printed(command, flags, "");
    of_flag
}
