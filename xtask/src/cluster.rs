//! `cargo xtask cluster`: the recipes for Slurm in `examples/clusters` on a Slurm of one node.
//!
//! Everything of it is in a folder of its own: munge with a key of its own, the controller and the node with ports and state of
//! their own. All of it ends with this program. The merged report of the shares must be that of one run, byte for byte, and
//! each instance of a campaign must have test cases of the other.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::packages;
use crate::run;

/// What is needed besides what the tests need.
const PACKAGES: [&str; 2] = ["slurm-wlm", "munge"];
const SHARES: &str = "3";
/// How long the controller may take to answer.
const PATIENCE: Duration = Duration::from_mins(1);
const PROGRAM: &str = "crates/cli/tests/check/programs/many.c";
const FUZZED: &str = "crates/cli/tests/fuzz/programs/shop.c";
/// As many as the node has processors: they run at the same time.
const INSTANCES: u32 = 2;
/// How long they run.
const FUZZ_TIME: &str = "20s";

/// Runs the recipes. `powerfail` is the binary.
pub fn run_recipes(powerfail: &Path) -> anyhow::Result<()> {
    packages::install(&PACKAGES)?;
    let folder = std::path::absolute("target/cluster")?;
    if folder.exists() {
        fs::remove_dir_all(&folder).context("cannot remove target/cluster")?;
    }
    fs::create_dir_all(&folder).context("cannot make target/cluster")?;
    for (name, source) in [("bug", PROGRAM), ("shop", FUZZED)] {
        run(Command::new("gcc")
            .args(["-std=gnu11", "-g", "-Wl,-z,now", "-o"])
            .arg(folder.join(name))
            .arg(source))?;
    }
    let slurm = Slurm::start(&folder)?;
    let cluster = Cluster {
        slurm,
        folder,
        powerfail,
    };
    cluster.check()?;
    cluster.fuzz()
}

/// A Slurm, and where its jobs run.
struct Cluster<'p> {
    slurm: Slurm,
    folder: PathBuf,
    powerfail: &'p Path,
}

impl Cluster<'_> {
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(&self.folder)
            .env("POWERFAIL", self.powerfail)
            .env("SLURM_CONF", &self.slurm.configuration);
        command
    }

    /// Submits the jobs of a recipe, and waits until the one that it names has ended, however it has.
    fn run_recipe(&self, name: &str, arguments: &[&str]) -> anyhow::Result<()> {
        let recipe = std::path::absolute(Path::new("examples/clusters").join(name))?;
        let submitted = self.command(&recipe).args(arguments).output()?;
        let errors = String::from_utf8_lossy(&submitted.stderr);
        ensure!(submitted.status.success(), "{name} failed: {errors}");
        let job = String::from_utf8(submitted.stdout)?;
        let dependency = format!("--dependency=afterany:{}", job.trim());
        run(self
            .command(Path::new("srun"))
            .args(["--quiet", &dependency, "true"]))
    }

    /// A check in shares.
    fn check(&self) -> anyhow::Result<()> {
        let recording = ["record", "-o", "run.trace", "--", "./bug", "{pool}"];
        run(self.command(self.powerfail).args(recording))?;
        let options = ["--recover", "./bug {pool} recover"];
        let one = self
            .command(self.powerfail)
            .args(["check", "--trace", "run.trace", "--format", "json"])
            .args(["--out", "whole"])
            .args(options)
            .output()?;
        ensure!(
            one.status.code() == Some(1),
            "the planted bug was not found"
        );
        let arguments = [SHARES, "run.trace", "results"];
        self.run_recipe("slurm.sh", &[&arguments[..], &options].concat())?;
        let results = self.folder.join("results");
        let report = fs::read(results.join("report.json")).context("there is no merged report")?;
        let log = fs::read_to_string(results.join("merge.log")).unwrap_or_default();
        ensure!(
            report == one.stdout,
            "the merged report is not that of one run; the merge has written:\n{log}"
        );
        println!("{SHARES} shares under Slurm give the report of one run");
        let known = log.lines().find(|line| line.contains("were known"));
        println!("{}", known.unwrap_or_default());
        Ok(())
    }

    /// A campaign with several instances that share a directory.
    fn fuzz(&self) -> anyhow::Result<()> {
        let instances = INSTANCES.to_string();
        let limits = ["--time", FUZZ_TIME, "--jobs", "1", "--check-with", "prefix"];
        let target = ["--", "./shop", "{pool}"];
        let arguments = [&[instances.as_str(), "team"][..], &limits, &target].concat();
        self.run_recipe("slurm-fuzz.sh", &arguments)?;
        for number in 1..=INSTANCES {
            let out = format!("team/{number}");
            let shown = self
                .command(self.powerfail)
                .args(["fuzz", "show", &out, "--json"])
                .output()?;
            let log = fs::read_to_string(self.folder.join(format!("{out}.log")));
            let log = log.unwrap_or_default();
            let shown: Value = serde_json::from_slice(&shown.stdout)
                .with_context(|| format!("{out} is no campaign; its job has written:\n{log}"))?;
            let cases = shown["cases"].as_array().context("no test cases")?;
            let is_read = |case: &&Value| {
                let from = case["entry"]["found_by"].as_str();
                from.is_some_and(|from| from.contains(" of "))
            };
            let read = cases.iter().filter(is_read).count();
            ensure!(
                read > 0,
                "{out} has nothing of the others; its job has written:\n{log}"
            );
            let all = cases.len();
            println!(
                "instance {number} under Slurm has {read} of its {all} test cases from others"
            );
        }
        Ok(())
    }
}

/// Munge, the controller and a node. They end when this is dropped.
struct Slurm {
    configuration: PathBuf,
    /// In the order in which they were started.
    processes: Vec<Child>,
}

impl Slurm {
    fn start(folder: &Path) -> anyhow::Result<Self> {
        let folder = folder.join("slurm");
        for name in ["state", "spool"] {
            fs::create_dir_all(folder.join(name))?;
        }
        let key = folder.join("munge.key");
        let mut random = vec![0; 1024];
        std::io::Read::read_exact(&mut fs::File::open("/dev/urandom")?, &mut random)?;
        fs::write(&key, random)?;
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600))?;
        let configuration = folder.join("slurm.conf");
        fs::write(&configuration, configuration_of(&folder)?)?;
        let mut slurm = Self {
            configuration,
            processes: Vec::new(),
        };
        let named =
            |option: &str, name: &str| format!("--{option}={}", folder.join(name).display());
        let socket = folder.join("munge.socket");
        slurm.spawn(
            &folder,
            Command::new("munged").args([
                "--foreground".to_owned(),
                "--force".to_owned(),
                named("key-file", "munge.key"),
                named("socket", "munge.socket"),
                named("pid-file", "munged.pid"),
                named("log-file", "munged.log"),
                named("seed-file", "munged.seed"),
            ]),
        )?;
        wait_until("munge is there", || socket.exists())?;
        let configuration = slurm.configuration.clone();
        slurm.spawn(
            &folder,
            Command::new("slurmctld")
                .args(["-D", "-f"])
                .arg(&configuration),
        )?;
        slurm.spawn(
            &folder,
            Command::new("slurmd")
                .args(["-D", "-N", "localhost", "-f"])
                .arg(&configuration),
        )?;
        wait_until("the controller answers", || {
            let mut ping = Command::new("scontrol");
            ping.arg("ping").env("SLURM_CONF", &configuration);
            ping.output()
                .is_ok_and(|answer| String::from_utf8_lossy(&answer.stdout).contains("is UP"))
        })?;
        Ok(slurm)
    }

    fn spawn(&mut self, folder: &Path, command: &mut Command) -> anyhow::Result<()> {
        let name = command.get_program().to_string_lossy().into_owned();
        let log = fs::File::create(folder.join(format!("{name}.out")))?;
        let child = command
            .env("SLURM_CONF", &self.configuration)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot run {name}"))?;
        self.processes.push(child);
        Ok(())
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        while let Some(mut process) = self.processes.pop() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) -> anyhow::Result<()> {
    let begun = Instant::now();
    while !is_so() {
        ensure!(begun.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

fn configuration_of(folder: &Path) -> anyhow::Result<String> {
    let free_port = || -> anyhow::Result<u16> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        Ok(listener.local_addr()?.port())
    };
    let (controller, node) = (free_port()?, free_port()?);
    let folder = folder.display();
    Ok(format!(
        "ClusterName=powerfail
SlurmctldHost=localhost
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmctldPort={controller}
SlurmdPort={node}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName=localhost NodeHostname=localhost CPUs=2 State=UNKNOWN
PartitionName=main Nodes=localhost Default=YES MaxTime=INFINITE State=UP
"
    ))
}
