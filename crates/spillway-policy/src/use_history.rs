//! How often and how lately a page was used, as scans of accessed bits tell: a byte a page. Known as aging
//! (Tanenbaum, "Modern Operating Systems", section 3.4.7), but a page that was used in many scans ranks above
//! one that was used in the last alone: so a pass over memory does not take the place of what is in use.

/// What the last six scans found. Zero is a page that no scan has seen since it came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UseHistory(u8);

/// So many scans have seen the page since it came, up to two.
const SCANS: u8 = 0b11;
/// Found used by the last scan; older scans below.
const LAST: u8 = 1 << 7;
/// What use counts, by how many scans ago it was found.
const WEIGHTS: [u8; 6] = [6, 5, 4, 3, 2, 1];

/// The rank of a page of which no two scans have told yet.
pub const UNKNOWN: u8 = u8::MAX;
/// The rank of a page that each of the last scans found used.
pub const HIGHEST: u8 = 21;

impl UseHistory {
    /// A page that has just come.
    pub const NEW: Self = Self(0);

    /// A page that is not to be thought of for a while: as if each of the last scans had found it used.
    pub const IN_USE: Self = Self(!SCANS | 2);

    /// A page that was seen to be used just now: as if the last scan, and no other, had found it used.
    pub const USED_LAST: Self = Self(LAST | 2);

    /// As a word of a table keeps it.
    #[must_use]
    pub const fn to_byte(self) -> u8 {
        self.0
    }

    /// The history that [`Self::to_byte`] made this byte of.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Self {
        Self(byte)
    }

    /// After a scan. The access that brought a page in sets its bit too, and tells nothing of its use: the
    /// first scan does not count.
    #[must_use]
    pub const fn after_scan(self, accessed: bool) -> Self {
        if self.0 & SCANS == 0 {
            return Self(1);
        }
        let now = if accessed { LAST } else { 0 };
        Self(self.0 >> 1 & !SCANS & !LAST | now | 2)
    }

    /// How much the page is in use: 0 for not at all, up to [`HIGHEST`], or [`UNKNOWN`].
    #[must_use]
    pub fn rank(self) -> u8 {
        if self.0 & SCANS == 2 { RANKS[usize::from(self.0 >> 2)] } else { UNKNOWN }
    }
}

/// By what the scans found.
const RANKS: [u8; 64] = {
    let mut ranks = [0; 64];
    let mut found = 0;
    while found < ranks.len() {
        let mut scans_ago = 0;
        while scans_ago < WEIGHTS.len() {
            if (found << 2) & LAST as usize >> scans_ago != 0 {
                ranks[found] += WEIGHTS[scans_ago];
            }
            scans_ago += 1;
        }
        found += 1;
    }
    assert!(ranks[63] == HIGHEST);
    ranks
};

#[cfg(test)]
mod tests {
    use super::*;

    fn after(scans: &[bool]) -> UseHistory {
        scans.iter().fold(UseHistory::NEW, |history, &accessed| history.after_scan(accessed))
    }

    #[test]
    fn the_first_scan_does_not_count() {
        assert_eq!(
            (after(&[]).rank(), after(&[true]).rank(), after(&[false]).rank()),
            (UNKNOWN, UNKNOWN, UNKNOWN)
        );
        assert_eq!((after(&[true, false]).rank(), after(&[false, true]).rank()), (0, 6));
    }

    #[test]
    fn use_is_forgotten_after_six_scans() {
        let mut history = after(&[false, true]);
        let mut ranks = vec![history.rank()];
        for _ in 0..6 {
            history = history.after_scan(false);
            ranks.push(history.rank());
        }
        assert_eq!(ranks, [6, 5, 4, 3, 2, 1, 0]);
    }

    #[test]
    fn use_in_several_scans_outranks_use_in_the_last() {
        let often = after(&[false, true, true, true, false]);
        let lately = after(&[false, false, false, false, true]);
        assert!(often.rank() > lately.rank());
        let always = after(&[true; 9]);
        assert_eq!((always.rank(), UseHistory::IN_USE), (HIGHEST, always));
        assert_eq!(UseHistory::from_byte(always.to_byte()), always);
    }
}
