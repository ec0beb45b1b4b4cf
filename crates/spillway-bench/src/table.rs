//! Results as a table for people.

use crate::access::Data;
use crate::cells::Setting;
use crate::rows::Row;

/// The head of the [`line`]s of a setting: times in microseconds, of Spillway and of swap.
#[must_use]
pub fn head(setting: &Setting) -> String {
    let threads = if setting.threads == 1 { "thread" } else { "threads" };
    let data = match setting.data {
        Data::Random => "random data",
        Data::Compressible => "compressible data",
    };
    let title = format!(
        "{}, {} {threads}, {}% local, {data}",
        setting.pattern.name(),
        setting.threads,
        setting.local_pct
    );
    // /i: inline.
    let amount = if setting.pattern.is_streaming() { "GB/s  swap" } else { "misses swap" };
    format!(
        "\n{title}\n{:<13}{:<10}{:>7}{:>7}{amount:>12}{:>7}{:>7}{:>8}",
        "store", "swap on", "us", "swap", "cpu", "swap", "ratio"
    ) + "  min-max"
}

/// One comparison in one line of 80 columns.
#[must_use]
pub fn line(row: &Row) -> String {
    let swap = format!("{}/{}", row.versus.device(), row.page_cluster);
    let us = |ns: f64| ns / 1000.0;
    let amounts = match (row.gb_per_s, row.versus_gb_per_s) {
        (Some(ours), Some(theirs)) => (ours, theirs),
        _ => (row.misses_per_access, row.versus_misses_per_access),
    };
    format!(
        "{:<13}{swap:<10}{:>7.2}{:>7.2}{:>6.2}{:>6.2}{:>7.1}{:>7.1}{:>7.2}x {:.2}-{:.2}",
        format!("{}{}", row.store.name(), if row.fault_mode == "inline" { "/i" } else { "" }),
        us(row.ns_per_access),
        us(row.versus_ns_per_access),
        amounts.0,
        amounts.1,
        us(row.cpu_ns_per_access),
        us(row.versus_cpu_ns_per_access),
        row.ratio_median,
        row.ratio_min,
        row.ratio_max
    )
}
