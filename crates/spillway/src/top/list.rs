//! The list: a row for each run, process, donor and daemon, the stores of the chosen one, and what keys do.

use std::fmt::Write as _;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};
use spillway_snapshot::snapshot::Health;

use crate::short::{bytes, count, micros, percent, printable, wrapped};
use crate::status::{NOTHING, health, lends};
use crate::top::palette::Palette;
use crate::top::rates::{DonorRates, Kind, Rates, Row, Rows, StoreRow};
use crate::top::sort::Sort;

/// A column, and from which width of the terminal on it is shown.
struct Column {
    name: &'static str,
    width: usize,
    from: usize,
}

/// The columns behind the name, which has what is left.
const COLUMNS: [Column; 10] = [
    Column { name: "LOCAL", width: 5, from: 0 },
    Column { name: "LIMIT", width: 5, from: 64 },
    Column { name: "FAR", width: 5, from: 0 },
    Column { name: "FLT/s", width: 5, from: 34 },
    Column { name: "P50", width: 5, from: 70 },
    Column { name: "P99", width: 5, from: 40 },
    Column { name: "LOST", width: 5, from: 40 },
    Column { name: "IN/s", width: 5, from: 52 },
    Column { name: "OUT/s", width: 5, from: 58 },
    Column { name: "BY", width: 6, from: 90 },
];

/// Columns of the process's number, shown where the terminal is not narrow.
const PID_COLUMNS: usize = 8;
const PID_FROM: usize = 48;

/// What the list shows.
pub struct View<'a> {
    /// In the order in which they are shown.
    pub rows: &'a [Row],
    /// Those that do not answer: socket and reason.
    pub silent: &'a [(String, String)],
    /// Which row is chosen.
    pub chosen_at: usize,
    /// By what they are sorted.
    pub sort: Sort,
    /// The other way round.
    pub is_reversed: bool,
    /// Somebody has looked yet.
    pub has_looked: bool,
    /// The colours to draw it in.
    pub palette: Palette,
    /// A line for each pool that was named.
    pub pools: Vec<Line<'static>>,
}

/// Draws the list. `offset` is what is scrolled away above.
pub fn draw(frame: &mut Frame<'_>, view: &View<'_>, offset: &mut usize) {
    let width = frame.area().width.into();
    let chosen = view.rows.get(view.chosen_at);
    let stores = chosen.map_or(&[][..], |row| stores_of(view.rows, row));
    let mut store_lines = store_lines(stores, view.palette, width);
    let donor = chosen.and_then(|row| row.donor.as_ref());
    store_lines.extend(donor.map(|donor| Line::raw(printable(&lends(&donor.status), width))));
    let below = (store_lines.len() + view.silent.len() + view.pools.len())
        .min(usize::from(frame.area().height) / 3) as u16;
    let [top, list, below, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(below),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(summary(view)), top);
    if view.rows.is_empty() && view.silent.is_empty() {
        let text = if view.has_looked { NOTHING } else { "looking ..." };
        frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), list);
    } else {
        draw_rows(frame, view, list, offset);
    }
    let silent = view.silent.iter().map(|(socket, reason)| {
        Line::styled(printable(&format!("{socket}: {reason}"), 500), view.palette.warning())
    });
    let lines = view.pools.iter().cloned().chain(silent).chain(store_lines);
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), below);
    let pools = if view.pools.is_empty() { "" } else { "p pools  " };
    let reverse = if view.is_reversed { ", r reversed" } else { "  r reverse" };
    let keys = match frame.area().width {
        0..50 if pools.is_empty() => "q end  Enter detail  s sort  ? help".to_owned(),
        0..50 => format!("q end  Enter detail  {pools}? help"),
        _ => format!("q end  Enter detail  {pools}s sort: {}{reverse}  ? help", view.sort.name()),
    };
    frame.render_widget(Paragraph::new(keys), foot);
}

/// The stores of the row's run.
fn stores_of<'a>(rows: &'a [Row], row: &Row) -> &'a [StoreRow] {
    let is_run = |other: &&Row| other.kind == Kind::Run && other.key.supervisor_pid == row.key.supervisor_pid;
    rows.iter()
        .filter(|other| other.key.uid == row.key.uid)
        .find(is_run)
        .map_or(&[][..], |run| &run.stores[..])
}

fn summary(view: &View<'_>) -> Line<'static> {
    let of = |kind: Kind| view.rows.iter().filter(move |row| row.kind == kind);
    // What a donor holds is somebody's far memory, and may be of a run that is counted here.
    let own = || of(Kind::Run).chain(of(Kind::Tier));
    let sum = |number: fn(&Row) -> u64| bytes(own().map(|row| number(row) as f64).sum());
    let counted = |count: usize, one: &str, several: &str| match count {
        1 => format!("1 {one}"),
        count => format!("{count} {several}"),
    };
    let optional = |count: usize, one: &str, several: &str| match count {
        0 => String::new(),
        count => format!(", {}", counted(count, one, several)),
    };
    let runs = counted(of(Kind::Run).count(), "run", "runs");
    let donors = optional(of(Kind::Donor).count(), "donor", "donors");
    let daemons = optional(of(Kind::Tier).count(), "tier daemon", "tier daemons");
    Line::from(vec![
        Span::styled(format!("spillway: {runs}{donors}{daemons}  "), view.palette.heading()),
        Span::styled(format!("local {}  ", sum(|row| row.local_bytes)), view.palette.local()),
        Span::styled(format!("far {}", sum(|row| row.far_bytes)), view.palette.far()),
    ])
}

fn draw_rows(frame: &mut Frame<'_>, view: &View<'_>, area: Rect, offset: &mut usize) {
    let visible = usize::from(area.height).saturating_sub(1).max(1);
    *offset = (*offset).min(view.chosen_at).max((view.chosen_at + 1).saturating_sub(visible));
    let width = usize::from(area.width);
    let mut lines = vec![Line::styled(heading(width), view.palette.heading())];
    let shown = view.rows.iter().enumerate().skip(*offset).take(visible);
    lines.extend(shown.map(|(at, row)| {
        let line = row_line(row, width, view.palette);
        if at == view.chosen_at { line.style(view.palette.chosen()) } else { line }
    }));
    frame.render_widget(Paragraph::new(lines), area);
}

fn columns(width: usize) -> impl Iterator<Item = (usize, &'static Column)> {
    COLUMNS.iter().enumerate().filter(move |(_, column)| width >= column.from)
}

/// What is left for the name.
fn name_columns(width: usize) -> usize {
    let others: usize = columns(width).map(|(_, column)| column.width + 1).sum();
    let pid = if width >= PID_FROM { PID_COLUMNS } else { 0 };
    width.saturating_sub(others + pid)
}

fn heading(width: usize) -> String {
    let mut text = String::new();
    if width >= PID_FROM {
        let _ = write!(text, "{:>7} ", "PID");
    }
    let _ = write!(text, "{:<1$}", printable("PROGRAM", name_columns(width)), name_columns(width));
    for (_, Column { name, width, .. }) in columns(width) {
        let _ = write!(text, " {name:>width$}");
    }
    text
}

fn row_line(row: &Row, width: usize, palette: Palette) -> Line<'static> {
    let mut spans = Vec::new();
    if width >= PID_FROM {
        spans.push(Span::raw(format!("{:>7} ", row.pid)));
    }
    let indent = if row.kind == Kind::Process { "  " } else { "" };
    let columns_left = name_columns(width);
    let name = printable(&format!("{indent}{}", row.name), columns_left);
    let padding = columns_left.saturating_sub(unicode_width::UnicodeWidthStr::width(name.as_str()));
    spans.push(Span::raw(format!("{name}{}", " ".repeat(padding))));
    let cells = cells(row, palette);
    for (at, column) in columns(width) {
        let (text, style) = &cells[at];
        spans.push(Span::raw(" "));
        spans.push(Span::styled(format!("{text:>0$}", column.width), *style));
    }
    Line::from(spans)
}

/// A cell for each of the columns.
fn cells(row: &Row, palette: Palette) -> [(String, Style); COLUMNS.len()] {
    let none = || "-".to_owned();
    let (plain, local, far) = (Style::new(), palette.local(), palette.far());
    let rate =
        |text: &dyn Fn(&Rates) -> Option<String>| row.rates.as_ref().and_then(text).unwrap_or_else(none);
    let lost = row.rates.map_or(0.0, |rates| rates.lost_share);
    let held = match row.kind {
        Kind::Donor => none(),
        _ => bytes(row.far_bytes as f64),
    };
    // A donor gives out what is fetched from it, and takes in what is written to it.
    let of_donor = |rate: fn(&DonorRates) -> f64| {
        row.donor.as_ref().and_then(|donor| donor.rates.as_ref()).map(|rates| bytes(rate(rates)))
    };
    [
        (bytes(row.local_bytes as f64), local),
        (row.local_limit_bytes.map_or_else(String::new, |limit| bytes(limit as f64)), plain),
        (held, far),
        (rate(&|rates| Some(count(rates.faults_per_s))), plain),
        (rate(&|rates| rates.fault_p50_us.map(micros)), plain),
        (rate(&|rates| rates.fault_p99_us.map(micros)), plain),
        (rate(&|rates| Some(percent(rates.lost_share))), if lost >= 0.1 { palette.warning() } else { plain }),
        (
            of_donor(|rates| rates.written_bytes_per_s)
                .unwrap_or_else(|| rate(&|rates| Some(bytes(rates.fetched_bytes_per_s)))),
            plain,
        ),
        (
            of_donor(|rates| rates.read_bytes_per_s)
                .unwrap_or_else(|| rate(&|rates| Some(bytes(rates.written_bytes_per_s)))),
            plain,
        ),
        (row.fault_mode.clone().unwrap_or_else(none), plain),
    ]
}

fn store_lines(stores: &[StoreRow], palette: Palette, width: usize) -> Vec<Line<'static>> {
    let line = |row: &StoreRow| {
        let style = if row.store.health == Health::Ok { Style::new() } else { palette.warning() };
        Line::styled(store_text(row, width), style)
    };
    stores.iter().map(line).collect()
}

/// A store in one line of at most `width` columns.
pub fn store_text(row: &StoreRow, width: usize) -> String {
    let store = &row.store;
    let rate = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), bytes);
    let mut text = format!(" {}  holds {}", health(store), bytes(store.used_bytes as f64));
    if let (Some(ratio), Some(stored_bytes)) = (store.compression_ratio, store.stored_bytes) {
        let _ = write!(text, " in {} ({ratio:.1}:1)", bytes(stored_bytes as f64));
    }
    let limit_bytes = store.stored_limit_bytes.unwrap_or(store.capacity_bytes);
    let _ = write!(text, " of {}", bytes(limit_bytes as f64));
    let _ = write!(text, "  in {}/s  out {}/s", rate(row.fetched_bytes_per_s), rate(row.written_bytes_per_s));
    let uri = printable(&store.uri, width.saturating_sub(text.len()).max(12));
    printable(&format!("{uri}{text}"), width)
}

/// Columns of what `--once` prints.
pub const WIDTH: usize = 80;

/// The list as text, for `--once`.
pub fn text(seen: &Rows) -> String {
    let palette = Palette::of_environment();
    let mut text = heading(WIDTH) + "\n";
    for row in &seen.rows {
        let line = row_line(row, WIDTH, palette);
        let _ = writeln!(text, "{}", line.spans.iter().map(|span| span.content.as_ref()).collect::<String>());
        for store in &row.stores {
            let _ = writeln!(text, "        {}", store_text(store, WIDTH - 8));
        }
        if let Some(donor) = &row.donor {
            let _ = writeln!(text, "        {}", printable(&lends(&donor.status), WIDTH - 8));
        }
    }
    for (socket, reason) in &seen.silent {
        wrapped(&format!("{socket}: {reason}"), WIDTH).iter().for_each(|line| text += &format!("{line}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::rates::tests::seen_twice;

    #[test]
    fn text_for_scripts_fits_80_columns_and_has_no_colours() {
        let looks = seen_twice();
        let mut silent = Rows::default();
        silent.silent.push(("/run/spillway/donor-1234567.sock".to_owned(), "it does not answer; ".repeat(9)));
        assert!(text(&silent).lines().all(|line| line.chars().count() <= 80), "{}", text(&silent));
        let text = text(looks.seen());
        for line in text.lines() {
            assert!(line.chars().count() <= 80 && !line.contains('\u{1b}'), "{line}");
        }
        assert_eq!(text.lines().count(), 1 + 3 + 1, "{text}");
        assert!(text.contains("compressed:") && text.contains("(2.0:1)"), "{text}");
    }

    #[test]
    fn headings_stand_above_their_columns_at_every_width() {
        let looks = seen_twice();
        for width in 20..120 {
            let row = row_line(&looks.seen().rows[0], width, Palette::new(false));
            assert_eq!(heading(width).chars().count(), row.width(), "{width}");
            assert!(row.width() <= width, "{width}");
        }
    }
}
