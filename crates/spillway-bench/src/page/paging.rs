//! The page of `bench paging`.

use std::fmt::Write;

use spillway_report::chart::Chart;
use spillway_report::markdown::Page;
use spillway_report::order::distinct;

use crate::BenchError;
use crate::access::{Data, Pattern};
use crate::cells::{Setting, StoreKind};
use crate::rows::{PagingReport, Row, Versus};

const EXPLANATION: &str = "\
One process fills memory and then accesses it in a pattern, first as a warm-up and then measured; it checks \
what it reads.
Under Spillway (`spillway run --local`) and under Linux swap (a memory control group with the same limit) it \
runs in turns.
Swap lies on a RAM disk (a loop device with direct I/O on tmpfs without huge pages) or on zram; `/0` and \
`/3` are the
kernel's `page-cluster`: a page is read alone, or with its seven neighbours. Times are microseconds per \
access, all threads
together: the median of all repetitions with the least and the most. *CPU* is processor time per access, a \
donor's and the
kernel's own threads' not included. Ratios pair repetition with repetition; above 1x Spillway is faster.
";

/// The ways to swap, in the order of the columns.
const SWAPS: [(Versus, u32); 6] = [
    (Versus::SwapRamdisk, 0),
    (Versus::SwapRamdisk, 3),
    (Versus::SwapZram, 0),
    (Versus::SwapZram, 3),
    (Versus::SwapNbd, 0),
    (Versus::SwapNbd, 3),
];

fn swap_name((versus, cluster): (Versus, u32)) -> String {
    format!("{}/{cluster}", versus.device())
}

fn setting(row: &Row) -> Setting {
    Setting { pattern: row.pattern, threads: row.threads, local_pct: row.local_pct, data: row.data }
}

/// A store, and the fault mode.
type Way<'a> = (StoreKind, &'a str);

const THREAD: &str = "thread";
const INLINE: &str = "inline";

/// The rows of all reports, of each comparison the last.
struct Rows<'a>(Vec<&'a Row>);

impl<'a> Rows<'a> {
    fn of(reports: &[&'a PagingReport]) -> Self {
        let mut rows: Vec<&Row> = Vec::new();
        for row in reports.iter().flat_map(|report| &report.rows) {
            let key =
                |row: &Row| (setting(row), row.store, row.versus, row.page_cluster, row.fault_mode.clone());
            match rows.iter_mut().find(|other| key(other) == key(row)) {
                Some(other) => *other = row,
                None => rows.push(row),
            }
        }
        Self(rows)
    }

    fn find(&self, wanted: Setting, (store, mode): Way<'_>, swap: (Versus, u32)) -> Option<&'a Row> {
        let is = |row: &&&Row| {
            setting(row) == wanted
                && (row.store, row.fault_mode.as_str()) == (store, mode)
                && (row.versus, row.page_cluster) == swap
        };
        self.0.iter().find(is).copied()
    }

    /// What differs among the rows, in the order of its first appearance.
    fn distinct<T: PartialEq>(&self, of: impl Fn(&Row) -> T) -> Vec<T> {
        distinct(self.0.iter().map(|row| of(row)))
    }
}

/// The page of these runs.
pub(super) fn page(reports: &[&PagingReport], note: Option<&str>) -> Result<Page, BenchError> {
    let mut text =
        "# Paging beside Linux swap\n\nMade by `spillway bench report` from `spillway bench paging`.\n"
            .to_owned();
    if let Some(note) = note {
        let _ = writeln!(text, "\n**{note}**");
    }
    text.push('\n');
    reports.iter().for_each(|report| text.push_str(&run_in_words(report)));
    let _ = write!(text, "\n{EXPLANATION}\n## Plots\n\n");
    let rows = Rows::of(reports);
    let mut page = Page::new("paging-benchmark", text);
    page.chart("ratios", &ratios(&rows))?;
    page.chart("stores", &by_store(&rows))?;
    page.chart("shares", &by_share(&rows))?;
    page.chart("threads", &by_threads(&rows))?;
    page.text.push_str("## Tables\n");
    for (data, local_pct, threads) in rows.distinct(|row| (row.data, row.local_pct, row.threads)) {
        page.text.push_str(&table(&rows, data, local_pct, threads));
    }
    Ok(page)
}

fn run_in_words(report: &PagingReport) -> String {
    let machine = &report.machine;
    let mut words = format!(
        "- Spillway {}, Linux {}, {} CPUs ({}), {} GiB; load before the run {:.1}. {} MiB of memory \
         accessed, {} s each, {} repetition{}",
        machine.spillway,
        machine.kernel,
        machine.cpus,
        machine.processor,
        (machine.memory_bytes + (1 << 29)) >> 30,
        machine.load_before,
        report.memory_bytes >> 20,
        report.measured_ms as f64 / 1000.0,
        report.repetitions,
        if report.repetitions == 1 { ": no spread" } else { "s" },
    );
    if !report.run_options.is_empty() {
        let _ = write!(words, "; `spillway run {}`", report.run_options.join(" "));
    }
    if report.settings_left_out > 0 {
        let _ = write!(words, "; {} settings left out for lack of time", report.settings_left_out);
    }
    words + ".\n"
}

const USUAL: Setting = Setting { pattern: Pattern::Zipf, threads: 1, local_pct: 25, data: Data::Random };

fn ratios(rows: &Rows<'_>) -> Chart {
    let patterns = rows.distinct(|row| row.pattern);
    let measured = rows.distinct(|row| (row.versus, row.page_cluster));
    // Of each device the read-ahead that suits swap best, of those measured.
    let swaps = [&SWAPS[..2], &SWAPS[2..]].map(|kind| kind.iter().rfind(|swap| measured.contains(swap)));
    let ways = [THREAD, INLINE]
        .into_iter()
        .flat_map(|mode| swaps.into_iter().flatten().map(move |&swap| (mode, swap)));
    let series = ways.map(|(mode, swap)| {
        let ratio = |&pattern: &Pattern| {
            let row = rows.find(Setting { pattern, ..USUAL }, (StoreKind::Ram, mode), swap);
            row.map(|row| row.ratio_median)
        };
        (format!("{mode}, against {}", swap_name(swap)), patterns.iter().map(ratio).collect())
    });
    Chart {
        line_at: Some(1.0),
        ..Chart::bars(
            "How many times faster than swap: ram:, one thread, 25% local, random data",
            "times",
            patterns.iter().map(|pattern| pattern.name().to_owned()).collect(),
            series,
        )
    }
}

fn by_store(rows: &Rows<'_>) -> Chart {
    use StoreKind::{NbdTcp, NbdUnix, Ram, Shm};
    let ways = [(Ram, INLINE), (Ram, THREAD), (Shm, THREAD), (NbdUnix, THREAD), (NbdTcp, THREAD)];
    let patterns: Vec<Pattern> = rows
        .distinct(|row| (row.pattern, row.store))
        .into_iter()
        .filter_map(|(pattern, store)| (store == Shm).then_some(pattern))
        .collect();
    let mut series: Vec<_> = ways
        .iter()
        .map(|&(store, mode)| {
            let us = |&pattern: &Pattern| us_on(rows, Setting { pattern, ..USUAL }, (store, mode));
            let name =
                if mode == INLINE { format!("{}, inline", store.name()) } else { store.name().to_owned() };
            (name, patterns.iter().map(us).collect())
        })
        .collect();
    for swap in [SWAPS[1], SWAPS[3]] {
        let us = |&pattern: &Pattern| {
            let row = rows.find(Setting { pattern, ..USUAL }, (Ram, THREAD), swap);
            row.map(|row| row.versus_ns_per_access / 1000.0)
        };
        series.push((format!("swap on {}", swap_name(swap)), patterns.iter().map(us).collect()));
    }
    Chart::bars(
        "Time per access on each store: one thread, 25% local, random data",
        "us per access",
        patterns.iter().map(|pattern| pattern.name().to_owned()).collect(),
        series,
    )
}

/// Spillway's time, whichever swap it was compared with.
fn us_on(rows: &Rows<'_>, setting: Setting, way: Way<'_>) -> Option<f64> {
    let row = SWAPS.iter().find_map(|&swap| rows.find(setting, way, swap));
    row.map(|row| row.ns_per_access / 1000.0)
}

fn by_share(rows: &Rows<'_>) -> Chart {
    let shares = [25, 50, 75];
    let ratio = |pattern, local_pct| {
        rows.find(Setting { pattern, local_pct, ..USUAL }, (StoreKind::Ram, THREAD), SWAPS[1])
            .map(|row| row.ratio_median)
    };
    let patterns = rows.distinct(|row| row.pattern);
    let patterns: Vec<Pattern> =
        patterns.into_iter().filter(|&pattern| ratio(pattern, 50).is_some()).collect();
    let series = shares.map(|local_pct| {
        let values = patterns.iter().map(|&pattern| ratio(pattern, local_pct)).collect();
        (format!("{local_pct}% local"), values)
    });
    Chart {
        line_at: Some(1.0),
        ..Chart::bars(
            "How many times faster than swap on ramdisk/3, by local share: ram:, one thread",
            "times",
            patterns.iter().map(|pattern| pattern.name().to_owned()).collect(),
            series,
        )
    }
}

fn by_threads(rows: &Rows<'_>) -> Chart {
    let counts = rows.distinct(|row| row.threads);
    let rate = |pattern, threads, mode| {
        us_on(rows, Setting { pattern, threads, ..USUAL }, (StoreKind::Ram, mode)).map(|us| 1000.0 / us)
    };
    let patterns = rows.distinct(|row| row.pattern);
    let many = |&pattern: &Pattern| {
        counts.iter().any(|&threads| threads > 1 && rate(pattern, threads, THREAD).is_some())
    };
    let patterns: Vec<Pattern> = patterns.into_iter().filter(many).collect();
    let series =
        [THREAD, INLINE].into_iter().flat_map(|mode| counts.iter().map(move |&threads| (mode, threads)));
    let series = series.map(|(mode, threads)| {
        let values = patterns.iter().map(|&pattern| rate(pattern, threads, mode)).collect();
        (format!("{mode}, {threads} thread{}", if threads == 1 { "" } else { "s" }), values)
    });
    Chart::bars(
        "Accesses of all threads under Spillway: ram:, 25% local, random data",
        "thousands a second",
        patterns.iter().map(|pattern| pattern.name().to_owned()).collect(),
        series,
    )
}

fn table(rows: &Rows<'_>, data: Data, local_pct: u64, threads: usize) -> String {
    let threads_word = if threads == 1 { "thread" } else { "threads" };
    let data_word = match data {
        Data::Random => "random",
        Data::Compressible => "compressible",
    };
    let mut text = format!("\n### {local_pct}% local, {threads} {threads_word}, {data_word} data\n\n");
    text.push_str("| pattern | store | faults | Spillway us | CPU us | misses |");
    let measured = rows.distinct(|row| (row.versus, row.page_cluster));
    let swaps: Vec<_> = SWAPS.into_iter().filter(|swap| measured.contains(swap)).collect();
    for swap in &swaps {
        let _ = write!(text, " {} us, CPU us, ratio |", swap_name(*swap));
    }
    let _ = writeln!(text, "\n|---|---|---|---|---|---|{}", "---|".repeat(swaps.len()));
    for pattern in rows.distinct(|row| row.pattern) {
        for (store, mode) in rows.distinct(|row| (row.store, row.fault_mode.clone())) {
            let wanted = Setting { pattern, threads, local_pct, data };
            let cells: Vec<_> = swaps.iter().map(|&swap| rows.find(wanted, (store, &mode), swap)).collect();
            if let Some(row) = cells.iter().flatten().next() {
                let theirs: Vec<String> = cells.iter().map(|cell| their_side(*cell)).collect();
                let _ = writeln!(text, "{}{} |", our_side(row), theirs.join(" |"));
            }
        }
    }
    text
}

/// A time with its spread, where there is one.
fn time(median: f64, min: f64, max: f64) -> String {
    let us = |ns: f64| format!("{:.2}", ns / 1000.0);
    if min < max { format!("{} ({}-{})", us(median), us(min), us(max)) } else { us(median) }
}

fn our_side(row: &Row) -> String {
    let bandwidth = row.gb_per_s.map_or(String::new(), |gb_per_s| format!(", {gb_per_s:.2} GB/s"));
    format!(
        "| {} | {} | {} | {}{bandwidth} | {:.2} | {:.2} |",
        row.pattern.name(),
        row.store.name(),
        row.fault_mode,
        time(row.ns_per_access, row.ns_per_access_min, row.ns_per_access_max),
        row.cpu_ns_per_access / 1000.0,
        row.misses_per_access,
    )
}

fn their_side(row: Option<&Row>) -> String {
    let Some(row) = row else { return " -".to_owned() };
    let spread = if row.ratio_min < row.ratio_max {
        format!(" ({:.2}-{:.2})", row.ratio_min, row.ratio_max)
    } else {
        String::new()
    };
    format!(
        " {}, {:.2}, **{:.2}x**{spread}",
        time(row.versus_ns_per_access, row.versus_ns_per_access_min, row.versus_ns_per_access_max),
        row.versus_cpu_ns_per_access / 1000.0,
        row.ratio_median
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::rows::Sample;

    fn report(us: f64, repetitions: usize) -> PagingReport {
        let setting = Setting { pattern: Pattern::RandomRead, ..USUAL };
        let samples = |us: f64| -> Vec<Sample> {
            let times = (0..repetitions).map(|repetition| us * (1.0 + repetition as f64 / 10.0));
            times.map(Sample::of_us).collect()
        };
        let row = Row { page_cluster: 3, ..Row::new(&setting, &samples(us), &samples(40.0)) };
        PagingReport {
            machine: Machine::this(),
            memory_bytes: 256 << 20,
            measured_ms: 1000,
            repetitions,
            run_options: vec!["--json".to_owned()],
            settings_left_out: 2,
            rows: vec![row],
        }
    }

    #[test]
    fn the_page_has_the_setting_the_figures_and_the_plots() {
        let page = page(&[&report(10.0, 3)], Some("Read this.")).unwrap();
        for words in [
            "**Read this.**",
            "256 MiB of memory accessed, 1 s each, 3 repetitions",
            "`spillway run --json`",
            "2 settings left out",
            "### 25% local, 1 thread, random data",
            "| random_read | ram | thread | 11.00 (10.00-12.00) |",
            "ramdisk/3 us",
            "**4.00x**",
        ] {
            assert!(page.text.contains(words), "no '{words}' in {}", page.text);
        }
        assert!(!page.text.contains("zram/0 us"), "{}", page.text);
        let names: Vec<&str> = page.pictures.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["ratios"]);
        assert!(page.text.contains("(paging-benchmark/ratios.svg)"));
    }

    #[test]
    fn of_a_comparison_that_is_there_twice_the_last_counts() {
        let page = page(&[&report(10.0, 1), &report(20.0, 1)], None).unwrap();
        assert!(
            page.text.contains("| thread | 20.00 |") && !page.text.contains("| thread | 10.00 |"),
            "{}",
            page.text
        );
    }
}
