//! What keys do, and what the columns mean.

use ratatui::Frame;
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Wrap};

use crate::top::palette::Palette;

const TEXT: [&str; 24] = [
    "Keys",
    "  arrows, Enter  choose a row; show it in detail",
    "  p              donors and runs of the pools that --pool names",
    "  s, r           sort by the next column; the other way round",
    "  q, Esc         back; in the list, q ends",
    "Columns",
    "  LOCAL, FAR     memory that is local, and on a store",
    "  LIMIT          most that may be local",
    "  FLT/s          page faults served in a second",
    "  P50, P99       what half, and all but a hundredth of them took at most",
    "  LOST           time that threads waited for them, of the time that passed;",
    "                 200% where two threads waited all the time",
    "  IN/s, OUT/s    fetched from stores, written to them",
    "  Of a donor, LOCAL is what it holds and LIMIT what it lends; IN/s is what",
    "  clients write to it, OUT/s what they read.",
    "  BY             who serves faults: a thread of Spillway's, or inline",
    "  hot, warm, cold: used in several, few, none of the last scans of memory;",
    "  untold: of no scan yet; native: left to the kernel; pinned: cannot leave",
    "A store is",
    "  full           it has turned pages away within the last ten seconds",
    "  silent         it does not answer, and who needs its pages waits",
    "  failing        it has failed a page within the last ten seconds",
    "LOST is high: give the program more --local, or a faster store.",
    "Any key goes back.",
];

/// Draws it over everything.
pub fn draw(frame: &mut Frame<'_>, palette: Palette) {
    let line = |text: &&'static str| match text.starts_with(' ') || text.ends_with('.') {
        true => Line::raw(*text),
        false => Line::styled(*text, palette.heading()),
    };
    let text: Vec<Line<'_>> = TEXT.iter().map(line).collect();
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: false }), frame.area());
}
