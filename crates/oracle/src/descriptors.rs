//! Passes two descriptors to a zygote: the runtime, and the file that is shared with recovering processes.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Copies the runtime into a sealed file that a loader can open.
pub(crate) fn runtime_file(runtime: &[u8]) -> io::Result<OwnedFd> {
    let file = powerfail_files::memory::sealed("powerfail-runtime", runtime)?;
    // Read-only: a process that inherits it must not seem to have a file open for writing.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(File::open(path)?.into())
}

/// Sends two descriptors.
pub(crate) fn send(to: &UnixStream, descriptors: [BorrowedFd<'_>; 2]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // Descriptors travel with at least one byte; its value is not used.
    sendmsg(
        to,
        &[IoSlice::new(&[0])],
        &mut ancillary,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// Receives what [`send`] sent.
pub(crate) fn receive(from: &UnixStream) -> io::Result<[OwnedFd; 2]> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let slices = &mut [IoSliceMut::new(&mut byte)];
    recvmsg(from, slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    descriptors
        .try_into()
        .map_err(|_| io::ErrorKind::InvalidData.into())
}
