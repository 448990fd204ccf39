//! What becomes of a run.

use std::io;
use std::path::PathBuf;

use powerfail_trace::{Frame, Module, ModuleIndex};

use crate::verdict::{Backtrace, Stage, ThreadStack};
use crate::wire::{Reader, Writer};

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
    /// The process that executions are forked from was lost in a run. Those that follow do without.
    Lost {
        reason: String,
    },
}

/// A run and how it was done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ran {
    pub(crate) reply: RunReply,
    /// What each command wrote, dumps aside.
    pub(crate) texts: Vec<String>,
    /// Whether a command was forked from a snapshot.
    pub(crate) by_snapshot: bool,
    /// Why a command was not.
    pub(crate) note: Option<String>,
}

impl RunReply {
    pub(super) fn write(&self, writer: &mut Writer) {
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
            Self::Lost { reason } => {
                writer.number(5);
                writer.bytes(reason.as_bytes());
            }
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> io::Result<Self> {
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
            4 => Self::Broken {
                reason: reader.string()?,
            },
            _ => Self::Lost {
                reason: reader.string()?,
            },
        })
    }
}

impl Ran {
    pub(crate) fn encode(&self) -> Writer {
        let mut writer = Writer::default();
        self.reply.write(&mut writer);
        writer.list(&self.texts, |writer, it| writer.bytes(it.as_bytes()));
        writer.number(u64::from(self.by_snapshot));
        writer.option(self.note.as_ref(), |writer, it| writer.bytes(it.as_bytes()));
        writer
    }

    pub(crate) fn decode(message: &[u8]) -> io::Result<Self> {
        let reader = &mut Reader::new(message);
        Ok(Self {
            reply: RunReply::read(reader)?,
            texts: reader.list(Reader::string)?,
            by_snapshot: reader.number()? != 0,
            note: reader.option(Reader::string)?,
        })
    }
}

pub(super) fn write_module(writer: &mut Writer, module: &Module) {
    writer.path(&module.path);
    writer.bytes(&module.build_id);
    writer.number(module.load_address);
    writer.number(module.len_bytes);
}

pub(super) fn read_module(reader: &mut Reader<'_>) -> io::Result<Module> {
    Ok(Module {
        path: reader.path()?,
        build_id: reader.bytes()?,
        load_address: reader.number()?,
        len_bytes: reader.number()?,
    })
}

fn write_backtrace(writer: &mut Writer, backtrace: &Backtrace) {
    writer.list(&backtrace.modules, write_module);
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
        modules: reader.list(read_module)?,
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
