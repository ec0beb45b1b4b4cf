//! DAMON through sysfs: a thread of the kernel samples a page of each region and splits and merges regions by
//! what it finds. Linux 6.2 or later. Source: Linux `Documentation/admin-guide/mm/damon/usage.rst`,
//! `.../mm/damon/design.rst`.
//!
//! Its physical addresses are taken, because one kernel thread serves all processes then; a page is said to
//! be accessed where the region that its frame lies in was. So what is known of a page is exact to its region
//! only: of 1,000 regions on a machine of 40 GiB, each is 40 MiB on average. DAMON makes regions smaller
//! where neighbouring frames differ in use; scattered hot pages stay hidden among cold ones. Take another
//! source where there is one.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::io::Errno;
use spillway_core::page::PAGE_BYTES;

use super::page_map::{Mapped, PageMap};
use super::telemetry::{Facts, Seen, Source, SourceError};
use crate::settings::{KernelSettings, SettingsError};

/// Its name, precision and cost, as `spillway doctor` and status tell them.
pub(super) const FACTS: Facts = Facts {
    name: "damon",
    precision: "a region of frames, of which there are at most 1000: \
                a page counts as accessed where its region was; \
                time to 3 s; accesses of every process",
    cost: "CPU time of a kernel thread: at most 1000 pages sampled every 100 ms; \
           of the daemon: the page map; no fault",
};

const ADMIN: &str = "sys/kernel/mm/damon/admin/kdamonds";
const SAMPLE_US: u64 = 100_000;
const AGGREGATION: Duration = Duration::from_secs(1);
const MOST_REGIONS: u64 = 1000;

/// What the kernel thread found: frames of accessed regions, in order.
#[derive(Debug, Default)]
struct Found {
    regions: Vec<Range<u64>>,
    error: Option<Errno>,
}

impl Found {
    fn holds(&self, frame: u64) -> bool {
        let at = self.regions.partition_point(|region| region.end <= frame);
        self.regions.get(at).is_some_and(|region| region.contains(&frame))
    }
}

/// DAMON at work on the machine's frames, and the answer that it last gave.
pub struct Damon {
    root: PathBuf,
    map: PageMap,
    memory: Vec<Range<u64>>,
    found: Arc<Mutex<Found>>,
    ended: Arc<AtomicBool>,
    asking: Option<JoinHandle<()>>,
}

fn unavailable(reason: impl Into<String>) -> SourceError {
    SourceError::Unavailable { name: FACTS.name, reason: reason.into() }
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// Physical memory, in bytes: `System RAM` of `/proc/iomem`, which shows addresses to root only.
fn physical_memory(text: &str) -> Vec<Range<u64>> {
    let parse = |line: &str| {
        let (range, name) = line.split_once(" : ")?;
        let (start, end) = range.split_once('-')?;
        let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
        (name == "System RAM" && end > start).then_some(start..end + 1)
    };
    text.lines().filter_map(parse).collect()
}

impl Damon {
    /// Whether DAMON is there and free; changes nothing.
    ///
    /// # Errors
    /// It is not, with the reason.
    pub fn open(root: &Path) -> Result<Self, SourceError> {
        let admin = root.join(ADMIN);
        match read(&admin.join("nr_kdamonds")).as_deref() {
            None => {
                return Err(unavailable("the kernel has no CONFIG_DAMON_SYSFS, or this user may not use it"));
            }
            Some("0") => {}
            // The directories of all are made anew when their number changes.
            Some(count) => {
                let state = read(&admin.join("0/state")).unwrap_or_default();
                return Err(unavailable(format!(
                    "{count} DAMON thread(s) of another's are set up (the first is {state}), \
                     and none can be added; \
                     where nobody needs them, end them: echo off > /{ADMIN}/0/state; \
                      echo 0 > /{ADMIN}/nr_kdamonds"
                )));
            }
        }
        let memory = physical_memory(&read(&root.join("proc/iomem")).unwrap_or_default());
        if memory.is_empty() {
            return Err(unavailable("/proc/iomem tells no addresses; run as root"));
        }
        Ok(Self {
            root: root.to_owned(),
            map: PageMap::new(root),
            memory,
            found: Arc::default(),
            ended: Arc::default(),
            asking: None,
        })
    }

    /// Sets the kernel thread up and starts it. The journal's order of putting back ends it first.
    fn set_up(&self, settings: &mut KernelSettings) -> Result<(), SettingsError> {
        let admin = self.root.join(ADMIN);
        let mut set = |path: &str, value: u64| settings.set(&admin.join(path), &value.to_string());
        set("nr_kdamonds", 1)?;
        set("0/contexts/nr_contexts", 1)?;
        let intervals = "0/contexts/0/monitoring_attrs/intervals";
        // Each has to be less than the next at every moment.
        set(&format!("{intervals}/update_us"), AGGREGATION.as_micros() as u64 * 10)?;
        set(&format!("{intervals}/aggr_us"), AGGREGATION.as_micros() as u64)?;
        set(&format!("{intervals}/sample_us"), SAMPLE_US)?;
        set("0/contexts/0/monitoring_attrs/nr_regions/max", MOST_REGIONS)?;
        set("0/contexts/0/targets/nr_targets", 1)?;
        set("0/contexts/0/targets/0/regions/nr_regions", self.memory.len() as u64)?;
        for (at, range) in self.memory.iter().enumerate() {
            // The end first: an empty region is one too.
            set(&format!("0/contexts/0/targets/0/regions/{at}/end"), range.end)?;
            set(&format!("0/contexts/0/targets/0/regions/{at}/start"), range.start)?;
        }
        set("0/contexts/0/schemes/nr_schemes", 1)?;
        let pattern = "0/contexts/0/schemes/0/access_pattern";
        // Regions of any size and age that were accessed at all.
        set(&format!("{pattern}/sz/max"), u64::MAX)?;
        set(&format!("{pattern}/nr_accesses/max"), u64::from(u32::MAX))?;
        set(&format!("{pattern}/nr_accesses/min"), 1)?;
        set(&format!("{pattern}/age/max"), u64::from(u32::MAX))?;
        settings.set(&admin.join("0/contexts/0/operations"), "paddr")?;
        settings.set(&admin.join("0/contexts/0/schemes/0/action"), "stat")?;
        settings.set(&admin.join("0/state"), "on")
    }
}

/// Asks the kernel thread what it found, which takes until its next aggregation interval ends: one to two of
/// them, Linux 6.12.
fn ask(admin: &Path) -> Result<Vec<Range<u64>>, Errno> {
    let errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    fs::write(admin.join("0/state"), "update_schemes_tried_regions").map_err(errno)?;
    let mut regions = Vec::new();
    for entry in fs::read_dir(admin.join("0/contexts/0/schemes/0/tried_regions")).map_err(errno)?.flatten() {
        let frame = |name: &str| read(&entry.path().join(name))?.parse::<u64>().ok();
        if let (Some(start), Some(end)) = (frame("start"), frame("end")) {
            regions.push(start / PAGE_BYTES..end.div_ceil(PAGE_BYTES));
        }
    }
    regions.sort_by_key(|region| region.start);
    Ok(regions)
}

impl Source for Damon {
    fn facts(&self) -> Facts {
        FACTS
    }

    fn begin(&mut self, settings: &mut KernelSettings) -> Result<(), SettingsError> {
        self.set_up(settings)?;
        let (admin, found, ended) = (self.root.join(ADMIN), self.found.clone(), self.ended.clone());
        // It waits for the kernel thread, which the daemon must not.
        self.asking = Some(std::thread::spawn(move || {
            while !ended.load(Ordering::Acquire) {
                let asked = ask(&admin);
                let failed = asked.is_err();
                let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                match asked {
                    Ok(regions) => found.regions = regions,
                    Err(error) => found.error = Some(error),
                }
                drop(found);
                if failed {
                    return;
                }
                std::thread::sleep(AGGREGATION / 4);
            }
        }));
        Ok(())
    }

    fn scan(
        &mut self,
        process: u32,
        ranges: &[Range<u64>],
        visit: &mut dyn FnMut(Seen),
    ) -> Result<(), SourceError> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = found.error {
            return Err(SourceError::Lost { name: FACTS.name, error });
        }
        self.map.walk(process, ranges, &mut |pages| {
            for &Mapped { address, frame } in pages {
                visit(Seen { address, frame, pages: 1, accessed: found.holds(frame) });
            }
            Ok(())
        })
    }

    fn least_interval(&self) -> Duration {
        2 * AGGREGATION
    }
}

impl Drop for Damon {
    /// Waits for the answer that is due, some 2 s: Linux 6.12 waits for ever where DAMON's directories are
    /// removed under somebody who waits for one.
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        if let Some(asking) = self.asking.take() {
            let _ = asking.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::page_map::PRESENT;
    use crate::testing::Tree;

    const SCHEME: &str = "0/contexts/0/schemes/0";

    /// DAMON with nothing set up, as sysfs shows it; its files are there from the start.
    fn machine() -> Tree {
        let tree = Tree::new();
        tree.write(
            "proc/iomem",
            "00000000-00000fff : Reserved\n00100000-3fffffff : System RAM\n  \
             01000000-0fffffff : Kernel code\n100000000-13fffffff : System RAM",
        );
        let zeros = [
            "nr_kdamonds",
            "0/contexts/nr_contexts",
            "0/contexts/0/monitoring_attrs/intervals/update_us",
            "0/contexts/0/monitoring_attrs/intervals/aggr_us",
            "0/contexts/0/monitoring_attrs/intervals/sample_us",
            "0/contexts/0/monitoring_attrs/nr_regions/max",
            "0/contexts/0/targets/nr_targets",
            "0/contexts/0/targets/0/regions/nr_regions",
            "0/contexts/0/targets/0/regions/0/start",
            "0/contexts/0/targets/0/regions/0/end",
            "0/contexts/0/targets/0/regions/1/start",
            "0/contexts/0/targets/0/regions/1/end",
            "0/contexts/0/schemes/nr_schemes",
            "0/contexts/0/schemes/0/access_pattern/sz/max",
            "0/contexts/0/schemes/0/access_pattern/nr_accesses/min",
            "0/contexts/0/schemes/0/access_pattern/nr_accesses/max",
            "0/contexts/0/schemes/0/access_pattern/age/max",
        ];
        zeros.iter().for_each(|path| tree.write(&format!("{ADMIN}/{path}"), "0"));
        tree.write(&format!("{ADMIN}/0/contexts/0/operations"), "vaddr");
        tree.write(&format!("{ADMIN}/{SCHEME}/action"), "stat");
        tree.write(&format!("{ADMIN}/0/state"), "off");
        tree
    }

    fn region(tree: &Tree, number: u32, start: u64, end: u64) {
        let directory = format!("{ADMIN}/{SCHEME}/tried_regions/{number}");
        tree.write(&format!("{directory}/start"), &(start * PAGE_BYTES).to_string());
        tree.write(&format!("{directory}/end"), &(end * PAGE_BYTES).to_string());
    }

    #[test]
    fn a_page_is_accessed_where_the_region_of_its_frame_was() {
        let tree = machine();
        tree.write(&format!("{ADMIN}/{SCHEME}/tried_regions/total_bytes"), "8192");
        region(&tree, 1, 300, 400);
        region(&tree, 0, 100, 200);
        tree.write("proc/7/pagemap", "");
        let map: Vec<u8> = [99, 100, 0, 199, 200, 399]
            .iter()
            .flat_map(|&frame: &u64| match frame {
                0 => [0; 8],
                frame => (PRESENT | frame).to_ne_bytes(),
            })
            .collect();
        fs::write(tree.root().join("proc/7/pagemap"), map).unwrap();
        let mut source = Damon::open(tree.root()).unwrap();
        source.found.lock().unwrap().regions = ask(&tree.root().join(ADMIN)).unwrap();
        let mut found = Vec::new();
        let range = 0..6 * PAGE_BYTES;
        source
            .scan(7, std::slice::from_ref(&range), &mut |seen| found.push((seen.frame, seen.accessed)))
            .unwrap();
        assert_eq!(found, [(99, false), (100, true), (199, true), (200, false), (399, true)]);
    }

    #[test]
    fn it_is_set_up_for_all_of_memory_and_taken_down_again() {
        let tree = machine();
        let at = |path: &str| tree.read(&format!("{ADMIN}/{path}"));
        let source = Damon::open(tree.root()).unwrap();
        let (mut settings, _) = KernelSettings::open(&tree.root().join("journal")).unwrap();
        source.set_up(&mut settings).unwrap();
        assert_eq!(
            (at("nr_kdamonds"), at("0/state"), at("0/contexts/0/operations")),
            ("1".into(), "on".into(), "paddr".into())
        );
        assert_eq!(at("0/contexts/0/targets/0/regions/1/end"), (0x1_4000_0000_u64).to_string());
        assert_eq!(at(&format!("{SCHEME}/access_pattern/nr_accesses/min")), "1");
        assert!(crate::settings::conflicts(tree.root()).is_empty(), "it only looks");
        drop(settings);
        assert_eq!(
            (at("nr_kdamonds"), at("0/state"), at("0/contexts/0/operations")),
            ("0".into(), "off".into(), "vaddr".into())
        );
    }

    /// Its directories are removed next, which blocks for ever where somebody still waits for an answer.
    #[test]
    fn who_waits_for_an_answer_has_ended_when_the_source_has() {
        let tree = machine();
        fs::create_dir_all(tree.root().join(ADMIN).join(SCHEME).join("tried_regions")).unwrap();
        let mut source = Damon::open(tree.root()).unwrap();
        let (mut settings, _) = KernelSettings::open(&tree.root().join("journal")).unwrap();
        source.begin(&mut settings).unwrap();
        let found = source.found.clone();
        drop(source);
        assert_eq!(Arc::strong_count(&found), 1);
    }

    #[test]
    fn what_is_anothers_is_left_alone_and_what_is_not_there_named() {
        let refusal = |tree: &Tree| Damon::open(tree.root()).err().unwrap().to_string();
        assert!(refusal(&Tree::new()).contains("CONFIG_DAMON_SYSFS"));
        let tree = machine();
        tree.write("proc/iomem", "00000000-00000000 : System RAM");
        assert!(refusal(&tree).contains("run as root"), "{}", refusal(&tree));
        tree.write(&format!("{ADMIN}/nr_kdamonds"), "1");
        tree.write(&format!("{ADMIN}/0/state"), "on");
        assert!(
            refusal(&tree).contains("another's") && refusal(&tree).contains("is on"),
            "{}",
            refusal(&tree)
        );
    }

    #[test]
    fn a_kernel_thread_that_ends_is_noticed() {
        let tree = machine();
        tree.write("proc/7/pagemap", "");
        let mut source = Damon::open(tree.root()).unwrap();
        // Where it was, its directories are gone.
        fs::remove_dir_all(tree.root().join(ADMIN).join("0")).unwrap();
        source.found.lock().unwrap().error = ask(&tree.root().join(ADMIN)).err();
        let error = source.scan(7, &[], &mut |_| {}).unwrap_err();
        assert!(matches!(error, SourceError::Lost { name: "damon", .. }), "{error}");
    }
}
