//! A network that this machine has not got: `?fabric=fdr` makes a store take at least as long as that network
//! does.
//!
//! It is a model, of the network alone. A message takes its latency, which its size decides, and occupies the
//! link for as long as its bytes take; messages of all lanes of the run queue for the link, one queue in each
//! direction. Neighbouring slots of a batch travel as one message, of 64 KiB at most. What the store itself
//! takes passes meanwhile: where it takes longer than the network would, the model adds nothing.
//!
//! A read is waited for by polling, as RDMA completions are; of a read that was posted, only what is left of
//! its time. A write is not: the next write of the same lane
//! waits for its end, as dcm's write-backs are seen to have ended at the next fault.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::thread::nanosleep;
use rustix::time::{ClockId, Timespec, clock_gettime};
use spillway_core::page::PAGE_SIZE;
use spillway_sys::shared_memory::SharedMemory;

use crate::posted::are_of;
use crate::{Lane, ReadRequest, WriteRequest};

/// Pages of the largest message: dcm's largest block.
const MAX_MESSAGE_PAGES: u32 = 16;
/// Nobody queues for the link for longer than this: what says so is no time of this machine.
const LONGEST_QUEUE_NS: u64 = 1_000_000_000;
/// Longer waits are slept, but for the last [`POLLED_NS`].
const SLEPT_NS: u64 = 400_000;
const POLLED_NS: u64 = 150_000;

/// A network that can be modelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fabric {
    /// InfiniBand FDR 4x, as measured for dcm (Koh et al., IEEE Transactions on Computers 68(1), 2019).
    Fdr,
}

impl Fabric {
    /// Those that there are, for messages.
    pub(crate) const KNOWN: &str = "fdr";

    /// By its name in a URI.
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        (name == b"fdr").then_some(Self::Fdr)
    }

    /// Pages of a message and its latency. The paper's section 2.2: 4 KiB take "lower than 4us", for which 4
    /// us stand here, and 8, 16, 32 and 64 KiB 1.2, 1.64, 2.47 and 4.15 times as long. "Write performance
    /// exhibits similar trends".
    fn latencies_ns(self) -> &'static [(u32, u64)] {
        match self {
            Self::Fdr => &[(1, 4_000), (2, 4_800), (4, 6_560), (8, 9_880), (16, 16_600)],
        }
    }

    /// How long a message of so many pages takes on an idle link; between the sizes that were measured, in
    /// proportion.
    #[must_use]
    pub fn latency_ns(self, pages: u32) -> u64 {
        let measured = self.latencies_ns();
        let above = measured.partition_point(|&(size, _)| size < pages);
        let (Some(&(size, latency_ns)), before) = (measured.get(above), above.checked_sub(1)) else {
            return measured.last().map_or(0, |&(_, latency_ns)| latency_ns);
        };
        let Some(&(size_before, latency_before_ns)) = before.and_then(|at| measured.get(at)) else {
            return latency_ns;
        };
        let share = u64::from(pages - size_before);
        latency_before_ns + (latency_ns - latency_before_ns) * share / u64::from(size - size_before)
    }

    /// How long a message keeps others off the link. The same section: "higher than 5 GB/s [...] in case of 4
    /// KB", and larger ones have the maximum, 6.8 GB/s.
    #[must_use]
    pub fn occupancy_ns(self, pages: u32) -> u64 {
        let Self::Fdr = self;
        let bytes = u64::from(pages) * PAGE_SIZE as u64;
        if pages <= 1 { bytes * 10 / 50 } else { bytes * 10 / 68 }
    }
}

impl fmt::Display for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Fdr = self;
        f.write_str("fdr")
    }
}

/// Which way bytes go; the link carries both ways at once.
#[derive(Clone, Copy)]
enum Way {
    In = 0,
    Out = 1,
}

/// The link that the lanes of a run share: when each of its directions is free, in nanoseconds of the
/// monotonic clock.
#[derive(Clone)]
pub struct Link {
    fabric: Fabric,
    memory: Arc<SharedMemory>,
    offset: usize,
}

impl Link {
    /// Memory that the link takes: a page of zeros is an idle one.
    pub const BYTES: usize = PAGE_SIZE;

    /// A link that lies at `offset` of this memory.
    pub(crate) fn at(fabric: Fabric, memory: Arc<SharedMemory>, offset: usize) -> Self {
        Self { fabric, memory, offset }
    }

    fn free_at_ns(&self, way: Way) -> &AtomicU64 {
        &self.memory.atomics_u64(self.offset, 2)[way as usize]
    }

    /// Queues the messages of a batch at `now_ns`: when the last of them is there.
    fn send(&self, way: Way, now_ns: u64, slots: impl Iterator<Item = u32>) -> u64 {
        messages(slots).map(|pages| self.message(way, now_ns, pages)).max().unwrap_or(now_ns)
    }

    fn message(&self, way: Way, now_ns: u64, pages: u32) -> u64 {
        let start_ns = |free_at_ns| match free_at_ns {
            later if (now_ns..now_ns + LONGEST_QUEUE_NS).contains(&later) => later,
            _ => now_ns,
        };
        let occupied = |free_at_ns| Some(start_ns(free_at_ns) + self.fabric.occupancy_ns(pages));
        let before = self.free_at_ns(way).fetch_update(Ordering::Relaxed, Ordering::Relaxed, occupied);
        let (Ok(free_at_ns) | Err(free_at_ns)) = before;
        start_ns(free_at_ns) + self.fabric.latency_ns(pages)
    }
}

/// The numbers of pages of the messages that these slots travel in.
fn messages(slots: impl Iterator<Item = u32>) -> impl Iterator<Item = u32> {
    let mut slots = slots.peekable();
    std::iter::from_fn(move || {
        let mut slot = slots.next()?;
        let mut pages = 1;
        while pages < MAX_MESSAGE_PAGES && slots.next_if(|&next| slot.checked_add(1) == Some(next)).is_some()
        {
            (slot, pages) = (slot + 1, pages + 1);
        }
        Some(pages)
    })
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Waits until the clock says so, to the microsecond.
fn wait_until(end_ns: u64) {
    loop {
        match end_ns.saturating_sub(now_ns()) {
            0 => return,
            long_ns if long_ns > SLEPT_NS => {
                // Woken early, it polls.
                let tv_nsec = (long_ns - POLLED_NS).min(999_999_999) as i64;
                let _ = nanosleep(&Timespec { tv_sec: 0, tv_nsec });
            }
            _ => std::hint::spin_loop(),
        }
    }
}

/// A lane over a link.
struct FabricLane {
    inner: Box<dyn Lane>,
    link: Link,
    /// When the last write has arrived.
    written_ns: u64,
    /// The slots of the reads that are posted, and when they are there.
    posted: Vec<u32>,
    posted_there_ns: u64,
}

impl Lane for FabricLane {
    fn write(&mut self, batch: &mut [WriteRequest<'_>]) {
        wait_until(self.written_ns);
        self.written_ns = self.link.send(Way::Out, now_ns(), batch.iter().map(|request| request.slot));
        self.inner.write(batch);
    }

    fn read(&mut self, batch: &mut [ReadRequest<'_>]) {
        let there_ns = self.link.send(Way::In, now_ns(), batch.iter().map(|request| request.slot));
        self.inner.read(batch);
        wait_until(there_ns);
    }

    fn can_post(&self) -> bool {
        true
    }

    fn post_reads(&mut self, slots: &[u32]) {
        self.posted_there_ns = self.link.send(Way::In, now_ns(), slots.iter().copied());
        self.posted.clear();
        self.posted.extend_from_slice(slots);
        self.inner.post_reads(slots);
    }

    fn complete_reads(&mut self, batch: &mut [ReadRequest<'_>]) {
        if !are_of(&self.posted, batch) {
            return self.read(batch);
        }
        self.posted.clear();
        self.inner.complete_reads(batch);
        wait_until(self.posted_there_ns);
    }

    fn discard(&mut self, slots: &[u32]) {
        self.inner.discard(slots);
    }

    fn has_answered(&self) -> bool {
        self.inner.has_answered()
    }
}

/// The lane as it is, or over the link where there is one.
pub(crate) fn over(link: Option<Link>, lane: Box<dyn Lane>) -> Box<dyn Lane> {
    match link {
        Some(link) => {
            Box::new(FabricLane { inner: lane, link, written_ns: 0, posted: Vec::new(), posted_there_ns: 0 })
        }
        None => lane,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_store, complete, expect_pages, open_again, open_store, pages, read, write};
    use proptest::prelude::*;
    use std::time::{Duration, Instant};

    #[test]
    fn latencies_are_the_papers_and_in_proportion_between() {
        let times: Vec<_> =
            [1, 2, 4, 8, 16].map(|pages| Fabric::Fdr.latency_ns(pages) as f64 / 4_000.0).into();
        assert_eq!(times, [1.0, 1.2, 1.64, 2.47, 4.15]);
        assert_eq!(Fabric::Fdr.latency_ns(3), (4_800 + 6_560) / 2);
        assert_eq!(Fabric::Fdr.latency_ns(12), (9_880 + 16_600) / 2);
    }

    #[test]
    fn the_link_carries_what_the_paper_measured() {
        let gb_per_s = |pages: u32| f64::from(pages) * 4096.0 / Fabric::Fdr.occupancy_ns(pages) as f64;
        assert!((gb_per_s(1) - 5.0).abs() < 0.02 && (gb_per_s(16) - 6.8).abs() < 0.02);
    }

    proptest! {
        #[test]
        fn more_pages_take_longer_and_never_less_than_the_link(pages in 1..MAX_MESSAGE_PAGES) {
            let fabric = Fabric::Fdr;
            prop_assert!(fabric.latency_ns(pages) < fabric.latency_ns(pages + 1));
            prop_assert!(fabric.occupancy_ns(pages) < fabric.occupancy_ns(pages + 1));
            prop_assert!(fabric.occupancy_ns(pages) < fabric.latency_ns(pages));
        }

        #[test]
        fn no_page_is_lost_between_messages(slots in prop::collection::vec(0..40u32, 0..200)) {
            let sizes: Vec<u32> = messages(slots.iter().copied()).collect();
            prop_assert_eq!(sizes.iter().sum::<u32>() as usize, slots.len());
            prop_assert!(sizes.iter().all(|size| (1..=MAX_MESSAGE_PAGES).contains(size)));
        }
    }

    #[test]
    fn neighbours_travel_together() {
        let sizes = |slots: &[u32]| messages(slots.iter().copied()).collect::<Vec<_>>();
        assert_eq!(sizes(&[7, 8, 9, 3, 4, 1]), [3, 2, 1]);
        assert_eq!(sizes(&(0..40).collect::<Vec<_>>()), [16, 16, 8]);
        assert_eq!(sizes(&[u32::MAX, 0]), [1, 1]);
    }

    fn idle_link() -> Link {
        let (_file, memory) = SharedMemory::create("link", Link::BYTES).unwrap();
        Link::at(Fabric::Fdr, Arc::new(memory), 0)
    }

    #[test]
    fn messages_queue_for_the_link_and_each_way_by_itself() {
        let (link, fabric) = (idle_link(), Fabric::Fdr);
        let (page, block) = (fabric.occupancy_ns(1), fabric.occupancy_ns(16));
        assert_eq!(link.send(Way::In, 10, 0..16), 10 + fabric.latency_ns(16));
        assert_eq!(link.send(Way::In, 10, [40, 50].into_iter()), 10 + block + page + fabric.latency_ns(1));
        assert_eq!(link.send(Way::Out, 10, 0..1), 10 + fabric.latency_ns(1));
        let later = 10 + block + 2 * page;
        assert_eq!(link.send(Way::In, later, 0..1), later + fabric.latency_ns(1));
    }

    #[test]
    fn nonsense_in_the_shared_memory_holds_nobody_up() {
        let link = idle_link();
        link.free_at_ns(Way::In).store(u64::MAX, Ordering::Relaxed);
        assert_eq!(link.send(Way::In, 10, 0..1), 10 + Fabric::Fdr.latency_ns(1));
    }

    #[test]
    fn a_store_over_the_fabric_does_what_every_store_must() {
        check_store("ram:?size=4M&fabric=fdr");
        let (_parts, store) = open_store("ram:?size=1M&fabric=fdr");
        assert_eq!((store.capacity_slots(), store.stored_bytes()), (256, 0));
    }

    #[test]
    fn reads_and_writes_take_at_least_what_the_fabric_takes() {
        let (_parts, store) = open_store("ram:?size=1M&fabric=fdr");
        let mut lane = store.open_lane().unwrap();
        let content = pages(16, 1);
        let slots: Vec<u32> = (0..16).collect();
        let block = Duration::from_nanos(Fabric::Fdr.latency_ns(16));
        let begun = Instant::now();
        // The second write waits for the first.
        for _ in 0..2 {
            assert!(write(&mut *lane, &slots, &content).iter().all(Result::is_ok));
        }
        assert!(begun.elapsed() >= block);
        let begun = Instant::now();
        expect_pages(&mut *lane, &slots, &content);
        assert!(begun.elapsed() >= block);
    }

    #[test]
    fn what_passes_between_post_and_completion_is_not_waited_for_again() {
        let (_parts, store) = open_store("ram:?size=1M&fabric=fdr");
        let mut lane = store.open_lane().unwrap();
        let (content, slots) = (pages(16, 1), (0..16).collect::<Vec<u32>>());
        assert!(write(&mut *lane, &slots, &content).iter().all(Result::is_ok));
        let block = Duration::from_nanos(Fabric::Fdr.latency_ns(16));
        let mut shortest = block;
        for _ in 0..200 {
            let posted = Instant::now();
            lane.post_reads(&slots);
            wait_until(now_ns() + 2 * Fabric::Fdr.latency_ns(16));
            let asked = Instant::now();
            let back = complete(&mut *lane, &slots);
            shortest = shortest.min(asked.elapsed());
            assert!(back.iter().zip(&content).all(|(back, page)| back.as_ref() == Ok(page)));
            lane.post_reads(&slots);
            let at_once = complete(&mut *lane, &slots);
            assert!(posted.elapsed() >= 3 * block && at_once.iter().all(Result::is_ok));
        }
        assert!(shortest < block, "{shortest:?} for what was there already");
    }

    #[test]
    fn processes_of_a_run_share_the_link() {
        let spec = "ram:?size=1M&fabric=fdr".parse().unwrap();
        let (parts, _store) = open_store("ram:?size=1M&fabric=fdr");
        let lanes: Vec<_> = (0..2).map(|_| open_again(&spec, &parts).open_lane().unwrap()).collect();
        let begun = Instant::now();
        const READS: u64 = 200;
        std::thread::scope(|scope| {
            for mut lane in lanes {
                scope.spawn(move || {
                    for _ in 0..READS {
                        assert!(read(&mut *lane, &(0..256).collect::<Vec<_>>()).iter().all(Result::is_ok));
                    }
                });
            }
        });
        let least_ns = 2 * READS * 16 * Fabric::Fdr.occupancy_ns(16);
        assert!(begun.elapsed() >= Duration::from_nanos(least_ns));
    }
}
