//! Mappings of pools that change: `mremap` and `mprotect`.
//!
//! # Safety
//!
//! Requests are those that the target makes. Mappings and aliases are changed together, under the lock of the
//! pools.
#![allow(unsafe_code, reason = "changes mappings of pools")]

use powerfail_protocol::message::MessageKind;

use crate::host;
use crate::platform::sys;
use crate::record::pools::{self, Mapping, PAGE, POOLS};
use crate::record::window::window;

const MAYMOVE: usize = 1;
const FIXED: usize = 2;
const DONTUNMAP: usize = 4;
const ENOMEM: isize = 12;
const EFAULT: isize = 14;
const EINVAL: isize = 22;

/// What mremap was asked for.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) address: u64,
    pub(crate) old_len: u64,
    pub(crate) new_len: u64,
    pub(crate) flags: usize,
    pub(crate) new_address: u64,
}

impl Request {
    fn perform(self) -> isize {
        let arguments = [
            self.address as usize,
            self.old_len as usize,
            self.new_len as usize,
            self.flags,
            self.new_address as usize,
            0,
        ];
        // SAFETY: the target remaps this range itself; the alias is moved in the same way by the runtime, which alone
        // uses it.
        unsafe { sys::call(sys::number::MREMAP, arguments) }
    }

    /// The same for the alias.
    fn of_alias(self) -> Self {
        Self {
            address: window().alias(self.address),
            new_address: window().alias(self.new_address),
            ..self
        }
    }
}

/// Moves or resizes a mapping; its address, or a negative error number.
pub(crate) fn remap(request: Request) -> isize {
    let is_fixed = request.flags & FIXED != 0;
    if !host::attached() || !window().contains(request.address) {
        if host::attached() && is_fixed && window().contains(request.new_address) {
            let len = request.new_len.next_multiple_of(PAGE);
            let done = request.perform();
            if done >= 0 {
                became_other(request.new_address, len);
            }
            return done;
        }
        return request.perform();
    }
    let request = Request {
        old_len: request.old_len.next_multiple_of(PAGE),
        new_len: request.new_len.next_multiple_of(PAGE),
        ..request
    };
    if !request.address.is_multiple_of(PAGE) || request.new_len == 0 {
        return -EINVAL;
    }
    let parts = POOLS.with(|pools| pools.parts(request.address, request.old_len.max(1)));
    let Some(first) = parts.first().copied() else {
        return remap_other(request);
    };
    if first.address != request.address || parts.len() > 1 || first.len < request.old_len {
        return -EFAULT;
    }
    if request.flags & DONTUNMAP != 0 {
        host::fatal("the target uses mremap with MREMAP_DONTUNMAP, which cannot be recorded");
    }
    if is_fixed && !window().contains(request.new_address) {
        host::fatal("the target moves a pool to a fixed address, which cannot be recorded");
    }
    if !is_fixed && request.old_len != 0 && request.new_len <= request.old_len {
        let (behind, len) = (
            request.address + request.new_len,
            request.old_len - request.new_len,
        );
        if len > 0 {
            pools::unmap(behind, len);
        }
        return request.address as isize;
    }
    if !is_fixed && request.old_len != 0 {
        let behind = request.address + request.old_len;
        let more = request.new_len - request.old_len;
        if POOLS.with(|pools| pools.claim(behind, more)) {
            return grow(request, first);
        }
    }
    if request.flags & MAYMOVE == 0 {
        return -ENOMEM;
    }
    let place = if is_fixed {
        request.new_address
    } else {
        POOLS.with(|pools| pools.allot(request.new_len))
    };
    move_to(request, first, place)
}

/// Tells the host where a part of a pool is from now on.
fn tell(request: Request, place: u64) {
    let words = [
        request.address,
        place,
        request.new_len,
        host::control().clock.tick(),
        0,
    ];
    host::send(MessageKind::PoolMove, words, &[], None);
}

/// Makes a mapping longer where it is; behind it nothing but our reservation lies.
fn grow(request: Request, mapping: Mapping) -> isize {
    tell(request, request.address);
    let in_place = Request {
        flags: 0,
        ..request
    };
    for side in [in_place, in_place.of_alias()] {
        let (behind, more) = (side.address + side.old_len, side.new_len - side.old_len);
        // SAFETY: our own reservation, which nothing uses.
        unsafe {
            let arguments = [behind as usize, more as usize, 0, 0, 0, 0];
            sys::call(sys::number::MUNMAP, arguments);
        }
        if side.perform() < 0 {
            pools::reserve(behind, more, sys::MAP_FIXED);
            return -ENOMEM;
        }
    }
    POOLS.with(|pools| {
        pools.cut(request.address, request.old_len);
        pools.mappings.push(Mapping {
            len: request.new_len,
            ..mapping
        });
    });
    request.address as isize
}

fn move_to(request: Request, mapping: Mapping, place: u64) -> isize {
    tell(request, place);
    let moved = Request {
        flags: MAYMOVE | FIXED,
        new_address: place,
        ..request
    };
    for side in [moved, moved.of_alias()] {
        let done = side.perform();
        if done < 0 {
            return done;
        }
        if side.old_len > 0 {
            pools::reserve(side.address, side.old_len, sys::MAP_FIXED_NOREPLACE);
        }
    }
    POOLS.with(|pools| {
        pools.cut(request.address, request.old_len);
        pools.cut(place, request.new_len);
        pools.mappings.push(Mapping {
            address: place,
            len: request.new_len,
            ..mapping
        });
    });
    place as isize
}

/// A range of the window belongs to the target, and is not a pool.
fn became_other(address: u64, len: u64) {
    pools::reserve(window().alias(address), len, sys::MAP_FIXED);
    POOLS.with(|pools| {
        pools.cut(address, len);
        pools.others.push((address, address + len));
    });
}

/// Memory in the window that is not a pool.
fn remap_other(request: Request) -> isize {
    let done = request.perform();
    if done < 0 {
        return done;
    }
    let place = done as u64;
    let kept = if place == request.address {
        request.new_len.min(request.old_len)
    } else {
        0
    };
    let (from, len) = (request.address + kept, request.old_len - kept);
    if len > 0 && request.flags & DONTUNMAP == 0 {
        pools::reserve(from, len, sys::MAP_FIXED_NOREPLACE);
        POOLS.with(|pools| pools.cut(from, len));
    }
    if place != request.address && window().contains(place) {
        became_other(place, request.new_len);
    }
    done
}

/// Changes the protection of a range of the window.
pub(crate) fn protect(address: u64, len: u64, protection: usize) -> isize {
    let len = len.next_multiple_of(PAGE);
    let parts = POOLS.with(|pools| pools.parts(address, len));
    let change = |address: u64, len: u64, protection: usize| {
        let arguments = [address as usize, len as usize, protection, 0, 0, 0];
        // SAFETY: the range lies in a pool: the target may change its rights, and the runtime takes away only the
        // right to write.
        unsafe { sys::call(sys::number::MPROTECT, arguments) }
    };
    let mut at = address;
    for part in parts {
        if at < part.address {
            let done = change(at, part.address - at, protection);
            if done < 0 {
                return done;
            }
        }
        // Stores must go on to fault; whether the target may store is for the alias to say.
        let both = protection | sys::PROT_READ;
        let done = change(window().alias(part.address), part.len, both);
        if done < 0 {
            return done;
        }
        let done = change(part.address, part.len, protection & !sys::PROT_WRITE);
        if done < 0 {
            return done;
        }
        at = part.address + part.len;
    }
    if at < address + len {
        return change(at, address + len - at, protection);
    }
    0
}
