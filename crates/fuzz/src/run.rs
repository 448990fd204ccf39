//! From the beginning of a campaign to its end.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use powerfail_fuzz_engine::End;
use powerfail_fuzz_store::{Campaign, Priority, Sync as Others, TestCase, discard_unused};

use crate::checker::{Checker, sentence};
use crate::error::CampaignError;
use crate::findings::{Findings, StoredFinding};
use crate::job::Job;
use crate::messages::Machines;
use crate::observer::Observer;
use crate::options::{CampaignOptions, Checks};
use crate::recording::Recorder;
use crate::shared::{CRASHES, HANGS, Kept, Shared};
use crate::start::Beginning;
use crate::stats::{Stats, StatsFile};
use crate::worker::Worker;

/// How often statistics are written.
const STATS_EVERY: Duration = Duration::from_secs(1);
/// How often it is looked whether everything has to end.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How often other instances are asked.
const SYNC_EVERY: Duration = Duration::from_secs(10);
/// How many test cases are taken from them at a time.
const IMPORTS_MAX: usize = 256;
/// How long an idle checker of a campaign without workers waits.
const IDLE: Duration = Duration::from_millis(5);

/// What a campaign has come to.
#[derive(Clone, Debug)]
pub struct Summary {
    /// At its end.
    pub stats: Stats,
    /// The findings, with the directories of their evidence.
    pub findings: Vec<StoredFinding>,
    /// The user has stopped it.
    pub is_interrupted: bool,
}

/// The options with which a campaign was begun, for `--resume`.
pub fn resumed_options(out: &Path) -> Result<CampaignOptions, CampaignError> {
    let record = powerfail_fuzz_store::read_record(out)?;
    let options = serde_json::from_value::<CampaignOptions>(record.options);
    let mut options = options.map_err(|error| {
        CampaignError::Wrong(format!(
            "{}: the options of the campaign cannot be read: {error}",
            out.display()
        ))
    })?;
    options.out = out.to_path_buf();
    options.resume = true;
    Ok(options)
}

/// Runs a campaign until its time is over, its executions are made or the observer says so. `runtime` are
/// the bytes of the library that is preloaded into the target.
pub fn run(
    options: &CampaignOptions,
    runtime: &Arc<[u8]>,
    observer: &dyn Observer,
) -> Result<Summary, CampaignError> {
    let options = Arc::new(options.clone());
    powerfail_symbol::keep_modules();
    let _ = powerfail_image::sweep_leftovers(&powerfail_image::default_parent());
    let was_there = options.out.exists();
    let campaign = open(&options)?;
    let ran = run_in(campaign, &options, runtime, observer);
    let is_refused = matches!(&ran, Err(error) if !matches!(error, CampaignError::NoRoom { .. }));
    // What came to nothing is not in the way of the next one.
    if is_refused && !options.resume && discard_unused(&options.out) && !was_there {
        let _ = std::fs::remove_dir(&options.out);
    }
    ran
}

fn run_in(
    campaign: Campaign,
    options: &Arc<CampaignOptions>,
    runtime: &Arc<[u8]>,
    observer: &dyn Observer,
) -> Result<Summary, CampaignError> {
    let before = StatsFile::before(&campaign);
    let mut stats_file = StatsFile::new(campaign.directory());
    let findings = Findings::open(&campaign.findings_directory())?;
    for cut in &campaign.cuts {
        observer.warning(&format!(
            "{}: the last {} bytes were half written and are cut off",
            cut.path.display(),
            cut.lost_bytes
        ));
    }
    let machines = Machines::connect(options.together.as_ref())?;
    let kept = Kept::new(campaign);
    let mut beginning = Beginning::read(options, kept.images())?;
    beginning.create_pool(&Recorder::new(options, runtime)?, kept.images())?;
    let shared = Shared::new(options, runtime, observer, kept, findings, before, machines)?;
    shared.restore()?;
    StatsFile::read_paths(shared.kept.directory(), &shared.paths);
    let fuzzers = options.jobs.max(1).div_ceil(2);
    thread::scope(|scope| {
        for number in 0..options.jobs.max(1) {
            let (shared, beginning) = (&shared, &beginning);
            let role = match options.jobs {
                0 | 1 => Role::Both(1),
                _ if number < fuzzers => Role::Fuzz,
                // Without checks only images are made, and that has no end.
                _ if options.checks == Checks::NONE => Role::Both(8),
                _ => Role::Check,
            };
            let thread = move || {
                if let Err(error) = work(number, role, shared, beginning) {
                    shared.fail(error);
                }
            };
            let builder = thread::Builder::new().name(format!("fuzz-{number}"));
            if let Err(error) = builder.spawn_scoped(scope, thread) {
                shared.fail(CampaignError::Wrong(format!(
                    "no thread can be started: {error}"
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
    Ok(Summary {
        stats,
        findings: shared.findings.all(),
        is_interrupted: shared.is_interrupted(),
    })
}

/// Opens the directory of the campaign.
fn open(options: &CampaignOptions) -> Result<Campaign, CampaignError> {
    if options.command.is_empty() {
        return Err(CampaignError::Wrong(
            "there is no target: give a command after --, as in powerfail fuzz -- ./my-program {pool}"
                .into(),
        ));
    }
    let value = serde_json::to_value(options)
        .map_err(|error| CampaignError::Wrong(format!("the options cannot be kept: {error}")))?;
    if options.resume {
        let mut campaign = Campaign::resume(&options.out)?;
        // What flags have changed stays so.
        if campaign.record.options != value {
            campaign.set_options(value)?;
        }
        return Ok(campaign);
    }
    let words = options.command.iter();
    let command = words.map(|word| word.to_string_lossy().into_owned());
    Ok(Campaign::create(&options.out, command.collect(), value)?)
}

/// What a thread does first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Fuzz,
    /// Fuzzes when there is nothing to check.
    Check,
    /// Fuzzes so many times as long as it checks.
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
    shared: &Shared<'_>,
    beginning: &Beginning,
) -> Result<(), CampaignError> {
    let mut worker = Worker::start(number, shared, beginning)?;
    if role == Role::Fuzz {
        while !shared.is_over() {
            worker.step()?;
        }
        return Ok(());
    }
    let mut checker = Checker::new(number, shared)?;
    let (mut fuzzed, mut spent) = (Duration::ZERO, Duration::ZERO);
    while !shared.is_over() {
        let begun = Instant::now();
        if role == Role::Check || spent * times_of(role) <= fuzzed {
            if checker.step()? {
                spent += begun.elapsed();
                continue;
            }
            // Nothing waits: time that was not used is not saved up.
            spent = spent.max(fuzzed / times_of(role));
        }
        worker.step()?;
        fuzzed += begun.elapsed();
        if begun.elapsed() < Duration::from_micros(50) {
            thread::sleep(IDLE);
        }
    }
    Ok(())
}

/// Writes statistics, asks other instances, and says when it is over.
fn watch(shared: &Shared<'_>, file: &mut StatsFile) -> Result<(), CampaignError> {
    let options = &shared.options;
    let mut others = (!options.sync.is_empty())
        .then(|| Others::open(shared.kept.directory(), &options.sync))
        .transpose()?;
    let mut next_stats = Instant::now() + STATS_EVERY;
    let mut next_sync = Instant::now();
    while !shared.is_over() {
        thread::sleep(LOOK_EVERY);
        let time_is_over = options.time.is_some_and(|time| shared.elapsed() >= time);
        let all_made = options
            .executions
            .is_some_and(|executions| shared.executions_now() >= executions);
        if time_is_over || all_made {
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

/// Takes test cases of other instances. Whether there are more.
fn import(shared: &Shared<'_>, others: &mut Others) -> Result<bool, CampaignError> {
    let pulled = others.pull(shared.kept.images(), shared.kept.queue(), IMPORTS_MAX)?;
    for problem in &pulled.problems {
        shared.warn(&format!(
            "another instance cannot be read: {}",
            sentence(problem)
        ));
    }
    for imported in pulled.cases {
        let mut entry = imported.entry;
        entry.found_by = format!("{} of {}", imported.number, imported.from.display());
        entry.time_s = shared.time_s();
        entry.minimised_from = None;
        let (_, is_new) = shared.kept.queue().append(&imported.case, &entry)?;
        if is_new {
            shared.offer(std::iter::once(imported.case));
        }
    }
    others.done()?;
    Ok(pulled.more)
}

impl Shared<'_> {
    /// Goes on where an earlier run has stopped: what was not checked is checked.
    fn restore(&self) -> Result<(), CampaignError> {
        for queued in self.kept.queue().cases() {
            if self.checked.is_done(queued.number) {
                self.checks_done.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let case: TestCase = self.kept.queue().load(queued.number)?;
            let number = queued.number;
            let end = match queued.retired.as_deref() {
                None => None,
                Some(HANGS) => Some(End::Timeout),
                Some(CRASHES) => Some(End::Signal(libc::SIGSEGV)),
                Some(_) => continue,
            };
            let job = match end {
                Some(end) => Job::Blame {
                    number: Some(number),
                    case,
                    end: Some(end),
                },
                None => Job::Record { number, case },
            };
            self.submit(job, Priority::Low, queued.entry.new_locations);
        }
        for stored in self.findings.all() {
            if let Some(basis) = Findings::unfinished(&stored)? {
                let job = Job::Minimise {
                    stored: Box::new(stored),
                    case: basis.case,
                    recovery: Box::new(basis.recovery),
                    recovery_input: basis.recovery_input,
                };
                self.submit(job, Priority::Low, 0);
            }
        }
        let nodes = self.kept.images().nodes();
        let crashes = nodes.iter().filter(|node| node.failure_point.is_some());
        self.crash_images
            .store(crashes.count() as u64, Ordering::Relaxed);
        Ok(())
    }
}
