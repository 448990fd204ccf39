//! What is asked of a zygote that is set up.

use std::io;

use crate::wire::{Reader, Writer};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Run the plan.
    Run {
        /// Under the eyes of ptrace.
        traced: bool,
        /// By forking from snapshots where that works.
        snapshot: bool,
        /// Whether to say what each command wrote, whatever became of it.
        texts: bool,
    },
    /// Explore what the shared file describes.
    Explore {
        /// Whether all is forked from one snapshot and changes no file.
        private: bool,
        /// Whether there is a log.
        log: bool,
        /// Whether there are notes.
        notes: bool,
        /// At most so many executions.
        max_executions: u64,
    },
    /// Which modules processes had when they were about to open a pool.
    Modules,
}

impl Request {
    pub(crate) fn encode(self) -> Writer {
        let mut writer = Writer::default();
        match self {
            Self::Run {
                traced,
                snapshot,
                texts,
            } => {
                writer.number(0);
                for flag in [traced, snapshot, texts] {
                    writer.number(u64::from(flag));
                }
            }
            Self::Explore {
                private,
                log,
                notes,
                max_executions,
            } => {
                writer.number(1);
                for flag in [private, log, notes] {
                    writer.number(u64::from(flag));
                }
                writer.number(max_executions);
            }
            Self::Modules => writer.number(2),
        }
        writer
    }

    pub(crate) fn decode(message: &[u8]) -> io::Result<Self> {
        let reader = &mut Reader::new(message);
        Ok(match reader.number()? {
            0 => Self::Run {
                traced: reader.number()? != 0,
                snapshot: reader.number()? != 0,
                texts: reader.number()? != 0,
            },
            1 => Self::Explore {
                private: reader.number()? != 0,
                log: reader.number()? != 0,
                notes: reader.number()? != 0,
                max_executions: reader.number()?,
            },
            _ => Self::Modules,
        })
    }
}
