//! The memory that is lent, as frames of one page, and who may take how many of them.
//!
//! A run is promised frames before it begins ([`FramePool::promise`]); nobody else can have those. What is
//! not promised to anybody goes to whoever asks first.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use rustix::io::Result;
use spillway_core::page::PAGE_SIZE;
use spillway_sys::arena::Arena;

use crate::lock;

/// Free frames that may keep their memory, so that a client that rewrites pages does not pay for taking and
/// giving back memory each time.
const MAX_WARM_FRAMES: usize = 1024;

/// From so many neighbours on, frames without memory get it by one call: of fewer each write takes its own.
const MIN_POPULATED_FRAMES: usize = 4;

/// All the frames. Whoever has taken a frame may use it; nobody else does.
#[derive(Debug)]
pub struct FramePool {
    arena: Arena,
    free: Mutex<Free>,
    /// Signalled when frames that were on their way back have arrived.
    cooled: Condvar,
}

#[derive(Debug, Default)]
struct Free {
    /// Free, with memory and old contents.
    warm: Vec<u32>,
    /// Frames that are free and hold no memory.
    cold: Vec<u32>,
    /// Frames from here on were never used.
    fresh: u32,
    /// Frames between `warm` and `cold`: being given back to the machine just now.
    cooling: usize,
    /// Whether frames were taken since the last [`FramePool::cool_idle`].
    busy: bool,
    /// Frames that promises cover, taken or not.
    promised: usize,
    /// Frames that were taken on promises.
    taken_on_promises: usize,
}

impl Free {
    fn count(&self, frames: u32) -> usize {
        self.warm.len() + self.cold.len() + (frames - self.fresh) as usize
    }

    fn taken(&self, frames: u32) -> usize {
        frames as usize - self.count(frames) - self.cooling
    }

    /// Frames that nobody was promised and nobody has.
    fn unpromised(&self, frames: u32) -> usize {
        let taken_without = self.taken(frames) - self.taken_on_promises;
        (frames as usize).saturating_sub(self.promised + taken_without)
    }
}

/// No frame is left of those that one may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// So many frames are not left to promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom {
    /// Frames that could be promised.
    pub free_frames: usize,
}

/// Frames that belong to one run, whether it has taken them yet or not. Given up when dropped.
#[derive(Debug)]
pub struct Promise {
    pool: Arc<FramePool>,
    // Both change under the pool's lock only.
    frames: AtomicUsize,
    taken: AtomicUsize,
    is_given_up: AtomicBool,
}

impl Promise {
    /// Frames that it covers.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.frames.load(Ordering::Relaxed)
    }

    /// Lets others have what is not taken, now, and what is taken as it comes back. `false` where it was
    /// given up before.
    pub fn give_up(&self) -> bool {
        let mut free = lock(&self.pool.free);
        if self.is_given_up.swap(true, Ordering::Relaxed) {
            return false;
        }
        let taken = self.taken.load(Ordering::Relaxed);
        free.promised -= self.frames.swap(taken, Ordering::Relaxed) - taken;
        true
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// How the pool's memory stands, in frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// All frames that there are.
    pub frames: usize,
    /// Frames that hold pages now.
    pub taken: usize,
    /// Promised to runs, taken or not.
    pub promised: usize,
    /// Neither promised nor taken.
    pub unpromised: usize,
}

impl FramePool {
    /// A pool of `frames` frames. No memory is taken yet.
    pub fn new(frames: u32) -> Result<Self> {
        Ok(Self { arena: Arena::reserve(frames)?, free: Mutex::default(), cooled: Condvar::new() })
    }

    /// Keeps the frames from being swapped.
    pub fn lock_memory(&self) -> Result<()> {
        self.arena.lock()
    }

    /// Number of frames, free or not.
    #[must_use]
    pub fn frames(&self) -> u32 {
        self.arena.pages()
    }

    /// Frames that are taken now.
    #[must_use]
    pub fn taken(&self) -> usize {
        lock(&self.free).taken(self.frames())
    }

    /// How the memory stands now.
    #[must_use]
    pub fn standing(&self) -> Standing {
        let free = lock(&self.free);
        Standing {
            frames: self.frames() as usize,
            taken: free.taken(self.frames()),
            promised: free.promised,
            unpromised: free.unpromised(self.frames()),
        }
    }

    /// Promises `frames` frames, all or none.
    pub fn promise(self: &Arc<Self>, frames: usize) -> std::result::Result<Promise, NoRoom> {
        let mut free = lock(&self.free);
        let free_frames = free.unpromised(self.frames());
        if frames > free_frames {
            return Err(NoRoom { free_frames });
        }
        free.promised += frames;
        drop(free);
        Ok(Promise {
            pool: Arc::clone(self),
            frames: AtomicUsize::new(frames),
            taken: AtomicUsize::new(0),
            is_given_up: AtomicBool::new(false),
        })
    }

    /// Frames that could be taken now, on a promise or without.
    #[must_use]
    pub fn room(&self, promise: Option<&Promise>) -> usize {
        self.room_within(&lock(&self.free), promise)
    }

    fn room_within(&self, free: &Free, promise: Option<&Promise>) -> usize {
        match promise {
            Some(promise) if promise.is_given_up.load(Ordering::Relaxed) => 0,
            Some(promise) => promise.frames() - promise.taken.load(Ordering::Relaxed),
            None => free.unpromised(self.frames()),
        }
    }

    /// Takes `count` frames, or none, on a promise or of what nobody was promised. What they hold is
    /// undefined.
    pub fn take(
        &self,
        count: usize,
        promise: Option<&Promise>,
        into: &mut Vec<u32>,
    ) -> std::result::Result<(), Full> {
        let mut free = lock(&self.free);
        loop {
            if self.room_within(&free, promise) < count {
                return Err(Full);
            }
            if free.count(self.frames()) >= count {
                break;
            }
            // There are enough, and some of them are on their way back.
            if free.cooling == 0 {
                return Err(Full);
            }
            free = self.cooled.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        free.busy = true;
        if let Some(promise) = promise {
            promise.taken.fetch_add(count, Ordering::Relaxed);
            free.taken_on_promises += count;
        }
        let with_memory = into.len() + count.min(free.warm.len());
        for _ in 0..count {
            let Free { warm, cold, fresh, .. } = &mut *free;
            into.push(warm.pop().or_else(|| cold.pop()).unwrap_or_else(|| {
                *fresh += 1;
                *fresh - 1
            }));
        }
        drop(free);
        self.populate(&mut into[with_memory..]);
        Ok(())
    }

    /// Takes memory for frames that are about to be written.
    fn populate(&self, frames: &mut [u32]) {
        frames.sort_unstable();
        let runs = frames.chunk_by(|a, b| a + 1 == *b);
        for run in runs.filter(|run| run.len() >= MIN_POPULATED_FRAMES) {
            // Where that fails each write takes its own, or ends as the kernel has it where there is none.
            let _ = self.arena.populate(run[0], run.len() as u32);
        }
    }

    /// Gives frames back that were taken on this promise, or on none.
    pub fn put(&self, frames: &mut Vec<u32>, promise: Option<&Promise>) {
        self.put_back(frames, promise, MAX_WARM_FRAMES);
    }

    /// The same, and their memory goes back to the machine, whoever had them: nothing of it stays here.
    pub fn put_cold(&self, frames: &mut Vec<u32>, promise: Option<&Promise>) {
        self.put_back(frames, promise, 0);
    }

    fn put_back(&self, frames: &mut Vec<u32>, promise: Option<&Promise>, most_warm: usize) {
        if frames.is_empty() {
            return;
        }
        let mut free = lock(&self.free);
        if let Some(promise) = promise {
            promise.taken.fetch_sub(frames.len(), Ordering::Relaxed);
            free.taken_on_promises -= frames.len();
            if promise.is_given_up.load(Ordering::Relaxed) {
                promise.frames.fetch_sub(frames.len(), Ordering::Relaxed);
                free.promised -= frames.len();
            }
        }
        free.warm.append(frames);
        if free.warm.len() > most_warm {
            // The oldest go; those that were used last are still in the cache.
            let excess = free.warm.len() - most_warm / 2;
            let cooling = free.warm.drain(..excess).collect();
            free.cooling += excess;
            drop(free);
            self.cool(cooling);
        }
    }

    /// Called every second or so: gives the memory of free frames back when nobody has taken any since the
    /// last call.
    pub fn cool_idle(&self) {
        let mut free = lock(&self.free);
        if !std::mem::take(&mut free.busy) && !free.warm.is_empty() {
            let cooling = std::mem::take(&mut free.warm);
            free.cooling += cooling.len();
            drop(free);
            self.cool(cooling);
        }
    }

    /// Gives the frames' memory back, whole runs at once, outside the lock.
    fn cool(&self, mut frames: Vec<u32>) {
        frames.sort_unstable();
        for run in frames.chunk_by(|a, b| a + 1 == *b) {
            // A failure leaves the memory taken, and the frame as free as before.
            let _ = self.arena.give_back(run[0], run.len() as u32);
        }
        let mut free = lock(&self.free);
        free.cooling -= frames.len();
        free.cold.append(&mut frames);
        drop(free);
        self.cooled.notify_all();
    }

    /// Copies out of a frame that the caller has taken.
    pub fn read(&self, frame: u32, offset: usize, to: &mut [u8]) {
        self.arena.read(frame, offset, to);
    }

    /// Copies into a frame that the caller has taken.
    pub fn write(&self, frame: u32, offset: usize, from: &[u8]) {
        self.arena.write(frame, offset, from);
    }

    /// Writes zeros into a frame that the caller has taken.
    pub fn zero(&self, frame: u32, offset: usize, bytes: usize) {
        self.arena.zero(frame, offset, bytes);
    }

    /// Bytes that are taken now.
    #[must_use]
    pub fn taken_bytes(&self) -> u64 {
        (self.taken() * PAGE_SIZE) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn takes_all_or_nothing_and_never_twice() {
        let pool = FramePool::new(10).unwrap();
        let mut frames = Vec::new();
        pool.take(7, None, &mut frames).unwrap();
        assert_eq!(pool.take(4, None, &mut frames), Err(Full));
        assert_eq!(frames.len(), 7);
        pool.take(3, None, &mut frames).unwrap();
        assert_eq!(frames.iter().collect::<HashSet<_>>().len(), 10);
        assert_eq!(pool.taken(), 10);
        pool.put(&mut frames, None);
        assert_eq!((pool.taken(), frames.len()), (0, 0));
    }

    #[test]
    fn free_frames_lose_their_memory_when_many_or_idle() {
        let pool = FramePool::new(4096).unwrap();
        let mut frames = Vec::new();
        pool.take(4096, None, &mut frames).unwrap();
        for frame in &frames {
            pool.write(*frame, 0, b"old");
        }
        let all = frames.clone();
        pool.put(&mut frames, None);
        pool.cool_idle(); // busy since the last call: the warm ones stay
        pool.cool_idle();
        let mut byte = [1];
        for frame in all {
            pool.read(frame, 0, &mut byte);
            assert_eq!(byte, [0]);
        }
        pool.take(4096, None, &mut frames).unwrap();
        assert_eq!(pool.taken_bytes(), 16 << 20);
    }

    #[test]
    fn threads_share_the_budget() {
        let pool = FramePool::new(3000).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut mine = Vec::new();
                    for _ in 0..200 {
                        // Four times 700 fit, so nobody may ever be told that the pool is full.
                        pool.take(700, None, &mut mine).unwrap();
                        pool.put(&mut mine, None);
                    }
                });
            }
        });
        assert_eq!(pool.taken(), 0);
    }

    #[test]
    fn what_is_promised_is_nobody_elses() {
        let pool = Arc::new(FramePool::new(10).unwrap());
        let (mut theirs, mut mine) = (Vec::new(), Vec::new());
        pool.take(3, None, &mut theirs).unwrap();
        let promise = pool.promise(6).unwrap();
        assert_eq!(pool.promise(2).unwrap_err(), NoRoom { free_frames: 1 });
        assert_eq!(pool.take(2, None, &mut theirs), Err(Full));
        pool.take(1, None, &mut theirs).unwrap();
        pool.take(6, Some(&promise), &mut mine).unwrap();
        assert_eq!(pool.take(1, Some(&promise), &mut mine), Err(Full));
        // Given up while frames are out: they come free one by one.
        promise.give_up();
        assert_eq!(pool.promise(1).unwrap_err(), NoRoom { free_frames: 0 });
        let mut two = mine.split_off(4);
        pool.put_cold(&mut two, Some(&promise));
        let second = pool.promise(2).unwrap();
        pool.put(&mut mine, Some(&promise));
        drop((promise, second));
        let standing = pool.standing();
        assert_eq!((standing.taken, standing.promised, standing.unpromised), (4, 0, 6));
    }

    #[test]
    fn memory_that_is_put_back_cold_holds_nothing() {
        let pool = FramePool::new(4).unwrap();
        let mut frames = Vec::new();
        pool.take(1, None, &mut frames).unwrap();
        let frame = frames[0];
        pool.write(frame, 0, b"secret");
        pool.put_cold(&mut frames, None);
        let mut back = [1; 6];
        pool.read(frame, 0, &mut back);
        assert_eq!(back, [0; 6]);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Promise(usize),
        GiveUp(usize),
        Take(Option<usize>, usize),
        Put(Option<usize>, usize),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        let whose = || prop::option::of(0..4_usize);
        prop_oneof![
            (0..12_usize).prop_map(Step::Promise),
            (0..4_usize).prop_map(Step::GiveUp),
            (whose(), 0..8_usize).prop_map(|(whose, count)| Step::Take(whose, count)),
            (whose(), 0..8_usize).prop_map(|(whose, count)| Step::Put(whose, count)),
        ]
    }

    /// What one run was promised and has taken.
    struct Run {
        promise: Promise,
        frames: usize,
        is_given_up: bool,
        taken: Vec<u32>,
    }

    proptest! {
        /// Beside a naive count: a promise is kept whatever others do, and nothing is promised twice.
        #[test]
        fn promises_are_kept_and_never_overlap(steps in prop::collection::vec(any_step(), 1..80)) {
            const FRAMES: usize = 20;
            let pool = Arc::new(FramePool::new(FRAMES as u32).unwrap());
            let mut runs: Vec<Run> = Vec::new();
            let mut unpromised: Vec<u32> = Vec::new();
            for step in steps {
                let held = |run: &Run| if run.is_given_up { run.taken.len() } else { run.frames };
                let free = FRAMES - unpromised.len() - runs.iter().map(held).sum::<usize>();
                match step {
                    Step::Promise(frames) => match pool.promise(frames) {
                        Ok(promise) => {
                            prop_assert!(frames <= free);
                            runs.push(Run { promise, frames, is_given_up: false, taken: Vec::new() });
                        }
                        Err(NoRoom { free_frames }) => {
                            prop_assert!(frames > free && free_frames == free);
                        }
                    },
                    Step::GiveUp(index) => {
                        if let Some(run) = runs.get_mut(index) {
                            run.promise.give_up();
                            run.is_given_up = true;
                        }
                    }
                    Step::Take(Some(index), count) => {
                        if let Some(run) = runs.get_mut(index) {
                            let fits = !run.is_given_up && run.taken.len() + count <= run.frames;
                            // Taking nothing always goes.
                            let expected = if fits || count == 0 { Ok(()) } else { Err(Full) };
                            let outcome = pool.take(count, Some(&run.promise), &mut run.taken);
                            prop_assert_eq!(outcome, expected);
                        }
                    }
                    Step::Take(None, count) => {
                        let expected = if count <= free { Ok(()) } else { Err(Full) };
                        prop_assert_eq!(pool.take(count, None, &mut unpromised), expected);
                    }
                    Step::Put(Some(index), count) => {
                        if let Some(run) = runs.get_mut(index) {
                            let mut back = run.taken.split_off(run.taken.len().saturating_sub(count));
                            pool.put(&mut back, Some(&run.promise));
                        }
                    }
                    Step::Put(None, count) => {
                        let mut back = unpromised.split_off(unpromised.len().saturating_sub(count));
                        pool.put_cold(&mut back, None);
                    }
                }
                let all = runs.iter().flat_map(|run| &run.taken).chain(&unpromised);
                prop_assert_eq!(all.clone().collect::<HashSet<_>>().len(), all.count());
            }
        }
    }
}
