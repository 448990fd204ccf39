//! The program of an entry: what holds from which instruction on.

use crate::cursor::Cursor;
use crate::description::Description;
use crate::{RBP, RSP};

/// Where the frame of the caller begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cfa {
    /// At a register (RSP or RBP) plus an offset.
    Register {
        /// Its number.
        register: u64,
        /// What to add.
        offset: i64,
    },
    /// Where the word at a register (RSP or RBP) plus an offset says.
    Saved {
        /// The number of the register.
        register: u64,
        /// What to add.
        offset: i64,
    },
}

/// What holds at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Where the frame of the caller begins.
    pub cfa: Cfa,
    /// Where the caller's RBP is, from there; none if RBP is unchanged.
    pub rbp: Option<i64>,
    /// Where the return address is, from there; none if there is no caller.
    pub return_address: Option<i64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    Same,
    Undefined,
    At(i64),
    /// Something that is not followed.
    Other,
}

#[derive(Clone, Copy)]
struct State {
    cfa: Option<Cfa>,
    rbp: Rule,
    return_address: Rule,
}

const REMEMBERED_MAX: usize = 8;

struct Machine<'d> {
    description: &'d Description<'d>,
    state: State,
    initial: State,
    remembered: [State; REMEMBERED_MAX],
    remembered_count: usize,
    at: u64,
    end: u64,
}

/// What holds at an address of the function. None where the table has something that this crate
/// does not follow.
pub fn row_at(description: &Description<'_>, address: u64) -> Option<Row> {
    let empty = State {
        cfa: None,
        rbp: Rule::Same,
        return_address: Rule::Same,
    };
    let mut machine = Machine {
        description,
        state: empty,
        initial: empty,
        remembered: [empty; REMEMBERED_MAX],
        remembered_count: 0,
        at: description.start,
        end: address,
    };
    machine.run(description.common_program)?;
    machine.initial = machine.state;
    machine.at = description.start;
    machine.run(description.program)?;
    let State {
        cfa,
        rbp,
        return_address,
    } = machine.state;
    let followed = |cfa: &Cfa| match cfa {
        Cfa::Register { register, .. } | Cfa::Saved { register, .. } => {
            *register == RSP || *register == RBP
        }
    };
    Some(Row {
        cfa: cfa.filter(followed)?,
        rbp: match rbp {
            Rule::At(offset) => Some(offset),
            Rule::Same | Rule::Undefined => None,
            Rule::Other => return None,
        },
        return_address: match return_address {
            Rule::At(offset) => Some(offset),
            Rule::Undefined => None,
            Rule::Same | Rule::Other => return None,
        },
    })
}

impl Machine<'_> {
    /// Whether the program is to go on behind an advance by this many units.
    fn advance(&mut self, units: u64) -> bool {
        self.at = self
            .at
            .wrapping_add(units.wrapping_mul(self.description.code_factor));
        self.at <= self.end
    }

    fn set(&mut self, register: u64, rule: Rule) {
        if register == RBP {
            self.state.rbp = rule;
        } else if register == self.description.return_register {
            self.state.return_address = rule;
        }
    }

    fn restore(&mut self, register: u64) {
        if register == RBP {
            self.state.rbp = self.initial.rbp;
        } else if register == self.description.return_register {
            self.state.return_address = self.initial.return_address;
        }
    }

    fn factored(&self, offset: u64) -> Rule {
        Rule::At((offset.cast_signed()).wrapping_mul(self.description.data_factor))
    }

    fn define(&mut self, register: u64, offset: i64) {
        // Of any register: a later instruction may keep the offset and change the register.
        self.state.cfa = Some(Cfa::Register { register, offset });
    }

    fn set_offset(&mut self, offset: i64) {
        if let Some(Cfa::Register { register, .. }) = self.state.cfa {
            self.state.cfa = Some(Cfa::Register { register, offset });
        }
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each instruction")]
    fn run(&mut self, program: &[u8]) -> Option<()> {
        let mut cursor = Cursor(program);
        while !cursor.is_empty() {
            let code = cursor.u8()?;
            let low = u64::from(code & 0x3f);
            match code >> 6 {
                1 => {
                    if !self.advance(low) {
                        return Some(());
                    }
                    continue;
                }
                2 => {
                    let offset = cursor.uleb()?;
                    self.set(low, self.factored(offset));
                    continue;
                }
                3 => {
                    self.restore(low);
                    continue;
                }
                _ => {}
            }
            match code {
                // Nothing; the size of arguments.
                0x00 => {}
                0x2e => {
                    cursor.uleb()?;
                }
                0x01 => {
                    // An address in an encoding that compilers do not use for it.
                    return None;
                }
                0x02 => {
                    let units = cursor.u8()?.into();
                    if !self.advance(units) {
                        return Some(());
                    }
                }
                0x03 => {
                    let units = cursor.u16()?.into();
                    if !self.advance(units) {
                        return Some(());
                    }
                }
                0x04 => {
                    let units = cursor.u32()?.into();
                    if !self.advance(units) {
                        return Some(());
                    }
                }
                0x05 => {
                    let (register, offset) = (cursor.uleb()?, cursor.uleb()?);
                    self.set(register, self.factored(offset));
                }
                0x06 => {
                    let register = cursor.uleb()?;
                    self.restore(register);
                }
                0x07 => {
                    let register = cursor.uleb()?;
                    self.set(register, Rule::Undefined);
                }
                0x08 => {
                    let register = cursor.uleb()?;
                    self.set(register, Rule::Same);
                }
                0x0a => {
                    let place = self.remembered.get_mut(self.remembered_count)?;
                    *place = self.state;
                    self.remembered_count += 1;
                }
                0x0b => {
                    self.remembered_count = self.remembered_count.checked_sub(1)?;
                    self.state = self.remembered[self.remembered_count];
                }
                0x0c => {
                    let (register, offset) = (cursor.uleb()?, cursor.uleb()?);
                    self.define(register, offset.cast_signed());
                }
                0x0d => {
                    let register = cursor.uleb()?;
                    match self.state.cfa {
                        Some(Cfa::Register { offset, .. }) => self.define(register, offset),
                        _ => self.state.cfa = None,
                    }
                }
                0x0e => {
                    let offset = cursor.uleb()?.cast_signed();
                    self.set_offset(offset);
                }
                0x0f => {
                    let len = cursor.uleb()?;
                    let expression = cursor.take(usize::try_from(len).ok()?)?;
                    self.state.cfa = saved_cfa(expression);
                }
                0x10 | 0x16 => {
                    let register = cursor.uleb()?;
                    let len = cursor.uleb()?;
                    let expression = cursor.take(usize::try_from(len).ok()?)?;
                    let rule = self.place(expression).filter(|_| code == 0x10);
                    self.set(register, rule.unwrap_or(Rule::Other));
                }
                0x11 => {
                    let (register, offset) = (cursor.uleb()?, cursor.sleb()?);
                    self.set(register, self.factored(offset.cast_unsigned()));
                }
                0x12 => {
                    let (register, offset) = (cursor.uleb()?, cursor.sleb()?);
                    self.define(register, offset.wrapping_mul(self.description.data_factor));
                }
                0x13 => {
                    let offset = cursor.sleb()?;
                    self.set_offset(offset.wrapping_mul(self.description.data_factor));
                }
                0x09 | 0x14 => {
                    let register = cursor.uleb()?;
                    cursor.uleb()?;
                    self.set(register, Rule::Other);
                }
                0x15 => {
                    let register = cursor.uleb()?;
                    cursor.sleb()?;
                    self.set(register, Rule::Other);
                }
                _ => return None,
            }
        }
        Some(())
    }

    /// A register saved at RBP plus an offset: code that realigns its stack describes it so. As RBP
    /// stands still in such a function, that is a place from the frame's beginning only if the
    /// frame is found by RBP, too.
    fn place(&self, expression: &[u8]) -> Option<Rule> {
        let (register, offset, rest) = base(expression)?;
        match self.state.cfa {
            Some(Cfa::Register {
                register: of_frame,
                offset: of_cfa,
            }) if register == of_frame && rest.is_empty() => Some(Rule::At(offset - of_cfa)),
            _ => None,
        }
    }
}

/// `register + offset` at the beginning of an expression, and what follows.
fn base(expression: &[u8]) -> Option<(u64, i64, &[u8])> {
    const FIRST: u8 = 0x70;
    let mut cursor = Cursor(expression);
    let register = u64::from(cursor.u8()?.checked_sub(FIRST)?);
    if register != RSP && register != RBP {
        return None;
    }
    let offset = cursor.sleb()?;
    Some((register, offset, cursor.0))
}

/// A frame whose beginning was saved on the stack: `*(register + offset)`.
fn saved_cfa(expression: &[u8]) -> Option<Cfa> {
    const DEREFERENCE: &[u8] = &[0x06];
    let (register, offset, rest) = base(expression)?;
    match rest {
        [] => Some(Cfa::Register { register, offset }),
        DEREFERENCE => Some(Cfa::Saved { register, offset }),
        _ => None,
    }
}
