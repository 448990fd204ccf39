//! `ci/check.sh`, and the action for GitHub and the template for GitLab that run it: their scripts run as these systems run
//! them.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

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

/// A file of YAML, as JSON.
fn yaml(text: &str) -> Value {
    let program =
        "import json, sys, yaml; json.dump(yaml.load(sys.stdin, yaml.BaseLoader), sys.stdout)";
    let json = python(program, text);
    serde_json::from_str(&json).expect("JSON")
}

/// What a program in Python prints for this input. It succeeds.
fn python(program: &str, input: &str) -> String {
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", program]).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, input.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{program}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn read(name: &str) -> String {
    fs::read_to_string(ci().join(name)).unwrap()
}

/// The program of a project, with a makefile.
fn project() -> Folder {
    let folder = Folder::new();
    let counter = fs::read_to_string(ci().join("../examples/counter.c")).unwrap();
    folder.write("store.c", &counter);
    folder.write("Makefile", "store: store.c\n\t$(CC) $(CFLAGS) -o $@ $<\n");
    fs::create_dir(folder.path("bin")).unwrap();
    folder
}

/// A script in `bin` of the folder.
fn program(folder: &Folder, name: &str, text: &str) {
    let name = format!("bin/{name}");
    folder.write(&name, text);
    fs::set_permissions(folder.path(&name), Permissions::from_mode(0o755)).unwrap();
}

/// A script as GitHub and GitLab give it to bash. Returns the exit code and standard output.
fn bash(folder: &Folder, script: &str, variables: &BTreeMap<String, String>) -> (i32, String) {
    let mut bash = folder.command("bash");
    bash.args(["--noprofile", "--norc", "-eo", "pipefail", "-c", script]);
    bash.env_remove("GITHUB_ACTIONS").envs(variables);
    let path = std::env::var("PATH").unwrap();
    bash.env("PATH", format!("{}:{path}", folder.text_path("bin")));
    let output = bash.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    eprintln!("{script}\n{text}{errors}");
    (output.status.code().unwrap(), text)
}

/// Every report that the templates name is there, and is what it should be.
fn reports_are_valid(folder: &Folder) {
    let read =
        |name: &str| fs::read_to_string(folder.path("powerfail-reports").join(name)).unwrap();
    let json = |name: &str| -> Value { serde_json::from_str(&read(name)).unwrap() };
    let sarif = json("report.sarif");
    assert_eq!(sarif["version"], "2.1.0");
    assert_eq!(sarif["runs"][0]["results"][0]["ruleId"], "PF0101");
    let quality = json("code-quality.json");
    let entry = &quality.as_array().unwrap()[0];
    for key in ["description", "check_name", "fingerprint", "severity"] {
        assert!(entry[key].is_string(), "{key}: {entry}");
    }
    assert_eq!(entry["location"]["path"], "store.c");
    assert!(entry["location"]["lines"]["begin"].is_u64(), "{entry}");
    let junit = "import sys, xml.etree.ElementTree as e
suites = e.parse(sys.stdin).getroot()
print(suites.tag, suites.get('failures'), len(list(suites.iter('failure'))))";
    assert_eq!(python(junit, &read("junit.xml")), "testsuites 1 1\n");
}

/// The steps of the action, with the words of the workflow that is shown as an example.
#[test]
fn the_action_for_github_runs() {
    let folder = project();
    let action = yaml(&read("github/action.yml"));
    let workflow = yaml(&read("github/example-workflow.yml"));
    let steps = workflow["jobs"]["powerfail"]["steps"].as_array().unwrap();
    let uses = |words: &str| {
        let mut steps = steps.iter();
        let step = steps.find(|it| it["uses"].as_str().is_some_and(|it| it.contains(words)));
        &step.unwrap()["with"]
    };
    let given = uses("/ci/github@");
    for name in given.as_object().unwrap().keys() {
        assert!(action["inputs"][name].is_object(), "{name} is no input");
    }
    // What stands between `${{` and `}}` is an input, or is known of this machine.
    let evaluated = |text: &str| {
        let mut parts = text.split("${{ ");
        let mut whole = parts.next().unwrap().to_owned();
        for part in parts {
            let (expression, rest) = part.split_once(" }}").unwrap();
            let name = expression.strip_prefix("inputs.").unwrap();
            let value = given[name]
                .as_str()
                .or(action["inputs"][name]["default"].as_str());
            whole += value.unwrap_or_else(|| panic!("{name} is no input"));
            whole += rest;
        }
        whole
    };
    // The machine of GitHub is not this one: nothing of it is changed, and powerfail is there already.
    program(&folder, "sudo", "#!/bin/sh\necho \"$@\" >> sudo.log\n");
    program(
        &folder,
        "cargo",
        "#!/bin/sh -e
[ \"$1 $2 $3\" = 'install --locked --path' ] && grep -q '^name = \"powerfail\"$' \"$4/Cargo.toml\"
mkdir -p \"$HOME/.cargo/bin\" && ln -s \"$BINARY\" \"$HOME/.cargo/bin/powerfail\"\n",
    );
    let mut variables = BTreeMap::new();
    let mut set = |name: &str, value: &str| variables.insert(name.to_owned(), value.to_owned());
    set("BINARY", env!("CARGO_BIN_EXE_powerfail"));
    set("HOME", &folder.text_path("home"));
    set("CI", "true");
    set("GITHUB_ACTIONS", "true");
    set("GITHUB_ACTION_PATH", ci().join("github").to_str().unwrap());
    set("GITHUB_WORKSPACE", &folder.text_path(""));
    for name in [
        "GITHUB_OUTPUT",
        "GITHUB_STEP_SUMMARY",
        "GITHUB_PATH",
        "GITHUB_ENV",
    ] {
        folder.write(name, "");
        set(name, &folder.text_path(name));
    }
    let build = steps.iter().find_map(|it| it["run"].as_str()).unwrap();
    assert_eq!(bash(&folder, build, &variables).0, CLEAN);
    assert_eq!(action["runs"]["using"], "composite");
    let mut ends = Vec::new();
    for step in action["runs"]["steps"].as_array().unwrap() {
        let Some(script) = step["run"].as_str() else {
            continue;
        };
        assert_eq!(step["shell"], "bash", "{step}");
        let mut variables = variables.clone();
        for (name, value) in step["env"].as_object().into_iter().flatten() {
            variables.insert(name.clone(), evaluated(value.as_str().unwrap()));
        }
        if let Some(directory) = step["working-directory"].as_str() {
            assert_eq!(evaluated(directory), ".");
        }
        ends.push(bash(&folder, &evaluated(script), &variables));
    }
    let codes: Vec<i32> = ends.iter().map(|it| it.0).collect();
    assert_eq!(codes, [CLEAN, CLEAN, FINDINGS]);
    let text = &ends[2].1;
    assert!(text.contains("::error file=store.c,line=50,"), "{text}");
    reports_are_valid(&folder);
    let summary = fs::read_to_string(folder.path("GITHUB_STEP_SUMMARY")).unwrap();
    assert!(summary.starts_with("### powerfail: findings"), "{summary}");
    let log = fs::read_to_string(folder.path("sudo.log")).unwrap();
    assert_eq!(
        log,
        "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0\n"
    );
    // What later steps upload is there.
    let sarif = uses("upload-sarif")["sarif_file"].as_str().unwrap();
    assert!(folder.path(sarif).is_file());
    let mut kept = action["runs"]["steps"].as_array().unwrap().iter();
    let kept = kept.find_map(|it| {
        it["with"]["path"]
            .as_str()
            .filter(|it| it.contains("inputs"))
    });
    assert!(folder.path(&evaluated(kept.unwrap())).is_dir());
}

/// A job that extends the template, as its comment shows it.
#[test]
fn the_template_for_gitlab_runs() {
    let folder = project();
    let text = read("gitlab.yml");
    let example = text.lines().filter_map(|line| line.strip_prefix("#   "));
    let example = yaml(&example.collect::<Vec<_>>().join("\n"));
    assert_eq!(example["include"][0]["file"], "ci/gitlab.yml");
    let template = &yaml(&text)[".powerfail"];
    let job = &example["crash-consistency"];
    assert_eq!(job["extends"], ".powerfail");
    std::os::unix::fs::symlink(
        env!("CARGO_BIN_EXE_powerfail"),
        folder.path("bin/powerfail"),
    )
    .unwrap();
    std::os::unix::fs::symlink(ci().join("check.sh"), folder.path("bin/check.sh")).unwrap();
    let mut variables = BTreeMap::from([("GITLAB_CI", "true"), ("CI", "true")]);
    for part in [template, job] {
        let part = part["variables"].as_object().unwrap();
        variables.extend(
            part.iter()
                .map(|(name, value)| (&**name, value.as_str().unwrap())),
        );
    }
    let variables = variables
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let variables = variables.collect();
    let lines = |value: &Value| -> Vec<String> { serde_json::from_value(value.clone()).unwrap() };
    let script = [lines(&job["before_script"]), lines(&template["script"])].concat();
    let (code, text) = bash(&folder, &script.join("\n"), &variables);
    assert_eq!(code, FINDINGS, "{text}");
    assert!(text.contains("error[PF0101]"), "{text}");
    reports_are_valid(&folder);
    let artifacts = &template["artifacts"];
    assert_eq!(artifacts["when"], "always");
    let reports = &artifacts["reports"];
    for name in [&reports["junit"], &reports["codequality"]] {
        assert!(folder.path(name.as_str().unwrap()).is_file(), "{name}");
    }
    for path in lines(&artifacts["paths"]) {
        assert!(folder.path(&path).is_dir(), "{path}");
    }
}
