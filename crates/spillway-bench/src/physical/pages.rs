//! Pages of all sizes that the kernel offers, and what must be set to get them.

use std::fs;
use std::path::Path;

use spillway_core::page::{HUGE_PAGE_SIZE, PAGE_SIZE};

use super::settings::{self, Settings};
use crate::BenchError;

const THP: &str = "/sys/kernel/mm/transparent_hugepage";
const RESERVED: &str = "/sys/kernel/mm/hugepages";
/// The smallest page.
pub const BASE_BYTES: u64 = PAGE_SIZE as u64;
/// What a directory of the processor maps at once.
pub const HUGE_BYTES: u64 = HUGE_PAGE_SIZE as u64;

/// How memory is got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pages {
    /// As the machine is set: nothing is asked for.
    Any,
    /// Page by page.
    Base,
    /// By transparent huge pages of so many bytes, 2 MiB or one of the kernel's other sizes.
    Transparent(u64),
    /// From the pool that is reserved for huge pages of so many bytes (hugetlb).
    Reserved(u64),
}

impl Pages {
    /// All that this kernel offers, by size.
    #[must_use]
    pub fn offered() -> Vec<Self> {
        let mut all = vec![Self::Base];
        all.extend(transparent().into_iter().map(Self::Transparent));
        all.extend(sizes(RESERVED).into_iter().map(Self::Reserved));
        all
    }

    /// Bytes of one.
    #[must_use]
    pub fn bytes(self) -> u64 {
        match self {
            Self::Any | Self::Base => BASE_BYTES,
            Self::Transparent(bytes) | Self::Reserved(bytes) => bytes,
        }
    }

    /// What people call it.
    #[must_use]
    pub fn name(self) -> String {
        let size = super::bytes::size(self.bytes());
        match self {
            Self::Any => "any".to_owned(),
            Self::Reserved(_) => format!("hugetlb {size}"),
            Self::Base | Self::Transparent(_) => size,
        }
    }

    /// Sets the machine so that memory which asks for huge pages gets these, `count` of them at most.
    ///
    /// # Errors
    /// The user may not, or there is no contiguous memory for so many.
    pub fn prepare(self, settings: &Settings, count: u64) -> Result<(), BenchError> {
        match self {
            Self::Any | Self::Base => Ok(()),
            Self::Transparent(bytes) => prepare_transparent(settings, bytes),
            Self::Reserved(bytes) => prepare_reserved(settings, bytes, count),
        }
    }

    /// How often the kernel has given one of these and how often a smaller one in its place, since it
    /// started.
    #[must_use]
    pub fn given(self) -> Option<(u64, u64)> {
        let Self::Transparent(bytes) = self else { return None };
        let stat = |name: &str| {
            let text = fs::read_to_string(format!("{THP}/hugepages-{}kB/stats/{name}", bytes >> 10)).ok()?;
            text.trim().parse::<u64>().ok()
        };
        Some((stat("anon_fault_alloc")?, stat("anon_fault_fallback")?))
    }
}

fn sizes(directory: &str) -> Vec<u64> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let kib = |name: String| name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<u64>().ok();
    let mut sizes: Vec<u64> = names.filter_map(kib).map(|kib| kib << 10).collect();
    sizes.sort_unstable();
    sizes
}

/// Sizes that anonymous memory can have; the kernel has some for shared memory only.
fn transparent() -> Vec<u64> {
    let sizes = sizes(THP);
    // Before Linux 6.8 there is one size, and no directory for it.
    if sizes.is_empty() && Path::new(THP).exists() {
        return vec![HUGE_BYTES];
    }
    sizes.into_iter().filter(|&bytes| Path::new(&enabled(bytes)).exists()).collect()
}

fn enabled(bytes: u64) -> String {
    format!("{THP}/hugepages-{}kB/enabled", bytes >> 10)
}

fn prepare_transparent(settings: &Settings, bytes: u64) -> Result<(), BenchError> {
    if !Path::new(&enabled(bytes)).exists() {
        return settings.set(format!("{THP}/enabled"), "madvise");
    }
    // What is so already needs no permission.
    let set = |path: String, value: &str| match settings::read(&path) {
        Ok(now) if now == value => Ok(()),
        Ok(now) if now == "inherit" && settings::read(format!("{THP}/enabled"))? == value => Ok(()),
        _ => settings.set(path, value),
    };
    for other in transparent().into_iter().filter(|&other| other != bytes) {
        set(enabled(other), "never")?;
    }
    set(enabled(bytes), "madvise")
}

fn prepare_reserved(settings: &Settings, bytes: u64, count: u64) -> Result<(), BenchError> {
    let directory = format!("{RESERVED}/hugepages-{}kB", bytes >> 10);
    let number = |file: &str| {
        let text = settings::read(format!("{directory}/{file}"))?;
        text.parse::<u64>().map_err(|error| BenchError::setup(format!("read {directory}/{file}"), error, "-"))
    };
    if number("free_hugepages")? >= count {
        return Ok(());
    }
    let used = number("nr_hugepages")? - number("free_hugepages")?;
    settings.set(format!("{directory}/nr_hugepages"), &(used + count).to_string())?;
    let free = number("free_hugepages")?;
    if free < count {
        return Err(BenchError::setup(
            format!("reserve {count} huge pages of {}", super::bytes::size(bytes)),
            format!("the kernel finds contiguous memory for {free}"),
            "reserve them when the machine starts (hugepagesz=, hugepages=)",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_page_is_always_offered_and_sizes_are_told_apart() {
        let offered = Pages::offered();
        assert_eq!(offered[0], Pages::Base);
        let names: std::collections::BTreeSet<String> = offered.iter().map(|pages| pages.name()).collect();
        assert_eq!(names.len(), offered.len(), "{names:?}");
        assert_eq!(Pages::Reserved(1 << 30).name(), "hugetlb 1 GiB");
        assert_eq!(Pages::Transparent(64 << 10).name(), "64 KiB");
    }
}
