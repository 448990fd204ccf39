//! Which bytes of code belong to patches, and which must stay as they are.

/// The bytes that plans have taken. Ordered by address; allocates when a plan is added beyond its
/// capacity.
#[derive(Clone, Debug, Default)]
pub struct Claims {
    claims: Vec<Claim>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Claim {
    from: u64,
    to: u64,
    site: u64,
    owned: bool,
}

impl Claims {
    /// None yet, with room for this many.
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            claims: Vec::with_capacity(capacity),
        }
    }

    fn touching(&self, address: u64) -> impl Iterator<Item = &Claim> {
        // Claims are short, so those that can reach an address begin just before it.
        let first = self
            .claims
            .partition_point(|claim| claim.from + 16 < address);
        self.claims[first..]
            .iter()
            .take_while(move |claim| claim.from <= address)
            .filter(move |claim| address < claim.to)
    }

    /// The site whose patch a byte belongs to.
    pub fn owner(&self, address: u64) -> Option<u64> {
        self.touching(address)
            .find(|claim| claim.owned)
            .map(|claim| claim.site)
    }

    /// Whether any byte from an address up to another belongs to a patch.
    pub fn owns_any(&self, from: u64, to: u64) -> bool {
        // As in `touching`: what can reach the first byte begins just before it.
        let first = self.claims.partition_point(|claim| claim.from + 16 < from);
        from < to
            && self.claims[first..]
                .iter()
                .take_while(|claim| claim.from < to)
                .any(|claim| claim.owned && from < claim.to)
    }

    /// The end of the changed instruction that a byte belongs to, and whether that is the site itself
    /// and not one that made room for it.
    pub(super) fn owned_end(&self, address: u64) -> Option<(u64, bool)> {
        let claim = self.touching(address).find(|claim| claim.owned)?;
        Some((claim.to, claim.from == claim.site))
    }

    /// The site whose jump reads a byte that it does not own.
    pub fn dependant(&self, address: u64) -> Option<u64> {
        self.touching(address)
            .find(|claim| !claim.owned)
            .map(|claim| claim.site)
    }

    /// Notes that the bytes of an instruction belong to the patch of a site.
    pub(super) fn own(&mut self, from: u64, to: u64, site: u64) {
        self.insert(Claim {
            from,
            to,
            site,
            owned: true,
        });
    }

    /// Reserves the bytes of an instruction, so that no patch changes them. Execution continues after them.
    pub fn keep(&mut self, from: u64, to: u64) {
        self.own(from, to, from);
    }

    /// Notes that the patch of a site counts on the bytes.
    pub(super) fn depend(&mut self, from: u64, to: u64, site: u64) {
        self.insert(Claim {
            from,
            to,
            site,
            owned: false,
        });
    }

    fn insert(&mut self, claim: Claim) {
        if claim.from < claim.to {
            let at = self
                .claims
                .partition_point(|other| other.from <= claim.from);
            self.claims.insert(at, claim);
        }
    }

    /// Forgets what the patch of a site has taken, because it was undone.
    pub fn forget_site(&mut self, site: u64) {
        self.claims.retain(|claim| claim.site != site);
    }

    /// Forgets everything in a range, because its code is gone.
    pub fn forget_range(&mut self, from: u64, to: u64) {
        self.claims
            .retain(|claim| claim.to <= from || to <= claim.from);
    }
}

#[cfg(test)]
mod tests {
    use super::Claims;

    #[test]
    fn bytes_and_their_sites() {
        let mut claims = Claims::with_capacity(4);
        claims.own(0x1000, 0x1003, 0x1000);
        claims.depend(0x1003, 0x1005, 0x1000);
        claims.own(0x1003, 0x1008, 0x1003);
        assert_eq!(claims.owner(0x0fff), None);
        assert_eq!(claims.owner(0x1002), Some(0x1000));
        assert_eq!(claims.owner(0x1003), Some(0x1003));
        assert_eq!(claims.dependant(0x1004), Some(0x1000));
        assert_eq!(claims.dependant(0x1005), None);
        for from in 0xff8..0x1010 {
            for to in from..0x1010 {
                let owns_any = (from..to).any(|address| claims.owner(address).is_some());
                assert_eq!(claims.owns_any(from, to), owns_any, "{from:#x}..{to:#x}");
            }
        }
        claims.forget_site(0x1000);
        assert_eq!(claims.dependant(0x1004), None);
        assert_eq!(claims.owner(0x1007), Some(0x1003));
        claims.forget_range(0x1007, 0x2000);
        assert_eq!(claims.owner(0x1003), None);
    }
}
