//! Calls to blocks as bytes: as [`super::codec`] has the other events.

use std::ops::Range;

use super::block_event::{ElasticCall, Purpose, StreamCall};
use super::bytes::{PAGE_LIMIT, Source, Stop, flag, picked, place, put, put_page, put_runs};
use crate::read_streams::{Answer, Ask, Request};
use crate::streams::{Coming, Direction, Earned};

// What streams were asked.
const EARNED: u8 = 0;
const COMING: u8 = 1;
const ASK: u8 = 2;
const TAKE: u8 = 3;
const MARKER: u8 = 4;

// What elastic blocks were asked.
const LOCK: u8 = 0;
const STRETCH: u8 = 1;
const REDUCE: u8 = 2;
const PART: u8 = 3;
const MEMBERS: u8 = 4;

const PURPOSES: [Purpose; 3] = [Purpose::Fetch, Purpose::Grow, Purpose::Reduce];
const JOINS: [Option<bool>; 3] = [None, Some(false), Some(true)];
/// Pages of a range: nobody has more.
const MOST_PAGES: u64 = PAGE_LIMIT;

/// Writes calls behind each other; pages as their distance from the one before.
pub(super) struct CallEncoder<'a> {
    pub(super) last_page: &'a mut u64,
    pub(super) bytes: &'a mut Vec<u8>,
}

impl CallEncoder<'_> {
    pub(super) fn stream(&mut self, call: &StreamCall) {
        match call {
            StreamCall::Earned { page_number, is_along, far, earned } => {
                let Earned { direction, pages, used_pages, used_zeros } = *earned;
                self.bytes.extend([EARNED, way(direction) | u8::from(*is_along) << 1]);
                self.page(*page_number);
                self.numbers([pages, used_pages, used_zeros]);
                put_runs(far, self.bytes);
            }
            StreamCall::Coming { coming, is_along, far } => {
                let Coming { page_number, direction, wanted_pages, span_pages, ahead_pages, is_zeros } =
                    *coming;
                let how = way(direction) | u8::from(*is_along) << 1 | u8::from(is_zeros) << 2;
                self.bytes.extend([COMING, how]);
                self.page(page_number);
                self.numbers([wanted_pages, span_pages, ahead_pages]);
                put_runs(far, self.bytes);
            }
            StreamCall::Ask { ask, answer } => {
                let Ask { thread, page_number, direction, block, pages, write } = ask;
                let how = way(*direction) | u8::from(*write) << 1 | u8::from(answer.has_cpu) << 2;
                self.bytes.extend([ASK, how, answer.place]);
                put((*thread).into(), self.bytes);
                self.page(*page_number);
                self.range(block);
                put(*pages, self.bytes);
                put(answer.goes_on.into(), self.bytes);
            }
            StreamCall::Take { place, request } => {
                self.bytes.extend([TAKE, *place]);
                self.request(request);
            }
            StreamCall::Marker { request, far, pages } => {
                self.bytes.extend([MARKER, u8::from(pages.is_some())]);
                self.request(request);
                pages.iter().for_each(|pages| self.range(pages));
                put_runs(far, self.bytes);
            }
        }
    }

    pub(super) fn elastic(&mut self, call: &ElasticCall) {
        match call {
            ElasticCall::Lock { page_number, purpose, locked } => {
                self.bytes.extend([LOCK, place(&PURPOSES, purpose) | u8::from(locked.is_some()) << 2]);
                self.page(*page_number);
                locked.iter().for_each(|pages| self.range(pages));
            }
            ElasticCall::Stretch { page_number, joins, buddy } => {
                self.bytes.extend([STRETCH, place(&JOINS, joins) | u8::from(buddy.is_some()) << 2]);
                self.page(*page_number);
                buddy.iter().for_each(|buddy| self.page(*buddy));
            }
            ElasticCall::Reduce { page_number, referenced, is_reduced } => {
                self.bytes.extend([REDUCE, u8::from(*is_reduced)]);
                self.page(*page_number);
                put_runs(referenced, self.bytes);
            }
            ElasticCall::Part { pages } => {
                self.bytes.push(PART);
                self.range(pages);
            }
            ElasticCall::Members { page_number, pages } => {
                self.bytes.push(MEMBERS);
                self.page(*page_number);
                self.range(pages);
            }
        }
    }

    fn page(&mut self, page_number: u64) {
        put_page(page_number, self.last_page, self.bytes);
    }

    fn numbers(&mut self, numbers: [u64; 3]) {
        numbers.into_iter().for_each(|number| put(number, self.bytes));
    }

    fn range(&mut self, pages: &Range<u64>) {
        self.page(pages.start);
        put(pages.end.saturating_sub(pages.start), self.bytes);
    }

    fn request(&mut self, request: &Request) {
        let Request { pages, direction, write } = request;
        self.bytes.push(way(*direction) | u8::from(*write) << 1);
        self.range(pages);
    }
}

fn way(direction: Direction) -> u8 {
    place(&Direction::BOTH, &direction)
}

impl Source<'_> {
    pub(super) fn stream_call(&mut self) -> Result<StreamCall, Stop> {
        Ok(match self.byte()? {
            EARNED => {
                let how = self.byte()?;
                let (direction, is_along) = (picked(&Direction::BOTH, how & 1)?, flag(how >> 1)?);
                let page_number = self.page()?;
                let (pages, used_pages, used_zeros) = (self.word()?, self.word()?, self.word()?);
                let earned = Earned { direction, pages, used_pages, used_zeros };
                StreamCall::Earned { page_number, is_along, earned, far: self.runs()? }
            }
            COMING => {
                let how = self.byte()?;
                let (direction, is_along) = (picked(&Direction::BOTH, how & 1)?, flag(how >> 1 & 1)?);
                let (is_zeros, page_number) = (flag(how >> 2)?, self.page()?);
                let (wanted_pages, span_pages, ahead_pages) = (self.word()?, self.word()?, self.word()?);
                let coming =
                    Coming { page_number, direction, wanted_pages, span_pages, ahead_pages, is_zeros };
                StreamCall::Coming { coming, is_along, far: self.runs()? }
            }
            ASK => {
                let (how, place) = (self.byte()?, self.byte()?);
                let (direction, write) = (picked(&Direction::BOTH, how & 1)?, flag(how >> 1 & 1)?);
                let has_cpu = flag(how >> 2)?;
                let thread = self.number(1 << 32)? as u32;
                let (page_number, block, pages) = (self.page()?, self.range()?, self.word()?);
                let goes_on = flag(self.byte()?)?;
                let ask = Ask { thread, page_number, direction, block, pages, write };
                StreamCall::Ask { ask, answer: Answer { has_cpu, place, goes_on } }
            }
            TAKE => StreamCall::Take { place: self.byte()?, request: self.request()? },
            MARKER => {
                let (is_some, request) = (flag(self.byte()?)?, self.request()?);
                let pages = is_some.then(|| self.range()).transpose()?;
                StreamCall::Marker { request, pages, far: self.runs()? }
            }
            _ => return Err(Stop::Bad),
        })
    }

    pub(super) fn elastic_call(&mut self) -> Result<ElasticCall, Stop> {
        Ok(match self.byte()? {
            LOCK => {
                let how = self.byte()?;
                let (purpose, is_some) = (picked(&PURPOSES, how & 3)?, flag(how >> 2)?);
                let page_number = self.page()?;
                let locked = is_some.then(|| self.range()).transpose()?;
                ElasticCall::Lock { page_number, purpose, locked }
            }
            STRETCH => {
                let how = self.byte()?;
                let (joins, is_some) = (picked(&JOINS, how & 3)?, flag(how >> 2)?);
                let page_number = self.page()?;
                let buddy = is_some.then(|| self.page()).transpose()?;
                ElasticCall::Stretch { page_number, joins, buddy }
            }
            REDUCE => {
                let is_reduced = flag(self.byte()?)?;
                ElasticCall::Reduce { page_number: self.page()?, is_reduced, referenced: self.runs()? }
            }
            PART => ElasticCall::Part { pages: self.range()? },
            MEMBERS => ElasticCall::Members { page_number: self.page()?, pages: self.range()? },
            _ => return Err(Stop::Bad),
        })
    }

    fn range(&mut self) -> Result<Range<u64>, Stop> {
        let start = self.page()?;
        Ok(start..start + self.number(MOST_PAGES)?)
    }

    fn request(&mut self) -> Result<Request, Stop> {
        let how = self.byte()?;
        let (direction, write) = (picked(&Direction::BOTH, how & 1)?, flag(how >> 1)?);
        Ok(Request { pages: self.range()?, direction, write })
    }
}
