//! Which functions may return immediately in an execution: those that only free their argument and what belongs to it.

#[path = "../../src/fuzz/frees.rs"]
mod frees;

const ADDRESS: u64 = 0x10_0000;
const FREE: u64 = 0xf2ee;
/// The address of the word with the address of `free`.
const WORD: u64 = 0x20_0000;

/// Code of a function.
struct Code(Vec<u8>);

impl Code {
    fn new() -> Self {
        Self(Vec::new())
    }

    fn then(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// An instruction that ends with the distance to the word.
    fn with_word(mut self, bytes: &[u8]) -> Self {
        let end = ADDRESS + (self.0.len() + bytes.len() + 4) as u64;
        self.0.extend_from_slice(bytes);
        self.0
            .extend_from_slice(&((WORD - end) as u32).to_le_bytes());
        self
    }

    fn frees_only(&self) -> bool {
        let word = |address| (address == WORD).then_some(FREE);
        frees::frees_only(&self.0, ADDRESS, FREE, word)
    }
}

/// `lea rbp, [word]`
const LEA_RBP_WORD: [u8; 3] = [0x48, 0x8d, 0x2d];
/// `jmp [word]`
const JMP_FREE: [u8; 2] = [0xff, 0x25];
/// `mov r13, rdi`
const KEEP: [u8; 3] = [0x49, 0x89, 0xfd];
/// `mov rdi, r13`
const BACK: [u8; 3] = [0x4c, 0x89, 0xef];
/// `lea r12, [rdi + 0x840]`
const END: [u8; 7] = [0x4c, 0x8d, 0xa7, 0x40, 8, 0, 0];
/// `lea rbx, [rdi + 0x40]`
const START: [u8; 4] = [0x48, 0x8d, 0x5f, 0x40];
/// `mov rdi, [rbx]; add rbx, 0x20; call [rbp]; pxor xmm0, xmm0`
const FREE_ENTRY: [u8; 14] = [
    0x48, 0x8b, 0x3b, 0x48, 0x83, 0xc3, 0x20, 0xff, 0x55, 0, 0x66, 0x0f, 0xef, 0xc0,
];
/// `mov qword [rbx - 0x20], 0; movups [rbx - 0x18], xmm0`
const CLEAR_ENTRY: [u8; 12] = [0x48, 0xc7, 0x43, 0xe0, 0, 0, 0, 0, 0x0f, 0x11, 0x43, 0xe8];
/// `cmp rbx, r12`
const COMPARE: [u8; 3] = [0x4c, 0x39, 0xe3];

/// `jne` to the beginning of this many bytes before it.
fn again(body_len: usize) -> [u8; 2] {
    [0x75, (body_len as u8 + 2).wrapping_neg()]
}

/// Frees the entries of a table in an object, and the object.
fn table(end: &[u8], clear: &[u8], compare: &[u8]) -> Code {
    let body_len = FREE_ENTRY.len() + clear.len() + compare.len();
    Code::new()
        .then(&KEEP)
        .then(end)
        .then(&START)
        .with_word(&LEA_RBP_WORD)
        .then(&FREE_ENTRY)
        .then(clear)
        .then(compare)
        .then(&again(body_len))
        .then(&BACK)
        .with_word(&JMP_FREE)
}

#[test]
fn freeing_the_object_is_nothing_else() {
    assert!(Code::new().with_word(&JMP_FREE).frees_only());
}

#[test]
fn the_object_must_be_freed() {
    // Returns.
    assert!(!Code::new().then(&[0xc3]).frees_only());
    // Frees an address after its beginning: `add rdi, 8`.
    let inside = Code::new().then(&[0x48, 0x83, 0xc7, 8]);
    assert!(!inside.with_word(&JMP_FREE).frees_only());
    // Frees half of its address: `mov edi, edi`.
    let half = Code::new().then(&[0x89, 0xff]);
    assert!(!half.with_word(&JMP_FREE).frees_only());
}

#[test]
fn places_in_the_object_may_be_gone_through() {
    assert!(table(&END, &CLEAR_ENTRY, &COMPARE).frees_only());
}

#[test]
fn a_loop_must_end() {
    // The end is not an entry: `lea r12, [rdi + 0x841]`.
    let never = [0x4c, 0x8d, 0xa7, 0x41, 8, 0, 0];
    assert!(!table(&never, &[], &COMPARE).frees_only());
    // It is unknown whether the loop ends: `test rbx, rbx`.
    assert!(!table(&END, &CLEAR_ENTRY, &[0x48, 0x85, 0xdb]).frees_only());
    // The flags do not come from the comparison: `cmp rbx, r12; add rax, 1`.
    let other = [0x4c, 0x39, 0xe3, 0x48, 0x83, 0xc0, 1];
    assert!(!table(&END, &CLEAR_ENTRY, &other).frees_only());
}

#[test]
fn only_the_object_may_be_written() {
    // Before its beginning, in the first iteration: `mov qword [rbx - 0x61], 0`.
    let before = [0x48, 0xc7, 0x43, 0x9f, 0, 0, 0, 0];
    assert!(!table(&END, &before, &COMPARE).frees_only());
    // Memory that the object points to: `mov qword [rdi], 0` after the call, where the value of RDI is unknown.
    let other = [0x48, 0xc7, 0x07, 0, 0, 0, 0];
    assert!(!table(&END, &other, &COMPARE).frees_only());
    // Inside or outside of it: `mov qword [rbx + rax], 0`.
    let indexed = [0x48, 0xc7, 0x04, 0x03, 0, 0, 0, 0];
    assert!(!table(&END, &indexed, &COMPARE).frees_only());
    // Far after its end: `mov qword [rbx + 0x100000], 0`.
    let far = [0x48, 0xc7, 0x83, 0, 0, 0x10, 0, 0, 0, 0, 0];
    assert!(!table(&END, &far, &COMPARE).frees_only());
}

#[test]
fn nothing_else_may_be_called() {
    // `call [rbp + 8]`
    let other = [0xff, 0x55, 8];
    assert!(!table(&END, &other, &COMPARE).frees_only());
    // A jump out of the function: `cmp rbx, rbx; je +0x7f`.
    let out = [0x48, 0x39, 0xdb, 0x74, 0x7f];
    assert!(!table(&END, &out, &COMPARE).frees_only());
}
