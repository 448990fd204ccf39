//! The set-up of a zygote.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use crate::plan::{Limits, PoolMapping};
use crate::wire::{Reader, Writer};

/// How far recovery is kept apart from the rest of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Namespaces of mounts and of processes.
    Full,
    /// A namespace of mounts only.
    Mounts,
    /// Neither.
    Plain,
}

/// A command that is ready to be executed, but for `{port}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prepared {
    pub(crate) program: PathBuf,
    pub(crate) words: Vec<OsString>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PreparedReady {
    Port(Option<u16>),
    Unix(OsString),
    Output(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PreparedServer {
    pub(crate) ready: PreparedReady,
    pub(crate) client: Option<Prepared>,
    pub(crate) stop: Option<Prepared>,
    pub(crate) judge_exit: bool,
}

/// The first message to a zygote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setup {
    pub(crate) level: Level,
    /// The pools to cover; none if paths were substituted.
    pub(crate) cover: Vec<PoolMapping>,
    pub(crate) working_directory: PathBuf,
    pub(crate) input: PathBuf,
    /// `NAME=value`.
    pub(crate) environment: Vec<OsString>,
    pub(crate) recover: Prepared,
    pub(crate) server: Option<PreparedServer>,
    pub(crate) checker: Option<Prepared>,
    pub(crate) dump: Option<Prepared>,
    pub(crate) timeout_ms: u64,
    pub(crate) ok_exit: Vec<i32>,
    pub(crate) fail_patterns: Vec<String>,
    pub(crate) limits: Limits,
    pub(crate) max_dump_bytes: u64,
    /// Whether the runtime and the shared file follow, as descriptors.
    pub(crate) has_runtime: bool,
    /// Whether commands have the runtime in them even if they are not explored.
    pub(crate) preload: bool,
}

/// What a zygote says about its set-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SetupReply {
    /// It is ready. Files that it has put into private directories, to mount on.
    Ready { placeholders: Vec<PathBuf> },
    /// This level of separation does not work here.
    NotPossible { reason: String },
    /// Nothing works.
    Failed { path: PathBuf, errno: i32 },
}

impl Level {
    fn write(self, writer: &mut Writer) {
        writer.number(self as u64);
    }

    fn read(reader: &mut Reader<'_>) -> io::Result<Self> {
        Ok(match reader.number()? {
            0 => Self::Full,
            1 => Self::Mounts,
            2 => Self::Plain,
            _ => return Err(io::ErrorKind::InvalidData.into()),
        })
    }
}

impl Prepared {
    fn write(&self, writer: &mut Writer) {
        writer.path(&self.program);
        writer.list(&self.words, |writer, it| writer.os_string(it));
    }

    fn read(reader: &mut Reader<'_>) -> io::Result<Self> {
        Ok(Self {
            program: reader.path()?,
            words: reader.list(Reader::os_string)?,
        })
    }
}

impl PreparedServer {
    fn write(&self, writer: &mut Writer) {
        match &self.ready {
            PreparedReady::Port(port) => {
                writer.number(0);
                writer.number(port.map_or(0, u64::from));
            }
            PreparedReady::Unix(path) => {
                writer.number(1);
                writer.os_string(path);
            }
            PreparedReady::Output(pattern) => {
                writer.number(2);
                writer.bytes(pattern.as_bytes());
            }
        }
        writer.option(self.client.as_ref(), |writer, it| it.write(writer));
        writer.option(self.stop.as_ref(), |writer, it| it.write(writer));
        writer.number(u64::from(self.judge_exit));
    }

    fn read(reader: &mut Reader<'_>) -> io::Result<Self> {
        let ready = match reader.number()? {
            0 => {
                let port = u16::try_from(reader.number()?).ok();
                PreparedReady::Port(port.filter(|port| *port != 0))
            }
            1 => PreparedReady::Unix(reader.os_string()?),
            _ => PreparedReady::Output(reader.string()?),
        };
        Ok(Self {
            ready,
            client: reader.option(Prepared::read)?,
            stop: reader.option(Prepared::read)?,
            judge_exit: reader.number()? != 0,
        })
    }
}

impl Setup {
    pub(crate) fn encode(&self) -> Writer {
        let mut writer = Writer::default();
        self.level.write(&mut writer);
        writer.list(&self.cover, |writer, it| {
            writer.path(&it.original);
            writer.path(&it.private);
        });
        writer.path(&self.working_directory);
        writer.path(&self.input);
        writer.list(&self.environment, |writer, it| writer.os_string(it));
        self.recover.write(&mut writer);
        writer.option(self.server.as_ref(), |writer, it| it.write(writer));
        writer.option(self.checker.as_ref(), |writer, it| it.write(writer));
        writer.option(self.dump.as_ref(), |writer, it| it.write(writer));
        writer.number(self.timeout_ms);
        writer.list(&self.ok_exit, |writer, it| writer.signed(*it));
        writer.list(&self.fail_patterns, |writer, it| {
            writer.bytes(it.as_bytes());
        });
        let limits = [self.limits.memory_bytes, self.limits.file_bytes];
        for limit in &limits {
            writer.option(limit.as_ref(), |writer, it| writer.number(*it));
        }
        writer.number(self.max_dump_bytes);
        writer.number(u64::from(self.has_runtime));
        writer.number(u64::from(self.preload));
        writer
    }

    pub(crate) fn decode(message: &[u8]) -> io::Result<Self> {
        let reader = &mut Reader::new(message);
        Ok(Self {
            level: Level::read(reader)?,
            cover: reader.list(|reader| {
                Ok(PoolMapping {
                    original: reader.path()?,
                    private: reader.path()?,
                })
            })?,
            working_directory: reader.path()?,
            input: reader.path()?,
            environment: reader.list(Reader::os_string)?,
            recover: Prepared::read(reader)?,
            server: reader.option(PreparedServer::read)?,
            checker: reader.option(Prepared::read)?,
            dump: reader.option(Prepared::read)?,
            timeout_ms: reader.number()?,
            ok_exit: reader.list(Reader::signed)?,
            fail_patterns: reader.list(Reader::string)?,
            limits: Limits {
                memory_bytes: reader.option(Reader::number)?,
                file_bytes: reader.option(Reader::number)?,
            },
            max_dump_bytes: reader.number()?,
            has_runtime: reader.number()? != 0,
            preload: reader.number()? != 0,
        })
    }
}

impl SetupReply {
    pub(crate) fn encode(&self) -> Writer {
        let mut writer = Writer::default();
        match self {
            Self::Ready { placeholders } => {
                writer.number(0);
                writer.list(placeholders, |writer, it| writer.path(it));
            }
            Self::NotPossible { reason } => {
                writer.number(1);
                writer.bytes(reason.as_bytes());
            }
            Self::Failed { path, errno } => {
                writer.number(2);
                writer.path(path);
                writer.signed(*errno);
            }
        }
        writer
    }

    pub(crate) fn decode(message: &[u8]) -> io::Result<Self> {
        let reader = &mut Reader::new(message);
        Ok(match reader.number()? {
            0 => Self::Ready {
                placeholders: reader.list(Reader::path)?,
            },
            1 => Self::NotPossible {
                reason: reader.string()?,
            },
            _ => Self::Failed {
                path: reader.path()?,
                errno: reader.signed()?,
            },
        })
    }
}
