//! `ci/check.sh`, which the action for GitHub and the template for GitLab run.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{CLEAN, FINDINGS, Folder};

fn ci() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ci")
}

/// Runs the script with the binary that is tested. Returns the exit code and standard output.
fn run(folder: &Folder, variables: &[(&str, &str)]) -> (i32, String) {
    let bin = folder.path("bin");
    if !bin.exists() {
        fs::create_dir(&bin).unwrap();
        let binary = env!("CARGO_BIN_EXE_powerfail");
        std::os::unix::fs::symlink(binary, bin.join("powerfail")).unwrap();
    }
    let script = ci().join("check.sh");
    let mut command = folder.command(script.to_str().unwrap());
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", bin.display()));
    command.env_remove("GITHUB_ACTIONS");
    command.env_remove("GITHUB_STEP_SUMMARY");
    command.envs(variables.iter().copied());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code().unwrap(), text)
}

const ARGUMENTS: (&str, &str) = ("POWERFAIL_ARGUMENTS", "--budget 1m -- ./counter '{pool}'");

#[test]
fn reports_are_written_and_a_baseline_is_used() {
    let folder = Folder::new();
    folder.build_example("counter", None);
    let (code, text) = run(&folder, &[ARGUMENTS]);
    assert_eq!(code, FINDINGS, "{text}");
    assert!(text.contains("error[PF0101]"), "{text}");
    assert!(
        text.ends_with("powerfail: findings; see report.html in powerfail-reports\n"),
        "{text}"
    );
    for name in [
        "report.json",
        "report.sarif",
        "junit.xml",
        "code-quality.json",
        "report.html",
    ] {
        let path = folder.path("powerfail-reports").join(name);
        let content = fs::read_to_string(&path).unwrap();
        assert!(content.contains("PF0101"), "{name}");
    }
    // The finding is known.
    fs::copy(
        folder.path("powerfail-reports/report.json"),
        folder.path("known.json"),
    )
    .unwrap();
    let known = ("POWERFAIL_BASELINE", "known.json");
    let (code, text) = run(&folder, &[ARGUMENTS, known]);
    assert_eq!(code, CLEAN, "{text}");
    assert!(text.ends_with("powerfail: no new findings\n"), "{text}");
}

#[test]
fn github_gets_annotations_and_a_summary() {
    let folder = Folder::new();
    folder.build_example("counter", None);
    let summary = folder.text_path("summary.md");
    let github = [
        ARGUMENTS,
        ("GITHUB_ACTIONS", "true"),
        ("GITHUB_STEP_SUMMARY", &summary),
        ("POWERFAIL_BASELINE", "none.json"),
    ];
    let (code, text) = run(&folder, &github);
    assert_eq!(code, FINDINGS, "{text}");
    assert!(text.contains("::error file=counter.c,line="), "{text}");
    let summary = fs::read_to_string(summary).unwrap();
    assert!(summary.starts_with("### powerfail: findings"), "{summary}");
    assert!(summary.contains("error[PF0101]"), "{summary}");
}

/// What the files name exists, and is named in the same way.
#[test]
fn the_templates_fit_the_script() {
    let read = |name: &str| fs::read_to_string(ci().join(name)).unwrap();
    let script = read("check.sh");
    let action = read("github/action.yml");
    let gitlab = read("gitlab.yml");
    for variable in [
        "POWERFAIL_ARGUMENTS",
        "POWERFAIL_BASELINE",
        "POWERFAIL_REPORTS",
    ] {
        assert!(
            script.contains(variable) && action.contains(variable),
            "{variable}"
        );
        assert!(gitlab.contains(variable), "{variable}");
    }
    for report in ["junit.xml", "code-quality.json"] {
        assert!(
            script.contains(report) && gitlab.contains(report),
            "{report}"
        );
    }
    assert!(action.contains("$GITHUB_ACTION_PATH/../check.sh"));
    assert!(ci().join("../crates/cli/Cargo.toml").is_file());
    assert!(action.contains("$GITHUB_ACTION_PATH/../../crates/cli"));
    // What the workflow gives to the action are inputs of it.
    let workflow = read("github/example-workflow.yml");
    let given = workflow
        .split("OWNER/powerfail/ci/github@main")
        .nth(1)
        .unwrap();
    for name in ["arguments", "baseline"] {
        assert!(given.contains(&format!("          {name}: ")), "{name}");
        assert!(action.contains(&format!("\n  {name}:\n")), "{name}");
    }
}
