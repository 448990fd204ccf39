//! Runs a campaign: opens its directory, starts the threads, watches them, and sums up.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use powerfail_fuzz_store::{
    Campaign, MinimisedState, Priority, Stats, StoredFinding, Sync as OtherInstances, TestCase,
    Unchecked, discard_unused,
};

use crate::check_worker::{CheckWorker, sentence};
use crate::error::CampaignError;
use crate::findings::Findings;
use crate::job::{ExecutionFailure, Job};
use crate::machines::Machines;
use crate::observer::CampaignObserver;
use crate::options::{CampaignOptions, Checks};
use crate::rebuild::repair_open;
use crate::recording::Recorder;
use crate::seeds::Seeds;
use crate::shared_state::SharedState;
use crate::stats::StatsWriter;
use crate::worker::Worker;

/// How often statistics are written.
const STATS_EVERY: Duration = Duration::from_secs(1);
/// How often the limits of the campaign are checked.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How often the directories of other instances are read.
const SYNC_EVERY: Duration = Duration::from_secs(10);
/// How many test cases are imported from them at a time.
const IMPORTS_MAX: usize = 256;
/// How long a thread waits that has nothing to check and nothing to execute.
const IDLE: Duration = Duration::from_millis(5);

/// The result of a campaign.
#[derive(Clone, Debug)]
pub struct CampaignSummary {
    /// The last statistics.
    pub stats: Stats,
    /// The findings, with the directories of their evidence.
    pub findings: Vec<StoredFinding>,
    /// Why the campaign has checked nothing, if it has not, and was to.
    pub unchecked: Option<Unchecked>,
    /// The user has interrupted it.
    pub is_interrupted: bool,
}

/// The options that a campaign was started with, for `--resume`.
pub fn resumed_options(out: &Path) -> Result<CampaignOptions, CampaignError> {
    let record = powerfail_fuzz_store::read_record(out)?;
    let options = serde_json::from_value::<CampaignOptions>(record.options);
    let mut options = options.map_err(|error| {
        CampaignError::Wrong(format!(
            "{}: cannot read the options of the campaign: {error}",
            out.display()
        ))
    })?;
    options.out = out.to_path_buf();
    options.resume = true;
    Ok(options)
}

/// Runs a campaign until its time is over, its executions are made, or the observer stops it. `runtime` is the
/// library that is preloaded into the target.
pub fn run(
    options: &CampaignOptions,
    runtime: &Arc<[u8]>,
    observer: &dyn CampaignObserver,
) -> Result<CampaignSummary, CampaignError> {
    let options = Arc::new(options.clone());
    let _ = powerfail_image::sweep_leftovers(&powerfail_image::default_parent());
    let existed = options.out.exists();
    let campaign = open(&options)?;
    let ran = run_in(campaign, &options, runtime, observer);
    let is_refused = matches!(&ran, Err(error) if !matches!(error, CampaignError::DiskFull { .. }));
    // A campaign that failed before it did anything does not block the next one.
    if is_refused && !options.resume && discard_unused(&options.out) && !existed {
        let _ = std::fs::remove_dir(&options.out);
    }
    ran
}

fn run_in(
    campaign: Campaign,
    options: &Arc<CampaignOptions>,
    runtime: &Arc<[u8]>,
    observer: &dyn CampaignObserver,
) -> Result<CampaignSummary, CampaignError> {
    let before = StatsWriter::before(&campaign);
    let mut stats_file = StatsWriter::new(campaign.directory());
    let findings = Findings::open(&campaign.findings_directory())?;
    let mut warn = |sentence: &str| observer.warning(sentence);
    let repaired = repair_open(&campaign, options, runtime, &mut warn)?;
    for sentence in repaired.sentences() {
        observer.warning(&sentence);
    }
    let machines = Machines::connect(options.machines.as_ref())?;
    let mut seeds = Seeds::read(options, &campaign.images)?;
    seeds.create_pool(&Recorder::new(options, runtime)?, &campaign.images)?;
    let mut shared = SharedState::new(
        options, runtime, observer, campaign, findings, before, machines,
    )?;
    shared.lost_images = repaired.lost().collect();
    shared.restore()?;
    StatsWriter::read_paths(shared.campaign.directory(), &shared.paths);
    let fuzzers = options.jobs.max(1).div_ceil(2);
    thread::scope(|scope| {
        for number in 0..options.jobs.max(1) {
            let (shared, seeds) = (&shared, &seeds);
            let role = match options.jobs {
                0 | 1 => Role::Both(1),
                _ if number < fuzzers => Role::Fuzz,
                // Without checks only images are made, and there are always more of them to make.
                _ if options.checks == Checks::NONE => Role::Both(8),
                _ => Role::Check,
            };
            let thread = move || {
                if let Err(error) = work(number, role, shared, seeds) {
                    shared.fail(error);
                }
            };
            let builder = thread::Builder::new().name(format!("fuzz-{number}"));
            if let Err(error) = builder.spawn_scoped(scope, thread) {
                shared.fail(CampaignError::Wrong(format!(
                    "cannot start a thread: {error}"
                )));
            }
        }
        if let Err(error) = watch(&shared, &mut stats_file) {
            shared.fail(error);
        }
    });
    let last = stats_file.write_last(&shared);
    if let Some(error) = shared.failure() {
        return Err(error);
    }
    let stats = last?;
    observer.stats(&stats);
    Ok(CampaignSummary {
        stats,
        findings: shared.findings.all(),
        unchecked: shared.unchecked(),
        is_interrupted: shared.is_interrupted(),
    })
}

/// Opens the directory of the campaign.
fn open(options: &CampaignOptions) -> Result<Campaign, CampaignError> {
    if options.command.is_empty() {
        return Err(CampaignError::Wrong(
            "no target: give a command after --, as in powerfail fuzz -- ./my-program {pool}"
                .into(),
        ));
    }
    let value = serde_json::to_value(options)
        .map_err(|error| CampaignError::Wrong(format!("cannot store the options: {error}")))?;
    if options.resume {
        let mut campaign = Campaign::resume(&options.out)?;
        // Flags that are given with --resume stay in effect.
        if campaign.record.options != value {
            campaign.set_options(value)?;
        }
        return Ok(campaign);
    }
    let words = options.command.iter();
    let command = words.map(|word| word.to_string_lossy().into_owned());
    Ok(Campaign::create(&options.out, command.collect(), value)?)
}

/// How a thread divides its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Fuzz,
    /// Checks, and fuzzes only while there is nothing to check.
    Check,
    /// Fuzzes this many times as long as it checks.
    Both(u32),
}

const fn times_of(role: Role) -> u32 {
    match role {
        Role::Both(times) => times,
        Role::Fuzz | Role::Check => 1,
    }
}

fn work(
    number: usize,
    role: Role,
    shared: &SharedState<'_>,
    seeds: &Seeds,
) -> Result<(), CampaignError> {
    let mut worker = Worker::start(number, shared, seeds)?;
    if role == Role::Fuzz {
        while !shared.is_over() {
            let begun = Instant::now();
            worker.step()?;
            rest_after(begun);
        }
        return Ok(());
    }
    let mut checker = CheckWorker::new(number, shared)?;
    let (mut fuzzed, mut spent) = (Duration::ZERO, Duration::ZERO);
    while !shared.is_over() {
        let begun = Instant::now();
        if role == Role::Check || spent * times_of(role) <= fuzzed {
            if checker.step()? {
                spent += begun.elapsed();
                continue;
            }
            // Nothing waits. Time that checks did not need is not saved up.
            spent = spent.max(fuzzed / times_of(role));
        }
        worker.step()?;
        fuzzed += begun.elapsed();
        rest_after(begun);
    }
    Ok(())
}

/// Waits a little after a step in which there was nothing to do.
fn rest_after(begun: Instant) {
    if begun.elapsed() < Duration::from_micros(50) {
        thread::sleep(IDLE);
    }
}

/// Writes statistics, imports from other instances, and ends the campaign when its limits are reached.
fn watch(shared: &SharedState<'_>, file: &mut StatsWriter) -> Result<(), CampaignError> {
    let options = &shared.options;
    let mut others = (!options.sync.is_empty())
        .then(|| OtherInstances::open(shared.campaign.directory(), &options.sync))
        .transpose()?;
    let mut next_stats = Instant::now() + STATS_EVERY;
    let mut next_sync = Instant::now();
    while !shared.is_over() {
        thread::sleep(LOOK_EVERY);
        let time_is_over = options.time.is_some_and(|time| shared.elapsed() >= time);
        if time_is_over || shared.limit.is_spent() {
            shared.finish();
        }
        if Instant::now() >= next_stats {
            next_stats += STATS_EVERY;
            let stats = file.write(shared)?;
            shared.observer.stats(&stats);
        }
        if let Some(machines) = &shared.machines {
            while let Some(received) = machines.receive() {
                shared.submit(Job::Import(received), Priority::Medium, 0);
            }
        }
        if let Some(others) = &mut others
            && Instant::now() >= next_sync
        {
            let more = import(shared, others)?;
            next_sync = Instant::now() + if more { LOOK_EVERY } else { SYNC_EVERY };
        }
    }
    Ok(())
}

/// Imports test cases of other instances; returns whether there are more.
fn import(shared: &SharedState<'_>, others: &mut OtherInstances) -> Result<bool, CampaignError> {
    let pulled = others.pull(&shared.campaign.images, &shared.campaign.queue, IMPORTS_MAX)?;
    for problem in &pulled.problems {
        shared.warn(&format!(
            "cannot read another instance: {}",
            sentence(problem)
        ));
    }
    for imported in pulled.cases {
        let mut entry = imported.entry;
        entry.found_by = format!("{} of {}", imported.number, imported.from.display());
        entry.time_s = shared.time_s();
        entry.minimised_from = None;
        shared.import(imported.case, &entry)?;
    }
    others.done()?;
    Ok(pulled.more)
}

impl SharedState<'_> {
    /// Continues where an earlier run stopped: queues everything that was not checked.
    fn restore(&self) -> Result<(), CampaignError> {
        for queued in self.campaign.queue.cases() {
            if self.check_journal.is_done(queued.number) {
                self.checks_done.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let is_ours = !self.check_journal.is_elsewhere(queued.number);
            if !is_ours || self.lost_images.contains(&queued.image) {
                continue;
            }
            let case: TestCase = self.campaign.queue.load(queued.number)?;
            let number = queued.number;
            let job = match &queued.retired {
                None => Job::Record { number, case },
                Some(because) => match ExecutionFailure::of_retirement(because) {
                    Some(failure) => Job::Explain {
                        number: Some(number),
                        case,
                        failure,
                    },
                    None => continue,
                },
            };
            self.submit(job, Priority::Low, queued.entry.new_locations);
        }
        for stored in self.findings.all() {
            let minimised = stored.minimised;
            let is_open = minimised.is_none_or(|it| it.state == MinimisedState::CutShort);
            if is_open {
                let (stored, progress) = (Box::new(stored), Box::default());
                self.submit(Job::Minimise { stored, progress }, Priority::Low, 0);
            }
        }
        let nodes = self.campaign.images.nodes();
        let crashes = nodes.iter().filter(|node| node.failure_point.is_some());
        self.crash_images
            .store(crashes.count() as u64, Ordering::Relaxed);
        Ok(())
    }
}
