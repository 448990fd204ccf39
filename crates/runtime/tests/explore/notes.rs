//! First reads of watched bytes, and annotations of recoveries.

use std::fmt::Write;
use std::process::Command;

use powerfail_protocol::explore::{Note, flag};
use powerfail_protocol::mark;

use super::made_up::{Numbers, note_some, table};
use super::outputs;
use super::zygote::{POOL_LEN, Table, Zygote, program};

const ALL: u64 = u64::MAX;

/// Runs a recovery once, without branching: with everything private, and with everything shared.
fn notes_of(table: &Table, mode: &str) -> Vec<Note> {
    let mut zygote = Zygote::new(table.clone());
    zygote.prepare();
    zygote.start_mode(mode);
    let snapshot = zygote.snapshot();
    let mut all = Vec::new();
    // Instructions that were noted in the first run are patched in the second.
    for flags in [flag::PRIVATE, 0, flag::PRIVATE, 0] {
        zygote.prepare();
        let before = std::fs::read(&zygote.pool).unwrap();
        zygote.begin(flag::LAZY | flag::NOTES | flags, &[]);
        let outcomes = zygote.run(snapshot, |_| ()).unwrap();
        assert_eq!((outcomes.len(), outcomes[0].end), (1, Ok(0)));
        let choices = zygote.choices();
        assert!(choices.iter().all(|it| (it.class, it.left) == (0, 1)));
        if flags & flag::PRIVATE != 0 {
            assert_eq!(std::fs::read(&zygote.pool).unwrap(), before);
        }
        all.push(zygote.notes());
    }
    zygote.stop();
    assert!(all.iter().all(|notes| *notes == all[0]), "{all:?}");
    all.swap_remove(0)
}

/// The notes, ordered by location: line, bytes. The compiler decides in which order the arguments of a call are
/// computed.
fn sorted(table: &Table, mode: &str) -> Vec<(u64, u64)> {
    let mut noted = noted(table, mode);
    noted.sort_unstable();
    noted
}

/// The notes: line, bytes.
fn noted(table: &Table, mode: &str) -> Vec<(u64, u64)> {
    let notes = notes_of(table, mode);
    assert!(notes.iter().all(|it| (it.code, it.pool) == (0, 0)));
    notes.iter().map(|it| (it.offset, it.bytes)).collect()
}

fn everything() -> Table {
    Table::default().note(0, ALL).note(64, ALL)
}

/// This many bytes of a line, from one on.
fn bytes(from: u32, count: u32) -> u64 {
    (ALL >> (64 - count)) << from
}

#[test]
fn loads_of_all_kinds_are_noted() {
    let expected = [(0, 1), (0, 0b110), (0, 0xf0), (0, 0xff00)];
    assert_eq!(sorted(&everything(), "mixed"), expected);
    assert_eq!(noted(&everything(), "vector"), [(0, bytes(16, 32))]);
    assert_eq!(noted(&everything(), "masked"), [(0, bytes(8, 4))]);
    let expected = [(0, bytes(4, 4)), (64, bytes(0, 4))];
    assert_eq!(sorted(&everything(), "gathered"), expected);
    let expected = [2, 4, 4, 1].iter().zip([0, 8, 16, 24]);
    let expected: Vec<(u64, u64)> = expected.map(|(len, at)| (0, bytes(at, *len))).collect();
    assert_eq!(noted(&everything(), "other_sizes"), expected);
    let notes = noted(&everything(), "repeated");
    let all = |line| {
        let of_line = notes.iter().filter(|it| it.0 == line);
        of_line.fold(0, |all, it| all | it.1)
    };
    assert_eq!((all(0), all(64)), (bytes(52, 12), bytes(0, 12)));
}

#[test]
fn a_byte_is_noted_once() {
    // The second operation reads what the first one has read.
    assert_eq!(noted(&everything(), "locked"), [(0, 0xff)]);
    let table = Table::default().note(0, 0b10).note(64, 1);
    assert_eq!(noted(&table, "mixed"), [(0, 0b10)]);
}

#[test]
fn a_load_that_crosses_lines_and_pages_is_noted_in_each() {
    let table = everything().note(4032, ALL).note(4096, ALL);
    let expected = [
        (0, bytes(60, 4)),
        (64, bytes(0, 4)),
        (4032, bytes(60, 4)),
        (4096, bytes(0, 4)),
    ];
    assert_eq!(sorted(&table, "crossing"), expected);
}

#[test]
fn what_was_overwritten_is_not_noted() {
    assert_eq!(noted(&everything(), "overwriting"), [(0, 1 << 8)]);
    // Bytes beside the stored ones are.
    let expected = [(0, 0b1111_0011), (64, 0b1011)];
    assert_eq!(noted(&everything(), "two_stores"), expected);
    // By the kernel, in the file and in memory.
    let table = everything().note(8192, ALL);
    assert_eq!(noted(&table, "to_file"), [(0, 1 << 8)]);
    assert_eq!(noted(&everything(), "received"), [(0, 1 << 8)]);
}

/// The C library reads strings in pieces, and ignores bytes after their ends.
#[test]
fn a_string_is_noted_up_to_its_end() {
    let mut table = everything().note(128, ALL).note(256, ALL);
    table.image = vec![b'.'; POOL_LEN];
    for (at, text) in [
        (0, "three\0"),
        (100, "and what goes on in the next line\0"),
        (256, "yes\0"),
    ] {
        table.image[at..at + text.len()].copy_from_slice(text.as_bytes());
    }
    let notes = sorted(&table, "texts");
    let all = |line| {
        let of_line = notes.iter().filter(|it| it.0 == line);
        of_line.fold(0, |all, it| all | it.1)
    };
    let expected = [bytes(0, 6), bytes(36, 28), bytes(0, 6), bytes(0, 4)];
    assert_eq!([0, 64, 128, 256].map(all), expected);
}

#[test]
fn what_is_behind_the_end_of_a_string_is_left_to_who_reads_it() {
    // The byte that may differ, and the length of the string if it does.
    for (byte, class, expected) in [
        (10, 0, &[][..]),
        (5, 0, &[(0, 6)]),
        (5, 1, &[(0, 6)]),
        (2, 0, &[(0, 6)]),
    ] {
        let text = b"three\0.......\0";
        let newest: Vec<(usize, u8)> = text.iter().copied().enumerate().collect();
        let mut other = newest.clone();
        other[byte].1 = b'x';
        let table = Table::default().line(0, &[&newest, &other]).note(0, ALL);
        let mut zygote = Zygote::new(table);
        zygote.prepare();
        zygote.start_mode("texts");
        let snapshot = zygote.snapshot();
        zygote.begin(flag::LAZY | flag::NOTES | flag::PRIVATE, &[class]);
        zygote.run(snapshot, |_| ()).unwrap();
        let choices = zygote.choices();
        let told: Vec<(u16, u16)> = choices.iter().map(|it| (it.from, it.to)).collect();
        assert_eq!(told, expected);
        // With another byte instead of its terminator the string is longer.
        let len = if class == 1 { 14 } else { 6 };
        let noted = zygote.notes().into_iter().filter(|it| it.offset == 0);
        let noted = noted.fold(0, |all, it| all | it.bytes);
        assert_eq!(noted, bytes(0, len));
        zygote.stop();
    }
}

#[test]
fn what_the_kernel_reads_is_noted() {
    assert_eq!(noted(&everything(), "written"), [(0, 1), (0, 0b10)]);
    assert_eq!(noted(&everything(), "printed"), [(0, ALL), (64, ALL)]);
    assert_eq!(noted(&everything(), "from_file"), [(0, 0xff)]);
    assert_eq!(noted(&everything(), "streamed"), [(0, ALL), (64, ALL)]);
}

#[test]
fn mappings_share_what_is_noted() {
    let table = everything().note(8192, ALL);
    // Both bytes that are read through one mapping were written through the other.
    assert_eq!(noted(&table, "twice"), [(0, 1)]);
    assert_eq!(noted(&table, "again"), [(0, 1)]);
}

#[test]
fn reads_of_open_lines_are_noted_once_for_all_their_contents() {
    let table = Table::default()
        .line(0, &[&[(0, 1), (8, 2)], &[(0, 1)], &[]])
        .note(0, 1);
    assert_eq!(noted(&table, "mixed"), [(0, 1)]);
    // Branches have their own notes.
    assert_eq!(
        outputs(&table, "mixed"),
        ["1 0 0 2\n", "1 0 0 0\n", "0 0 0 0\n"]
    );
}

#[test]
fn notes_name_the_code_that_reads() {
    let notes = notes_of(&everything(), "mixed");
    assert_eq!(notes.len(), 4);
    assert_ne!(notes[0].frames[0], notes[1].frames[0]);
    assert_ne!(notes[0].frames[1], 0);
    assert_eq!(notes[0].frames[1..], notes[3].frames[1..]);
}

/// The state of watched bytes is passed to the next program of an execution.
#[test]
fn another_program_goes_on_with_what_was_noted() {
    let mut zygote = Zygote::new(everything());
    zygote.prepare();
    let (program, pool) = zygote.program_and_pool();
    let script = format!("{program} overwriting {pool}; {program} mixed {pool}");
    zygote.begin(flag::LAZY | flag::NOTES, &[]);
    zygote.start(Command::new("sh").arg("-c").arg(&script));
    for _ in 0..2 {
        let message = zygote.hear().unwrap();
        let kind = powerfail_protocol::explore::RecoveryMessageKind::NoSnapshot;
        assert!(message.is(kind), "{message:?}");
    }
    assert!(zygote.wait().success());
    assert_eq!(zygote.output(), "77 0\n77 0 0 0\n");
    let notes: Vec<_> = zygote.notes().iter().map(|it| it.bytes).collect();
    // The first one has written 8 bytes and read one; the second one reads the rest of the second word.
    assert_eq!(notes, [1 << 8, 0xfe00]);
}

#[test]
fn annotations_say_what_is_of_interest() {
    let table = Table::default()
        .line(0, &[&[(1, 1), (2, 1)], &[(1, 1)], &[]])
        .note(0, ALL);
    let notes = notes_of(&table, "annotated");
    let told: Vec<_> = notes
        .iter()
        .map(|it| (it.code, it.offset, it.bytes, it.skipped))
        .collect();
    let expected = [
        (mark::SKIP_DETECTION_BEGIN, 0, 0, 1),
        (0, 0, 1, 1),
        (mark::SKIP_DETECTION_END, 0, 0, 0),
        (0, 0, 1 << 1, 0),
        (mark::INTEREST_BEGIN, 0, 0, 0),
        (0, 0, 1 << 2, 0),
        (mark::INTEREST_END, 0, 0, 1),
        (0, 0, 1 << 3, 1),
        (mark::INTEREST_BEGIN, 0, 0, 0),
        (0, 0, 1 << 4, 0),
        (mark::COMMIT_VARIABLE, 4096, 8, 0),
        (mark::COMMIT_RANGE, 4104, 4, 0),
        (mark::COMPLETE, 0, 0, 1),
        (0, 0, 1 << 5, 1),
    ];
    assert_eq!(told, expected);
    assert_eq!(notes[11].second, [0, 8192, 100]);
    // The annotation is in the function that reads.
    assert_ne!(notes[10].frames[0], 0);
    assert_eq!(notes[10].frames[1..], notes[13].frames[1..]);
}

/// A region that was begun twice ends when it has been ended twice; an end without a beginning is ignored.
#[test]
fn regions_overlap_and_skipping_nests() {
    let table = Table::default()
        .line(0, &[&[(1, 1), (2, 1)], &[(1, 1)], &[]])
        .note(0, ALL);
    let skipped: Vec<_> = notes_of(&table, "nested")
        .iter()
        .filter(|it| it.code == 0)
        .map(|it| (it.bytes, it.skipped))
        .collect();
    let bytes = [(0, 1), (1, 0), (2, 0), (3, 1), (4, 1), (5, 0)];
    assert_eq!(skipped, bytes.map(|(byte, it)| (1 << byte, it)));
}

/// The effects of a made-up recovery on the pool, byte by byte.
struct Model {
    memory: Vec<u8>,
    /// Watched bytes that were neither read nor overwritten.
    unread: Vec<bool>,
    /// Written pages of a private mapping: reads there are not visible.
    lost: Vec<u64>,
}

impl Model {
    fn new(table: &Table) -> Self {
        let mut memory = table.image.clone();
        memory.resize(POOL_LEN, 0);
        for (offset, contents) in &table.lines {
            memory[*offset as usize..*offset as usize + 64].copy_from_slice(&contents[0]);
        }
        let mut unread = vec![false; POOL_LEN];
        for (offset, bytes) in &table.noted {
            for bit in 0..64 {
                unread[*offset as usize + bit] = bytes >> bit & 1 == 1;
            }
        }
        Self {
            memory,
            unread,
            lost: Vec::new(),
        }
    }

    /// The bytes that are noted for a read.
    fn read(&mut self, at: u64, len: u64) -> Vec<u64> {
        let is_seen = |at: &u64| !self.lost.contains(&(at / 4096));
        let all = (at..at + len).filter(is_seen);
        all.filter(|at| std::mem::take(&mut self.unread[*at as usize]))
            .collect()
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        let range = at as usize..at as usize + bytes.len();
        self.memory[range.clone()].copy_from_slice(bytes);
        self.unread[range].fill(false);
    }

    /// Executes a word; returns which bytes are noted.
    fn step(&mut self, what: &str, at: u64, len: u64, value: u64) -> Vec<u64> {
        let source = at as usize..(at + len) as usize;
        match what {
            "load" | "copy" | "rep" | "pread" => self.read(at, len),
            "vector" => self.read(at, 32),
            "sum" => self.read(at, len.min(40)),
            "if" => self.read(at, 1),
            "store" => {
                let bytes = value.to_le_bytes();
                self.write(at, &bytes[..len as usize]);
                Vec::new()
            }
            "set" | "repset" | "pwrite" => {
                self.write(at, &vec![value as u8; len as usize]);
                Vec::new()
            }
            "move" | "push" => {
                let noted = self.read(at, len);
                let bytes = self.memory[source].to_vec();
                self.write(value, &bytes);
                noted
            }
            "add" => {
                let noted = self.read(at, 8);
                let word = self.memory[at as usize..].first_chunk().unwrap();
                let sum = u64::from_le_bytes(*word).wrapping_add(value);
                self.write(at, &sum.to_le_bytes());
                noted
            }
            "peek" => {
                let mut noted = self.read(at, 1);
                self.lost.push(at / 4096);
                noted.extend(self.read(at, len));
                self.lost.clear();
                noted
            }
            _ => Vec::new(),
        }
    }
}

/// A recovery of words, and the expected notes at each.
fn made_up(numbers: &mut Numbers, table: &Table) -> (String, Vec<Vec<u64>>) {
    const WORDS: [&str; 18] = [
        "load", "load", "load", "store", "store", "vector", "copy", "move", "set", "rep", "repset",
        "add", "pread", "pwrite", "if", "other", "sum", "sum",
    ];
    const RARE: [&str; 3] = ["push", "again", "peek"];
    let lines: Vec<u64> = table.noted.keys().copied().collect();
    let mut model = Model::new(table);
    let mut script = String::new();
    let mut expected = Vec::new();
    let mut is_skipped = false;
    for _ in 0..10 + numbers.below(30) {
        let what = if numbers.below(8) == 0 {
            RARE[numbers.below(3) as usize]
        } else {
            WORDS[numbers.below(18) as usize]
        };
        let len = match what {
            "load" | "store" => 1 << numbers.below(4),
            _ => 1 + numbers.below(80),
        };
        let at = numbers.place(&lines, 128);
        let value = match what {
            "move" => numbers.place(&lines, 128),
            // The kernel guarantees nothing if source and destination overlap.
            "push" => 14336 + numbers.below(1024),
            _ => numbers.below(256),
        };
        writeln!(script, "{what} {at} {len} {value}").unwrap();
        if std::mem::take(&mut is_skipped) {
            expected.push(Vec::new());
            continue;
        }
        expected.push(model.step(what, at, len, value));
        is_skipped = what == "if" && model.memory[at as usize] & 1 == 1;
    }
    (script, expected)
}

/// Bytes in the order in which they were noted; those of one word are in ascending order.
fn bytes_of(notes: &[Note], expected: &[Vec<u64>]) -> Vec<Vec<u64>> {
    let mut all = notes.iter().flat_map(|note| {
        let bytes = (0..64).filter(|bit| note.bytes >> bit & 1 == 1);
        bytes.map(|bit| note.offset + bit)
    });
    let mut words: Vec<Vec<u64>> = Vec::new();
    for word in expected {
        let mut bytes: Vec<u64> = all.by_ref().take(word.len()).collect();
        bytes.sort_unstable();
        words.push(bytes);
    }
    words.push(all.collect());
    words
}

fn check(seed: u64) {
    let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut table = table(&mut numbers);
    table.noted.insert(64 * numbers.below(200), ALL);
    note_some(&mut numbers, &mut table);
    let (script, mut expected) = made_up(&mut numbers, &table);
    let mut zygote = Zygote::new(table.clone());
    zygote.prepare();
    let pool = zygote.pool.clone();
    let mut command = Command::new(program());
    zygote.start(command.arg("scripted").arg(pool).env("SCRIPT", &script));
    let snapshot = zygote.snapshot();
    // Nothing else is noted.
    expected.push(Vec::new());
    for flags in [flag::PRIVATE, 0, flag::LOG, flag::PRIVATE] {
        for lazy in [flag::LAZY, 0] {
            zygote.prepare();
            zygote.begin(flag::NOTES | lazy | flags, &[]);
            let outcomes = zygote.run(snapshot, |_| ()).unwrap();
            assert_eq!((outcomes.len(), outcomes[0].end), (1, Ok(0)));
            let words = bytes_of(&zygote.notes(), &expected[..expected.len() - 1]);
            assert_eq!(words, expected, "{seed} {flags} {lazy}: {script}");
        }
    }
    zygote.stop();
}

#[test]
fn made_up_recoveries_note_what_they_read_first() {
    for seed in 1..=40 {
        check(seed);
    }
}
