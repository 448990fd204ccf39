//! The serde forms of answers, so that a caller can keep them in a file: what they lack of their own. Each module is for
//! `#[serde(with = "...")]`.

/// What a recovery did. Its own form is that of JSON, which names the kind among the fields.
pub(crate) mod outcome {
    use powerfail_finding::RecoveryOutcome;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(remote = "RecoveryOutcome")]
    enum OutcomeForm {
        Exit {
            status: i32,
            command: String,
            output: String,
        },
        Signal {
            signal: i32,
            command: String,
            output: String,
        },
        Timeout {
            after_ms: u64,
            command: String,
            output: String,
        },
        Output {
            pattern: String,
            command: String,
            output: String,
        },
        Content {
            output: String,
        },
    }

    pub(crate) fn serialize<S: Serializer>(
        outcome: &RecoveryOutcome,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        OutcomeForm::serialize(outcome, serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<RecoveryOutcome, D::Error> {
        OutcomeForm::deserialize(from)
    }
}

/// Words without the zeros at their end.
fn without_zeros(words: &[u64]) -> &[u64] {
    let len = words.iter().rposition(|it| *it != 0).map_or(0, |it| it + 1);
    &words[..len]
}

/// The same words, with the zeros.
fn with_zeros<const N: usize>(words: &[u64]) -> [u64; N] {
    let mut all = [0; N];
    for (to, word) in all.iter_mut().zip(words) {
        *to = *word;
    }
    all
}

/// The choices of an execution.
pub(crate) mod choices {
    use powerfail_protocol::explore::Choice;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{with_zeros, without_zeros};

    #[derive(Serialize, Deserialize)]
    struct ChoiceForm {
        line: u32,
        from: u16,
        to: u16,
        class_count: u16,
        class: u16,
        content: u32,
        left: u32,
        log_events: u32,
        frames: Vec<u64>,
        observed: Vec<u64>,
        notes: u32,
        skipped: u32,
    }

    pub(crate) fn serialize<S: Serializer>(
        choices: &[Choice],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(choices.iter().map(|it| ChoiceForm {
            line: it.line,
            from: it.from,
            to: it.to,
            class_count: it.class_count,
            class: it.class,
            content: it.content,
            left: it.left,
            log_events: it.log_events,
            frames: without_zeros(&it.frames).to_vec(),
            observed: without_zeros(&it.observed).to_vec(),
            notes: it.notes,
            skipped: it.skipped,
        }))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Choice>, D::Error> {
        let choice = |it: ChoiceForm| Choice {
            line: it.line,
            from: it.from,
            to: it.to,
            class_count: it.class_count,
            class: it.class,
            content: it.content,
            left: it.left,
            log_events: it.log_events,
            frames: with_zeros(&it.frames),
            observed: with_zeros(&it.observed),
            notes: it.notes,
            skipped: it.skipped,
        };
        let forms = Vec::<ChoiceForm>::deserialize(from)?;
        Ok(forms.into_iter().map(choice).collect())
    }
}

/// The notes of an execution.
pub(crate) mod notes {
    use powerfail_protocol::explore::Note;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{with_zeros, without_zeros};

    #[derive(Serialize, Deserialize)]
    struct NoteForm {
        code: u32,
        pool: u32,
        offset: u64,
        bytes: u64,
        choices: u32,
        skipped: u32,
        second: [u64; 3],
        frames: Vec<u64>,
    }

    pub(crate) fn serialize<S: Serializer>(
        notes: &[Note],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(notes.iter().map(|it| NoteForm {
            code: it.code,
            pool: it.pool,
            offset: it.offset,
            bytes: it.bytes,
            choices: it.choices,
            skipped: it.skipped,
            second: it.second,
            frames: without_zeros(&it.frames).to_vec(),
        }))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Note>, D::Error> {
        let note = |it: NoteForm| Note {
            code: it.code,
            pool: it.pool,
            offset: it.offset,
            bytes: it.bytes,
            choices: it.choices,
            skipped: it.skipped,
            second: it.second,
            frames: with_zeros(&it.frames),
        };
        let forms = Vec::<NoteForm>::deserialize(from)?;
        Ok(forms.into_iter().map(note).collect())
    }
}

/// The kind of an event of recovery.
pub(crate) mod log_kind {
    use powerfail_protocol::explore::LogKind;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(remote = "LogKind")]
    enum LogKindForm {
        Store,
        StoreNonTemporal,
        Flush,
        FlushOptimized,
        Fence,
        Sync,
    }

    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde passes a reference to the field"
    )]
    pub(crate) fn serialize<S: Serializer>(
        kind: &LogKind,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        LogKindForm::serialize(kind, serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<LogKind, D::Error> {
        LogKindForm::deserialize(from)
    }
}

#[cfg(test)]
mod tests {
    use powerfail_finding::RecoveryOutcome;
    use powerfail_protocol::explore::{Choice, LogKind, Note};

    use crate::lazy::{LazyExecution, LazyExecutions, Logged, PageMask, StageStart};
    use crate::verdict::{Backtrace, Failure, Stage, Verdict};

    fn outcomes() -> Vec<RecoveryOutcome> {
        let command = "recovery".to_owned();
        let output = "no such item\n".to_owned();
        vec![
            RecoveryOutcome::Exit {
                status: 3,
                command: command.clone(),
                output: output.clone(),
            },
            RecoveryOutcome::Signal {
                signal: 11,
                command: command.clone(),
                output: String::new(),
            },
            RecoveryOutcome::Timeout {
                after_ms: 2000,
                command: command.clone(),
                output: output.clone(),
            },
            RecoveryOutcome::Output {
                pattern: "no such".to_owned(),
                command,
                output: output.clone(),
            },
            RecoveryOutcome::Content { output },
        ]
    }

    #[test]
    fn what_is_stored_is_read_as_it_was() {
        let failures = outcomes().into_iter().map(|outcome| LazyExecution {
            verdict: Verdict::Failure(Box::new(Failure {
                stage: Stage::Checker,
                outcome,
                backtrace: Some(Backtrace::default()),
            })),
            choices: vec![Choice {
                line: 1,
                class_count: 3,
                class: 2,
                left: 1,
                frames: {
                    let mut frames = [0; 12];
                    frames[0] = 0x7f00_1234;
                    frames[3] = 7;
                    frames
                },
                observed: [1, 0, 0, 0, 0, 0, 0, 1 << 63],
                skipped: 1,
                ..Choice::default()
            }],
            notes: vec![Note {
                code: 9,
                second: [1, 2, 3],
                ..Note::default()
            }],
            stages: vec![StageStart {
                stage: Stage::Recovery,
                choices: 0,
                notes: 0,
            }],
            log: vec![Logged {
                kind: LogKind::StoreNonTemporal,
                pool: 0,
                offset: 64,
                bytes: vec![1, 2, 3],
                len: 3,
                site: 0x40_1000,
                thread: 1,
                choices: 1,
            }],
            modules: None,
        });
        let explored = LazyExecutions {
            executions: failures.collect(),
            read: vec![PageMask {
                pool: 0,
                offset: 4096,
                lines: 3,
            }],
            stopped: true,
            warnings: vec!["a warning".to_owned()],
            ..LazyExecutions::default()
        };
        let bytes = postcard::to_extend(&explored, Vec::new()).unwrap();
        let read: LazyExecutions = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(read, explored);
        let success = Verdict::Success {
            dump: Some(vec![0, 255]),
        };
        let bytes = postcard::to_extend(&success, Vec::new()).unwrap();
        assert_eq!(postcard::from_bytes::<Verdict>(&bytes).unwrap(), success);
    }
}
