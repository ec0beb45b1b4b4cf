//! The colours: blue against yellow, which nobody confuses, and nothing is said by colour alone. Without
//! colours what matters is bold.

use ratatui::style::{Color, Modifier, Style};

/// The styles of a screen.
#[derive(Clone, Copy, Debug)]
pub struct Palette {
    has_colours: bool,
}

impl Palette {
    /// Colours, unless the user wants none (<https://no-color.org>).
    pub fn of_environment() -> Self {
        Self { has_colours: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) }
    }

    /// With colours, or without.
    #[cfg(test)]
    pub fn new(has_colours: bool) -> Self {
        Self { has_colours }
    }

    fn coloured(self, colour: Color) -> Style {
        if self.has_colours { Style::new().fg(colour) } else { Style::new() }
    }

    /// Local memory, and what is well.
    pub fn local(self) -> Style {
        self.coloured(Color::LightBlue)
    }

    /// Far memory, and what it costs.
    pub fn far(self) -> Style {
        self.coloured(Color::Yellow)
    }

    /// What somebody should look at.
    pub fn warning(self) -> Style {
        self.far().add_modifier(Modifier::BOLD)
    }

    /// Headings, in whatever colour.
    pub fn heading(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// The row that is chosen.
    pub fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}
