//! Trampolines for memory that is not where the program sees it.
//!
//! While a recovery is explored, pages of a pool are inaccessible at the address that the program uses,
//! and their bytes live in a copy somewhere else. Every access faults, which is right the first time
//! and far too slow in a loop. The trampoline of such an instruction asks two tables: one byte for each
//! line says whether loads and stores of it can go to the copy as they are ([`LOADS_MOVE`],
//! [`STORES_MOVE`]), and one word for each page says how far away the copy is. Of some lines the caller wants
//! to know that they were read: a load sets their bit in a word of the page, once ([`UNREAD_SHIFT`]).
//!
//! ```text
//!     below the red zone: save A and RAX;  A = address;  save flags
//!     A in the window? both lines movable? copies equally far? else go to ORIGINAL
//!     A = A + distance of the page
//!     restore flags and RAX
//!     the instruction on [A]
//!     restore A; jump back
//! ORIGINAL:
//!     restore; the instruction as it was; jump back
//! UNREAD:
//!     the first line is unread and this is a load? else go to ORIGINAL
//!     set its bit; from now on it is movable; look again
//! ```
//!
//! Zero in all tables is the beginning and is always right: the instruction as it was either works,
//! because its page is accessible, or faults, and then the fault handler sees a copy of the
//! instruction in the state that the program had before it, stack pointer included.
//!
//! There is no thread block here, so registers are saved on the program's stack. A is a register that
//! the instruction does not use at all, and one that needs no REX prefix, because of AH, BH, CH and DH.
//!
//! Deliberately absent: records, and all knowledge of what lines hold.

use iced_x86::{
    Code, Encoder, EncodingKind, FlowControl, Instruction, InstructionInfoFactory, MemoryOperand,
    Mnemonic, OpAccess, OpKind, Register,
};

use super::access_string::StringForm;
use super::{EmitError, relocate};
use crate::assembler::{Assembler, Condition, Label, at};
use crate::variant::addressable_variant;

/// Bit of a line's byte: loads can go to the copy.
pub const LOADS_MOVE: u8 = 1;
/// Bit of a line's byte: stores can go to the copy. Only together with [`LOADS_MOVE`].
pub const STORES_MOVE: u8 = 2;

/// A line that is to become movable with its first load, which is noted: its byte is that of afterwards,
/// shifted to the left by this.
pub const UNREAD_SHIFT: u8 = 2;

/// No trampoline of an access is longer than this.
pub const MAX_ACCESS_LEN: usize = 512;

const LINE_SHIFT: i32 = 6;
const PAGE_SHIFT: i32 = 12;
const LINE_MASK: i32 = -64;
const PAGE_MASK: i32 = -4096;
/// An access is never longer than a line, so it touches two at most.
const MAX_LEN: usize = 64;
const LINES_OF_PAGE: i32 = 64;
const LOCK: u8 = 0xf0;
const RED_ZONE: i64 = 128;
/// What lies between the stack pointer and the program's when the address is computed.
const PUSHED: i64 = RED_ZONE + 16;
/// What lies between the stack pointer and the program's at the moved instruction.
const PUSHED_AT_WORK: u64 = 128 + 8;

/// Where accesses are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessSettings {
    /// First address of the window in which all pools are, a multiple of the page.
    pub base: u64,
    /// Its length. Code is shortest if it is a power of two and `base` a multiple of it.
    pub len_bytes: u64,
    /// Address of the byte of the first line of the window. The table has one more byte than there
    /// are lines. Code is shortest if this is `base / 64`.
    pub line_table: u64,
    /// Address of the word of the first page of the window; as long as there are pages, and one. Code is
    /// shortest if this is `base / 512`.
    pub page_table: u64,
    /// Address of the word of the first page of another such table: the address of a word that has a bit
    /// for each line of the page, set when that is read. Only used for lines that are unread.
    pub mark_table: u64,
    /// Whether `rdfsbase` and `rdgsbase` can be executed (`AT_HWCAP2`, bit 1).
    pub has_fsgsbase: bool,
}

/// Why an instruction gets no trampoline and is left to fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// There is no memory operand, or it is not accessed.
    #[error("{0:?} has no memory operand that it loads or stores")]
    NoOperand(Mnemonic),
    /// More than one place is accessed, or one that the operand alone does not tell: string operations,
    /// gathers, bits beyond the operand.
    #[error("what {0:?} accesses is not its memory operand alone")]
    NotOnePlace(Mnemonic),
    /// It branches, or uses the stack.
    #[error("{0:?} branches or uses the stack")]
    Flow(Mnemonic),
    /// The stack pointer is one of its operands.
    #[error("{0:?} has the stack pointer as an operand")]
    StackPointer(Mnemonic),
    /// It saves or loads the state of the processor, or flushes a line.
    #[error("{0:?} is no ordinary access to memory")]
    Special(Mnemonic),
    /// There is code for it, but not here.
    #[error(transparent)]
    Emit(#[from] EmitError),
}

/// Emitted code of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessTrampoline {
    /// Its length.
    pub len_bytes: usize,
    /// Offset of the instruction on the copy.
    pub moved_at: usize,
    /// Offset of the instruction as it was.
    pub original_at: usize,
    /// The number of the register that holds the address at `moved_at`.
    pub(super) scratch: u8,
    /// A string instruction has several.
    pub(super) string: Option<StringForm>,
}

impl AccessTrampoline {
    /// Makes of the registers, by their numbers, and the flags at a fault at `moved_at` what the program would
    /// have had. `word` reads the stack.
    pub fn undo(&self, registers: &mut [u64; 16], flags: &mut u64, word: impl Fn(u64) -> u64) {
        if let Some(string) = self.string {
            string.undo(registers, flags, word);
            return;
        }
        let stack = registers[4];
        registers[usize::from(self.scratch)] = word(stack);
        registers[4] = stack + PUSHED_AT_WORK;
    }
}

/// What is known of an access.
pub(super) struct Access {
    len: usize,
    /// The bit that both lines must have.
    bit: u8,
    /// Holds the address.
    pub(super) scratch: Register,
}

/// Emits trampolines of accesses. Allocates when made, not afterwards.
pub struct AccessEmitter {
    settings: AccessSettings,
    encoder: Encoder,
    info: InstructionInfoFactory,
}

impl AccessEmitter {
    /// Makes an emitter and builds the tables of decoder and encoder.
    pub fn new(settings: AccessSettings) -> Self {
        let mut encoder = Encoder::new(64);
        encoder.set_buffer(Vec::with_capacity(2 * MAX_ACCESS_LEN));
        let mut emitter = Self {
            settings,
            encoder,
            info: InstructionInfoFactory::new(),
        };
        let _ = emitter.relocate(&Instruction::with(Code::Nopd), 0, &mut [0; 16]);
        emitter
    }

    /// Whether an instruction can have a trampoline, as far as can be said without a place for it.
    pub fn check(&mut self, instruction: &Instruction) -> Result<(), AccessError> {
        if StringForm::of(instruction).is_some() {
            return Ok(());
        }
        self.access(instruction).map(|_| ())
    }

    /// Emits the trampoline of an instruction, whose bytes are `code`, to run at the address `at`. Its
    /// length does not depend on `at`. `flags_dead` says that nothing uses the flags of before the
    /// instruction, neither itself nor what follows ([`crate::flags_are_dead`] from the instruction on).
    pub fn emit(
        &mut self,
        instruction: &Instruction,
        code: &[u8],
        at: u64,
        flags_dead: bool,
        out: &mut [u8],
    ) -> Result<AccessTrampoline, AccessError> {
        if let Some(form) = StringForm::of(instruction) {
            return self.emit_string(instruction, form, code, at, out);
        }
        let access = self.access(instruction)?;
        let keeps_flags = !flags_dead || instruction.rflags_read() != 0;
        let mut body = Body {
            asm: Assembler::new(&mut self.encoder, at),
            settings: &self.settings,
            instruction,
            access,
            constants: [None; 3],
        };
        let [original, unread, look] = [(); 3].map(|()| body.asm.label());
        body.enter(keeps_flags);
        body.check_window(original);
        body.asm.bind(look);
        let is_load = body.access.bit == LOADS_MOVE;
        let crossing = body.check_lines(if is_load { unread } else { original });
        let moved_at = body.work(keeps_flags);
        body.asm.bind(original);
        body.leave_unchanged(keeps_flags);
        let original_at = body.asm.position();
        body.original(code);
        if let Some((crossing, checked)) = crossing {
            body.check_crossing(crossing, checked, original);
        }
        if is_load {
            body.note_read(unread, look, original);
        }
        body.place_constants();
        let scratch = body.access.scratch.number() as u8;
        let len_bytes = body.asm.finish(out)?.len_bytes;
        Ok(AccessTrampoline {
            len_bytes,
            moved_at,
            original_at,
            scratch,
            string: None,
        })
    }

    fn emit_string(
        &mut self,
        instruction: &Instruction,
        form: StringForm,
        code: &[u8],
        at: u64,
        out: &mut [u8],
    ) -> Result<AccessTrampoline, AccessError> {
        let mut body = Body {
            asm: Assembler::new(&mut self.encoder, at),
            settings: &self.settings,
            instruction,
            access: Access {
                len: form.size.into(),
                bit: 0,
                scratch: Register::RDI,
            },
            constants: [None; 3],
        };
        let trampoline = body.string(form, code);
        body.place_constants();
        let len_bytes = body.asm.finish(out)?.len_bytes;
        Ok(AccessTrampoline {
            len_bytes,
            ..trampoline
        })
    }

    /// As [`crate::Emitter::relocate`].
    pub fn relocate(
        &mut self,
        instruction: &Instruction,
        at: u64,
        out: &mut [u8],
    ) -> Result<usize, EmitError> {
        relocate::emit(&mut self.encoder, instruction, at, out)
    }

    fn access(&mut self, instruction: &Instruction) -> Result<Access, AccessError> {
        let mnemonic = instruction.mnemonic();
        let operands = (0..instruction.op_count())
            .filter(|index| instruction.op_kind(*index) == OpKind::Memory);
        if instruction.is_invalid() || operands.count() != 1 {
            return Err(AccessError::NoOperand(mnemonic));
        }
        if instruction.flow_control() != FlowControl::Next || instruction.is_stack_instruction() {
            return Err(AccessError::Flow(mnemonic));
        }
        if instruction.is_vsib() || is_far_bit(instruction) {
            return Err(AccessError::NotOnePlace(mnemonic));
        }
        if is_special(instruction) {
            return Err(AccessError::Special(mnemonic));
        }
        let len = instruction.memory_size().size();
        let info = self.info.info(instruction);
        let [memory] = info.used_memory() else {
            return Err(if info.used_memory().is_empty() {
                AccessError::NoOperand(mnemonic)
            } else {
                AccessError::NotOnePlace(mnemonic)
            });
        };
        let bit = match memory.access() {
            OpAccess::Read | OpAccess::CondRead => LOADS_MOVE,
            OpAccess::Write
            | OpAccess::CondWrite
            | OpAccess::ReadWrite
            | OpAccess::ReadCondWrite => STORES_MOVE,
            OpAccess::None | OpAccess::NoMemAccess => return Err(AccessError::NoOperand(mnemonic)),
        };
        if len == 0 || len > MAX_LEN {
            return Err(AccessError::Special(mnemonic));
        }
        let uses = |register: Register| {
            info.used_registers()
                .iter()
                .any(|used| used.register().full_register() == register)
        };
        let in_operand = |register: Register| {
            (0..instruction.op_count()).any(|index| {
                instruction.op_kind(index) == OpKind::Register
                    && instruction.op_register(index).full_register() == register
            })
        };
        if in_operand(Register::RSP) || instruction.memory_base() == Register::ESP {
            return Err(AccessError::StackPointer(mnemonic));
        }
        // The most that an instruction uses is five of these: `cmpxchg16b [rsi + rdi]`.
        let scratch = [
            Register::RSI,
            Register::RDI,
            Register::RBX,
            Register::RCX,
            Register::RDX,
            Register::RBP,
        ]
        .into_iter()
        .find(|register| !uses(*register))
        .ok_or(AccessError::Special(mnemonic))?;
        Ok(Access { len, bit, scratch })
    }
}

/// `bt` and the like, if the number of the bit is in a register: it may lie beyond the operand.
fn is_far_bit(instruction: &Instruction) -> bool {
    matches!(
        instruction.mnemonic(),
        Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc
    ) && instruction.op1_kind() == OpKind::Register
}

/// Whether an instruction does to its operand what no load or store does.
fn is_special(instruction: &Instruction) -> bool {
    use Mnemonic as M;
    instruction.code().encoding() == EncodingKind::MVEX
        || instruction.is_privileged()
        || instruction.is_save_restore_instruction()
        || matches!(
            instruction.mnemonic(),
            M::Clflush
                | M::Clflushopt
                | M::Clwb
                | M::Cldemote
                | M::Bndldx
                | M::Bndstx
                | M::Fldenv
                | M::Fnstenv
                | M::Fstenv
                | M::Lds
                | M::Les
                | M::Lfs
                | M::Lgs
                | M::Lss
        )
        || instruction.op0_kind() == OpKind::Register
            && instruction.op0_register().is_segment_register()
}

pub(super) struct Body<'a> {
    pub(super) asm: Assembler<'a>,
    settings: &'a AccessSettings,
    pub(super) instruction: &'a Instruction,
    pub(super) access: Access,
    /// Words that lie behind the code, because no instruction can have them inside.
    constants: [Option<(Label, u64)>; 3],
}

impl Body<'_> {
    /// Saves registers and flags and computes the address.
    fn enter(&mut self, keeps_flags: bool) {
        let scratch = self.access.scratch;
        self.move_stack(-RED_ZONE);
        self.asm.r(Code::Push_r64, scratch);
        self.asm.r(Code::Push_r64, Register::RAX);
        self.compute_address();
        if keeps_flags {
            self.asm.op0(Code::Lahf);
            self.asm.r(Code::Seto_rm8, Register::AL);
            self.asm.r(Code::Push_r64, Register::RAX);
        }
        let segment_base = match self.instruction.memory_segment() {
            Register::FS => Code::Rdfsbase_r64,
            Register::GS => Code::Rdgsbase_r64,
            _ => return,
        };
        if !self.settings.has_fsgsbase {
            self.asm.fail(EmitError::NeedsFsgsbase);
        }
        self.asm.r(segment_base, Register::RAX);
        let sum = MemoryOperand::with_base_index(scratch, Register::RAX);
        self.asm.rm(Code::Lea_r64_m, scratch, sum);
    }

    /// Leaves the flags alone.
    pub(super) fn move_stack(&mut self, by: i64) {
        let moved = MemoryOperand::with_base_displ(Register::RSP, by);
        self.asm.rm(Code::Lea_r64_m, Register::RSP, moved);
    }

    fn compute_address(&mut self) {
        let scratch = self.access.scratch;
        let base = self.instruction.memory_base();
        let index = self.instruction.memory_index();
        let mut displacement = self.instruction.memory_displacement64().cast_signed();
        let mut displacement_size = self.instruction.memory_displ_size();
        if base == Register::None && index == Register::None
            || self.instruction.is_ip_rel_memory_operand()
        {
            self.asm
                .load_constant(scratch, displacement.cast_unsigned());
            return;
        }
        if base == Register::RSP {
            displacement += PUSHED;
            displacement_size = 4;
        }
        let memory = MemoryOperand::new(
            base,
            index,
            self.instruction.memory_index_scale(),
            displacement,
            displacement_size,
            false,
            Register::None,
        );
        self.asm.rm(Code::Lea_r64_m, scratch, memory);
    }

    /// RAX is free from here on, and the flags are.
    pub(super) fn check_window(&mut self, outside: Label) {
        let scratch = self.access.scratch;
        let (base, len) = (self.settings.base, self.settings.len_bytes);
        self.asm.rr(Code::Mov_r64_rm64, Register::RAX, scratch);
        if len.is_power_of_two() && base & (len - 1) == 0 {
            let shift = len.trailing_zeros();
            self.asm
                .ri(Code::Shr_rm64_imm8, Register::RAX, shift.cast_signed());
            // The shift itself says whether anything is left.
            if base != 0 {
                self.compare(base >> shift);
            }
            self.asm.jump_if(Condition::NotEqual, outside);
        } else {
            // In pages, so that the length is a number that fits.
            self.asm.load_constant(Register::RAX, base.wrapping_neg());
            self.asm.rr(Code::Add_r64_rm64, Register::RAX, scratch);
            self.asm.ri(Code::Shr_rm64_imm8, Register::RAX, PAGE_SHIFT);
            self.compare(len >> PAGE_SHIFT);
            self.asm.jump_if(Condition::AboveOrEqual, outside);
        }
    }

    fn compare(&mut self, with: u64) {
        match i32::try_from(with) {
            Ok(with) => self.asm.ri(Code::Cmp_rm64_imm32, Register::RAX, with),
            Err(_) => self.asm.fail(EmitError::OutOfReach),
        }
    }

    /// Goes to `not_movable` if the first line cannot be moved. Gives the label to be bound to the check
    /// of a second line, and the one to go on at after it; none if there never is one.
    fn check_lines(&mut self, not_movable: Label) -> Option<(Label, Label)> {
        let scratch = self.access.scratch;
        self.asm.rr(Code::Mov_r64_rm64, Register::RAX, scratch);
        self.test_line(self.access.bit, not_movable);
        if self.access.len == 1 {
            return None;
        }
        let (crossing, checked) = (self.asm.label(), self.asm.label());
        self.compare_ends(LINE_MASK);
        self.asm.jump_if(Condition::NotEqual, crossing);
        self.asm.bind(checked);
        Some((crossing, checked))
    }

    /// RAX = the address of the last byte.
    fn last_byte(&mut self) {
        let last = at(self.access.scratch, self.access.len as u32 - 1);
        self.asm.rm(Code::Lea_r64_m, Register::RAX, last);
    }

    /// Whether the first and the last byte have these bits of their address in common.
    fn compare_ends(&mut self, mask: i32) {
        self.last_byte();
        self.asm
            .rr(Code::Xor_r64_rm64, Register::RAX, self.access.scratch);
        self.asm.ri(Code::Test_rm64_imm32, Register::RAX, mask);
    }

    /// A register becomes part of what addresses the byte of the line of the address in it.
    pub(super) fn line_byte(&mut self, address: Register) -> MemoryOperand {
        let first_line = self.settings.base >> LINE_SHIFT;
        let bias = self.settings.line_table.wrapping_sub(first_line);
        self.asm.ri(Code::Shr_rm64_imm8, address, LINE_SHIFT);
        if let Ok(bias) = i32::try_from(bias.cast_signed()) {
            memory(address, bias)
        } else {
            self.add_constant(address, bias);
            memory(address, 0)
        }
    }

    /// Goes to a label if the line of the address in RAX has not this bit.
    fn test_line(&mut self, bit: u8, without: Label) {
        let byte = self.line_byte(Register::RAX);
        self.asm.mi(Code::Test_rm8_imm8, byte, bit.into());
        self.asm.jump_if(Condition::Equal, without);
    }

    /// The first line cannot be moved. If that is because it was not read yet, it is read now.
    fn note_read(&mut self, unread: Label, look: Label, original: Label) {
        let scratch = self.access.scratch;
        self.asm.bind(unread);
        self.asm.rr(Code::Mov_r64_rm64, Register::RAX, scratch);
        self.test_line(LOADS_MOVE << UNREAD_SHIFT, original);
        self.asm.rr(Code::Mov_r64_rm64, Register::RAX, scratch);
        let mark = self.word_of_page(self.settings.mark_table, Register::RAX);
        self.asm.rm(Code::Mov_r64_rm64, Register::RAX, mark);
        self.asm.r(Code::Push_r64, scratch);
        self.asm.ri(Code::Shr_rm64_imm8, scratch, LINE_SHIFT);
        self.asm.ri(Code::And_rm64_imm8, scratch, LINES_OF_PAGE - 1);
        self.asm.raw(&[LOCK]);
        let word = memory(Register::RAX, 0);
        self.asm.mr(Code::Bts_rm64_r64, word, scratch);
        self.asm.r(Code::Pop_r64, scratch);
        self.asm.rr(Code::Mov_r64_rm64, Register::RAX, scratch);
        let byte = self.line_byte(Register::RAX);
        self.asm.mi(Code::Shr_rm8_imm8, byte, UNREAD_SHIFT.into());
        self.asm.jump(look);
    }

    /// The word that says how far away the copy of a page is.
    pub(super) fn page_word(&mut self, address: Register) -> MemoryOperand {
        self.word_of_page(self.settings.page_table, address)
    }

    /// The word of the page of the address in a register, which is used up.
    fn word_of_page(&mut self, table: u64, address: Register) -> MemoryOperand {
        let first_page = self.settings.base >> PAGE_SHIFT;
        let bias = table.wrapping_sub(8 * first_page);
        self.asm.ri(Code::Shr_rm64_imm8, address, PAGE_SHIFT);
        if let Ok(bias) = i32::try_from(bias.cast_signed()) {
            return MemoryOperand::new(
                Register::None,
                address,
                8,
                bias.into(),
                4,
                false,
                Register::None,
            );
        }
        self.asm.ri(Code::Shl_rm64_imm8, address, 3);
        self.add_constant(address, bias);
        memory(address, 0)
    }

    /// Adds a word that lies behind the code.
    fn add_constant(&mut self, register: Register, value: u64) {
        let known = self
            .constants
            .iter()
            .flatten()
            .find(|(_, other)| *other == value)
            .map(|(label, _)| *label);
        let label = known.unwrap_or_else(|| {
            let label = self.asm.label();
            if let Some(free) = self.constants.iter_mut().find(|place| place.is_none()) {
                *free = Some((label, value));
            }
            label
        });
        // `add register, [rip + label]`.
        let number = register.number() as u8;
        self.asm
            .raw(&[0x48 | number >> 3 << 2, 0x03, 0x05 | (number & 7) << 3]);
        self.asm.displacement_to(label);
    }

    fn place_constants(&mut self) {
        for (label, value) in self.constants.into_iter().flatten() {
            self.asm.bind(label);
            self.asm.raw(&value.to_le_bytes());
        }
    }

    /// The instruction on the copy, and the jump back. Gives the offset of the instruction.
    fn work(&mut self, keeps_flags: bool) -> usize {
        let scratch = self.access.scratch;
        self.asm.rr(Code::Mov_r64_rm64, Register::RAX, scratch);
        let distance = self.page_word(Register::RAX);
        self.asm.rm(Code::Add_r64_rm64, scratch, distance);
        self.restore_rax(keeps_flags);
        let moved_at = self.asm.position();
        self.asm.op(redirected(self.instruction, scratch));
        self.asm.r(Code::Pop_r64, scratch);
        self.move_stack(RED_ZONE);
        self.asm.jump_to(self.instruction.next_ip());
        moved_at
    }

    fn restore_rax(&mut self, keeps_flags: bool) {
        if keeps_flags {
            self.asm.r(Code::Pop_r64, Register::RAX);
            // AL is 0 or 1: the sum overflows if it is 1.
            self.asm.ri(Code::Add_rm8_imm8, Register::AL, 0x7f);
            self.asm.op0(Code::Sahf);
        }
        self.asm.r(Code::Pop_r64, Register::RAX);
    }

    fn leave_unchanged(&mut self, keeps_flags: bool) {
        self.restore_rax(keeps_flags);
        self.asm.r(Code::Pop_r64, self.access.scratch);
        self.move_stack(RED_ZONE);
    }

    /// The instruction as it was, and the jump back.
    fn original(&mut self, code: &[u8]) {
        if self.instruction.is_ip_rel_memory_operand() {
            relocate::body(&mut self.asm, self.instruction);
        } else {
            self.asm.raw(code);
        }
        self.asm.jump_to(self.instruction.next_ip());
    }

    /// The access touches two lines: the second must be movable too, and if it lies in another page,
    /// that page's copy must follow the first one's.
    fn check_crossing(&mut self, crossing: Label, checked: Label, original: Label) {
        let scratch = self.access.scratch;
        self.asm.bind(crossing);
        self.last_byte();
        self.test_line(self.access.bit, original);
        self.compare_ends(PAGE_MASK);
        self.asm.jump_if(Condition::Equal, checked);
        self.last_byte();
        let second = self.page_word(Register::RAX);
        self.asm.rm(Code::Mov_r64_rm64, Register::RAX, second);
        self.asm.r(Code::Push_r64, scratch);
        let first = self.page_word(scratch);
        self.asm.rm(Code::Cmp_r64_rm64, Register::RAX, first);
        self.asm.r(Code::Pop_r64, scratch);
        self.asm.jump_if(Condition::NotEqual, original);
        self.asm.jump(checked);
    }
}

/// `[register + displacement]`.
pub(super) fn memory(register: Register, displacement: i32) -> MemoryOperand {
    MemoryOperand::new(
        register,
        Register::None,
        1,
        displacement.into(),
        u32::from(displacement != 0),
        false,
        Register::None,
    )
}

/// The instruction with another memory operand.
pub(crate) fn redirected(instruction: &Instruction, base: Register) -> Instruction {
    let mut moved = *instruction;
    moved.set_code(addressable_variant(moved.code()));
    moved.set_segment_prefix(Register::None);
    moved.set_memory_base(base);
    moved.set_memory_index(Register::None);
    moved.set_memory_index_scale(1);
    moved.set_memory_displacement64(0);
    moved.set_memory_displ_size(0);
    moved
}
