//! Where a thread and its children spend their time: the kernel looks many times a second what each of their
//! CPUs does (perf_event_open(2) with the software clock, which needs no hardware counters).

use rustix::io::Result;

use crate::perf::{
    self, Attributes, RECORD_LOST, RECORD_SAMPLE, Ring, SAMPLE_CALLCHAIN, SAMPLE_IP, SAMPLE_TID, flag,
};

const PERF_COUNT_SW_CPU_CLOCK: u64 = 0;
const FRAMES: u16 = 24;
/// Above this, an entry of a call chain says what follows and is no address (`PERF_CONTEXT_MAX`).
const CONTEXTS: u64 = -4095_i64 as u64;
const DATA_BYTES: usize = 1 << 20;

/// What one look has found.
#[derive(Debug)]
pub struct Sample<'a> {
    /// The process.
    pub process: u32,
    /// Addresses in the kernel, innermost first; none where it ran in user space.
    pub kernel: &'a [u64],
}

/// Looks at the calling thread, and at all threads and processes that it starts from now on.
#[derive(Debug)]
pub struct Sampler {
    cpus: Vec<Ring>,
    lost: u64,
}

impl Sampler {
    /// A sampler that is not started. It looks every `period_ns` of CPU time.
    ///
    /// # Errors
    /// EACCES or EPERM where `kernel.perf_event_paranoid` does not allow looking into the kernel.
    pub fn new(cpus: impl Iterator<Item = u32>, period_ns: u64) -> Result<Self> {
        let attributes = Attributes {
            kind: perf::TYPE_SOFTWARE,
            config: PERF_COUNT_SW_CPU_CLOCK,
            sample_period: period_ns,
            sample_type: SAMPLE_IP | SAMPLE_TID | SAMPLE_CALLCHAIN,
            flags: flag::DISABLED | flag::INHERIT | flag::EXCLUDE_CALLCHAIN_USER,
            sample_max_stack: FRAMES,
            ..Attributes::default()
        };
        let open = |cpu| Ring::new(perf::open(&attributes, 0, cpu, None)?, DATA_BYTES);
        Ok(Self { cpus: cpus.map(open).collect::<Result<_>>()?, lost: 0 })
    }

    /// Starts or stops looking.
    pub fn enable(&self, on: bool) {
        for cpu in &self.cpus {
            // It cannot fail for an event that was opened.
            let _ = cpu.enable(on);
        }
    }

    /// Hands out what was found since the last time.
    pub fn drain(&mut self, mut each: impl FnMut(&Sample<'_>)) {
        let lost = &mut self.lost;
        for cpu in &mut self.cpus {
            cpu.drain(&mut |kind, words| match (kind, words) {
                (RECORD_SAMPLE, [_, ids, count, chain @ ..]) => {
                    let chain = &chain[..chain.len().min(*count as usize)];
                    // The first entry says where the next ones are.
                    let kernel = chain.split_first().map_or(&[][..], |(_, addresses)| addresses);
                    let end = kernel.iter().position(|&address| address >= CONTEXTS).unwrap_or(kernel.len());
                    each(&Sample { process: *ids as u32, kernel: &kernel[..end] });
                }
                (RECORD_LOST, [_, count, ..]) => *lost += count,
                _ => {}
            });
        }
    }

    /// Looks that found no room: drain more often.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn a_busy_thread_is_seen_in_the_kernel_and_out_of_it() {
        let cpus = std::thread::available_parallelism().unwrap().get() as u32;
        let mut sampler = match Sampler::new(0..cpus, 50_000) {
            Ok(sampler) => sampler,
            // Not allowed to this user.
            Err(error) => {
                assert!(matches!(error, Errno::ACCESS | Errno::PERM | Errno::NOSYS), "{error}");
                return;
            }
        };
        let (mut inside, mut outside) = (0, 0);
        let mut zeros = vec![0; 1 << 20];
        sampler.enable(true);
        while inside == 0 || outside == 0 {
            std::io::Read::read_exact(&mut std::fs::File::open("/dev/zero").unwrap(), &mut zeros).unwrap();
            zeros.fill(1);
            sampler.drain(|sample| {
                assert_eq!(sample.process, std::process::id());
                match sample.kernel {
                    [] => outside += 1,
                    // The upper half of the addresses.
                    [address, ..] => {
                        assert!(address >> 63 == 1, "{address:x}");
                        inside += 1;
                    }
                }
            });
        }
        sampler.enable(false);
        assert_eq!(sampler.lost(), 0);
    }
}
