//! Trampolines: the code that a patched instruction jumps to.
//!
//! A trampoline computes the address that its instruction writes, and if that lies in the pool
//! window it appends a record and does the work through the alias; else it runs the instruction as
//! it was. Then it jumps back behind the instruction. [`powerfail_protocol`] says how an append works.
//!
//! - **Registers** are saved in the slots at the GS base, **flags** by `lahf` and `seto` into another
//!   one: the target's stack and its red zone are never touched, and no instruction of the common
//!   path is slow. The slots keep the state of before the instruction until its work is done, so
//!   that a fault inside a trampoline can be reported as a fault of the instruction ([`StateMap`]).
//! - **Values** are never read back. A store is executed twice, with the record as its first memory
//!   operand. A read-modify-write is executed on a copy in the record, which is then stored.
//! - **Locked** operations are a loop around `lock cmpxchg`: what it exchanged is what was recorded,
//!   and the stamp is taken between the load that it confirmed and the exchange, so the order of stamps is
//!   the order of exchanges (but for an ABA of the location).
//! - **Stamps** come before the store: a store cannot be seen before its stamp was taken. A thread that is alone looks at no
//!   clock: what it records has the stamp that the runtime has left for it, and is ordered by its place. Another one takes a
//!   new stamp if others have taken one since ([`powerfail_protocol::clock`]).
//! - **Stores of several threads** to the same bytes have the order of their stamps, because stamp and store are made under
//!   a lock (`lock.rs`). A trampoline has its body twice, and only that for shared pools takes locks.
//!
//! - **Call stacks**, if wanted, are named by a search in a table (`stack.rs`); unwinding is the
//!   runtime's.
//!
//! `access.rs` is about something else: loads and stores of memory that is not where the program sees it,
//! while a recovery is explored.
//!
//! Deliberately absent: a decision on where trampolines lie ([`crate::tactic`]).

mod access;
mod access_string;
mod builder;
mod lock;
mod modify;
mod order;
mod relocate;
mod request;
mod settings;
mod stack;
mod state;
mod store;
mod string;
mod stub;

use iced_x86::{Code, Encoder, Instruction};
use powerfail_protocol::SiteId;

pub(crate) use access::redirected;
pub use access::{
    AccessEmitter, AccessError, AccessSettings, AccessTrampoline, LOADS_MOVE, MAX_ACCESS_LEN,
    STORES_MOVE, UNREAD_SHIFT,
};
pub use settings::{EmitterSettings, LockedFences, Turns, VolatileFlushes};
pub use state::{
    Interruption, KeptStates, LockedWork, RepeatedWork, StateMap, Trampoline, WaysOut, WorkForm,
};

use crate::assembler::Assembler;
use crate::classify::{Action, Means, Site, StoreForm};
use builder::Builder;

/// No trampoline is longer than this.
pub const MAX_TRAMPOLINE_LEN: usize = 3072;

/// No evicted instruction with its jump back is longer than this.
pub const MAX_RELOCATED_LEN: usize = 24;

/// Whether [`Emitter::relocate`] can move an instruction.
pub(crate) fn is_movable(instruction: &Instruction) -> bool {
    relocate::check(instruction).is_ok()
}

/// Why there is no code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmitError {
    /// The classification says that no trampoline can do it.
    #[error("the instruction is not one that a trampoline can record")]
    NotSupported,
    /// The instruction addresses through FS, and the settings say that its base cannot be read.
    #[error("the base of FS cannot be read on this machine")]
    NeedsFsgsbase,
    /// Something that the instruction refers to is more than 2 GiB from the trampoline.
    #[error("what the instruction refers to is out of reach from there")]
    OutOfReach,
    /// The instruction cannot be moved.
    #[error("the instruction cannot be moved")]
    NotMovable,
    /// The caller's buffer, or a table of the emitter, is too small.
    #[error("the code does not fit")]
    TooLong,
    /// The encoder refused an instruction: a bug here.
    #[error("{0:?} could not be encoded")]
    Encoding(Code),
}

/// Emits trampolines. Allocates when made, not afterwards.
pub struct Emitter {
    settings: EmitterSettings,
    encoder: Encoder,
}

impl Emitter {
    /// Makes an emitter and builds the encoder's tables.
    pub fn new(settings: EmitterSettings) -> Self {
        let mut encoder = Encoder::new(64);
        encoder.set_buffer(Vec::with_capacity(2 * MAX_TRAMPOLINE_LEN));
        let mut emitter = Self { settings, encoder };
        let _ = emitter.relocate(&Instruction::with(Code::Nopd), 0, &mut [0; 16]);
        emitter
    }

    /// What it was made with.
    pub fn settings(&self) -> &EmitterSettings {
        &self.settings
    }

    /// Emits the trampoline of a site, to run at the address `at`, into `out`. Its length does not
    /// depend on `at`. `flags_dead` says that the flags are not used behind the site
    /// ([`crate::flags_are_dead`]).
    pub fn emit(
        &mut self,
        site: &Site,
        id: SiteId,
        at: u64,
        flags_dead: bool,
        out: &mut [u8],
    ) -> Result<Trampoline, EmitError> {
        if site.means != Means::Trampoline {
            return Err(EmitError::NotSupported);
        }
        let assembler = Assembler::new(&mut self.encoder, at);
        let mut builder = Builder::new(assembler, &self.settings, site, id, !flags_dead);
        match site.action {
            Action::Quiet => return Err(EmitError::NotSupported),
            Action::Flush(kind) => builder.flush(kind),
            Action::Fence(kind) => builder.fence(kind),
            Action::Request => builder.request(),
            Action::Load => builder.load(),
            Action::Store(store) => match store.form {
                StoreForm::Copy => builder.copy(store),
                StoreForm::Masked => builder.masked(store),
                StoreForm::Pop => builder.pop(store),
                StoreForm::Modify | StoreForm::FarBit => builder.modify(store),
                StoreForm::CompareExchangePair => builder.compare_exchange_pair(store),
                StoreForm::String { copies, repeats } => builder.string(store, copies, repeats),
                _ => return Err(EmitError::NotSupported),
            },
        }
        builder.finish(out)
    }

    /// Emits an instruction that was evicted from its place, to run at `at`, and the jump back
    /// behind it. Returns the length, which does not depend on `at`.
    pub fn relocate(
        &mut self,
        instruction: &Instruction,
        at: u64,
        out: &mut [u8],
    ) -> Result<usize, EmitError> {
        relocate::emit(&mut self.encoder, instruction, at, out)
    }

    /// Emits what [`powerfail_protocol::ThreadBlock::refill_entry`] points to: it saves the whole machine
    /// state on the slow stack, calls the refill function and resumes. `xsave_len_bytes` is what
    /// CPUID leaf 13 gives for the enabled components.
    pub fn emit_refill_stub(
        &mut self,
        at: u64,
        xsave_len_bytes: u32,
        out: &mut [u8],
    ) -> Result<usize, EmitError> {
        let mut assembler = Assembler::new(&mut self.encoder, at);
        stub::body(&mut assembler, xsave_len_bytes);
        Ok(assembler.finish(out)?.len_bytes)
    }
}
