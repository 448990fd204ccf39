//! `cargo xtask vm`: the long campaign with guests. The toy directory of `tests/vm` with each of its planted bugs, and the file
//! systems of a stock kernel; the results are docs/figures/vm.md.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use crate::{packages, run};

/// What guests need, besides a kernel.
pub const PACKAGES: [&str; 4] = ["qemu-system-x86", "busybox-static", "e2fsprogs", "xfsprogs"];

type Planted = (u32, &'static str, &'static [&'static str]);

/// A planted bug: its number, the operations that show it, and the functions one of which a finding must name.
const PLANTED: [Planted; 13] = [
    (1, "ops.sh", &["log_images"]),
    (2, "ops.sh", &["log_images"]),
    (3, "ops.sh", &["log_images"]),
    (
        4,
        "ops.sh",
        &["rename_entry", "change", "apply", "log_commit", "retire"],
    ),
    (
        5,
        "ops-recovery.sh",
        &["recover", "toydir_init", "init_module"],
    ),
    (6, "ops.sh", &["apply"]),
    (7, "ops.sh", &["retire", "log_images"]),
    (8, "ops.sh", &["create_entry"]),
    (9, "ops.sh", &["write_entry"]),
    (10, "ops.sh", &["log_images"]),
    (11, "ops.sh", &["remove_entry"]),
    (12, "ops.sh", &["log_commit", "apply"]),
    (13, "ops.sh", &["log_images"]),
];

/// The same module without a bug.
const TWINS: [Planted; 2] = [(0, "ops.sh", &[]), (0, "ops-recovery.sh", &[])];

/// Workloads on file systems of the kernel.
const CAMPAIGNS: [(&str, &str); 2] = [("ext4", "files.sh"), ("xfs", "files.sh")];
/// How long recoveries of one campaign may take.
const BUDGET: &str = "5m";

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
    guest.planted(&mut page)?;
    guest.file_systems(&mut page)?;
    fs::write(repository.join("docs/figures/vm.md"), page)?;
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
file systems of Debian's kernel, in QEMU without KVM. Times are those of one run on one machine.

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
}

impl Checked {
    fn codes(&self) -> Vec<&str> {
        let findings = self.report["findings"].as_array().into_iter().flatten();
        let mut codes: Vec<&str> = findings.filter_map(|it| it["code"].as_str()).collect();
        codes.sort_unstable();
        codes.dedup();
        codes
    }

    /// Whether a finding names one of the functions, at any place.
    fn names(&self, functions: &[&str]) -> bool {
        let text = self.report["findings"].to_string();
        functions
            .iter()
            .any(|name| text.contains(&format!("\"{name}\"")))
    }
}

impl Guest {
    fn check(&self, machine: &str, arguments: &[&str]) -> anyhow::Result<Checked> {
        let out = self.work.join("out");
        if out.exists() {
            fs::remove_dir_all(&out)?;
        }
        let report = self.work.join("report.json");
        let begun = Instant::now();
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
        })
    }

    /// Builds the module against the headers of the kernel's package.
    fn build_module(&self) -> anyhow::Result<PathBuf> {
        let name = self.kernel.file_name().context("a kernel")?;
        let name = name.to_string_lossy();
        let version = name.trim_start_matches("vmlinuz-");
        packages::install(&["make", &format!("linux-headers-{version}")])?;
        let folder = self.work.join("toydir");
        fs::create_dir_all(&folder)?;
        for file in ["toydir.c", "Makefile"] {
            fs::copy(self.scripts.join("toydir").join(file), folder.join(file))?;
        }
        run(Command::new("make")
            .arg("-C")
            .arg(format!("/lib/modules/{version}/build"))
            .arg(format!("M={}", folder.display()))
            .arg("modules"))?;
        let module = folder.join("toydir.ko");
        run(Command::new("strip").arg("--strip-debug").arg(&module))?;
        Ok(module)
    }

    fn planted(&self, page: &mut String) -> anyhow::Result<()> {
        let module = self.build_module()?;
        let module = module.to_str().context("a path in UTF-8")?;
        let bug = self.work.join("bug");
        let bug_text = bug.to_str().context("a path in UTF-8")?;
        page.push_str("## Planted bugs\n\n| bug | found | codes | time |\n|---|---|---|---:|\n");
        let mut missed = Vec::new();
        for (number, operations, functions) in TWINS.into_iter().chain(PLANTED) {
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
                    module,
                    "--file",
                    bug_text,
                    "--workload",
                    operations,
                    "--per-stack",
                    "0",
                ],
            )?;
            let is_right = if number == 0 {
                checked.code == 0
            } else {
                checked.code == 1 && checked.names(functions)
            };
            if !is_right {
                missed.push(format!("{number} ({operations})"));
            }
            let found = match (number, is_right) {
                (0, true) => "clean, as it should be",
                (_, true) => "yes, at its function",
                (_, false) => "**no**",
            };
            let line = format!(
                "| {number} ({operations}) | {found} | {} | {:.1} s |",
                checked.codes().join(", "),
                checked.time.as_secs_f64()
            );
            println!("{line}");
            let _ = writeln!(page, "{line}");
        }
        if missed.is_empty() {
            return Ok(());
        }
        bail!("not as planted: {}", missed.join(", "))
    }

    /// Yat's table.
    fn file_systems(&self, page: &mut String) -> anyhow::Result<()> {
        page.push_str(
            "\n## File systems\n\n| file system | strategy | writes | flushes | fences | segments | combinations | states run | failed | \
             time | states/s | codes |\n|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|\n",
        );
        for (file_system, operations) in CAMPAIGNS {
            let machine = format!("machine-{file_system}");
            for strategy in ["prefix", "eager"] {
                let checked = self.check(
                    &machine,
                    &[
                        "--fs",
                        file_system,
                        "--workload",
                        operations,
                        "--strategy",
                        strategy,
                        "--budget",
                        BUDGET,
                        "--per-stack",
                        "3",
                    ],
                )?;
                let line = row(file_system, strategy, &checked);
                println!("{line}");
                let _ = writeln!(page, "{line}");
            }
        }
        Ok(())
    }
}

fn row(file_system: &str, strategy: &str, checked: &Checked) -> String {
    let totals = &checked.report["totals"];
    let eager = &totals["eager"];
    let number = |value: &Value| value.as_u64().map_or_else(String::new, |it| it.to_string());
    let runs = totals["recovery_runs"].as_u64().unwrap_or(0);
    let seconds = checked.time.as_secs_f64();
    #[allow(clippy::cast_precision_loss, reason = "a rate")]
    let rate = runs as f64 / seconds;
    format!(
        "| {file_system} | {strategy} | {} | {} | {} | {} | {} | {runs} | {} | {seconds:.0} s | {rate:.1} | {} |",
        number(&eager["writes"]),
        number(&eager["flushes"]),
        number(&eager["fences"]),
        number(&eager["segments"]),
        eager["combinations"].as_str().unwrap_or(""),
        number(&eager["failed"]),
        checked.codes().join(", "),
    )
}
