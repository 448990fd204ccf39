//! `cargo xtask vm`: the long campaign with guests. The toy directory of `tests/vm` with each of its planted bugs, and the file
//! systems of a stock kernel; the results are docs/figures/vm.md.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::{packages, run};

/// What guests need, besides a kernel.
pub const PACKAGES: [&str; 4] = ["qemu-system-x86", "busybox-static", "e2fsprogs", "xfsprogs"];

type Planted = (u32, &'static str, &'static str);

/// A planted bug: its number, the operations that show it, and the function that the one finding must name.
const PLANTED: [Planted; 14] = [
    (1, "ops.sh", "log_images"),
    (2, "ops.sh", "log_images"),
    (3, "ops.sh", "log_images"),
    // The first of the two updates becomes valid without the second.
    (4, "ops.sh", "log_commit"),
    (5, "ops.sh", "recover"),
    (5, "ops-recovery.sh", "recover"),
    (6, "ops.sh", "apply"),
    (7, "ops.sh", "retire"),
    (8, "ops.sh", "create_entry"),
    (9, "ops.sh", "write_entry"),
    (10, "ops.sh", "log_images"),
    (11, "ops.sh", "remove_entry"),
    (12, "ops.sh", "log_commit"),
    (13, "ops.sh", "log_images"),
];

/// The same module without a bug.
const TWINS: [Planted; 2] = [(0, "ops.sh", ""), (0, "ops-recovery.sh", "")];

/// A workload on stock code of the kernel: what it is called, and its flags.
type Campaign = (&'static str, &'static [&'static str]);

/// How long recoveries of one campaign may take: those of XFS take longer, and so does watching them.
const BUDGETS: [&str; 3] = ["60s", "150s", "60s"];

const CAMPAIGNS: [Campaign; 3] = [
    ("ext4", &["--fs", "ext4", "--workload", "files.sh"]),
    ("xfs", &["--fs", "xfs", "--workload", "files.sh"]),
    (
        "dm-writecache",
        &[
            "--fs",
            "none",
            "--pm",
            "8M",
            "--promise",
            "sync",
            "--module",
            "dm_writecache",
            "--attach",
            "writecache-attach.sh",
            "--detach",
            "writecache-detach.sh",
            "--list",
            "writecache-list.sh",
            "--workload",
            "writecache.sh",
        ],
    ),
];
/// How long recoveries of a planted bug may take, for each of two strategies.
const PLANTED_BUDGET: &str = "3m";

/// Runs everything and writes the page.
pub fn campaign(powerfail: &Path, repository: &Path) -> anyhow::Result<()> {
    packages::install(&PACKAGES)?;
    let work = work_directory()?;
    let kernel = kernel(&work)?;
    let guest = Guest {
        powerfail: powerfail.to_path_buf(),
        scripts: fs::canonicalize(repository.join("tests/vm"))?,
        work,
        kernel,
    };
    let mut page = String::from(HEAD);
    let begun = Instant::now();
    let missed = guest.planted(&mut page)?;
    let file = repository.join("docs/figures/vm.md");
    fs::write(&file, &page)?;
    guest.file_systems(&mut page)?;
    let _ = writeln!(
        page,
        "\nAll of this took {} minutes by the clock and {} of processors.",
        begun.elapsed().as_secs().div_ceil(60),
        processor_time()?.as_secs().div_ceil(60)
    );
    fs::write(file, page)?;
    ensure!(missed.is_empty(), "not as planted: {}", missed.join(", "));
    Ok(())
}

/// Where kernels and machines of campaigns and tests are.
pub fn work_directory() -> anyhow::Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
    let work = target.unwrap_or_else(usual).join("vm");
    fs::create_dir_all(&work).with_context(|| work.display().to_string())?;
    Ok(fs::canonicalize(work)?)
}

const HEAD: &str = "\
# Guests

`cargo xtask vm` makes this page: `powerfail vm check` on a toy directory in persistent memory with planted bugs (`tests/vm`), and on
stock code of Debian's kernel, in QEMU without KVM. Times are those of one run on one machine.

";

const PLANTED_HEAD: &str = "\
## Planted bugs

The default: a power failure before each flush and fence with every earlier store, then again during recovery, then combinations of
lost lines, at most 50 of a segment; up to three minutes for each of the two. Combinations are tried only if nothing is found without.
\"As planted\" is exactly one finding, at the function of the bug, and none without a bug. The second column of combinations has those of lines
that recovery reads: only they are varied.

| bug | | codes | at | findings | combinations | of lines read | recoveries | processor time |
|---|---|---|---|---:|---:|---:|---:|---:|
";

const FILE_SYSTEMS_HEAD: &str = "
## Stock code of the kernel

The columns are those of Yat's table, then combinations of the lines that recovery reads, recoveries, those that failed, the
time by the clock and of processors (with booting, recording, watching and fsck), and recoveries for each second of processor
time. Yat ran about 5 states a second. `prefix` keeps all earlier stores; `eager` tries combinations, at most 50 of a segment.

| | strategy | writes | flushes | fences | segments | combinations | of lines read | recoveries | failed | time | processor time | recoveries/s | findings |
|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|
";

const TRIAGE: &str = "
What combinations find in ext4 and XFS is true, and by design: both take for granted that a sector is written as a whole. The
driver `nd_pmem` copies a sector by stores of 8 bytes, so a crash can tear the superblock or the head of the journal (ext4), or the head
of an allocation group (XFS); then the checksum does not fit, and mount refuses the file system. The kernel's documentation
says that sectors of persistent memory are atomic only with a block translation table (BTT), with which there is no DAX. With all earlier stores
durable both are clean: nothing that was synced is lost.

dm-writecache: the power fails while the constructor writes the first superblock of an empty cache (`init_memory`, which the compiler
has put into `writecache_ctr`): the version is durable before the magic number, and the next constructor refuses what it finds there.
That is true: nothing is lost, because nothing was stored, but the cache has to be cleared by hand. A workload
with `sync` only gives PF0103: `sync` writes the pages of a disk and does not flush the disk, so that is a mistake of the workload;
`fsync` is right, and silent.
";

/// A kernel that is there, or that of the package, unpacked.
pub fn kernel(work: &Path) -> anyhow::Result<PathBuf> {
    let tree = work.join("kernel");
    for directory in [Path::new("/boot"), &tree.join("boot")] {
        if let Some(found) = newest(directory) {
            return Ok(found);
        }
    }
    let output = Command::new("apt-cache")
        .args(["depends", "linux-image-amd64"])
        .output()
        .context("apt-cache")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let package = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("Depends: "));
    let package = package.context("the package linux-image-amd64 is not known")?;
    run(Command::new("apt-get")
        .args(["download", "--quiet", package])
        .current_dir(work))?;
    let file = fs::read_dir(work)?.filter_map(Result::ok).find(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with(package) && entry.path().extension().is_some_and(|it| it == "deb")
    });
    let file = file.context("the package of the kernel")?.path();
    run(Command::new("dpkg").arg("-x").arg(&file).arg(&tree))?;
    fs::remove_file(file)?;
    newest(&tree.join("boot")).context("the package has no kernel")
}

fn newest(directory: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(directory).ok()?.filter_map(Result::ok);
    let kernels =
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("vmlinuz-"));
    kernels.map(|entry| entry.path()).max()
}

/// The version of a kernel.
fn version(kernel: &Path) -> anyhow::Result<String> {
    let name = kernel.file_name().context("a kernel")?.to_string_lossy();
    Ok(name.trim_start_matches("vmlinuz-").to_owned())
}

/// Installs what modules of a kernel are built with.
pub fn install_headers(kernel: &Path) -> anyhow::Result<()> {
    packages::install(&["make", &format!("linux-headers-{}", version(kernel)?)])
}

/// Builds the module with planted bugs against the headers of the kernel's package, in a directory: what guests load, and the
/// same with debug information.
pub fn build_module(kernel: &Path, scripts: &Path, work: &Path) -> anyhow::Result<[PathBuf; 2]> {
    let folder = work.join("toydir");
    fs::create_dir_all(&folder)?;
    for file in ["toydir.c", "Makefile"] {
        fs::copy(scripts.join("toydir").join(file), folder.join(file))?;
    }
    run(Command::new("make")
        .arg("-C")
        .arg(format!("/lib/modules/{}/build", version(kernel)?))
        .arg(format!("M={}", folder.display()))
        .arg("modules")
        .stdout(std::process::Stdio::null()))?;
    let debug = folder.join("toydir.ko");
    let module = work.join("toydir.ko");
    run(Command::new("strip")
        .arg("--strip-debug")
        .arg("-o")
        .arg(&module)
        .arg(&debug))?;
    Ok([module, debug])
}

struct Guest {
    powerfail: PathBuf,
    scripts: PathBuf,
    work: PathBuf,
    kernel: PathBuf,
}

/// What a check said.
struct Checked {
    code: i32,
    report: Value,
    time: Duration,
    /// What it and its guests took of processors.
    processor_time: Duration,
}

impl Checked {
    fn codes(&self) -> Vec<&str> {
        let findings = self.report["findings"].as_array().into_iter().flatten();
        let mut codes: Vec<&str> = findings.filter_map(|it| it["code"].as_str()).collect();
        codes.sort_unstable();
        codes.dedup();
        codes
    }

    /// Each finding in a few words.
    fn list(&self) -> String {
        let findings = self.findings().iter().map(|it| {
            let function = it["places"][0]["function"].as_str().unwrap_or("?");
            format!("{} `{function}`", it["code"].as_str().unwrap_or("?"))
        });
        let mut findings: Vec<String> = findings.collect();
        findings.sort();
        findings.dedup();
        findings.join(", ")
    }

    fn findings(&self) -> &[Value] {
        self.report["findings"]
            .as_array()
            .map_or(&[], Vec::as_slice)
    }

    /// Where the first finding is: function and line.
    fn place(&self) -> (&str, String) {
        let place = &self.report["findings"][0]["places"][0];
        let file = place["file"].as_str().unwrap_or("");
        let file = file.rsplit('/').next().unwrap_or(file);
        let line = place["line"].as_u64();
        let line = line.map_or_else(String::new, |line| format!("{file}:{line}"));
        (place["function"].as_str().unwrap_or(""), line)
    }

    fn recoveries(&self) -> u64 {
        self.report["totals"]["recovery_runs"].as_u64().unwrap_or(0)
    }

    /// A number of the table of combinations.
    fn eager(&self, name: &str) -> String {
        let value = &self.report["totals"]["eager"][name];
        match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => String::new(),
        }
    }

    fn read_combinations(&self) -> &str {
        let reads = &self.report["totals"]["eager"]["reads"];
        reads["combinations"].as_str().unwrap_or("")
    }
}

/// What processes that have ended and were waited for have taken of processors.
fn processor_time() -> anyhow::Result<Duration> {
    /// The kernel counts hundredths of a second for programs.
    const TICK: Duration = Duration::from_millis(10);
    let text = fs::read_to_string("/proc/self/stat").context("/proc/self/stat")?;
    // Behind the name, which is in parentheses: the children are the fields 16 and 17 of all.
    let fields = text.rsplit(')').next().unwrap_or_default();
    let ticks = fields.split_whitespace().skip(13).take(2);
    let ticks: u32 = ticks.filter_map(|it| it.parse::<u32>().ok()).sum();
    Ok(TICK * ticks)
}

impl Guest {
    fn check(&self, machine: &str, arguments: &[&str]) -> anyhow::Result<Checked> {
        let out = self.work.join("out");
        if out.exists() {
            fs::remove_dir_all(&out)?;
        }
        let report = self.work.join("report.json");
        let begun = Instant::now();
        let spent = processor_time()?;
        let status = Command::new(&self.powerfail)
            .args(["vm", "check", "--kernel"])
            .arg(&self.kernel)
            .arg("--machine")
            .arg(self.work.join(machine))
            .arg("--out")
            .arg(&out)
            .arg("--format")
            .arg(format!("json={}", report.display()))
            .args(arguments)
            .current_dir(&self.scripts)
            .stdout(std::process::Stdio::null())
            .status()
            .context("powerfail")?;
        let time = begun.elapsed();
        let code = status.code().unwrap_or(-1);
        ensure!(
            code <= 1,
            "powerfail vm check {arguments:?} ended with {code}"
        );
        Ok(Checked {
            code,
            report: serde_json::from_slice(&fs::read(&report)?)?,
            time,
            processor_time: processor_time()?.saturating_sub(spent),
        })
    }

    /// Builds the tool of workloads.
    fn build_tool(&self) -> anyhow::Result<PathBuf> {
        let tool = self.work.join("tool");
        run(Command::new("gcc")
            .args(["-static", "-O2", "-o"])
            .arg(&tool)
            .arg(self.scripts.join("tool.c")))?;
        Ok(tool)
    }

    /// The table of planted bugs. Returns those that are not found as they should.
    fn planted(&self, page: &mut String) -> anyhow::Result<Vec<String>> {
        install_headers(&self.kernel)?;
        let [module, debug] = build_module(&self.kernel, &self.scripts, &self.work)?;
        let text = |path: &Path| path.to_str().map(str::to_owned).context("a path in UTF-8");
        let (module, debug) = (text(&module)?, text(&debug)?);
        let bug = self.work.join("bug");
        let bug_text = text(&bug)?;
        page.push_str(PLANTED_HEAD);
        let mut missed = Vec::new();
        for (number, operations, function) in TWINS.into_iter().chain(PLANTED) {
            fs::write(&bug, format!("{number}\n"))?;
            let checked = self.check(
                "machine-none",
                &[
                    "--fs",
                    "none",
                    "--attach",
                    "attach.sh",
                    "--detach",
                    "detach.sh",
                    "--list",
                    "list.sh",
                    "--file",
                    &module,
                    "--debug-info",
                    &debug,
                    "--file",
                    &bug_text,
                    "--workload",
                    operations,
                    "--per-stack",
                    "0",
                    "--budget",
                    PLANTED_BUDGET,
                ],
            )?;
            let (found, line) = checked.place();
            let is_right = if number == 0 {
                checked.code == 0
            } else {
                checked.code == 1 && checked.findings().len() == 1 && found == function
            };
            if !is_right {
                missed.push(format!("{number} ({operations})"));
            }
            let line = format!(
                "| {number} ({operations}) | {} | {} | {found} {line} | {} | {} | {} | {} | {:.0} s |",
                if is_right {
                    "as planted"
                } else {
                    "**not as planted**"
                },
                checked.codes().join(", "),
                checked.findings().len(),
                checked.eager("combinations"),
                checked.read_combinations(),
                checked.recoveries(),
                checked.processor_time.as_secs_f64()
            );
            println!("{line}");
            let _ = writeln!(page, "{line}");
        }
        Ok(missed)
    }

    /// Yat's table.
    fn file_systems(&self, page: &mut String) -> anyhow::Result<()> {
        let tool = self.build_tool()?;
        let tool = tool.to_str().context("a path in UTF-8")?;
        page.push_str(FILE_SYSTEMS_HEAD);
        for ((name, flags), budget) in CAMPAIGNS.into_iter().zip(BUDGETS) {
            let machine = format!("machine-{name}");
            for strategy in ["prefix", "eager"] {
                let mut arguments = flags.to_vec();
                arguments.extend(["--file", tool, "--strategy", strategy]);
                arguments.extend(["--budget", budget, "--per-stack", "3", "--threshold", "50"]);
                let checked = self.check(&machine, &arguments)?;
                let line = row(name, strategy, &checked);
                println!("{line}");
                let _ = writeln!(page, "{line}");
            }
        }
        page.push_str(TRIAGE);
        Ok(())
    }
}

fn row(name: &str, strategy: &str, checked: &Checked) -> String {
    let runs = checked.recoveries();
    let seconds = checked.processor_time.as_secs_f64();
    #[allow(clippy::cast_precision_loss, reason = "a rate")]
    let rate = runs as f64 / seconds;
    let columns = ["writes", "flushes", "fences", "segments", "combinations"];
    let columns = columns.map(|column| checked.eager(column));
    format!(
        "| {name} | {strategy} | {} | {} | {runs} | {} | {:.0} s | {seconds:.0} s | {rate:.1} | {} |",
        columns.join(" | "),
        checked.read_combinations(),
        checked.eager("failed"),
        checked.time.as_secs_f64(),
        checked.list(),
    )
}
