//! A source that is told of accesses as they happen, with their time, together with one that knows the pages.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use rustix::io::Errno;
use spillway_core::page::PAGE_BYTES;
use spillway_sys::access_events::{Access, AccessEvents};

use super::telemetry::{Seen, Source, SourceError};

/// Tells of accesses since it was last asked.
pub(super) trait Events: Send {
    fn watch(&mut self, process: u32) -> Result<(), Errno>;
    fn unwatch(&mut self, process: u32);
    fn drain(&mut self, each: &mut dyn FnMut(Access));
    fn lost(&self) -> u64;
}

impl Events for AccessEvents {
    fn watch(&mut self, process: u32) -> Result<(), Errno> {
        Self::watch(self, process)
    }

    fn unwatch(&mut self, process: u32) {
        Self::unwatch(self, process);
    }

    fn drain(&mut self, each: &mut dyn FnMut(Access)) {
        Self::drain(self, each);
    }

    fn lost(&self) -> u64 {
        Self::lost(self)
    }
}

impl Events for Box<dyn Events> {
    fn watch(&mut self, process: u32) -> Result<(), Errno> {
        self.as_mut().watch(process)
    }

    fn unwatch(&mut self, process: u32) {
        self.as_mut().unwatch(process);
    }

    fn drain(&mut self, each: &mut dyn FnMut(Access)) {
        self.as_mut().drain(each);
    }

    fn lost(&self) -> u64 {
        self.as_ref().lost()
    }
}

/// A source of frames and one of single accesses, as one.
pub(super) struct Notified<E = Box<dyn Events>> {
    events: E,
    pages: Box<dyn Source>,
    /// Pages of watched processes that were accessed since the last scan.
    accessed: HashMap<u32, BTreeSet<u64>>,
    untold: Vec<Access>,
    told: u64,
}

impl<E: Events> Notified<E> {
    pub(super) fn new(events: E, pages: Box<dyn Source>) -> Self {
        Self { events, pages, accessed: HashMap::new(), untold: Vec::new(), told: 0 }
    }

    /// What tells of accesses.
    pub(super) fn events(&self) -> &E {
        &self.events
    }

    /// The source that knows the pages.
    pub(super) fn pages(&self) -> &dyn Source {
        self.pages.as_ref()
    }

    /// Accesses it was told of, and those that had no room.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.told, self.events.lost())
    }

    fn drain(&mut self) {
        let Self { events, accessed, untold, told, .. } = self;
        events.drain(&mut |access| {
            if let Some(pages) = accessed.get_mut(&access.process) {
                pages.insert(access.address / PAGE_BYTES);
                untold.push(access);
                *told += 1;
            }
        });
    }

    /// Accesses since this was last asked, in the order of time.
    pub(super) fn take(&mut self) -> Vec<Access> {
        self.drain();
        let mut accesses = std::mem::take(&mut self.untold);
        accesses.sort_by_key(|access| access.time_ns);
        accesses
    }

    pub(super) fn scan(
        &mut self,
        name: &'static str,
        process: u32,
        ranges: &[Range<u64>],
        visit: &mut dyn FnMut(Seen),
    ) -> Result<(), SourceError> {
        if !self.accessed.contains_key(&process) {
            self.events.watch(process).map_err(|error| SourceError::Lost { name, error })?;
            self.accessed.insert(process, BTreeSet::new());
        }
        self.drain();
        let accessed = self.accessed.get_mut(&process).map(std::mem::take).unwrap_or_default();
        let scanned = self.pages.scan(process, ranges, &mut |seen| {
            let first = seen.address / PAGE_BYTES;
            let told = accessed.range(first..first + u64::from(seen.pages)).next().is_some();
            visit(Seen { accessed: seen.accessed || told, ..seen });
        });
        if matches!(scanned, Err(SourceError::Gone(_))) {
            self.forget(process);
        }
        scanned
    }

    pub(super) fn forget(&mut self, process: u32) {
        if self.accessed.remove(&process).is_some() {
            self.events.unwatch(process);
        }
        self.untold.retain(|access| access.process != process);
        self.pages.forget(process);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::fake_kernel::{EVERYWHERE, FakeKernel};

    #[derive(Clone, Default)]
    struct Told(Arc<Mutex<(Vec<Access>, BTreeSet<u32>)>>);

    impl Events for Told {
        fn watch(&mut self, process: u32) -> Result<(), Errno> {
            self.0.lock().unwrap().1.insert(process);
            Ok(())
        }

        fn unwatch(&mut self, process: u32) {
            self.0.lock().unwrap().1.remove(&process);
        }

        fn drain(&mut self, each: &mut dyn FnMut(Access)) {
            self.0.lock().unwrap().0.drain(..).for_each(each);
        }

        fn lost(&self) -> u64 {
            3
        }
    }

    impl Told {
        fn access(&self, process: u32, page: u64, time_ns: u64) {
            self.0.lock().unwrap().0.push(Access {
                process,
                address: page * PAGE_BYTES + 5,
                time_ns,
                write: false,
            });
        }
    }

    #[test]
    fn accesses_are_handed_out_in_order_of_time_and_count_at_the_next_scan() {
        let (told, kernel) = (Told::default(), FakeKernel::default());
        (0..4).for_each(|page| kernel.access(7, page * PAGE_BYTES, 1));
        let mut source = Notified::new(told.clone(), Box::new(kernel.clone()));
        let scan = |source: &mut Notified<Told>| {
            let mut found = Vec::new();
            source.scan("x", 7, EVERYWHERE, &mut |seen| found.push(seen.accessed)).unwrap();
            found
        };
        told.access(7, 1, 5);
        assert_eq!(scan(&mut source), [true; 4], "by their bits");
        told.access(7, 2, 30);
        told.access(7, 1, 20);
        told.access(8, 1, 10);
        let times: Vec<_> = source.take().iter().map(|access| access.time_ns).collect();
        assert_eq!(times, [5, 20, 30], "of processes that are watched");
        assert!(source.take().is_empty());
        assert_eq!(scan(&mut source), [false, true, true, false]);
        assert_eq!(scan(&mut source), [false; 4]);
        assert_eq!(source.counts(), (3, 3));
        kernel.state().gone.insert(7);
        told.access(7, 3, 40);
        assert!(matches!(source.scan("x", 7, EVERYWHERE, &mut |_| {}), Err(SourceError::Gone(7))));
        assert!(source.take().is_empty() && told.0.lock().unwrap().1.is_empty(), "no longer watched");
    }

    #[test]
    fn a_fault_anywhere_in_a_huge_page_is_an_access_to_it() {
        let (told, kernel) = (Told::default(), FakeKernel::default());
        kernel.access(7, 0, 1);
        kernel.state().pages.values_mut().for_each(|page| (page.pages, page.accessed) = (512, false));
        let mut source = Notified::new(told.clone(), Box::new(kernel));
        let mut accessed = Vec::new();
        for page in [None, Some(511), Some(512)] {
            page.into_iter().for_each(|page| told.access(7, page, 1));
            source.scan("x", 7, EVERYWHERE, &mut |seen| accessed.push(seen.accessed)).unwrap();
        }
        assert_eq!(accessed, [false, true, false]);
    }
}
