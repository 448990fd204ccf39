//! A network that only the commands of one slot share: a loopback interface and nothing else.
//!
//! # Safety
//!
//! `ioctl` is called with a local of the type that the request takes.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketType, socket};

use crate::zygote::step::StepError;
use crate::zygote::system;

/// Enters a network namespace whose loopback interface is up.
pub(crate) fn enter() -> Result<(), StepError> {
    let failed = |error| StepError::new("create a network namespace", error);
    system::unshare(libc::CLONE_NEWNET).map_err(failed)?;
    start_loopback().map_err(|error| StepError::new("start the loopback interface", error))
}

fn start_loopback() -> io::Result<()> {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let mut name = [0; libc::IFNAMSIZ];
    name[0] = b'l'.cast_signed();
    name[1] = b'o'.cast_signed();
    let request = libc::ifreq {
        ifr_name: name,
        ifr_ifru: libc::__c_anonymous_ifr_ifru {
            ifru_flags: libc::IFF_UP as libc::c_short,
        },
    };
    // SAFETY: the request takes a pointer to this type, which is a local.
    let set = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if set != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
