//! Observations of a repeated target besides its pools: comparisons and branches, and connections.

use std::path::{Path, PathBuf};
use std::process::Command;

use powerfail_image::DirectoryContents;
use powerfail_protocol::fuzz::ObservedKind;
use powerfail_recorder::Input;
use powerfail_recorder::InputChannel;
use powerfail_recorder::executor::{End, Executor, ExecutorOptions, Speed};
use tempfile::TempDir;

use super::{Campaign, build, runtime};

/// A target that starts without a pool, and the directory for the pool.
fn repeat(
    program: &Path,
    arguments: &[&str],
    change: impl FnOnce(&mut ExecutorOptions),
) -> (Executor, TempDir) {
    let mut command = vec![program.as_os_str().to_owned()];
    command.extend(arguments.iter().map(Into::into));
    let mut options = ExecutorOptions::new(command, InputChannel::Stdin);
    // Only a hang takes this long, however busy the machine is.
    options.timeout = std::time::Duration::from_mins(1);
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
    options.directory = directory.path().into();
    change(&mut options);
    let mut repeater = Executor::start(&options, runtime::bytes()).expect("a target");
    repeater
        .open(&DirectoryContents::default())
        .expect("an image");
    (repeater, directory)
}

#[test]
fn operands_of_comparisons() {
    let program = build("compares", &["-fno-builtin"]);
    let (mut repeater, _directory) = repeat(&program, &["{pool}"], |_| {});
    let outcome = repeater.observe(b"what it reads\n").unwrap();
    assert_eq!(outcome.end, End::Exit(0));
    let seen = repeater.observations();
    for word in [
        &b"alpha-word"[..],
        b"beta-word",
        b"GAMMA-word",
        b"delta-word",
        b"epsilon\x01word",
        b"zeta-word",
        b"eta-word",
        b"theta-word",
        b"what it reads",
    ] {
        let text = String::from_utf8_lossy(word).into_owned();
        assert!(
            seen.iter().any(|it| it.text == word || it.other == word),
            "{text} in {seen:?}"
        );
    }
    // These inputs take the guarded branches, and functions still return the correct results.
    let words = b"alpha-word\nbeta-words\ngamma-WORD\nDELTA-WORDs\nepsilon\x01word\na zeta-word\n\
        an eta-word\ntheta-words\n";
    assert_eq!(repeater.observe(words).unwrap().end, End::Exit(0));
    let contents = repeater.contents().unwrap();
    let page = &contents.files["pool"].pages[&0];
    // The sixth word is also the end of the eighth and of others.
    assert_eq!(page[..5], [1, 1, 1, 1, 1]);
    assert!(
        page[5..8].iter().all(|count| *count > 0),
        "{:?}",
        &page[..8]
    );
}

#[test]
fn only_observed_executions_are_observed() {
    let program = build("compares", &["-fno-builtin"]);
    let (mut repeater, _directory) = repeat(&program, &["{pool}"], |_| {});
    repeater.run(b"alpha-word\n").unwrap();
    assert_eq!(repeater.observations(), []);
    repeater.observe(b"alpha-word\n").unwrap();
    assert_ne!(repeater.observations(), []);
    repeater.run(b"alpha-word\n").unwrap();
    assert_eq!(repeater.observations(), []);
}

/// Everything that is observed of functions that read and split, and that they still do their work: they take any
/// number of arguments, some of them on the stack.
#[test]
fn functions_that_read_and_split() {
    use ObservedKind::{Number, Options, Scanned, Split};
    let program = build("reads", &["-fno-builtin"]);
    let (mut repeater, _directory) = repeat(&program, &["{pool}"], |_| {});
    let outcome = repeater
        .observe(b"1 2 3 4 5 6 7 8.5\na,b;c\n12 0x1f 7\n")
        .unwrap();
    assert_eq!(outcome.end, End::Exit(0));
    let seen = repeater.observations();
    let line = "1 2 3 4 5 6 7 8.5\n";
    for (kind, text, other) in [
        (Scanned, line, "%d %d %d %d %d %d %d %lf"),
        (Scanned, "", "%[^\n]"),
        (Split, "a,b;c", ","),
        (Split, "", ","),
        (Split, "b;c", ";"),
        (Split, "a,b;c", ";,"),
        (Split, "a,b;c", "b"),
        (Number, "12 0x1f 7", ""),
        (Number, " 0x1f 7", ""),
        (Options, "", "ab:"),
    ] {
        let is_there = seen.iter().any(|it| {
            it.kind == kind && it.text == text.as_bytes() && it.other == other.as_bytes()
        });
        assert!(is_there, "{kind:?} {text:?} {other:?} in {seen:#?}");
    }
}

/// Builds the program with a compiler that instruments it, in two steps.
fn instrumented(name: &str, compiler: &str, compile: &[&str], link: &[&str]) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("campaign-{name}"));
    let object = path.with_extension("o");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/campaign/compares.c");
    let run = |command: &mut Command| {
        let output = command.output().expect("a compiler");
        assert!(output.status.success(), "{output:?}");
    };
    run(Command::new(compiler)
        .args(compile)
        .args(["-O1", "-fno-builtin", "-c", "-o"])
        .args([&object, &source]));
    run(Command::new(compiler)
        .arg(&object)
        .args(link)
        .arg("-o")
        .arg(&path));
    path
}

/// Different inputs take different branches, equal ones the same.
fn counts_branches(program: &Path) {
    let (mut repeater, _directory) = repeat(program, &["{pool}"], |_| {});
    let mut branches = |input: &[u8]| {
        assert_eq!(repeater.run(input).unwrap().end, End::Exit(0));
        repeater.coverage().branches.to_vec()
    };
    let first = branches(b"nothing of interest\n");
    let second = branches(b"alpha-word\n");
    let third = branches(b"nothing of interest\n");
    let name = program.display();
    assert!(first.iter().any(|count| *count > 0), "{name}");
    assert_ne!(first, second, "{name}");
    assert_eq!(first, third, "{name}");
}

#[test]
fn branches_of_clang() {
    let flag = "-fsanitize-coverage=trace-pc-guard";
    let ours = instrumented("guards", "clang", &[flag], &["-rdynamic", "-Wl,-z,undefs"]);
    counts_branches(&ours);
    // With its own functions, which were linked into it.
    counts_branches(&instrumented("guards-clang", "clang", &[flag], &[flag]));
}

#[test]
fn branches_of_gcc() {
    let flag = "-fsanitize-coverage=trace-pc";
    let program = instrumented("places", "gcc", &[flag], &["-rdynamic", "-Wl,-z,undefs"]);
    counts_branches(&program);
}

#[test]
fn branches_of_afl() {
    counts_branches(&instrumented("afl", "afl-clang-fast", &[], &[]));
}

#[test]
fn no_branches_where_they_are_not_counted() {
    let (mut repeater, _directory) =
        repeat(&build("compares", &["-fno-builtin"]), &["{pool}"], |_| {});
    repeater.run(b"alpha-word\n").unwrap();
    assert!(repeater.coverage().branches.is_empty());
}

#[test]
fn a_server_is_repeated() {
    for way in ["poll", "select", "epoll", "accept"] {
        let (mut repeater, _directory) =
            repeat(&build("server", &[]), &[way, "{pool}"], |options| {
                options.desock = true;
            });
        for (input, stored) in [
            (&b"one\n"[..], &b"one\n#"[..]),
            (b"two\n\0\nthree\n", b"two\n#three\n#"),
            (b"one\n", b"one\n#"),
        ] {
            assert_eq!(repeater.run(input).unwrap().end, End::Exit(0), "{way}");
            let contents = repeater.contents().unwrap();
            let page = &contents.files["pool"].pages[&0];
            assert_eq!(page[8..8 + stored.len()], *stored, "{way}");
            assert_eq!(page[8 + stored.len()], 0, "{way}");
        }
        let report = repeater.speed_report();
        assert_eq!(report.speed, Speed::FromTemplates, "{way}: {report:?}");
    }
}

#[test]
fn recorded_and_repeated_a_target_does_the_same() {
    let program = build("objects", &["-lpmemobj"]);
    let campaign = Campaign::new();
    let mut options = campaign.options(&program, &["{pool}"]);
    options.derandomise = true;
    let directory = options.directory.clone().unwrap();
    let mut image = DirectoryContents::default();
    // First the pool is created, then it is opened.
    for bytes in [&b"first\nsecond\n"[..], b"third\n"] {
        let mut repeater = {
            let command = options.command.clone();
            let mut options = ExecutorOptions::new(command, InputChannel::Stdin);
            options.timeout = std::time::Duration::from_mins(1);
            options.directory.clone_from(&directory);
            Executor::start(&options, runtime::bytes()).unwrap()
        };
        repeater.open(&image).unwrap();
        // The effects of other inputs make no difference.
        repeater.run(b"something else\n").unwrap();
        assert_eq!(repeater.run(bytes).unwrap().end, End::Exit(0));
        let left = repeater.contents().unwrap();
        drop(repeater);
        options.contents = Some(image);
        options.input = Some(Input {
            bytes: bytes.to_vec(),
            channel: InputChannel::Stdin,
        });
        let recording = Campaign::record(&options);
        let pool = &left.files["pool"];
        let recorded = recording.pool_begins(pool.len_bytes as usize);
        for (number, page) in recorded.chunks(4096).enumerate() {
            let theirs = pool.pages.get(&(number as u64));
            let theirs = theirs.map_or(&[0; 4096][..], |page| &page[..]);
            let difference = page.iter().zip(theirs).position(|(one, two)| one != two);
            if let Some(at) = difference {
                let near = at / 8 * 8..(at / 8 * 8 + 64).min(4096);
                panic!(
                    "page {number}, byte {at}: recorded {:x?}, repeated {:x?}",
                    &page[near.clone()],
                    &theirs[near]
                );
            }
        }
        image = left;
    }
}

#[test]
fn memcached_is_repeated() {
    let arguments = [
        "-u", "root", "-U", "0", "-t", "1", "-m", "64", "-e", "{pool}",
    ];
    let program = Path::new("/usr/bin/memcached");
    let (mut repeater, _directory) = repeat(program, &arguments, |options| options.desock = true);
    for word in ["one", "two"] {
        let input = format!("set key 0 0 3\r\n{word}\r\n");
        let outcome = repeater.run(input.as_bytes()).unwrap();
        assert_eq!(outcome.end, End::Exit(0), "{outcome:?}");
        assert!(outcome.operations > 0);
    }
    let report = repeater.speed_report();
    assert_ne!(report.speed, Speed::FromTemplates, "it has threads by then");
}
