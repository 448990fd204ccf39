//! What one instruction does to memory.
//!
//! The decoder's own knowledge of which instructions write memory is the net: whatever it says
//! writes and is not in the tables here is [`Means::Refused`] by name, so that nothing is missed in
//! silence. (`clzero` is a hole in that net and has a line of its own.)
//!
//! Deliberately absent: any opinion on whether an address lies in a pool.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    OpAccess, OpKind, Register,
};
use powerfail_protocol::{EventKind, request};

use crate::quick::{self, Quick, QuickKind};

/// The longest instruction of the architecture.
pub const MAX_INSTRUCTION_LEN: usize = 15;

/// How many bytes it takes to know what an instruction is part of.
pub const MAX_SITE_LEN: usize = request::SEQUENCE.len();

/// An instruction of the target and what it does to memory.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    /// The instruction, decoded at its address.
    pub instruction: Instruction,
    /// Its bytes as the target had them.
    pub bytes: [u8; MAX_INSTRUCTION_LEN],
    /// What it does.
    pub action: Action,
    /// How that can be recorded.
    pub means: Means,
}

impl Site {
    /// Its address.
    pub fn address(&self) -> u64 {
        self.instruction.ip()
    }

    /// Its length.
    pub fn len_bytes(&self) -> usize {
        self.instruction.len()
    }

    /// Its bytes, without what follows.
    pub fn code(&self) -> &[u8] {
        &self.bytes[..self.len_bytes()]
    }

    /// The fence that it is if it is a locked operation on volatile memory. One that leaves its memory as it is does the
    /// work of an mfence and nothing else.
    pub fn locked_fence(&self) -> EventKind {
        if keeps_memory(&self.instruction) {
            EventKind::Mfence
        } else {
            EventKind::FenceLocked
        }
    }

    /// Where the target continues behind it.
    pub fn resume_address(&self) -> u64 {
        match self.action {
            Action::Request => self.address() + request::SEQUENCE.len() as u64,
            _ => self.instruction.next_ip(),
        }
    }

    /// Whether it must be patched before it first runs, because it does not fault: flushes, fences,
    /// locked operations, client requests and loads.
    pub fn is_silent(&self) -> bool {
        match self.action {
            Action::Flush(_) | Action::Fence(_) | Action::Request | Action::Load => true,
            Action::Store(store) => store.kind == EventKind::StoreLocked,
            Action::Quiet => false,
        }
    }
}

/// Whether a locked operation leaves its memory as it is, whatever that holds. Compilers and programs use it as a fence
/// that is faster than mfence: `lock orq $0, (%rsp)`.
fn keeps_memory(instruction: &Instruction) -> bool {
    let neutral = match instruction.mnemonic() {
        Mnemonic::Add | Mnemonic::Sub | Mnemonic::Or | Mnemonic::Xor => 0,
        Mnemonic::And => u64::MAX,
        _ => return false,
    };
    let len_bytes = instruction.memory_size().size();
    let bits = u64::MAX >> (64 - 8 * len_bytes.clamp(1, 8));
    instruction.has_lock_prefix()
        && instruction.op0_kind() == OpKind::Memory
        && instruction.op1_kind() != OpKind::Register
        && instruction.immediate(1) & bits == neutral & bits
}

/// What an instruction does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It writes no memory, flushes nothing and orders nothing.
    Quiet,
    /// As `Quiet`, and it reads memory that may lie in a pool. Only [`Classifier::scan_loads`] says so.
    Load,
    /// It writes memory.
    Store(Store),
    /// It flushes the line of its memory operand: `Clflush`, `Clflushopt` or `Clwb`.
    Flush(EventKind),
    /// It is a fence that writes nothing: `Sfence` or `Mfence`.
    Fence(EventKind),
    /// It is the first of those that make a client request of Valgrind ([`request`]). The others are
    /// not looked at: only a thread that is among them already executes them.
    Request,
}

/// A write to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store {
    /// The shape of the operation, which decides how it is recorded.
    pub form: StoreForm,
    /// `StorePlain`, `StoreNonTemporal` or `StoreLocked`.
    pub kind: EventKind,
    /// Length of what is written (at most, if masked; of one element, if a string operation; zero
    /// if it depends on the state of the processor).
    pub len_bytes: u16,
}

/// The shapes of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreForm {
    /// The value comes from registers, immediates or flags and nothing else changes: the same
    /// instruction with another memory operand has the same effect there.
    Copy,
    /// As `Copy`, but a mask says which bytes are written.
    Masked,
    /// As `Copy`, but the x87 stack is popped too.
    Pop,
    /// Reads, computes, writes: flags and a register may change.
    Modify,
    /// `cmpxchg8b` and `cmpxchg16b`.
    CompareExchangePair,
    /// `movs` and `stos`, with or without `rep`.
    String {
        /// `movs`: the source is memory too.
        copies: bool,
        /// Has a `rep` prefix.
        repeats: bool,
    },
    /// Pops to memory, or pushes to a stack, which would have to lie in a pool.
    Stack,
    /// Writes several places.
    Scatter,
    /// Saves processor state.
    State,
    /// As `Modify`, of a bit whose number is in a register and may lie beyond the memory operand.
    FarBit,
    /// Anything else.
    Other,
}

/// How an instruction can be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// There is nothing to record.
    Nothing,
    /// Emitted code does it.
    Trampoline,
    /// It is run at the fault, on a buffer ([`crate::Redirected`]).
    Trap,
    /// Nothing does it; the target cannot be recorded if it does this to a pool.
    Refused(Refusal),
}

/// Why an instruction is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The instruction has no implementation here.
    #[error("the instruction {0:?} cannot be recorded")]
    Instruction(Mnemonic),
    /// The instruction addresses memory through GS, which belongs to the recorder.
    #[error("{0:?} addresses memory through the GS segment, which the recorder needs for itself")]
    GsSegment(Mnemonic),
    /// The instruction pushes to a stack that lies in a pool.
    #[error("{0:?} pushes to a stack in a pool, which cannot be recorded")]
    Stack(Mnemonic),
    /// The bytes are no instruction.
    #[error("the bytes are no valid instruction")]
    Invalid,
}

/// An instruction that a scan has met.
#[derive(Clone, Copy, Debug)]
pub struct Scanned {
    /// Its address.
    pub address: u64,
    /// Where it branches to, if that is written in it.
    pub branch_target: Option<u64>,
    /// Whether it calls the kernel.
    pub is_system_call: bool,
    /// Whether it is an instruction at all.
    pub is_valid: bool,
    /// The instruction in full, if it must be patched before it first runs.
    pub silent: Option<Site>,
}

/// Decodes and classifies. Allocates when made and on first use, not afterwards.
#[derive(Debug)]
pub struct Classifier {
    info: InstructionInfoFactory,
}

impl Default for Classifier {
    fn default() -> Self {
        Self::new()
    }
}

impl Classifier {
    /// Makes a classifier and builds the decoder's tables.
    pub fn new() -> Self {
        let mut classifier = Self {
            info: InstructionInfoFactory::new(),
        };
        let _ = classifier.classify(&[0x48, 0x89, 0x08], 0);
        classifier
    }

    /// Decodes the instruction at the beginning of `code`, which lies at `address`.
    pub fn classify(&mut self, code: &[u8], address: u64) -> Site {
        let instruction = Decoder::with_ip(64, code, address, DecoderOptions::NONE).decode();
        let mut bytes = [0; MAX_INSTRUCTION_LEN];
        let len = instruction.len().min(code.len()).min(MAX_INSTRUCTION_LEN);
        bytes[..len].copy_from_slice(&code[..len]);
        let (action, means) = if code.starts_with(&request::SEQUENCE) {
            (Action::Request, Means::Trampoline)
        } else {
            self.judge(&instruction)
        };
        Site {
            instruction,
            bytes,
            action,
            means,
        }
    }

    /// Goes over the code of a function, which lies at `address`, and shows every instruction. Much
    /// cheaper than classifying each: only those that must be patched before they run are. Bytes that compilers do not
    /// emit may pass for an instruction: [`Self::scan_strictly`] is for what may be no code.
    pub fn scan(&mut self, code: &[u8], address: u64, mut visit: impl FnMut(Scanned)) {
        let mut at = 0;
        while at < code.len() {
            let ip = address + at as u64;
            match quick::decode(&code[at..]) {
                Some(Quick { len_bytes, kind }) if kind != QuickKind::MaySilent => {
                    let next = ip + len_bytes as u64;
                    visit(Scanned {
                        address: ip,
                        branch_target: match kind {
                            QuickKind::Branch(distance) => {
                                Some(next.wrapping_add_signed(distance.into()))
                            }
                            _ => None,
                        },
                        is_system_call: kind == QuickKind::SystemCall,
                        is_valid: true,
                        silent: None,
                    });
                    at += len_bytes;
                }
                _ => at += self.scan_one(&code[at..], ip, &mut visit),
            }
        }
    }

    /// As [`Self::scan`], for bytes that may be no code.
    pub fn scan_strictly(&mut self, code: &[u8], address: u64, mut visit: impl FnMut(Scanned)) {
        let mut at = 0;
        while at < code.len() {
            at += self.scan_one(&code[at..], address + at as u64, &mut visit);
        }
    }

    /// Shows the instruction at the beginning of `code`; its length.
    pub(crate) fn scan_one(
        &mut self,
        code: &[u8],
        address: u64,
        visit: &mut impl FnMut(Scanned),
    ) -> usize {
        let instruction = Decoder::with_ip(64, code, address, DecoderOptions::NONE).decode();
        let target = instruction.near_branch_target();
        let silent = may_be_silent(&instruction)
            .then(|| self.classify(code, address))
            .filter(Site::is_silent);
        visit(Scanned {
            address,
            branch_target: (target != 0).then_some(target),
            is_system_call: instruction.mnemonic() == Mnemonic::Syscall,
            is_valid: !instruction.is_invalid(),
            silent,
        });
        instruction.len().max(1)
    }

    /// Goes over the code of a function, which lies at `address`, and shows the instructions that only read memory that
    /// may lie in a pool: not the stack, and nothing at an address that is written in the code.
    pub fn scan_loads(&mut self, code: &[u8], address: u64, mut visit: impl FnMut(Site)) {
        let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        let mut has_frame_pointer = false;
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            has_frame_pointer |= sets_frame_pointer(&instruction);
            let at = (instruction.ip() - address) as usize;
            visit_load(
                self,
                &code[at..],
                &instruction,
                has_frame_pointer,
                &mut visit,
            );
        }
    }

    /// The instruction at the beginning of `code`, if it is one of those that [`Self::scan_loads`] shows in a function
    /// without a frame pointer.
    pub fn load_at(&mut self, code: &[u8], address: u64) -> Option<Site> {
        let instruction = Decoder::with_ip(64, code, address, DecoderOptions::NONE).decode();
        let mut found = None;
        visit_load(self, code, &instruction, false, &mut |site| {
            found = Some(site);
        });
        found
    }

    /// Whether an instruction reads memory.
    fn reads_memory(&mut self, instruction: &Instruction) -> bool {
        let used = self.info.info(instruction).used_memory();
        let reads = [OpAccess::Read, OpAccess::CondRead];
        used.iter().any(|memory| reads.contains(&memory.access()))
    }

    fn judge(&mut self, instruction: &Instruction) -> (Action, Means) {
        let mnemonic = instruction.mnemonic();
        if instruction.is_invalid() {
            return (Action::Quiet, Means::Refused(Refusal::Invalid));
        }
        let action = match mnemonic {
            Mnemonic::Clflush => Action::Flush(EventKind::Clflush),
            Mnemonic::Clflushopt => Action::Flush(EventKind::Clflushopt),
            Mnemonic::Clwb => Action::Flush(EventKind::Clwb),
            Mnemonic::Sfence => Action::Fence(EventKind::Sfence),
            Mnemonic::Mfence => Action::Fence(EventKind::Mfence),
            Mnemonic::Clzero => {
                let kind = EventKind::StoreNonTemporal;
                Action::Store(Store {
                    form: StoreForm::Other,
                    kind,
                    len_bytes: 64,
                })
            }
            _ => match self.written_len(instruction) {
                None => return (Action::Quiet, Means::Nothing),
                Some(len_bytes) => Action::Store(store(instruction, len_bytes)),
            },
        };
        (action, means(instruction, action))
    }

    /// The largest length that the instruction writes to memory; zero if unknown.
    fn written_len(&mut self, instruction: &Instruction) -> Option<u16> {
        let writes = [
            OpAccess::Write,
            OpAccess::CondWrite,
            OpAccess::ReadWrite,
            OpAccess::ReadCondWrite,
        ];
        let used = self.info.info(instruction).used_memory();
        used.iter()
            .filter(|memory| writes.contains(&memory.access()))
            .map(|memory| u16::try_from(memory.memory_size().size()).unwrap_or(0))
            .max()
    }
}

/// Whether an instruction makes RBP point to the frame of its function.
fn sets_frame_pointer(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Mov
        && instruction.op0_register() == Register::RBP
        && instruction.op1_register() == Register::RSP
}

/// Shows an instruction if it is a load.
fn visit_load(
    classifier: &mut Classifier,
    code: &[u8],
    instruction: &Instruction,
    has_frame_pointer: bool,
    visit: &mut impl FnMut(Site),
) {
    let mut operands = 0..instruction.op_count();
    let base = instruction.memory_base();
    let is_on_stack = base == Register::RSP || has_frame_pointer && base == Register::RBP;
    let may_load = operands.any(|index| instruction.op_kind(index) == OpKind::Memory)
        && instruction.flow_control() == FlowControl::Next
        && base.is_gpr64()
        && !is_on_stack
        && !instruction.is_vsib()
        && !matches!(instruction.memory_segment(), Register::FS | Register::GS);
    if !may_load || !classifier.reads_memory(instruction) {
        return;
    }
    let site = classifier.classify(code, instruction.ip());
    if site.action == Action::Quiet && site.means == Means::Nothing {
        visit(Site {
            action: Action::Load,
            means: Means::Trampoline,
            ..site
        });
    }
}

/// Whether an instruction could be one of those for which [`Site::is_silent`] is true.
pub(crate) fn may_be_silent(instruction: &Instruction) -> bool {
    instruction.has_lock_prefix()
        || matches!(
            instruction.mnemonic(),
            Mnemonic::Clflush
                | Mnemonic::Clflushopt
                | Mnemonic::Clwb
                | Mnemonic::Sfence
                | Mnemonic::Mfence
        )
        || instruction.mnemonic() == Mnemonic::Xchg && instruction.op0_kind() == OpKind::Memory
        // Client requests begin so.
        || instruction.mnemonic() == Mnemonic::Rol && instruction.op0_register() == Register::RDI
}

fn store(instruction: &Instruction, len_bytes: u16) -> Store {
    let form = form(instruction);
    let kind = if instruction.has_lock_prefix() || instruction.mnemonic() == Mnemonic::Xchg {
        EventKind::StoreLocked
    } else if is_non_temporal(instruction.mnemonic()) {
        EventKind::StoreNonTemporal
    } else {
        EventKind::StorePlain
    };
    // What a repeated string operation writes in all is unknown; of an element it is not.
    let len_bytes = match form {
        StoreForm::String { .. } => instruction.memory_size().size() as u16,
        _ => len_bytes,
    };
    Store {
        form,
        kind,
        len_bytes,
    }
}

fn means(instruction: &Instruction, action: Action) -> Means {
    let refused = Means::Refused(Refusal::Instruction(instruction.mnemonic()));
    let segment = instruction.memory_segment();
    let is_addressed = !matches!(action, Action::Fence(_));
    if is_addressed && segment == Register::GS {
        return Means::Refused(Refusal::GsSegment(instruction.mnemonic()));
    }
    let Action::Store(store) = action else {
        return Means::Trampoline;
    };
    match store.form {
        StoreForm::Copy | StoreForm::Masked | StoreForm::Pop | StoreForm::Modify => {
            // The operand must be the one that the emitter replaces.
            if instruction.op0_kind() == OpKind::Memory {
                Means::Trampoline
            } else {
                refused
            }
        }
        StoreForm::CompareExchangePair | StoreForm::FarBit => Means::Trampoline,
        StoreForm::String { .. } => {
            let destination = instruction.op0_kind();
            let source = instruction.op1_kind();
            let is_wide = destination == OpKind::MemoryESRDI
                && matches!(source, OpKind::MemorySegRSI | OpKind::Register);
            let is_flat = source == OpKind::Register || segment != Register::FS;
            if is_wide && is_flat && !instruction.has_repne_prefix() {
                Means::Trampoline
            } else {
                refused
            }
        }
        StoreForm::Stack => match instruction.mnemonic() {
            Mnemonic::Pop => Means::Trap,
            mnemonic => Means::Refused(Refusal::Stack(mnemonic)),
        },
        StoreForm::State => Means::Trap,
        StoreForm::Other if is_run_at_fault(instruction) => Means::Trap,
        StoreForm::Scatter | StoreForm::Other => refused,
    }
}

/// Instructions whose address is in a register that they name or imply. With 32-bit addresses they
/// cannot reach a pool.
fn is_run_at_fault(instruction: &Instruction) -> bool {
    match instruction.mnemonic() {
        Mnemonic::Clzero => instruction.code() == Code::Clzeroq,
        Mnemonic::Maskmovq | Mnemonic::Maskmovdqu | Mnemonic::Vmaskmovdqu => {
            instruction.op0_kind() == OpKind::MemorySegRDI
        }
        Mnemonic::Movdir64b => instruction.op0_register().size() == 8,
        _ => false,
    }
}

fn is_non_temporal(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Movntdq
            | M::Movnti
            | M::Movntpd
            | M::Movntps
            | M::Movntq
            | M::Movntsd
            | M::Movntss
            | M::Vmovntdq
            | M::Vmovntpd
            | M::Vmovntps
            | M::Movdiri
            | M::Movdir64b
            | M::Enqcmd
            | M::Enqcmds
            | M::Maskmovq
            | M::Maskmovdqu
            | M::Vmaskmovdqu
    )
}

/// Many-core coprocessor instructions share mnemonics with the real ones and convert on the way.
fn is_coprocessor(code: Code) -> bool {
    code.encoding() == iced_x86::EncodingKind::MVEX
}

fn form(instruction: &Instruction) -> StoreForm {
    use Mnemonic as M;
    if is_coprocessor(instruction.code()) {
        return StoreForm::Other;
    }
    match instruction.mnemonic() {
        M::Push | M::Pushf | M::Pushfq | M::Pop | M::Call | M::Enter => StoreForm::Stack,
        M::Movsb | M::Movsw | M::Movsq => string(instruction, true),
        M::Movsd if instruction.code() == Code::Movsd_m32_m32 => string(instruction, true),
        M::Stosb | M::Stosw | M::Stosd | M::Stosq => string(instruction, false),
        M::Bts | M::Btr | M::Btc if instruction.op1_kind() == OpKind::Register => StoreForm::FarBit,
        M::Cmpxchg8b | M::Cmpxchg16b => StoreForm::CompareExchangePair,
        M::Fstp | M::Fistp | M::Fisttp | M::Fbstp => StoreForm::Pop,
        M::Vmaskmovps | M::Vmaskmovpd | M::Vpmaskmovd | M::Vpmaskmovq => StoreForm::Masked,
        mnemonic if is_modify(mnemonic) => StoreForm::Modify,
        mnemonic if is_state(mnemonic) => StoreForm::State,
        mnemonic if is_scatter(mnemonic) => StoreForm::Scatter,
        mnemonic if is_scalar_copy(mnemonic) || is_vector_copy(mnemonic) => {
            if instruction.has_op_mask() {
                StoreForm::Masked
            } else {
                StoreForm::Copy
            }
        }
        _ => StoreForm::Other,
    }
}

fn string(instruction: &Instruction, copies: bool) -> StoreForm {
    StoreForm::String {
        copies,
        repeats: instruction.has_rep_prefix(),
    }
}

fn is_modify(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Add
            | M::Or
            | M::Adc
            | M::Sbb
            | M::And
            | M::Sub
            | M::Xor
            | M::Inc
            | M::Dec
            | M::Neg
            | M::Not
            | M::Rol
            | M::Ror
            | M::Rcl
            | M::Rcr
            | M::Shl
            | M::Sal
            | M::Shr
            | M::Sar
            | M::Shld
            | M::Shrd
            | M::Bts
            | M::Btr
            | M::Btc
            | M::Xadd
            | M::Xchg
            | M::Cmpxchg
    )
}

fn is_state(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Fxsave
            | M::Fxsave64
            | M::Xsave
            | M::Xsave64
            | M::Xsaveopt
            | M::Xsaveopt64
            | M::Xsavec
            | M::Xsavec64
            | M::Fnsave
            | M::Fsave
            | M::Fnstenv
            | M::Fstenv
    )
}

fn is_scatter(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Vpscatterdd
            | M::Vpscatterdq
            | M::Vpscatterqd
            | M::Vpscatterqq
            | M::Vscatterdps
            | M::Vscatterdpd
            | M::Vscatterqps
            | M::Vscatterqpd
    )
}

fn is_scalar_copy(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Mov
            | M::Movbe
            | M::Movnti
            | M::Movdiri
            | M::Seta
            | M::Setae
            | M::Setb
            | M::Setbe
            | M::Sete
            | M::Setg
            | M::Setge
            | M::Setl
            | M::Setle
            | M::Setne
            | M::Setno
            | M::Setnp
            | M::Setns
            | M::Seto
            | M::Setp
            | M::Sets
            | M::Fist
            | M::Fst
            | M::Fnstcw
            | M::Fstcw
            | M::Fnstsw
            | M::Fstsw
            | M::Stmxcsr
            | M::Vstmxcsr
            | M::Kmovb
            | M::Kmovw
            | M::Kmovd
            | M::Kmovq
    )
}

fn is_vector_copy(mnemonic: Mnemonic) -> bool {
    is_sse_copy(mnemonic) || is_avx_copy(mnemonic) || is_narrowing_copy(mnemonic)
}

fn is_sse_copy(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Movd
            | M::Movq
            | M::Movss
            | M::Movsd
            | M::Movaps
            | M::Movapd
            | M::Movups
            | M::Movupd
            | M::Movdqa
            | M::Movdqu
            | M::Movhps
            | M::Movhpd
            | M::Movlps
            | M::Movlpd
            | M::Movntps
            | M::Movntpd
            | M::Movntdq
            | M::Movntq
            | M::Movntss
            | M::Movntsd
            | M::Pextrb
            | M::Pextrw
            | M::Pextrd
            | M::Pextrq
            | M::Extractps
    )
}

fn is_avx_copy(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Vmovd
            | M::Vmovq
            | M::Vmovw
            | M::Vmovss
            | M::Vmovsd
            | M::Vmovsh
            | M::Vmovaps
            | M::Vmovapd
            | M::Vmovups
            | M::Vmovupd
            | M::Vmovdqa
            | M::Vmovdqu
            | M::Vmovdqa32
            | M::Vmovdqa64
            | M::Vmovdqu8
            | M::Vmovdqu16
            | M::Vmovdqu32
            | M::Vmovdqu64
            | M::Vmovhps
            | M::Vmovhpd
            | M::Vmovlps
            | M::Vmovlpd
            | M::Vmovntps
            | M::Vmovntpd
            | M::Vmovntdq
            | M::Vpextrb
            | M::Vpextrw
            | M::Vpextrd
            | M::Vpextrq
            | M::Vextractps
            | M::Vextractf128
            | M::Vextracti128
            | M::Vextractf32x4
            | M::Vextractf32x8
            | M::Vextractf64x2
            | M::Vextractf64x4
            | M::Vextracti32x4
            | M::Vextracti32x8
            | M::Vextracti64x2
            | M::Vextracti64x4
    )
}

/// Conversions and compressions: what is written is narrower than the register.
fn is_narrowing_copy(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Vcvtps2ph
            | M::Vcompressps
            | M::Vcompresspd
            | M::Vpcompressb
            | M::Vpcompressw
            | M::Vpcompressd
            | M::Vpcompressq
            | M::Vpmovwb
            | M::Vpmovdb
            | M::Vpmovdw
            | M::Vpmovqb
            | M::Vpmovqw
            | M::Vpmovqd
            | M::Vpmovswb
            | M::Vpmovsdb
            | M::Vpmovsdw
            | M::Vpmovsqb
            | M::Vpmovsqw
            | M::Vpmovsqd
            | M::Vpmovuswb
            | M::Vpmovusdb
            | M::Vpmovusdw
            | M::Vpmovusqb
            | M::Vpmovusqw
            | M::Vpmovusqd
    )
}
