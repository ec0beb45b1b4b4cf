//! What lies where over time, as SVG: time from left to right, addresses from the bottom up, a colour for
//! each kind.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::drawing::{ChartError, Drawn, FONT, FONT_PX, GRID, INK, colour, svg_of};
use crate::timeline::{clock, legend, plane, root};

const HEIGHT_PX: u32 = 380;
/// Room for an address.
const SCALE_PX: u32 = 124;
/// Between two addresses that are told.
const APART_PX: i32 = 17;
/// How much of a cell is its kind is drawn in so many steps, so that equal neighbours are one rectangle.
const STEPS: f64 = 4.0;

/// Kinds over time and address.
#[derive(Clone, Debug, PartialEq)]
pub struct AddressMap {
    /// What stands above it.
    pub title: String,
    /// Where each column ends, in seconds, ascending; the first begins where `begin_s` says.
    pub at_s: Vec<f64>,
    /// Where the first column begins.
    pub begin_s: f64,
    /// First addresses of the rows, ascending.
    pub rows: Vec<u64>,
    /// Names of the kinds, each with the number of its colour.
    pub kinds: Vec<(String, usize)>,
    /// Of each column what there is in each row.
    pub columns: Vec<Vec<Option<Cell>>>,
}

/// What there is at one time in one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// The number of its kind.
    pub kind: usize,
    /// How much of it is of that kind, 0 to 1.
    pub share: f64,
}

/// A rectangle of equal cells beside each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    /// Where it begins, in seconds.
    pub from_s: f64,
    /// Where it ends, in seconds.
    pub to_s: f64,
    /// The number of its row.
    pub row: usize,
    /// The number of its kind.
    pub kind: usize,
    step: u32,
}

impl Stretch {
    /// How strong its colour is, 0 to 1: the stronger, the more of the memory is of that kind.
    #[must_use]
    pub fn strength(&self) -> f64 {
        0.25 + 0.75 * f64::from(self.step) / STEPS
    }
}

impl AddressMap {
    /// Whether there is anything to see.
    #[must_use]
    pub fn has_values(&self) -> bool {
        self.columns.iter().flatten().any(Option::is_some)
    }

    /// Draws it: the stronger the colour, the more of the memory is of that kind.
    ///
    /// # Errors
    /// A time is not finite.
    pub fn svg(&self) -> Result<String, ChartError> {
        svg_of(&self.title, "time", self.at_s.iter().chain([&self.begin_s]), |svg| self.draw(svg))
    }

    fn draw(&self, svg: &mut String) -> Drawn {
        let root = root(svg, &self.title, HEIGHT_PX)?;
        let end_s = self.at_s.last().copied().unwrap_or(1.0);
        let mut plane = plane(&root, [self.begin_s, end_s], self.rows.len().max(1) as f64, SCALE_PX)?;
        plane
            .configure_mesh()
            .disable_mesh()
            .x_labels(9)
            .x_label_formatter(&|at_s| clock(*at_s))
            .y_labels(0)
            .axis_style(GRID)
            .label_style((FONT, FONT_PX).into_font().color(&INK))
            .draw()?;
        let rectangles = self.stretches().into_iter().map(|stretch| {
            let corners = [(stretch.from_s, stretch.row as f64), (stretch.to_s, stretch.row as f64 + 1.0)];
            Rectangle::new(corners, colour(self.colour_of(stretch.kind)).mix(stretch.strength()).filled())
        });
        plane.draw_series(rectangles)?;
        let style = (FONT, FONT_PX).into_font().color(&INK).pos(Pos::new(HPos::Right, VPos::Center));
        let mut last_y = None;
        for (row, address) in self.rows.iter().enumerate() {
            let (x, y) = plane.backend_coord(&(self.begin_s, row as f64 + 0.5));
            // As many as do not touch.
            if last_y.is_none_or(|last_y: i32| last_y - y >= APART_PX) {
                root.draw_text(&format!("{address:#x}"), &style, (x - 6, y))?;
                last_y = Some(y);
            }
        }
        legend(&root, self.kinds.iter().map(|(name, number)| (name.as_str(), colour(*number))))?;
        root.present()?;
        Ok(())
    }

    fn colour_of(&self, kind: usize) -> usize {
        self.kinds.get(kind).map_or(0, |(_, number)| *number)
    }

    /// What is drawn: equal neighbours in time are one.
    #[must_use]
    pub fn stretches(&self) -> Vec<Stretch> {
        let mut done: Vec<Stretch> = Vec::new();
        for row in 0..self.rows.len() {
            let mut open: Option<Stretch> = None;
            let mut from_s = self.begin_s;
            for (&to_s, column) in self.at_s.iter().zip(&self.columns) {
                let cell = column.get(row).copied().flatten();
                let step = cell.map_or(0, |cell| (cell.share.clamp(0.0, 1.0) * STEPS).round() as u32);
                match (&mut open, cell) {
                    (Some(open), Some(cell)) if (open.kind, open.step) == (cell.kind, step) => {
                        open.to_s = to_s;
                    }
                    (_, cell) => {
                        done.extend(open.take());
                        open = cell.map(|cell| Stretch { from_s, to_s, row, kind: cell.kind, step });
                    }
                }
                from_s = to_s;
            }
            done.extend(open);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(columns: Vec<Vec<Option<Cell>>>) -> AddressMap {
        AddressMap {
            title: "Memory".to_owned(),
            at_s: (1..=columns.len()).map(|at| at as f64).collect(),
            begin_s: 0.0,
            rows: vec![0x1000, 0x2000, 0x7000],
            kinds: vec![("hot".to_owned(), 1), ("far & away".to_owned(), 0)],
            columns,
        }
    }

    const HOT: Option<Cell> = Some(Cell { kind: 0, share: 1.0 });
    const FAR: Option<Cell> = Some(Cell { kind: 1, share: 0.5 });

    #[test]
    fn equal_neighbours_in_time_are_one_and_what_is_not_there_is_not_drawn() {
        let nearly = Some(Cell { kind: 0, share: 0.97 });
        let drawn = map(vec![vec![HOT, FAR, None], vec![nearly, FAR, None], vec![FAR, None, HOT]]);
        assert!(drawn.has_values());
        let told: Vec<_> = drawn
            .stretches()
            .iter()
            .map(|stretch| (stretch.row, stretch.kind, stretch.from_s, stretch.to_s))
            .collect();
        assert_eq!(told, [(0, 0, 0.0, 2.0), (0, 1, 2.0, 3.0), (1, 1, 0.0, 2.0), (2, 0, 2.0, 3.0)]);
        let svg = drawn.svg().unwrap();
        // Two of each kind, and one in the legend.
        assert_eq!(
            [svg.matches("fill=\"#D55E00\"").count(), svg.matches("fill=\"#0072B2\"").count()],
            [3, 3]
        );
        for text in ["0x1000", "0x7000", "hot", "far &amp; away"] {
            assert!(svg.contains(text), "{text} is not in {svg}");
        }
    }

    #[test]
    fn nothing_is_drawn_too_and_odd_times_are_refused() {
        let nothing = map(vec![]);
        assert!(!nothing.has_values() && nothing.svg().is_ok());
        assert!(AddressMap { rows: Vec::new(), ..nothing.clone() }.svg().is_ok());
        assert!(AddressMap { begin_s: f64::NAN, ..nothing }.svg().is_err());
        // A column that is too short, as a kind that is not named, does no harm.
        let odd = Some(Cell { kind: 9, share: 7.0 });
        assert!(map(vec![vec![odd], vec![]]).svg().is_ok());
    }
}
