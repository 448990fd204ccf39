//! Decodes the records that a runtime has written into the shared file.

use std::mem::offset_of;

use powerfail_protocol::explore::{
    CHOICE_FRAMES, Choice, LogHeader, LogKind, Note, OBSERVED_WORDS,
};

use crate::lazy::Logged;

/// Choices, one after the other.
pub(crate) fn choices_of(bytes: &[u8]) -> Vec<Choice> {
    let records = bytes.chunks_exact(size_of::<Choice>());
    records.map(choice).collect()
}

fn choice(record: &[u8]) -> Choice {
    let mut frames = [0; CHOICE_FRAMES];
    words_at(record, offset_of!(Choice, frames), &mut frames);
    let mut observed = [0; OBSERVED_WORDS];
    words_at(record, offset_of!(Choice, observed), &mut observed);
    Choice {
        line: u32_at(record, offset_of!(Choice, line)),
        from: u16_at(record, offset_of!(Choice, from)),
        to: u16_at(record, offset_of!(Choice, to)),
        class_count: u16_at(record, offset_of!(Choice, class_count)),
        class: u16_at(record, offset_of!(Choice, class)),
        content: u32_at(record, offset_of!(Choice, content)),
        left: u32_at(record, offset_of!(Choice, left)),
        log_events: u32_at(record, offset_of!(Choice, log_events)),
        frames,
        observed,
        notes: u32_at(record, offset_of!(Choice, notes)),
        skipped: u32_at(record, offset_of!(Choice, skipped)),
    }
}

/// Notes, one after the other.
pub(crate) fn notes_of(bytes: &[u8]) -> Vec<Note> {
    let records = bytes.chunks_exact(size_of::<Note>());
    records.map(note).collect()
}

fn note(record: &[u8]) -> Note {
    let mut frames = [0; CHOICE_FRAMES];
    words_at(record, offset_of!(Note, frames), &mut frames);
    let mut second = [0; 3];
    words_at(record, offset_of!(Note, second), &mut second);
    Note {
        code: u32_at(record, offset_of!(Note, code)),
        pool: u32_at(record, offset_of!(Note, pool)),
        offset: u64_at(record, offset_of!(Note, offset)),
        bytes: u64_at(record, offset_of!(Note, bytes)),
        choices: u32_at(record, offset_of!(Note, choices)),
        skipped: u32_at(record, offset_of!(Note, skipped)),
        second,
        frames,
    }
}

/// The events of a log, up to the first that is invalid.
pub(crate) fn log_of(bytes: &[u8]) -> Vec<Logged> {
    let mut logged = Vec::new();
    let mut rest = bytes;
    while let Some((header, after)) = rest.split_at_checked(size_of::<LogHeader>()) {
        let Some(kind) = kind_of(u32_at(header, offset_of!(LogHeader, kind))) else {
            break;
        };
        let len = u64_at(header, offset_of!(LogHeader, len));
        let stored = match kind {
            LogKind::Store | LogKind::StoreNonTemporal => len,
            _ => 0,
        };
        let padded = stored.checked_next_multiple_of(8);
        let Some((stored_bytes, after)) = padded
            .and_then(|it| usize::try_from(it).ok())
            .and_then(|it| after.split_at_checked(it))
        else {
            break;
        };
        logged.push(Logged {
            kind,
            pool: u32_at(header, offset_of!(LogHeader, pool)),
            offset: u64_at(header, offset_of!(LogHeader, offset)),
            bytes: stored_bytes[..stored as usize].to_vec(),
            len,
            site: u64_at(header, offset_of!(LogHeader, site)),
            thread: u32_at(header, offset_of!(LogHeader, thread)),
            choices: u32_at(header, offset_of!(LogHeader, choices)),
        });
        rest = after;
    }
    logged
}

fn kind_of(number: u32) -> Option<LogKind> {
    [
        LogKind::Store,
        LogKind::StoreNonTemporal,
        LogKind::Flush,
        LogKind::FlushOptimized,
        LogKind::Fence,
        LogKind::Sync,
    ]
    .into_iter()
    .find(|kind| *kind as u32 == number)
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let found = bytes.get(at..).and_then(<[u8]>::first_chunk);
    found.copied().unwrap_or([0; N])
}

fn words_at(bytes: &[u8], at: usize, words: &mut [u64]) {
    for (number, word) in words.iter_mut().enumerate() {
        *word = u64_at(bytes, at + 8 * number);
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(bytes_at(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes_at(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes_at(bytes, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: u32, len: u64, stored: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(2_u32.to_ne_bytes());
        bytes.extend(640_u64.to_ne_bytes());
        bytes.extend(len.to_ne_bytes());
        bytes.extend(0x1234_u64.to_ne_bytes());
        bytes.extend(5_u32.to_ne_bytes());
        bytes.extend(6_u32.to_ne_bytes());
        bytes.extend(stored);
        bytes
    }

    #[test]
    fn a_log_is_read_with_the_bytes_of_its_stores() {
        let mut bytes = event(1, 3, &[1, 2, 3, 0, 0, 0, 0, 0]);
        bytes.extend(event(4, 64, &[]));
        bytes.extend(event(2, 8, &[9; 8]));
        let log = log_of(&bytes);
        let kinds: Vec<_> = log.iter().map(|it| (it.kind, it.bytes.len())).collect();
        let expected = [
            (LogKind::Store, 3),
            (LogKind::FlushOptimized, 0),
            (LogKind::StoreNonTemporal, 8),
        ];
        assert_eq!(kinds, expected);
        let first = &log[0];
        assert_eq!((first.pool, first.offset, first.len), (2, 640, 3));
        assert_eq!((first.site, first.thread, first.choices), (0x1234, 5, 6));
    }

    #[test]
    fn a_log_that_is_cut_ends_early() {
        let whole = [event(5, 0, &[]), event(1, 16, &[7; 16])].concat();
        for len in 0..whole.len() {
            assert!(log_of(&whole[..len]).len() < 2);
        }
        assert_eq!(log_of(&event(1, u64::MAX, &[7; 16])), []);
        assert_eq!(log_of(&event(77, 0, &[])), []);
    }
}
