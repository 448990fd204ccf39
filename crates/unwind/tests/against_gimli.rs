//! Every function of real libraries, at every change of its unwind rules, compared with another reader of the same
//! tables.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, LittleEndian, RegisterRule, UnwindContext, UnwindSection,
    X86_64,
};
use object::{Object, ObjectSection};
use powerfail_unwind::{Cfa, Description, cie_distance, row_at};

/// The rule that both must agree on: none if this crate does not support the table.
type Facts = Option<(Cfa, Option<i64>, Option<i64>)>;

fn register(register: gimli::Register) -> Option<u64> {
    (register == X86_64::RSP || register == X86_64::RBP).then_some(register.0.into())
}

fn expected(row: &gimli::UnwindTableRow<usize>) -> Facts {
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset {
            register: base,
            offset,
        } => Cfa::Register {
            register: register(*base)?,
            offset: *offset,
        },
        CfaRule::Expression(_) => return None,
    };
    let rbp = match row.register(X86_64::RBP) {
        None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => None,
        Some(RegisterRule::Offset(offset)) => Some(offset),
        _ => return None,
    };
    let return_address = match row.register(X86_64::RA) {
        Some(RegisterRule::Undefined) => None,
        Some(RegisterRule::Offset(offset)) => Some(offset),
        _ => return None,
    };
    Some((cfa, rbp, return_address))
}

/// Functions and rows compared, and rows that this crate does not support.
fn compare(path: &str) -> (u64, u64, u64) {
    let bytes = std::fs::read(path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let section = file.section_by_name(".eh_frame").unwrap();
    let (data, at) = (section.data().unwrap(), section.address());
    let frame = EhFrame::new(data, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(at);
    let mut context = UnwindContext::new();
    let mut entries = frame.entries(&bases);
    let (mut functions, mut rows, mut unfollowed) = (0, 0, 0);
    while let Some(entry) = entries.next().unwrap() {
        let gimli::CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let fde = partial.parse(EhFrame::cie_from_offset).unwrap();
        let offset = fde.offset();
        let distance = usize::try_from(cie_distance(&data[offset..]).unwrap()).unwrap();
        let common = &data[offset + 4 - distance..];
        let description = Description::new(&data[offset..], at + offset as u64, common).unwrap();
        assert_eq!(description.start, fde.initial_address(), "{path}");
        assert_eq!(description.len_bytes, fde.len(), "{path}");
        functions += 1;
        let mut table = fde.rows(&frame, &bases, &mut context).unwrap();
        while let Some(row) = table.next_row().unwrap() {
            let (from, to) = (row.start_address(), row.end_address());
            let expected = expected(row);
            for address in [from, to - 1] {
                let found = row_at(&description, address);
                let found = found.map(|row| (row.cfa, row.rbp, row.return_address));
                if expected.is_some() {
                    assert_eq!(found, expected, "{path} at {address:#x}");
                }
            }
            rows += 1;
            unfollowed += u64::from(row_at(&description, from).is_none());
        }
    }
    (functions, rows, unfollowed)
}

#[test]
fn the_c_library_and_this_test() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut paths: Vec<&str> = maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| &line[at..]))
        .filter(|path| path.contains(".so") || path.contains("against_gimli"))
        .collect();
    paths.sort_unstable();
    paths.dedup();
    assert!(paths.len() >= 3, "{paths:?}");
    for path in paths {
        let (functions, rows, unfollowed) = compare(path);
        assert!(functions > 10, "{path}");
        // Unsupported rows are rare: the table for lazily bound calls, signal frames.
        assert!(unfollowed * 100 <= rows, "{path}: {unfollowed} of {rows}");
    }
}

#[test]
fn damaged_entries_are_refused_and_never_panic() {
    let mut entry = vec![0x14, 0, 0, 0, 0x1c, 0, 0, 0];
    entry.extend([0; 16]);
    let common = [
        0x14, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0,
        0,
    ];
    assert!(Description::new(&entry, 0x1000, &common).is_some());
    for cut in 0..common.len() {
        let _ = Description::new(&entry, 0x1000, &common[..cut]);
    }
    for at in 0..common.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut damaged = common;
            damaged[at] = value;
            if let Some(description) = Description::new(&entry, 0x1000, &damaged) {
                let _ = row_at(&description, 0x2000);
            }
        }
    }
}
