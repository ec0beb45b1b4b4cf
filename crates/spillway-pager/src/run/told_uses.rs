//! Accessed bits for processes that do not read them themselves. A server often gives up root as it starts,
//! and with it the right; and a family of processes need not find out one by one how they are read. The
//! supervisor tells each process of its own pages, as asked over the process's connection ([`rendezvous`]).
//!
//! What is told is as good as what a process reads for itself: a guess. A process that asks wrongly, or does
//! not listen, harms only itself: the supervisor looks at nobody's pages but the asker's, and waits for
//! nobody.

use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use spillway_sys::accesses::AccessesOfOthers;
use spillway_sys::page_tables::PageTablesError;

use crate::kernel::Look;
use crate::run::rendezvous::{self, FromProcess, Question};

/// Asked for at once, at most.
pub const MOST_PAGES: usize = 1 << 14;

/// How long the supervisor may take. It reaps meanwhile, or the machine is busy: then a scan has a gap.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// What the supervisor says.
#[derive(Debug, Serialize, Deserialize)]
pub struct Answer {
    number: u64,
    told: Told,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Told {
    Uses(Uses),
    /// The process was not found, as can happen while others begin and end.
    NotNow,
    /// The supervisor may not read them either, or the kernel has no way to.
    Never,
}

/// A bit for each page asked for.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Uses {
    mapped: Vec<u64>,
    accessed: Vec<u64>,
}

impl Uses {
    fn none_of(pages: usize) -> Self {
        let words = vec![0; pages.min(MOST_PAGES).div_ceil(64)];
        Self { mapped: words.clone(), accessed: words }
    }

    fn note(&mut self, page: usize, accessed: bool) {
        self.mapped[page / 64] |= 1 << (page % 64);
        self.accessed[page / 64] |= u64::from(accessed) << (page % 64);
    }

    fn tell(&self, first_page: u64, pages: usize, visit: &mut dyn FnMut(u64, bool)) {
        let is_set = |words: &[u64], page: usize| {
            words.get(page / 64).is_some_and(|word| word >> (page % 64) & 1 == 1)
        };
        (0..pages)
            .filter(|&page| is_set(&self.mapped, page))
            .for_each(|page| visit(first_page + page as u64, is_set(&self.accessed, page)));
    }
}

/// The supervisor's side: reads, and answers.
#[derive(Default)]
pub(crate) enum Teller {
    /// Nobody has asked yet.
    #[default]
    Untried,
    /// The supervisor may read them.
    Reads(Box<AccessesOfOthers>),
    /// It may not, or the kernel has no way to.
    Unavailable,
}

impl Teller {
    /// Answers process `pid`, of whose pages alone it tells.
    pub(crate) fn answer(&mut self, pid: u32, question: &Question) -> Answer {
        if let Self::Untried = self {
            let opened = AccessesOfOthers::open();
            *self = opened.map_or(Self::Unavailable, |source| Self::Reads(Box::new(source)));
        }
        let Question { number, first_page, pages } = *question;
        let end_page = first_page.saturating_add(pages.min(MOST_PAGES) as u64);
        let mut uses = Uses::none_of(pages);
        let mut note = |page, accessed| uses.note((page - first_page) as usize, accessed);
        let told = match self {
            Self::Reads(source) => match source.walk(pid, first_page..end_page, &mut note) {
                Ok(()) => Told::Uses(uses),
                Err(PageTablesError::Gone(_)) => Told::NotNow,
                Err(_) => Told::Never,
            },
            Self::Untried | Self::Unavailable => Told::Never,
        };
        Answer { number, told }
    }

    /// Process `pid` has ended.
    pub(crate) fn forget(&mut self, pid: u32) {
        if let Self::Reads(source) = self {
            source.forget(pid);
        }
    }
}

/// A process's side: asks, and waits.
#[derive(Default)]
pub struct Asker {
    asked: u64,
}

impl Asker {
    /// Tells `visit` of those of `pages` pages from `first_page` on that are mapped, by number, and whether
    /// each was accessed.
    pub fn ask(
        &mut self,
        supervisor: BorrowedFd<'_>,
        first_page: u64,
        pages: usize,
        visit: &mut dyn FnMut(u64, bool),
    ) -> Look {
        self.asked += 1;
        let question = Question { number: self.asked, first_page, pages };
        if rendezvous::send_now(supervisor, &FromProcess::WhichUsed(question)).is_err() {
            return Look::NotNow;
        }
        loop {
            let mut polled = [PollFd::from_borrowed_fd(supervisor, PollFlags::IN)];
            if !poll(&mut polled, Some(&PATIENCE)).is_ok_and(|ready| ready > 0) {
                return Look::NotNow;
            }
            let Ok(Some((answer, _))) = rendezvous::receive::<Answer>(supervisor) else { return Look::Never };
            match answer.told {
                _ if answer.number != self.asked => {}
                Told::Uses(uses) => {
                    uses.tell(first_page, pages, visit);
                    return Look::Told;
                }
                Told::NotNow => return Look::NotNow,
                Told::Never => return Look::Never,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};
    use std::sync::atomic::Ordering;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use spillway_core::page::PAGE_SIZE;
    use spillway_sys::memory::Area;

    use super::*;
    use crate::pages::address::page_number_of;

    fn connection() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    fn ask(supervisor: &OwnedFd, first_page: u64, pages: usize) -> (Look, Vec<u64>) {
        let mut told = Vec::new();
        let look = Asker::default().ask(supervisor.as_fd(), first_page, pages, &mut |page, accessed| {
            assert!(accessed, "a page that was just written");
            told.push(page - first_page);
        });
        (look, told)
    }

    fn hear(process: &OwnedFd) -> Question {
        match rendezvous::receive::<FromProcess>(process).unwrap() {
            Some((FromProcess::WhichUsed(question), _)) => question,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_process_is_told_of_its_own_pages() {
        let area = Area::new(100 * PAGE_SIZE).unwrap();
        let first_page = page_number_of(area.address());
        for page in [0, 63, 64, 99] {
            area.words(page * PAGE_SIZE, 1)[0].store(1, Ordering::Relaxed);
        }
        let (supervisor, process) = connection();
        let told = std::thread::scope(|scope| {
            let asker = scope.spawn(|| ask(&supervisor, first_page, 100));
            let answer = Teller::default().answer(std::process::id(), &hear(&process));
            // An answer that came too late is passed over.
            rendezvous::send_now(&process, &Answer { number: 0, told: Told::Never }).unwrap();
            rendezvous::send_now(&process, &answer).unwrap();
            asker.join().unwrap()
        });
        assert!(matches!(told.0, Look::Told), "{:?}", told.0);
        assert_eq!(told.1, [0, 63, 64, 99]);
    }

    #[test]
    fn who_has_no_right_or_is_gone_is_told_nothing() {
        let question = Question { number: 1, first_page: 1 << 20, pages: 10 };
        assert_eq!(Teller::Unavailable.answer(std::process::id(), &question).told, Told::Never);
        let mut teller = Teller::default();
        assert_eq!(teller.answer(u32::MAX, &question).told, Told::NotNow);
        // Questions of nonsense: beyond the program's addresses, and longer than may be asked.
        for first_page in [1 << 35, u64::MAX - 3, 0] {
            let question = Question { number: 2, first_page, pages: usize::MAX };
            let told = teller.answer(std::process::id(), &question).told;
            let Told::Uses(uses) = told else { panic!("{told:?}") };
            assert_eq!(uses.mapped.len(), MOST_PAGES / 64);
            assert!(uses.mapped.iter().all(|&word| word == 0) || first_page == 0);
        }
    }

    #[test]
    fn without_an_answer_the_scan_goes_on() {
        let (supervisor, process) = connection();
        assert!(matches!(ask(&supervisor, 1, 1), (Look::NotNow, told) if told.is_empty()));
        drop(process);
        assert!(matches!(ask(&supervisor, 1, 1).0, Look::NotNow | Look::Never));
    }
}
