//! Call stacks of stopped processes.

use std::fs;
use std::time::{Duration, Instant};

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, MayAllocateDuringUnwind, Unwinder};
use powerfail_trace::{Frame, Module, ModuleIndex};

use crate::verdict::{Backtrace, ThreadStack};
use crate::zygote::modules::{LoadedModule, Memory, modules_of};
use crate::zygote::system::{self, Waited};
use crate::zygote::tracer;

/// An endless recursion is cut.
const MAX_FRAMES: usize = 256;
/// The number of threads in a report: more would not be read.
const MAX_THREADS: usize = 32;
/// A thread that waits for a device does not stop at once, and is left out after this time.
const STOP_TIME: Duration = Duration::from_millis(200);

/// Where a process hangs. If it only waits for a child, where that child hangs.
pub(crate) fn of_hang(process: i32) -> Option<Backtrace> {
    let mut process = process;
    while let [thread] = threads_of(process)[..]
        && let [child] = children_of(thread)[..]
        && is_waiting_for_child(thread)
    {
        process = child;
    }
    let mut threads = threads_of(process);
    threads.truncate(MAX_THREADS);
    // Before they are stopped, as all look alike then.
    let is_running = |thread: &i32| state_of(process, *thread) == Some('R');
    if let Some(place) = threads.iter().position(is_running) {
        threads[..=place].rotate_right(1);
    }
    threads.retain(|thread| tracer::interrupt(*thread).is_ok());
    threads.retain(|thread| has_stopped(*thread));
    backtrace(process, &threads)
}

/// Where a thread that is stopped is.
pub(crate) fn of_stopped_thread(thread: i32) -> Option<Backtrace> {
    backtrace(thread, &[thread])
}

fn backtrace(process: i32, threads: &[i32]) -> Option<Backtrace> {
    let memory = Memory::of(process)?;
    let modules = modules_of(process, &memory);
    let mut unwinder = UnwinderX86_64::<Vec<u8>, MayAllocateDuringUnwind>::new();
    for module in &modules {
        unwinder.add_module(framehop::Module::new(
            module.module.path.display().to_string(),
            module.range(),
            module.bias,
            sections(module),
        ));
    }
    let mut stacks = Vec::new();
    for thread in threads {
        let Some(registers) = tracer::registers(*thread) else {
            continue;
        };
        let addresses = unwind(&unwinder, &modules, &memory, &registers);
        let name = fs::read_to_string(format!("/proc/{thread}/comm")).unwrap_or_default();
        stacks.push((name.trim_end().to_owned(), addresses));
    }
    (!stacks.is_empty()).then(|| with_used_modules(&modules, stacks))
}

/// Sections in addresses of the file: those of memory without the bias.
fn sections(module: &LoadedModule) -> ExplicitModuleSectionInfo<Vec<u8>> {
    let in_file = |range: &std::ops::Range<u64>| {
        range.start.wrapping_sub(module.bias)..range.end.wrapping_sub(module.bias)
    };
    let (index, table) = (module.index.as_ref(), module.table.as_ref());
    ExplicitModuleSectionInfo {
        eh_frame_svma: table.map(|(range, _)| in_file(range)),
        eh_frame: table.map(|(_, bytes)| bytes.clone()),
        eh_frame_hdr_svma: index.map(|(range, _)| in_file(range)),
        eh_frame_hdr: index.map(|(_, bytes)| bytes.clone()),
        ..Default::default()
    }
}

fn unwind(
    unwinder: &UnwinderX86_64<Vec<u8>, MayAllocateDuringUnwind>,
    modules: &[LoadedModule],
    memory: &Memory,
    registers: &libc::user_regs_struct,
) -> Vec<u64> {
    let mut addresses = Vec::new();
    let (mut pc, mut sp) = (registers.rip, registers.rsp);
    if find(modules, pc).is_none() {
        // A call to nowhere: its return address is on top of the stack.
        addresses.push(pc);
        let Some(caller) = memory.word(sp).filter(|it| find(modules, *it).is_some()) else {
            return addresses;
        };
        (pc, sp) = (caller, sp.wrapping_add(8));
    }
    let mut cache = CacheX86_64::<MayAllocateDuringUnwind>::new();
    let mut read = |address| memory.word(address).ok_or(());
    let start = UnwindRegsX86_64::new(pc, sp, registers.rbp);
    let mut frames = unwinder.iter_frames(pc, start, &mut cache, &mut read);
    while let Ok(Some(frame)) = frames.next() {
        addresses.push(match frame {
            FrameAddress::InstructionPointer(address) => address,
            FrameAddress::ReturnAddress(address) => address.get(),
        });
        if addresses.len() >= MAX_FRAMES {
            break;
        }
    }
    addresses
}

fn find(modules: &[LoadedModule], address: u64) -> Option<usize> {
    modules.iter().position(|it| it.range().contains(&address))
}

/// Stacks with the modules that occur in them.
fn with_used_modules(modules: &[LoadedModule], stacks: Vec<(String, Vec<u64>)>) -> Backtrace {
    let mut numbers = vec![None; modules.len()];
    let mut used: Vec<Module> = Vec::new();
    let mut frame_at = |address| match find(modules, address) {
        Some(place) if modules[place].has_file => {
            let number = *numbers[place].get_or_insert_with(|| {
                used.push(modules[place].module.clone());
                used.len() - 1
            });
            Frame::Module {
                module: ModuleIndex(number as u32),
                offset: address - modules[place].module.load_address,
            }
        }
        _ => Frame::Absolute { address },
    };
    let threads = stacks
        .into_iter()
        .map(|(name, addresses)| ThreadStack {
            name,
            frames: addresses.into_iter().map(&mut frame_at).collect(),
        })
        .collect();
    Backtrace {
        modules: used,
        threads,
    }
}

pub(crate) fn threads_of(process: i32) -> Vec<i32> {
    let entries = fs::read_dir(format!("/proc/{process}/task"));
    let mut threads: Vec<i32> = entries
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    threads.sort_unstable();
    threads
}

pub(crate) fn children_of(thread: i32) -> Vec<i32> {
    let path = format!("/proc/{thread}/task/{thread}/children");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_ascii_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect()
}

fn is_waiting_for_child(thread: i32) -> bool {
    let waits = [libc::SYS_wait4, libc::SYS_waitid].map(|number| number.to_string());
    let text = fs::read_to_string(format!("/proc/{thread}/syscall")).unwrap_or_default();
    let number = text.split(' ').next().unwrap_or_default();
    waits.iter().any(|wait| wait == number)
}

/// The letter after the name, which is in parentheses and may contain any.
fn state_of(process: i32, thread: i32) -> Option<char> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{thread}/stat")).ok()?;
    text.rsplit_once(") ")?.1.chars().next()
}

/// Waits for a thread that was told to stop.
fn has_stopped(thread: i32) -> bool {
    let deadline = Instant::now() + STOP_TIME;
    loop {
        match system::wait(thread, false) {
            Ok(Waited::Child(_, status)) => return libc::WIFSTOPPED(status),
            Ok(Waited::Nothing) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(_) | Err(_) => return false,
        }
    }
}
