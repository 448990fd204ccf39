//! Recording: every store, flush and fence on a pool becomes a record for the host.
//!
//! | file | subject |
//! | --- | --- |
//! | [`pools`], [`remap`], [`dax`], [`pool_files`] | mappings of pools, changes of them, and writes to their files |
//! | [`window`], [`first_pool`] | the addresses at which pools are recorded, and who decides about them |
//! | [`registered_ranges`], [`heap`] | pools that the runtime itself provides; recoveries use these two, too |
//! | [`sites`] | the instructions that are recorded, and their trampolines |
//! | [`faults`] | faults and breakpoints: where a recorded instruction continues |
//! | [`emulate`] | stores that cannot have a trampoline |
//! | [`generated_code`] | code that the target generates at run time |
//! | [`append`] | records that the runtime itself makes |
//! | [`call_stacks`], [`python`] | the call stack of a record |
//! | [`annotations`], [`client_requests`], [`pmdk`] | marks: what the target says about itself |
//! | [`store_locks`] | the order of stores of several threads to the same bytes |
//! | [`threads`], [`thread_private`] | the blocks and private memory of threads |
//! | [`schedule`] | the order of threads, where the host chooses it |

pub(crate) mod annotations;
pub(crate) mod append;
pub(crate) mod call_stacks;
pub(crate) mod client_requests;
pub(crate) mod dax;
pub(crate) mod emulate;
pub(crate) mod faults;
pub(crate) mod files;
pub(crate) mod first_pool;
pub(crate) mod generated_code;
pub(crate) mod heap;
pub(crate) mod pmdk;
pub(crate) mod pool_files;
pub(crate) mod pools;
pub(crate) mod python;
pub(crate) mod registered_ranges;
pub(crate) mod remap;
pub(crate) mod schedule;
pub(crate) mod sites;
pub(crate) mod store_locks;
pub(crate) mod thread_private;
pub(crate) mod threads;
pub(crate) mod window;
pub(crate) mod written_files;
