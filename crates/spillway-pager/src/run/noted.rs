//! What programs' pagers have to tell, for the supervisor to make events of: a ring of notices in the run's
//! state.
//!
//! A pager says its line on the program's own standard error; here the same stands with its name and its
//! reason. Writers wait for nobody and allocate nothing. One that is killed leaves its notice unfinished, and
//! ones that are faster than the reader overwrite each other: the reader believes a notice by its checksum,
//! and counts what it has missed.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use spillway_store::{Notice, NoticeKind};

/// Notices that may lie unread.
const PLACES: usize = 16;
const PLACE_WORDS: usize = 64;

/// Words of a place, by index.
const TICKET_AT: usize = 0;
const CHECKSUM_AT: usize = 1;
/// The kind, and the process.
const WHAT_AT: usize = 2;
const NUMBER_AT: usize = 3;
/// Of the text: its length, and where in it stands what it is about, and the reason.
const LENGTH_AT: usize = 4;
const PARTS_AT: usize = 5;
const TEXT_AT: usize = 6;
const TEXT_BYTES: usize = (PLACE_WORDS - TEXT_AT) * 8;

/// Words that it takes.
pub(super) const NOTICE_WORDS: usize = PLACE_WORDS * (PLACES + 1);

/// The notices of a run.
#[derive(Clone, Copy)]
pub struct Notices<'a>(pub(super) &'a [AtomicU64]);

/// A notice as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noted {
    /// The process whose pager noted it.
    pub pid: u32,
    kind: NoticeKind,
    number: u64,
    text: String,
    about: Range<usize>,
    reason: Range<usize>,
}

impl Noted {
    /// What the notice says.
    #[must_use]
    pub fn notice(&self) -> Notice<'_> {
        let part = |range: &Range<usize>| self.text.get(range.clone()).unwrap_or_default();
        Notice {
            kind: self.kind,
            about: part(&self.about),
            reason: part(&self.reason),
            number: self.number,
            text: &self.text,
        }
    }
}

impl Notices<'_> {
    fn next_ticket(&self) -> &AtomicU64 {
        &self.0[PLACES * PLACE_WORDS]
    }

    fn place(&self, ticket: u64) -> &[AtomicU64] {
        let start = ticket as usize % PLACES * PLACE_WORDS;
        &self.0[start..start + PLACE_WORDS]
    }

    /// Notes something of process `pid`, as much as there is place for.
    pub fn put(&self, pid: u32, notice: &Notice<'_>) {
        let text = &notice.text[..notice.text.floor_char_boundary(TEXT_BYTES)];
        let mut words = [0; PLACE_WORDS];
        words[WHAT_AT] = u64::from(pid) << 8 | notice.kind as u64;
        words[NUMBER_AT] = notice.number;
        words[LENGTH_AT] = text.len() as u64;
        words[PARTS_AT] = word_of(text, notice.about) << 32 | word_of(text, notice.reason);
        for (word, bytes) in words[TEXT_AT..].iter_mut().zip(text.as_bytes().chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(whole);
        }
        let ticket = self.next_ticket().fetch_add(1, Ordering::Relaxed);
        words[CHECKSUM_AT] = checksum(ticket, &words);
        let place = self.place(ticket);
        place[TICKET_AT].store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        for (at, word) in words.iter().enumerate().skip(TICKET_AT + 1) {
            place[at].store(*word, Ordering::Relaxed);
        }
        place[TICKET_AT].store(ticket + 1, Ordering::Release);
    }

    /// The notice of this number; `None` where it is unfinished, or another lies there by now.
    fn read(&self, ticket: u64) -> Option<Noted> {
        let place = self.place(ticket);
        if place[TICKET_AT].load(Ordering::Acquire) != ticket + 1 {
            return None;
        }
        let words: [u64; PLACE_WORDS] = std::array::from_fn(|at| place[at].load(Ordering::Relaxed));
        if words[CHECKSUM_AT] != checksum(ticket, &words) {
            return None;
        }
        let bytes: Vec<u8> = words[TEXT_AT..].iter().flat_map(|word| word.to_le_bytes()).collect();
        let text = bytes.get(..usize::try_from(words[LENGTH_AT]).ok()?)?;
        Some(Noted {
            pid: (words[WHAT_AT] >> 8) as u32,
            kind: *NoticeKind::ALL.get((words[WHAT_AT] & 0xff) as usize)?,
            number: words[NUMBER_AT],
            text: String::from_utf8_lossy(text).into_owned(),
            about: range_of(words[PARTS_AT] >> 32),
            reason: range_of(words[PARTS_AT]),
        })
    }
}

/// Where a part of the text stands in it, in 32 bits; nowhere is its beginning, with no length.
fn word_of(text: &str, part: &str) -> u64 {
    match text.find(part) {
        Some(from) if !part.is_empty() => (from as u64) << 16 | part.len() as u64,
        _ => 0,
    }
}

fn range_of(word: u64) -> Range<usize> {
    let (from, length) = ((word >> 16 & 0xffff) as usize, (word & 0xffff) as usize);
    from..from + length
}

/// Against accidents: two writers of one place.
fn checksum(ticket: u64, words: &[u64; PLACE_WORDS]) -> u64 {
    let fold = |sum: u64, word: &u64| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    words[WHAT_AT..].iter().fold(ticket, fold)
}

/// Who reads them, each once.
#[derive(Debug, Default)]
pub struct Reader {
    next_ticket: u64,
    /// It was unfinished when it was looked at last.
    awaited: Option<u64>,
}

impl Reader {
    /// Reads what has come since the last call; how many were missed. A notice that is unfinished is waited
    /// for until the next call.
    pub fn look(&mut self, notices: Notices<'_>, mut hear: impl FnMut(&Noted)) -> u64 {
        let end = notices.next_ticket().load(Ordering::Acquire);
        // Nobody but a damaged program could count backwards.
        let first = self.next_ticket.min(end).max(end.saturating_sub(PLACES as u64));
        let mut missed = first.saturating_sub(self.next_ticket);
        self.next_ticket = end;
        for ticket in first..end {
            match notices.read(ticket) {
                Some(noted) => hear(&noted),
                None if self.awaited != Some(ticket) => {
                    (self.next_ticket, self.awaited) = (ticket, Some(ticket));
                    break;
                }
                None => missed += 1,
            }
        }
        missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> Vec<AtomicU64> {
        (0..NOTICE_WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    fn heard(reader: &mut Reader, notices: Notices<'_>) -> (Vec<Noted>, u64) {
        let mut all = Vec::new();
        let missed = reader.look(notices, |noted| all.push(noted.clone()));
        (all, missed)
    }

    #[test]
    fn each_notice_is_read_once_with_its_parts() {
        let words = memory();
        let (notices, mut reader) = (Notices(&words), Reader::default());
        let text = "store nbd://a: no answer; who needs its pages waits";
        let away = Notice::new(NoticeKind::StoreAway, text).about("nbd://a").because("no answer").number(59);
        notices.put(77, &away);
        notices.put(78, &Notice::new(NoticeKind::ProgramStopped, "").because("of something else"));
        let (all, missed) = heard(&mut reader, notices);
        assert_eq!((all.len(), missed), (2, 0));
        assert_eq!((all[0].pid, all[0].notice()), (77, away));
        assert_eq!(all[1].notice(), Notice::new(NoticeKind::ProgramStopped, ""));
        assert_eq!(heard(&mut reader, notices), (vec![], 0));
    }

    #[test]
    fn a_long_text_is_cut_between_letters() {
        let words = memory();
        let notices = Notices(&words);
        let long = "ä".repeat(TEXT_BYTES);
        notices.put(1, &Notice::new(NoticeKind::Other, &format!("a{long}")).because(&long));
        let (all, _) = heard(&mut Reader::default(), notices);
        let text = all[0].notice().text;
        assert_eq!((text.len(), text.chars().count()), (TEXT_BYTES - 1, TEXT_BYTES / 2));
        assert_eq!(all[0].notice().reason, "", "it does not stand there as a whole");
    }

    #[test]
    fn what_was_overwritten_is_counted_and_what_is_unfinished_or_mixed_is_not_believed() {
        let words = memory();
        let (notices, mut reader) = (Notices(&words), Reader::default());
        (0..40).for_each(|number| notices.put(1, &Notice::new(NoticeKind::Other, "a").number(number)));
        let (all, missed) = heard(&mut reader, notices);
        assert_eq!((all.len(), missed), (PLACES, 40 - PLACES as u64));
        assert_eq!(all[0].notice().number, 24);
        // A writer of ticket 40 was killed, and one of 42 has written over half of another's.
        notices.next_ticket().fetch_add(1, Ordering::Relaxed);
        notices.put(1, &Notice::new(NoticeKind::Other, "b"));
        notices.put(1, &Notice::new(NoticeKind::Other, "c"));
        notices.place(42)[TEXT_AT].store(7, Ordering::Relaxed);
        notices.put(1, &Notice::new(NoticeKind::Other, "d"));
        assert_eq!(heard(&mut reader, notices), (vec![], 0), "it may be finished yet");
        let (all, missed) = heard(&mut reader, notices);
        assert_eq!((all.len(), all[0].notice().text, missed), (1, "b", 1));
        let (all, missed) = heard(&mut reader, notices);
        assert_eq!((all.len(), all[0].notice().text, missed), (1, "d", 1));
        // A program that is out of its mind takes nobody with it.
        notices.next_ticket().store(3, Ordering::Relaxed);
        assert_eq!(heard(&mut reader, notices).1, 0);
    }

    #[test]
    fn writers_beside_each_other_and_a_reader_give_whole_notices() {
        let words = memory();
        let notices = Notices(&words);
        let text = |number: u64| format!("notice {number} of {}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        std::thread::scope(|scope| {
            for writer in 0..3 {
                let put = move |number: u64| {
                    notices.put(9, &Notice::new(NoticeKind::Other, &text(number)).number(number));
                };
                scope.spawn(move || (0..2_000).map(|turn| turn * 3 + writer).for_each(put));
            }
            let (mut reader, mut heard, mut missed) = (Reader::default(), 0, 0);
            while heard + missed < 6_000 {
                missed += reader.look(notices, |noted| {
                    assert_eq!(noted.notice().text, text(noted.notice().number));
                    heard += 1;
                });
            }
        });
    }
}
