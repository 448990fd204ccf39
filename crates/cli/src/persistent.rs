//! How much memory a heap has.

use powerfail_recorder::HEAP_LEN_MAX;

use crate::args::parse_size;

/// Reads how much memory a heap has: a number of bytes, or one with K, M or G.
pub(crate) fn parse_len(text: &str) -> Result<u64, String> {
    match parse_size(text) {
        Ok(len) if (1..=HEAP_LEN_MAX).contains(&len) => Ok(len),
        _ => Err("write a number of bytes up to 64G, as in 65536, 512M or 2G".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_len;

    #[test]
    fn lengths() {
        assert_eq!(parse_len("65536"), Ok(65_536));
        assert_eq!(parse_len("3k"), Ok(3072));
        assert_eq!(parse_len("512M"), Ok(512 << 20));
        assert_eq!(parse_len("2G"), Ok(2 << 30));
        for wrong in [
            "",
            "M",
            "0",
            "1.5G",
            "65G",
            "99999999999999999999",
            "-1",
            "10 M",
        ] {
            assert!(parse_len(wrong).is_err(), "{wrong}");
        }
    }
}
