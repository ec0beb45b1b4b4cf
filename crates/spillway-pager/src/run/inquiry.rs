//! What a process is asked of its pages from outside, and answers: words of its entry in the run's state.
//!
//! Who asks writes the page, then a number that is new. The process's evictor answers in the words beside it,
//! from what the pager knows, and then notes that number. Nobody waits for an answer but who asks, and that
//! for a bounded time. One asks at a time: the supervisor.

use std::sync::atomic::{AtomicU64, Ordering};

use spillway_core::page_word::{PageInfo, Queue};

/// Pages that are told to leave next.
pub const MOST_NEXT: usize = 12;

const ASKED_AT: usize = 0;
const ANSWERED_AT: usize = 1;
/// A page's number plus one; 0 where none is asked about.
const PAGE_AT: usize = 2;
const WORD_AT: usize = 3;
const NOTES_AT: usize = 4;
const LEFT_AT: usize = 5;
const NEXT_AT: usize = 6;
/// Words of a process's entry that this takes.
pub(super) const INQUIRY_WORDS: usize = NEXT_AT + MOST_NEXT;

/// Who has a page's address under management.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Whose {
    /// Neither: it is no memory, or such as is left alone.
    #[default]
    Nobody,
    /// The pager has it.
    Pager,
    /// It is left to the kernel as long as it fits under the limit.
    Kernel,
}

/// What is told of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageTold {
    /// Who has its address.
    pub whose: Whose,
    /// Where it is now.
    pub info: PageInfo,
    /// Somebody is at it at this moment.
    pub is_busy: bool,
    /// It came along with another: no fault had asked for it.
    pub is_ahead: bool,
    /// How much scans found it in use, 0 to [`spillway_policy::use_history::HIGHEST`]; none where they do not
    /// say.
    pub use_rank: Option<u8>,
    /// Pages that have left since it did, where it is far.
    pub left_since_pages: u64,
}

/// A page that leaves soon: its queue and its number.
pub type Leaving = (Queue, u64);

/// What a process told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Of the page, where one was asked about.
    pub page: Option<PageTold>,
    /// The pages that leave next, as things are.
    pub next: Vec<Leaving>,
}

const NOTE_BUSY: u64 = 1 << 8;
const NOTE_AHEAD: u64 = 1 << 9;
const NOTE_RANKED: u64 = 1 << 10;
const NOTE_WHOSE_SHIFT: u32 = 16;

impl PageTold {
    fn notes(&self) -> u64 {
        let flag = |is_set: bool, flag: u64| if is_set { flag } else { 0 };
        let whose: u64 = match self.whose {
            Whose::Nobody => 0,
            Whose::Pager => 1,
            Whose::Kernel => 2,
        };
        u64::from(self.use_rank.unwrap_or(0))
            | flag(self.use_rank.is_some(), NOTE_RANKED)
            | flag(self.is_busy, NOTE_BUSY)
            | flag(self.is_ahead, NOTE_AHEAD)
            | whose << NOTE_WHOSE_SHIFT
    }

    fn read(word: u64, notes: u64, left_since_pages: u64) -> Self {
        Self {
            whose: match notes >> NOTE_WHOSE_SHIFT {
                1 => Whose::Pager,
                2 => Whose::Kernel,
                _ => Whose::Nobody,
            },
            info: PageInfo::from_bits(word),
            is_busy: notes & NOTE_BUSY != 0,
            is_ahead: notes & NOTE_AHEAD != 0,
            use_rank: (notes & NOTE_RANKED != 0).then_some(notes as u8),
            left_since_pages,
        }
    }
}

fn leaving_word((queue, page_number): Leaving) -> u64 {
    let queue: u64 = match queue {
        Queue::Inactive => 1,
        Queue::Active => 2,
        Queue::Proactive => 3,
    };
    page_number << 2 | queue
}

fn leaving_of(word: u64) -> Option<Leaving> {
    let queue = match word & 3 {
        1 => Queue::Inactive,
        2 => Queue::Active,
        3 => Queue::Proactive,
        _ => return None,
    };
    Some((queue, word >> 2))
}

/// The words by which one process is asked.
#[derive(Clone, Copy)]
pub struct Inquiry<'a>(pub(super) &'a [AtomicU64]);

impl Inquiry<'_> {
    /// Asks; returns the number by which the answer is known.
    pub(super) fn ask(&self, page_number: Option<u64>) -> u64 {
        let number = self.0[ASKED_AT].load(Ordering::Relaxed) + 1;
        self.0[PAGE_AT].store(page_number.map_or(0, |page| page + 1), Ordering::Relaxed);
        self.0[ASKED_AT].store(number, Ordering::Release);
        number
    }

    /// The answer to what was asked by this number; none as long as there is none.
    pub(super) fn answered(&self, number: u64) -> Option<Told> {
        if self.0[ANSWERED_AT].load(Ordering::Acquire) != number {
            return None;
        }
        let word = |at: usize| self.0[at].load(Ordering::Relaxed);
        let has_page = word(PAGE_AT) != 0;
        let page = has_page.then(|| PageTold::read(word(WORD_AT), word(NOTES_AT), word(LEFT_AT)));
        let next = (NEXT_AT..INQUIRY_WORDS).map_while(|at| leaving_of(word(at))).collect();
        Some(Told { page, next })
    }

    /// Whether something was asked that is not answered.
    pub(crate) fn is_open(&self) -> bool {
        self.0[ASKED_AT].load(Ordering::Acquire) != self.0[ANSWERED_AT].load(Ordering::Relaxed)
    }

    /// The page that was asked about, if one was.
    pub(crate) fn page_number(&self) -> Option<u64> {
        self.0[PAGE_AT].load(Ordering::Relaxed).checked_sub(1)
    }

    /// Answers what was asked by the number that stands there before `tell` is called. Who asks anew
    /// meanwhile is answered in the next round.
    pub(crate) fn answer(&self, tell: impl FnOnce(Option<u64>) -> Told) {
        let number = self.0[ASKED_AT].load(Ordering::Acquire);
        let told = tell(self.page_number());
        if let Some(page) = &told.page {
            self.0[WORD_AT].store(page.info.to_bits(), Ordering::Relaxed);
            self.0[NOTES_AT].store(page.notes(), Ordering::Relaxed);
            self.0[LEFT_AT].store(page.left_since_pages, Ordering::Relaxed);
        }
        let next = told.next.into_iter().map(leaving_word).chain(std::iter::repeat(0));
        for (word, next) in self.0[NEXT_AT..INQUIRY_WORDS].iter().zip(next) {
            word.store(next, Ordering::Relaxed);
        }
        self.0[ANSWERED_AT].store(number, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spillway_core::page_word::PageState;

    #[test]
    fn what_was_asked_is_answered_once_and_as_it_was_told() {
        let words: Vec<AtomicU64> = (0..INQUIRY_WORDS).map(|_| AtomicU64::new(0)).collect();
        let inquiry = Inquiry(&words);
        assert!(!inquiry.is_open());
        let state = PageState::Far { slot: 7, left: 9 };
        for (whose, use_rank, is_busy) in
            [(Whose::Pager, Some(21), true), (Whose::Kernel, None, false), (Whose::Nobody, Some(0), false)]
        {
            let number = inquiry.ask(Some(0x1234));
            assert!(inquiry.is_open() && inquiry.answered(number).is_none());
            let page = PageTold {
                whose,
                info: PageInfo { state, generation: 3 },
                is_busy,
                is_ahead: !is_busy,
                use_rank,
                left_since_pages: 640,
            };
            let next = vec![(Queue::Inactive, 5), (Queue::Active, 1 << 35), (Queue::Proactive, 0)];
            let told = Told { page: Some(page), next };
            inquiry.answer(|page_number| {
                assert_eq!(page_number, Some(0x1234));
                told.clone()
            });
            assert!(!inquiry.is_open());
            assert_eq!(inquiry.answered(number), Some(told));
        }
        let number = inquiry.ask(None);
        let most = vec![(Queue::Active, 8); MOST_NEXT];
        inquiry.answer(|page_number| {
            assert_eq!(page_number, None);
            Told { page: None, next: most.clone() }
        });
        assert_eq!(inquiry.answered(number), Some(Told { page: None, next: most }));
        assert_eq!(inquiry.answered(number + 1), None);
    }
}
