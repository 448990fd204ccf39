//! The target's code, as something to find and to change. What the trampolines do is `powerfail_patch`'s
//! subject; which instructions get one is decided in `record` and `recovery`.
//!
//! | file | subject |
//! | --- | --- |
//! | [`modules`] | loaded modules, their functions, and the instructions in them that never fault |
//! | [`go_functions`] | the functions of Go programs, which have no unwind table |
//! | [`surroundings`] | the code around an instruction, as far as planning a patch needs it |
//! | [`patcher`] | makes the trampoline of an instruction and the jump to it, for recordings and recoveries |
//! | [`arenas`] | memory for trampolines within reach of a jump |
//! | [`code`] | changing code that other threads may be executing |

pub(crate) mod arenas;
pub(crate) mod code;
pub(crate) mod go_functions;
pub(crate) mod modules;
pub(crate) mod patcher;
pub(crate) mod surroundings;
