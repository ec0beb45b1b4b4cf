//! Numbers, pages and runs as bytes: what the events of a fault trace are made of.

use spillway_core::fifo::Entry;

use super::runs::Runs;

/// Pages are numbered below this: what an entry of a queue has room for.
pub(super) const PAGE_LIMIT: u64 = 1 << 57;
/// Runs of one event at most: more than the queues of any machine have entries.
const MOST_RUNS: u64 = 1 << 32;

pub(super) fn place<T: PartialEq>(all: &[T], one: &T) -> u8 {
    all.iter().position(|other| other == one).unwrap_or_default() as u8
}

pub(super) fn put_runs(runs: &Runs, bytes: &mut Vec<u8>) {
    put(runs.0.len() as u64, bytes);
    for &(number, count) in &runs.0 {
        bytes.push(number);
        put(count, bytes);
    }
}

pub(super) fn put(mut word: u64, bytes: &mut Vec<u8>) {
    while word >= 0x80 {
        bytes.push(word as u8 | 0x80);
        word >>= 7;
    }
    bytes.push(word as u8);
}

/// A page, by its distance from the one before.
pub(super) fn put_page(page_number: u64, last_page: &mut u64, bytes: &mut Vec<u8>) {
    let distance = page_number.wrapping_sub(*last_page) as i64;
    *last_page = page_number;
    put((distance << 1 ^ distance >> 63) as u64, bytes);
}

/// Why no event can be read.
pub(super) enum Stop {
    /// It goes on in what has not come yet.
    More,
    /// It makes no sense.
    Bad,
}

/// Where an event is read from.
pub(super) struct Source<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
    pub(super) last_page: u64,
}

impl Source<'_> {
    pub(super) fn byte(&mut self) -> Result<u8, Stop> {
        let &byte = self.bytes.get(self.at).ok_or(Stop::More)?;
        self.at += 1;
        Ok(byte)
    }

    pub(super) fn word(&mut self) -> Result<u64, Stop> {
        let mut word = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                break;
            }
            word |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(word);
            }
        }
        Err(Stop::Bad)
    }

    pub(super) fn number(&mut self, limit: u64) -> Result<u64, Stop> {
        Some(self.word()?).filter(|&number| number < limit).ok_or(Stop::Bad)
    }

    pub(super) fn one_of<T: Copy>(&mut self, all: &[T]) -> Result<T, Stop> {
        let byte = self.byte()?;
        picked(all, byte)
    }

    pub(super) fn page(&mut self) -> Result<u64, Stop> {
        let word = self.word()?;
        let distance = (word >> 1) as i64 ^ -((word & 1) as i64);
        let page_number = self.last_page.wrapping_add(distance as u64);
        if page_number >= PAGE_LIMIT {
            return Err(Stop::Bad);
        }
        self.last_page = page_number;
        Ok(page_number)
    }

    pub(super) fn entry(&mut self) -> Result<Entry, Stop> {
        let page_number = self.page()?;
        let generation = Some(self.byte()?).filter(|&byte| byte < 0x80).ok_or(Stop::Bad)?;
        Ok(Entry { page_number, generation })
    }

    /// No more memory than the bytes themselves take, whatever they say.
    pub(super) fn runs(&mut self) -> Result<Runs, Stop> {
        let count = self.number(MOST_RUNS)?;
        let mut runs = Vec::new();
        for _ in 0..count {
            runs.push((self.byte()?, self.word()?));
        }
        Ok(Runs(runs))
    }
}

pub(super) fn picked<T: Copy>(all: &[T], number: u8) -> Result<T, Stop> {
    all.get(usize::from(number)).copied().ok_or(Stop::Bad)
}

pub(super) fn flag(byte: u8) -> Result<bool, Stop> {
    picked(&[false, true], byte)
}
