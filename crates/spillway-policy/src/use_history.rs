//! How often and how lately a page was used, as scans of accessed bits tell: eleven bits a page. Known as
//! aging (Tanenbaum, "Modern Operating Systems", section 3.4.7). What a history foretells is learned from
//! the program ([`crate::use_forecast`]); [`UseHistory::rank`] is a measure for the eye, and for who does
//! not want to learn.

/// Scans that are remembered.
const SCANS: u32 = 8;
/// Of the scans' bits, the highest one set stands before the first scan since the page came.
const FULL: u16 = 1 << SCANS;
/// The page was far before it came.
const HAS_RETURNED: u16 = FULL << 1;
/// It came along in a stream.
const HAS_STREAMED: u16 = HAS_RETURNED << 1;
/// The bits of what scans found.
const SCANNED: u16 = HAS_RETURNED - 1;

/// How many histories there are.
pub const HISTORIES: usize = 2 * HAS_STREAMED as usize;

/// What the last scans found of a page, the last one lowest, whether it was far before it came, and whether
/// it came along in a stream then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UseHistory(u16);

/// Scans by which a page is ranked, and what use counts, by how many scans ago it was found.
const WEIGHTS: [u8; 6] = [6, 5, 4, 3, 2, 1];

/// The rank of a page of which no two scans have told yet.
pub const UNKNOWN: u8 = u8::MAX;
/// The rank of a page that each of the last scans found used.
pub const HIGHEST: u8 = 21;

impl Default for UseHistory {
    fn default() -> Self {
        Self::NEW
    }
}

impl UseHistory {
    /// A page that has just come for the first time.
    pub const NEW: Self = Self(1);

    /// A page that has just come back from a store.
    pub const RETURNED: Self = Self(HAS_RETURNED | 1);

    /// A page that has just come back in a stream, with others beside it.
    pub const STREAMED: Self = Self(HAS_STREAMED | HAS_RETURNED | 1);

    /// A page that is not to be thought of for a while: as if each of the last scans had found it used.
    pub const IN_USE: Self = Self(FULL | (FULL - 1));

    /// A page that was seen to be used just now: as if the last scan, and no other, had found it used.
    pub const USED_LAST: Self = Self(FULL | 1);

    /// As a table keeps it: 0 is [`Self::NEW`].
    #[must_use]
    pub const fn to_bits(self) -> u16 {
        self.0 ^ Self::NEW.0
    }

    /// The history that [`Self::to_bits`] made these bits of; of others, [`Self::NEW`].
    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        let code = bits ^ Self::NEW.0;
        if code as usize >= HISTORIES || code & SCANNED == 0 { Self::NEW } else { Self(code) }
    }

    /// Its place among all, below [`HISTORIES`].
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// All that there are.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..HISTORIES as u16).filter(|code| code & SCANNED != 0).map(Self)
    }

    /// After a scan. The access that brought a page in sets its bit too, and tells nothing of its use: the
    /// first scan finds nothing.
    #[must_use]
    pub const fn after_scan(self, accessed: bool) -> Self {
        let tells = self.scans() > 0;
        let scans = (self.0 & SCANNED) << 1 | (tells && accessed) as u16;
        let kept = if scans >= HAS_RETURNED { scans & (FULL - 1) | FULL } else { scans };
        Self(self.0 & !SCANNED | kept)
    }

    /// Scans since the page came, up to those that are remembered.
    #[must_use]
    pub const fn scans(self) -> u32 {
        (self.0 & SCANNED).ilog2()
    }

    /// How many of these found it used.
    #[must_use]
    pub const fn uses(self) -> u32 {
        (self.0 & SCANNED).count_ones() - 1
    }

    /// Whether the page came in a stream and was used once since, or not at all, as far as is remembered: it
    /// passes through.
    #[must_use]
    pub const fn passes_through(self) -> bool {
        self.0 & HAS_STREAMED != 0 && self.uses() <= 1
    }

    /// How much the page is in use: 0 for not at all, up to [`HIGHEST`], or [`UNKNOWN`]. One that was used in
    /// many scans ranks above one that was used in the last alone.
    #[must_use]
    pub fn rank(self) -> u8 {
        match self.scans() {
            0 | 1 => UNKNOWN,
            scans => RANKS[usize::from(self.0 & ((1 << (scans - 1).min(WEIGHTS.len() as u32)) - 1))],
        }
    }
}

/// By what the last six scans found, the last one lowest.
const RANKS: [u8; 1 << WEIGHTS.len()] = {
    let mut ranks = [0; 1 << WEIGHTS.len()];
    let mut found = 0;
    while found < ranks.len() {
        let mut scans_ago = 0;
        while scans_ago < WEIGHTS.len() {
            if found >> scans_ago & 1 != 0 {
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
        assert_eq!(UseHistory::USED_LAST.rank(), 6);
    }

    #[test]
    fn bits_make_the_history_that_they_were_made_of() {
        for history in UseHistory::all() {
            assert_eq!(UseHistory::from_bits(history.to_bits()), history);
            let (without, with) = (history.after_scan(false), history.after_scan(true));
            assert_eq!(without == with, history.scans() == 0, "{history:?}");
            assert!(with.index() < HISTORIES && without.index() < HISTORIES);
            assert_eq!(with.scans(), (history.scans() + 1).min(SCANS));
        }
        assert_eq!((UseHistory::default(), UseHistory::NEW.to_bits()), (UseHistory::NEW, 0));
        for bits in 0..=u16::MAX {
            let history = UseHistory::from_bits(bits);
            assert!(history == UseHistory::NEW || history.to_bits() == bits);
        }
    }

    #[test]
    fn what_came_back_is_known_by_that() {
        let (first, again) = (UseHistory::NEW, UseHistory::RETURNED);
        for scans in 0..20 {
            let through = |start: UseHistory| (0..scans).fold(start, |at, scan| at.after_scan(scan % 3 == 1));
            assert_ne!(through(first), through(again));
            assert_eq!(through(first).rank(), through(again).rank());
        }
    }

    #[test]
    fn what_comes_in_a_stream_passes_through_unless_it_is_used_again() {
        let used_in = |scans: &[usize]| {
            (0..9).fold(UseHistory::STREAMED, |at, scan| at.after_scan(scans.contains(&scan)))
        };
        assert!(UseHistory::STREAMED.passes_through() && used_in(&[]).passes_through());
        assert!(used_in(&[4]).passes_through() && !used_in(&[4, 5]).passes_through());
        // Use by which it came, and use that is forgotten.
        assert!(used_in(&[0, 4]).passes_through());
        assert!(!UseHistory::RETURNED.passes_through() && !UseHistory::NEW.passes_through());
        assert_eq!(used_in(&[4]).rank(), after(&[false, true, false, false, false, false]).rank());
    }
}
