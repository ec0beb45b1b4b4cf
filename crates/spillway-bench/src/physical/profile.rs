//! Where time goes in the kernel, by samples: finding pages, zeroing them, the rest of a fault.

use std::collections::HashMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use spillway_sys::sampling::{Sample, Sampler};

use super::stage::Stage;
use crate::BenchError;

/// A CPU is looked at so often while it works for us.
const PERIOD_NS: u64 = 100_000;
const DRAIN_EVERY: Duration = Duration::from_millis(20);
const REMEDY: &str =
    "run it as root, or allow it: sysctl kernel.perf_event_paranoid=-1 kernel.kptr_restrict=0";

/// Whose time counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// That of the calling thread and of threads that it starts.
    Ours,
    /// That of processes that it starts.
    Children,
}

/// Samples, by what was going on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All of them.
    pub all: u64,
    /// Zeroing memory, wherever.
    pub zeroing: u64,
    /// In a page fault: finding a page.
    pub fault_finding: u64,
    /// In a page fault: zeroing it.
    pub fault_zeroing: u64,
    /// In a page fault: the rest.
    pub fault_rest: u64,
}

impl Counts {
    /// Share of the time that goes into zeroing, in percent.
    #[must_use]
    pub fn zeroing_percent(&self) -> f64 {
        self.zeroing as f64 * 100.0 / self.all.max(1) as f64
    }

    /// All samples in page faults.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.fault_finding + self.fault_zeroing + self.fault_rest
    }

    /// The time that so many samples stand for.
    #[must_use]
    pub fn time_ns(samples: u64) -> f64 {
        (samples * PERIOD_NS) as f64
    }

    fn add(&mut self, is_fault: bool, doing: Option<Doing>) {
        self.all += 1;
        self.zeroing += u64::from(doing == Some(Doing::Zeroing));
        if is_fault {
            *match doing {
                Some(Doing::Zeroing) => &mut self.fault_zeroing,
                Some(Doing::Finding) => &mut self.fault_finding,
                None => &mut self.fault_rest,
            } += 1;
        }
    }
}

/// What a function of the kernel is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Zeroing,
    Finding,
}

#[derive(Clone, Copy, Debug, Default)]
struct Meaning {
    doing: Option<Doing>,
    is_fault: bool,
}

/// Functions of the page allocator (`mm/page_alloc.c`, `mm/hugetlb.c`) and those that clear pages, by name,
/// of kernels since 5.10. What a name begins with where it ends in `*`.
const ZEROING: &[&str] = &[
    "clear_page_*",
    "clear_pages*",
    "clear_huge_page*",
    "clear_subpage*",
    "clear_gigantic_page*",
    "folio_zero_user*",
    "kernel_init_pages*",
    "__memset_page*",
];
const NOT_ZEROING: &str = "clear_page_dirty_for_io";
const FINDING: &[&str] = &[
    "get_page_from_freelist",
    "__alloc_pages*",
    "__alloc_frozen_pages*",
    "alloc_pages_mpol*",
    "rmqueue*",
    "try_to_compact_pages",
    "alloc_hugetlb_folio*",
    "alloc_huge_page*",
    "shmem_alloc_folio*",
];
const FAULT: &[&str] = &["exc_page_fault", "asm_exc_page_fault", "do_user_addr_fault", "handle_mm_fault"];

fn is_among(name: &str, names: &[&str]) -> bool {
    names.iter().any(|wanted| match wanted.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == *wanted,
    })
}

fn meaning(name: &str) -> Meaning {
    let doing = if is_among(name, ZEROING) && name != NOT_ZEROING {
        Some(Doing::Zeroing)
    } else if is_among(name, FINDING) {
        Some(Doing::Finding)
    } else {
        None
    };
    Meaning { doing, is_fault: is_among(name, FAULT) }
}

/// Functions of the kernel by address.
struct Symbols {
    starts: Vec<(u64, Meaning)>,
    known: HashMap<u64, Meaning>,
}

impl Symbols {
    fn read() -> Result<Self, BenchError> {
        let failed = |reason: &dyn std::fmt::Display| {
            BenchError::setup("read the kernel's symbols from /proc/kallsyms", reason, REMEDY)
        };
        let text = fs::read_to_string("/proc/kallsyms").map_err(|error| failed(&error))?;
        let symbols = Self::of(&text);
        if symbols.starts.iter().all(|&(start, _)| start == 0) {
            return Err(failed(&"addresses are hidden"));
        }
        Ok(symbols)
    }

    fn of(text: &str) -> Self {
        let line = |line: &str| {
            let mut fields = line.split_whitespace();
            let start = u64::from_str_radix(fields.next()?, 16).ok()?;
            Some((start, meaning(fields.nth(1)?)))
        };
        let mut starts: Vec<(u64, Meaning)> = text.lines().filter_map(line).collect();
        starts.sort_by_key(|&(start, _)| start);
        Self { starts, known: HashMap::new() }
    }

    fn meaning(&mut self, address: u64) -> Meaning {
        let starts = &self.starts;
        *self.known.entry(address).or_insert_with(|| {
            let after = starts.partition_point(|&(start, _)| start <= address);
            after.checked_sub(1).map_or_else(Meaning::default, |at| starts[at].1)
        })
    }

    fn count(&mut self, kernel: &[u64], counts: &mut Counts) {
        let mut is_fault = false;
        let mut doing = None;
        for &address in kernel {
            let meaning = self.meaning(address);
            is_fault |= meaning.is_fault;
            // The innermost decides, but for zeroing within finding and finding within zeroing's preparation.
            doing = doing.or(meaning.doing);
        }
        counts.add(is_fault, doing);
    }
}

/// Does `work` and counts where its time goes.
///
/// # Errors
/// The kernel does not let this user look, or `work` fails.
pub fn profile<T>(
    stage: &Stage<'_>,
    whose: Whose,
    work: impl FnOnce() -> Result<T, BenchError>,
) -> Result<(T, Counts), BenchError> {
    let mut symbols = Symbols::read()?;
    let (give, take) = channel::<Sampler>();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Started before there is a sampler, so that it is not sampled itself.
        let (symbols, ended) = (&mut symbols, &ended);
        let reader =
            scope.spawn(move || take.recv().ok().map(|sampler| drain(sampler, symbols, whose, ended)));
        let cpus = stage.cpus.iter().map(|&cpu| cpu as u32);
        let sampler = Sampler::new(cpus, PERIOD_NS)
            .map_err(|error| BenchError::setup("sample what CPUs do", error, REMEDY));
        let result = sampler.and_then(|sampler| {
            sampler.enable(true);
            let _ = give.send(sampler);
            let result = work();
            ended.store(true, Ordering::Relaxed);
            result
        });
        drop(give);
        let counts = reader.join().ok().flatten().unwrap_or_default();
        Ok((result?, counts))
    })
}

fn drain(mut sampler: Sampler, symbols: &mut Symbols, whose: Whose, ended: &AtomicBool) -> Counts {
    let own = std::process::id();
    let mut counts = Counts::default();
    loop {
        let last = ended.load(Ordering::Relaxed);
        if last {
            sampler.enable(false);
        }
        sampler.drain(|sample: &Sample<'_>| {
            if (sample.process == own) == (whose == Whose::Ours) {
                symbols.count(sample.kernel, &mut counts);
            }
        });
        if last {
            return counts;
        }
        std::thread::sleep(DRAIN_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KALLSYMS: &str = "\
ffffffff81000000 T _text
ffffffff81001000 t get_page_from_freelist
ffffffff81002000 T clear_page_erms
ffffffff81003000 T clear_page_dirty_for_io
ffffffff81004000 T exc_page_fault
ffffffff81005000 t _raw_spin_unlock_irqrestore
";

    #[test]
    fn a_sample_is_what_its_innermost_known_function_is_there_for() {
        let mut symbols = Symbols::of(KALLSYMS);
        let at = |page: u64| 0xffff_ffff_8100_0000 + page * 0x1000 + 0x10;
        let mut counts = Counts::default();
        for kernel in [
            &[at(2), at(4)][..],
            &[at(5), at(1), at(4)],
            &[at(5), at(4)],
            // Not in a fault: a kernel buffer.
            &[at(2)],
            &[at(3)],
            &[],
        ] {
            symbols.count(kernel, &mut counts);
        }
        let expected = Counts { all: 6, zeroing: 2, fault_finding: 1, fault_zeroing: 1, fault_rest: 1 };
        assert_eq!(counts, expected);
        assert_eq!((counts.faults(), counts.zeroing_percent().round()), (3, 33.0));
    }
}
