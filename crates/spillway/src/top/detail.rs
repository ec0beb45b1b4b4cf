//! One run, process or donor: where its memory is, why it faults, what it waits for, the last minutes.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Sparkline, Wrap};
use spillway_snapshot::heat::HeatMap;
use spillway_snapshot::snapshot::Evictions;

use crate::short::{bytes, count, micros, percent, printable, seconds, wrapped};
use crate::status::lost_share;
use crate::top::heat;
use crate::top::history::{History, Point};
use crate::top::list::store_text;
use crate::top::palette::Palette;
use crate::top::rates::{DonorRow, Kind, Row};

/// From this height on a map of the memory has room.
const ROWS_WITH_MAP: u16 = 20;

/// From this height on graphs have lines to spare.
const TALL: u16 = 32;

/// From this width on two graphs stand side by side.
const WIDE: u16 = 64;

/// What is shown, and how.
pub struct View<'a> {
    /// Who it is about.
    pub row: &'a Row,
    /// What its last minutes were like.
    pub history: &'a History,
    /// Where its memory is, where that is known.
    pub heat: Option<&'a HeatMap>,
    /// The colours that it is drawn in.
    pub palette: Palette,
    /// Time between looks, in seconds.
    pub interval_s: f64,
}

/// Draws one in detail.
pub fn draw(frame: &mut Frame<'_>, view: &View<'_>) {
    let View { row, palette, .. } = *view;
    let area = frame.area();
    let facts = facts(row, palette, area.width.into());
    if row.donor.is_some() {
        let [facts_area, foot] = Layout::vertical([Constraint::Min(0), Constraint::Length(1)]).areas(area);
        frame.render_widget(Paragraph::new(facts), facts_area);
        frame.render_widget(Paragraph::new("q back  ? help"), foot);
        return;
    }
    let heat = view.heat.filter(|_| area.height >= ROWS_WITH_MAP);
    let map = heat.map_or_else(Vec::new, |map| heat::lines(map, palette, area.width.into()));
    debug_assert!(map.len() <= heat::LINES);
    let graph_lines = match area.height {
        TALL.. => 4,
        ROWS_WITH_MAP.. if map.is_empty() => 3,
        _ => 2,
    };
    let graph_rows = if area.height < ROWS_WITH_MAP { 2 } else { 3 };
    let [facts_area, map_area, graphs, latency, foot] = Layout::vertical([
        Constraint::Length(facts.len() as u16),
        Constraint::Length(map.len() as u16),
        Constraint::Length(graph_rows * graph_lines),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(facts), facts_area);
    frame.render_widget(Paragraph::new(map), map_area);
    draw_graphs(frame, graphs, graph_rows, view);
    frame.render_widget(Paragraph::new(histogram(row, latency, palette)), latency);
    frame.render_widget(Paragraph::new("q back  ? help"), foot);
}

/// Says that there is nothing to draw any more.
pub fn draw_gone(frame: &mut Frame<'_>, palette: Palette) {
    let text = Line::styled("It has ended. Press q for the list.", palette.heading());
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), frame.area());
}

fn facts(row: &Row, palette: Palette, width: usize) -> Vec<Line<'static>> {
    let mode = row.fault_mode.as_deref().map_or_else(String::new, |mode| format!("  faults by {mode}"));
    let title = format!("{} ({})  up {}{mode}", printable(&row.name, 30), row.pid, seconds(row.uptime_s));
    if let Some(donor) = &row.donor {
        return of_donor(donor, Line::styled(title, palette.heading()), palette, width);
    }
    let mut lines = vec![Line::styled(title, palette.heading()), memory(row, palette, width)];
    if row.kind == Kind::Tier {
        lines.push(Line::raw("'spillway tier status' tells more"));
        return lines;
    }
    let rates = row.rates.unwrap_or_default();
    lines.push(Line::raw(format!(
        "lost to paging: {} now, {} since the start; fetched {}/s, written {}/s",
        percent(rates.lost_share),
        percent(lost_share(row.latency.total_us, row.uptime_s)),
        bytes(rates.fetched_bytes_per_s),
        bytes(rates.written_bytes_per_s),
    )));
    let faults = row.faults;
    lines.push(Line::raw(format!(
        "faults: {} fetched, {} first touch, {} others, {} refused",
        count(faults.fetch as f64),
        count(faults.first_touch as f64),
        count((faults.inactive + faults.writeback + faults.other) as f64),
        count(faults.refused as f64),
    )));
    lines.extend(ahead(row).map(Line::raw));
    lines.extend(row.evictions.map(|evictions| Line::raw(evicted(evictions))));
    if row.kind == Kind::Run {
        lines.extend(row.stores.iter().map(|store| Line::raw(store_text(store, width))));
    }
    lines
}

/// What a donor lends, to whom, and how fast it is used.
fn of_donor(donor: &DonorRow, title: Line<'static>, palette: Palette, width: usize) -> Vec<Line<'static>> {
    let rates = donor.rates.unwrap_or_default();
    let memory = &donor.status.memory;
    let room = width.saturating_sub(2).min(60);
    let part =
        |bytes: u64| (bytes as f64 / memory.offered_bytes.max(1) as f64 * room as f64).round() as usize;
    let held = part(memory.used_bytes).min(room);
    let promised = part(memory.promised_bytes.max(memory.used_bytes)).min(room) - held;
    let bar = Line::from(vec![
        Span::styled("#".repeat(held), palette.local()),
        Span::styled("+".repeat(promised), palette.far()),
        Span::raw(".".repeat(room - held - promised)),
    ]);
    let used = format!(
        "{} requests/s, read {}/s, written {}/s; bar: # held, + promised, . free",
        count(rates.requests_per_s),
        bytes(rates.read_bytes_per_s),
        bytes(rates.written_bytes_per_s),
    );
    let status = donor.status.to_string();
    // The first line is the title's.
    let told = status.lines().skip(1).flat_map(|line| wrapped(line, width)).map(Line::raw);
    [title, bar, Line::raw(printable(&used, width))].into_iter().chain(told.collect::<Vec<_>>()).collect()
}

/// What came before a fault asked for it.
fn ahead(row: &Row) -> Option<String> {
    let prefetch = row.prefetch?;
    let used =
        prefetch.accuracy.map_or_else(String::new, |share| format!(", {} of them used", percent(share)));
    Some(format!(
        "fetched: {} pages, {} of them ahead{used}",
        count(row.fetched_pages as f64),
        count(prefetch.fetched_ahead_pages as f64)
    ))
}

fn evicted(evictions: Evictions) -> String {
    format!(
        "evicted: {} written, {} clean, {} zero; kept in use {}, refused {}",
        count(evictions.written_pages as f64),
        count(evictions.clean_dropped_pages as f64),
        count(evictions.zero_dropped_pages as f64),
        count(evictions.kept_in_use_pages as f64),
        count(evictions.refused_pages as f64),
    )
}

/// A bar of local and far memory, each in proportion.
fn memory(row: &Row, palette: Palette, width: usize) -> Line<'static> {
    let limit =
        row.local_limit_bytes.map_or_else(String::new, |limit| format!(" of {}", bytes(limit as f64)));
    let text =
        format!("local {}{limit}, far {} ", bytes(row.local_bytes as f64), bytes(row.far_bytes as f64));
    let room = width.saturating_sub(text.len() + 2).min(40);
    let whole = (row.local_bytes as f64 + row.far_bytes as f64).max(1.0);
    let local = (row.local_bytes as f64 / whole * room as f64).round() as usize;
    Line::from(vec![
        Span::raw(text),
        Span::styled("#".repeat(local), palette.local()),
        Span::styled("-".repeat(room.saturating_sub(local)), palette.far()),
    ])
}

/// What is drawn, the number of a look, and how that is written.
type Graph = (&'static str, fn(&Point) -> f64, fn(f64) -> String);

/// Shares are drawn in hundredths of a percent, for graphs are of whole numbers.
const SHARE: f64 = 1e4;

/// Two in a row, the most telling first.
const GRAPHS: [[Graph; 2]; 3] = [
    [
        ("faults a second", |point| point.rates.faults_per_s, count),
        ("time lost", |point| point.rates.lost_share * SHARE, |share| percent(share / SHARE)),
    ],
    [("local", |point| point.local_bytes as f64, bytes), ("far", |point| point.far_bytes as f64, bytes)],
    [
        ("fetched a second", |point| point.rates.fetched_bytes_per_s, bytes),
        ("written a second", |point| point.rates.written_bytes_per_s, bytes),
    ],
];

/// Rows of graphs; where the terminal is narrow, one graph a row.
fn draw_graphs(frame: &mut Frame<'_>, area: Rect, rows: u16, view: &View<'_>) {
    let areas = Layout::vertical(vec![Constraint::Fill(1); rows.into()]).split(area);
    if area.width < WIDE {
        let narrow = [GRAPHS[0][0], GRAPHS[0][1], GRAPHS[1][1]];
        areas.iter().zip(narrow).for_each(|(&area, graph)| draw_graph(frame, area, view, graph));
        return;
    }
    for (&area, [left, right]) in areas.iter().zip(GRAPHS) {
        let halves = Layout::horizontal([Constraint::Fill(1); 2]).spacing(2).areas::<2>(area);
        draw_graph(frame, halves[0], view, left);
        draw_graph(frame, halves[1], view, right);
    }
}

fn draw_graph(frame: &mut Frame<'_>, area: Rect, view: &View<'_>, (what, number, shown): Graph) {
    let points = view.history.last(view.row.key, area.width.into(), number);
    let most = points.iter().copied().max().unwrap_or(0);
    let last = points.last().copied().unwrap_or(0);
    let title = format!(
        "{what} {}, most {} in {}",
        shown(last as f64),
        shown(most as f64),
        seconds(points.len() as f64 * view.interval_s),
    );
    let style = if what == "local" { view.palette.local() } else { view.palette.far() };
    let [head, graph] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    frame.render_widget(Paragraph::new(title), head);
    frame.render_widget(Sparkline::default().data(points).max(most.max(1)).style(style), graph);
}

/// Faults since the start by how long they took, in powers of two, or of more where the lines do not do.
fn histogram(row: &Row, area: Rect, palette: Palette) -> Vec<Line<'static>> {
    let lines = usize::from(area.height).saturating_sub(1);
    let octaves = row.latency.octaves();
    if octaves.is_empty() || lines == 0 {
        return Vec::new();
    }
    let step = octaves.len().div_ceil(lines);
    let sum = |group: &[(u64, u64)]| group.iter().fold(0_u64, |sum, (_, number)| sum.saturating_add(*number));
    let groups: Vec<(u64, u64)> = octaves
        .chunks(step)
        .filter_map(|group| group.last().map(|(bound_ns, _)| (*bound_ns, sum(group))))
        .collect();
    let most = groups.iter().map(|(_, number)| *number).max().unwrap_or(1).max(1);
    let heading = format!(
        "how long {} faults took since the start; p50 {}, p99 {}, longest {}",
        count(row.latency.count as f64),
        micros(row.latency.p50_us),
        micros(row.latency.p99_us),
        micros(row.latency.max_us),
    );
    let bar = |(bound_ns, number): &(u64, u64)| {
        let text = format!("  below {:>5} {:>5} ", micros(*bound_ns as f64 / 1e3), count(*number as f64));
        let room = usize::from(area.width).saturating_sub(text.len()).min(60);
        // Not in proportion but by powers of ten, so that the few that are slow are seen.
        let share = ((*number as f64 + 1.0).ln() / (most as f64 + 1.0).ln()).clamp(0.0, 1.0);
        Line::from(vec![
            Span::raw(text),
            Span::styled("\u{2588}".repeat((share * room as f64).round() as usize), palette.local()),
        ])
    };
    std::iter::once(Line::raw(heading)).chain(groups.iter().map(bar)).collect()
}
