//! Operations on the files of a tree: replaying them gives the tree that the target left. Each recording checks that itself,
//! and `trace check` does so once more.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::{Mode, Recorder, Recording, record, target};

fn steps() -> std::path::PathBuf {
    target("files.c", &["-O1", "-pthread"])
}

fn shell(script: &str) -> Recording {
    let recording = Recorder::new("sh", &["-c", &format!("cd $0; {script}"), "{dir}"]).run();
    recording.assert_exit(0);
    recording
}

#[test]
fn every_call_in_a_fresh_directory() {
    for mode in Mode::BOTH {
        let recording = record(mode, &steps(), &["{dir}"]);
        assert_eq!(recording.output, "done\n");
        for kind in [
            "create",
            "link",
            "unlink",
            "rename",
            "write",
            "truncate",
            "allocate",
            "file-sync",
            "mapped",
        ] {
            assert!(recording.count(kind) > 0, "{kind}: {}", recording.summary);
        }
        let trees = recording.summary["trees"].as_array().map(Vec::len);
        assert_eq!((trees, recording.pool_count()), (Some(1), 1));
    }
}

#[test]
fn every_call_on_the_disk_with_its_stack() {
    let recorder = Recorder::new(steps(), &[]);
    let tree = recorder.folder().join("tree");
    fs::create_dir(&tree).expect("a folder");
    fs::write(tree.join("before"), "it was there").expect("a file");
    let recording = recorder.option("--tree", &tree).argument(&tree).run();
    recording.assert_exit(0);
    assert!(recording.count("allocate") >= 5, "{}", recording.summary);
    let writes = recording.json_events_of(&["--kind", "write"]);
    let has_source = |event: &&Value| {
        let source = event["source"].as_str().unwrap_or_default();
        source.contains("files.c") || event["site"].as_str().is_some_and(|site| !site.is_empty())
    };
    assert_eq!(writes.iter().filter(has_source).count(), writes.len());
    let inline = writes
        .iter()
        .find(|event| event["bytes"] == "696e6c696e6520");
    let source = inline.and_then(|event| event["source"].as_str());
    assert!(
        source.is_some_and(|it| it.contains("inline_call")),
        "{inline:?}"
    );
}

#[test]
fn a_tree_without_a_pool() {
    let recording = record(Mode::Patch, &steps(), &["{dir}", "unmapped"]);
    assert_eq!(recording.pool_count(), 0);
    assert!(recording.count("write") > 900);
}

#[test]
fn coreutils() {
    let recording = shell(
        "echo one > a; cp a b; mv b c; sed -i s/one/two/ a; cat a c > d; mkdir -p x/y; cp -r x z; rm -r x; ln -s a l; \
         ln a h; truncate -s 100 d; dd if=/dev/zero of=e bs=1k count=3 conv=fsync 2> /dev/null; mv a z/; sync",
    );
    assert!(recording.count("rename") >= 3, "{}", recording.summary);
    assert!(recording.count("file-sync") >= 2, "{}", recording.summary);
}

#[test]
fn sqlite_in_every_journal_mode() {
    for mode in ["delete", "truncate", "persist", "memory", "wal", "off"] {
        let script = format!(
            "PRAGMA journal_mode={mode}; CREATE TABLE t(a, b); INSERT INTO t VALUES(1, 2); UPDATE t SET b = 9; VACUUM;"
        );
        let recording = Recorder::new("sqlite3", &["{dir}/database", &script]).run();
        recording.assert_exit(0);
        assert!(recording.count("write") > 5, "{mode}");
        assert!(recording.count("file-sync") > 2, "{mode}");
    }
}

#[test]
fn python() {
    let script = "
import os, shutil, sys, tempfile
os.chdir(sys.argv[1])
with open('a', 'w') as file:
    file.write('hello' * 1000)
    file.flush()
    os.fsync(file.fileno())
with tempfile.NamedTemporaryFile('wb', dir='.', delete=False) as file:
    file.write(b'x' * 100000)
    os.fdatasync(file.fileno())
os.replace(file.name, 'a')
os.fsync(os.open('.', os.O_RDONLY))
os.makedirs('p/q/r')
shutil.copy('a', 'p/q/b')
shutil.copytree('p', 'p2')
shutil.rmtree('p')
os.truncate('a', 10)
os.link('a', 'c')
os.symlink('a', 's')
";
    let recording = Recorder::new("/usr/bin/python3", &["-c", script, "{dir}"]).run();
    recording.assert_exit(0);
    assert!(recording.count("rename") >= 1, "{}", recording.summary);
}

#[test]
fn what_is_written_elsewhere_is_listed() {
    let recorder = Recorder::new("sh", &["-c", "echo in > $0/inside; echo out > $1", "{dir}"]);
    let outside = recorder.folder().join("outside");
    let recording = recorder.argument(&outside).run();
    let listed = &recording.summary["outside"];
    assert_eq!(listed[0].as_str().map(Path::new), Some(outside.as_path()));
    assert_eq!(recording.count("create"), 1);
}

#[test]
fn a_file_comes_from_elsewhere_and_goes_there() {
    let recorder = Recorder::new(
        "sh",
        &[
            "-c",
            "echo new > $1/new; mv $1/new $0/moved; ln $1/old $0/linked; mv $0/gone $1/gone",
        ],
    );
    let [tree, other] = ["tree", "other"].map(|name| recorder.folder().join(name));
    for folder in [&tree, &other] {
        fs::create_dir(folder).expect("a folder");
    }
    fs::write(tree.join("gone"), "soon").expect("a file");
    fs::write(other.join("old"), "content").expect("a file");
    let recorder = recorder.option("--tree", &tree);
    let recording = recorder.argument(&tree).argument(&other).run();
    recording.assert_exit(0);
    assert_eq!(recording.count("unlink"), 1);
}

#[test]
fn directories_below_the_current_one_become_trees() {
    let recorder = Recorder::new(
        "sh",
        &[
            "-c",
            "echo more >> data/log; mkdir data/new; echo x > data/new/file; mv data/new/file top",
        ],
    );
    let folder = recorder.folder().join("work");
    fs::create_dir_all(folder.join("data")).expect("a folder");
    fs::write(folder.join("data/log"), "a line\n").expect("a file");
    let recorder = recorder.option("--tree", "auto");
    let mut command = recorder.to_command();
    let output = command
        .current_dir(&folder)
        .output()
        .expect("powerfail runs");
    let recording = recorder.finish(output.into());
    recording.assert_exit(0);
    assert_eq!(recording.count("write"), 2);
    assert_eq!(recording.count("rename"), 1);
}
