//! How often and how lately a page was used, as scans of accessed bits tell: a byte a page. Known as aging
//! (Tanenbaum, "Modern Operating Systems", section 3.4.7), but a page that was used in many scans ranks above
//! one that was used in the last alone: so a pass over memory does not take the place of what is in use.

/// What the last seven scans found. Zero is a page that no scan has seen since it came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UseHistory(u8);

/// A scan has seen the page since it came.
const SEEN: u8 = 1;
/// Found used by the last scan; older scans below.
const LAST: u8 = 1 << 7;
/// What use counts, by how many scans ago it was found.
const WEIGHTS: [u8; 7] = [7, 6, 5, 4, 3, 2, 1];

impl UseHistory {
    /// A page that has just come.
    pub const NEW: Self = Self(0);

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
        if self.0 & SEEN == 0 {
            return Self(SEEN);
        }
        let now = if accessed { LAST } else { 0 };
        Self(self.0 >> 1 & !SEEN | now | SEEN)
    }

    /// How much the page is in use: 0 for not at all, as far as is known.
    #[must_use]
    pub fn rank(self) -> u8 {
        RANKS[usize::from(self.0 >> 1)]
    }
}

/// By what the scans found.
const RANKS: [u8; 128] = {
    let mut ranks = [0; 128];
    let mut found = 0;
    while found < ranks.len() {
        let mut scans_ago = 0;
        while scans_ago < WEIGHTS.len() {
            if (found << 1) & LAST as usize >> scans_ago != 0 {
                ranks[found] += WEIGHTS[scans_ago];
            }
            scans_ago += 1;
        }
        found += 1;
    }
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
        assert_eq!(after(&[true]).rank(), 0);
        assert_eq!(after(&[true, false]).rank(), 0);
        assert_eq!(after(&[false, true]).rank(), 7);
    }

    #[test]
    fn use_is_forgotten_after_seven_scans() {
        let mut history = after(&[false, true]);
        let mut ranks = vec![history.rank()];
        for _ in 0..7 {
            history = history.after_scan(false);
            ranks.push(history.rank());
        }
        assert_eq!(ranks, [7, 6, 5, 4, 3, 2, 1, 0]);
    }

    #[test]
    fn use_in_several_scans_outranks_use_in_the_last() {
        let often = after(&[false, true, true, true, false]);
        let lately = after(&[false, false, false, false, true]);
        assert!(often.rank() > lately.rank());
        let always = after(&[true; 9]);
        assert_eq!(always.rank(), WEIGHTS.iter().sum::<u8>());
        assert_eq!(UseHistory::from_byte(always.to_byte()), always);
    }
}
