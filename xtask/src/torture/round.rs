//! One round, inside of its namespaces: powerfail runs, something goes wrong, and what is left is inspected.
//!
//! The first line on standard output says what was done and how it ended. Each further line is a violation.

use std::fs;
use std::io::Write as _;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::Context;

use super::leftovers::Leftovers;
use super::plan::{Action, Plan, Stress};
use crate::random::Random;
use crate::run;

/// powerfail ends in less, also on a machine that is busy.
const SECONDS_MAX: u64 = 240;
/// How powerfail may end: clean, findings, a set-up error, not supported, nothing checked. An internal error is none.
const CODES: [i32; 5] = [0, 1, 2, 4, 5];
/// A file of the user. Nothing may change it.
const PRECIOUS: &str = "precious";

/// Runs the round of a seed: with this binary, the programs of a folder, in an empty folder.
pub fn run_inside(seed: u64, [binary, programs, work]: &[PathBuf; 3]) -> anyhow::Result<()> {
    let plan = Plan::of(seed);
    let round = Round {
        plan,
        binary,
        programs,
        work,
    };
    let (ended, violations) = round.run()?;
    println!("{}: {ended}", round.plan);
    for violation in violations {
        println!("{violation}");
    }
    Ok(())
}

struct Round<'a> {
    plan: Plan,
    binary: &'a Path,
    programs: &'a Path,
    work: &'a Path,
}

impl Round<'_> {
    /// How powerfail ended, and what is wrong.
    fn run(&self) -> anyhow::Result<(String, Vec<String>)> {
        self.prepare()?;
        let before = self.look()?;
        let mut violations = Vec::new();
        let mut statuses = Vec::new();
        for arguments in self.commands() {
            if arguments.is_empty() {
                self.damage()?;
                continue;
            }
            let (status, stderr) = self.powerfail(&arguments)?;
            violations.extend(self.judge(&arguments, status, &stderr));
            statuses.push(status);
        }
        let is_killed = statuses.iter().flatten().any(|it| it.signal().is_some());
        violations.extend(Leftovers::wait_for_processes()?);
        if is_killed || self.plan.forbids_descriptors() {
            // What a killed run leaves is removed by the next one.
            self.sweep()?;
        }
        violations.extend(before.compare(&self.look()?));
        violations.extend(self.compare_files());
        let ended: Vec<String> = statuses.iter().map(|status| describe(*status)).collect();
        Ok((ended.join(", "), violations))
    }

    fn home(&self) -> PathBuf {
        self.work.join("home")
    }

    /// The directories that the round itself uses.
    fn own_directories(&self) -> [&Path; 3] {
        let binary = self.binary.parent().unwrap_or(Path::new("/"));
        [binary, self.programs, self.work]
    }

    fn look(&self) -> anyhow::Result<Leftovers> {
        Leftovers::look(&self.home(), &self.own_directories())
    }

    /// Empty places of its own for all that powerfail could leave somewhere, and a file of the user.
    fn prepare(&self) -> anyhow::Result<()> {
        run(Command::new("mount").args(["--make-rprivate", "/"]))?;
        let covered = ["/tmp", "/dev/shm"];
        let is_covered = |path: &&Path| covered.iter().any(|it| path.starts_with(it));
        let own = self.own_directories().into_iter().filter(is_covered);
        let opened: Vec<(&Path, fs::File)> = own
            .map(|path| Ok((path, fs::File::open(path)?)))
            .collect::<std::io::Result<_>>()?;
        for place in covered {
            run(Command::new("mount").args(["-t", "tmpfs", "none", place]))?;
        }
        for (path, directory) in opened {
            fs::create_dir_all(path)?;
            let source = format!("/proc/self/fd/{}", directory.as_raw_fd());
            rustix::mount::mount_bind_recursive(source, path)?;
        }
        fs::create_dir_all(self.home())?;
        fs::write(self.home().join(PRECIOUS), PRECIOUS)?;
        fs::create_dir_all(self.work.join("disk"))?;
        if let Stress::Disk { kib } = self.plan.stress {
            // A tmpfs without room for a page does not exist.
            let size = format!("size={}k", kib.max(4));
            run(Command::new("mount")
                .args(["-t", "tmpfs", "-o", &size, "none"])
                .arg(self.work.join("disk")))?;
        }
        Ok(())
    }

    /// The command lines of powerfail. An empty one damages what was written so far.
    fn commands(&self) -> Vec<Vec<String>> {
        let plan = &self.plan;
        let line = |options: &str, workload: bool| -> Vec<String> {
            let mut words: Vec<String> = options.split_whitespace().map(str::to_owned).collect();
            if words[0] == "check" || words[0] == "crash" || words[0] == "races" {
                words.extend(["--recover".to_owned(), plan.recover.clone()]);
                words.extend(["--timeout", "2s", "--budget", "4s"].map(str::to_owned));
            }
            if workload {
                words.push("--".to_owned());
                words.extend(plan.workload.iter().cloned());
            }
            words
        };
        match plan.action {
            Action::Check => vec![line("check --out disk/out", true)],
            Action::Schedules => vec![line("check --out disk/out --schedules 3", true)],
            Action::Record => vec![line("record -o disk/run.trace", true)],
            Action::Fuzz => vec![
                line(
                    "fuzz --out disk/out --execs 200 --time 5s --timeout 1s",
                    true,
                ),
                line("fuzz --resume --out disk/out --execs 50 --time 2s", false),
                line("fuzz show disk/out --cases --images", false),
            ],
            Action::ReplayDamaged => vec![
                line("check --out disk/out", true),
                Vec::new(),
                vec![
                    "replay".into(),
                    "ID".into(),
                    "--out".into(),
                    "disk/out".into(),
                    "--yes".into(),
                ],
                vec![
                    "replay".into(),
                    "ID".into(),
                    "--out".into(),
                    "disk/out".into(),
                    "--yes".into(),
                    "--export".into(),
                    "disk/bundle".into(),
                ],
            ],
            Action::Resume => vec![
                line("check --out disk/out", true),
                Vec::new(),
                line("check --out disk/out --resume", true),
            ],
            Action::Merge => vec![
                line("record -o disk/run.trace", true),
                line("crash disk/run.trace --partition 1/2 --out disk/one", false),
                line("crash disk/run.trace --partition 2/2 --out disk/two", false),
                Vec::new(),
                line("merge disk/one disk/two --out disk/out --yes", false),
            ],
            Action::Changed => vec![
                line("check --out disk/out", true),
                Vec::new(),
                line("check --out disk/new --changed-since disk/out", true),
            ],
            Action::Init => vec![line("init --force --record-timeout 5s", true)],
            Action::ReadDamaged => vec![
                line("record -o disk/run.trace", true),
                Vec::new(),
                line("trace info disk/run.trace", false),
                line("trace check disk/run.trace", false),
                line("lint disk/run.trace", false),
                line("crash disk/run.trace --out disk/out", false),
            ],
        }
    }

    /// Runs powerfail; `None` if it did not end. Also what it wrote to standard error.
    fn powerfail(&self, arguments: &[String]) -> anyhow::Result<(Option<ExitStatus>, String)> {
        let stderr = self.work.join("stderr");
        let limit = match self.plan.stress {
            Stress::Limit { flag, value } => format!("ulimit {flag} {value}; "),
            _ => String::new(),
        };
        let mut path = self.programs.as_os_str().to_owned();
        path.push(":/usr/bin:/bin");
        let id = self.any_id();
        let mut child = Command::new("sh")
            .args(["-c", &format!("ulimit -c 0; {limit}exec \"$@\""), "sh"])
            .arg(self.binary)
            .args(
                arguments
                    .iter()
                    .map(|word| if word == "ID" { &id } else { word }),
            )
            .current_dir(self.work)
            .env("PATH", path)
            .env("HOME", self.home())
            .env_remove("XDG_STATE_HOME")
            .env_remove("TMPDIR")
            .stdin(Stdio::null())
            .stdout(fs::File::create(self.work.join("stdout"))?)
            .stderr(fs::File::create(&stderr)?)
            .spawn()?;
        let status = self.wait(&mut child)?;
        let text = fs::read(&stderr)?;
        Ok((status, String::from_utf8_lossy(&text).into_owned()))
    }

    /// The id of a finding in the output directory.
    fn any_id(&self) -> String {
        let report = fs::read_to_string(self.work.join("disk/out/report.json")).unwrap_or_default();
        let id = report
            .split("\"id\": \"")
            .nth(1)
            .and_then(|rest| rest.split('"').next());
        id.unwrap_or("00000000").to_owned()
    }

    /// Waits for powerfail, and sends it a signal meanwhile if that is planned.
    fn wait(&self, child: &mut Child) -> anyhow::Result<Option<ExitStatus>> {
        let pid = child.id().to_string();
        let (sender, ended) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || sender.send(child.wait()));
            let mut patience = Duration::from_secs(SECONDS_MAX);
            if let Stress::Signal { signal, after_ms } = self.plan.stress {
                let delay = Duration::from_millis(after_ms);
                match ended.recv_timeout(delay) {
                    Ok(status) => return Ok(Some(status?)),
                    Err(RecvTimeoutError::Disconnected) => anyhow::bail!("cannot wait"),
                    Err(RecvTimeoutError::Timeout) => send(signal, &pid)?,
                }
                patience -= delay;
            }
            if let Ok(status) = ended.recv_timeout(patience) {
                return Ok(Some(status?));
            }
            send("KILL", &pid)?;
            let _ = ended.recv();
            Ok(None)
        })
    }

    /// What is wrong with how powerfail ended.
    fn judge(&self, arguments: &[String], status: Option<ExitStatus>, stderr: &str) -> Vec<String> {
        let mut violations = Vec::new();
        let command = arguments.join(" ");
        match status.map(|status| (status.code(), status.signal())) {
            None => violations.push(format!("`{command}` did not end in {SECONDS_MAX} s")),
            Some((Some(code), _)) if CODES.contains(&code) => {}
            // The shell could not start it within its limits.
            Some((Some(126 | 127), _)) if matches!(self.plan.stress, Stress::Limit { .. }) => {}
            Some((_, Some(signal))) if self.plan.sends(signal) => {}
            Some((Some(code), _)) => violations.push(format!("`{command}` ended with code {code}")),
            Some((_, signal)) => {
                violations.push(format!("`{command}` was ended by signal {signal:?}"));
            }
        }
        let is_ours =
            |line: &&str| line.contains("internal error") || line.contains(" panicked at ");
        if let Some(line) = stderr.lines().find(is_ours) {
            violations.push(format!("`{command}` says: {line}"));
        }
        violations
    }

    /// A plain check, which removes what killed ones have left.
    fn sweep(&self) -> anyhow::Result<()> {
        let program = self.programs.join(super::programs::planted_name(0));
        let status = Command::new(self.binary)
            .args(["check", "--no-lazy", "--out", "sweep", "--"])
            .arg(program)
            .arg("{pool}")
            .current_dir(self.work)
            .env("HOME", self.home())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        anyhow::ensure!(
            status.code().is_some(),
            "the check that sweeps ended with {status}"
        );
        Ok(())
    }

    /// Changes some bytes of what powerfail has written, or puts a link in its place.
    fn damage(&self) -> anyhow::Result<()> {
        let random = &mut Random::new(self.plan.damage_seed);
        if self.plan.can_succeed() && random.below(2) == 0 {
            return Ok(());
        }
        let names = [
            "out/report.json",
            "out/recovery.json",
            "out/run.trace",
            "out/seal",
            "out/outcomes",
            "out/coverage.json",
            "out/sources.json",
            "one/outcomes",
            "one/recovery.json",
            "two/outcomes",
            "run.trace",
        ];
        let paths = names.map(|name| self.work.join("disk").join(name));
        let paths: Vec<&PathBuf> = paths.iter().filter(|path| path.is_file()).collect();
        if paths.is_empty() {
            return Ok(());
        }
        let path = *random.one_of(&paths);
        if random.below(4) == 0 {
            fs::remove_file(path)?;
            let target = self.home().join(PRECIOUS);
            return Ok(std::os::unix::fs::symlink(target, path)?);
        }
        let mut bytes = fs::read(path)?;
        for _ in 0..=random.below(8) {
            if !bytes.is_empty() {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.next() as u8;
            }
        }
        if random.below(3) == 0 {
            bytes.truncate(random.below(bytes.len() as u64 + 1) as usize);
        }
        // A full disk keeps what fits.
        let _ = fs::File::create(path)?.write_all(&bytes);
        Ok(())
    }

    /// What powerfail has changed besides its outputs.
    fn compare_files(&self) -> Vec<String> {
        let mut violations = Vec::new();
        let precious = fs::read_to_string(self.home().join(PRECIOUS)).unwrap_or_default();
        if precious != PRECIOUS {
            violations.push(format!("a file of the user holds `{precious}`"));
        }
        let known = [
            "disk",
            "home",
            "sweep",
            "stdout",
            "stderr",
            "round.stderr",
            "powerfail.toml",
            ".powerfail.toml.new",
        ];
        for entry in fs::read_dir(self.work).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if !known.iter().any(|known| name == *known) {
                violations.push(format!(
                    "{} is left in the working directory",
                    name.display()
                ));
            }
        }
        violations
    }
}

fn send(signal: &str, pid: &str) -> anyhow::Result<()> {
    // It may have ended by itself.
    let mut kill = Command::new("kill");
    kill.args(["-s", signal, pid]).stderr(Stdio::null());
    kill.status().context("kill")?;
    Ok(())
}

fn describe(status: Option<ExitStatus>) -> String {
    match status.map(|status| (status.code(), status.signal())) {
        Some((Some(code), _)) => code.to_string(),
        Some((_, Some(signal))) => format!("signal {signal}"),
        _ => "hang".to_owned(),
    }
}
