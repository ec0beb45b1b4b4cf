//! The hardware and the kernel that are simulated: every constant of the time model, with where it comes
//! from.
//!
//! `docs/lab/time-model.md` tells how they work together. "Measured" means measured on the development
//! machine (2 virtual CPUs, Linux 6.18); "chosen" means that no source was found, and that the value is our
//! estimate.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use spillway_core::page::PAGE_BYTES;
use thiserror::Error;

use crate::memory::LINE_BYTES;

/// Bytes that a cache line takes on the link: itself and a header (chosen; CXL and OpenCAPI spend 4 to 16).
pub const LINE_MESSAGE_BYTES: u64 = LINE_BYTES + 16;

/// Smallest last-level cache that scaling leaves, in bytes.
const MIN_LLC_BYTES: u64 = 32 << 10;

/// Smallest TLB that scaling leaves, in entries.
const MIN_TLB_ENTRIES: u32 = 32;
/// The same of entries for huge pages alone: a set.
const MIN_TLB_HUGE_ENTRIES: u32 = 4;

/// Where daemons (scans, background migration) run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DaemonCore {
    /// On the cores that the program has, at its cost (HotBox 6.1 disables all other cores).
    Shared,
    /// On a core of their own.
    Spare,
}

/// The constants of the time model, for one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Platform {
    /// The name that it goes by.
    pub name: String,
    /// Working set that a run on the real platform had, in bytes. A smaller run is scaled by what it has of
    /// this.
    pub working_set_bytes: u64,
    /// Smallest page, in bytes.
    pub page_bytes: u64,
    /// First-level cache of a core, in bytes.
    pub l1_bytes: u64,
    /// Its hit, in nanoseconds.
    pub l1_ns: f64,
    /// Last-level cache, in bytes.
    pub llc_bytes: u64,
    /// Its hit, in nanoseconds.
    pub llc_ns: f64,
    /// TLB of a core, in entries.
    pub tlb_entries: u32,
    /// What of it is for huge pages alone, beside those; 0 where all pages share its entries.
    pub tlb_huge_entries: u32,
    /// Page walk before its last load, in nanoseconds; the last load goes through the caches.
    pub walk_ns: f64,
    /// Local memory, from a miss in the last-level cache, in nanoseconds.
    pub local_ns: f64,
    /// Far memory, likewise, on an idle network, in nanoseconds.
    pub far_ns: f64,
    /// Bandwidth of the link, each way, in bytes per second.
    pub link_bytes_per_s: f64,
    /// Misses that overlap when a core runs through memory line by line, local or far; 1 for none.
    pub stream_overlap: f64,
    /// Lines under way at once while a core copies a page from one tier to the other; 0 where the link moves
    /// pages by itself.
    pub copy_overlap: f64,
    /// First touch of a page, in nanoseconds.
    pub first_touch_ns: f64,
    /// A fault that needs no page: hint or minor, in nanoseconds.
    pub fault_ns: f64,
    /// A fault that fetches a page, without the transfer: software of the swap path or of the hypervisor,
    /// nanoseconds.
    pub fetch_software_ns: f64,
    /// Moving one page, without the transfer, in nanoseconds.
    pub migrate_page_ns: f64,
    /// A system call that migrates, beyond its pages, in nanoseconds.
    pub migrate_call_ns: f64,
    /// Scanning an entry of the page table, in nanoseconds.
    pub scan_entry_ns: f64,
    /// Clearing an accessed bit that was set, in nanoseconds.
    pub clear_entry_ns: f64,
    /// Scanning an entry of the level above, in nanoseconds.
    pub scan_upper_ns: f64,
    /// Looking up a page's accessed bit from its frame, as LRU lists do (reverse map), in nanoseconds.
    pub lru_entry_ns: f64,
    /// What of the time that the kernel's swap path takes is under locks that all cores share, as a share.
    pub swap_locked_share: f64,
    /// Unmapping or marking one page of a batch, in nanoseconds.
    pub mark_page_ns: f64,
    /// TLB shootdown where it begins, in nanoseconds.
    pub shootdown_ns: f64,
    /// TLB shootdown on every other core, in nanoseconds.
    pub interrupt_ns: f64,
    /// Taking one sample of an access, in nanoseconds.
    pub sample_ns: f64,
    /// On which cores daemons run, and so at whose cost.
    pub daemon_core: DaemonCore,
}

/// Why there is no such platform.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("no platform is called '{name}': choose one of {}", NAMES.join(", "))]
pub struct PlatformError {
    name: String,
}

/// Names of the presets.
pub const NAMES: [&str; 6] = ["hotbox", "indigo", "dcm", "cxl", "nvmm", "numa"];

/// What a setting of this name may be.
#[must_use]
pub fn range(name: &str) -> Option<RangeInclusive<f64>> {
    match name {
        "working_set_bytes" => Some(1.0..=1e18),
        "stream_overlap" => Some(1.0..=1024.0),
        "copy_overlap" => Some(0.0..=1024.0),
        name if name.ends_with("_bytes_per_s") => Some(1e3..=1e15),
        name if name.ends_with("_bytes") => Some(0.0..=f64::from(1 << 30)),
        name if name.ends_with("_entries") => Some(0.0..=f64::from(1 << 20)),
        name if name.ends_with("_share") => Some(0.0..=1.0),
        name if name.ends_with("_ns") => Some(0.0..=1e9),
        _ => None,
    }
}

/// What is wrong with the first setting of a platform whose value makes no sense, if any does not.
#[must_use]
pub fn nonsense(settings: &Map<String, Value>) -> Option<String> {
    settings.iter().find_map(|(name, value)| {
        let range = range(name)?;
        let wrong = value.as_f64().is_some_and(|number| !range.contains(&number));
        wrong.then(|| format!("'{name}' is {value}, not within {} to {}", range.start(), range.end()))
    })
}

impl Platform {
    /// The preset of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn named(name: &str) -> Result<Self, PlatformError> {
        match name {
            "hotbox" => Ok(Self::hotbox()),
            "indigo" => Ok(Self::indigo()),
            "dcm" => Ok(Self::dcm()),
            "cxl" => Ok(Self::cxl()),
            "nvmm" => Ok(Self::nvmm()),
            "numa" => Ok(Self::numa()),
            _ => Err(PlatformError { name: name.to_owned() }),
        }
    }

    /// HotBox's emulation platform (PMEP, 2 Xeon E5-4620 v2).
    #[must_use]
    pub fn hotbox() -> Self {
        Self {
            name: "hotbox".into(),
            working_set_bytes: 10 << 30, // HotBox 6.2
            page_bytes: PAGE_BYTES,
            l1_bytes: 32 << 10,       // Ivy Bridge
            l1_ns: 1.5,               // 4 cycles of 2.6 GHz
            llc_bytes: 20 << 20,      // Xeon E5-4620 v2, HotBox Table 2; 6 MB are its simulator's, Table 1
            llc_ns: 11.5,             // HotBox Table 1: 30 cycles of 2.6 GHz
            tlb_entries: 512,         // Ivy Bridge, second level: pages of 4 KiB only
            tlb_huge_entries: 32,     // Ivy Bridge, first level
            walk_ns: 3.0,             // chosen: upper levels from the walk caches
            local_ns: 70.0,           // HotBox Table 1: 210 cycles are 81 ns, of which 11.5 in the LLC
            far_ns: 750.0,            // HotBox 6.3
            link_bytes_per_s: 14.4e9, // QPI at 7.2 GT/s
            stream_overlap: 10.0,     // Ivy Bridge: line fill buffers; the simulator of 3.1 has none
            // The same: far memory is another node's (HotBox 6.1), so cores copy its pages.
            copy_overlap: 10.0,
            first_touch_ns: 740.0, // measured: anonymous first touch, read
            fault_ns: 1000.0,      // measured: a fault that the kernel resolves alone
            // HotBox 3.3: a migrated page's 4 us less the fault; swap without block layer.
            fetch_software_ns: 3000.0,
            migrate_page_ns: 3700.0,   // HotBox 3.3: 4 us, of which 0.3 us on the link
            migrate_call_ns: 26_000.0, // HotBox 3.3
            scan_entry_ns: 1.3,        // measured: PAGEMAP_SCAN of clean pages
            clear_entry_ns: 16.0,      // measured: PAGEMAP_SCAN of dirty pages
            scan_upper_ns: 5.0,        // chosen
            lru_entry_ns: 150.0,       // chosen: reverse map and two list operations
            swap_locked_share: 1.0,    // measured: two threads that swap are no faster than one
            mark_page_ns: 100.0,       // measured: write-protecting 512 pages in one call
            shootdown_ns: 1600.0,      // measured: unmapping with and without another running thread
            interrupt_ns: 500.0,       // chosen
            sample_ns: 200.0,          // chosen: PEBS assist and its share of the interrupt
            daemon_core: DaemonCore::Shared,
        }
    }

    /// INDIGO's prototype: ThymesisFlow between POWER9 nodes.
    #[must_use]
    pub fn indigo() -> Self {
        Self {
            name: "indigo".into(),
            working_set_bytes: 48 << 30, // INDIGO Table 3, Graph500
            page_bytes: 64 << 10,        // INDIGO 6.3
            llc_bytes: 40 << 20,         // POWER9: 10 MB a pair of cores, 8 cores
            tlb_entries: 1024,           // POWER9
            tlb_huge_entries: 0,
            local_ns: 85.0,           // chosen: POWER9 with 8 channels of DDR4
            stream_overlap: 4.0,      // chosen
            copy_overlap: 0.0,        // INDIGO Equation 1: a page costs its size by the bandwidth
            far_ns: 900.0,            // INDIGO 6.1
            link_bytes_per_s: 12.5e9, // INDIGO 6.1: 100 Gb/s
            migrate_page_ns: 3700.0,  // as HotBox's; the 64 KiB pay on the link
            daemon_core: DaemonCore::Spare,
            ..Self::hotbox()
        }
    }

    /// dcm's cluster: FDR InfiniBand, page fetches only.
    #[must_use]
    pub fn dcm() -> Self {
        Self {
            name: "dcm".into(),
            working_set_bytes: 27 << 30, // dcm Table 1, TPC-C
            llc_bytes: 30 << 20,         // Xeon E5-2670 v3
            tlb_entries: 1024,           // Haswell
            tlb_huge_entries: 0,
            local_ns: 80.0,          // chosen
            far_ns: 2840.0,          // dcm Fig. 1b: fits 1, 1.2, 1.64, 2.47, 4.15 for 4 to 64 KiB
            link_bytes_per_s: 5.4e9, // dcm 2.2 and the same fit
            copy_overlap: 0.0,       // dcm 5.1: RDMA
            // Chosen: an EPT violation and its handler take 1.5 us, of which 1 us is the fault.
            fetch_software_ns: 500.0,
            daemon_core: DaemonCore::Spare,
            ..Self::hotbox()
        }
    }

    /// A present-day CXL memory expander on a PCIe 5.0 x8 link.
    #[must_use]
    pub fn cxl() -> Self {
        Self {
            name: "cxl".into(),
            working_set_bytes: 64 << 30,
            llc_bytes: 32 << 20,
            tlb_entries: 2048,
            tlb_huge_entries: 0,
            local_ns: 100.0,        // Sapphire Rapids with DDR5
            far_ns: 250.0,          // published measurements of expanders: 200 to 400 ns
            link_bytes_per_s: 26e9, // PCIe 5.0 x8, as reached
            daemon_core: DaemonCore::Spare,
            ..Self::hotbox()
        }
    }

    /// Optane persistent memory beside DRAM.
    #[must_use]
    pub fn nvmm() -> Self {
        Self {
            name: "nvmm".into(),
            working_set_bytes: 64 << 30,
            llc_bytes: 32 << 20,
            tlb_entries: 1536,
            tlb_huge_entries: 0,
            local_ns: 81.0, // Izraelevitz et al. 2019, as HotBox [27]: sequential 81, random 101
            far_ns: 305.0,  // the same: random read
            link_bytes_per_s: 6.6e9, // the same: read bandwidth of one DIMM
            daemon_core: DaemonCore::Spare,
            ..Self::hotbox()
        }
    }

    /// The other socket's memory, as INDIGO's Fig. 3 compares with.
    #[must_use]
    pub fn numa() -> Self {
        Self {
            name: "numa".into(),
            far_ns: 170.0,          // chosen: one hop more
            link_bytes_per_s: 60e9, // POWER9 X bus
            ..Self::indigo()
        }
    }

    /// This platform for a working set that is `factor` of the real one: caches and TLB shrink with it, so
    /// that they hold the same share. Latencies, bandwidths and costs of single operations stay.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Self {
        let factor = factor.min(1.0);
        let llc_bytes = power_of_two_near(self.llc_bytes as f64 * factor).max(MIN_LLC_BYTES);
        let entries = |entries: u32| power_of_two_near(f64::from(entries) * factor) as u32;
        Self {
            llc_bytes,
            l1_bytes: self.l1_bytes.min(llc_bytes / 8),
            tlb_entries: entries(self.tlb_entries).max(MIN_TLB_ENTRIES),
            tlb_huge_entries: match self.tlb_huge_entries {
                0 => 0,
                own => entries(own).max(MIN_TLB_HUGE_ENTRIES),
            },
            ..self.clone()
        }
    }
}

/// The power of two that is next to `value` from below; at least 1.
fn power_of_two_near(value: f64) -> u64 {
    1 << (value.max(1.0) as u64).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_found_by_its_name() {
        for name in NAMES {
            let platform = Platform::named(name).unwrap();
            assert_eq!(platform.name, name);
            let settings = serde_json::to_value(&platform).unwrap();
            assert_eq!(nonsense(settings.as_object().unwrap()), None, "{name}");
        }
        let error = Platform::named("abacus").unwrap_err().to_string();
        assert!(error.contains("'abacus'") && error.contains("hotbox"), "{error}");
    }

    #[test]
    fn scaling_shrinks_caches_and_nothing_else() {
        let platform = Platform::hotbox();
        let scaled = platform.scaled(1.0 / 64.0);
        assert_eq!(scaled.llc_bytes, 256 << 10);
        assert_eq!(scaled.tlb_entries, MIN_TLB_ENTRIES);
        assert_eq!(scaled.far_ns, platform.far_ns);
        assert_eq!(platform.scaled(2.0).tlb_entries, platform.tlb_entries);
    }

    /// dcm Fig. 1b: a 64 KiB message takes 4.15 times as long as a 4 KiB one, and so on.
    #[test]
    fn dcm_messages_take_as_long_as_in_the_paper() {
        let platform = Platform::dcm();
        let time_ns = |kib: f64| platform.far_ns + kib * 1024.0 / platform.link_bytes_per_s * 1e9;
        for (kib, ratio) in [(8.0, 1.2), (16.0, 1.64), (32.0, 2.47), (64.0, 4.15)] {
            let found = time_ns(kib) / time_ns(4.0);
            assert!((found - ratio).abs() < 0.03 * ratio, "{kib} KiB: {found} against {ratio}");
        }
    }
}
