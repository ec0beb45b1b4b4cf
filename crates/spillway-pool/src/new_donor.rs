//! A donor before it is in the table, and how much room it takes there.

/// Words that the table keeps for each donor.
pub(crate) const DONOR_WORDS: usize = 32;
/// Bytes of the text that can be kept with a donor.
pub const TEXT_BYTES: usize = 16 * 8;

/// A donor as a pool begins with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDonor {
    /// Extents of memory that it lends.
    pub capacity: u32,
    /// Number of its failure domain.
    pub domain: u32,
    /// Where it is reached: kept for those who open the table.
    pub text: String,
}
