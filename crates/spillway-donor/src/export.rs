//! An export: a sparse array of pages. Pages that were never written, were trimmed or hold only zeros take no
//! memory.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use spillway_core::page::PAGE_SIZE;
use spillway_store::fabric::Link;
use spillway_sys::shared_memory::SharedMemory;

use crate::frames::{FramePool, Full, Promise};
use crate::share::Share;

/// Neighbouring pages that share a shard, so that one request takes few locks.
const CHUNK_PAGES: u64 = 32;
/// Bytes of a chunk; no request's piece crosses its end.
pub const CHUNK_BYTES: u64 = CHUNK_PAGES * PAGE_SIZE as u64;
const SHARDS: usize = 64;

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportError {
    /// What the export was promised, or what nobody was promised, is spent.
    Full,
    /// The export was dropped while the client was connected.
    Dropped,
}

impl From<Full> for ExportError {
    fn from(_: Full) -> Self {
        Self::Full
    }
}

/// A sparse array of pages, shared by the connections that opened it. Offsets are bytes; callers check that
/// they lie within [`Export::size_bytes`].
#[derive(Debug)]
pub struct Export {
    size_bytes: u64,
    pool: Arc<FramePool>,
    /// The memory that is the export's own; `None` where it takes what nobody was promised.
    promise: Option<Promise>,
    /// What the client who made it may hold; what was promised is counted there already.
    share: Option<Arc<Share>>,
    shards: Box<[RwLock<Shard>]>,
    /// Made when it is first asked for.
    link: Mutex<Option<OwnedFd>>,
}

/// The pages of every 64th chunk: which frame holds which page. 10 to 20 bytes a page, so 0.5% at most.
#[derive(Debug, Default)]
struct Shard {
    frames: HashMap<u32, u32>,
    dropped: bool,
}

/// Frames of an export that are in no page: taken for a write, or freed by it. Go back to the pool when
/// dropped.
#[derive(Debug)]
pub(crate) struct Frames<'a> {
    export: &'a Export,
    pub(crate) list: Vec<u32>,
}

impl Drop for Frames<'_> {
    fn drop(&mut self) {
        let count = self.list.len();
        self.export.pool.put(&mut self.list, self.export.promise.as_ref());
        self.export.give_back(count);
    }
}

/// A stretch of an export that is stored, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// How many bytes it covers.
    pub bytes: u64,
    /// Whether anything is stored there; what is not reads as zeros.
    pub is_data: bool,
}

/// The part of one page that a request touches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub page: u32,
    pub offset: usize,
    pub bytes: usize,
}

/// Cuts a range of bytes at the ends of chunks.
pub(crate) fn chunks(offset: u64, bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    let end = offset + bytes;
    let mut at = offset;
    std::iter::from_fn(move || {
        let length = (CHUNK_BYTES - at % CHUNK_BYTES).min(end - at);
        at += length;
        (length > 0).then_some((at - length, length))
    })
}

/// Cuts a range of bytes at the ends of pages.
pub(crate) fn parts(offset: u64, bytes: u64) -> impl Iterator<Item = Part> {
    let end = offset + bytes;
    let mut at = offset;
    std::iter::from_fn(move || {
        let in_page = (at % PAGE_SIZE as u64) as usize;
        let length = (PAGE_SIZE - in_page).min((end - at) as usize);
        let page = (at / PAGE_SIZE as u64) as u32;
        at += length as u64;
        (length > 0).then_some(Part { page, offset: in_page, bytes: length })
    })
}

/// Whether all bytes are zero.
fn is_zero(bytes: &[u8]) -> bool {
    // Whole lines at a time, so that the compiler compares them with vector instructions.
    let (lines, tail) = bytes.as_chunks::<64>();
    lines.iter().all(|line| line.iter().fold(0, |all, byte| all | byte) == 0)
        && tail.iter().all(|byte| *byte == 0)
}

impl Export {
    /// An export of `size_bytes` (a multiple of the page size) without contents, which takes its memory from
    /// what was promised to it, or from what nobody was promised.
    #[must_use]
    pub fn new(pool: Arc<FramePool>, size_bytes: u64, promise: Option<Promise>) -> Self {
        let shards = (0..SHARDS).map(|_| RwLock::default()).collect();
        Self { size_bytes, pool, promise, share: None, shards, link: Mutex::default() }
    }

    /// The same, and what it holds counts for a client. Of one with a promise all of that has been counted.
    #[must_use]
    pub fn counted(mut self, share: Option<Arc<Share>>) -> Self {
        self.share = share;
        self
    }

    /// Where frames are counted one by one.
    fn share_of_frames(&self) -> Option<&Share> {
        self.share.as_deref().filter(|_| self.promise.is_none())
    }

    fn take(&self, count: usize, into: &mut Vec<u32>) -> Result<(), ExportError> {
        let share = self.share_of_frames();
        if share.is_some_and(|share| !share.take(count)) {
            return Err(ExportError::Full);
        }
        let taken = self.pool.take(count, self.promise.as_ref(), into);
        if let (Err(_), Some(share)) = (&taken, share) {
            share.give_back(count);
        }
        Ok(taken?)
    }

    fn give_back(&self, count: usize) {
        if let Some(share) = self.share_of_frames() {
            share.give_back(count);
        }
    }

    /// Size that clients see.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn shard(&self, offset: u64) -> &RwLock<Shard> {
        &self.shards[(offset / CHUNK_BYTES) as usize % SHARDS]
    }

    fn reading(&self, offset: u64) -> Result<RwLockReadGuard<'_, Shard>, ExportError> {
        let shard = self.shard(offset).read().unwrap_or_else(PoisonError::into_inner);
        if shard.dropped { Err(ExportError::Dropped) } else { Ok(shard) }
    }

    fn writing(&self, offset: u64) -> Result<RwLockWriteGuard<'_, Shard>, ExportError> {
        let shard = self.shard(offset).write().unwrap_or_else(PoisonError::into_inner);
        if shard.dropped { Err(ExportError::Dropped) } else { Ok(shard) }
    }

    /// Reads. What is not stored reads as zeros.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), ExportError> {
        let mut rest = to;
        for (offset, bytes) in chunks(offset, rest.len() as u64) {
            let shard = self.reading(offset)?;
            for part in parts(offset, bytes) {
                let (piece, tail) = rest.split_at_mut(part.bytes);
                match shard.frames.get(&part.page) {
                    Some(frame) => self.pool.read(*frame, part.offset, piece),
                    None => piece.fill(0),
                }
                rest = tail;
            }
        }
        Ok(())
    }

    /// Whether memory is left for all pages of the range that have none yet.
    pub fn has_room(&self, offset: u64, bytes: u64) -> Result<(), ExportError> {
        let left = self.share_of_frames().map_or(usize::MAX, Share::left);
        if self.missing_pages(offset, bytes)? <= self.pool.room(self.promise.as_ref()).min(left) {
            Ok(())
        } else {
            Err(ExportError::Full)
        }
    }

    fn missing_pages(&self, offset: u64, bytes: u64) -> Result<usize, ExportError> {
        let mut missing = 0;
        for (offset, bytes) in chunks(offset, bytes) {
            let shard = self.reading(offset)?;
            missing += parts(offset, bytes).filter(|part| !shard.frames.contains_key(&part.page)).count();
        }
        Ok(missing)
    }

    fn no_frames(&self) -> Frames<'_> {
        Frames { export: self, list: Vec::new() }
    }

    /// Takes frames for all pages of the range that have none yet.
    fn frames_for(&self, offset: u64, bytes: u64) -> Result<Frames<'_>, ExportError> {
        let mut frames = self.no_frames();
        let missing = self.missing_pages(offset, bytes)?;
        if missing > 0 {
            self.take(missing, &mut frames.list)?;
        }
        Ok(frames)
    }

    /// Writes as a whole, or not at all where memory is lacking. Fails half-way only where somebody trims the
    /// same pages meanwhile, and the memory goes elsewhere.
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), ExportError> {
        let mut frames = self.frames_for(offset, from.len() as u64)?;
        self.write_with(&mut frames, offset, from, |shard, part, frame| {
            shard.frames.insert(part.page, frame);
        })
    }

    /// Takes memory for what is new in a piece of a write, and hands it over in place of showing it to
    /// others. What is not new is written where it lies.
    pub(crate) fn prepare_piece(
        &self,
        offset: u64,
        from: &[u8],
        mut keep: impl FnMut(Part, u32),
    ) -> Result<(), ExportError> {
        let mut frames = self.frames_for(offset, from.len() as u64)?;
        self.write_with(&mut frames, offset, from, |_, part, frame| keep(part, frame))
    }

    fn write_with(
        &self,
        frames: &mut Frames<'_>,
        offset: u64,
        from: &[u8],
        mut place: impl FnMut(&mut Shard, Part, u32),
    ) -> Result<(), ExportError> {
        let mut rest = from;
        for (offset, bytes) in chunks(offset, from.len() as u64) {
            let mut shard = self.writing(offset)?;
            for part in parts(offset, bytes) {
                let (piece, tail) = rest.split_at(part.bytes);
                rest = tail;
                let known = shard.frames.get(&part.page).copied();
                match known {
                    None if is_zero(piece) => {}
                    Some(_) if part.bytes == PAGE_SIZE && is_zero(piece) => {
                        frames.list.extend(shard.frames.remove(&part.page));
                    }
                    Some(frame) => self.pool.write(frame, part.offset, piece),
                    None => {
                        let frame = self.next_frame(frames)?;
                        // The frame's old contents are somebody else's.
                        self.pool.zero(frame, 0, part.offset);
                        let end = part.offset + part.bytes;
                        self.pool.zero(frame, end, PAGE_SIZE - end);
                        self.pool.write(frame, part.offset, piece);
                        place(&mut shard, part, frame);
                    }
                }
            }
        }
        Ok(())
    }

    /// One of the frames that were taken, or one more where a page was trimmed meanwhile.
    fn next_frame(&self, frames: &mut Frames<'_>) -> Result<u32, ExportError> {
        if frames.list.is_empty() {
            self.take(1, &mut frames.list)?;
        }
        frames.list.pop().ok_or(ExportError::Full)
    }

    /// Shows pages to everybody that [`Self::prepare_piece`] handed over. Where another client has stored the
    /// same page meanwhile, its other bytes stay.
    pub(crate) fn show(&self, pieces: &mut Vec<(Part, u32)>) -> Result<(), ExportError> {
        let mut freed = self.no_frames();
        let page_offset = |part: &Part| u64::from(part.page) * PAGE_SIZE as u64;
        let same_chunk = |(a, _): &(Part, u32), (b, _): &(Part, u32)| {
            page_offset(a) / CHUNK_BYTES == page_offset(b) / CHUNK_BYTES
        };
        let mut shown = 0;
        let outcome = pieces.chunk_by(same_chunk).try_for_each(|run| {
            let mut shard = self.writing(run.first().map_or(0, |(part, _)| page_offset(part)))?;
            for (part, frame) in run {
                match shard.frames.get(&part.page) {
                    None => {
                        shard.frames.insert(part.page, *frame);
                    }
                    Some(other) => {
                        self.copy(*frame, *other, part);
                        freed.list.push(*frame);
                    }
                }
            }
            shown += run.len();
            Ok(())
        });
        // What is shown, or freed, is no longer the caller's to take back.
        pieces.drain(..shown);
        outcome
    }

    fn copy(&self, from: u32, to: u32, part: &Part) {
        let mut page = [0; PAGE_SIZE];
        let piece = &mut page[..part.bytes];
        self.pool.read(from, part.offset, piece);
        self.pool.write(to, part.offset, piece);
    }

    /// Gives frames back that [`Self::prepare_piece`] handed over and nobody has seen.
    pub(crate) fn take_back(&self, pieces: &mut Vec<(Part, u32)>) {
        let mut frames = self.no_frames();
        frames.list.extend(pieces.drain(..).map(|(_, frame)| frame));
    }

    /// The memory file of the link that the clients' lanes share where they model a network. Only they use
    /// it.
    pub fn link(&self) -> io::Result<OwnedFd> {
        let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        if link.is_none() {
            *link = Some(SharedMemory::create("spillway-link", Link::BYTES)?.0);
        }
        link.as_ref().map_or(Err(io::ErrorKind::NotFound.into()), OwnedFd::try_clone)
    }

    /// Forgets the whole pages of the range; parts of pages at its ends stay as they are.
    pub fn discard(&self, offset: u64, bytes: u64) -> Result<(), ExportError> {
        self.forget(offset, bytes, false)
    }

    /// Makes the range read as zeros, and gives its whole pages back.
    pub fn zero(&self, offset: u64, bytes: u64) -> Result<(), ExportError> {
        self.forget(offset, bytes, true)
    }

    fn forget(&self, offset: u64, bytes: u64, zero_parts: bool) -> Result<(), ExportError> {
        let mut freed = self.no_frames();
        for (offset, bytes) in chunks(offset, bytes) {
            let mut shard = self.writing(offset)?;
            for part in parts(offset, bytes) {
                if part.bytes == PAGE_SIZE {
                    freed.list.extend(shard.frames.remove(&part.page));
                } else if zero_parts && let Some(frame) = shard.frames.get(&part.page) {
                    self.pool.zero(*frame, part.offset, part.bytes);
                }
            }
            if shard.frames.len() < shard.frames.capacity() / 8 {
                shard.frames.shrink_to_fit();
            }
        }
        Ok(())
    }

    /// Makes the range read as zeros, and gives every page of it memory, as a whole or not at all.
    pub fn fill_with_zeros(&self, offset: u64, bytes: u64) -> Result<(), ExportError> {
        let mut frames = self.frames_for(offset, bytes)?;
        for (offset, bytes) in chunks(offset, bytes) {
            let mut shard = self.writing(offset)?;
            for part in parts(offset, bytes) {
                if let Some(frame) = shard.frames.get(&part.page) {
                    self.pool.zero(*frame, part.offset, part.bytes);
                } else {
                    let frame = self.next_frame(&mut frames)?;
                    self.pool.zero(frame, 0, PAGE_SIZE);
                    shard.frames.insert(part.page, frame);
                }
            }
        }
        Ok(())
    }

    /// Which parts of the range are stored, neighbours merged; ends early after `most` stretches.
    pub fn stretches(&self, offset: u64, bytes: u64, most: usize) -> Result<Vec<Stretch>, ExportError> {
        let mut stretches: Vec<Stretch> = Vec::new();
        for (offset, bytes) in chunks(offset, bytes) {
            let shard = self.reading(offset)?;
            for part in parts(offset, bytes) {
                let is_data = shard.frames.contains_key(&part.page);
                let bytes = part.bytes as u64;
                if let Some(last) = stretches.last_mut()
                    && last.is_data == is_data
                {
                    last.bytes += bytes;
                } else if stretches.len() < most {
                    stretches.push(Stretch { bytes, is_data });
                } else {
                    return Ok(stretches);
                }
            }
        }
        Ok(stretches)
    }

    /// Number of pages that are stored.
    #[must_use]
    pub fn stored_pages(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.read().unwrap_or_else(PoisonError::into_inner).frames.len())
            .sum()
    }

    /// Bytes that were promised to it; `None` where it takes what nobody was promised.
    #[must_use]
    pub fn promised_bytes(&self) -> Option<u64> {
        self.promise.as_ref().map(|promise| (promise.frames() * PAGE_SIZE) as u64)
    }

    /// Gives everything back, the promise too: others may have it when this returns, and nothing of the
    /// contents is left. Whoever still has the export open gets [`ExportError::Dropped`] from now on.
    pub fn drop_contents(&self) {
        let mut frames = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
            shard.dropped = true;
            frames.extend(std::mem::take(&mut shard.frames).into_values());
        }
        if let Some(promise) = &self.promise {
            let (promised, is_first) = (promise.frames(), promise.give_up());
            if let Some(share) = self.share.as_ref().filter(|_| is_first) {
                share.give_back(promised);
            }
        }
        let count = frames.len();
        self.pool.put_cold(&mut frames, self.promise.as_ref());
        self.give_back(count);
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        self.drop_contents();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZE: u64 = 64 * PAGE_SIZE as u64;

    fn export(frames: u32) -> Export {
        Export::new(Arc::new(FramePool::new(frames).unwrap()), SIZE, None)
    }

    fn put(export: &Export, offset: u64, bytes: &[u8]) -> Result<(), ExportError> {
        export.write(offset, bytes)
    }

    fn get(export: &Export, offset: u64, bytes: usize) -> Vec<u8> {
        let mut to = vec![0xee; bytes];
        export.read(offset, &mut to).unwrap();
        to
    }

    #[test]
    fn writes_are_whole_or_refused() {
        let export = export(4);
        put(&export, 0, &[1; 3 * PAGE_SIZE]).unwrap();
        assert_eq!(put(&export, SIZE / 2, &[2; 2 * PAGE_SIZE]), Err(ExportError::Full));
        assert_eq!(get(&export, SIZE / 2, 2 * PAGE_SIZE), vec![0; 2 * PAGE_SIZE]);
        assert_eq!(get(&export, 0, 3 * PAGE_SIZE), vec![1; 3 * PAGE_SIZE]);
        put(&export, SIZE / 2, &[2; PAGE_SIZE]).unwrap();
        put(&export, 0, &[3; 3 * PAGE_SIZE]).unwrap(); // in place needs no frame
        assert_eq!(put(&export, SIZE - 1, &[4]), Err(ExportError::Full));
    }

    #[test]
    fn a_frame_never_shows_what_it_held_before() {
        let export = export(1);
        put(&export, 0, &[7; PAGE_SIZE]).unwrap();
        export.discard(0, PAGE_SIZE as u64).unwrap();
        put(&export, 5000, b"x").unwrap();
        let mut expected = vec![0; PAGE_SIZE];
        expected[5000 - PAGE_SIZE] = b'x';
        assert_eq!(get(&export, PAGE_SIZE as u64, PAGE_SIZE), expected);
    }

    #[test]
    fn zeros_take_no_memory() {
        let export = export(2);
        put(&export, 0, &[1; 2 * PAGE_SIZE]).unwrap();
        put(&export, 0, &[0; PAGE_SIZE]).unwrap();
        assert_eq!(export.stored_pages(), 1);
        export.zero(0, SIZE).unwrap();
        assert_eq!((export.stored_pages(), export.pool.taken()), (0, 0));
    }

    #[test]
    fn dropped_exports_answer_nothing_and_hold_nothing() {
        let export = export(2);
        put(&export, 0, &[1; PAGE_SIZE]).unwrap();
        export.drop_contents();
        assert_eq!(export.pool.taken(), 0);
        assert_eq!(export.read(0, &mut [0]), Err(ExportError::Dropped));
        assert_eq!(put(&export, 0, b"x"), Err(ExportError::Dropped));
    }

    #[test]
    fn stretches_tell_data_from_holes() {
        let export = export(64);
        let page = PAGE_SIZE as u64;
        put(&export, 30 * page, &[1; 4 * PAGE_SIZE]).unwrap();
        let hole = |bytes| Stretch { bytes, is_data: false };
        let data = |bytes| Stretch { bytes, is_data: true };
        assert_eq!(
            export.stretches(0, SIZE, 10).unwrap(),
            [hole(30 * page), data(4 * page), hole(30 * page)]
        );
        assert_eq!(export.stretches(0, SIZE, 2).unwrap(), [hole(30 * page), data(4 * page)]);
        assert_eq!(export.stretches(31 * page + 10, 20, 10).unwrap(), [data(20)]);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Write(u64, Vec<u8>),
        Fill(u64, usize, u8),
        Discard(u64, u64),
        Zero(u64, u64),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        let at = 0..SIZE - 3 * PAGE_SIZE as u64;
        let length = 0..3 * PAGE_SIZE as u64;
        prop_oneof![
            (at.clone(), prop::collection::vec(any::<u8>(), 0..9000))
                .prop_map(|(at, data)| Step::Write(at, data)),
            (at.clone(), 0..3 * PAGE_SIZE, 0..3u8)
                .prop_map(|(at, length, byte)| Step::Fill(at, length, byte)),
            (at.clone(), length.clone()).prop_map(|(at, length)| Step::Discard(at, length)),
            (at, length).prop_map(|(at, length)| Step::Zero(at, length)),
        ]
    }

    proptest! {
        #[test]
        fn behaves_as_an_array(steps in prop::collection::vec(any_step(), 1..30)) {
            let export = export(64);
            let mut model = vec![0u8; SIZE as usize];
            for step in steps {
                match step {
                    Step::Write(at, data) => {
                        put(&export, at, &data).unwrap();
                        model[at as usize..][..data.len()].copy_from_slice(&data);
                    }
                    Step::Fill(at, length, byte) => {
                        put(&export, at, &vec![byte; length]).unwrap();
                        model[at as usize..][..length].fill(byte);
                    }
                    Step::Zero(at, length) => {
                        export.zero(at, length).unwrap();
                        model[at as usize..][..length as usize].fill(0);
                    }
                    Step::Discard(at, length) => {
                        export.discard(at, length).unwrap();
                        let first = at.next_multiple_of(PAGE_SIZE as u64);
                        let end = (at + length) / PAGE_SIZE as u64 * PAGE_SIZE as u64;
                        if first < end {
                            model[first as usize..end as usize].fill(0);
                        }
                    }
                }
                prop_assert_eq!(export.pool.taken(), export.stored_pages());
            }
            prop_assert!(get(&export, 0, SIZE as usize) == model);
            let stored: u64 = export.stretches(0, SIZE, usize::MAX).unwrap().iter()
                .filter(|stretch| stretch.is_data).map(|stretch| stretch.bytes).sum();
            prop_assert_eq!(stored, (export.stored_pages() * PAGE_SIZE) as u64);
        }
    }
}
