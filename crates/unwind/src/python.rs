//! The table of lines of a Python function: `CPython` 3.11 and later, `Objects/locations.md` of its sources.
//!
//! It has entries for up to eight units of two bytes each: the kind of the entry and how many units, then, depending on the
//! kind, the difference from the line before, and columns, which are skipped.

/// The line of an instruction before which there are `executed` bytes of instructions, in a function that begins at
/// `first_line`. Anything gives some line.
pub fn python_line(table: &[u8], executed: u64, first_line: u32) -> u32 {
    const UNIT: u64 = 2;
    const NO_LINE: u8 = 15;
    const LONG: u8 = 14;
    const NO_COLUMNS: u8 = 13;
    let mut line = i64::from(first_line);
    let mut shown = line;
    let mut end = 0;
    let mut rest = table.iter().copied();
    while let Some(head) = rest.next() {
        let code = head >> 3 & 15;
        match code {
            NO_LINE => {}
            LONG | NO_COLUMNS => {
                line = line.wrapping_add(signed(&mut rest));
                let others = if code == LONG { 3 } else { 0 };
                for _ in 0..others {
                    unsigned(&mut rest);
                }
            }
            10..=12 => {
                line = line.wrapping_add(i64::from(code - 10));
                rest.nth(1);
            }
            _ => {
                rest.next();
            }
        }
        if code != NO_LINE {
            shown = line;
        }
        end += (u64::from(head & 7) + 1) * UNIT;
        if executed < end {
            break;
        }
    }
    u32::try_from(shown).unwrap_or(0)
}

/// A number of six bits a byte, the lowest first; all but the last have bit 6.
fn unsigned(bytes: &mut impl Iterator<Item = u8>) -> u64 {
    let mut number = 0;
    for place in 0..10 {
        let Some(byte) = bytes.next() else { break };
        number |= u64::from(byte & 63) << (6 * place);
        if byte & 64 == 0 {
            break;
        }
    }
    number
}

/// The same with the sign in the lowest bit.
fn signed(bytes: &mut impl Iterator<Item = u8>) -> i64 {
    let number = unsigned(bytes);
    let size = (number >> 1).cast_signed();
    if number & 1 == 0 { size } else { -size }
}

#[cfg(test)]
mod tests {
    use super::python_line;

    #[test]
    fn lines_of_instructions() {
        // `def f(a):` at line 10, `b = a + 1` at 11, `return b` at 14.
        let table = [
            0b1000_0000,
            0, // one unit, line 10
            0b1101_1010,
            4,
            9,           // three units, line 11
            0b1111_1000, // one unit, no line
            0b1110_1001,
            6, // two units, line 14
            0b1111_0000,
            7,
            0,
            1,
            1, // one unit, back to line 11
        ];
        let line = |unit: u64| python_line(&table, 2 * unit, 10);
        let lines = [0, 1, 2, 3, 4, 5, 6, 7].map(line);
        assert_eq!(lines, [10, 11, 11, 11, 11, 14, 14, 11]);
        assert_eq!(line(100), 11, "behind the end");
        assert_eq!(python_line(&[], 0, 3), 3, "no table");
        assert_eq!(python_line(&[0b1110_1000], 0, 3), 3, "a cut entry");
        // A difference of several bytes: 100 is 36 + 1 * 64.
        assert_eq!(python_line(&[0b1110_1000, 64 | 8, 3], 0, 3), 103);
    }
}
