//! The outcomes of recoveries that a run or its shares have kept: read by `--resume`, and joined by `powerfail merge`.

use powerfail_check::{Shares, count_outcomes};

use crate::archive::{Unpacked, pack};

/// The directories of shares in an input.
const SHARES: [&str; 2] = ["one", "two"];

pub(crate) fn body(bytes: &[u8]) {
    let place = Unpacked::new(bytes);
    let shares = SHARES.map(|name| place.path("inside").join(name));
    for share in &shares {
        if let Err(error) = count_outcomes(share) {
            assert!(!error.to_string().is_empty());
        }
    }
    match Shares::open(&shares) {
        Ok(shares) => drop(shares.arguments().to_vec()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    place.is_confined(&[]);
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let files = [
        include_bytes!("seeds/outcomes-1").as_slice(),
        include_bytes!("seeds/outcomes-2"),
    ];
    vec![pack(&[
        ("one/outcomes", files[0]),
        ("two/outcomes", files[1]),
    ])]
}
