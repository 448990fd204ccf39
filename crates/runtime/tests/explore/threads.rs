//! Recoveries of several threads: what one does is logged while another one's instruction meets the same page.

use std::process::Command;

use powerfail_protocol::explore::{LogKind, flag};

use super::zygote::{Table, Zygote, build};

const PAGE: usize = 4096;

/// What the program prints of a pool with this content.
fn sums(content: &[u8]) -> String {
    let sum = |page: &[u8]| {
        let bytes = page.iter();
        bytes.fold(0u64, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add((*byte).into())
        })
    };
    let pages = content.chunks(PAGE);
    pages.fold(String::new(), |sums, page| {
        sums + &format!("{:x}\n", sum(page))
    })
}

#[test]
fn the_log_of_two_threads_gives_what_they_have_stored() {
    let program = build("threads", &["-pthread"]);
    // The first page is also stepped at first, because it is to be noted who reads it.
    let mut zygote = Zygote::new(Table::default().watch(0, u64::MAX));
    zygote.prepare();
    let pool = zygote.pool.clone();
    zygote.start(Command::new(program).arg("60").arg(&pool));
    let snapshot = zygote.snapshot();
    for flags in [
        flag::LOG,
        flag::LOG | flag::PRIVATE,
        flag::LOG | flag::NOTES | flag::PRIVATE,
        flag::LOG | flag::NOTES,
    ] {
        zygote.prepare();
        let mut content = std::fs::read(&pool).unwrap();
        zygote.begin(flags, &[]);
        let outcomes = zygote.run(snapshot, |_| ()).unwrap();
        for (kind, offset, bytes) in zygote.log() {
            if kind == LogKind::Store as u32 {
                content[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
            }
        }
        assert_eq!(outcomes[0].end, Ok(0), "{flags}");
        assert_eq!(outcomes[0].output, sums(&content), "{flags}");
        let counted = u64::from_le_bytes(content[2 * PAGE..][..8].try_into().unwrap());
        assert_eq!(counted, 120, "{flags}");
    }
    zygote.stop();
}
