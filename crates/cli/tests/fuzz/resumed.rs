//! Resuming a campaign: after kills at any time, and with other flags.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::{CLEAN, FINDINGS};
use crate::running::{kill_group, leftovers, mark, start, wait_until, wait_until_all_are_gone};
use crate::{folder, fuzz, has_run, summary, write_seeds};

/// The number of kills.
const KILLS: u64 = 20;

/// The state on disk: complete lines, and findings.
#[derive(Clone, Debug, Default)]
struct Kept {
    queue: String,
    images: String,
    stats: String,
    findings: BTreeSet<String>,
}

impl Kept {
    fn read(out: &Path) -> Self {
        let lines = |name: &str| {
            let mut text = fs::read_to_string(out.join(name)).unwrap_or_default();
            text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
            text
        };
        let findings = fs::read_dir(out.join("findings")).into_iter().flatten();
        let findings = findings.flatten().map(|entry| entry.file_name());
        Self {
            queue: lines("queue.jsonl"),
            images: lines("images.jsonl"),
            stats: lines("stats.jsonl"),
            findings: findings
                .map(|name| name.to_string_lossy().into_owned())
                .filter(|name| !name.starts_with('.'))
                .collect(),
        }
    }

    /// Checks that everything is still there.
    #[track_caller]
    fn is_in(&self, later: &Self) {
        assert!(later.queue.starts_with(&self.queue), "{self:?} {later:?}");
        assert!(later.images.starts_with(&self.images), "{self:?} {later:?}");
        assert!(later.stats.starts_with(&self.stats), "{self:?} {later:?}");
        assert!(
            later.findings.is_superset(&self.findings),
            "{self:?} {later:?}"
        );
    }
}

/// The process that holds the lock of a directory.
fn holder(out: &Path) -> Option<u64> {
    let lock = fs::read(out.join("lock")).ok()?;
    serde_json::from_slice::<Value>(&lock).ok()?["pid"].as_u64()
}

#[test]
fn killed_at_any_moment_it_loses_nothing() {
    let folder = folder();
    write_seeds(&folder);
    let out = folder.path("out");
    let mark = mark("killed");
    let mut kept = Kept::default();
    let mut killed = Vec::new();
    for round in 0..KILLS {
        let mut arguments = vec!["--out", "out", "--jobs", "2", "--timeout", "10s"];
        if out.join("campaign.json").exists() {
            arguments.push("--resume");
        } else {
            arguments.extend(["--seeds", "seeds", "--", "./shop", "{pool}"]);
        }
        let child = start(&folder, &mark, &arguments);
        let id = child.id();
        // At some time after the start: immediately, at the next image or test case, or at the next statistics, which
        // are written every second.
        let moment = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62;
        wait_until(&folder.path(""), &["out"], "something happens", || {
            let now = Kept::read(&out);
            holder(&out) == Some(id.into())
                && (moment == 0
                    || moment == 1 && now.images.len() > kept.images.len()
                    || moment == 2 && now.queue.len() > kept.queue.len()
                    || now.stats.len() > kept.stats.len())
        });
        kill_group(child);
        wait_until_all_are_gone(&mark);
        killed.push(id);
        let now = Kept::read(&out);
        kept.is_in(&now);
        kept = now;
    }
    let run = folder.powerfail(&["fuzz", "--resume", "--out", "out", "--execs", "1", "--json"]);
    has_run(&run);
    let now = Kept::read(&out);
    kept.is_in(&now);
    let summary = summary(&run);
    let told = summary["findings"].as_array().expect("a list").len();
    assert_eq!(told, now.findings.len(), "{summary}");
    numbers_never_fall(&now.stats);
    let shown = folder.powerfail(&["fuzz", "show", "out", "--json"]);
    let shown = self::summary(&shown.ends_with(CLEAN));
    let cases = shown["cases"].as_array().expect("a list").len();
    assert_eq!(cases, now.queue.matches("\"case\":").count());
    for id in killed {
        assert_eq!(leftovers(id), Vec::<String>::new(), "the next one sweeps");
    }
}

#[track_caller]
fn numbers_never_fall(stats: &str) {
    let lines = stats.lines().map(|line| {
        let line: Value = serde_json::from_str(line).expect("statistics");
        [
            "time_s", "execs", "pm_paths", "corpus", "images", "findings",
        ]
        .map(|name| line[name].as_f64().expect("a number"))
    });
    let lines: Vec<_> = lines.collect();
    for pair in lines.windows(2) {
        let falls = pair[0].iter().zip(&pair[1]).any(|(old, new)| new < old);
        assert!(!falls, "{pair:?}");
    }
}

#[test]
fn flags_replace_the_old_ones_and_stay() {
    let folder = folder();
    has_run(&fuzz(
        &folder,
        &["--execs", "1", "--check-with", "none", "--jobs", "1"],
    ));
    let resume = |flags: &[&str]| {
        let mut arguments = vec!["fuzz", "--resume", "--out", "out", "--execs", "1", "--json"];
        arguments.extend(flags);
        let run = folder.powerfail(&arguments);
        has_run(&run);
        let execs = summary(&run)["stats"]["execs"].as_u64();
        let record = fs::read(folder.path("out/campaign.json")).expect("a record");
        let record: Value = serde_json::from_slice(&record).expect("a record");
        let options = &record["options"];
        let named = ["checks", "timeout", "jobs", "seed"].map(|name| options[name].clone());
        (execs, named)
    };
    let (execs, [checks, timeout, jobs, seed]) =
        resume(&["--check-with", "lint", "--timeout", "7s", "--jobs", "2"]);
    assert_eq!(checks["lint"], true, "{checks}");
    assert_eq!(checks["prefix"], false, "{checks}");
    assert_eq!(timeout["secs"], 7, "{timeout}");
    assert_eq!(jobs, 2);
    // Without flags, all options are kept except the time limit.
    let (more_execs, again) = resume(&[]);
    assert_eq!(again, [checks, timeout, jobs, seed]);
    assert!(more_execs > execs, "{execs:?} and then {more_execs:?}");
}

#[test]
fn without_checks_nothing_is_found() {
    let folder = folder();
    write_seeds(&folder);
    folder.write("seeds/kill", "KILL");
    let flags = [
        "--seeds",
        "seeds",
        "--execs",
        "200",
        "--check-with",
        "none",
        "--json",
    ];
    let summary = summary(&fuzz(&folder, &flags).ends_with(CLEAN));
    assert!(summary["stats"]["crashes"].as_u64() > Some(0), "{summary}");
    assert_eq!(summary["findings"].as_array().map(Vec::len), Some(0));
    // Failures are explained when the campaign is resumed with checks.
    let run = folder.powerfail(&[
        "fuzz",
        "--resume",
        "--out",
        "out",
        "--check-with",
        "lint",
        "--time",
        "90s",
        "--until-found",
        "--json",
    ]);
    let found = self::summary(&run.ends_with(FINDINGS));
    assert_eq!(found["findings"][0]["finding"]["code"], "PF0801", "{found}");
}

/// The target writes its pool at the start, and the disk is full.
#[test]
fn a_full_disk_stops_it_and_it_goes_on() {
    let folder = folder();
    write_seeds(&folder);
    fs::create_dir(folder.path("disk")).expect("a folder");
    // Root may mount in a new mount namespace; other users also need a user namespace.
    let namespaces: [&[&str]; 2] = [&["--mount"], &["--user", "--map-root-user", "--mount"]];
    let namespace = namespaces.into_iter().find(|namespace| {
        let mut mount = folder.command("unshare");
        mount.args(*namespace);
        mount.args(["mount", "-t", "tmpfs", "none", "disk"]);
        mount.output().is_ok_and(|output| output.status.success())
    });
    let namespace =
        namespace.expect("this test mounts a tmpfs: allow user namespaces, or run it as root");
    let script = "mount -t tmpfs -o size=48k none disk
        timeout 300 \"$1\" fuzz --out disk/out --seeds seeds --timeout 10s --time 90s -- ./shop '{pool}' 2>errors
        echo $? >code
        cp disk/out/queue.jsonl before
        mount -o remount,size=64m disk
        timeout 300 \"$1\" fuzz --resume --out disk/out --execs 1 >/dev/null 2>&1
        echo $? >code-then
        cp disk/out/queue.jsonl after";
    let run = folder
        .command("unshare")
        .args(namespace)
        .args(["sh", "-c", script, "sh"])
        .arg(env!("CARGO_BIN_EXE_powerfail"))
        .output()
        .expect("a shell");
    let read = |name| fs::read_to_string(folder.path(name)).unwrap_or_default();
    assert_eq!(read("code"), "2\n", "{run:?} {}", read("errors"));
    let error = read("errors");
    let error = error.lines().find(|line| line.starts_with("error: "));
    let error = error.expect("a sentence");
    assert!(error.contains("no space left in"), "{error}");
    assert!(error.contains("--resume"), "{error}");
    assert!(["0\n", "1\n"].contains(&&*read("code-then")), "{run:?}");
    let complete = read("before");
    let complete = &complete[..complete.rfind('\n').map_or(0, |end| end + 1)];
    assert!(!complete.is_empty() && read("after").starts_with(complete));
}
