//! Repeated targets, with real processes: an execution has the same effects as a recording and as a plain run of the
//! same test case, and leaves nothing behind.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use powerfail_image::DirectoryContents;
use powerfail_recorder::executor::{
    End, Executor, ExecutorOptions, Opened, Outcome, Speed, locations_of,
};
use powerfail_recorder::{Input, InputChannel, RecordOptions, record};
use tempfile::TempDir;

static RUNTIME: &[u8] = include_bytes!(env!("POWERFAIL_RUNTIME"));

/// A workload that covers most features of the target.
const COMMANDS: &[u8] = b"i 1\ni 2\ns 7\nr\ng\ni 3\n";

/// The target, built once.
fn target() -> &'static Path {
    static BUILT: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = BUILT.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("repeated");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/targets/repeated.c");
        let status = Command::new("cc")
            .args(["-O1", "-g", "-o"])
            .arg(&path)
            .arg(source)
            .args(["-lpmemobj", "-lpthread"])
            .status()
            .expect("a compiler");
        assert!(status.success());
        (directory, path)
    });
    path
}

/// A directory for pools, and the repeater of the target in it.
struct Place {
    directory: TempDir,
    options: ExecutorOptions,
}

impl Place {
    fn new(arguments: &[&str], way: InputChannel) -> Self {
        let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
        let mut command: Vec<OsString> = vec![target().into()];
        command.extend(arguments.iter().map(OsString::from));
        let mut options = ExecutorOptions::new(command, way);
        options.directory = directory.path().join("slot");
        // Test machines may be busy.
        options.timeout = Duration::from_secs(5);
        options.file_limit_bytes = 16 << 20;
        Self { directory, options }
    }

    fn start(&self) -> Executor {
        Executor::start(&self.options, RUNTIME).expect("a target that can be repeated")
    }
}

fn stdin() -> Place {
    Place::new(&["{pool}", "stdin"], InputChannel::Stdin)
}

/// The pool that the target creates from nothing with an input.
fn image_after(repeater: &mut Executor, input: &[u8]) -> DirectoryContents {
    assert_eq!(
        repeater
            .open(&DirectoryContents::default())
            .expect("opened"),
        Opened::Ready
    );
    let outcome = repeater.run(input).expect("an execution");
    assert_eq!(outcome.end, End::Exit(0));
    repeater.contents().expect("contents")
}

fn run(repeater: &mut Executor, input: &[u8]) -> (Outcome, Vec<u8>, DirectoryContents) {
    let outcome = repeater.run(input).expect("an execution");
    let map = repeater.coverage().pm.to_vec();
    let contents = repeater.contents().expect("contents");
    (outcome, map, contents)
}

/// The map of an ordinary recording of the same test case.
fn recorded_map(place: &Place, image: &DirectoryContents, input: &[u8]) -> Vec<u8> {
    let trace = place.directory.path().join("trace");
    let mut options = RecordOptions::new(place.options.command.clone(), &trace);
    options.directory = Some(place.directory.path().join("recorded"));
    options.contents = Some(image.clone());
    options.input = Some(Input {
        bytes: input.to_vec(),
        channel: place.options.input,
    });
    options.derandomise = place.options.derandomise;
    options.discard_output = true;
    record(&options, RUNTIME).expect("a recording");
    let trace = powerfail_trace::Trace::open(&trace).expect("a trace");
    let mut map = vec![0u8; 1 << 16];
    locations_of(&trace, place.options.stacks, |found| {
        let counter = &mut map[found.location as usize];
        *counter = counter.saturating_add(1);
    })
    .expect("locations");
    map
}

#[test]
fn an_execution_is_what_a_recording_of_it_shows() {
    for (arguments, way, input) in [
        (&["{pool}", "stdin"][..], InputChannel::Stdin, COMMANDS),
        (&["{pool}", "file", "{input}"], InputChannel::File, COMMANDS),
        (
            &["{pool}", "args", "{input}"],
            InputChannel::Arguments,
            b"i1 s2 g r",
        ),
        (&["{pool}", "late"], InputChannel::Stdin, COMMANDS),
        (&["{pool}", "closing"], InputChannel::Stdin, COMMANDS),
    ] {
        for stacks in [false, true] {
            let mut place = Place::new(arguments, way);
            place.options.stacks = stacks;
            let mut repeater = place.start();
            let first = if way == InputChannel::Arguments {
                &b"i9"[..]
            } else {
                b"i 9\n"
            };
            let image = image_after(&mut repeater, first);
            assert_eq!(repeater.open(&image).expect("opened"), Opened::Ready);
            let (outcome, map, _) = run(&mut repeater, input);
            assert_eq!(outcome.end, End::Exit(0), "{arguments:?}");
            assert!(outcome.operations > 100);
            let count = repeater.operations().count() as u64;
            assert_eq!(count, outcome.operations);
            let recorded = recorded_map(&place, &image, input);
            let differing: Vec<_> = (0..map.len())
                .filter(|at| map[*at] != recorded[*at])
                .map(|at| (at, map[at], recorded[at]))
                .collect();
            assert!(
                differing.is_empty(),
                "{arguments:?} {stacks}: {differing:?}"
            );
        }
    }
}

#[test]
fn an_execution_leaves_what_a_plain_run_leaves() {
    let place = stdin();
    let mut repeater = place.start();
    let image = image_after(&mut repeater, b"i 1\n");
    repeater.open(&image).expect("opened");
    let (_, _, left) = run(&mut repeater, COMMANDS);
    let plain = place.directory.path().join("plain");
    let made = powerfail_files::Directory::create_new(&plain).expect("a directory");
    image.write(&made).expect("an image");
    let input = place.directory.path().join("commands");
    std::fs::write(&input, COMMANDS).expect("an input");
    let status = Command::new(target())
        .arg(plain.join("pool"))
        .arg("stdin")
        .env("PMEM_IS_PMEM_FORCE", "1")
        .stdin(std::fs::File::open(&input).expect("an input"))
        .stdout(Stdio::null())
        .status()
        .expect("a run");
    assert!(status.success());
    let plain = DirectoryContents::read(&plain).expect("contents");
    assert_ne!(plain, image);
    assert_eq!(plain.files["pool"].len_bytes, left.files["pool"].len_bytes);
    assert_eq!(differing_words(&plain, &left), [], "but for addresses");
    assert!(!differing_words(&image, &left).is_empty());
}

/// The offsets at which two pools differ, except for addresses that libpmemobj keeps in its pools and that are not
/// used after the run: in the page of its descriptor, and elsewhere.
fn differing_words(one: &DirectoryContents, other: &DirectoryContents) -> Vec<(u64, u64, u64)> {
    const DESCRIPTOR_PAGE: u64 = 1;
    let zeros = [0; 4096];
    let page = |contents: &DirectoryContents, number: u64| {
        let pages = &contents.files["pool"].pages;
        pages.get(&number).map_or(zeros, |page| **page)
    };
    let is_address = |word: &u64| (0x1000_0000_0000..0x8000_0000_0000).contains(word);
    let mut differing = Vec::new();
    for number in 0..one.files["pool"].len_bytes / 4096 {
        let (one, other) = (page(one, number), page(other, number));
        for (at, (one, other)) in (0..).zip(one.chunks(8).zip(other.chunks(8))) {
            let [one, other] = [one, other]
                .map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")));
            let is_left_out = number == DESCRIPTOR_PAGE || [one, other].iter().all(is_address);
            if one != other && !is_left_out {
                differing.push((number * 4096 + at * 8, one, other));
            }
        }
    }
    differing
}

#[test]
fn what_an_execution_does_is_undone() {
    let place = stdin();
    let mut repeater = place.start();
    let image = image_after(&mut repeater, b"i 1\ni 2\n");
    repeater.open(&image).expect("opened");
    let inputs = [
        COMMANDS,
        b"r\nr\n",
        b"",
        b"w\ni 4\n",
        b"c\n",
        b"t\n",
        b"g\ng\ng\n",
        COMMANDS,
    ];
    let mut seen = Vec::new();
    for input in inputs {
        seen.push(run(&mut repeater, input));
    }
    assert_eq!(seen[0].0.end, seen[7].0.end);
    assert_eq!(seen[0].1, seen[7].1, "the same input, the same map");
    assert_eq!(seen[0].2, seen[7].2, "the same input, the same contents");
    assert_eq!(
        seen[3].2.files.len(),
        2,
        "what is written beside the pool is seen"
    );
    assert_eq!(seen[4].0.end, End::Signal(11));
    drop(repeater);
    let mut fresh = place.start();
    fresh.open(&image).expect("opened");
    for (input, before) in inputs.iter().zip(&seen) {
        let now = run(&mut fresh, input);
        assert_eq!(
            (&now.0.end, &now.1, &now.2),
            (&before.0.end, &before.1, &before.2)
        );
    }
}

#[test]
fn ends_of_all_kinds() {
    let mut place = stdin();
    let mut repeater = place.start();
    let image = image_after(&mut repeater, b"i 1\n");
    drop(repeater);
    place.options.timeout = Duration::from_millis(500);
    let mut repeater = place.start();
    repeater.open(&image).expect("opened");
    let reference = run(&mut repeater, COMMANDS);
    for (input, end) in [
        (&b"a\n"[..], End::Signal(6)),
        (b"e 17\n", End::Exit(17)),
        (b"i 1\nl\n", End::Timeout),
        (b"f 2\ni 2\n", End::Exit(0)),
        // The file reaches its maximum length.
        (b"b\n", End::Signal(25)),
        (b"u\ni 3\n", End::Exit(0)),
        (b"T 5\n", End::Exit(0)),
    ] {
        let outcome = repeater.run(input).expect("an execution");
        assert_eq!(outcome.end, end, "{}", String::from_utf8_lossy(input));
        let again = run(&mut repeater, COMMANDS);
        assert_eq!(
            again.1,
            reference.1,
            "after {}",
            String::from_utf8_lossy(input)
        );
        assert_eq!(again.2, reference.2);
    }
    // A target that kills the process that forked it.
    repeater.run(b"k\ni 1\n").expect("an execution");
    let again = run(&mut repeater, COMMANDS);
    assert_eq!((again.1, again.2), (reference.1, reference.2));
}

#[test]
fn targets_that_do_not_touch_what_they_are_given() {
    for (how, code) in [("nothing", 5), ("no-input", 9)] {
        let place = Place::new(&["{pool}", how], InputChannel::Stdin);
        let mut repeater = place.start();
        let Opened::Ended(outcome) = repeater
            .open(&DirectoryContents::default())
            .expect("opened")
        else {
            panic!("{how} is ready for input");
        };
        assert_eq!(outcome.end, End::Exit(code));
        assert_eq!(
            repeater.run(b"i 1\n").expect("an execution").end,
            End::Exit(code)
        );
        assert_eq!(
            repeater.contents().expect("contents").files.len(),
            usize::from(code == 9)
        );
    }
}

#[test]
fn targets_with_threads_are_slower_and_work() {
    for (how, speed) in [
        ("thread-first", Speed::NewProcesses),
        ("thread-then", Speed::FromRoot),
    ] {
        let place = Place::new(&["{pool}", how], InputChannel::Stdin);
        let mut repeater = place.start();
        let image = image_after(&mut repeater, b"i 1\n");
        assert_eq!(repeater.open(&image).expect("opened"), Opened::Ready);
        let first = run(&mut repeater, COMMANDS);
        assert_eq!(first.0.end, End::Exit(0));
        let second = run(&mut repeater, COMMANDS);
        assert_eq!((first.1, first.2), (second.1, second.2));
        let report = repeater.speed_report();
        assert_eq!(report.speed, speed);
        assert!(report.reason.is_some());
    }
}

/// Processes whose program is the target.
fn processes() -> BTreeSet<u32> {
    let is_target = |id: &u32| {
        std::fs::read_link(format!("/proc/{id}/exe")).is_ok_and(|exe| exe == target())
            && std::fs::read_to_string(format!("/proc/{id}/stat"))
                .is_ok_and(|stat| !stat.contains(") Z "))
    };
    std::fs::read_dir("/proc")
        .expect("processes")
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(is_target)
        .collect()
}

#[test]
fn a_thousand_executions_leave_nothing() {
    let place = stdin();
    let descriptors = || {
        std::fs::read_dir("/proc/self/fd")
            .expect("descriptors")
            .count()
    };
    let mut repeater = place.start();
    let image = image_after(&mut repeater, b"i 1\n");
    repeater.open(&image).expect("opened");
    repeater.run(COMMANDS).expect("an execution");
    let mine = |id: &u32| {
        let command = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        let directory = place.directory.path().as_os_str().as_encoded_bytes();
        command
            .windows(directory.len())
            .any(|part| part == directory)
    };
    let before = descriptors();
    for number in 0..1000 {
        let input: &[u8] = if number % 100 == 0 {
            b"f 1\nw\n"
        } else {
            b"i 1\nr\n"
        };
        repeater.run(input).expect("an execution");
    }
    // Other tests have open descriptors, too.
    assert!(descriptors() < before + 100, "{before} before");
    assert!(
        processes().iter().filter(|id| mine(id)).count() <= 2,
        "root and template"
    );
    drop(repeater);
    assert_eq!(processes().iter().filter(|id| mine(id)).count(), 0);
    let slot = place.options.directory.clone();
    let left = std::fs::read_dir(slot).map_or(0, Iterator::count);
    assert_eq!(left, 0);
}
