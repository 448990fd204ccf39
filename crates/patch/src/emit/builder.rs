//! What all trampolines have in common: the frame around the work.
//!
//! ```text
//!     save A;  A = address;  save RAX, flags;  A in the window? else go to OUT
//!     save P, RDX
//! again:
//!     P = reserve(length);  does not fit? refill, then again
//!     header, address, value, stamp
//!     the work, through the alias    (where pools are shared, stamp and work under a lock: `lock.rs`)
//!     restore; jump back
//! OUT:
//!     restore; the instruction as it was; jump back
//! ```
//!
//! A and P are two of RSI, RDI, RBX and RCX that the instruction does not use as operands: they can
//! be encoded without a REX prefix, which `mov [mem], ah` needs. RAX and RDX are free for the stamp.

use iced_x86::{Code, Instruction, MemoryOperand, OpKind, Register};
use powerfail_protocol::{
    ADDRESS_AT, EventKind, FLAG_ADDRESS, FLAG_FOUND, Header, STAMP_AT, ScratchSlot, SiteId,
    VALUE_AT, chunk, offset, turn,
};

use super::lock::{Failure, LOCK, Locking};
use super::settings::{EmitterSettings, LockedFences, Turns};
use super::stack::Search;
use super::state::{LockedWork, RepeatedWork, Trampoline, WorkForm};
use super::{EmitError, relocate};
use crate::assembler::{Assembler, Condition, Label, at, gs, number};
use crate::classify::{Site, Store, StoreForm};
use crate::variant::{addressable_variant, cached_variant, plain_variant};

const MAX_RESERVATIONS: usize = 3;

/// Widths of general-purpose operands, by the logarithm of their length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Width {
    pub(super) load: Code,
    pub(super) store: Code,
    pub(super) rax: Register,
    pub(super) rdx: Register,
}

/// The moves of a width of 1, 2, 4 or 8 bytes.
pub(super) fn width(len_bytes: u16) -> Width {
    match len_bytes {
        1 => Width {
            load: Code::Mov_r8_rm8,
            store: Code::Mov_rm8_r8,
            rax: Register::AL,
            rdx: Register::DL,
        },
        2 => Width {
            load: Code::Mov_r16_rm16,
            store: Code::Mov_rm16_r16,
            rax: Register::AX,
            rdx: Register::DX,
        },
        4 => Width {
            load: Code::Mov_r32_rm32,
            store: Code::Mov_rm32_r32,
            rax: Register::EAX,
            rdx: Register::EDX,
        },
        _ => Width {
            load: Code::Mov_r64_rm64,
            store: Code::Mov_rm64_r64,
            rax: Register::RAX,
            rdx: Register::RDX,
        },
    }
}

pub(super) struct Builder<'a> {
    pub(super) asm: Assembler<'a>,
    pub(super) settings: &'a EmitterSettings,
    pub(super) site: &'a Site,
    pub(super) id: SiteId,
    /// Whether the flags must come out as the instruction leaves them.
    pub(super) keeps_flags: bool,
    /// Holds the address, later the alias.
    pub(super) address: Register,
    /// Holds where the record begins.
    pub(super) record: Register,
    /// General-purpose registers, by number, that the instruction has as operands.
    operands: u16,
    refills: [Option<(Label, Label, u32)>; MAX_RESERVATIONS],
    searches: [Option<Search>; MAX_RESERVATIONS],
    work_at: Option<usize>,
    committed_at: Option<usize>,
    repeated_work: Option<RepeatedWork>,
    /// Whether the code is for pools that other threads store to.
    pub(super) is_shared: bool,
    pub(super) locking: Option<Locking>,
    pub(super) failure: Option<Failure>,
    locked_work_at: usize,
    locked_work: Option<LockedWork>,
    error: Option<EmitError>,
}

/// The general-purpose registers that an instruction reads or writes, not counting those that only
/// make up its address.
fn operand_registers(site: &Site) -> u16 {
    let instruction = &site.instruction;
    let mut operands = 0;
    for index in 0..instruction.op_count() {
        let register = instruction.op_register(index);
        if instruction.op_kind(index) == OpKind::Register && register.is_gpr() {
            // AH to BH have numbers of their own among the 8-bit registers; `number` knows.
            operands |= 1 << number(register);
        }
    }
    if instruction.mnemonic() == iced_x86::Mnemonic::Cmpxchg {
        operands |= 1;
    }
    if let crate::Action::Store(store) = site.action
        && store.form == StoreForm::CompareExchangePair
    {
        operands |= 0b1111;
    }
    operands
}

impl<'a> Builder<'a> {
    pub(super) fn new(
        asm: Assembler<'a>,
        settings: &'a EmitterSettings,
        site: &'a Site,
        id: SiteId,
        keeps_flags: bool,
    ) -> Self {
        let operands = operand_registers(site);
        let candidates = [Register::RSI, Register::RDI, Register::RBX, Register::RCX];
        let mut free = candidates
            .into_iter()
            .filter(|register| operands & 1 << number(*register) == 0);
        let address = free.next().unwrap_or(Register::RSI);
        let record = free.next().unwrap_or(Register::RDI);
        Self {
            asm,
            settings,
            site,
            id,
            keeps_flags,
            address,
            record,
            operands,
            refills: [None; MAX_RESERVATIONS],
            searches: [None; MAX_RESERVATIONS],
            work_at: None,
            committed_at: None,
            repeated_work: None,
            is_shared: false,
            locking: None,
            failure: None,
            locked_work_at: 0,
            locked_work: None,
            error: None,
        }
    }

    pub(super) fn finish(mut self, out: &mut [u8]) -> Result<Trampoline, EmitError> {
        for index in 0..MAX_RESERVATIONS {
            if let Some((full, again, state)) = self.refills[index] {
                self.asm.bind_in(full, state);
                self.asm.address_of(Register::RAX, again);
                self.asm.save(ScratchSlot::Resume, Register::RAX);
                self.asm.m(Code::Jmp_rm64, gs(offset::REFILL_ENTRY));
            }
        }
        for search in self.searches.into_iter().flatten() {
            self.finish_search(search);
        }
        if let Some(locking) = self.locking {
            self.finish_lock(locking);
        }
        if let Some(failure) = self.failure {
            self.finish_failure(failure);
        }
        let (error, work_at, locked_work) = (self.error, self.work_at, self.locked_work);
        let (committed_at, repeated_work) = (self.committed_at, self.repeated_work);
        let assembled = self.asm.finish(out)?;
        error.map_or(
            Ok(Trampoline {
                len_bytes: assembled.len_bytes,
                states: assembled.states,
                ways_out: assembled.ways_out,
                work_at,
                committed_at,
                repeated_work,
                locked_work,
            }),
            Err,
        )
    }

    pub(super) fn uses(&self, register: Register) -> bool {
        self.operands & 1 << number(register) != 0
    }

    /// Computes the address and goes to the returned label if it is outside the window. Spills the
    /// address register, RAX and the flags.
    pub(super) fn enter(&mut self) -> Label {
        self.enter_anywhere();
        self.check_window(self.address)
    }

    /// As `enter`, without asking for the window.
    pub(super) fn enter_anywhere(&mut self) {
        let address = self.address;
        self.asm.spill(address);
        self.compute_address();
        self.asm.spill(Register::RAX);
        if self.keeps_flags {
            self.asm.spill_flags();
        }
        if self.site.instruction.memory_segment() == Register::FS {
            if !self.settings.has_fsgsbase {
                self.error.get_or_insert(EmitError::NeedsFsgsbase);
            }
            self.asm.r(Code::Rdfsbase_r64, Register::RAX);
            let sum = MemoryOperand::with_base_index(address, Register::RAX);
            self.asm.rm(Code::Lea_r64_m, address, sum);
        }
        if let Some(bit) = self.far_bit() {
            self.add_far_bit(bit);
        }
    }

    /// The register with the number of a bit that may lie beyond the memory operand.
    pub(super) fn far_bit(&self) -> Option<Register> {
        match self.site.action {
            crate::Action::Store(store) if store.form == StoreForm::FarBit => {
                Some(self.site.instruction.op1_register())
            }
            _ => None,
        }
    }

    /// Moves the address to the operand that holds a bit. Uses RAX, after it and the flags are
    /// spilled.
    fn add_far_bit(&mut self, bit: Register) {
        if bit.full_register() == Register::RAX {
            self.asm.reload(Register::RAX);
        }
        let (extend, shift, scale) = match bit.size() {
            2 => (Code::Movsx_r64_rm16, 4, 2),
            4 => (Code::Movsxd_r64_rm32, 5, 4),
            _ => (Code::Mov_r64_rm64, 6, 8),
        };
        self.asm.rr(extend, Register::RAX, bit);
        self.asm.ri(Code::Sar_rm64_imm8, Register::RAX, shift);
        let address = self.address;
        let operand = MemoryOperand::with_base_index_scale(address, Register::RAX, scale);
        self.asm.rm(Code::Lea_r64_m, address, operand);
    }

    fn compute_address(&mut self) {
        let instruction = &self.site.instruction;
        let base = instruction.memory_base();
        let index = instruction.memory_index();
        let displacement = instruction.memory_displacement64();
        if base == Register::None && index == Register::None
            || instruction.is_ip_rel_memory_operand()
        {
            self.asm.load_constant(self.address, displacement);
            return;
        }
        let memory = MemoryOperand::new(
            base,
            index,
            instruction.memory_index_scale(),
            displacement.cast_signed(),
            instruction.memory_displ_size(),
            false,
            Register::None,
        );
        self.asm.rm(Code::Lea_r64_m, self.address, memory);
    }

    /// Goes to the returned label if the address in a register is outside the window. Uses RAX.
    pub(super) fn check_window(&mut self, address: Register) -> Label {
        let outside = self.asm.label();
        let window = self.settings.window;
        match window.shift() {
            Some((shift, common)) if i32::try_from(common).is_ok() => {
                self.asm.rr(Code::Mov_r64_rm64, Register::RAX, address);
                self.asm
                    .ri(Code::Shr_rm64_imm8, Register::RAX, shift.cast_signed());
                self.asm
                    .ri(Code::Cmp_rm64_imm32, Register::RAX, common as i32);
                self.asm.jump_if(Condition::NotEqual, outside);
            }
            _ => {
                // RAX is the only register to spare: compare with a constant in memory, which lies
                // behind an instruction that jumps over it.
                self.asm
                    .load_constant(Register::RAX, window.base.wrapping_neg());
                self.asm.rr(Code::Add_r64_rm64, Register::RAX, address);
                let limit = self.asm.label();
                let code = self.asm.label();
                // `cmp rax, [rip + limit]`.
                self.asm.raw(&[0x48, 0x3b, 0x05]);
                self.asm.displacement_to(limit);
                self.asm.jump_if(Condition::AboveOrEqual, outside);
                self.asm.jump(code);
                self.asm.bind(limit);
                self.asm.raw(&window.len_bytes.to_le_bytes());
                self.asm.bind(code);
            }
        }
        outside
    }

    /// Spills what the inside of a trampoline needs.
    pub(super) fn go_inside(&mut self) {
        self.asm.spill(self.record);
        self.asm.spill(Register::RDX);
    }

    /// Reserves space for a record of fixed length. Uses RAX.
    pub(super) fn reserve(&mut self, len_bytes: u32) {
        let again = self.asm.label();
        let full = self.asm.label();
        self.asm.bind(again);
        let record = self.record;
        self.asm
            .ri(Code::Mov_rm64_imm32, record, len_bytes.cast_signed());
        self.asm.mr(Code::Xadd_rm64_r64, gs(offset::CURSOR), record);
        self.asm
            .rm(Code::Lea_r64_m, Register::RAX, at(record, len_bytes - 1));
        self.refill_if_full(full, again);
    }

    /// Goes to refill if the address in RAX is behind the chunk, and then to `again`.
    pub(super) fn refill_if_full(&mut self, full: Label, again: Label) {
        self.asm.ri(
            Code::Test_rm32_imm32,
            Register::EAX,
            (chunk::LEN as u32).cast_signed(),
        );
        self.asm.jump_if(Condition::NotEqual, full);
        let state = self.asm.state();
        if let Some(refill) = self.refills.iter_mut().find(|refill| refill.is_none()) {
            *refill = Some((full, again, state));
        } else {
            self.error.get_or_insert(EmitError::TooLong);
        }
    }

    /// A search for a call stack, to be finished behind everything else.
    pub(super) fn searches_stack(&mut self, search: Search) {
        if let Some(place) = self.searches.iter_mut().find(|search| search.is_none()) {
            *place = Some(search);
        } else {
            self.error.get_or_insert(EmitError::TooLong);
        }
    }

    pub(super) fn header(&self, kind: EventKind, flags: u8, value_len: u16) -> Header {
        Header {
            kind,
            flags,
            value_len,
            site: self.id,
        }
    }

    /// Lets the runtime hold the thread up until it is its turn. Nothing of a record is there yet, so
    /// that a thread that runs meanwhile is recorded before. Uses RAX.
    pub(super) fn ask_for_turn(&mut self) {
        self.ask_for_turn_for(turn::RECORD);
    }

    /// As `ask_for_turn`, for what is named in [`turn`].
    pub(super) fn ask_for_turn_for(&mut self, what: u64) {
        if self.settings.turns == Turns::NotAskedFor {
            return;
        }
        let go_on = self.asm.label();
        self.asm.load_constant(Register::RAX, what);
        self.asm.save(ScratchSlot::Turn, Register::RAX);
        self.asm.address_of(Register::RAX, go_on);
        self.asm.save(ScratchSlot::Resume, Register::RAX);
        self.asm.m(Code::Jmp_rm64, gs(offset::REFILL_ENTRY));
        self.asm.bind(go_on);
    }

    /// The header of a store. Where pools are shared, its record has room for what the store finds.
    pub(super) fn store_header(&self, store: Store, flags: u8) -> Header {
        /// Longer ones are rare, and the code would be long.
        const FOUND_LEN_MAX: u16 = 64;
        let finds = self.is_shared
            && store.len_bytes <= FOUND_LEN_MAX
            && !matches!(store.form, StoreForm::Masked | StoreForm::Pop);
        let flags = if finds { flags | FLAG_FOUND } else { flags };
        self.header(store.kind, flags, store.len_bytes)
    }

    /// Reserves a record with an address, and writes header and address.
    pub(super) fn begin_record(&mut self, header: Header) {
        self.find_stack();
        self.describe_record(header);
    }

    /// As `begin_record`, if the call stack is known.
    pub(super) fn describe_record(&mut self, header: Header) {
        self.reserve(header.record_len());
        self.describe(header);
        if header.flags & FLAG_ADDRESS != 0 {
            self.asm.mr(
                Code::Mov_rm64_r64,
                at(self.record, ADDRESS_AT),
                self.address,
            );
        }
    }

    /// Writes the header. Uses RAX.
    pub(super) fn describe(&mut self, header: Header) {
        self.describe_kind(header);
        self.describe_site();
    }

    /// Writes the half of the header that is not the site.
    pub(super) fn describe_kind(&mut self, header: Header) {
        self.asm.mi(
            Code::Mov_rm32_imm32,
            at(self.record, 0),
            header.low().cast_signed(),
        );
    }

    /// Writes the site, or the call stack that was found. Uses RAX.
    pub(super) fn describe_site(&mut self) {
        const SITE_AT: u32 = 4;
        if self.settings.names_stacks {
            self.asm.load(Register::RAX, ScratchSlot::Stack);
            self.asm
                .mr(Code::Mov_rm32_r32, at(self.record, SITE_AT), Register::EAX);
        } else {
            let site = self.id.0.cast_signed();
            self.asm
                .mi(Code::Mov_rm32_imm32, at(self.record, SITE_AT), site);
        }
    }

    /// RAX = stamp. Uses RDX and the flags. A thread that is alone does not look at the clock. Where pools are shared, there
    /// is a locked instruction between the reservation and this.
    pub(super) fn stamp(&mut self) {
        self.asm
            .rm(Code::Mov_r64_rm64, Register::RAX, gs(offset::STAMP));
        if self.is_shared {
            self.look_at_clock();
        }
    }

    /// As `stamp`, in code that threads run whether they are alone or not, and that takes no lock.
    pub(super) fn stamp_alone_or_shared(&mut self) {
        let stamped = self.asm.label();
        self.asm
            .rm(Code::Mov_r64_rm64, Register::RAX, gs(offset::STAMP));
        self.asm.mi(Code::Cmp_rm32_imm8, gs(offset::IS_SHARED), 0);
        self.asm.jump_if(Condition::Equal, stamped);
        self.show_reservation();
        self.look_at_clock();
        self.asm.bind(stamped);
    }

    /// Lets the host see the reservation before this thread looks at the clock. Any locked instruction does that.
    pub(super) fn show_reservation(&mut self) {
        self.asm.raw(&[LOCK]);
        self.asm.mi(Code::Or_rm32_imm8, gs(offset::PENDING), 0);
    }

    /// RAX is the stamp that this thread has taken last. If the clock has another one, RAX = a new one. Uses RDX.
    fn look_at_clock(&mut self) {
        let stamped = self.asm.label();
        self.asm
            .rm(Code::Mov_r64_rm64, Register::RDX, gs(offset::CLOCK));
        self.asm
            .mr(Code::Cmp_rm64_r64, at(Register::RDX, 0), Register::RAX);
        self.asm.jump_if(Condition::Equal, stamped);
        self.take_stamp();
        self.asm.bind(stamped);
    }

    /// RAX = a new stamp. RDX is where the clock is.
    fn take_stamp(&mut self) {
        self.asm.ri(Code::Mov_r32_imm32, Register::EAX, 1);
        self.asm.raw(&[LOCK]);
        self.asm
            .mr(Code::Xadd_rm64_r64, at(Register::RDX, 0), Register::RAX);
        self.asm.ri(Code::Add_rm64_imm8, Register::RAX, 1);
        self.asm
            .mr(Code::Mov_rm64_r64, gs(offset::STAMP), Register::RAX);
    }

    /// RAX = a new stamp. Uses RDX and the flags.
    pub(super) fn new_stamp(&mut self) {
        self.asm
            .rm(Code::Mov_r64_rm64, Register::RDX, gs(offset::CLOCK));
        self.take_stamp();
    }

    /// Takes the stamp and commits the record.
    pub(super) fn commit(&mut self) {
        self.stamp();
        self.write_stamp();
    }

    /// Writes the stamp in RAX: the record is complete.
    pub(super) fn write_stamp(&mut self) {
        self.asm
            .mr(Code::Mov_rm64_r64, at(self.record, STAMP_AT), Register::RAX);
    }

    /// From here on until the work is done, the record or a register has something that a handler makes out of date: the
    /// stamp, or what the memory held. A handler that comes in between lets the instruction begin again. Not to be called
    /// if it cannot.
    pub(super) fn commits_from_here(&mut self) {
        if !self.is_shared {
            self.committed_at = Some(self.asm.position());
        }
    }

    /// From here on the address register holds the alias. Uses RAX.
    pub(super) fn switch_to_alias(&mut self) {
        let delta = self.settings.window.alias_delta;
        if let Ok(delta) = i32::try_from(delta.cast_signed()) {
            let sum = MemoryOperand::with_base_displ_size(self.address, i64::from(delta), 1);
            self.asm.rm(Code::Lea_r64_m, self.address, sum);
        } else {
            self.asm.load_constant(Register::RAX, delta);
            let sum = MemoryOperand::with_base_index(self.address, Register::RAX);
            self.asm.rm(Code::Lea_r64_m, self.address, sum);
        }
    }

    /// Gives the instruction's operands among RAX and RDX, and its flags if it reads any, their
    /// values of before.
    pub(super) fn reload_operands(&mut self) {
        if self.site.instruction.rflags_read() != 0 {
            self.asm.load_flags(ScratchSlot::Flags);
        }
        for register in [Register::RAX, Register::RDX] {
            if self.uses(register) {
                self.asm.reload(register);
            }
        }
    }

    /// The instruction, with another memory operand and no prefix that needs a real one.
    pub(super) fn redirected(&self, base: Register, displacement: u32) -> Instruction {
        let mut instruction = self.site.instruction;
        instruction.set_code(addressable_variant(instruction.code()));
        instruction.set_segment_prefix(Register::None);
        instruction.set_memory_base(base);
        instruction.set_memory_index(Register::None);
        instruction.set_memory_index_scale(1);
        instruction.set_memory_displacement64(u64::from(displacement));
        instruction.set_memory_displ_size(u32::from(displacement != 0));
        instruction.set_has_lock_prefix(false);
        instruction.set_has_xacquire_prefix(false);
        instruction.set_has_xrelease_prefix(false);
        instruction
    }

    /// The instruction, on the record at an offset from the first byte of its value.
    pub(super) fn on_record(&mut self, displacement: u32) {
        let mut instruction = self.redirected(self.record, VALUE_AT + displacement);
        instruction.set_code(plain_variant(instruction.code()));
        self.asm.op(instruction);
    }

    /// The next instruction does the work.
    pub(super) fn works_here(&mut self) {
        let here = self.asm.position();
        if self.is_shared {
            self.locked_work_at = here;
        } else {
            self.work_at = Some(here);
        }
    }

    /// The work of an instruction that can be interrupted in the middle is done.
    pub(super) fn repeated_work_ends(&mut self) {
        if !self.is_shared {
            self.repeated_work = Some(RepeatedWork {
                record: number(self.record),
                done_at: self.asm.position(),
            });
        }
    }

    /// The work is done, and the locks are given back.
    pub(super) fn locked_work_ends(&mut self, form: WorkForm) {
        self.locked_work = Some(LockedWork {
            record: number(self.record),
            work_at: self.locked_work_at,
            released_at: self.asm.position(),
            form,
        });
    }

    /// The instruction, on the alias.
    pub(super) fn on_alias(&mut self) {
        self.works_here();
        let mut instruction = self.redirected(self.address, 0);
        if self.is_shared {
            instruction.set_code(cached_variant(instruction.code()));
        }
        self.asm.op(instruction);
    }

    /// Notes whether the thread has work that its next fence completes.
    pub(super) fn set_pending(&mut self, pending: bool) {
        if self.settings.locked_fences == LockedFences::WhenPending {
            self.asm.mi(
                Code::Mov_rm32_imm32,
                gs(offset::PENDING),
                i32::from(pending),
            );
        }
    }

    /// Restores what `enter` and `go_inside` spilled, in the state of before the instruction.
    pub(super) fn restore_all(&mut self) {
        self.asm.restore(Register::RDX);
        self.asm.restore(self.record);
        self.restore_entered();
    }

    /// Restores what `enter` spilled.
    pub(super) fn restore_entered(&mut self) {
        self.asm.restore(self.address);
        self.restore_flags_and_rax(ScratchSlot::Flags, ScratchSlot::Register(0));
    }

    /// Restores flags and RAX from these slots.
    pub(super) fn restore_flags_and_rax(&mut self, flags: ScratchSlot, rax: ScratchSlot) {
        if self.keeps_flags {
            self.asm.load_flags(flags);
            self.asm.restored_flags();
        }
        self.asm.load(Register::RAX, rax);
        self.asm.restored(Register::RAX);
    }

    /// Appends the instruction as it was and the jump back.
    pub(super) fn original_and_back(&mut self) {
        let instruction = &self.site.instruction;
        if instruction.is_ip_rel_memory_operand() {
            relocate::body(&mut self.asm, instruction);
        } else {
            self.asm.raw(self.site.code());
        }
        self.back();
    }

    pub(super) fn back(&mut self) {
        self.asm.jump_to(self.site.resume_address());
    }

    /// The end of a trampoline for addresses outside the window, entered in `state`.
    pub(super) fn outside(&mut self, label: Label, state: u32) {
        self.asm.bind_in(label, state);
        self.restore_entered();
        self.original_and_back();
    }
}
