//! What is known of the newest store to each byte of a line.

use powerfail_model::EventIndex;

use crate::judgement::NotDurable;

/// A point in time: the number of ordering points before it. The time stamp of the paper.
pub(crate) type Time = u64;

/// The time at which a store was durable that is not durable yet.
pub(crate) const NEVER: Time = Time::MAX;

/// What a store needs to be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// A flush of its line, and what completes that.
    Flush,
    /// Only a fence: it bypasses the cache.
    Fence,
    /// Nothing: it is durable before what comes next, also without an ordering point.
    Nothing,
}

/// Bytes of a line that one store wrote, and none since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) bytes: u64,
    pub(crate) writer: EventIndex,
    /// When it was stored.
    pub(crate) stored: Time,
    /// The first moment at which it was durable.
    pub(crate) durable: Time,
    pub(crate) needs: Needs,
    /// It was stored in a transaction that restores it if the transaction is not committed.
    pub(crate) protected: bool,
    /// It was stored where annotations of the program want no findings.
    pub(crate) left_out: bool,
}

impl Span {
    pub(crate) const fn is_durable(&self) -> bool {
        self.durable != NEVER
    }
}

/// The newest stores to a line of 64 bytes: at most one span for each byte.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stores {
    pub(crate) spans: Vec<Span>,
    /// The last flush of the line since all of it was durable.
    pub(crate) flush: Option<EventIndex>,
}

impl Stores {
    /// A store, which hides what was stored to its bytes before.
    pub(crate) fn push(&mut self, span: Span) {
        self.spans.retain_mut(|old| {
            old.bytes &= !span.bytes;
            old.bytes != 0
        });
        self.spans.push(span);
    }

    /// All stores up to `event` are durable now.
    pub(crate) fn rise(&mut self, event: EventIndex, now: Time) {
        for span in &mut self.spans {
            if !span.is_durable() && span.writer <= event {
                span.durable = now;
            }
        }
        if self.spans.iter().all(Span::is_durable) {
            self.flush = None;
        }
    }

    /// Forgets what is durable, but for the bytes in `kept`. Whether nothing is left.
    pub(crate) fn settle(&mut self, kept: u64) -> bool {
        self.spans.retain_mut(|span| {
            if span.is_durable() {
                span.bytes &= kept;
            }
            span.bytes != 0
        });
        self.spans.is_empty()
    }

    /// Forgets all but the bytes in `kept`. Whether nothing is left.
    pub(crate) fn cut(&mut self, kept: u64) -> bool {
        self.spans.retain_mut(|span| {
            span.bytes &= kept;
            span.bytes != 0
        });
        if self.spans.iter().all(Span::is_durable) {
            self.flush = None;
        }
        self.spans.is_empty()
    }

    /// Whether some bytes are not surely durable.
    pub(crate) fn is_open(&self) -> bool {
        self.spans.iter().any(|span| !span.is_durable())
    }

    /// The rollback of a transaction restores these bytes from here on.
    pub(crate) fn protect(&mut self, bytes: u64) {
        let mut parts = Vec::new();
        for span in &mut self.spans {
            let protected = span.bytes & bytes;
            if span.protected || protected == 0 {
                continue;
            }
            if protected != span.bytes {
                let rest = Span {
                    bytes: span.bytes & !bytes,
                    ..*span
                };
                parts.push(rest);
            }
            span.bytes = protected;
            span.protected = true;
        }
        self.spans.append(&mut parts);
    }

    /// Why a span that is not durable is not.
    pub(crate) fn why(&self, span: &Span) -> NotDurable {
        match self.flush {
            Some(flush) if flush > span.writer => NotDurable::NotFenced { flush },
            _ if span.needs == Needs::Fence => NotDurable::NotFenced { flush: span.writer },
            Some(flush) => NotDurable::FlushedBefore { flush },
            None => NotDurable::NeverFlushed,
        }
    }
}
