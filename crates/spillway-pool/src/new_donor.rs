//! A donor before it is in the table, and how much room it takes there.

/// Words that the table keeps for each donor.
pub(crate) const DONOR_WORDS: usize = 32;
/// Bytes of the text that can be kept with a donor.
pub const TEXT_BYTES: usize = 16 * 8;

/// Number of the failure domain of a pool's last resort: no donor, but a file of the run's own machine.
pub const SPILL_DOMAIN: u32 = u32::MAX - 1;

/// A donor as a pool begins with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDonor {
    /// Extents of memory that it lends.
    pub capacity: u32,
    /// Number of its failure domain; [`SPILL_DOMAIN`] for the last resort, of which a pool has one at most.
    pub domain: u32,
    /// Where it is reached: kept for those who open the table.
    pub text: String,
}
