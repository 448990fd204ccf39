//! Whatever happens to the bytes of a trace: a typed error, or exactly the remaining records.

use crate::common::{Owned, OwnedBody, records_from, small_trace};
use powerfail_model::StoreKind;
use powerfail_trace::{
    BlockKind, Completeness, Compression, FORMAT_MAJOR, Statistics, Trace, TraceError, TraceWriter,
    WriterOptions, replay,
};
use proptest::prelude::*;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

const FILE_HEADER_LEN: usize = 24;
const BLOCK_HEADER_LEN: usize = 48;

/// Everything that can be read, or the first error.
fn read_all(bytes: &[u8]) -> Result<Vec<Owned>, TraceError> {
    let trace = Trace::from_bytes(bytes.to_vec())?;
    trace.verify()?;
    Statistics::collect(&trace)?;
    replay::replay_within(&trace, 1 << 24)?;
    records_from(&trace, 0)
}

/// A file header as `docs/reference/trace-format.md` describes it.
fn file_header(major: u16, flags: u32) -> Vec<u8> {
    let mut header = b"\x89PFTRC\r\n".to_vec();
    header.extend_from_slice(&major.to_le_bytes());
    header.extend_from_slice(&0u16.to_le_bytes());
    header.extend_from_slice(&flags.to_le_bytes());
    let checksum = xxh3_64_with_seed(&header, 0);
    header.extend_from_slice(&checksum.to_le_bytes());
    header
}

/// The claims of a forged block header.
struct Claim {
    kind: u8,
    codec: u8,
    event_count: u32,
    raw_len: u32,
}

/// Appends a block with correct checksums, whatever else is wrong.
fn forge_block(file: &mut Vec<u8>, claim: &Claim, payload: &[u8]) {
    let offset = file.len() as u64;
    let mut header = b"PFBK".to_vec();
    header.extend_from_slice(&[claim.kind, claim.codec, 0, 0]);
    header.extend_from_slice(&0u32.to_le_bytes());
    header.extend_from_slice(&claim.event_count.to_le_bytes());
    header.extend_from_slice(&claim.raw_len.to_le_bytes());
    let stored_len = u32::try_from(payload.len()).expect("a small payload");
    header.extend_from_slice(&stored_len.to_le_bytes());
    header.extend_from_slice(&0u64.to_le_bytes());
    header.extend_from_slice(&xxh3_64(payload).to_le_bytes());
    let checksum = xxh3_64_with_seed(&header, offset);
    header.extend_from_slice(&checksum.to_le_bytes());
    assert_eq!(header.len(), BLOCK_HEADER_LEN);
    file.extend_from_slice(&header);
    file.extend_from_slice(payload);
}

/// The same for an uncompressed block.
fn forge_raw(file: &mut Vec<u8>, kind: u8, event_count: u32, payload: &[u8]) {
    let claim = Claim {
        kind,
        codec: 0,
        event_count,
        raw_len: u32::try_from(payload.len()).expect("a small payload"),
    };
    forge_block(file, &claim, payload);
}

/// A forged trace with metadata, one pool and one thread.
fn forged_start() -> Vec<u8> {
    let mut file = file_header(FORMAT_MAJOR, 0);
    forge_raw(&mut file, 1, 0, &[]);
    forge_raw(&mut file, 2, 0, &[1, 0, 100, 0, 1, b'p', 3, 1, 0]);
    file
}

/// An event block from its columns.
fn columns(parts: [&[u8]; 5]) -> Vec<u8> {
    let mut raw = Vec::new();
    for part in parts {
        raw.extend_from_slice(&u32::try_from(part.len()).expect("short").to_le_bytes());
    }
    raw.extend_from_slice(&parts.concat());
    raw
}

#[test]
fn cut_at_every_byte() {
    let (bytes, records) = small_trace();
    let trace = Trace::from_bytes(bytes.clone()).expect("the trace is good");
    let blocks = trace.blocks().to_vec();
    // The end of each block, and how many records are readable from there on.
    let mut ends = vec![(FILE_HEADER_LEN as u64, 0)];
    for block in &blocks {
        let end = block.offset + BLOCK_HEADER_LEN as u64 + u64::from(block.stored_len_bytes);
        ends.push((end, block.first_event + u64::from(block.event_count)));
    }
    // The index block ends where the trailer begins.
    ends.push((bytes.len() as u64 - 32, records.len() as u64));

    for cut in 0..bytes.len() {
        let result = Trace::from_bytes(bytes[..cut].to_vec());
        if cut < FILE_HEADER_LEN {
            match result {
                Err(TraceError::Empty) => assert_eq!(cut, 0),
                Err(TraceError::Truncated { .. }) => assert!(cut > 0),
                other => panic!("cut at {cut}: {other:?}"),
            }
            continue;
        }
        let trace = result.unwrap_or_else(|error| panic!("cut at {cut}: {error}"));
        let (usable_bytes, event_count) = *ends
            .iter()
            .rfind(|(end, _)| *end <= cut as u64)
            .expect("the file header is there");
        assert_eq!(
            trace.completeness(),
            Completeness::Incomplete {
                usable_bytes,
                lost_bytes: cut as u64 - usable_bytes
            }
        );
        assert_eq!(trace.event_count(), event_count, "cut at {cut}");
        trace.verify().expect("complete blocks are good");
        let found = records_from(&trace, 0).expect("complete blocks are good");
        let count = usize::try_from(event_count).expect("few");
        assert_eq!(found, records[..count], "cut at {cut}");
    }
}

/// The result of a crash of the host: the file has its length, but its last bytes are missing.
#[test]
fn zeros_after_the_last_complete_block_are_an_incomplete_trace() {
    let (bytes, records) = small_trace();
    let whole = Trace::from_bytes(bytes.clone()).expect("the trace is good");
    for block in &whole.blocks()[1..] {
        let start = usize::try_from(block.offset).expect("small");
        let count = usize::try_from(block.first_event).expect("few");
        // The zeros begin with the block, or within its header.
        for written in [0, 1, 40] {
            for zeros in [1, 31, 48, 100, 70_000] {
                let mut left = bytes[..start + written].to_vec();
                left.resize(left.len() + zeros, 0);
                let trace = Trace::from_bytes(left)
                    .unwrap_or_else(|error| panic!("{written} bytes of {block:?}: {error}"));
                assert_eq!(
                    trace.completeness(),
                    Completeness::Incomplete {
                        usable_bytes: block.offset,
                        lost_bytes: (written + zeros) as u64
                    }
                );
                let found = records_from(&trace, 0).expect("complete blocks are good");
                assert_eq!(found, records[..count]);
            }
        }
    }
    // The trailer follows the index.
    let mut left = bytes[..bytes.len() - 32].to_vec();
    left.resize(bytes.len() + 4096, 0);
    assert_eq!(read_all(&left).expect("every block is there"), records);
}

#[test]
fn zeros_that_begin_within_a_block_cost_that_block_only() {
    let mut bytes = Vec::new();
    let options = WriterOptions {
        compression: Compression::None,
        ..WriterOptions::default()
    };
    let mut writer = TraceWriter::new(&mut bytes, &crate::common::meta(), options).expect("memory");
    crate::common::define_small(&mut writer);
    let record = Owned {
        thread: 0,
        stack: 0,
        body: OwnedBody::Store(StoreKind::Plain, 0, 64, vec![0xab; 3000]),
    };
    crate::common::append(&mut writer, &record);
    writer.flush_block().expect("memory");
    crate::common::append(&mut writer, &record);
    writer.flush_block().expect("memory");
    drop(writer);
    let whole = Trace::from_bytes(bytes.clone()).expect("readable");
    assert_eq!(whole.event_count(), 2);
    let last = whole.event_blocks()[1].offset;
    let border = usize::try_from(last).expect("small").next_multiple_of(512) + 512;
    for zeros in [0, 5, 5000] {
        let mut left = bytes.clone();
        left[border..].fill(0);
        left.resize(left.len() + zeros, 0);
        let trace = Trace::from_bytes(left).expect("readable");
        assert_eq!(trace.event_count(), 1, "{zeros}");
        assert!(
            matches!(trace.completeness(), Completeness::Incomplete { usable_bytes, .. }
                if usable_bytes == last)
        );
        trace.verify().expect("the first block is good");
    }
}

#[test]
fn every_flipped_bit_is_an_error() {
    let (bytes, _) = small_trace();
    for position in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[position] ^= 1 << bit;
            assert!(
                read_all(&damaged).is_err(),
                "bit {bit} of byte {position} of {} went unnoticed",
                bytes.len()
            );
        }
    }
}

#[test]
fn every_flipped_bit_of_an_incomplete_trace_is_an_error() {
    let (bytes, records) = small_trace();
    let whole = Trace::from_bytes(bytes.clone()).expect("the trace is good");
    let last = whole.blocks().last().expect("a final block").offset;
    let bytes = &bytes[..usize::try_from(last).expect("small")];
    assert_eq!(read_all(bytes).expect("readable"), records);
    for position in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.to_vec();
            damaged[position] ^= 1 << bit;
            assert!(read_all(&damaged).is_err(), "bit {bit} of byte {position}");
        }
    }
}

#[test]
fn bytes_after_the_end_are_an_error() {
    let (mut bytes, _) = small_trace();
    bytes.push(0);
    assert!(matches!(
        Trace::from_bytes(bytes),
        Err(TraceError::Corrupt { .. })
    ));
}

#[test]
fn a_removed_repeated_or_moved_block_is_an_error() {
    let (bytes, _) = small_trace();
    let trace = Trace::from_bytes(bytes.clone()).expect("the trace is good");
    for block in trace.blocks() {
        let start = usize::try_from(block.offset).expect("small");
        let end = start + BLOCK_HEADER_LEN + block.stored_len_bytes as usize;
        let removed = [&bytes[..start], &bytes[end..]].concat();
        assert!(read_all(&removed).is_err());
        let repeated = [&bytes[..end], &bytes[start..]].concat();
        assert!(read_all(&repeated).is_err());
        // Without the trailer there is no index that could detect it.
        assert!(read_all(&repeated[..repeated.len() - 40]).is_err());
    }
}

#[test]
fn an_empty_file_says_so() {
    let error = Trace::from_bytes(Vec::new()).expect_err("there is nothing");
    assert!(matches!(error, TraceError::Empty));
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let error = Trace::open(file.path()).expect_err("there is nothing");
    assert_eq!(
        error.to_string(),
        "the trace file is empty; nothing was recorded"
    );
}

#[test]
fn a_missing_file_says_so() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let error = Trace::open(directory.path().join("none")).expect_err("there is nothing");
    assert!(matches!(error, TraceError::Io(_)));
}

#[test]
fn another_file_is_not_a_trace() {
    for bytes in [&b"\x7fELF\x02\x01\x01"[..], b"x", &[0; 4096]] {
        assert!(matches!(
            Trace::from_bytes(bytes.to_vec()),
            Err(TraceError::NotATrace)
        ));
    }
}

#[test]
fn a_newer_version_says_what_to_do() {
    let mut bytes = file_header(FORMAT_MAJOR + 1, 0xffff_ffff);
    bytes.extend_from_slice(b"whatever comes in that version");
    let error = Trace::from_bytes(bytes).expect_err("it is newer");
    assert!(matches!(
        error,
        TraceError::NewerVersion { found, supported }
            if found == FORMAT_MAJOR + 1 && supported == FORMAT_MAJOR
    ));
    assert!(error.to_string().contains("update powerfail"));
}

#[test]
fn unknown_codes_are_named() {
    let unknown = |file: Vec<u8>| match read_all(&file) {
        Err(TraceError::UnknownCode { what, code, .. }) => (what, code),
        other => panic!("not refused: {other:?}"),
    };
    assert_eq!(
        unknown(file_header(FORMAT_MAJOR, 4)),
        ("set of file flags", 4)
    );
    let mut file = forged_start();
    forge_raw(&mut file, 77, 0, &[]);
    assert_eq!(unknown(file), ("kind of block", 77));
    let mut file = forged_start();
    forge_raw(&mut file, 2, 0, &[99]);
    assert_eq!(unknown(file), ("kind of definition", 99));
    let mut file = forged_start();
    forge_raw(&mut file, 4, 1, &columns([&[60], &[], &[0], &[], &[]]));
    assert_eq!(unknown(file), ("kind of record", 60));
    let mut file = forged_start();
    forge_raw(&mut file, 4, 1, &columns([&[45], &[], &[0], &[9], &[]]));
    assert_eq!(unknown(file), ("kind of mark", 9));
}

#[test]
fn forged_records_are_corrupt() {
    // A valid one first, so that the others fail for the intended reason.
    let cases: [(&str, [&[u8]; 5], bool); 10] = [
        ("a fence", [&[35], &[], &[0], &[], &[]], true),
        ("an unknown stack", [&[35], &[], &[1], &[], &[]], false),
        (
            "an unknown thread",
            [&[46, 35], &[], &[0], &[1], &[]],
            false,
        ),
        ("an unknown pool", [&[47, 32], &[0], &[0], &[1], &[]], false),
        ("a missing payload", [&[3], &[2], &[0], &[], &[1]], false),
        ("left-over bytes", [&[35], &[], &[0], &[], &[1]], false),
        ("a missing tag", [&[], &[], &[0], &[], &[]], false),
        ("a missing stack", [&[35], &[], &[], &[], &[]], false),
        (
            "an address beyond all addresses",
            [&[3], &[1], &[0], &[], &[0; 8]],
            false,
        ),
        (
            "a guessed address where there is none",
            [&[0x80 + 35], &[], &[0], &[], &[]],
            false,
        ),
    ];
    for (what, parts, good) in cases {
        let mut file = forged_start();
        forge_raw(&mut file, 4, 1, &columns(parts));
        match read_all(&file) {
            Ok(records) => assert!(good && records.len() == 1, "{what}"),
            Err(TraceError::Corrupt { .. }) => assert!(!good, "{what}"),
            Err(error) => panic!("{what}: {error}"),
        }
    }
}

#[test]
fn forged_definitions_are_corrupt() {
    // A stack in a module that does not exist; one that calls itself; one whose caller comes later.
    for payload in [&[4u8, 0, 1, 0][..], &[5, 1, 1], &[5, 1, 2, 5, 1, 0]] {
        let mut file = forged_start();
        forge_raw(&mut file, 2, 0, payload);
        assert!(matches!(
            Trace::from_bytes(file),
            Err(TraceError::Corrupt { .. })
        ));
    }
}

#[test]
fn a_claim_of_a_giant_block_is_refused() {
    for (kind, raw_len) in [(4u8, u32::MAX), (4, (64 << 20) + 1), (2, 64 << 20)] {
        let mut file = forged_start();
        let claim = Claim {
            kind,
            codec: 1,
            event_count: u32::from(kind == 4),
            raw_len,
        };
        forge_block(&mut file, &claim, &[0; 100]);
        assert!(matches!(
            Trace::from_bytes(file),
            Err(TraceError::TooLarge { .. })
        ));
    }
    // More records than bytes.
    let mut file = forged_start();
    forge_raw(&mut file, 4, u32::MAX, &[0; 100]);
    assert!(matches!(
        Trace::from_bytes(file),
        Err(TraceError::Corrupt { .. })
    ));
}

#[test]
fn a_payload_that_grows_beyond_its_claim_is_refused() {
    let bomb = zstd::bulk::compress(&vec![0; 1 << 20], 1).expect("compressible");
    let mut file = forged_start();
    let claim = Claim {
        kind: 4,
        codec: 1,
        event_count: 1,
        raw_len: 4096,
    };
    forge_block(&mut file, &claim, &bomb);
    assert!(matches!(read_all(&file), Err(TraceError::Corrupt { .. })));
}

#[test]
fn a_writer_that_fails_stays_failed() {
    struct Full<'a>(&'a std::cell::Cell<usize>);
    impl std::io::Write for Full<'_> {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let left = self.0.get().checked_sub(bytes.len());
            self.0.set(left.ok_or(std::io::ErrorKind::StorageFull)?);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let room = std::cell::Cell::new(10_000);
    let mut writer = TraceWriter::new(
        Full(&room),
        &crate::common::meta(),
        WriterOptions::default(),
    )
    .expect("the start fits");
    crate::common::define_small(&mut writer);
    room.set(10);
    assert!(matches!(writer.flush_block(), Err(TraceError::Io(_))));
    for record in crate::common::small_records() {
        crate::common::append(&mut writer, &record);
    }
    assert!(matches!(
        writer.flush_block(),
        Err(TraceError::WriterFailed)
    ));
    assert!(matches!(writer.finish(&[]), Err(TraceError::WriterFailed)));
}

proptest! {
    #[test]
    fn random_bytes_are_an_error(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        prop_assert!(read_all(&bytes).is_err());
    }

    #[test]
    fn random_bytes_after_a_good_start_are_an_error_or_nothing(
        bytes in prop::collection::vec(any::<u8>(), 0..500),
    ) {
        let mut file = forged_start();
        let start = file.len();
        file.extend_from_slice(&bytes);
        if let Ok(records) = read_all(&file) {
            prop_assert!(records.is_empty() && file.len() < start + BLOCK_HEADER_LEN);
        }
    }

    #[test]
    fn random_payloads_with_right_checksums_do_no_harm(
        kind in 1..7u8,
        event_count in 1..20u32,
        payload in prop::collection::vec(prop_oneof![0..50u8, any::<u8>()], 0..300),
    ) {
        let mut file = forged_start();
        let event_count = if kind == 4 { event_count } else { 0 };
        forge_raw(&mut file, kind, event_count, &payload);
        let _ = read_all(&file);
    }

    #[test]
    fn random_columns_with_right_checksums_do_no_harm(
        event_count in 1..20u32,
        parts in prop::array::uniform5(
            prop::collection::vec(prop_oneof![0..50u8, any::<u8>()], 0..60),
        ),
    ) {
        let mut file = forged_start();
        let raw = columns(parts.each_ref().map(Vec::as_slice));
        forge_raw(&mut file, 4, event_count, &raw);
        let trace = Trace::from_bytes(file.clone());
        if let Ok(trace) = trace {
            assert_eq!(trace.event_blocks()[0].kind, BlockKind::Events);
        }
        let _ = read_all(&file);
    }
}
