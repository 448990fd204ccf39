//! `cargo xtask cluster`: the recipe for Slurm in `examples/clusters` on a Slurm of one node.
//!
//! Everything of it is in a folder of its own: munge with a key of its own, the controller and the node with ports and state of
//! their own. All of it ends with this program. The merged report must be that of one run, byte for byte.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use crate::packages;
use crate::run;

/// What is needed besides what the tests need.
const PACKAGES: [&str; 2] = ["slurm-wlm", "munge"];
const SHARES: &str = "3";
/// How long the controller may take to answer.
const PATIENCE: Duration = Duration::from_mins(1);
const PROGRAM: &str = "crates/cli/tests/check/programs/many.c";

/// Runs the recipe. `powerfail` is the binary.
pub fn run_recipe(powerfail: &Path) -> anyhow::Result<()> {
    packages::install(&PACKAGES)?;
    let recipe = std::path::absolute("examples/clusters/slurm.sh")?;
    let folder = std::path::absolute("target/cluster")?;
    if folder.exists() {
        fs::remove_dir_all(&folder).context("cannot remove target/cluster")?;
    }
    fs::create_dir_all(&folder).context("cannot make target/cluster")?;
    run(Command::new("gcc")
        .args(["-std=gnu11", "-g", "-Wl,-z,now", "-o"])
        .arg(folder.join("bug"))
        .arg(PROGRAM))?;
    let in_folder = |program: &Path| {
        let mut command = Command::new(program);
        command.current_dir(&folder);
        command
    };
    run(in_folder(powerfail).args(["record", "-o", "run.trace", "--", "./bug", "{pool}"]))?;
    let options = ["--recover", "./bug {pool} recover"];
    let one = in_folder(powerfail)
        .args(["check", "--trace", "run.trace", "--format", "json"])
        .args(["--out", "whole"])
        .args(options)
        .output()?;
    ensure!(
        one.status.code() == Some(1),
        "the planted bug was not found"
    );

    let slurm = Slurm::start(&folder)?;
    let submitted = in_folder(&recipe)
        .args([SHARES, "run.trace", "results"])
        .args(options)
        .env("POWERFAIL", powerfail)
        .env("SLURM_CONF", &slurm.configuration)
        .output()?;
    let errors = String::from_utf8_lossy(&submitted.stderr);
    ensure!(submitted.status.success(), "slurm.sh failed: {errors}");
    let job = String::from_utf8(submitted.stdout)?;
    let job = job.trim();
    // Ends when the job has ended, however it has.
    run(in_folder(Path::new("srun"))
        .args(["--quiet", &format!("--dependency=afterany:{job}"), "true"])
        .env("SLURM_CONF", &slurm.configuration))?;
    drop(slurm);

    let results = folder.join("results");
    let report = fs::read(results.join("report.json")).context("there is no merged report")?;
    if report != one.stdout {
        let log = fs::read_to_string(results.join("merge.log")).unwrap_or_default();
        bail!("the merged report is not that of one run; the merge has written:\n{log}");
    }
    let log = fs::read_to_string(results.join("merge.log"))?;
    let known = log.lines().find(|line| line.contains("were known"));
    println!("{SHARES} shares under Slurm give the report of one run");
    println!("{}", known.unwrap_or_default());
    Ok(())
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
