//! The tables of a trace in memory, and the payloads of blocks of definitions and meta information.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use powerfail_model::files::{Entry, Name, NodeId, NodeKind};
use rustc_hash::FxHashMap;

use crate::decode::Limits;
use crate::definition::{
    Frame, Meta, Module, ModuleIndex, Pool, PoolKind, StackId, StackNode, Thread,
};
use crate::error::{Result, TraceError};
use crate::file::is_name;
use crate::layout::{
    MAX_DEFINITION_STRING_BYTES, MAX_DEFINITIONS_BYTES, MAX_MODULES, MAX_NODES, MAX_POOLS,
    MAX_STACK_NODES, MAX_THREADS, MAX_TREES,
};
use crate::tag;
use crate::tree::{InitialEntry, InitialNode, Tree};
use crate::varint;
use crate::wire::{Fields, put_bytes};

const POOL: u8 = 1;
const MODULE: u8 = 2;
const THREAD: u8 = 3;
const STACK_IN_MODULE: u8 = 4;
const STACK_ABSOLUTE: u8 = 5;
const NODE: u8 = 6;
const ENTRY: u8 = 7;
const TREE: u8 = 8;
const UNRECORDED: u8 = 9;
const FUNCTION: u8 = 10;
const GENERATED: u8 = 11;

const POOL_FILE: u8 = 0;
const POOL_DAX: u8 = 1;
const POOL_ANONYMOUS: u8 = 2;
const POOL_FILE_AS_DAX: u8 = 3;

const META_VERSION: u8 = 1;
const META_ARGUMENT: u8 = 2;
const META_DIRECTORY: u8 = 3;
const META_STARTED: u8 = 4;
const META_NOTE: u8 = 5;

/// Everything that records refer to.
#[derive(Debug, Default)]
pub(crate) struct Definitions {
    pub(crate) pools: Vec<Pool>,
    pub(crate) modules: Vec<Module>,
    pub(crate) threads: Vec<Thread>,
    /// Functions of code that the target has generated, by address.
    pub(crate) generated: FxHashMap<u64, String>,
    stacks: Vec<PackedNode>,
    pub(crate) trees: Vec<Tree>,
    pub(crate) nodes: Vec<InitialNode>,
    pub(crate) entries: Vec<InitialEntry>,
    /// Files whose content is not recorded.
    pub(crate) unrecorded: Vec<NodeId>,
    /// Where an initial node is in its table.
    node_places: FxHashMap<NodeId, u32>,
    /// How many bytes of payload they came from.
    raw_bytes: u64,
}

/// A node of the tree of call stacks in 16 bytes: there can be millions.
#[derive(Clone, Copy, Debug)]
struct PackedNode {
    value: u64,
    /// One more than the index of the module; zero if the frame is in none.
    module: u32,
    caller: u32,
}

impl Definitions {
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            threads: count(&self.threads),
            pools: count(&self.pools),
            stacks: count(&self.stacks),
        }
    }

    /// The node of a call stack; `None` if there is no such stack.
    pub(crate) fn stack(&self, id: StackId) -> Option<StackNode> {
        let slot = usize::try_from(id.0.checked_sub(1)?).ok()?;
        let node = self.stacks.get(slot)?;
        let frame = match node.module.checked_sub(1) {
            Some(module) => Frame::Module {
                module: ModuleIndex(module),
                offset: node.value,
            },
            None => Frame::Absolute {
                address: node.value,
            },
        };
        Some(StackNode {
            frame,
            caller: StackId(node.caller),
        })
    }

    /// So many bytes more stay in memory.
    pub(crate) fn grow(&mut self, len: usize) -> Result<()> {
        self.raw_bytes = self.raw_bytes.saturating_add(len as u64);
        if self.raw_bytes > MAX_DEFINITIONS_BYTES {
            return Err(too_many_definitions());
        }
        Ok(())
    }

    /// Adds what a block of definitions holds.
    pub(crate) fn decode(&mut self, payload: &[u8], block_offset: u64) -> Result<()> {
        self.grow(payload.len())?;
        let mut fields = Fields::new(payload, block_offset);
        while !fields.is_empty() {
            match fields.u8()? {
                POOL => {
                    check_pool_count(count(&self.pools))?;
                    let kind = match fields.u8()? {
                        POOL_FILE => PoolKind::File,
                        POOL_DAX => PoolKind::DaxDevice,
                        POOL_ANONYMOUS => PoolKind::AnonymousRange,
                        POOL_FILE_AS_DAX => PoolKind::FileAsDax,
                        code => return Err(fields.unknown("kind of pool", u64::from(code))),
                    };
                    self.pools.push(Pool {
                        kind,
                        len_bytes: fields.varint()?,
                        address: fields.varint()?,
                        path: take_path(&mut fields)?,
                    });
                }
                MODULE => {
                    check_module_count(count(&self.modules))?;
                    self.modules.push(Module {
                        load_address: fields.varint()?,
                        len_bytes: fields.varint()?,
                        build_id: fields.bytes()?.to_vec(),
                        path: take_path(&mut fields)?,
                        function: None,
                    });
                }
                FUNCTION => {
                    check_module_count(count(&self.modules))?;
                    self.modules.push(Module {
                        load_address: fields.varint()?,
                        len_bytes: fields.varint()?,
                        build_id: Vec::new(),
                        function: Some(String::from_utf8_lossy(fields.bytes()?).into_owned()),
                        path: take_path(&mut fields)?,
                    });
                }
                GENERATED => {
                    check_module_count(u32::try_from(self.generated.len()).unwrap_or(u32::MAX))?;
                    let address = fields.varint()?;
                    let name = String::from_utf8_lossy(fields.bytes()?).into_owned();
                    self.generated.insert(address, name);
                }
                THREAD => {
                    check_thread_count(count(&self.threads))?;
                    let os_id = fields.varint_u32()?;
                    let name = match fields.u8()? {
                        0 => None,
                        1 => Some(fields.bytes()?.to_vec()),
                        code => return Err(fields.unknown("thread name", u64::from(code))),
                    };
                    self.threads.push(Thread { os_id, name });
                }
                STACK_IN_MODULE => {
                    let module = fields.varint_u32()?;
                    if module as usize >= self.modules.len() {
                        return Err(fields.corrupt("a frame is in a module that is not defined"));
                    }
                    let value = fields.varint()?;
                    self.decode_stack(module + 1, value, &mut fields)?;
                }
                STACK_ABSOLUTE => {
                    let value = fields.varint()?;
                    self.decode_stack(0, value, &mut fields)?;
                }
                NODE => self.decode_node(&mut fields)?,
                ENTRY => {
                    let directory = self.defined_node(&mut fields)?;
                    let node = self.defined_node(&mut fields)?;
                    let name = fields.bytes()?;
                    if !is_name(name) {
                        return Err(fields.corrupt("a name of a file is not one"));
                    }
                    check_node_count(count(&self.entries))?;
                    let entry = Entry::new(directory, Name::new(name));
                    self.entries.push(InitialEntry { entry, node });
                }
                TREE => {
                    check_tree_count(count(&self.trees))?;
                    let root = self.defined_node(&mut fields)?;
                    let path = take_path(&mut fields)?;
                    self.trees.push(Tree { path, root });
                }
                UNRECORDED => {
                    check_node_count(count(&self.unrecorded))?;
                    let node = take_node(&mut fields)?;
                    self.unrecorded.push(node);
                }
                code => return Err(fields.unknown("kind of definition", u64::from(code))),
            }
        }
        Ok(())
    }

    fn decode_node(&mut self, fields: &mut Fields<'_>) -> Result<()> {
        check_node_count(count(&self.nodes))?;
        let node = take_node(fields)?;
        let code = fields.u8()?;
        let mode = fields.varint_u32()?;
        let mut len_bytes = 0;
        let kind = match code {
            tag::NODE_FILE => {
                len_bytes = fields.varint()?;
                NodeKind::File
            }
            tag::NODE_DIRECTORY => NodeKind::Directory,
            tag::NODE_SYMLINK => NodeKind::Symlink {
                target: fields.bytes()?.into(),
            },
            tag::NODE_OTHER => NodeKind::Other,
            code => return Err(fields.unknown("kind of file", u64::from(code))),
        };
        if i64::try_from(len_bytes).is_err() {
            return Err(fields.corrupt("a file is longer than files can be"));
        }
        if self.node_places.insert(node, count(&self.nodes)).is_some() {
            return Err(fields.corrupt("a node is defined twice"));
        }
        self.nodes.push(InitialNode {
            node,
            kind,
            mode,
            len_bytes,
        });
        Ok(())
    }

    /// The next field: a node that is defined.
    fn defined_node(&self, fields: &mut Fields<'_>) -> Result<NodeId> {
        let node = take_node(fields)?;
        if self.node_places.contains_key(&node) {
            Ok(node)
        } else {
            Err(fields.corrupt("a name is of a node that is not defined"))
        }
    }

    /// An initial node, by its number.
    pub(crate) fn initial_node(&self, node: NodeId) -> Option<&InitialNode> {
        self.nodes.get(*self.node_places.get(&node)? as usize)
    }

    fn decode_stack(&mut self, module: u32, value: u64, fields: &mut Fields<'_>) -> Result<()> {
        let caller = fields.varint_u32()?;
        // Ids count from one, so this also says that the caller is older: there are no cycles.
        if caller as usize > self.stacks.len() {
            return Err(fields.corrupt("a call stack's caller is not defined before it"));
        }
        check_stack_count(count(&self.stacks))?;
        self.stacks.push(PackedNode {
            value,
            module,
            caller,
        });
        Ok(())
    }
}

/// The number of things in a table. The format's limits keep it far below 32 bits.
pub(crate) fn count<T>(table: &[T]) -> u32 {
    u32::try_from(table.len()).unwrap_or(u32::MAX)
}

pub(crate) const fn too_many_definitions() -> TraceError {
    TraceError::TooLarge {
        what: "the bytes of all definitions",
        limit: MAX_DEFINITIONS_BYTES,
    }
}

/// Whether one more fits to `count` pools. Reader and writer ask the same.
pub(crate) const fn check_pool_count(count: u32) -> Result<()> {
    check_count(count, MAX_POOLS, "the number of pools")
}

pub(crate) const fn check_module_count(count: u32) -> Result<()> {
    check_count(count, MAX_MODULES, "the number of modules")
}

pub(crate) const fn check_thread_count(count: u32) -> Result<()> {
    check_count(count, MAX_THREADS, "the number of threads")
}

pub(crate) const fn check_tree_count(count: u32) -> Result<()> {
    check_count(count, MAX_TREES, "the number of trees")
}

pub(crate) const fn check_node_count(count: u32) -> Result<()> {
    check_count(count, MAX_NODES, "the number of files")
}

fn take_node(fields: &mut Fields<'_>) -> Result<NodeId> {
    match fields.varint_u32()? {
        node if node < MAX_NODES => Ok(NodeId(node)),
        _ => Err(fields.corrupt("the number of a node is too large")),
    }
}

pub(crate) const fn check_stack_count(count: u32) -> Result<()> {
    check_count(count, MAX_STACK_NODES, "the number of call stack nodes")
}

const fn check_count(count: u32, limit: u32, what: &'static str) -> Result<()> {
    if count < limit {
        Ok(())
    } else {
        Err(TraceError::TooLarge {
            what,
            limit: limit as u64,
        })
    }
}

pub(crate) fn take_path(fields: &mut Fields<'_>) -> Result<PathBuf> {
    Ok(PathBuf::from(OsString::from_vec(fields.bytes()?.to_vec())))
}

pub(crate) fn put_string(out: &mut Vec<u8>, bytes: &[u8]) -> Result<()> {
    if bytes.len() > MAX_DEFINITION_STRING_BYTES {
        return Err(TraceError::TooLarge {
            what: "the bytes of a name or path",
            limit: MAX_DEFINITION_STRING_BYTES as u64,
        });
    }
    put_bytes(out, bytes);
    Ok(())
}

pub(crate) fn encode_pool(out: &mut Vec<u8>, pool: &Pool) -> Result<()> {
    out.push(POOL);
    out.push(match pool.kind {
        PoolKind::File => POOL_FILE,
        PoolKind::DaxDevice => POOL_DAX,
        PoolKind::AnonymousRange => POOL_ANONYMOUS,
        PoolKind::FileAsDax => POOL_FILE_AS_DAX,
    });
    varint::put(out, pool.len_bytes);
    varint::put(out, pool.address);
    put_string(out, pool.path.as_os_str().as_bytes())
}

pub(crate) fn encode_node(out: &mut Vec<u8>, node: &InitialNode) -> Result<()> {
    out.push(NODE);
    varint::put(out, u64::from(node.node.0));
    out.push(node_code(&node.kind));
    varint::put(out, u64::from(node.mode));
    match &node.kind {
        NodeKind::File => varint::put(out, node.len_bytes),
        NodeKind::Symlink { target } => put_string(out, target)?,
        NodeKind::Directory | NodeKind::Other => {}
    }
    Ok(())
}

const fn node_code(kind: &NodeKind) -> u8 {
    match kind {
        NodeKind::File => tag::NODE_FILE,
        NodeKind::Directory => tag::NODE_DIRECTORY,
        NodeKind::Symlink { .. } => tag::NODE_SYMLINK,
        NodeKind::Other => tag::NODE_OTHER,
    }
}

pub(crate) fn encode_entry(
    out: &mut Vec<u8>,
    directory: NodeId,
    name: &[u8],
    node: NodeId,
) -> Result<()> {
    out.push(ENTRY);
    varint::put(out, u64::from(directory.0));
    varint::put(out, u64::from(node.0));
    put_string(out, name)
}

pub(crate) fn encode_tree(out: &mut Vec<u8>, tree: &Tree) -> Result<()> {
    out.push(TREE);
    varint::put(out, u64::from(tree.root.0));
    put_string(out, tree.path.as_os_str().as_bytes())
}

pub(crate) fn encode_unrecorded(out: &mut Vec<u8>, node: NodeId) {
    out.push(UNRECORDED);
    varint::put(out, u64::from(node.0));
}

pub(crate) fn encode_module(out: &mut Vec<u8>, module: &Module) -> Result<()> {
    out.push(match module.function {
        Some(_) => FUNCTION,
        None => MODULE,
    });
    varint::put(out, module.load_address);
    varint::put(out, module.len_bytes);
    match &module.function {
        Some(function) => put_string(out, function.as_bytes())?,
        None => put_string(out, &module.build_id)?,
    }
    put_string(out, module.path.as_os_str().as_bytes())
}

pub(crate) fn encode_generated(out: &mut Vec<u8>, address: u64, name: &str) -> Result<()> {
    out.push(GENERATED);
    varint::put(out, address);
    put_string(out, name.as_bytes())
}

pub(crate) fn encode_thread(out: &mut Vec<u8>, thread: &Thread) -> Result<()> {
    out.push(THREAD);
    varint::put(out, u64::from(thread.os_id));
    match &thread.name {
        None => out.push(0),
        Some(name) => {
            out.push(1);
            put_string(out, name)?;
        }
    }
    Ok(())
}

pub(crate) fn encode_stack(out: &mut Vec<u8>, node: &StackNode) {
    match node.frame {
        Frame::Module { module, offset } => {
            out.push(STACK_IN_MODULE);
            varint::put(out, u64::from(module.0));
            varint::put(out, offset);
        }
        Frame::Absolute { address } => {
            out.push(STACK_ABSOLUTE);
            varint::put(out, address);
        }
    }
    varint::put(out, u64::from(node.caller.0));
}

pub(crate) fn encode_meta(meta: &Meta) -> Vec<u8> {
    let mut out = Vec::new();
    out.push(META_VERSION);
    put_bytes(&mut out, meta.powerfail_version.as_bytes());
    for argument in &meta.command {
        out.push(META_ARGUMENT);
        put_bytes(&mut out, argument.as_bytes());
    }
    out.push(META_DIRECTORY);
    put_bytes(&mut out, meta.working_directory.as_os_str().as_bytes());
    out.push(META_STARTED);
    varint::put(&mut out, meta.started_unix_ms);
    for (name, value) in &meta.notes {
        out.push(META_NOTE);
        put_bytes(&mut out, name.as_bytes());
        put_bytes(&mut out, value.as_bytes());
    }
    out
}

pub(crate) fn decode_meta(payload: &[u8], block_offset: u64) -> Result<Meta> {
    let mut fields = Fields::new(payload, block_offset);
    let mut meta = Meta::default();
    while !fields.is_empty() {
        match fields.u8()? {
            META_VERSION => meta.powerfail_version = take_text(&mut fields)?,
            META_ARGUMENT => meta
                .command
                .push(OsStr::from_bytes(fields.bytes()?).to_owned()),
            META_DIRECTORY => meta.working_directory = take_path(&mut fields)?,
            META_STARTED => meta.started_unix_ms = fields.varint()?,
            META_NOTE => {
                let name = take_text(&mut fields)?;
                let value = take_text(&mut fields)?;
                meta.notes.push((name, value));
            }
            code => return Err(fields.unknown("kind of meta information", u64::from(code))),
        }
    }
    Ok(meta)
}

fn take_text(fields: &mut Fields<'_>) -> Result<String> {
    String::from_utf8(fields.bytes()?.to_vec()).map_err(|_| fields.corrupt("a text is not UTF-8"))
}
