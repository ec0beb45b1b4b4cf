//! How a pool's pages outlive donors: as copies, or coded.

/// How pages are coded (`?data=K&parity=M`): each whole on one donor, and recovered from any K of K+M.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// Parts that are pages as they are.
    pub data: usize,
    /// Parts that are computed of them: so many donors may die.
    pub parity: usize,
}

impl Code {
    /// Where nobody says how pages are coded.
    pub const USUAL: Self = Self { data: 4, parity: 2 };

    /// Donors that fail apart and that it needs.
    #[must_use]
    pub fn parts(self) -> usize {
        self.data + self.parity
    }
}

/// How a page outlives the donors that it is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Redundancy {
    /// Nobody says it: [coded](Code::USUAL) where so many donors fail apart and have no less room by it,
    /// [two copies](Self::USUAL_COPIES) elsewhere. Found out when the run begins.
    #[default]
    Unsaid,
    /// So many copies, each on another donor.
    Copies {
        /// On how many donors a page is.
        copies: usize,
        /// On how many it must be for its write to count.
        least: usize,
    },
    /// Coded, in place of copies.
    Coded(Code),
}

impl Redundancy {
    /// Copies where nobody says how many, and pages are not coded.
    pub const USUAL_COPIES: Self = Self::Copies { copies: 2, least: 1 };

    /// Donors that fail apart and among which a page is spread, at least.
    #[must_use]
    pub fn width(self) -> usize {
        match self {
            Self::Unsaid => Self::USUAL_COPIES.width(),
            Self::Copies { copies, .. } => copies,
            Self::Coded(code) => code.parts(),
        }
    }

    /// Donors that may die at once and no page is lost.
    #[must_use]
    pub fn losses(self) -> usize {
        self.width() - self.code().map_or(1, |code| code.data)
    }

    /// How its pages are coded, if they are.
    #[must_use]
    pub fn code(self) -> Option<Code> {
        match self {
            Self::Coded(code) => Some(code),
            Self::Unsaid | Self::Copies { .. } => None,
        }
    }
}
