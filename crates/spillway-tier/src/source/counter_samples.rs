//! Samples that whoever offers `--counters` takes: a hypervisor's or an emulator's, where the processor has
//! PEBS or IBS. What lies in the file is [`crate::sample_ring`]'s.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use spillway_sys::access_events::Access;

use super::frames_only::FramesOnly;
use super::notified::{Events, Notified};
use super::telemetry::{Facts, Seen, Source, SourceCounts, SourceError};
use crate::sample_ring::{Overrun, SampleRing};
use crate::settings::{KernelSettings, SettingsError};

/// Its name, precision and cost, as `spillway doctor` and status tell them.
pub(super) const FACTS: Facts = Facts {
    name: "counter-samples",
    precision: "one access in so many that miss the last-level cache, loads and stores, as the policy asks \
                (200 where it does not); its time to 100 ms; \
                a page that is not sampled is taken for unused",
    cost: "what a sample costs the program, which the file of counters says; \
           CPU time of the daemon: the page map, and a record a sample",
};

/// For policies that ask for no samples of their own.
const PERIOD: u32 = 200;
const WAIT: Duration = Duration::from_millis(100);

/// The ring, as something that tells of accesses.
struct Samples {
    ring: SampleRing,
    /// Samples that far memory served.
    far: u64,
    failed: Option<Overrun>,
}

impl Events for Samples {
    fn watch(&mut self, _process: u32) -> Result<(), Errno> {
        Ok(())
    }

    fn unwatch(&mut self, _process: u32) {}

    fn drain(&mut self, each: &mut dyn FnMut(Access)) {
        if self.failed.is_some() {
            return;
        }
        let now = clock_gettime(ClockId::Monotonic);
        let time_ns = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        let far = &mut self.far;
        let taken = self.ring.take(&mut |sampled| {
            *far += u64::from(sampled.far);
            let (process, address) = (sampled.process, sampled.address);
            each(Access { process, address, time_ns, write: sampled.write });
        });
        self.failed = taken.err();
    }

    fn lost(&self) -> u64 {
        self.ring.lost()
    }
}

/// Samples out of the file of counters, beside the frames of the page map.
pub struct CounterSamples(Notified<Samples>);

impl CounterSamples {
    /// Finds the samples of the file that `counters` names.
    ///
    /// # Errors
    /// None is named, or it has none.
    pub fn open(counters: Option<&Path>) -> Result<Self, SourceError> {
        let unavailable = |reason| SourceError::Unavailable { name: FACTS.name, reason };
        let Some(counters) = counters else {
            return Err(unavailable(
                "it takes its samples from a file of counters; give --counters FILE".into(),
            ));
        };
        let ring = SampleRing::open(counters).map_err(|error| unavailable(error.to_string()))?;
        let samples = Samples { ring, far: 0, failed: None };
        Ok(Self(Notified::new(samples, Box::new(FramesOnly::new(Path::new("/"))))))
    }
}

impl Source for CounterSamples {
    fn facts(&self) -> Facts {
        FACTS
    }

    fn begin(&mut self, _settings: &mut KernelSettings) -> Result<(), SettingsError> {
        self.0.events().ring.set_period(PERIOD);
        Ok(())
    }

    fn scan(
        &mut self,
        process: u32,
        ranges: &[Range<u64>],
        visit: &mut dyn FnMut(Seen),
    ) -> Result<(), SourceError> {
        self.0.scan(FACTS.name, process, ranges, visit)?;
        match self.0.events().failed {
            None => Ok(()),
            Some(_) => Err(SourceError::Lost { name: FACTS.name, error: Errno::OVERFLOW }),
        }
    }

    fn take_accesses(&mut self) -> Vec<Access> {
        self.0.take()
    }

    fn longest_wait(&self) -> Option<Duration> {
        Some(WAIT)
    }

    fn sample_every(&mut self, period: u32) -> u32 {
        self.0.events().ring.set_period(period);
        period
    }

    fn sampling_ns(&self) -> u64 {
        self.0.events().ring.cost_ns()
    }

    fn forget(&mut self, process: u32) {
        self.0.forget(process);
    }

    fn counts(&self) -> SourceCounts {
        let (accesses, lost) = self.0.counts();
        SourceCounts { accesses, lost, far_accesses: self.0.events().far, ..SourceCounts::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_kernel::{EVERYWHERE, FakeKernel};
    use crate::sample_ring::Sampled;
    use crate::sample_ring::tests::Writer;
    use spillway_core::page::PAGE_BYTES;

    fn source(writer: &Writer, kernel: &FakeKernel) -> CounterSamples {
        let samples = Samples { ring: SampleRing::open(writer.path()).unwrap(), far: 0, failed: None };
        CounterSamples(Notified::new(samples, Box::new(kernel.clone())))
    }

    fn sampled(page: u64, write: bool) -> Sampled {
        Sampled { process: 7, address: page * PAGE_BYTES + 64, write, far: !write }
    }

    #[test]
    fn samples_are_told_with_what_they_were_and_count_at_the_next_scan() {
        let (writer, kernel) = (Writer::new(0), FakeKernel::default());
        let mut source = source(&writer, &kernel);
        (1..4).for_each(|page| kernel.access(7, page * PAGE_BYTES, 1));
        source.scan(7, EVERYWHERE, &mut |_| {}).unwrap();
        assert_eq!(source.sample_every(5000), 5000);
        assert_eq!(writer.get(5), 5000);
        writer.push(sampled(1, false));
        writer.push(sampled(3, true));
        writer.push(Sampled { process: 8, ..sampled(2, true) });
        let told: Vec<_> =
            source.take_accesses().iter().map(|access| (access.address / PAGE_BYTES, access.write)).collect();
        assert_eq!(told, [(1, false), (3, true)], "of processes that are watched");
        let mut found = Vec::new();
        source.scan(7, EVERYWHERE, &mut |seen| found.push(seen.accessed)).unwrap();
        assert_eq!(found, [true, false, true]);
        assert_eq!(source.sampling_ns(), 3 * 200);
        let counts = source.counts();
        assert_eq!((counts.accesses, counts.lost, counts.far_accesses), (2, 0, 1));
    }

    #[test]
    fn a_ring_that_was_overwritten_ends_the_source() {
        let (writer, kernel) = (Writer::new(0), FakeKernel::default());
        let mut source = source(&writer, &kernel);
        source.scan(7, EVERYWHERE, &mut |_| {}).unwrap();
        writer.set(7, 1000);
        assert!(source.take_accesses().is_empty());
        let error = source.scan(7, EVERYWHERE, &mut |_| {}).unwrap_err();
        assert!(matches!(error, SourceError::Lost { name: "counter-samples", .. }), "{error}");
    }

    #[test]
    fn without_a_file_of_counters_that_has_samples_it_is_refused_with_the_reason() {
        let error = CounterSamples::open(None).err().unwrap().to_string();
        assert!(error.contains("--counters FILE"), "{error}");
        let (file, _) = crate::counters::tests::file();
        let error = CounterSamples::open(Some(file.path())).err().unwrap().to_string();
        assert!(error.contains("without samples"), "{error}");
    }
}
