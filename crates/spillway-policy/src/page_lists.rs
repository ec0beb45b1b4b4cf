//! Ordered lists of pages, of which each page is on at most one: 9 bytes a page, every operation in constant
//! time.

use crate::machine::PageIndex;

const NONE: u32 = u32::MAX;
const NO_LIST: u8 = u8::MAX;

#[derive(Clone, Copy)]
struct Ends {
    head: u32,
    tail: u32,
    len: u32,
}

/// Doubly linked lists over pages 0, 1, ... The head is where pages enter, the tail where they leave.
pub struct PageLists {
    next: Vec<u32>,
    previous: Vec<u32>,
    list: Vec<u8>,
    ends: Vec<Ends>,
}

impl PageLists {
    /// `lists` empty lists (fewer than 255) of pages below `pages`.
    #[must_use]
    pub fn new(pages: u32, lists: u8) -> Self {
        let pages = pages as usize;
        Self {
            next: vec![NONE; pages],
            previous: vec![NONE; pages],
            list: vec![NO_LIST; pages],
            ends: vec![Ends { head: NONE, tail: NONE, len: 0 }; usize::from(lists)],
        }
    }

    /// Pages on a list.
    #[must_use]
    pub fn len(&self, list: u8) -> u32 {
        self.ends[usize::from(list)].len
    }

    /// Whether a list has no page.
    #[must_use]
    pub fn is_empty(&self, list: u8) -> bool {
        self.len(list) == 0
    }

    /// The list that a page is on.
    #[must_use]
    pub fn list_of(&self, page: PageIndex) -> Option<u8> {
        Some(self.list[page as usize]).filter(|&list| list != NO_LIST)
    }

    /// The page that entered a list first.
    #[must_use]
    pub fn tail(&self, list: u8) -> Option<PageIndex> {
        Some(self.ends[usize::from(list)].tail).filter(|&page| page != NONE)
    }

    /// The page next to `page` on the way from tail to head.
    #[must_use]
    pub fn towards_head(&self, page: PageIndex) -> Option<PageIndex> {
        Some(self.previous[page as usize]).filter(|&page| page != NONE)
    }

    /// Puts a page at the head of a list, from wherever it was.
    pub fn push_head(&mut self, list: u8, page: PageIndex) {
        self.remove(page);
        let ends = &mut self.ends[usize::from(list)];
        self.list[page as usize] = list;
        self.next[page as usize] = ends.head;
        self.previous[page as usize] = NONE;
        match ends.head {
            NONE => ends.tail = page,
            head => self.previous[head as usize] = page,
        }
        ends.head = page;
        ends.len += 1;
    }

    /// Takes the page that entered first.
    pub fn pop_tail(&mut self, list: u8) -> Option<PageIndex> {
        let page = self.tail(list)?;
        self.remove(page);
        Some(page)
    }

    /// Takes a page off its list, if it is on one.
    pub fn remove(&mut self, page: PageIndex) {
        let Some(list) = self.list_of(page) else { return };
        let (next, previous) = (self.next[page as usize], self.previous[page as usize]);
        let ends = &mut self.ends[usize::from(list)];
        match previous {
            NONE => ends.head = next,
            previous => self.next[previous as usize] = next,
        }
        match next {
            NONE => ends.tail = previous,
            next => self.previous[next as usize] = previous,
        }
        ends.len -= 1;
        self.list[page as usize] = NO_LIST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        /// The lists agree with plain deques under any sequence of operations.
        #[test]
        fn agree_with_deques(operations in proptest::collection::vec((0_u8..3, 0_u8..2, 0_u32..16), 0..300)) {
            let mut lists = PageLists::new(16, 2);
            let mut model = [VecDeque::new(), VecDeque::new()];
            for (operation, list, page) in operations {
                match operation {
                    0 => {
                        lists.push_head(list, page);
                        model.iter_mut().for_each(|deque| deque.retain(|&other| other != page));
                        model[usize::from(list)].push_front(page);
                    }
                    1 => prop_assert_eq!(lists.pop_tail(list), model[usize::from(list)].pop_back()),
                    _ => {
                        lists.remove(page);
                        model.iter_mut().for_each(|deque| deque.retain(|&other| other != page));
                    }
                }
                for list in 0..2_u8 {
                    let deque = &model[usize::from(list)];
                    prop_assert_eq!(lists.len(list) as usize, deque.len());
                    let mut seen = Vec::new();
                    let mut at = lists.tail(list);
                    while let Some(page) = at {
                        seen.push(page);
                        at = lists.towards_head(page);
                    }
                    prop_assert_eq!(seen, deque.iter().rev().copied().collect::<Vec<_>>());
                }
            }
        }
    }
}
