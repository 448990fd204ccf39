//! What the kernel reads and writes for a recovery.

use powerfail_protocol::explore::RefusalKind;

use super::outputs;
use super::zygote::{Refused, Table, Zygote};

fn letters() -> Table {
    Table::default().line(
        0,
        &[
            &[(0, b'a'), (1, b'b')],
            &[(0, b'a'), (1, b'c')],
            &[(0, b'd'), (1, b'c')],
        ],
    )
}

fn three() -> Table {
    Table::default().line(0, &[&[(0, 1), (8, 2)], &[(0, 1)], &[]])
}

#[test]
fn what_goes_out_is_decided_first() {
    let expected = ["ab there\n", "ac there\n", "dc there\n"];
    assert_eq!(outputs(&letters(), "written"), expected);
}

#[test]
fn streams_are_no_way_around() {
    let lens: Vec<(usize, u8)> = outputs(&letters(), "printed")
        .iter()
        .map(|output| (output.len(), output.as_bytes()[1]))
        .collect();
    assert_eq!(lens, [(8192, b'b'), (8192, b'c'), (8192, b'c')]);
}

#[test]
fn the_file_shows_what_the_mapping_shows() {
    assert_eq!(
        outputs(&three(), "from_file"),
        ["1 1 55 66\n", "0 0 55 66\n"]
    );
}

#[test]
fn streams_read_files_of_pools() {
    let expected = ["1 2\n", "1 0\n", "0 0\n"];
    assert_eq!(outputs(&three(), "streamed"), expected);
}

#[test]
fn who_closes_everything_does_not_close_ours() {
    assert_eq!(outputs(&three(), "tidy"), ["1\n", "0\n"]);
}

#[test]
fn links_lead_to_pools_and_branches_do_not_share_them() {
    let refused = Zygote::fork_all(&three(), "linked").unwrap_err();
    assert_eq!(
        refused,
        Refused::new(
            RefusalKind::NotForkable,
            "the recovery makes or removes other files"
        )
    );
    let repeated = Zygote::reexecute_all(&three(), "linked").unwrap();
    let outputs: Vec<&str> = repeated.iter().map(|it| it.output.as_str()).collect();
    assert_eq!(outputs, ["1\n", "0\n"]);
}

#[test]
fn writing_to_the_file_overwrites() {
    let expected = ["1234 1234 2\n", "1234 1234 0\n"];
    assert_eq!(outputs(&three(), "to_file"), expected);
}

#[test]
fn the_kernel_writes_to_pools() {
    assert_eq!(
        outputs(&three(), "into_pool"),
        ["abcdefgh 2\n", "abcdefgh 0\n"]
    );
}

#[test]
fn mappings_see_each_other() {
    let expected = ["31 32 1 31 32\n", "31 32 0 31 32\n"];
    assert_eq!(outputs(&three(), "twice"), expected);
}

#[test]
fn a_pool_that_is_mapped_again_is_the_same() {
    assert_eq!(outputs(&three(), "again"), ["41 42 1\n", "41 42 0\n"]);
}

#[test]
fn private_changes_stay_private() {
    let two = Table::default().line(0, &[&[(0, 1)], &[]]);
    assert_eq!(outputs(&two, "privately"), ["1 51 1\n", "0 51 0\n"]);
}

#[test]
fn the_kernel_writes_to_private_pages() {
    let two = Table::default().line(0, &[&[(0, 1), (8, 2)], &[]]);
    let expected = ["abcdefgh 2\n", "abcdefgh 0\n"];
    assert_eq!(outputs(&two, "into_private"), expected);
}

#[test]
fn mappings_grow_and_change_their_rights() {
    assert_eq!(outputs(&three(), "moved"), ["61 1 0\n", "61 0 0\n"]);
}

#[test]
fn branches_do_not_lock_each_other_out() {
    assert_eq!(outputs(&three(), "locking"), ["0 0 1\n", "0 0 0\n"]);
}

#[test]
fn branches_have_their_own_positions() {
    assert_eq!(outputs(&three(), "with_file"), ["1 8\n", "0 8\n"]);
}

#[test]
fn a_length_that_changes_needs_the_file() {
    let refused = Zygote::fork_all(&three(), "shortening").unwrap_err();
    assert_eq!(
        refused,
        Refused::new(
            RefusalKind::NotForkable,
            "the recovery changes the length of a pool"
        )
    );
    let outcomes = Zygote::reexecute_all(&three(), "shortening").unwrap();
    assert_eq!(outcomes.len(), 1);
}
