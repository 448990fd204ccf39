//! Reading `powerfail.toml`.

use std::path::PathBuf;
use std::time::Duration;

use powerfail_config::{Byte, Config, HeapSize, Only, Strategy, TestArgs, Whole};
use powerfail_finding::{Class, Code};
use powerfail_model::{Atomicity, Domain};
use powerfail_oracle::Ready;

fn sentence(text: &str) -> String {
    Config::parse(text).expect_err(text).to_string()
}

#[test]
fn an_empty_file_says_nothing() {
    let config = Config::parse("").expect("sound");
    assert_eq!(format!("{config:?}"), format!("{:?}", Config::default()));
}

/// A file from before the other sections existed.
#[test]
fn a_section_for_all_commands() {
    let text = r#"
[check]
command = ["./server", "--pool", "{pool}"]
recover = "./server --check {pool}"
ready = "port"
timeout = "30s"
jobs = 4
seed = 0x2a
only = ["PF0101", "recovery-crash"]
fill = "0xff"
ok-exit = [0, 3]
no-trust = "libpmemobj.so.1"
pool = ["/mnt/pmem/*.pool"]
heap = "2G"
domain = "eadr"
atomicity = "8"
include-create = true
strategy = "eager"
threshold = 1000
snapshot = false
lazy = true
fork = false
races = true

[[suppress]]
code = "PF0505"
function = "lru_*"
file = "cache.c"
reason = "the order of eviction may be lost"
"#;
    let config = Config::parse(text).expect("sound");
    let check = &config.check;
    let words = ["./server", "--pool", "{pool}"].map(Into::into).to_vec();
    assert_eq!(check.own.command, Some(words));
    assert_eq!(check.own.no_lazy, Some(false));
    assert_eq!(check.own.races, Some(true));
    assert_eq!(check.lazy.no_fork, Some(true));
    assert_eq!(check.recording.heap, Some(HeapSize(2 << 30)));
    assert_eq!(
        check.recording.pool,
        Some(vec![PathBuf::from("/mnt/pmem/*.pool")])
    );
    assert_eq!(
        check.test.output.only,
        Some(vec![
            Only::Code(Code::StoreNotFlushed),
            Only::Class(Class::RecoveryCrash)
        ])
    );
    for test in [&check.test, &config.crash.test, &config.races.test] {
        let recover = test.recovery.recover.as_ref().expect("a command");
        assert_eq!(recover.text, "./server --check {pool}");
        assert_eq!(recover.words, ["./server", "--check", "{pool}"]);
        assert!(matches!(test.server.ready, Some(Ready::Port(None))));
        assert_eq!(test.failures.timeout, Some(Duration::from_secs(30)));
        assert_eq!(test.failures.jobs.map(Whole::get), Some(4));
        assert_eq!(test.failures.seed, Some(42));
        assert_eq!(test.failures.fill, Some(Byte(0xff)));
        assert_eq!(test.recovery.ok_exit, Some(vec![0, 3]));
        assert_eq!(test.recovery.atomicity, Some(Atomicity::Word));
        assert_eq!(test.recovery.include_create, Some(true));
        assert_eq!(test.domain.domain, Some(Domain::Eadr));
        assert_eq!(
            test.report.no_trust,
            Some(vec!["libpmemobj.so.1".to_owned()])
        );
    }
    assert_eq!(config.crash.strategy.strategy, Some(Strategy::Eager));
    assert_eq!(config.crash.eager.no_snapshot, Some(true));
    assert_eq!(config.lint.domain.domain, Some(Domain::Eadr));
    let fuzz = &config.fuzz;
    assert_eq!(fuzz.checks.recover_timeout, Some(Duration::from_secs(30)));
    assert_eq!(fuzz.target.timeout, None, "the time limit of an execution");
    assert_eq!(fuzz.recovery.ok_exit, Some(vec![0, 3]));
    assert_eq!(fuzz.target.seed, None);
    let record = format!("{:?}", config.record);
    assert_eq!(record, format!("{:?}", Config::default().record));
    let [suppression] = &config.suppress[..] else {
        panic!("one entry: {:?}", config.suppress);
    };
    assert_eq!(suppression.code, Some(Code::DirtyOverwrite));
    assert_eq!(suppression.line, 25);
    assert_eq!(suppression.reason, "the order of eviction may be lost");
}

#[test]
fn a_section_of_its_own_wins_over_check() {
    let text = r#"
[check]
timeout = "30s"
jobs = 4
trust = ["a.so"]

[crash]
timeout = "1s"
trust = ["b.so"]

[races]
jobs = 2

[fuzz]
recover-timeout = "2s"

[record]
output = "my.trace"
"#;
    let config = Config::parse(text).expect("sound");
    let of = |test: &TestArgs| {
        let jobs = test.failures.jobs.map(Whole::get);
        (test.failures.timeout.map(|time| time.as_secs()), jobs)
    };
    assert_eq!(of(&config.check.test), (Some(30), Some(4)));
    assert_eq!(of(&config.crash.test), (Some(1), Some(4)));
    assert_eq!(of(&config.races.test), (Some(30), Some(2)));
    let timeout = config.fuzz.checks.recover_timeout;
    assert_eq!(timeout, Some(Duration::from_secs(2)));
    let trust = config.crash.test.report.trust.expect("modules");
    assert_eq!(trust, ["a.so", "b.so"], "modules are added");
    assert_eq!(config.record.own.output, Some(PathBuf::from("my.trace")));
}

#[test]
fn a_switch_and_its_opposite() {
    let lazy = |line: &str| {
        let config = Config::parse(&format!("[check]\n{line}")).expect(line);
        config.check.own.no_lazy
    };
    assert_eq!(lazy("no-lazy = true"), Some(true));
    assert_eq!(lazy("lazy = false"), Some(true));
    assert_eq!(lazy("lazy = true"), Some(false));
    assert_eq!(
        sentence("[check]\nno-lazy = true\nlazy = true"),
        "line 3: `lazy` and `no-lazy` are opposites; remove one of them"
    );
    assert_eq!(
        sentence("[check]\nlazy = 1"),
        "line 2: `lazy`: expected true or false"
    );
    // Not a switch: it takes modules.
    assert!(Config::parse("[check]\nno-trust = \"a.so\"").is_ok());
}

#[test]
fn an_unknown_key_is_named_with_the_one_that_was_meant() {
    let cases = [
        (
            "[check]\njobs = 1\ntimeuot = \"1s\"",
            "line 3: unknown key `timeuot` in [check]; did you mean `timeout`?",
        ),
        (
            "[check]\nfailure_points = \"prefix\"",
            "line 2: unknown key `failure_points` in [check]; did you mean `failure-points`?",
        ),
        (
            "[chekc]",
            "line 1: unknown key `chekc`; did you mean `check`?",
        ),
        (
            "\n\n[[suppress]]\nreason = \"r\"\nfunctoin = \"f\"",
            "line 5: unknown key `functoin` in [[suppress]]; did you mean `function`?",
        ),
        (
            "zzz = 1",
            "line 1: unknown key `zzz`; expected one of check, crash, races, lint, fuzz, record, suppress",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(sentence(text), expected);
    }
}

#[test]
fn the_first_unknown_key_of_the_file_is_named() {
    let text = "[check]\nzebra = 1\naardvark = 2";
    assert!(sentence(text).starts_with("line 2: unknown key `zebra`"));
}

#[test]
fn a_wrong_value_says_what_it_must_be() {
    let cases = [
        (
            "timeout = 30",
            "`timeout`: invalid type: integer `30`, expected a duration such as",
        ),
        (
            "timeout = \"30\"",
            "`timeout`: invalid value `30`: expected a duration such as",
        ),
        (
            "jobs = 0",
            "`jobs`: invalid value: integer `0`, expected a whole number, at least 1",
        ),
        ("jobs = -1", "`jobs`: invalid value: integer `-1`, expected"),
        (
            "jobs = \"2\"",
            "`jobs`: invalid type: string \"2\", expected a whole number",
        ),
        (
            "ok-exit = [0, 256]",
            "`ok-exit`: invalid value: integer `256`",
        ),
        ("recover = [\"a\"]", "`recover`: invalid type: sequence"),
        (
            "recover = \" \"",
            "`recover`: invalid value ` `: the command is empty",
        ),
        (
            "client = \"\"",
            "`client`: invalid value ``: the command is empty",
        ),
        ("trust = [1]", "`trust`: invalid type: integer `1`"),
        (
            "domain = \"adrr\"",
            "`domain`: invalid value `adrr`: expected adr, eadr or pagecache",
        ),
        ("threshold = 0", "`threshold`: invalid value: integer `0`"),
        (
            "strategy = \"greedy\"",
            "`strategy`: invalid value `greedy`: expected prefix, eager or lazy",
        ),
        (
            "failure-points = \"x\"",
            "`failure-points`: invalid value `x`: expected flush, fence, store, all, clflush, clflushopt, clwb, sfence, mfence, locked or msync",
        ),
        (
            "include-create = 1",
            "`include-create`: invalid type: integer `1`, expected a boolean",
        ),
        ("command = \"./a b\"", "`command`: invalid type: string"),
        ("command = []", "`command`: invalid length 0"),
        ("only = [\"PF9999\"]", "`only`: invalid value `PF9999`"),
        (
            "ack = \"(\"",
            "`ack`: invalid value `(`: `(` is not a regular expression",
        ),
        ("ready = \"soon\"", "`ready`: invalid value `soon`"),
        (
            "fill = 256",
            "`fill`: invalid type: integer `256`, expected a byte",
        ),
        (
            "heap = \"much\"",
            "`heap`: invalid value `much`: expected a size",
        ),
        (
            "schedule-depth = 33",
            "`schedule-depth`: invalid value: integer `33`",
        ),
    ];
    for (line, expected) in cases {
        let sentence = sentence(&format!("[check]\n{line}"));
        assert!(
            sentence.starts_with(&format!("line 2: {expected}")),
            "{line}: {sentence}"
        );
        assert_eq!(sentence.lines().count(), 1, "{sentence}");
    }
    assert!(sentence("check = 1").contains("`check`: expected a table: [check]"));
    assert!(sentence("[suppress]").contains("`suppress`: expected a list of tables"));
    assert!(sentence("suppress = [1]").contains("`suppress`: expected a list of tables"));
}

#[test]
fn what_is_not_toml_is_one_sentence_with_its_line() {
    for text in [
        "[check]\njobs = ",
        "[check]\n= 1",
        "[check]\na b",
        "[check]\njobs = 1\njobs = 2",
    ] {
        let sentence = sentence(text);
        assert!(sentence.starts_with("line "), "{sentence}");
        assert_eq!(sentence.lines().count(), 1, "{sentence}");
    }
    assert!(sentence("\n\n[check\n").starts_with("line 3: "));
}

#[test]
fn a_suppression_needs_a_reason_and_a_subject() {
    let without_reason = "[[suppress]]\ncode = \"PF0101\"";
    assert_eq!(
        sentence(without_reason),
        "line 1: a [[suppress]] entry needs `reason`, a sentence that says why"
    );
    let empty = "[[suppress]]\ncode = \"PF0101\"\nreason = \" \"";
    assert!(sentence(empty).contains("needs `reason`"));
    let of_everything = "[[suppress]]\nreason = \"go away\"";
    assert!(sentence(of_everything).contains("or it would hide everything"));
    let wrong_code = "[[suppress]]\nreason = \"r\"\ncode = \"PF1\"";
    assert!(sentence(wrong_code).starts_with("line 3: `code`: invalid value `PF1`"));
}
