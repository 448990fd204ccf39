//! Where pools are mapped.

/// No pool lies nearer than this to either end of the window, so that an access which begins
/// outside the window cannot reach a pool and a piece of a string operation cannot leave it.
pub const WINDOW_GUARD_LEN: u64 = 64 * 1024;

/// The one range of addresses in which the runtime maps every pool, read-only, and the constant
/// distance to where the same bytes are writable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct PoolWindow {
    /// First address.
    pub base: u64,
    /// Length. Emitted code is shortest if it is a power of two and `base` a multiple of it.
    pub len_bytes: u64,
    /// What to add, wrapping, to an address in the window to get its alias.
    pub alias_delta: u64,
}

impl PoolWindow {
    /// Whether an address lies in the window: one subtraction and one comparison.
    pub const fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.base) < self.len_bytes
    }

    /// Where the byte at an address in the window can be written.
    pub const fn alias(&self, address: u64) -> u64 {
        address.wrapping_add(self.alias_delta)
    }

    /// If the window is an aligned power of two: the shift that leaves of its addresses one
    /// common number, and that number.
    pub const fn shift(&self) -> Option<(u32, u64)> {
        if self.len_bytes.is_power_of_two() && self.base & (self.len_bytes - 1) == 0 {
            let shift = self.len_bytes.trailing_zeros();
            Some((shift, self.base >> shift))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PoolWindow;

    #[test]
    fn borders() {
        let window = PoolWindow {
            base: 0x1000_0000,
            len_bytes: 0x100_0000,
            alias_delta: 0u64.wrapping_sub(0x1000),
        };
        assert!(!window.contains(0x0fff_ffff));
        assert!(window.contains(0x1000_0000));
        assert!(window.contains(0x10ff_ffff));
        assert!(!window.contains(0x1100_0000));
        assert_eq!(window.alias(0x1000_0000), 0x0fff_f000);
        assert_eq!(window.shift(), Some((24, 0x10)));
        assert_eq!(
            PoolWindow {
                base: 0x1000,
                ..window
            }
            .shift(),
            None
        );
    }
}
