//! Call stacks of stopped processes.

use std::fmt;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, MayAllocateDuringUnwind, Unwinder};
use powerfail_trace::{Frame, Module, ModuleIndex};

use crate::hang::CodeAddress;
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
/// Others stop as soon as they have a processor.
const STOP_TIME_MAX: Duration = Duration::from_secs(30);

/// The process that hangs: if one only waits for a child, that child.
pub(crate) fn process_that_hangs(process: i32) -> i32 {
    let mut process = process;
    while let [thread] = threads_of(process)[..]
        && let [child] = children_of(thread)[..]
        && is_waiting_for_child(thread)
    {
        process = child;
    }
    process
}

/// Where a process hangs. If it only waits for a child, where that child hangs.
pub(crate) fn of_hang(process: i32) -> Option<Backtrace> {
    let process = process_that_hangs(process);
    let mut threads = threads_of(process);
    threads.truncate(MAX_THREADS);
    // Before they are stopped, as all look alike then.
    let is_running = |thread: &i32| state_of(process, *thread) == Some('R');
    if let Some(place) = threads.iter().position(is_running) {
        threads[..=place].rotate_right(1);
    }
    threads.retain(|thread| tracer::interrupt(*thread).is_ok());
    threads.retain(|thread| has_stopped(process, *thread));
    backtrace(process, &threads)
}

/// Takes call stacks of a process that continues afterwards.
pub(crate) struct Sampler {
    process: i32,
    memory: Memory,
    modules: Vec<LoadedModule>,
    unwinder: UnwinderX86_64<Vec<u8>, MayAllocateDuringUnwind>,
}

impl fmt::Debug for Sampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sampler")
            .field("process", &self.process)
            .finish_non_exhaustive()
    }
}

impl Sampler {
    pub(crate) fn of(process: i32) -> Option<Self> {
        let memory = Memory::of(process)?;
        let modules = modules_of(process, &memory);
        Some(Self {
            process,
            unwinder: unwinder_of(&modules),
            memory,
            modules,
        })
    }

    pub(crate) const fn process(&self) -> i32 {
        self.process
    }

    /// The call stack of a thread that runs, or else of the main thread, innermost first. `None` if the thread cannot
    /// be stopped without disturbing it.
    pub(crate) fn sample(&mut self) -> Option<Vec<CodeAddress>> {
        let threads = threads_of(self.process);
        let is_running = |thread: &&i32| state_of(self.process, **thread) == Some('R');
        let thread = *threads.iter().find(is_running).or(threads.first())?;
        if system_call_of(self.process, thread).is_some_and(|it| is_disturbed(it.number))
            || state_of(self.process, thread) == Some('D')
        {
            return None;
        }
        tracer::interrupt(thread).ok()?;
        let registers = stops(self.process, thread).then(|| tracer::registers(thread));
        let addresses = registers
            .flatten()
            .map(|it| unwind(&self.unwinder, &self.modules, &self.memory, &it));
        tracer::detach(thread);
        addresses.map(|addresses| addresses.iter().map(|it| self.code_address(*it)).collect())
    }

    fn code_address(&self, address: u64) -> CodeAddress {
        let Some(place) = find(&self.modules, address) else {
            return CodeAddress {
                module: 0,
                offset: address,
            };
        };
        let module = &self.modules[place].module;
        let mut digest = DefaultHasher::new();
        module.path.hash(&mut digest);
        CodeAddress {
            module: digest.finish(),
            offset: address - module.load_address,
        }
    }
}

/// Takes call stacks of threads of a process while they are stopped, many times.
pub(crate) struct StoppedStacks {
    memory: Memory,
    modules: Vec<LoadedModule>,
    unwinder: UnwinderX86_64<Vec<u8>, MayAllocateDuringUnwind>,
}

impl fmt::Debug for StoppedStacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoppedStacks").finish_non_exhaustive()
    }
}

impl StoppedStacks {
    /// For a process whose modules stay as they are.
    pub(crate) fn of(process: i32) -> Option<Self> {
        let memory = Memory::of(process)?;
        let modules = modules_of(process, &memory);
        Some(Self {
            unwinder: unwinder_of(&modules),
            memory,
            modules,
        })
    }

    /// Where a thread is.
    pub(crate) fn take(&self, thread: i32) -> Option<Backtrace> {
        let registers = tracer::registers(thread)?;
        let addresses = unwind(&self.unwinder, &self.modules, &self.memory, &registers);
        Some(with_used_modules(
            &self.modules,
            vec![(String::new(), addresses)],
        ))
    }
}

/// Where a thread that is stopped is.
pub(crate) fn of_stopped_thread(thread: i32) -> Option<Backtrace> {
    backtrace(thread, &[thread])
}

fn backtrace(process: i32, threads: &[i32]) -> Option<Backtrace> {
    let memory = Memory::of(process)?;
    let modules = modules_of(process, &memory);
    let unwinder = unwinder_of(&modules);
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

fn unwinder_of(modules: &[LoadedModule]) -> UnwinderX86_64<Vec<u8>, MayAllocateDuringUnwind> {
    let mut unwinder = UnwinderX86_64::new();
    for module in modules {
        unwinder.add_module(framehop::Module::new(
            module.module.path.display().to_string(),
            module.range(),
            module.bias,
            sections(module),
        ));
    }
    unwinder
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

pub(crate) fn children_of(process: i32) -> Vec<i32> {
    children_of_thread(process, process)
}

/// The processes that a thread has started.
pub(crate) fn children_of_thread(process: i32, thread: i32) -> Vec<i32> {
    let path = format!("/proc/{process}/task/{thread}/children");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_ascii_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect()
}

/// A thread that is seen in a call that starts a process waits until the new process executes a program or ends (vfork).
fn is_waiting_for_child(thread: i32) -> bool {
    let waits = [
        libc::SYS_wait4,
        libc::SYS_waitid,
        libc::SYS_vfork,
        libc::SYS_clone,
        libc::SYS_clone3,
    ];
    system_call_of(thread, thread).is_some_and(|it| waits.contains(&it.number))
}

/// A system call that a thread waits in.
struct SystemCall {
    number: i64,
    arguments: Vec<u64>,
}

/// The system call that a thread waits in, if it does.
fn system_call_of(process: i32, thread: i32) -> Option<SystemCall> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{thread}/syscall")).ok()?;
    let mut words = text.split_ascii_whitespace();
    let number = words.next()?.parse().ok()?;
    let hexadecimal = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
    Some(SystemCall {
        number,
        arguments: words.filter_map(hexadecimal).collect(),
    })
}

/// Whether a system call fails with EINTR in a thread that is stopped and continued (signal(7)).
fn is_disturbed(number: i64) -> bool {
    [
        libc::SYS_epoll_wait,
        libc::SYS_epoll_pwait,
        libc::SYS_epoll_pwait2,
        libc::SYS_semop,
        libc::SYS_semtimedop,
        libc::SYS_rt_sigtimedwait,
        libc::SYS_read,
        libc::SYS_io_getevents,
    ]
    .contains(&number)
}

/// Whether a thread waits for another one, without a limit and without a timer that would wake it.
pub(crate) fn waits_for_ever(process: i32, thread: i32) -> bool {
    /// Operations of `futex` that wait, and the mask of its flags.
    const WAITS: [i32; 4] = [
        libc::FUTEX_WAIT,
        libc::FUTEX_LOCK_PI,
        libc::FUTEX_WAIT_BITSET,
        libc::FUTEX_WAIT_REQUEUE_PI,
    ];
    let command = !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
    if state_of(process, thread) != Some('S') {
        return false;
    }
    let Some(call) = system_call_of(process, thread) else {
        return false;
    };
    let is_wait = match call.number {
        libc::SYS_futex => {
            let operation = call.arguments.get(1).map(|it| *it as i32 & command);
            operation.is_some_and(|it| WAITS.contains(&it)) && call.arguments.get(3) == Some(&0)
        }
        libc::SYS_wait4 | libc::SYS_waitid | libc::SYS_pause | libc::SYS_rt_sigsuspend => true,
        _ => false,
    };
    is_wait && !tracer::handles_timers(thread)
}

/// Whether a signal has stopped a process. A tracer does not do that.
pub(crate) fn is_stopped(process: i32) -> bool {
    state_of(process, process) == Some('T')
}

/// The letter after the name, which is in parentheses and may contain any.
fn state_of(process: i32, thread: i32) -> Option<char> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{thread}/stat")).ok()?;
    text.rsplit_once(") ")?.1.chars().next()
}

/// Waits for a thread that was told to stop, unless it ends. Its end is not waited for: that is the task of others.
fn stops(process: i32, thread: i32) -> bool {
    let deadline = Instant::now() + STOP_TIME_MAX;
    loop {
        if system::has_stopped(thread) {
            return true;
        }
        let has_ended = matches!(state_of(process, thread), None | Some('Z' | 'X'));
        if has_ended || Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Waits for a thread that was told to stop.
fn has_stopped(process: i32, thread: i32) -> bool {
    let begun = Instant::now();
    loop {
        let limit = match state_of(process, thread) {
            Some('D') => STOP_TIME,
            _ => STOP_TIME_MAX,
        };
        match system::wait(thread, false) {
            Ok(Waited::Child(_, status)) => return libc::WIFSTOPPED(status),
            Ok(Waited::Nothing) if begun.elapsed() < limit => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(_) | Err(_) => return false,
        }
    }
}
