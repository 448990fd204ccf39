//! Reading `powerfail.toml`.

use std::path::PathBuf;
use std::time::Duration;

use powerfail_config::{CheckSection, Config, Only};
use powerfail_finding::{Class, Code};

fn sentence(text: &str) -> String {
    Config::parse(text).expect_err(text).to_string()
}

#[test]
fn an_empty_file_says_nothing() {
    assert_eq!(Config::parse(""), Ok(Config::default()));
}

#[test]
fn every_key_is_read() {
    let text = r#"
[check]
command = ["./server", "--pool", "{pool}"]
recover = "./server --check {pool}"
checker = "./fsck {pool}"
client = "./client put"
client-recover = "./client get"
ready = "tcp:127.0.0.1:11211"
stop = "SIGTERM"
dump = "./client list"
ack = "STORED"
timeout = "30s"
budget = "5m"
jobs = 4
out = "evidence"
seed = 0x2a
schedules = 20
failure-points = "prefix"
per-stack = 2
only = ["PF0101", "recovery-crash"]
fill = "zero"
ok-exit = [0, 3]
trust = ["libmine.so"]
no-trust = "libpmemobj.so.1"
pool = ["/mnt/pmem/*.pool"]
pm-dir = "/dev/shm"
heap = "2G"
domain = "eadr"
atomicity = "8"
include-create = true
strategy = "eager"
threshold = 1000
sample = 64
coalesce = true
snapshot = false
lazy = true
depth = 2
max-executions = 5000
exhaustive = false
fork = false
races = true
strict = true

[[suppress]]
code = "PF0505"
function = "lru_*"
file = "cache.c"
reason = "the order of eviction may be lost"
"#;
    let text_of = |text: &str| Some(text.to_owned());
    let config = Config::parse(text).expect("sound");
    assert_eq!(
        config.check,
        CheckSection {
            command: Some(["./server", "--pool", "{pool}"].map(str::to_owned).to_vec()),
            recover: text_of("./server --check {pool}"),
            checker: text_of("./fsck {pool}"),
            client: text_of("./client put"),
            client_recover: text_of("./client get"),
            ready: text_of("tcp:127.0.0.1:11211"),
            stop: text_of("SIGTERM"),
            dump: text_of("./client list"),
            ack: text_of("STORED"),
            timeout: Some(Duration::from_secs(30)),
            budget: Some(Duration::from_mins(5)),
            jobs: Some(4),
            out: Some(PathBuf::from("evidence")),
            seed: Some(42),
            schedules: Some(20),
            failure_points: text_of("prefix"),
            per_stack: Some(2),
            only: Some(vec![
                Only::Code(Code::StoreNotFlushed),
                Only::Class(Class::RecoveryCrash)
            ]),
            fill: text_of("zero"),
            ok_exit: Some(vec![0, 3]),
            trust: Some(vec!["libmine.so".to_owned()]),
            no_trust: Some(vec!["libpmemobj.so.1".to_owned()]),
            pool: Some(vec![PathBuf::from("/mnt/pmem/*.pool")]),
            pm_dir: Some(PathBuf::from("/dev/shm")),
            heap: Some("2G".into()),
            domain: text_of("eadr"),
            atomicity: text_of("8"),
            include_create: Some(true),
            strategy: text_of("eager"),
            threshold: Some(1000),
            sample: Some(64),
            coalesce: Some(true),
            snapshot: Some(false),
            lazy: Some(true),
            depth: Some(2),
            max_executions: Some(5000),
            exhaustive: Some(false),
            fork: Some(false),
            races: Some(true),
            strict: Some(true),
        }
    );
    let [suppression] = &config.suppress[..] else {
        panic!("one entry: {:?}", config.suppress);
    };
    assert_eq!(suppression.code, Some(Code::DirtyOverwrite));
    assert_eq!(suppression.line, 44);
    assert_eq!(suppression.reason, "the order of eviction may be lost");
}

#[test]
fn an_unknown_key_is_named_with_the_one_that_was_meant() {
    let cases = [
        (
            "[check]\njobs = 1\ntimeuot = \"1s\"",
            "line 3: there is no `timeuot` in [check]; did you mean `timeout`?",
        ),
        (
            "[check]\nfailure_points = \"prefix\"",
            "line 2: there is no `failure_points` in [check]; did you mean `failure-points`?",
        ),
        (
            "[chekc]",
            "line 1: there is no `chekc`; did you mean `check`?",
        ),
        (
            "\n\n[[suppress]]\nreason = \"r\"\nfunctoin = \"f\"",
            "line 5: there is no `functoin` in [[suppress]]; did you mean `function`?",
        ),
        (
            "zzz = 1",
            "line 1: there is no `zzz`; there are check, suppress",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(sentence(text), expected);
    }
}

#[test]
fn the_first_unknown_key_of_the_file_is_named() {
    let text = "[check]\nzebra = 1\naardvark = 2";
    assert!(sentence(text).starts_with("line 2: there is no `zebra`"));
}

#[test]
fn a_wrong_value_says_what_it_must_be() {
    let cases = [
        ("timeout = 30", "`timeout` must be a duration such as"),
        ("timeout = \"30\"", "`timeout` must be a duration such as"),
        ("jobs = 0", "`jobs` must be a whole number above 0"),
        ("jobs = -1", "`jobs` must be a whole number, not below 0"),
        ("jobs = \"2\"", "`jobs` must be a whole number"),
        ("ok-exit = [0, 256]", "`ok-exit` must be an exit code"),
        ("recover = [\"a\"]", "`recover` must be a text in quotes"),
        ("trust = [1]", "`trust` must be a text in quotes or a list"),
        (
            "domain = \"adrr\"",
            "`domain` must be one of adr, eadr, pagecache",
        ),
        (
            "threshold = 0",
            "`threshold` must be a whole number above 0",
        ),
        (
            "strategy = \"greedy\"",
            "`strategy` must be one of prefix, eager, lazy",
        ),
        (
            "include-create = 1",
            "`include-create` must be true or false",
        ),
        (
            "command = \"./a b\"",
            "`command` must be a list: the program",
        ),
        ("command = []", "`command` must be a list: the program"),
        ("only = [\"PF9999\"]", "`only` must be codes such as"),
    ];
    for (line, expected) in cases {
        let sentence = sentence(&format!("[check]\n{line}"));
        assert!(
            sentence.starts_with(&format!("line 2: {expected}")),
            "{line}: {sentence}"
        );
        assert_eq!(sentence.lines().count(), 1, "{sentence}");
    }
    assert!(sentence("check = 1").contains("`check` must be a table: [check]"));
    assert!(sentence("[suppress]").contains("`suppress` must be a list of tables"));
    assert!(sentence("suppress = [1]").contains("`suppress` must be a list of tables"));
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
    assert!(sentence(wrong_code).starts_with("line 3: `code` must be the code of a finding"));
}
