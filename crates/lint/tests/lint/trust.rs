//! Internal flushes of trusted libraries are not reported; flushes that the user requests from them are.

use crate::common::{LIBC, LIBPMEM, LIBPMEMOBJ, PROGRAM, Script, hits_with, summary};
use powerfail_finding::Code;
use powerfail_lint::{Business, LintOptions, Standing, Symbols, Trust};
use powerfail_trace::{Frame, ModuleIndex};

/// `pmemobj_persist` is at 500, a locking function of the C library at 600. The program calls `pmemobj_flush` at 40.
struct Functions;

impl Symbols for Functions {
    fn business(&mut self, frame: Frame, _: bool) -> Business {
        let at = |module, offset| Frame::Module {
            module: ModuleIndex(module),
            offset,
        };
        if frame == at(LIBPMEMOBJ, 500) {
            Business::of_function("pmemobj_persist")
        } else if frame == at(LIBC, 600) {
            Business::of_function("pthread_mutex_unlock")
        } else {
            Business::Unknown
        }
    }

    fn business_of_call(&mut self, caller: Frame) -> Business {
        let calls_flush = Frame::Module {
            module: ModuleIndex(PROGRAM),
            offset: 40,
        };
        if caller == calls_flush {
            Business::of_function("pmemobj_flush")
        } else {
            Business::Unknown
        }
    }
}

fn found(script: &mut Script) -> Vec<(Code, Vec<u64>, u64)> {
    let trace = script.trace();
    let hits = hits_with(&trace, &LintOptions::default(), &mut Functions);
    summary(&trace, &hits)
}

fn flush_by(frames: &[(u32, u64)]) -> Vec<(Code, Vec<u64>, u64)> {
    found(Script::default().stack(frames).persist(0))
}

#[test]
fn a_flush_is_its_callers_unless_the_library_makes_it_for_itself() {
    const USER: (u32, u64) = (PROGRAM, 20);
    let users = [(Code::RedundantFlush, vec![20], 1)];
    assert_eq!(flush_by(&[(LIBPMEM, 7), (LIBPMEM, 8), USER]), users);
    assert_eq!(flush_by(&[(LIBPMEM, 7), (LIBPMEMOBJ, 9), USER]), []);
    // The function that the user called is decisive, whatever is below it.
    assert_eq!(
        flush_by(&[(LIBPMEM, 7), (LIBPMEMOBJ, 9), (LIBPMEMOBJ, 500), USER]),
        users
    );
    assert_eq!(
        flush_by(&[(LIBPMEM, 7), (LIBPMEMOBJ, 500), (LIBPMEMOBJ, 9), USER]),
        []
    );
    // It left no frame, but its call is known.
    assert_eq!(
        flush_by(&[(LIBPMEM, 7), (LIBPMEMOBJ, 9), (PROGRAM, 40)]),
        [(Code::RedundantFlush, vec![40], 1)]
    );
    // A constructor of the user, called by the library.
    assert_eq!(flush_by(&[USER, (LIBPMEMOBJ, 9), (PROGRAM, 30)]), users);
    // Only the site is known.
    assert_eq!(flush_by(&[(LIBPMEM, 7)]), []);
    // The C library fences after copies to volatile memory.
    assert_eq!(flush_by(&[(LIBC, 7), USER]), []);
}

#[test]
fn a_store_of_the_c_library_is_its_callers() {
    let stored = |frames: &[(u32, u64)]| found(Script::default().stack(frames).store(0, 1));
    let users = [(Code::TransientData, vec![20], 1)];
    assert_eq!(stored(&[(LIBC, 7), (PROGRAM, 20)]), users);
    assert_eq!(stored(&[(LIBPMEM, 7), (PROGRAM, 20)]), users);
    assert_eq!(stored(&[(LIBC, 7), (LIBC, 600), (PROGRAM, 20)]), []);
    assert_eq!(stored(&[(LIBC, 7), (LIBPMEMOBJ, 9), (PROGRAM, 20)]), []);
    assert_eq!(stored(&[(LIBC, 7)]), []);
    assert_eq!(stored(&[]), [(Code::TransientData, vec![0], 1)]);
}

#[test]
fn trust_can_be_changed() {
    let trace = Script::default().line(20).persist(0).trace();
    let mut options = LintOptions::default();
    options.trust.add("program", Standing::Opaque);
    assert_eq!(hits_with(&trace, &options, &mut Functions), []);
    options.trust = Trust::none();
    assert_eq!(hits_with(&trace, &options, &mut Functions).len(), 1);
}
