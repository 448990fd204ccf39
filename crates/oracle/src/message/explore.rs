//! What exploring finds: executions as they end, several to a message, and how it ended.

use std::io;

use powerfail_protocol::explore::RefusalKind;
use powerfail_trace::Module;

use crate::explore::Begun;
use crate::message::run::{RunReply, read_module, write_module};
use crate::verdict::Stage;
use crate::wire::{Reader, Writer};

/// One execution. Choices, log and notes are as they are in the shared file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExecutionReply {
    pub(crate) reply: RunReply,
    pub(crate) choices: Vec<u8>,
    pub(crate) log: Vec<u8>,
    pub(crate) notes: Vec<u8>,
    pub(crate) stages: Vec<Begun>,
}

/// Why a recovery is not explored, and what that rules out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) kind: RefusalKind,
    pub(crate) reason: String,
}

impl Refusal {
    pub(crate) fn not_explorable(reason: impl Into<String>) -> Self {
        Self {
            kind: RefusalKind::NotExplorable,
            reason: reason.into(),
        }
    }

    pub(crate) fn not_forkable(reason: impl Into<String>) -> Self {
        Self {
            kind: RefusalKind::NotForkable,
            reason: reason.into(),
        }
    }
}

/// The answer to a request to explore.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ExploreReply {
    /// Some executions; more messages follow.
    Executions(Vec<ExecutionReply>),
    /// Everything was said.
    Done {
        stopped: bool,
        warnings: Vec<String>,
    },
    /// It cannot be explored, or not in this way.
    Refused(Refusal),
    /// There is no verdict, and it is not the fault of recovery.
    Trouble(RunReply),
}

/// Modules of the commands of a plan.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ModulesReply(pub(crate) Vec<(Stage, Vec<Module>)>);

fn write_stage(writer: &mut Writer, stage: Stage) {
    writer.number(stage.number());
}

fn read_stage(reader: &mut Reader<'_>) -> io::Result<Stage> {
    Stage::from_number(reader.number()?).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

impl ExecutionReply {
    /// About as many bytes as it takes to say it.
    pub(crate) fn len_bytes(&self) -> usize {
        const VERDICT: usize = 1 << 10;
        self.choices.len() + self.log.len() + self.notes.len() + VERDICT
    }

    fn write(&self, writer: &mut Writer) {
        self.reply.write(writer);
        writer.bytes(&self.choices);
        writer.bytes(&self.log);
        writer.bytes(&self.notes);
        writer.list(&self.stages, |writer, it| {
            write_stage(writer, it.stage);
            writer.number(it.choices.into());
            writer.number(it.notes.into());
        });
    }

    fn read(reader: &mut Reader<'_>) -> io::Result<Self> {
        Ok(Self {
            reply: RunReply::read(reader)?,
            choices: reader.bytes()?,
            log: reader.bytes()?,
            notes: reader.bytes()?,
            stages: reader.list(|reader| {
                Ok(Begun {
                    stage: read_stage(reader)?,
                    choices: reader.number()? as u32,
                    notes: reader.number()? as u32,
                })
            })?,
        })
    }
}

impl ExploreReply {
    pub(crate) fn encode(&self) -> Writer {
        let mut writer = Writer::default();
        match self {
            Self::Executions(executions) => {
                writer.number(0);
                writer.list(executions, |writer, it| it.write(writer));
            }
            Self::Done { stopped, warnings } => {
                writer.number(1);
                writer.number(u64::from(*stopped));
                writer.list(warnings, |writer, it| writer.bytes(it.as_bytes()));
            }
            Self::Refused(refusal) => {
                writer.number(2);
                writer.number(refusal.kind as u64);
                writer.bytes(refusal.reason.as_bytes());
            }
            Self::Trouble(reply) => {
                writer.number(3);
                reply.write(&mut writer);
            }
        }
        writer
    }

    pub(crate) fn decode(message: &[u8]) -> io::Result<Self> {
        let reader = &mut Reader::new(message);
        Ok(match reader.number()? {
            0 => Self::Executions(reader.list(ExecutionReply::read)?),
            1 => Self::Done {
                stopped: reader.number()? != 0,
                warnings: reader.list(Reader::string)?,
            },
            2 => Self::Refused(Refusal {
                kind: RefusalKind::from_number(reader.number()?),
                reason: reader.string()?,
            }),
            _ => Self::Trouble(RunReply::read(reader)?),
        })
    }
}

impl ModulesReply {
    pub(crate) fn encode(&self) -> Writer {
        let mut writer = Writer::default();
        writer.list(&self.0, |writer, (stage, modules)| {
            write_stage(writer, *stage);
            writer.list(modules, write_module);
        });
        writer
    }

    pub(crate) fn decode(message: &[u8]) -> io::Result<Self> {
        let reader = &mut Reader::new(message);
        let of_stages =
            reader.list(|reader| Ok((read_stage(reader)?, reader.list(read_module)?)))?;
        Ok(Self(of_stages))
    }
}
