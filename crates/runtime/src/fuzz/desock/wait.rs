//! Functions that wait. While the target waits for whatever it wants, the end of the connection is waited for,
//! too: then the next one can be made, or the process ends.
//!
//! # Safety
//!
//! The functions have the contracts of the C functions: arrays and sets are as long as the count says, and times
//! are null or valid.
#![allow(unsafe_code, reason = "stands in for functions of the C library")]

use core::ffi::{c_int, c_void};

use super::client::{POLL_IN, Polled, State, go_on};
use super::sockets::is_on;
use crate::fuzz::derandomise;
use crate::libc::interpose::{original, result};
use crate::platform::number::{EPOLL_PWAIT, PPOLL, PSELECT6};
use crate::platform::sys;

const SECOND_NS: u64 = 1_000_000_000;
/// How often it is looked whether a connection that was shut down is closed.
const LOOK_AGAIN_NS: i64 = 2_000_000;

unsafe extern "C" {
    safe fn exit(code: c_int) -> !;
}

/// `struct timespec`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Time {
    seconds: i64,
    ns: i64,
}

impl Time {
    const SOON: Self = Self {
        seconds: 0,
        ns: LOOK_AGAIN_NS,
    };

    /// `None`: for ever.
    fn of_ms(ms: c_int) -> Option<Self> {
        let ms = i64::from(ms);
        (ms >= 0).then_some(Self {
            seconds: ms / 1000,
            ns: ms % 1000 * 1_000_000,
        })
    }

    fn as_ns(self) -> u64 {
        self.seconds.max(0) as u64 * SECOND_NS + self.ns.max(0) as u64
    }

    fn is_longer(self, than: Self) -> bool {
        (self.seconds, self.ns) > (than.seconds, than.ns)
    }
}

/// A time for the kernel, which writes there how much of it is left.
fn pointer(time: &mut Option<Time>) -> usize {
    time.as_mut()
        .map_or(0, |time| core::ptr::from_mut(time) as usize)
}

/// The target has waited: if that was in vain, the time is over by its own clock, too.
fn waited(done: c_int, time: Option<Time>) -> c_int {
    if done == 0
        && let Some(time) = time
    {
        derandomise::has_passed(time.as_ns());
    }
    done
}

/// How the target waits: `wait` does it, together with the end of a connection and for so long at most, and
/// gives what the target gets; `None` if nothing has come that it wants.
fn waiting(
    time: Option<Time>,
    mut wait: impl FnMut(c_int, Option<Time>) -> Option<isize>,
) -> isize {
    loop {
        let done = match go_on() {
            State::Finished => exit(0),
            State::Absent => Some(wait(-1, time).unwrap_or(0)),
            State::Connected(socket) => wait(socket, time),
            State::Leaving => {
                let soon = Some(Time::SOON);
                let soon = soon.filter(|soon| time.is_none_or(|time| time.is_longer(*soon)));
                wait(-1, soon.or(time)).filter(|done| *done != 0 || soon.is_none())
            }
        };
        if let Some(done) = done {
            waited(done as c_int, time);
            return done;
        }
    }
}

/// Waits with `ppoll` for what the target wants and for the end of a connection.
///
/// # Safety
/// There are so many descriptors.
unsafe fn poll_with(
    wanted: *mut Polled,
    count: usize,
    socket: c_int,
    mut time: Option<Time>,
    mask: usize,
) -> Option<isize> {
    let mut all = Vec::with_capacity(count + 1);
    // SAFETY: by the contract the target has `count` descriptions at `wanted`, which `poll` reads and writes.
    unsafe {
        all.extend((0..count).map(|at| wanted.add(at).read()));
        all.push(Polled {
            fd: socket,
            wanted: 0,
            there: 0,
        });
        let arguments = [
            all.as_mut_ptr() as usize,
            all.len(),
            pointer(&mut time),
            mask,
            8,
            0,
        ];
        let done = sys::call(PPOLL, arguments);
        if done < 0 {
            return Some(done);
        }
        for (at, polled) in all[..count].iter().enumerate() {
            (*wanted.add(at)).there = polled.there;
        }
        let is_over = all[count].there != 0;
        let others = done - isize::from(is_over);
        (others > 0 || !is_over).then_some(others)
    }
}

/// The target is about to accept a connection.
pub(super) fn before_accept(listener: c_int) {
    const F_GETFL: usize = 3;
    const O_NONBLOCK: isize = 0o4000;
    // SAFETY: `F_GETFL` takes no pointer and changes nothing.
    let flags = unsafe { sys::call(sys::number::FCNTL, [listener as usize, F_GETFL, 0, 0, 0, 0]) };
    if flags & O_NONBLOCK != 0 {
        go_on();
        return;
    }
    waiting(None, |socket, time| {
        let mut polled = Polled {
            fd: listener,
            wanted: POLL_IN,
            there: 0,
        };
        // SAFETY: one descriptor, on this stack.
        unsafe { poll_with(&raw mut polled, 1, socket, time, 0) }
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn poll(wanted: *mut Polled, count: usize, ms: c_int) -> c_int {
    if !is_on() {
        type Wait = extern "C" fn(*mut Polled, usize, c_int) -> c_int;
        let done = original!("poll" as Wait)(wanted, count, ms);
        return waited(done, Time::of_ms(ms));
    }
    // SAFETY: by the contract of `poll` there are `count` descriptions at `wanted`.
    let wait = |socket, time| unsafe { poll_with(wanted, count, socket, time, 0) };
    result(waiting(Time::of_ms(ms), wait)) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ppoll(
    wanted: *mut Polled,
    count: usize,
    time: *const Time,
    mask: *const c_void,
) -> c_int {
    if !is_on() {
        type Wait = extern "C" fn(*mut Polled, usize, *const Time, *const c_void) -> c_int;
        let done = original!("ppoll" as Wait)(wanted, count, time, mask);
        // SAFETY: by the contract of `ppoll` the time is null or a valid `timespec`.
        return waited(done, unsafe { time.as_ref() }.copied());
    }
    // SAFETY: by the contract of `ppoll` there are `count` descriptions at `wanted`, and the time is null or valid.
    unsafe {
        let wait = |socket, time| poll_with(wanted, count, socket, time, mask as usize);
        result(waiting(time.as_ref().copied(), wait)) as c_int
    }
}

/// Sets of descriptors, as many as `select` takes.
type Set = [u64; 16];

/// # Safety
/// As `pselect`.
unsafe fn select_with(
    count: c_int,
    sets: [*mut u64; 3],
    socket: c_int,
    mut time: Option<Time>,
    mask: *const c_void,
) -> Option<isize> {
    let words = (count.max(0) as usize).div_ceil(64).min(16);
    let mut copies: [Set; 3] = [[0; 16]; 3];
    for (copy, set) in copies.iter_mut().zip(sets) {
        if !set.is_null() {
            // SAFETY: by the contract a set that is not null has this many words, as many as `count` descriptors
            // take.
            unsafe { core::ptr::copy_nonoverlapping(set, copy.as_mut_ptr(), words) };
        }
    }
    let is_added = (0..1024).contains(&socket);
    let (word, bit) = (
        socket.max(0) as usize / 64 % 16,
        1u64 << (socket.max(0) % 64),
    );
    if is_added {
        copies[0][word] |= bit;
    }
    let [read, write, except] = copies.each_mut().map(|copy| copy.as_mut_ptr() as usize);
    let mask = [mask as usize, 8];
    let arguments = [
        count.max(if is_added { socket + 1 } else { 0 }) as usize,
        read,
        write,
        except,
        pointer(&mut time),
        if mask[0] == 0 {
            0
        } else {
            mask.as_ptr() as usize
        },
    ];
    // SAFETY: all of that is on this stack.
    let done = unsafe { sys::call(PSELECT6, arguments) };
    if done < 0 {
        return Some(done);
    }
    let is_over = is_added && copies[0][word] & bit != 0;
    let others = done - isize::from(is_over);
    if others == 0 && is_over {
        return None;
    }
    if is_over {
        copies[0][word] &= !bit;
    }
    for (copy, set) in copies.iter().zip(sets) {
        if !set.is_null() {
            // SAFETY: by the contract a set that is not null has this many words, as many as `count` descriptors
            // take.
            unsafe { core::ptr::copy_nonoverlapping(copy.as_ptr(), set, words) };
        }
    }
    Some(others)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn select(
    count: c_int,
    read: *mut u64,
    write: *mut u64,
    except: *mut u64,
    time: *mut Time,
) -> c_int {
    // SAFETY: by the contract of `select` the time is null or a valid `timeval`, whose smaller unit is a microsecond.
    let long = unsafe { time.as_ref() }.map(|time| Time {
        seconds: time.seconds + time.ns / 1_000_000,
        ns: time.ns % 1_000_000 * 1000,
    });
    if !is_on() {
        type Wait = extern "C" fn(c_int, *mut u64, *mut u64, *mut u64, *mut Time) -> c_int;
        let done = original!("select" as Wait)(count, read, write, except, time);
        return waited(done, long);
    }
    // SAFETY: by the contract of `select` each set is null or long enough for `count` descriptors.
    unsafe {
        let sets = [read, write, except];
        let wait = |socket, time| select_with(count, sets, socket, time, core::ptr::null());
        result(waiting(long, wait)) as c_int
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pselect(
    count: c_int,
    read: *mut u64,
    write: *mut u64,
    except: *mut u64,
    time: *const Time,
    mask: *const c_void,
) -> c_int {
    if !is_on() {
        type Wait =
            extern "C" fn(c_int, *mut u64, *mut u64, *mut u64, *const Time, *const c_void) -> c_int;
        let done = original!("pselect" as Wait)(count, read, write, except, time, mask);
        // SAFETY: by the contract of `pselect` the time is null or a valid `timespec`.
        return waited(done, unsafe { time.as_ref() }.copied());
    }
    // SAFETY: by the contract of `pselect` each set is null or long enough for `count` descriptors, and the time is
    // null or valid.
    unsafe {
        let sets = [read, write, except];
        let wait = |socket, time| select_with(count, sets, socket, time, mask);
        result(waiting(time.as_ref().copied(), wait)) as c_int
    }
}

/// # Safety
/// There is room for so many events.
unsafe fn epoll_with(
    [set, events, count, mask]: [usize; 4],
    socket: c_int,
    time: Option<Time>,
) -> Option<isize> {
    // A set of descriptors is ready to be read if one of them is ready.
    let mut polled = Polled {
        fd: set as c_int,
        wanted: POLL_IN,
        there: 0,
    };
    // SAFETY: one descriptor, on this stack; and the caller's.
    unsafe {
        let done = poll_with(&raw mut polled, 1, socket, time, mask)?;
        if done < 0 {
            return Some(done);
        }
        let arguments = [set, events, count, 0, 0, 8];
        let done = sys::call(EPOLL_PWAIT, arguments);
        // What was ready for the target is not for us.
        (done != 0 || time.is_some()).then_some(done)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_wait(set: c_int, events: *mut c_void, count: c_int, ms: c_int) -> c_int {
    if !is_on() {
        type Wait = extern "C" fn(c_int, *mut c_void, c_int, c_int) -> c_int;
        let done = original!("epoll_wait" as Wait)(set, events, count, ms);
        return waited(done, Time::of_ms(ms));
    }
    let what = [set as usize, events as usize, count as usize, 0];
    // SAFETY: by the contract of `epoll_wait` there is room for `count` events.
    let wait = |socket, time| unsafe { epoll_with(what, socket, time) };
    result(waiting(Time::of_ms(ms), wait)) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_pwait(
    set: c_int,
    events: *mut c_void,
    count: c_int,
    ms: c_int,
    mask: *const c_void,
) -> c_int {
    if !is_on() {
        type Wait = extern "C" fn(c_int, *mut c_void, c_int, c_int, *const c_void) -> c_int;
        let done = original!("epoll_pwait" as Wait)(set, events, count, ms, mask);
        return waited(done, Time::of_ms(ms));
    }
    let what = [set as usize, events as usize, count as usize, mask as usize];
    // SAFETY: by the contract of `epoll_pwait` there is room for `count` events.
    let wait = |socket, time| unsafe { epoll_with(what, socket, time) };
    result(waiting(Time::of_ms(ms), wait)) as c_int
}
