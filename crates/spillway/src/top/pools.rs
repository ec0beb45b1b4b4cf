//! The pools that were named: a line for each below the list, and a screen of their donors and runs.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use crate::pool::Looked;
use crate::top::palette::Palette;

/// A line for each.
pub fn summaries(pools: &[Looked], palette: Palette, width: usize) -> Vec<Line<'static>> {
    let line = |pool: &Looked| {
        let (text, is_well) = pool.summary(width);
        if is_well { Line::raw(text) } else { Line::styled(text, palette.warning()) }
    };
    pools.iter().map(line).collect()
}

/// Draws their donors and runs. `offset` is what is scrolled away above.
pub fn draw(frame: &mut Frame<'_>, pools: &[Looked], palette: Palette, offset: &mut usize) {
    let [body, foot] = Layout::vertical([Constraint::Min(1), Constraint::Length(1)]).areas(frame.area());
    let mut lines = Vec::new();
    for pool in pools {
        let mut card = pool.card(body.width.into()).into_iter();
        lines.extend(card.next().map(|name| Line::styled(name, palette.heading())));
        lines.extend(card.map(Line::raw));
        lines.push(Line::raw(""));
    }
    lines.pop();
    if lines.is_empty() {
        lines.push(Line::raw("No pool was named: --pool"));
    }
    *offset = (*offset).min(lines.len().saturating_sub(body.height.into()));
    let shown: Vec<Line<'_>> = lines.into_iter().skip(*offset).collect();
    frame.render_widget(Paragraph::new(shown), body);
    frame.render_widget(Paragraph::new("q back  arrows scroll  ? help"), foot);
}

/// The pools as text, for `--once`.
pub fn text(pools: &[Looked], width: usize) -> String {
    pools.iter().map(|pool| format!("\n{}\n", pool.card(width).join("\n"))).collect()
}
