//! Who owns which piece of the arena: an allocator without locks, in memory that several processes share and
//! in which any of them may be killed between any two instructions.
//!
//! The arena is cut into spans; a span in use serves one [`Class`]. A span's *state* is one word: class,
//! count of objects taken, and whether it is being retired; a free span's is 0. Its *bitmap* says which
//! objects are taken.
//!
//! - To allocate, first count one object up in a state with the right class and room, then claim a clear bit.
//!   There is one, because bits are cleared before they are counted down.
//! - To free, clear the bit, then count down. Who would count down to 0 sets the state to *empty* instead:
//!   the span is then theirs alone. They leave it, with its memory, in a *warm* place, whence the next one
//!   who needs a span takes it; or, when these are taken, give its memory back and set the state to 0.
//!
//! Hence count >= bits set, always. Whoever dies in between leaves a count too high (an object, or an empty
//! span, is lost until the run ends), never one too low (an object with two owners).
//!
//! *Hints* are bitmaps of spans worth trying. A wrong one costs time only: before it says that there is no
//! room, an allocation looks at every state.

use std::sync::atomic::{AtomicU64, Ordering};

use super::classes::{CLASSES, Class};

/// Words of bitmap for a span: a bit for each object of the smallest class.
pub const BITMAP_WORDS: usize = 16;

/// Rounds through a bitmap after which it is taken for damaged, where one bit at least should be clear.
const ROUNDS: usize = 100;

/// An atomic word, with the orderings that the allocator needs: what was done before a word was changed is
/// seen by who sees the change. (A trait, so that loom's words can stand in.)
pub trait Word {
    /// Its value.
    fn get(&self) -> u64;
    /// Changes it. Only for who has the word to itself.
    fn put(&self, value: u64);
    /// Changes it from `current` to `new`; tells the value found where it is another.
    fn replace(&self, current: u64, new: u64) -> Result<(), u64>;
    /// Sets bits; tells the value before.
    fn set(&self, bits: u64) -> u64;
    /// Clears bits; tells the value before.
    fn clear(&self, bits: u64) -> u64;
    /// Changes it to 0; tells the value before.
    fn take(&self) -> u64 {
        self.clear(u64::MAX)
    }
}

impl Word for AtomicU64 {
    fn get(&self) -> u64 {
        self.load(Ordering::Acquire)
    }

    fn put(&self, value: u64) {
        self.store(value, Ordering::Release);
    }

    fn replace(&self, current: u64, new: u64) -> Result<(), u64> {
        self.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire).map(drop)
    }

    fn set(&self, bits: u64) -> u64 {
        self.fetch_or(bits, Ordering::AcqRel)
    }

    fn clear(&self, bits: u64) -> u64 {
        self.fetch_and(!bits, Ordering::AcqRel)
    }
}

/// A span's state, unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    /// Serves a class; so many objects are taken, at least one.
    Serving(Class, u64),
    /// Holds nothing, and belongs to who emptied it, or to the warm place that names it.
    Empty,
    /// No value that is ever written.
    Damaged,
}

impl State {
    const COUNT_BITS: u32 = 16;
    const EMPTY: u64 = 1 << 63;

    fn unpack(word: u64) -> Self {
        match word {
            0 => Self::Free,
            Self::EMPTY => Self::Empty,
            _ => {
                let count = word & ((1 << Self::COUNT_BITS) - 1);
                let class = (word >> Self::COUNT_BITS).checked_sub(1).and_then(Class::numbered);
                class.filter(|_| count > 0).map_or(Self::Damaged, |class| Self::Serving(class, count))
            }
        }
    }

    fn serving(class: Class, count: u64) -> u64 {
        ((class.number() as u64 + 1) << Self::COUNT_BITS) | count
    }

    fn has_room_for(self, class: Class) -> bool {
        matches!(self, Self::Serving(served, count)
            if served == class && count < class.objects_per_span() as u64)
    }
}

/// A piece of the arena that somebody owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Object {
    /// The span it lies in.
    pub span: u32,
    /// Its number in the span.
    pub index: u16,
    /// The class that the span serves.
    pub class: Class,
}

/// A lane's last span for each class, where it tries first.
pub type Homes = [u32; CLASSES];

/// Homes of a lane that has not allocated yet.
pub const NO_HOMES: Homes = [u32::MAX; CLASSES];

/// The allocator's words, wherever they lie.
#[derive(Clone, Copy)]
pub struct Spans<'a, W> {
    /// One a span.
    pub states: &'a [W],
    /// [`BITMAP_WORDS`] a span.
    pub bitmaps: &'a [W],
    /// A bit a span: probably free, though once used.
    pub free_hints: &'a [W],
    /// For each class [`hint_words`] words, a bit a span: probably has room.
    pub room_hints: &'a [W],
    /// Each names an empty span that still has its memory (its number + 1), or none (0).
    pub warm: &'a [W],
    /// Spans from this number on were never used.
    pub fresh: &'a W,
}

/// Words that a bit for each of `spans` spans takes.
#[must_use]
pub const fn hint_words(spans: usize) -> usize {
    spans.div_ceil(64)
}

impl<W: Word> Spans<'_, W> {
    /// Takes an object of `class`, or, when there is no room for one, of the next larger class that has room.
    /// `None` when there is none.
    pub fn allocate(&self, class: Class, homes: &mut Homes) -> Option<Object> {
        let home = homes.get_mut(class.number())?;
        let object = self
            .allocate_in(*home, class)
            .or_else(|| self.allocate_by_hint(class, *home))
            .or_else(|| self.open_warm(class))
            .or_else(|| self.open_free(class))
            .or_else(|| self.open_fresh(class));
        if let Some(object) = object {
            *home = object.span;
            return Some(object);
        }
        self.search(class)
    }

    /// Gives an object back. `give_back` is called with the span's number when the span's memory should go
    /// back to the machine; nobody else uses the span until it returns. False when nobody owns such an
    /// object: a caller's mistake or damaged memory; nothing is changed then.
    pub fn free(&self, object: Object, give_back: impl FnOnce(u32)) -> bool {
        let Some((state, word, bit)) = self.words_of(object) else { return false };
        if !matches!(State::unpack(state.get()), State::Serving(class, _) if class == object.class) {
            return false;
        }
        if word.clear(bit) & bit == 0 {
            return false;
        }
        let mut seen = state.get();
        loop {
            let State::Serving(class, count) = State::unpack(seen) else { return false };
            let next = if count == 1 { State::EMPTY } else { State::serving(class, count - 1) };
            match state.replace(seen, next) {
                Err(found) => seen = found,
                Ok(()) if count == 1 => {
                    self.hint(self.room_hints_of(class), object.span, false);
                    if !self.keep_warm(object.span) {
                        give_back(object.span);
                        state.put(0);
                        self.hint(Some(self.free_hints), object.span, true);
                    }
                    return true;
                }
                Ok(()) => {
                    if count == class.objects_per_span() as u64 {
                        self.hint(self.room_hints_of(class), object.span, true);
                    }
                    return true;
                }
            }
        }
    }

    /// Number of spans that hold something.
    #[cfg(test)]
    pub fn spans_in_use(&self) -> usize {
        self.states.iter().filter(|state| matches!(State::unpack(state.get()), State::Serving(..))).count()
    }

    fn words_of(&self, object: Object) -> Option<(&W, &W, u64)> {
        let (span, index) = (object.span as usize, usize::from(object.index));
        if index >= object.class.objects_per_span() {
            return None;
        }
        let word = self.bitmaps.get(span * BITMAP_WORDS + index / 64)?;
        Some((self.states.get(span)?, word, 1 << (index % 64)))
    }

    /// Takes an object from this span if it serves the class and has room.
    fn allocate_in(&self, span: u32, class: Class) -> Option<Object> {
        let state = self.states.get(span as usize)?;
        let mut seen = state.get();
        loop {
            let State::Serving(_, count) = State::unpack(seen) else { return None };
            if !State::unpack(seen).has_room_for(class) {
                return None;
            }
            match state.replace(seen, State::serving(class, count + 1)) {
                Ok(()) => {
                    if count + 1 == class.objects_per_span() as u64 {
                        self.withdraw_room_hint(span, class);
                    }
                    return self.claim(span, class);
                }
                Err(found) => seen = found,
            }
        }
    }

    /// Claims a clear bit of a span in which the caller has counted an object up.
    fn claim(&self, span: u32, class: Class) -> Option<Object> {
        let objects = class.objects_per_span();
        let first = span as usize * BITMAP_WORDS;
        let words = self.bitmaps.get(first..first + objects.div_ceil(64))?;
        for _ in 0..ROUNDS {
            for (number, word) in words.iter().enumerate() {
                let usable = u64::MAX >> (64 - (objects - number * 64).min(64));
                let mut clear = !word.get() & usable;
                while clear != 0 {
                    let bit = clear & clear.wrapping_neg();
                    let before = word.set(bit);
                    if before & bit == 0 {
                        let index = (number * 64) as u16 + bit.trailing_zeros() as u16;
                        return Some(Object { span, index, class });
                    }
                    clear = !before & usable;
                }
            }
            std::hint::spin_loop();
        }
        None
    }

    /// Leaves an empty span, which the caller has to itself, in a warm place, if there is one.
    fn keep_warm(&self, span: u32) -> bool {
        self.warm.iter().any(|place| place.get() == 0 && place.replace(0, u64::from(span) + 1).is_ok())
    }

    /// Takes a warm span for the class, with its first object.
    fn open_warm(&self, class: Class) -> Option<Object> {
        self.warm.iter().filter(|place| place.get() != 0).find_map(|place| {
            let span = u32::try_from(place.take().checked_sub(1)?).ok()?;
            let state = self.states.get(span as usize)?;
            state.replace(State::EMPTY, State::serving(class, 1)).ok()?;
            self.begin(span, class)
        })
    }

    /// Takes a free span for the class, with its first object.
    fn open(&self, span: u32, class: Class) -> Option<Object> {
        self.states.get(span as usize)?.replace(0, State::serving(class, 1)).ok()?;
        self.begin(span, class)
    }

    /// The first object of a span that the caller has just taken.
    fn begin(&self, span: u32, class: Class) -> Option<Object> {
        self.hint(self.room_hints_of(class), span, true);
        self.claim(span, class)
    }

    fn open_free(&self, class: Class) -> Option<Object> {
        self.try_hinted(self.free_hints, 0, |span| {
            self.hint(Some(self.free_hints), span, false);
            self.open(span, class)
        })
    }

    fn open_fresh(&self, class: Class) -> Option<Object> {
        let mut span = self.fresh.get();
        while span < self.states.len() as u64 {
            match self.fresh.replace(span, span + 1) {
                Ok(()) => match self.open(span as u32, class) {
                    Some(object) => return Some(object),
                    None => span = self.fresh.get(),
                },
                Err(found) => span = found,
            }
        }
        None
    }

    fn allocate_by_hint(&self, class: Class, home: u32) -> Option<Object> {
        let start = if home == u32::MAX { 0 } else { home as usize / 64 };
        self.try_hinted(self.room_hints_of(class)?, start, |span| {
            let object = self.allocate_in(span, class);
            if object.is_none() {
                self.withdraw_room_hint(span, class);
            }
            object
        })
    }

    /// The slow way, when all hints have failed: looks at every span, for free ones and for those of the
    /// class or the next larger that have room.
    fn search(&self, class: Class) -> Option<Object> {
        const TRIES: usize = 8; // Others may take what was found.
        (0..TRIES).find_map(|_| {
            let mut best: Option<(usize, u32)> = None;
            for (span, state) in self.states.iter().enumerate() {
                let number = match State::unpack(state.get()) {
                    State::Free => class.number(),
                    State::Serving(served, count)
                        if served >= class && count < served.objects_per_span() as u64 =>
                    {
                        served.number()
                    }
                    _ => continue,
                };
                if best.is_none_or(|(found, _)| number < found) {
                    best = Some((number, span as u32));
                }
            }
            let (number, span) = best?;
            let found = Class::numbered(number as u64)?;
            self.allocate_in(span, found).or_else(|| self.open(span, class))
        })
    }

    /// Calls `attempt` with spans that have a bit in `hints`, from word `start` on, until one succeeds.
    fn try_hinted(
        &self,
        hints: &[W],
        start: usize,
        mut attempt: impl FnMut(u32) -> Option<Object>,
    ) -> Option<Object> {
        let used = hint_words(self.fresh.get() as usize).min(hints.len());
        let start = start.min(used);
        let (before, after) = hints.get(..used)?.split_at(start);
        let numbered = (start..).zip(after).chain((0..).zip(before));
        for (number, word) in numbered {
            let mut bits = word.get();
            while bits != 0 {
                let object = attempt((number * 64) as u32 + bits.trailing_zeros());
                if object.is_some() {
                    return object;
                }
                bits &= bits - 1;
            }
        }
        None
    }

    fn room_hints_of(&self, class: Class) -> Option<&[W]> {
        let words = hint_words(self.states.len());
        self.room_hints.get(class.number() * words..(class.number() + 1) * words)
    }

    fn hint(&self, hints: Option<&[W]>, span: u32, worth_trying: bool) {
        let Some(word) = hints.and_then(|hints| hints.get(span as usize / 64)) else { return };
        let bit = 1 << (span % 64);
        if worth_trying {
            // Even when it is set: who clears it afterwards must see why it was set.
            word.set(bit);
        } else if word.get() & bit != 0 {
            word.clear(bit);
        }
    }

    /// Clears a span's hint, but not when room was made meanwhile.
    fn withdraw_room_hint(&self, span: u32, class: Class) {
        self.hint(self.room_hints_of(class), span, false);
        let state = self.states.get(span as usize).map_or(0, Word::get);
        if State::unpack(state).has_room_for(class) {
            self.hint(self.room_hints_of(class), span, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    const SPANS: usize = 70;

    /// The allocator's words in plain memory.
    struct Memory {
        states: Vec<AtomicU64>,
        bitmaps: Vec<AtomicU64>,
        free_hints: Vec<AtomicU64>,
        room_hints: Vec<AtomicU64>,
        warm: Vec<AtomicU64>,
        fresh: AtomicU64,
    }

    impl Memory {
        fn new(spans: usize, warm: usize) -> Self {
            let words = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
            Self {
                states: words(spans),
                bitmaps: words(spans * BITMAP_WORDS),
                free_hints: words(hint_words(spans)),
                room_hints: words(hint_words(spans) * CLASSES),
                warm: words(warm),
                fresh: AtomicU64::new(0),
            }
        }

        fn spans(&self) -> Spans<'_, AtomicU64> {
            Spans {
                states: &self.states,
                bitmaps: &self.bitmaps,
                free_hints: &self.free_hints,
                room_hints: &self.room_hints,
                warm: &self.warm,
                fresh: &self.fresh,
            }
        }
    }

    /// What the allocator should know: the objects that are owned, by span.
    #[derive(Default)]
    struct Model {
        owned: Vec<Object>,
        spans: HashMap<u32, (Class, usize)>,
    }

    impl Model {
        fn allocated(&mut self, object: Object) {
            assert!(!self.owned.contains(&object), "{object:?} has two owners");
            assert!(usize::from(object.index) < object.class.objects_per_span());
            let (class, count) = self.spans.entry(object.span).or_insert((object.class, 0));
            *count += 1;
            assert!(*class == object.class && *count <= class.objects_per_span());
            self.owned.push(object);
        }

        fn has_room(&self, wanted: Class, spans: usize) -> bool {
            self.spans.len() < spans
                || self
                    .spans
                    .values()
                    .any(|(class, count)| *class >= wanted && *count < class.objects_per_span())
        }

        /// Whether that emptied its span.
        fn freed(&mut self, object: Object) -> bool {
            let Some((_, count)) = self.spans.get_mut(&object.span) else { panic!("nothing is in the span") };
            *count -= 1;
            let empty = *count == 0;
            if empty {
                self.spans.remove(&object.span);
            }
            empty
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Allocate(u8, usize, u16),
        Free(prop::sample::Index, u16),
        NewLane,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..CLASSES as u8, 0..3usize, 1..200u16)
                .prop_map(|(class, lane, n)| Step::Allocate(class, lane, n)),
            3 => (any::<prop::sample::Index>(), 1..150u16).prop_map(|(which, n)| Step::Free(which, n)),
            1 => Just(Step::NewLane),
        ]
    }

    proptest! {
        #[test]
        fn owners_and_room_are_as_in_a_plain_model(
            spans in prop_oneof![1..6usize, Just(SPANS)],
            warm in 0..3usize,
            steps in prop::collection::vec(step(), 1..80),
        ) {
            let memory = Memory::new(spans, warm);
            let mut kept_warm = 0;
            let allocator = memory.spans();
            let mut model = Model::default();
            let mut homes = [NO_HOMES; 3];
            for step in steps {
                match step {
                    Step::Allocate(class, lane, times) => {
                        let class = Class(class);
                        for _ in 0..times {
                            match allocator.allocate(class, &mut homes[lane]) {
                                Some(object) => {
                                    prop_assert!(object.class >= class);
                                    model.allocated(object);
                                }
                                None => {
                                    prop_assert!(!model.has_room(class, spans));
                                    break;
                                }
                            }
                        }
                    }
                    Step::Free(which, times) => {
                        for _ in 0..times.min(model.owned.len() as u16) {
                            let object = model.owned.swap_remove(which.index(model.owned.len()));
                            let mut emptied = None;
                            prop_assert!(allocator.free(object, |span| emptied = Some(span)));
                            let empty = model.freed(object);
                            prop_assert!(emptied.is_none_or(|span| empty && span == object.span));
                            kept_warm += usize::from(empty && emptied.is_none());
                            prop_assert!(!allocator.free(object, |_| panic!("freed twice")));
                        }
                    }
                    Step::NewLane => homes.rotate_left(1),
                }
                prop_assert_eq!(allocator.spans_in_use(), model.spans.len());
            }
            for object in model.owned {
                prop_assert!(allocator.free(object, drop));
            }
            prop_assert_eq!(allocator.spans_in_use(), 0);
            prop_assert!(memory.states.iter().filter(|state| state.get() != 0).count() <= warm);
            prop_assert!(warm > 0 || kept_warm == 0);
            prop_assert!(memory.bitmaps.iter().all(|word| word.get() == 0));
        }

        #[test]
        fn states_unpack(class in 0..CLASSES as u8, count in 1..=1024u64, word: u64) {
            let class = Class(class);
            prop_assert_eq!(State::unpack(State::serving(class, count)), State::Serving(class, count));
            State::unpack(word);
        }
    }

    #[test]
    fn a_lane_that_dies_leaves_room_to_others() {
        let memory = Memory::new(1, 0);
        let class = Class::holding(4096).unwrap();
        assert!(memory.spans().allocate(class, &mut NO_HOMES.clone()).is_some());
        // Counted up, and killed before it claimed a bit: one object less, and the span never empties.
        memory.states[0].fetch_add(1, Ordering::AcqRel);
        let mut homes = NO_HOMES;
        let objects: Vec<_> =
            std::iter::from_fn(|| memory.spans().allocate(class, &mut homes)).take(20).collect();
        assert_eq!(objects.len(), 14);
        for object in objects {
            assert!(memory.spans().free(object, |_| panic!("not empty")));
        }
    }
}
