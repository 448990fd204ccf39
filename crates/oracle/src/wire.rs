//! How values are written into messages between the oracle and its zygotes: numbers in eight bytes,
//! byte strings and lists with their length first. Both ends are the same program, so there is no
//! version; a message that does not fit is an error all the same.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// No message is longer: the longest carries the log of an execution.
const MAX_MESSAGE_BYTES: u64 = 2 << 30;

/// A message that is being written.
#[derive(Debug, Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn number(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn signed(&mut self, value: i32) {
        self.number(i64::from(value).cast_unsigned());
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn path(&mut self, path: &Path) {
        self.bytes(path.as_os_str().as_bytes());
    }

    pub(crate) fn os_string(&mut self, text: &OsStr) {
        self.bytes(text.as_bytes());
    }

    pub(crate) fn list<T>(&mut self, items: &[T], mut each: impl FnMut(&mut Self, &T)) {
        self.number(items.len() as u64);
        for item in items {
            each(self, item);
        }
    }

    pub(crate) fn option<T>(&mut self, item: Option<&T>, each: impl FnOnce(&mut Self, &T)) {
        self.number(u64::from(item.is_some()));
        if let Some(item) = item {
            each(self, item);
        }
    }

    /// Sends it, with its length first.
    pub(crate) fn send(&self, mut to: impl Write) -> io::Result<()> {
        let mut framed = Vec::with_capacity(self.0.len() + 8);
        framed.extend_from_slice(&(self.0.len() as u64).to_le_bytes());
        framed.extend_from_slice(&self.0);
        to.write_all(&framed)
    }
}

/// A message that is being read.
#[derive(Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

/// Receives one message; `None` if the other end is gone.
pub(crate) fn receive(mut from: impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut len = [0; 8];
    match from.read_exact(&mut len) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
        Err(error) => return Err(error),
    }
    let len = u64::from_le_bytes(len);
    if len > MAX_MESSAGE_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut message = vec![0; len as usize];
    match from.read_exact(&mut message) {
        Ok(()) => Ok(Some(message)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

impl<'a> Reader<'a> {
    pub(crate) fn new(message: &'a [u8]) -> Self {
        Self(message)
    }

    pub(crate) fn number(&mut self) -> io::Result<u64> {
        let (number, rest) = self
            .0
            .split_first_chunk()
            .ok_or(io::ErrorKind::InvalidData)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*number))
    }

    pub(crate) fn signed(&mut self) -> io::Result<i32> {
        i32::try_from(self.number()?.cast_signed()).map_err(|_| io::ErrorKind::InvalidData.into())
    }

    pub(crate) fn bytes(&mut self) -> io::Result<Vec<u8>> {
        let len = usize::try_from(self.number()?).map_err(|_| io::ErrorKind::InvalidData)?;
        let (bytes, rest) = self
            .0
            .split_at_checked(len)
            .ok_or(io::ErrorKind::InvalidData)?;
        self.0 = rest;
        Ok(bytes.to_vec())
    }

    pub(crate) fn string(&mut self) -> io::Result<String> {
        Ok(String::from_utf8_lossy(&self.bytes()?).into_owned())
    }

    pub(crate) fn os_string(&mut self) -> io::Result<OsString> {
        Ok(OsString::from_vec(self.bytes()?))
    }

    pub(crate) fn path(&mut self) -> io::Result<PathBuf> {
        Ok(self.os_string()?.into())
    }

    pub(crate) fn list<T>(
        &mut self,
        mut each: impl FnMut(&mut Self) -> io::Result<T>,
    ) -> io::Result<Vec<T>> {
        let count = self.number()?;
        (0..count).map(|_| each(self)).collect()
    }

    pub(crate) fn option<T>(
        &mut self,
        each: impl FnOnce(&mut Self) -> io::Result<T>,
    ) -> io::Result<Option<T>> {
        Ok(match self.number()? {
            0 => None,
            _ => Some(each(self)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut writer = Writer::default();
        writer.number(7);
        writer.signed(-3);
        writer.list(&["a", "bc"], |writer, item| writer.bytes(item.as_bytes()));
        writer.option(None::<&u64>, |writer, item| writer.number(*item));
        writer.option(Some(&9), |writer, item| writer.number(*item));
        let mut sent = Vec::new();
        writer.send(&mut sent).unwrap();
        let message = receive(sent.as_slice()).unwrap().unwrap();
        let mut reader = Reader::new(&message);
        assert_eq!(reader.number().unwrap(), 7);
        assert_eq!(reader.signed().unwrap(), -3);
        assert_eq!(reader.list(Reader::string).unwrap(), ["a", "bc"]);
        assert_eq!(reader.option(Reader::number).unwrap(), None);
        assert_eq!(reader.option(Reader::number).unwrap(), Some(9));
        assert!(reader.number().is_err());
    }

    #[test]
    fn every_cut_is_an_error_or_the_end() {
        let mut writer = Writer::default();
        writer.bytes(b"content");
        let mut sent = Vec::new();
        writer.send(&mut sent).unwrap();
        for len in 0..sent.len() {
            assert!(receive(&sent[..len]).unwrap().is_none());
        }
        let message = receive(sent.as_slice()).unwrap().unwrap();
        for len in 0..message.len() {
            assert!(Reader::new(&message[..len]).bytes().is_err());
        }
    }
}
