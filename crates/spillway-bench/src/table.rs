//! Results as a table for people.

use std::fmt::Write;

use crate::paging::{Row, Versus};

/// The head of the table of [`line`]s.
pub const HEAD: &str = "pattern          thr local store       against         us   theirs  ratio (min-max)";

/// One comparison in one line of 80 columns.
#[must_use]
pub fn line(row: &Row) -> String {
    let versus = match row.versus {
        Versus::SwapRamdisk => "ramdisk",
        Versus::SwapZram => "zram",
    };
    let store = format!("{:?}", row.store).to_lowercase();
    let mut line = String::new();
    let _ = write!(
        line,
        "{:<16} {:>3} {:>4}% {:<11} {:<9}{:>1} {:>8.2} {:>8.2} {:>5.2}x {:.2}-{:.2}",
        row.pattern,
        row.threads,
        row.local_pct,
        store,
        versus,
        row.page_cluster,
        row.ns_per_access / 1000.0,
        row.versus_ns_per_access / 1000.0,
        row.ratio_median,
        row.ratio_min,
        row.ratio_max
    );
    if let (Some(ours), Some(theirs)) = (row.gb_per_s, row.versus_gb_per_s) {
        let _ = write!(line, " {ours:.2}/{theirs:.2} GB/s");
    }
    line
}
