//! What the oracle and a zygote say to each other: one set-up, then runs and their results.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use powerfail_trace::{Frame, Module, ModuleIndex};

use crate::plan::{Limits, PoolMapping};
use crate::verdict::{Backtrace, Stage, ThreadStack};
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

/// How a command that failed did so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Exited(i32),
    Signaled(i32),
    TimedOut,
    Matched(String),
}

/// What a zygote says about a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RunReply {
    Success {
        dump: Option<Vec<u8>>,
    },
    Failure {
        stage: Stage,
        end: End,
        output: String,
        backtrace: Option<Backtrace>,
    },
    CannotStart {
        stage: Stage,
        program: PathBuf,
        errno: i32,
    },
    DumpTooLong,
    Broken {
        reason: String,
    },
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

/// Asks for a run, or for one under the eyes of ptrace.
pub(crate) fn encode_request(traced: bool) -> Writer {
    let mut writer = Writer::default();
    writer.number(u64::from(traced));
    writer
}

/// Whether the run is to be traced.
pub(crate) fn decode_request(message: &[u8]) -> io::Result<bool> {
    Ok(Reader::new(message).number()? != 0)
}

impl RunReply {
    pub(crate) fn encode(&self) -> Writer {
        let mut writer = Writer::default();
        match self {
            Self::Success { dump } => {
                writer.number(0);
                writer.option(dump.as_ref(), |writer, it| writer.bytes(it));
            }
            Self::Failure {
                stage,
                end,
                output,
                backtrace,
            } => {
                writer.number(1);
                writer.number(stage.number());
                match end {
                    End::Exited(status) => {
                        writer.number(0);
                        writer.signed(*status);
                    }
                    End::Signaled(signal) => {
                        writer.number(1);
                        writer.signed(*signal);
                    }
                    End::TimedOut => writer.number(2),
                    End::Matched(pattern) => {
                        writer.number(3);
                        writer.bytes(pattern.as_bytes());
                    }
                }
                writer.bytes(output.as_bytes());
                writer.option(backtrace.as_ref(), write_backtrace);
            }
            Self::CannotStart {
                stage,
                program,
                errno,
            } => {
                writer.number(2);
                writer.number(stage.number());
                writer.path(program);
                writer.signed(*errno);
            }
            Self::DumpTooLong => writer.number(3),
            Self::Broken { reason } => {
                writer.number(4);
                writer.bytes(reason.as_bytes());
            }
        }
        writer
    }

    pub(crate) fn decode(message: &[u8]) -> io::Result<Self> {
        let reader = &mut Reader::new(message);
        Ok(match reader.number()? {
            0 => Self::Success {
                dump: reader.option(Reader::bytes)?,
            },
            1 => Self::Failure {
                stage: Stage::from_number(reader.number()?).ok_or(io::ErrorKind::InvalidData)?,
                end: match reader.number()? {
                    0 => End::Exited(reader.signed()?),
                    1 => End::Signaled(reader.signed()?),
                    2 => End::TimedOut,
                    _ => End::Matched(reader.string()?),
                },
                output: reader.string()?,
                backtrace: reader.option(read_backtrace)?,
            },
            2 => Self::CannotStart {
                stage: Stage::from_number(reader.number()?).ok_or(io::ErrorKind::InvalidData)?,
                program: reader.path()?,
                errno: reader.signed()?,
            },
            3 => Self::DumpTooLong,
            _ => Self::Broken {
                reason: reader.string()?,
            },
        })
    }
}

fn write_backtrace(writer: &mut Writer, backtrace: &Backtrace) {
    writer.list(&backtrace.modules, |writer, it| {
        writer.path(&it.path);
        writer.bytes(&it.build_id);
        writer.number(it.load_address);
        writer.number(it.len_bytes);
    });
    writer.list(&backtrace.threads, |writer, it| {
        writer.bytes(it.name.as_bytes());
        writer.list(&it.frames, |writer, frame| match frame {
            Frame::Module { module, offset } => {
                writer.number(u64::from(module.0) + 1);
                writer.number(*offset);
            }
            Frame::Absolute { address } => {
                writer.number(0);
                writer.number(*address);
            }
        });
    });
}

fn read_backtrace(reader: &mut Reader<'_>) -> io::Result<Backtrace> {
    Ok(Backtrace {
        modules: reader.list(|reader| {
            Ok(Module {
                path: reader.path()?,
                build_id: reader.bytes()?,
                load_address: reader.number()?,
                len_bytes: reader.number()?,
            })
        })?,
        threads: reader.list(|reader| {
            Ok(ThreadStack {
                name: reader.string()?,
                frames: reader.list(|reader| {
                    let module = reader.number()?;
                    let offset = reader.number()?;
                    Ok(match u32::try_from(module) {
                        Ok(0) => Frame::Absolute { address: offset },
                        Ok(module) => Frame::Module {
                            module: ModuleIndex(module - 1),
                            offset,
                        },
                        Err(_) => return Err(io::ErrorKind::InvalidData.into()),
                    })
                })?,
            })
        })?,
    })
}
