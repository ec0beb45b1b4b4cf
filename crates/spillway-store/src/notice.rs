//! What there is to tell of stores and of pages, for people and for whoever counts.

/// The kinds of what can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NoticeKind {
    /// Something that has no name of its own.
    Other,
    /// A program gets SIGBUS, for a page cannot be had. The number is the page's address.
    PageRefused,
    /// A read failed or came wrong, and is made again.
    PageReadAgain,
    /// A store had no room for a page.
    StoreFull,
    /// A store did not take a page.
    StoreFailed,
    /// The last store is nearly full.
    StoreNearlyFull,
    /// A fork was refused.
    ForkRefused,
    /// A program was stopped before it would have read wrong data.
    ProgramStopped,
    /// A store does not answer. The number is the seconds until it is given up.
    StoreAway,
    /// A store answers again.
    StoreBack,
    /// A store takes no further connection.
    StoreCrowded,
    /// Another run has taken a store's export.
    StoreTaken,
    /// A store is given up.
    StoreGone,
    /// A donor of a pool does not answer.
    DonorAway,
    /// A donor of a pool answers again.
    DonorBack,
    /// A donor of a pool has lost what it held.
    DonorLost,
    /// A donor has come. The number is the bytes that it lends.
    DonorJoined,
    /// A donor of the pool is not used.
    DonorUnused,
    /// A donor is being drained.
    DonorDraining,
    /// A donor's machine is short of memory.
    DonorShort,
    /// A donor is drained no more.
    DonorStays,
    /// Nothing of the run is left on a donor that is drained.
    DonorDrained,
    /// A donor that is drained cannot be left. The number is the bytes that are left there.
    DonorStuck,
    /// Pages have fewer copies or parts than they should. The number is their bytes.
    PagesInDanger,
    /// All pages have as many as they should.
    PagesSafe,
    /// Pages stay with fewer, for want of room. The number is their bytes.
    PagesStuck,
    /// Pages are lost with their donors. The number is their bytes.
    PagesLost,
    /// The pool's etcd does not answer.
    DirectoryAway,
    /// The pool's etcd answers again.
    DirectoryBack,
}

impl NoticeKind {
    /// All of them, each at the place of its number.
    pub const ALL: [Self; 29] = [
        Self::Other,
        Self::PageRefused,
        Self::PageReadAgain,
        Self::StoreFull,
        Self::StoreFailed,
        Self::StoreNearlyFull,
        Self::ForkRefused,
        Self::ProgramStopped,
        Self::StoreAway,
        Self::StoreBack,
        Self::StoreCrowded,
        Self::StoreTaken,
        Self::StoreGone,
        Self::DonorAway,
        Self::DonorBack,
        Self::DonorLost,
        Self::DonorJoined,
        Self::DonorUnused,
        Self::DonorDraining,
        Self::DonorShort,
        Self::DonorStays,
        Self::DonorDrained,
        Self::DonorStuck,
        Self::PagesInDanger,
        Self::PagesSafe,
        Self::PagesStuck,
        Self::PagesLost,
        Self::DirectoryAway,
        Self::DirectoryBack,
    ];
}

/// Something that is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice<'a> {
    /// What has happened, by its kind.
    pub kind: NoticeKind,
    /// Which store, donor or donors it is about; else empty.
    pub about: &'a str,
    /// Why, where there is something to say; else empty.
    pub reason: &'a str,
    /// What the kind says that it is; else 0.
    pub number: u64,
    /// The same as a sentence for people, on one line.
    pub text: &'a str,
}

/// Somebody who is told notices.
pub type Tell = fn(&Notice<'_>);

impl<'a> Notice<'a> {
    /// What has happened, as a sentence.
    #[must_use]
    pub fn new(kind: NoticeKind, text: &'a str) -> Self {
        Self { kind, about: "", reason: "", number: 0, text }
    }

    /// Which store, donor or donors it is about.
    #[must_use]
    pub fn about(self, about: &'a str) -> Self {
        Self { about, ..self }
    }

    /// Why it is so.
    #[must_use]
    pub fn because(self, reason: &'a str) -> Self {
        Self { reason, ..self }
    }

    /// The number that this kind has.
    #[must_use]
    pub fn number(self, number: u64) -> Self {
        Self { number, ..self }
    }
}

/// A sentence that has no name of its own.
impl<'a> From<&'a String> for Notice<'a> {
    fn from(text: &'a String) -> Self {
        Self::new(NoticeKind::Other, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_stands_at_the_place_of_its_number() {
        let numbers: Vec<usize> = NoticeKind::ALL.iter().map(|kind| *kind as usize).collect();
        assert_eq!(numbers, (0..NoticeKind::ALL.len()).collect::<Vec<_>>());
    }
}
