//! Options that override each other, and conflicting options.

use clap::{Args, Command, FromArgMatches, Parser};
use powerfail_config::{
    CheckArgs, CheckSettings, Config, CrashArgs, CrashStrategy, FuzzArgs, LintArgs, RacesArgs,
    RecordArgs, SettingsError, Whole,
};

/// Options without the command that they belong to.
#[derive(Parser)]
struct Line<T: Args> {
    #[command(flatten)]
    options: T,
}

fn parsed<T: Args + FromArgMatches>(words: &[&str]) -> T {
    let words = std::iter::once(&"command").chain(words);
    Line::<T>::parse_from(words).options
}

fn check(words: &[&str], file: &str) -> Result<CheckSettings, SettingsError> {
    let file = format!("[check]\ncommand = [\"./kv\", \"{{pool}}\"]\n{file}");
    let config = Config::parse(&file).expect("sound");
    parsed::<CheckArgs>(words).settle(config.check)
}

#[test]
fn clap_has_no_objection() {
    fn assert<T: Args>() {
        T::augment_args(Command::new("command")).debug_assert();
    }
    assert::<CheckArgs>();
    assert::<CrashArgs>();
    assert::<RacesArgs>();
    assert::<LintArgs>();
    assert::<FuzzArgs>();
    assert::<RecordArgs>();
}

#[test]
fn a_client_needs_to_know_when_its_server_is_ready() {
    let refused = |words: &[&str], file: &str| check(words, file).err();
    let not_ready = Some(SettingsError::NotReady);
    assert_eq!(refused(&["--client", "true"], ""), not_ready);
    assert_eq!(refused(&["--client-recover", "true"], ""), not_ready);
    assert_eq!(refused(&[], "client = \"true\""), not_ready);
    assert_eq!(refused(&[], "client-recover = \"true\""), not_ready);
    assert_eq!(refused(&["--client", "true"], "ready = \"port\""), None);
    assert_eq!(refused(&["--ready", "port"], "client = \"true\""), None);
}

/// The port of a client in the file used to be 0.
#[test]
fn a_client_in_the_file_uses_a_port_as_well() {
    let uses_port = |words: &[&str], file: &str| {
        let ready = ["--ready", "port:7000"];
        let words: Vec<&str> = ready.iter().chain(words).copied().collect();
        check(&words, file).expect("sound").uses_port()
    };
    assert!(!uses_port(&[], ""));
    assert!(uses_port(&["--client", "./client {port}"], ""));
    assert!(uses_port(&[], "client = \"./client {port}\""));
    assert!(uses_port(&["--", "./server", "--port={port}"], ""));
}

#[test]
fn an_option_needs_another_wherever_that_is() {
    let refused = |words: &[&str], file: &str| check(words, file).err();
    let needs = |one, other| Some(SettingsError::Needs(one, other));
    assert_eq!(refused(&["--ack", "ok"], ""), needs("--ack", "--dump"));
    assert_eq!(refused(&["--ack", "ok"], "dump = \"true\""), None);
    assert_eq!(refused(&["--strict"], ""), needs("--strict", "--races"));
    assert_eq!(refused(&["--strict"], "races = true"), None);
    assert_eq!(refused(&["--infer"], ""), needs("--infer", "--races"));
    assert_eq!(
        refused(&["--schedule-depth", "2"], ""),
        needs("--schedule-depth", "--schedules")
    );
    assert_eq!(refused(&["--schedule-depth", "2"], "schedules = 9"), None);
    // In the file, an option may stand without the option that it needs.
    assert_eq!(refused(&[], "strict = true\nschedule-depth = 2"), None);
}

#[test]
fn a_limit_and_none_take_each_other_back() {
    let lazy = |words: &[&str], file: &str| {
        let settings = check(words, file).expect("sound").lazy.expect("lazy");
        let max = settings.max_executions.map(Whole::get);
        (settings.exhaustive, max)
    };
    assert_eq!(lazy(&[], "exhaustive = true"), (true, None));
    let limit = ["--max-executions", "9"];
    assert_eq!(lazy(&limit, "exhaustive = true"), (false, Some(9)));
    assert_eq!(lazy(&["--exhaustive"], "max-executions = 9"), (true, None));
    let both = check(&[], "exhaustive = true\nmax-executions = 9");
    assert_eq!(both.err(), Some(SettingsError::Limitless));
}

#[test]
fn options_of_another_strategy() {
    let crash = |words: &[&str], file: &str| {
        let config = Config::parse(file).expect("sound");
        parsed::<CrashArgs>(words).settle(config.crash)
    };
    let error = crash(&["--depth", "2"], "").err();
    assert_eq!(error, Some(SettingsError::OtherStrategy("--depth", "lazy")));
    let error = crash(&["--sample", "2", "--strategy", "lazy"], "").err();
    let expected = SettingsError::OtherStrategy("--sample", "eager");
    assert_eq!(error, Some(expected));
    let settings = crash(&["--depth", "2"], "[crash]\nstrategy = \"lazy\"").expect("sound");
    assert!(
        matches!(settings.strategy, CrashStrategy::Lazy(lazy) if lazy.depth.is_some_and(|depth| depth.get() == 2))
    );
    // In the file, options may stand without their strategy.
    let settings = crash(&[], "[check]\nthreshold = 9\ndepth = 2").expect("sound");
    assert!(matches!(settings.strategy, CrashStrategy::Prefix));
}

#[test]
fn a_campaign_that_is_continued_has_its_own_options() {
    let file = "[fuzz]\ntimeout = \"3s\"\ncrash-rate = 2\nout = \"here\"\ntime = \"1m\"\ndeny = \"warnings\"";
    let fuzz = |words: &[&str]| {
        let config = Config::parse(file).expect("sound");
        parsed::<FuzzArgs>(words).settle(config.fuzz)
    };
    let fresh = fuzz(&[]);
    assert_eq!(fresh.target.timeout.map(|time| time.as_secs()), Some(3));
    let resumed = fuzz(&["--resume", "--crash-rate", "1"]);
    assert_eq!(resumed.target.timeout, None);
    assert_eq!(resumed.target.crash_rate.map(|rate| rate.0), Some(1.0));
    assert_eq!(resumed.campaign.out.as_os_str(), "here");
    assert_eq!(resumed.campaign.time.map(|time| time.as_secs()), Some(60));
    assert!(resumed.denies_warnings);
}

#[test]
fn there_is_nothing_to_run() {
    let refused = |words: &[&str]| parsed::<RecordArgs>(words).settle(RecordArgs::default());
    for words in [&[][..], &["--", ""]] {
        let error = refused(words).err();
        assert_eq!(error, Some(SettingsError::NoWorkload("record")));
    }
    assert!(refused(&["--", "true"]).is_ok());
}
