//! Test cases that wait to be run for the first time.
//!
//! Seeds come first and in order. Cases on new images are a stack, because the newest ones are closest to
//! what is being explored. They take turns with the corpus, so that many images leave time for inputs.

use std::collections::VecDeque;

use super::input::CaseInput;

/// If more wait, the oldest are dropped. Their images stay known.
const MOST_ON_IMAGES: usize = 4096;

/// The waiting test cases.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    seeds: VecDeque<CaseInput>,
    on_images: VecDeque<CaseInput>,
    turn: bool,
}

impl Pending {
    pub(crate) fn len(&self) -> usize {
        self.seeds.len() + self.on_images.len()
    }

    pub(crate) fn add_seed(&mut self, input: CaseInput) {
        self.seeds.push_back(input);
    }

    pub(crate) fn add_on_image(&mut self, input: CaseInput) {
        if self.on_images.len() == MOST_ON_IMAGES {
            self.on_images.pop_front();
        }
        self.on_images.push_back(input);
    }

    /// The next test case, and whether it is a seed; `None` if it is the turn of the corpus, which has `corpus` test cases.
    pub(crate) fn next(&mut self, corpus: usize) -> Option<(CaseInput, bool)> {
        if let Some(input) = self.seeds.pop_front() {
            return Some((input, true));
        }
        self.turn = !self.turn;
        if self.turn || corpus == 0 {
            self.on_images.pop_back().map(|input| (input, false))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::input::ImageNumber;
    use super::*;

    fn input(image: u32) -> CaseInput {
        CaseInput {
            image: ImageNumber(image),
            bytes: Vec::new(),
        }
    }

    #[test]
    fn seeds_first_then_the_newest_images_by_turns() {
        let mut pending = Pending::default();
        (10..13).for_each(|image| pending.add_on_image(input(image)));
        (0..2).for_each(|image| pending.add_seed(input(image)));
        let order: Vec<_> = (0..8)
            .map(|_| pending.next(1).map(|(input, _)| input.image.0))
            .collect();
        assert_eq!(
            order,
            [
                Some(0),
                Some(1),
                Some(12),
                None,
                Some(11),
                None,
                Some(10),
                None
            ]
        );
        pending.add_on_image(input(7));
        pending.add_on_image(input(8));
        assert!(
            pending.next(0).is_some() && pending.next(0).is_some(),
            "without a corpus there are no turns"
        );
    }
}
