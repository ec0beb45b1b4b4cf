//! The page: each run in words, in pictures and in tables.

use maud::{Markup, PreEscaped, html};
use spillway_report::ChartError;
use spillway_report::address_map::AddressMap;
use spillway_report::chart::{Chart, Kind, Series};
use spillway_report::document::document;
use spillway_report::timeline::{HeatMap, Timeline, clock};
use spillway_snapshot::history::Header;
use spillway_snapshot::sites::{Frame, Site, Sites, Stack};
use spillway_snapshot::snapshot::{Health, Store};

use crate::heat_picture;
use crate::report::lending::Lending;
use crate::report::story::{LATENCY_ROWS, Point, Since, StoreUse, Story, Summary};
use crate::short::{bytes, count, micros, percent, seconds};
use crate::working_set::{Need, Observed};

const MIB: f64 = (1 << 20) as f64;
/// What the table of stores tells of each.
const STORE_COLUMNS: [&str; 7] = [
    "most pages held",
    "most taken",
    "fetched",
    "written",
    "failures",
    "turned away",
    "looks that found it unwell",
];

/// Processes of a run whose memory is shown.
const MOST_MAPS: usize = 3;
const WAITS_IN_WORDS: &str = "\
    By samples, of the function whose instruction needed the page, not of its callers. Where a program \
    serves its faults itself, one fetch is noted for each millisecond that was lost; else its threads \
    are looked at 20 times a second. Names are as the file's symbols have them.";
const CALLS_IN_WORDS: &str = "\
    The function that waited stands first, then the one that had called it, and so on. By samples of the \
    time that was recorded; of programs whose faults the pager's threads serve, of their main threads alone. \
    Calls end where the copy of the stack does, or where code has no unwind tables.";
/// Stacks that are shown.
const MOST_STACKS: usize = 8;
const MAPS_IN_WORDS: &str = "\
    Only memory that Spillway manages or leaves to the kernel has a row. Hot is what several of the \
    last scans of the accessed bits found in use, warm what few did, cold what none did or what is \
    about to leave; untold came after the last scan, or nobody may scan. Native is left to the kernel. \
    Pinned is what the kernel did not let go. The stronger the colour, the more of the memory there is \
    of that kind. Of more than 128 MiB a part of the pages was looked at.";

/// A whole history, ready to be shown.
pub struct Stories {
    /// What its first line says.
    pub header: Header,
    /// The last look was cut off, and is left out.
    pub is_cut_off: bool,
    /// Its runs, in the order in which they were first seen.
    pub stories: Vec<Story>,
    /// Its donors, in the order in which they were first seen.
    pub donors: Vec<Lending>,
}

/// The page as one file.
///
/// # Errors
/// A picture cannot be drawn.
pub fn html(stories: &Stories) -> Result<String, ChartError> {
    let title = match &stories.stories[..] {
        [] => "Donors of memory".to_owned(),
        [one] => format!("{} on far memory", one.name),
        several => format!("{} runs on far memory", several.len()),
    };
    let header = html! {
        header {
            h1 { (title) }
            p {
                "Recorded by spillway " (stories.header.spillway_version) ", a look every "
                (seconds_of(stories.header.interval_s)) "."
                @if stories.is_cut_off { " The recorder was killed: its last look is left out." }
            }
            @if stories.stories.len() > 1 {
                nav { @for (at, story) in stories.stories.iter().enumerate() {
                    a href=(format!("#run-{at}")) { (story.name) " " (story.pid) }
                } }
            }
        }
    };
    let mut sections = Vec::new();
    for (at, story) in stories.stories.iter().enumerate() {
        sections.push(section(at, story)?);
    }
    for donor in &stories.donors {
        sections.push(donor.section()?);
    }
    Ok(document(&title, &header, &html! { @for section in &sections { (section) } }))
}

fn section(at: usize, story: &Story) -> Result<Markup, ChartError> {
    let summary = story.summary();
    let pictures = pictures(story)?;
    let maps = maps(story)?;
    Ok(html! {
        section id=(format!("run-{at}")) {
            h2 { (story.name) " (" (story.pid) ")" }
            p.note { code { (summary.command.join(" ")) } }
            p { (in_words(&summary)) }
            (scores(&summary))
            @for picture in &pictures { div.card { (PreEscaped(picture)) } }
            @if !maps.is_empty() {
                h3 { "Memory over time and address" }
                @for map in &maps { div.card { (PreEscaped(map)) } }
                p.note { (MAPS_IN_WORDS) }
            }
            (waits(&story.sites()))
            (working_set(&story.observed())?)
            h3 { "Stores" }
            (stores(story))
            @if story.processes.len() > 1 {
                h3 { "Processes, at their most" }
                (processes(story))
            }
        }
    })
}

/// What a user wants to know first.
fn in_words(summary: &Summary<'_>) -> String {
    let memory = format!(
        "In the {} that were recorded, {} of at most {} were local and up to {} far.",
        seconds_of(summary.recorded_s),
        bytes(summary.peak_local_bytes as f64),
        bytes(summary.local_limit_bytes as f64),
        bytes(summary.peak_far_bytes as f64),
    );
    let lost = match summary.lost_share {
        0.0 => "No thread waited for memory.".to_owned(),
        share => format!(
            "Threads waited for memory {} of that time (200% are two threads all the time); the slowest \
             hundredth of faults took {} and more.",
            percent(share),
            summary.fault_p99_us.map_or_else(|| "-".to_owned(), micros)
        ),
    };
    let worst = summary.worst.filter(|worst| worst.lost_share > 2.0 * summary.lost_share);
    let worst = worst.map(|worst| format!(" Worst at {}: {}.", clock(worst.at_s), percent(worst.lost_share)));
    let advice = match summary.lost_share {
        share if share > 0.1 => " More local memory would help: how much is told below.",
        _ => "",
    };
    let refused = match summary.refused_faults {
        0 => String::new(),
        refused => format!(" {refused} faults were refused with SIGBUS: their pages could not be had."),
    };
    format!("{memory} {lost}{}{refused}{advice}", worst.unwrap_or_default())
}

fn scores(summary: &Summary<'_>) -> Markup {
    let of_fault = |us: Option<f64>| us.map_or_else(|| "-".to_owned(), micros);
    html! {
        div.scores {
            div.score { b { (percent(summary.lost_share)) } "time lost" }
            div.score { b { (count(summary.faults as f64)) } "faults" }
            div.score { b { (of_fault(summary.fault_p50_us)) } "p50" }
            div.score { b { (of_fault(summary.fault_p99_us)) } "p99" }
            div.score { b { (bytes(summary.fetched_bytes as f64)) } "fetched" }
            div.score { b { (bytes(summary.written_bytes as f64)) } "written" }
            div.score { b { (summary.fault_mode) } "fault mode" }
        }
    }
}

/// The pictures that have something to show.
fn pictures(story: &Story) -> Result<Vec<String>, ChartError> {
    let points = &story.points;
    let value = |value: fn(&Point) -> f64| points.iter().map(|point| Some(value(point))).collect();
    let since = |value: &dyn Fn(&Since) -> Option<f64>| -> Vec<Option<f64>> {
        points.iter().map(|point| point.since.as_ref().and_then(value)).collect()
    };
    let kind = |kind: usize| since(&move |since| Some(since.faults_per_s[kind]));
    let way = |way: usize| since(&move |since| Some(since.evictions_per_s[way]));
    let mut stores = Vec::new();
    for (at, store) in story.last_run.stores.iter().enumerate() {
        for (which, name) in ["from", "to"].into_iter().enumerate() {
            let rate = since(&move |since| Some(since.stores_per_s.get(at)?[which] / MIB));
            stores.push((format!("{name} {}", short_uri(&store.uri)), rate));
        }
    }
    let named = |names: &[&str], values: Vec<Vec<Option<f64>>>| {
        names.iter().map(|name| (*name).to_owned()).zip(values).collect::<Vec<_>>()
    };
    let lines = [
        (
            "Memory",
            "MiB",
            named(
                &["limit", "local", "far"],
                vec![
                    value(|point| point.local_limit_bytes as f64 / MIB),
                    value(|point| point.local_bytes as f64 / MIB),
                    value(|point| point.far_bytes as f64 / MIB),
                ],
            ),
        ),
        (
            "Time lost to paging, 100% for each thread that waits all the time",
            "%",
            named(&["lost"], vec![since(&|since| Some(100.0 * since.rates.lost_share))]),
        ),
        (
            "Faults by what they needed",
            "a second",
            named(
                &["first touch", "fetched", "local still", "nothing more", "refused"],
                (0..5).map(kind).collect(),
            ),
        ),
        (
            "What faults took",
            "us",
            named(
                &["p50", "p99"],
                vec![since(&|since| since.rates.fault_p50_us), since(&|since| since.rates.fault_p99_us)],
            ),
        ),
        ("Traffic of the stores", "MiB/s", stores),
        (
            "Pages whose turn had come to leave",
            "pages/s",
            named(
                &["written", "clean, dropped", "zeros, dropped", "in use, kept"],
                (0..4).map(way).collect(),
            ),
        ),
    ];
    let at_s: Vec<f64> = points.iter().map(|point| point.at_s).collect();
    let mut pictures = Vec::new();
    for (title, unit, series) in lines {
        // A line that is zero throughout says nothing.
        let speaks =
            |(_, values): &(String, Vec<Option<f64>>)| values.iter().flatten().any(|value| *value > 0.0);
        let series: Vec<Series> =
            series.into_iter().filter(speaks).map(|(name, values)| Series { name, values }).collect();
        let (title, unit) = (title.to_owned(), unit.to_owned());
        let timeline = Timeline { title, unit, at_s: at_s.clone(), series };
        if timeline.has_values() {
            pictures.push(timeline.svg()?);
        }
    }
    let map = latency_map(points);
    if map.has_values() {
        pictures.push(map.svg()?);
    }
    Ok(pictures)
}

/// The memory of the processes that had most, those of which it is known.
fn maps(story: &Story) -> Result<Vec<String>, ChartError> {
    let mut told: Vec<_> = story.processes.iter().filter(|(_, peak)| !peak.heat.is_empty()).collect();
    told.sort_by_key(|(_, peak)| std::cmp::Reverse(peak.local_bytes.saturating_add(peak.far_bytes)));
    let pictures = told.into_iter().take(MOST_MAPS);
    let pictures = pictures.map(|(pid, peak)| heat_picture::picture(&peak.name, *pid, &peak.heat));
    pictures.filter(AddressMap::has_values).map(|picture| picture.svg()).collect()
}

/// How often faults took how long, over time.
fn latency_map(points: &[Point]) -> HeatMap {
    let columns = points.iter().filter_map(|point| Some((point.at_s, point.since.as_ref()?)));
    let (at_s, counts) = columns.map(|(at_s, since)| (at_s, since.latency_rows.clone())).unzip();
    HeatMap {
        title: "Faults by how long they took: the stronger, the more".to_owned(),
        unit: String::new(),
        at_s,
        begin_s: points.first().map_or(0.0, |point| point.at_s),
        rows: (0..LATENCY_ROWS).map(|row| micros(f64::from(1 << row))).collect(),
        counts,
    }
}

/// Where its programs waited, nothing where that is not known.
fn waits(sites: &Sites) -> Markup {
    let all_us = sites.waited_us();
    if all_us == 0 {
        return html! {};
    }
    let share = |us: u64| percent(us as f64 / all_us as f64);
    let of_file = |site: &Site| site.file.clone().unwrap_or_else(|| "-".to_owned());
    let function = |site: &Site| match (&site.function, &site.file) {
        (Some(function), _) => function.clone(),
        (None, Some(_)) => "no function is named there".to_owned(),
        (None, None) => "a system call, or code in no file".to_owned(),
    };
    html! {
        h3 { "Where it waited for pages to be fetched" }
        div.card { table {
            tr { th { "function" } th { "of" } th.number { "waited" } th.number { "share" } }
            @for site in &sites.sites {
                tr {
                    td { code { (function(site)) } }
                    td { (of_file(site)) }
                    td.number { (micros(site.waited_us as f64)) }
                    td.number { (share(site.waited_us)) }
                }
            }
            @if sites.others_us > 0 {
                tr {
                    td { "others" } td { "-" }
                    td.number { (micros(sites.others_us as f64)) }
                    td.number { (share(sites.others_us)) }
                }
            }
        } }
        p.note { (WAITS_IN_WORDS) }
        (calls(&sites.stacks))
    }
}

/// In which calls its programs waited, nothing where that is not known.
fn calls(stacks: &[Stack]) -> Markup {
    let all_us = stacks.iter().fold(0_u64, |sum, stack| sum.saturating_add(stack.waited_us));
    if all_us == 0 {
        return html! {};
    }
    let name = |frame: &Frame| match (&frame.function, &frame.file) {
        (Some(function), _) => function.clone(),
        (None, Some(file)) => format!("? in {}", file.rsplit('/').next().unwrap_or(file)),
        (None, None) => "?".to_owned(),
    };
    html! {
        h3 { "In which calls" }
        div.card { table {
            tr { th { "function, called by" } th.number { "waited" } th.number { "share" } }
            @for stack in stacks.iter().take(MOST_STACKS) {
                tr {
                    td { @for (at, frame) in stack.frames.iter().enumerate() {
                        @if at > 0 { " \u{2190} " }
                        code { (name(frame)) }
                    } }
                    td.number { (micros(stack.waited_us as f64)) }
                    td.number { (percent(stack.waited_us as f64 / all_us as f64)) }
                }
            }
        } }
        p.note { (CALLS_IN_WORDS) }
    }
}

/// How much local memory it would have needed; nothing where nothing was fetched again.
fn working_set(observed: &Observed) -> Result<Markup, ChartError> {
    if observed.faults() == 0 {
        return Ok(html! {});
    }
    let curve = observed.curve();
    // As many points as have room for their names.
    let stride = curve.len().div_ceil(12).max(1);
    let last = curve.len() - 1;
    let shown: Vec<_> = curve
        .iter()
        .enumerate()
        .filter(|(at, _)| at % stride == 0 || *at == last)
        .map(|(_, point)| point)
        .collect();
    let chart = Chart {
        title: "Time lost to paging, by local memory".to_owned(),
        unit: "%".to_owned(),
        kind: Kind::Lines,
        points: shown.iter().map(|point| bytes(point.local_bytes as f64)).collect(),
        series: vec![Series {
            name: "lost".to_owned(),
            values: shown.iter().map(|point| Some(100.0 * point.lost_share)).collect(),
        }],
        line_at: None,
    };
    let picture = chart.svg()?;
    Ok(html! {
        h3 { "How much local memory it would have needed" }
        div.card { table {
            tr { th { "to lose at most" } th.number { "local memory" } }
            @for need in observed.needs() {
                tr {
                    td { (percent(need.lost_share)) }
                    td.number {
                        (local_of(need))
                    }
                }
            }
        } }
        div.card { (PreEscaped(picture)) }
        p.note {
            "Estimated from " (count(observed.faults() as f64)) " fetching faults"
            @if let Some(fetch_us) = observed.fetch_us() { " of " (micros(fetch_us)) " on average" }
            ", by how long their pages were away: with more local memory pages stay longer. New pages are \
             faulted on at any size. The table aims at four fifths of the loss, since estimates have been \
             too low by as much."
            @for caveat in observed.caveats() { " " (caveat.sentence()) }
        }
    })
}

fn local_of(need: Need) -> String {
    need.local_bytes.map_or_else(|| "more alone does not do".to_owned(), |local| bytes(local as f64))
}

fn stores(story: &Story) -> Markup {
    let peak = |at: usize, of: fn(&StoreUse) -> Option<u64>| {
        story.points.iter().filter_map(|point| of(point.stores.get(at)?)).max()
    };
    let shown = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |value| bytes(value as f64));
    let failures = |store: &Store| store.failed_reads + store.failed_writes;
    html! {
        div.card { table {
            tr { th { "store" } @for name in STORE_COLUMNS {
                th.number { (name) }
            } }
            @for (at, store) in story.last_run.stores.iter().enumerate() {
                tr {
                    td { (store.uri) }
                    td.number { (shown(peak(at, |store| Some(store.used_bytes)))) }
                    td.number { (shown(peak(at, |store| store.stored_bytes))) }
                    td.number { (count(store.fetched_pages as f64)) }
                    td.number { (count(store.written_pages as f64)) }
                    td.number { (failures(store)) }
                    td.number { (store.full_refusals) }
                    td.number { (unwell(&story.points, at)) }
                }
            }
        } }
    }
}

fn unwell(points: &[Point], store: usize) -> usize {
    let health = points.iter().filter_map(|point| point.stores.get(store));
    health.filter(|store| matches!(store.health, Health::Full | Health::Silent | Health::Failing)).count()
}

fn processes(story: &Story) -> Markup {
    let mut peaks: Vec<_> = story.processes.iter().collect();
    peaks.sort_by_key(|(_, peak)| std::cmp::Reverse(peak.local_bytes + peak.far_bytes));
    html! {
        div.card { table {
            tr { th { "process" } th { "name" } @for name in ["local", "far", "faults", "pages fetched"] {
                th.number { (name) }
            } }
            @for (pid, peak) in peaks.into_iter().take(50) {
                tr {
                    td { (pid) }
                    td { (peak.name) }
                    td.number { (bytes(peak.local_bytes as f64)) }
                    td.number { (bytes(peak.far_bytes as f64)) }
                    td.number { (count(peak.faults as f64)) }
                    td.number { (count(peak.fetched_pages as f64)) }
                }
            }
        } }
    }
}

/// A store's name without what was asked of it.
fn short_uri(uri: &str) -> &str {
    uri.split('?').next().unwrap_or(uri)
}

fn seconds_of(s: f64) -> String {
    if s < 59.5 { format!("{s:.1} s") } else { seconds(s) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::story::tests::story;

    fn stories(stories: Vec<Story>) -> Stories {
        Stories { header: Header::new("1.2.3", 1e9, 1.0), is_cut_off: true, stories, donors: Vec::new() }
    }

    #[test]
    fn a_page_has_each_run_in_words_pictures_and_tables_and_needs_nothing_else() {
        let page = html(&stories(vec![story(), story()])).unwrap();
        for text in [
            "2 runs on far memory",
            "id=\"run-1\"",
            "The recorder was killed",
            "64M of at most 64M",
            "Time lost to paging",
            "Faults by how long they took",
            "from compressed:",
            "time lost",
            "How much local memory it would have needed",
            "1.0k fetching faults",
        ] {
            assert!(page.contains(text), "no {text:?}");
        }
        assert!(!page.contains("<script") && !page.contains("src=") && !page.contains("@import"));
        assert!(!page.contains("refused"), "what did not happen is not shown");
        assert!(!page.contains("Processes, at their most"), "one process has no table");
    }

    #[test]
    fn functions_that_waited_are_told_with_their_share() {
        assert_eq!(waits(&Sites::default()).into_string(), "");
        let site = |function: Option<&str>, file: Option<&str>, waited_us| Site {
            function: function.map(str::to_owned),
            file: file.map(str::to_owned),
            waited_us,
        };
        let met = [
            site(Some("walk<T>"), Some("/bin/x"), 60_000),
            site(None, Some("/lib/y.so"), 20_000),
            site(None, None, 10_000),
        ];
        let frame = |function: Option<&str>| Frame {
            function: function.map(str::to_owned),
            file: Some("/lib/z.so.6".to_owned()),
        };
        let stack = Stack { frames: vec![frame(Some("walk<T>")), frame(None)], waited_us: 30_000 };
        let told = waits(&Sites::of(met, 10_000).with_stacks([stack])).into_string();
        let calls = "<code>walk&lt;T&gt;</code> \u{2190} <code>? in z.so.6</code>";
        for text in
            ["walk&lt;T&gt;", "60%", "no function is named", "20%", "a system call, or code", "others", calls]
        {
            assert!(told.contains(text), "no {text:?} in {told}");
        }
    }

    #[test]
    fn the_worst_moment_is_told_where_it_stands_out() {
        let story = story();
        let words = in_words(&story.summary());
        assert!(words.contains("Worst at 10s: 0.3%"), "{words}");
        assert!(!words.contains("told below"), "{words}");
        let words = in_words(&Summary { lost_share: 0.5, worst: None, refused_faults: 3, ..story.summary() });
        assert!(words.contains("told below") && words.contains("SIGBUS"), "{words}");
    }
}
