//! Mutations based on a grammar: they replace parts of inputs, and insert, remove and swap items of repetitions.

use super::dice::Dice;
use super::numbers::block_len;
use super::text::lines;
use crate::grammar::{Grammar, InputMatch, Repetition};

/// The maximum length of a generated part, in bytes.
const PART_BYTES: usize = 512;

/// Mutates an input once.
pub(crate) fn mutate(
    grammar: &Grammar,
    input: &mut Vec<u8>,
    other: &[u8],
    dice: &mut Dice<'_>,
    max_bytes: usize,
) {
    if dice.percent(2) {
        *input = grammar.generate_all(dice, max_bytes);
        return;
    }
    let Some(found) = grammar.find(input) else {
        return insert_something(grammar, input, dice, max_bytes);
    };
    let choice = dice.below(10);
    if choice < 5 && !found.repetitions.is_empty() {
        change_items(grammar, input, &found, dice);
    } else if choice < 7
        && let Some(theirs) = grammar.find(other)
    {
        take_part(input, &found, other, &theirs, dice);
    } else if let Some((node, range)) = dice.pick(&found.parts) {
        let new = grammar.generate_node(*node, dice, PART_BYTES);
        input.splice(range.clone(), new);
    }
}

/// For inputs that do not match the grammar: inserts a generated input at a random line.
fn insert_something(grammar: &Grammar, input: &mut Vec<u8>, dice: &mut Dice<'_>, max_bytes: usize) {
    let new = grammar.generate_all(dice, PART_BYTES.min(max_bytes));
    if dice.one_in(4) {
        *input = new;
    } else {
        let lines = lines(input);
        let at = dice.pick(&lines).map_or(0, |line| line.start);
        input.splice(at..at, new);
    }
}

/// Replaces a part with a part of another input that matches the same node.
fn take_part(
    input: &mut Vec<u8>,
    found: &InputMatch,
    other: &[u8],
    theirs: &InputMatch,
    dice: &mut Dice<'_>,
) {
    if let Some((node, range)) = dice.pick(&found.parts) {
        let same: Vec<_> = theirs
            .parts
            .iter()
            .filter(|(other, _)| other == node)
            .collect();
        if let Some((_, taken)) = dice.pick(&same) {
            input.splice(range.clone(), other[taken.clone()].iter().copied());
        }
    }
}

fn change_items(grammar: &Grammar, input: &mut Vec<u8>, found: &InputMatch, dice: &mut Dice<'_>) {
    // The outermost repetition, that of commands, is the last.
    let chosen = if dice.one_in(2) {
        found.repetitions.last()
    } else {
        dice.pick(&found.repetitions)
    };
    let Some(Repetition {
        item,
        min,
        max,
        start,
        items,
    }) = chosen
    else {
        return;
    };
    let count = items.len();
    let room = max.map_or(usize::MAX, |max| max as usize - count);
    let boundary = match dice.below(count + 1) {
        0 => *start,
        after => items[after - 1].end,
    };
    match dice.below(4) {
        0 if count > *min as usize => {
            let range = items[dice.below(count)].clone();
            input.drain(range);
        }
        1 if count > 0 && room > 0 => {
            let copy = input[items[dice.below(count)].clone()].to_vec();
            input.splice(boundary..boundary, copy);
        }
        2 if count > 1 => {
            let (one, other) = (dice.below(count), dice.below(count));
            let (first, second) = (items[one.min(other)].clone(), items[one.max(other)].clone());
            if first != second {
                let (text, moved) = (
                    input[second.clone()].to_vec(),
                    input[first.clone()].to_vec(),
                );
                input.splice(second, moved);
                input.splice(first, text);
            }
        }
        _ => {
            let wanted = if dice.one_in(3) { block_len(dice) } else { 1 };
            let new: Vec<u8> = (0..wanted.min(room))
                .flat_map(|_| grammar.generate_node(*item, dice, PART_BYTES))
                .collect();
            input.splice(boundary..boundary, new);
        }
    }
}
