//! The course of a number over time, as a line of blocks. Needs little memory, however long the campaign runs.

/// Samples at equal distances, from the start of the campaign until now.
#[derive(Debug, Default)]
pub struct History {
    samples: Vec<u64>,
    /// How many values make a sample.
    each: u64,
    /// How many values the last sample has.
    pending: u64,
}

/// When there are this many samples, each two become one.
const SAMPLES: usize = 512;

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

impl History {
    /// Adds the next value.
    pub fn add(&mut self, value: u64) {
        self.each = self.each.max(1);
        if self.pending == 0 {
            self.samples.push(value);
        } else if let Some(last) = self.samples.last_mut() {
            *last = value;
        }
        self.pending = (self.pending + 1) % self.each;
        if self.samples.len() == SAMPLES && self.pending == 0 {
            self.samples = self
                .samples
                .chunks(2)
                .map(|pair| pair[pair.len() - 1])
                .collect();
            self.each *= 2;
        }
    }

    /// At most `width` blocks, as high as the values.
    pub(super) fn blocks(&self, width: usize) -> String {
        let len = self.samples.len();
        let highest = self.samples.iter().copied().max().unwrap_or(0).max(1);
        let columns = width.min(len);
        let sample = |column: usize| self.samples[(column + 1) * len / columns - 1];
        let block = |value: u64| {
            let height = u128::from(value) * (BLOCKS.len() as u128 - 1);
            BLOCKS[(height / u128::from(highest)) as usize]
        };
        (0..columns).map(|column| block(sample(column))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::History;

    fn history(values: impl IntoIterator<Item = u64>) -> History {
        let mut history = History::default();
        values.into_iter().for_each(|value| history.add(value));
        history
    }

    #[test]
    fn blocks_are_as_high_as_values() {
        assert_eq!(history([0, 1, 2, 3, 4, 5, 6, 7]).blocks(80), "▁▂▃▄▅▆▇█");
        assert_eq!(history([0, 1, 2, 3, 4, 5, 6, 7]).blocks(2), "▄█");
        assert_eq!(history([]).blocks(80), "");
        assert_eq!(history([0, 0]).blocks(80), "▁▁");
        assert_eq!(history([u64::MAX]).blocks(80), "█");
    }

    #[test]
    fn a_long_history_takes_few_samples_and_ends_now() {
        let history = history(0..1_000_000);
        assert!(history.samples.len() <= 512, "{}", history.samples.len());
        assert_eq!(history.samples.last(), Some(&999_999));
        assert_eq!(history.blocks(8), "▁▂▃▄▅▆▇█");
    }
}
