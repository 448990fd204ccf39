//! What instructions observe.

use powerfail_protocol::explore::RefusalKind;

use super::outputs;
use super::zygote::{Table, Zygote};

/// Three contents: newest, without the byte at 8, and zeros.
fn three() -> Table {
    Table::default().line(0, &[&[(0, 1), (8, 2)], &[(0, 1)], &[]])
}

#[test]
fn loads_of_all_sizes_observe_what_they_read() {
    // The first load shows whether byte 0 was written; the last one whether byte 8 was.
    let expected = ["1 0 0 2\n", "1 0 0 0\n", "0 0 0 0\n"];
    assert_eq!(outputs(&three(), "mixed"), expected);
}

#[test]
fn a_vector_crosses_what_it_crosses() {
    let table = Table::default()
        .line(0, &[&[(15, 9), (16, 1)], &[(15, 9)], &[]])
        .line(64, &[&[(0, 3)], &[]]);
    // Byte 15 is not read, and neither is the second line.
    let one = format!("1{}\n", "0".repeat(31));
    let zero = format!("{}\n", "0".repeat(32));
    assert_eq!(outputs(&table, "vector"), [one, zero]);
}

#[test]
fn a_mask_hides_what_it_hides() {
    let table = Table::default().line(0, &[&[(0, 1), (8, 7)], &[(0, 1)], &[(0, 2)]]);
    assert_eq!(outputs(&table, "masked"), ["0 0 7\n", "0 0 0\n"]);
}

#[test]
fn a_gather_observes_its_elements() {
    let table = Table::default()
        .line(0, &[&[(0, 9), (4, 1)], &[]])
        .line(64, &[&[(0, 2)], &[]]);
    let expected = ["1 2\n", "1 0\n", "0 2\n", "0 0\n"];
    assert_eq!(outputs(&table, "gathered"), expected);
}

#[test]
fn a_string_instruction_goes_from_line_to_line() {
    let table = Table::default()
        .line(0, &[&[(52, 1), (63, 2)], &[(52, 1)]])
        .line(64, &[&[(11, 3), (12, 4)], &[(12, 4)]]);
    let text = |second: &str, third: &str| format!("10000000000{second}00000000000{third}\n");
    let expected = [
        text("2", "3"),
        text("2", "0"),
        text("0", "3"),
        text("0", "0"),
    ];
    assert_eq!(outputs(&table, "repeated"), expected);
}

#[test]
fn loads_cross_lines_and_pages() {
    let table = Table::default()
        .line(0, &[&[(60, 1)], &[]])
        .line(64, &[&[(0, 2)], &[]])
        .line(4032, &[&[(63, 3)], &[]])
        .line(4096, &[&[(3, 4)], &[]]);
    let outputs = outputs(&table, "crossing");
    assert_eq!(outputs.len(), 16);
    assert_eq!(outputs[0], "200000001 400000003000000\n");
    assert_eq!(outputs[15], "0 0\n");
}

#[test]
fn what_is_overwritten_cannot_be_observed() {
    let table = Table::default().line(0, &[&[(0, 1), (8, 2)], &[(0, 3), (8, 2)], &[]]);
    assert_eq!(outputs(&table, "overwriting"), ["77 2\n", "77 0\n"]);
}

#[test]
fn locked_operations_read_and_write() {
    assert_eq!(outputs(&three(), "locked"), ["1 11\n", "0 10\n"]);
}

#[test]
fn a_page_goes_on_when_its_lines_are_closed() {
    assert_eq!(outputs(&three(), "stored"), ["2 1\n", "1 0\n"]);
}

#[test]
fn more_values_than_allowed_are_refused() {
    let contents: Vec<Vec<(usize, u8)>> = (0..65).map(|byte| vec![(0, byte)]).collect();
    let contents: Vec<&[(usize, u8)]> = contents.iter().map(Vec::as_slice).collect();
    let table = Table::default().line(0, &contents);
    let refused = Zygote::fork_all(&table, "mixed").unwrap_err();
    assert_eq!(refused.kind, RefusalKind::NotExplorable);
    let reason = refused.reason;
    assert!(reason.contains("more than 64 values"), "{reason}");
}

#[test]
fn choices_name_the_code_that_chose() {
    let mut zygote = Zygote::new(three());
    zygote.prepare();
    zygote.start_mode("mixed");
    let snapshot = zygote.snapshot();
    zygote.begin(powerfail_protocol::explore::flag::LAZY, &[]);
    zygote.run(snapshot, |_| ()).unwrap();
    let choices = zygote.choices();
    assert_eq!(choices.len(), 2);
    let [first, second] = [choices[0], choices[1]];
    assert_eq!((first.line, first.from, first.to), (0, 0, 1));
    assert_eq!((second.from, second.to, second.class_count), (8, 16, 2));
    // The same function, with the same callers.
    assert_ne!(first.frames[0], second.frames[0]);
    assert_eq!(first.frames[1..], second.frames[1..]);
    assert_ne!(first.frames[1], 0);
    zygote.stop();
}

#[test]
fn reads_of_watched_lines_are_noted() {
    let table = three().watch(0, 1 << 2).watch(8192, 0b11);
    let mut zygote = Zygote::new(table);
    zygote.prepare();
    zygote.start_mode("twice");
    let snapshot = zygote.snapshot();
    zygote.begin(powerfail_protocol::explore::flag::LAZY, &[]);
    zygote.run(snapshot, |_| ()).unwrap();
    assert_eq!(zygote.read_lines(0), 1);
    assert_eq!(zygote.read_lines(1), 1);
    zygote.stop();
}
