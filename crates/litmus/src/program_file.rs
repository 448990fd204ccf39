//! Litmus programs: reading them, and what the model says of them.

use std::collections::BTreeMap;

use powerfail_model::program::{
    self, CrashMoment, NonTemporal, Op, Operand, Program, RegisterId, ThreadCode, TooManyStates,
    VariableId,
};
use powerfail_model::{Domain, FenceKind, FlushKind};

use crate::States;
use crate::fields::{FormatError, Node};
use crate::limit::{THREADS_MAX, Undecided, program_state_limit};

/// What a program file may have. `rule` and `outcome_rule` say the same as the sets, for people.
const MEMBERS: [&str; 16] = [
    "name",
    "doc",
    "note",
    "lines",
    "init",
    "threads",
    "crash",
    "vars",
    "rule",
    "allowed",
    "allowed_eadr",
    "regs",
    "outcome_rule",
    "outcomes",
    "final_mem",
    "nt_variants",
];

/// What may change under another reading.
const VARIANT_MEMBERS: [&str; 4] = ["allowed", "allowed_eadr", "outcomes", "final_mem"];

/// A program with the sets that it is expected to give.
#[derive(Clone, Debug)]
pub struct ProgramFile {
    /// The name in the file.
    pub name: String,
    /// What it is about; may be empty.
    pub doc: String,
    /// The names of the variables, in the order of the values of a state.
    pub variables: Vec<String>,
    /// The lines of the variables, as the file numbers them.
    pub line_numbers: Vec<u64>,
    /// For each thread, the names of its registers.
    pub register_names: Vec<Vec<String>>,
    /// The names of the registers, as `thread:register`, in the order of the values of an outcome.
    pub registers: Vec<String>,
    /// When the power may fail.
    pub crash: CrashMoment,
    /// The program. Its variables are numbered as in `variables`.
    pub program: Program,
    /// For each value of an outcome, its place among the registers of all threads.
    register_places: Vec<usize>,
    expected: Result<ProgramExpectation, FormatError>,
}

/// The sets that a program is expected to give.
#[derive(Clone, Debug)]
pub struct ProgramExpectation {
    /// Caches are volatile.
    pub allowed: States,
    /// Caches are durable.
    pub allowed_eadr: States,
    /// Registers without a crash.
    pub outcomes: States,
    /// Memory without a crash.
    pub final_mem: States,
    /// What changes under another reading of the manuals.
    pub variants: Vec<VariantExpectation>,
}

/// Another reading of what the manuals say of non-temporal stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Its name in the files.
    pub name: &'static str,
    /// What it means.
    pub non_temporal: NonTemporal,
}

/// The readings that files know.
const VARIANTS: [Variant; 2] = [
    Variant {
        name: "nt_inorder",
        non_temporal: NonTemporal::InOrder,
    },
    Variant {
        name: "nt_durable_at_fence",
        non_temporal: NonTemporal::DurableAtFence,
    },
];

/// The sets that change under another reading.
#[derive(Clone, Debug)]
pub struct VariantExpectation {
    /// The reading.
    pub variant: Variant,
    /// As in [`ProgramExpectation`], if it changes.
    pub allowed: Option<States>,
    /// As in [`ProgramExpectation`], if it changes.
    pub allowed_eadr: Option<States>,
    /// As in [`ProgramExpectation`], if it changes.
    pub outcomes: Option<States>,
    /// As in [`ProgramExpectation`], if it changes.
    pub final_mem: Option<States>,
}

/// The sets that the model gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramStates {
    /// Caches are volatile.
    pub allowed: States,
    /// Caches are durable.
    pub allowed_eadr: States,
    /// Registers without a crash.
    pub outcomes: States,
    /// Memory without a crash.
    pub final_mem: States,
}

impl ProgramFile {
    pub(crate) fn read(root: &Node<'_>) -> Result<Self, FormatError> {
        root.refuse_unknown("a program", &MEMBERS)?;
        let name = root.required("name")?.string()?.to_owned();
        let doc = match root.optional("doc")? {
            Some(doc) => doc.string()?.to_owned(),
            None => String::new(),
        };
        let crash_field = root.required("crash")?;
        let crash = match crash_field.string()? {
            "any" => CrashMoment::Any,
            "end" => CrashMoment::End,
            _ => return Err(crash_field.error("must be \"any\" or \"end\"")),
        };
        let Variables {
            names: variables,
            line_numbers,
            lines,
            initial,
        } = read_variables(root)?;
        let mut threads = Vec::new();
        let mut register_names = Vec::new();
        let threads_field = root.required("threads")?;
        let thread_list = threads_field.list()?;
        if thread_list.len() > THREADS_MAX {
            let count = thread_list.len();
            return Err(threads_field.error(format!(
                "has {count} threads, but the explorer takes at most {THREADS_MAX}"
            )));
        }
        for thread in thread_list {
            let (code, names) = ThreadReader::new(&variables).read(&thread)?;
            threads.push(code);
            register_names.push(names);
        }
        let mut registers = Vec::new();
        let mut register_places = Vec::new();
        if let Some(list) = root.optional("regs")? {
            for register in list.list()? {
                let name = register.string()?;
                register_places.push(register_place(&register, name, &register_names)?);
                registers.push(name.to_owned());
            }
        }
        let expected = ProgramExpectation::read(root, variables.len(), registers.len());
        let program = Program {
            lines,
            initial,
            threads,
        };
        Ok(Self {
            name,
            doc,
            variables,
            line_numbers,
            register_names,
            registers,
            crash,
            program,
            register_places,
            expected,
        })
    }

    /// The sets that the file lists; an error if it does not list all of them.
    pub fn expected(&self) -> Result<&ProgramExpectation, FormatError> {
        self.expected.as_ref().map_err(Clone::clone)
    }

    /// The sets that the model gives.
    pub fn states(&self, non_temporal: NonTemporal) -> Result<ProgramStates, Undecided> {
        let limit = program_state_limit(&self.program);
        let undecided = |TooManyStates { limit }| Undecided {
            what: "the program".to_owned(),
            limit,
        };
        let crash_states = |domain| {
            program::crash_states(&self.program, domain, self.crash, non_temporal, limit)
                .map_err(undecided)
        };
        let outcomes = program::outcomes(&self.program, non_temporal, limit).map_err(undecided)?;
        Ok(ProgramStates {
            allowed: crash_states(Domain::Adr)?,
            allowed_eadr: crash_states(Domain::Eadr)?,
            outcomes: outcomes
                .registers
                .iter()
                .map(|all| {
                    self.register_places
                        .iter()
                        .map(|&place| all[place])
                        .collect()
                })
                .collect(),
            final_mem: outcomes.memory,
        })
    }
}

impl ProgramExpectation {
    fn read(root: &Node<'_>, variables: usize, registers: usize) -> Result<Self, FormatError> {
        root.required("regs")?;
        let mut variants = Vec::new();
        if let Some(list) = root.optional("nt_variants")? {
            for (name, sets) in list.members()? {
                let Some(variant) = VARIANTS.into_iter().find(|variant| variant.name == name)
                else {
                    let known = VARIANTS.map(|variant| variant.name).join(" or ");
                    return Err(sets.error(format!("is not a known variant: {known}")));
                };
                sets.refuse_unknown("a variant", &VARIANT_MEMBERS)?;
                let set = |name, width| {
                    sets.optional(name)?
                        .map(|set| set.states(width))
                        .transpose()
                };
                variants.push(VariantExpectation {
                    variant,
                    allowed: set("allowed", variables)?,
                    allowed_eadr: set("allowed_eadr", variables)?,
                    outcomes: set("outcomes", registers)?,
                    final_mem: set("final_mem", variables)?,
                });
            }
        }
        Ok(Self {
            allowed: root.required("allowed")?.states(variables)?,
            allowed_eadr: root.required("allowed_eadr")?.states(variables)?,
            outcomes: root.required("outcomes")?.states(registers)?,
            final_mem: root.required("final_mem")?.states(variables)?,
            variants,
        })
    }
}

/// What the file says of its variables, in the order of `vars`.
struct Variables {
    names: Vec<String>,
    line_numbers: Vec<u64>,
    /// The same lines, numbered without gaps.
    lines: Vec<usize>,
    initial: Vec<i64>,
}

fn read_variables(root: &Node<'_>) -> Result<Variables, FormatError> {
    const VARIABLES_MAX: usize = 64;
    let lines_field = root.required("lines")?;
    let list = root.required("vars")?;
    let mut names: Vec<String> = Vec::new();
    let mut line_numbers = Vec::new();
    let mut lines = Vec::new();
    let mut dense = BTreeMap::new();
    for node in list.list()? {
        let name = node.string()?;
        if names.iter().any(|other| other == name) {
            return Err(node.error(format!("names `{name}` a second time")));
        }
        let Some(line) = lines_field.optional(name)? else {
            return Err(node.error(format!("names `{name}`, which has no entry in `lines`")));
        };
        let next = dense.len();
        line_numbers.push(line.index()?);
        lines.push(*dense.entry(line.index()?).or_insert(next));
        names.push(name.to_owned());
    }
    if names.len() > VARIABLES_MAX {
        return Err(list.error(format!("has more than {VARIABLES_MAX} variables")));
    }
    for (name, node) in lines_field.members()? {
        if !names.iter().any(|known| known == name) {
            return Err(node.error("is not listed in `vars`"));
        }
    }
    let mut initial = vec![0; names.len()];
    for (name, node) in root.required("init")?.members()? {
        match names.iter().position(|known| known == name) {
            Some(variable) => initial[variable] = node.integer()?,
            None => return Err(node.error("is not listed in `vars`")),
        }
    }
    Ok(Variables {
        names,
        line_numbers,
        lines,
        initial,
    })
}

/// Where the register called `thread:name` is among the registers of all threads.
fn register_place(
    node: &Node<'_>,
    name: &str,
    threads: &[Vec<String>],
) -> Result<usize, FormatError> {
    let parts = name
        .split_once(':')
        .and_then(|(thread, register)| Some((thread.parse::<usize>().ok()?, register)));
    let Some((thread, register)) = parts else {
        return Err(node.error("must look like \"0:r1\", a thread and its register"));
    };
    let place = threads
        .get(thread)
        .and_then(|names| names.iter().position(|known| known == register))
        .ok_or_else(|| node.error(format!("names `{name}`, which no operation assigns")))?;
    Ok(threads[..thread].iter().map(Vec::len).sum::<usize>() + place)
}

/// Reads the operations of one thread.
struct ThreadReader<'a> {
    variables: &'a [String],
    registers: Vec<String>,
}

impl<'a> ThreadReader<'a> {
    fn new(variables: &'a [String]) -> Self {
        Self {
            variables,
            registers: Vec::new(),
        }
    }

    fn read(mut self, thread: &Node<'_>) -> Result<(ThreadCode, Vec<String>), FormatError> {
        let list = thread.list()?;
        if list.len() > Program::OPS_PER_THREAD_MAX {
            let limit = Program::OPS_PER_THREAD_MAX;
            return Err(thread.error(format!("has more than {limit} operations")));
        }
        let ops = list
            .iter()
            .map(|op| self.op(op))
            .collect::<Result<Vec<_>, _>>()?;
        Ok((
            ThreadCode {
                ops,
                register_count: self.registers.len(),
            },
            self.registers,
        ))
    }

    fn op(&mut self, node: &Node<'_>) -> Result<Op, FormatError> {
        let parts = node.list()?;
        let Some((name, arguments)) = parts.split_first() else {
            return Err(node.error("is an empty list, not an operation"));
        };
        let operation = name.string()?;
        let wrong_count = |expected: &str| {
            node.error(format!("must be [\"{operation}\", {expected}]").replace(", ]", "]"))
        };
        match (operation, arguments) {
            ("store", [variable, value]) => {
                Ok(Op::Store(self.variable(variable)?, self.operand(value)?))
            }
            ("store" | "ntstore", _) if arguments.len() != 2 => Err(wrong_count("variable, value")),
            ("ntstore", [variable, value]) => Ok(Op::NonTemporalStore(
                self.variable(variable)?,
                self.operand(value)?,
            )),
            ("load", [variable, register]) => {
                Ok(Op::Load(self.variable(variable)?, self.assign(register)?))
            }
            ("load", _) => Err(wrong_count("variable, register")),
            ("clflush", [variable]) => Ok(Op::Flush(FlushKind::Clflush, self.variable(variable)?)),
            ("clflushopt", [variable]) => {
                Ok(Op::Flush(FlushKind::Clflushopt, self.variable(variable)?))
            }
            ("clwb", [variable]) => Ok(Op::Flush(FlushKind::Clwb, self.variable(variable)?)),
            ("clflush" | "clflushopt" | "clwb", _) => Err(wrong_count("variable")),
            ("sfence", []) => Ok(Op::Fence(FenceKind::Sfence)),
            ("mfence", []) => Ok(Op::Fence(FenceKind::Mfence)),
            ("sfence" | "mfence", _) => Err(wrong_count("")),
            ("rmw_add", [variable, addend, register]) => {
                let (variable, addend) = (self.variable(variable)?, self.operand(addend)?);
                Ok(Op::Add(variable, addend, self.assign(register)?))
            }
            ("rmw_add", _) => Err(wrong_count("variable, value, register")),
            ("cas", [variable, expected, new, register]) => {
                let variable = self.variable(variable)?;
                let (expected, new) = (self.operand(expected)?, self.operand(new)?);
                Ok(Op::CompareAndSwap(
                    variable,
                    expected,
                    new,
                    self.assign(register)?,
                ))
            }
            ("cas", _) => Err(wrong_count("variable, expected, value, register")),
            _ => Err(name.error(format!("is not a known operation: \"{operation}\""))),
        }
    }

    fn variable(&self, node: &Node<'_>) -> Result<VariableId, FormatError> {
        let name = node.string()?;
        self.variables
            .iter()
            .position(|known| known == name)
            .map(VariableId)
            .ok_or_else(|| node.error(format!("names `{name}`, which is not listed in `vars`")))
    }

    fn operand(&self, node: &Node<'_>) -> Result<Operand, FormatError> {
        let Some(name) = node.as_string() else {
            return Ok(Operand::Number(node.integer()?));
        };
        self.registers
            .iter()
            .position(|known| known == name)
            .map(|register| Operand::Register(RegisterId(register)))
            .ok_or_else(|| {
                node.error(format!(
                    "uses register `{name}`, which is not assigned before"
                ))
            })
    }

    fn assign(&mut self, node: &Node<'_>) -> Result<RegisterId, FormatError> {
        let name = node.string()?;
        if self.registers.iter().any(|known| known == name) {
            return Err(node.error(format!("assigns register `{name}` a second time")));
        }
        self.registers.push(name.to_owned());
        Ok(RegisterId(self.registers.len() - 1))
    }
}
