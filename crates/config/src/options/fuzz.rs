//! `powerfail fuzz`.
//!
//! A campaign remembers its options, so most have no default here: the campaign knows it. `--resume` takes what no
//! flag gives from the campaign, not from the configuration file.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use powerfail_model::Domain;

use super::{DomainArgs, RecoveryArgs, ReportArgs, options, sections};
use crate::value::{Address, CheckNames, Input, Port, Rate, Threads, parse_duration};

options! {
    /// How the target of a campaign is run.
    TargetArgs => TargetSettings, "Target" {
        /// Directory of initial inputs, one in each file [default: an empty line]
        [long, value_name = "DIR"]
        seeds: PathBuf,
        /// Directory of initial images: each entry is a pool, or a directory with the files of one
        ///
        /// By default the target starts without a pool, and creates it.
        [long, value_name = "DIR"]
        images: PathBuf,
        /// How the target gets its input [default: file if the command has {input}, else stdin]
        [long, value_enum, value_name = "HOW"]
        input: Input,
        /// The target is a server: feed its connections from the input, and discard what it sends
        [long, num_args = 0, default_missing_value = "true"]
        desock: bool,
        /// Dictionary in AFL's format: one quoted string on each line
        [long, value_name = "FILE"]
        dict: PathBuf,
        /// Grammar of inputs
        [long, value_name = "FILE"]
        grammar: PathBuf,
        /// Time limit for an execution [default: 150ms]
        [long, value_name = "TIME", value_parser = parse_duration]
        timeout: Duration,
        /// Distinguish operations on persistent memory by their whole call stacks
        ///
        /// By default an operation is its instruction: a helper that flushes for all callers is one operation.
        [long, num_args = 0, default_missing_value = "true"]
        stacks: bool,
        /// Do not fix addresses, time, random numbers and process numbers for the target
        [long, num_args = 0, default_missing_value = "true"]
        no_derandomise: bool,
        /// Average number of crash images at random points for each new test case, in addition to those at new
        /// ordering points [default: 1]
        [long, value_name = "RATE"]
        crash_rate: Rate,
        /// Seed of all random choices [default: 0]
        [long, value_name = "N"]
        seed: u64,
        /// Target: a command and its arguments
        ///
        /// {pool} in an argument is replaced by the path of its pool, {dir} by that of a directory for its files, {input} by the path of its input, or with
        /// --input args by the words of the input.
        [last = true, value_name = "CMD"]
        command: Vec<OsString> = Vec::new(),
    }
}

options! {
    /// How long a campaign runs, and where it is kept.
    CampaignArgs => CampaignSettings, "Campaign" {
        /// Directory of the campaign [default: powerfail-fuzz]
        [long, value_name = "DIR"]
        out: PathBuf = "powerfail-fuzz".into(),
        /// Continue the campaign in --out
        ///
        /// The command and options that are not given are those of the campaign. Options that are given are kept for
        /// the next time, except those that limit this run.
        [long, num_args = 0, default_missing_value = "true"]
        resume: bool = false,
        /// Stop after this time [default: when interrupted]
        [long, value_name = "TIME", value_parser = parse_duration]
        time: Duration,
        /// Stop after this many executions, not counting those before --resume
        [long, value_name = "N"]
        execs: u64,
        /// Stop at the first finding that is a bug
        [long, num_args = 0, default_missing_value = "true"]
        until_found: bool = false,
        /// Number of processors to use, for fuzzing and checking together [default: all]
        [long, value_name = "N"]
        jobs: Threads,
        /// Print the result as one JSON object
        [long, num_args = 0, default_missing_value = "true"]
        json: bool = false,
    }
}

options! {
    /// How new test cases are checked.
    FuzzCheckArgs => FuzzCheckSettings, "Checks" {
        /// Checks of each new test case: some of lint, prefix, lazy and races, or none [default: all four]
        ///
        /// lint looks for patterns of misuse; prefix lets the power fail with all earlier stores durable; lazy loses
        /// and reorders lines as far as recovery can tell; races watches what recovery reads.
        [long, value_name = "CHECKS"]
        check_with: CheckNames,
        /// Time limit for each command of a recovery; exceeding it is a bug [default: 10s; busy: 2s]
        [long, value_name = "TIME", value_parser = parse_duration]
        recover_timeout: Duration,
        /// Approximate time limit for the checks of one test case [default: 10s]
        [long, value_name = "TIME", value_parser = parse_duration]
        budget: Duration,
    }
}

options! {
    /// Other instances of the same campaign.
    InstanceArgs => InstanceSettings, "Several instances" {
        /// Import test cases from time to time from this campaign, or from all in this directory; can be repeated
        [long, value_name = "DIR"]
        sync: Vec<PathBuf> = Vec::new(),
        /// Name of this instance: keep everything in a directory of this name in --out, and import from the others
        /// there
        [long, value_name = "NAME"]
        name: String,
        /// Let instances on other machines join at this port
        [long, value_name = "PORT"]
        broker: Port,
        /// Join the instance with --broker at this address
        [long, value_name = "HOST:PORT", conflicts_with = "broker"]
        join: Address,
    }
}

sections! {
    /// The options of `powerfail fuzz`.
    #[command(mut_arg("checker", |arg| arg.visible_alias("check")))]
    #[command(mut_arg("recover", |arg| arg.help(
        "Command that recovers after a crash [default: the target again, with an empty input]"
    )))]
    #[command(mut_arg("file_limit", |arg| arg.help(
        "Limit of the length of files that the target and recovery write, in MiB [default: 1024]"
    )))]
    FuzzArgs {
        target: TargetArgs,
        campaign: CampaignArgs,
        checks: FuzzCheckArgs,
        recovery: RecoveryArgs,
        domain: DomainArgs,
        report: ReportArgs,
        instances: InstanceArgs,
    }
}

/// What `powerfail fuzz` is to do. What is absent is decided by the campaign.
#[derive(Clone, Debug)]
pub struct FuzzSettings {
    /// How the target is run.
    pub target: TargetSettings,
    /// How long, and where.
    pub campaign: CampaignSettings,
    /// Which checks.
    pub checks: FuzzCheckSettings,
    /// How recovery is run and judged.
    pub recovery: RecoveryArgs,
    /// The persistence domain.
    pub domain: Option<Domain>,
    /// What is reported.
    pub report: ReportArgs,
    /// Whether warnings count as bugs.
    pub denies_warnings: bool,
    /// Other instances.
    pub instances: InstanceSettings,
}

impl FuzzArgs {
    /// These options over those of the configuration file. A campaign that is continued has its own options, so
    /// the file decides only what no campaign remembers.
    pub fn settle(self, file: Self) -> FuzzSettings {
        let campaign = self.campaign.clone().over(file.campaign.clone()).resolve();
        let report = self.report.clone().over(file.report.clone()).resolve();
        let instances = self
            .instances
            .clone()
            .over(file.instances.clone())
            .resolve();
        let file = if campaign.resume {
            Self::default()
        } else {
            file
        };
        let jobs = self.campaign.jobs.or(file.campaign.jobs);
        let all = self.over(file);
        FuzzSettings {
            target: all.target.resolve(),
            campaign: CampaignSettings { jobs, ..campaign },
            checks: all.checks.resolve(),
            recovery: all.recovery,
            domain: all.domain.domain,
            report: all.report,
            denies_warnings: report.denies_warnings(),
            instances,
        }
    }

    /// The options of `[check]` that apply to a campaign, too: it is about the same program.
    pub(crate) fn of_check(check: &super::CheckArgs) -> Self {
        let test = check.test.clone();
        Self {
            checks: FuzzCheckArgs {
                recover_timeout: test.failures.timeout,
                ..FuzzCheckArgs::default()
            },
            recovery: test.recovery,
            domain: test.domain,
            report: test.report,
            ..Self::default()
        }
    }
}
