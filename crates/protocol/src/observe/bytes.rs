//! Sets of bytes of a line.

/// The longest line: a sector of a page cache.
pub const LINE_BYTES_MAX: usize = 512;

const WORDS: usize = LINE_BYTES_MAX / 64;

/// A set of bytes of a line, by their offset in it. Zeros are the empty set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ByteSet {
    words: [u64; WORDS],
}

impl ByteSet {
    /// No byte.
    pub const EMPTY: Self = Self { words: [0; WORDS] };

    /// The set with these words: byte *n* is bit `n % 64` of word `n / 64`.
    pub const fn from_words(words: [u64; WORDS]) -> Self {
        Self { words }
    }

    /// Its words: byte *n* is bit `n % 64` of word `n / 64`.
    pub const fn words(&self) -> [u64; WORDS] {
        self.words
    }

    /// The bytes from an offset to another one, which is not in it. Offsets beyond the longest line are
    /// cut.
    pub fn range(from: usize, to: usize) -> Self {
        let mut set = Self::EMPTY;
        set.insert(from, to);
        set
    }

    /// Adds the bytes from an offset to another one, which is not in it.
    pub fn insert(&mut self, from: usize, to: usize) {
        let to = to.min(LINE_BYTES_MAX);
        for (number, word) in self.words.iter_mut().enumerate() {
            let (low, high) = (from.max(64 * number), to.min(64 * number + 64));
            if low < high {
                let ones = u64::MAX >> (64 - (high - low));
                *word |= ones << (low - 64 * number);
            }
        }
    }

    /// Whether a byte is in it.
    pub fn contains(&self, at: usize) -> bool {
        self.words
            .get(at / 64)
            .is_some_and(|word| word >> (at % 64) & 1 != 0)
    }

    /// The bytes that are in it and not in another one.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let mut left = *self;
        for (word, taken) in left.words.iter_mut().zip(&other.words) {
            *word &= !taken;
        }
        left
    }

    /// The bytes that are in it or in another one.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut both = *self;
        for (word, more) in both.words.iter_mut().zip(&other.words) {
            *word |= more;
        }
        both
    }

    /// Whether no byte is in it.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// Its bytes, in ascending order. Costs what is in it.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        let words = self.words.into_iter().enumerate();
        words.flat_map(|(number, word)| {
            core::iter::successors(Some(word), |rest| Some(rest & rest.checked_sub(1)?))
                .take_while(|rest| *rest != 0)
                .map(move |rest| 64 * number + rest.trailing_zeros() as usize)
        })
    }

    /// The bytes in which two contents differ. Those beyond the end of one of them do not count.
    pub fn differing(one: &[u8], other: &[u8]) -> Self {
        let mut set = Self::EMPTY;
        let chunks = one.chunks(64).zip(other.chunks(64));
        for (word, (one, other)) in set.words.iter_mut().zip(chunks) {
            if one == other {
                continue;
            }
            for (at, (one, other)) in one.iter().zip(other).enumerate() {
                *word |= u64::from(one != other) << at;
            }
        }
        set
    }

    /// Whether two contents agree on its bytes. Those beyond the end of one of them do not count.
    pub fn agree(&self, one: &[u8], other: &[u8]) -> bool {
        let chunks = one.chunks(64).zip(other.chunks(64));
        for (&word, (one, other)) in self.words.iter().zip(chunks) {
            if word == 0 || one == other {
                continue;
            }
            let differ = |at: usize| one.get(at) != other.get(at);
            let mut rest = word;
            while rest != 0 {
                if differ(rest.trailing_zeros() as usize) {
                    return false;
                }
                rest &= rest - 1;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::ByteSet;

    #[test]
    fn what_differs_does_not_agree() {
        let (one, mut other) = ([7; 128], [7; 128]);
        assert!(ByteSet::differing(&one, &other).is_empty());
        for at in [0, 63, 64, 127] {
            other[at] = 8;
        }
        let set = ByteSet::differing(&one, &other);
        assert!(set.iter().eq([0, 63, 64, 127]));
        assert!(ByteSet::range(1, 63).agree(&one, &other) && !set.agree(&one, &other));
    }

    #[test]
    fn ranges_cross_words() {
        let set = ByteSet::range(60, 70);
        for at in 0..512 {
            assert_eq!(set.contains(at), (60..70).contains(&at), "{at}");
        }
        assert!(ByteSet::range(5, 5).is_empty());
        assert!(ByteSet::range(0, 512).contains(511));
        assert!(set.without(&ByteSet::range(0, 64)).iter().eq(64..70));
        assert!(
            set.union(&ByteSet::range(3, 4))
                .iter()
                .eq((3..4).chain(60..70))
        );
        assert_eq!(ByteSet::from_words(set.words()), set);
    }

    #[test]
    fn only_its_bytes_count() {
        let one = [0; 512];
        for at in [0, 59, 60, 63, 64, 69, 70, 511] {
            let mut other = one;
            other[at] = 1;
            let set = ByteSet::range(60, 70);
            assert_eq!(set.agree(&one, &other), !set.contains(at), "{at}");
        }
    }
}
