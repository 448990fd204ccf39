//! Messages about sites: one for each, or one for many where no code can run in between.

use powerfail_protocol::message::{MessageKind, SITE_WORDS, TEXT_MAX};

use crate::host;

/// The words of a site in [`MessageKind::Site`].
type Words = [u64; SITE_WORDS];

/// How many sites go into a message.
const GATHERED_MAX: usize = 1 + TEXT_MAX / size_of::<Words>();

/// Sites of which the host is told.
#[derive(Default)]
pub(super) struct AnnouncedSites {
    gathered: Vec<Words>,
    gathers: bool,
}

impl AnnouncedSites {
    /// Tells the host of a site, now or when no more are gathered.
    pub(super) fn add(&mut self, words: Words) {
        self.gathered.push(words);
        if !self.gathers || self.gathered.len() >= GATHERED_MAX {
            self.send();
        }
    }

    /// Nothing of the target runs until [`Self::end_gathering`].
    pub(super) fn begin_gathering(&mut self) {
        self.gathers = true;
    }

    /// Tells the host of what was gathered.
    pub(super) fn end_gathering(&mut self) {
        self.gathers = false;
        self.send();
    }

    fn send(&mut self) {
        let Some(([id, address, len, tactic], others)) = self.gathered.split_first() else {
            return;
        };
        let mut text = [0; TEXT_MAX];
        let words = others.iter().flatten();
        for (word, place) in words.zip(text.chunks_exact_mut(size_of::<u64>())) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let text = &text[..size_of_val(others)];
        host::send(
            MessageKind::Site,
            [*id, *address, *len, *tactic, 0],
            text,
            None,
        );
        self.gathered.clear();
    }
}
