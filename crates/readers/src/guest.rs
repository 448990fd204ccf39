//! What comes out of a guest, and the saved machine that it starts from.

use powerfail_protocol::log::{Frames, MAGIC};
use powerfail_vm::{Machine, RecoveryReply, TreeListing, parse_kallsyms};

use crate::archive::{Unpacked, pack};

pub(crate) fn body(bytes: &[u8]) {
    if let Some(mut frames) = Frames::new(bytes) {
        let read = frames.by_ref().count();
        assert!(read <= bytes.len());
        assert!(frames.left() <= bytes.len());
    }
    let text = String::from_utf8_lossy(bytes);
    for module in parse_kallsyms(&text).keys() {
        assert!(!module.contains(['/', '.']), "{module}");
    }
    let _ = TreeListing::parse(text.lines()).text();
    let _ = serde_json::from_slice::<RecoveryReply>(bytes);
    let place = Unpacked::new(bytes);
    if let Err(error) = Machine::open(&place.path("inside"), || false) {
        assert!(!error.to_string().is_empty());
    }
    place.is_confined(&[]);
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let description =
        br#"{"file_system":"Ext4","layout":{"pm_len":16777216},"kernel_options":"quiet"}"#;
    let mut log = MAGIC.to_vec();
    // A call stack of two frames, and a load.
    for word in [
        2 | 24 << 32,
        7,
        0x40_1000,
        0x40_2000,
        3 | 16 << 32,
        64,
        0x40_3000_u64,
    ] {
        log.extend(word.to_le_bytes());
    }
    vec![
        pack(&[
            ("machine.json", description),
            ("ram", b""),
            ("ram-top", b""),
            ("state", b""),
            ("vmlinuz", b""),
            ("initramfs", b""),
        ]),
        log,
        b"ffffffff81000000 T _text\nffffffffc0002000 t ext4_fill\t[ext4]\n".to_vec(),
        b"entry regular file|644|6|1|'./a b'\nentry symbolic link|777|1|1|'./l' -> 'a b'\n\
          b1946ac92492d2347c6235b4d2611184  ./a b\nrecord-1 text of it\n"
            .to_vec(),
        br#"{"success":true,"output":"","tree":"."}"#.to_vec(),
    ]
}
