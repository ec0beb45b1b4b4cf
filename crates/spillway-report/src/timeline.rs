//! What went on over time, as SVG: lines over seconds, and how often what took how long as a map of heat.

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::chart::{Series, short};
use crate::drawing::{
    ChartError, Drawn, FONT, FONT_PX, GRID, INK, MARGIN_PX, TITLE_PX, colour, longest_px, svg_of,
};

const WIDTH_PX: u32 = 980;
const HEIGHT_PX: u32 = 250;
const SCALE_PX: u32 = 64;

pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
pub(crate) type Plane<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Lines over time. All timelines are equally wide, so that what lies above each other happened together.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// What stands above it.
    pub title: String,
    /// What its values are.
    pub unit: String,
    /// When each value was, in seconds, ascending.
    pub at_s: Vec<f64>,
    /// A value of each series at each time; a line breaks where there is none.
    pub series: Vec<Series>,
}

/// How many of what size there were over time.
#[derive(Clone, Debug, PartialEq)]
pub struct HeatMap {
    /// What stands above it.
    pub title: String,
    /// What its rows are.
    pub unit: String,
    /// Where each column ends, in seconds, ascending; the first begins where `begin_s` says.
    pub at_s: Vec<f64>,
    /// Where the first column begins.
    pub begin_s: f64,
    /// Names of the rows, from the bottom up.
    pub rows: Vec<String>,
    /// Of each column, how many there were in each row.
    pub counts: Vec<Vec<u64>>,
}

impl Timeline {
    /// Whether there is anything to see.
    #[must_use]
    pub fn has_values(&self) -> bool {
        self.series.iter().flat_map(|series| &series.values).any(Option::is_some)
    }

    /// Draws it.
    ///
    /// # Errors
    /// A value is not finite.
    pub fn svg(&self) -> Result<String, ChartError> {
        let values = self.series.iter().flat_map(|series| &series.values).flatten();
        svg_of(&self.title, "value", values.chain(&self.at_s), |svg| self.draw(svg))
    }

    fn draw(&self, svg: &mut String) -> Drawn {
        let highest = self.series.iter().flat_map(|series| &series.values).flatten().copied();
        let top = highest.fold(0.0, f64::max) * 1.05;
        let top = if top > 0.0 { top } else { 1.0 };
        let begin_s = self.at_s.first().copied().unwrap_or(0.0);
        let names = self.series.iter().enumerate().map(|(at, series)| (series.name.as_str(), colour(at)));
        let root = root(svg, &self.title, HEIGHT_PX)?;
        let end_s = self.at_s.last().copied().unwrap_or(1.0);
        let mut plane = plane(&root, [begin_s, end_s], top, SCALE_PX)?;
        plane
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(9)
            .x_label_formatter(&|at_s| clock(*at_s))
            .y_labels(5)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .axis_style(GRID)
            .y_desc(&self.unit)
            .y_label_formatter(&|value| short(*value))
            .label_style((FONT, FONT_PX).into_font().color(&INK))
            .draw()?;
        for (at, series) in self.series.iter().enumerate() {
            for stretch in stretches(&self.at_s, &series.values) {
                if let [alone] = stretch[..] {
                    plane.draw_series([Circle::new(alone, 2, colour(at).filled())])?;
                }
                plane.draw_series(LineSeries::new(stretch, colour(at).stroke_width(2)))?;
            }
        }
        legend(&root, names)?;
        root.present()?;
        Ok(())
    }
}

impl HeatMap {
    /// Whether there is anything to see.
    #[must_use]
    pub fn has_values(&self) -> bool {
        self.counts.iter().flatten().any(|&count| count > 0)
    }

    /// Draws it: the stronger, the more there were, by powers of ten.
    ///
    /// # Errors
    /// A time is not finite.
    pub fn svg(&self) -> Result<String, ChartError> {
        svg_of(&self.title, "time", self.at_s.iter().chain([&self.begin_s]), |svg| self.draw(svg))
    }

    fn draw(&self, svg: &mut String) -> Drawn {
        let root = root(svg, &self.title, HEIGHT_PX)?;
        let end_s = self.at_s.last().copied().unwrap_or(1.0);
        let mut plane = plane(&root, [self.begin_s, end_s], self.rows.len() as f64, SCALE_PX)?;
        plane
            .configure_mesh()
            .disable_mesh()
            .x_labels(9)
            .x_label_formatter(&|at_s| clock(*at_s))
            .y_labels(0)
            .axis_style(GRID)
            .y_desc(&self.unit)
            .label_style((FONT, FONT_PX).into_font().color(&INK))
            .draw()?;
        let most = self.counts.iter().flatten().copied().max().unwrap_or(0).max(1) as f64;
        let mut left_s = self.begin_s;
        for (&right_s, column) in self.at_s.iter().zip(&self.counts) {
            let cells = column.iter().enumerate().filter(|(_, count)| **count > 0);
            plane.draw_series(cells.map(|(row, &count)| {
                let share = (count as f64 + 1.0).ln() / (most + 1.0).ln();
                let corners = [(left_s, row as f64), (right_s, row as f64 + 1.0)];
                Rectangle::new(corners, colour(0).mix(0.12 + 0.88 * share).filled())
            }))?;
            left_s = right_s;
        }
        let style = (FONT, FONT_PX).into_font().color(&INK).pos(Pos::new(HPos::Right, VPos::Center));
        // Every third name, so that they do not touch.
        for (row, name) in self.rows.iter().enumerate().step_by(3) {
            let (x, y) = plane.backend_coord(&(self.begin_s, row as f64 + 0.5));
            root.draw_text(name, &style, (x - 6, y))?;
        }
        root.present()?;
        Ok(())
    }
}

/// An empty picture with its title.
pub(crate) fn root<'a>(
    svg: &'a mut String,
    title: &str,
    height_px: u32,
) -> Result<Area<'a>, Box<dyn std::error::Error>> {
    let root = SVGBackend::with_string(svg, (WIDTH_PX, height_px)).into_drawing_area();
    root.fill(&WHITE)?;
    let style = (FONT, TITLE_PX).into_font().color(&INK);
    root.draw_text(title, &style, (MARGIN_PX, MARGIN_PX)).map_err(|error| error.to_string())?;
    Ok(root)
}

/// What lies beside the scales, the left one of so many pixels: time by value.
pub(crate) fn plane<'a>(
    root: &Area<'a>,
    [begin_s, end_s]: [f64; 2],
    top: f64,
    scale_px: u32,
) -> Result<Plane<'a>, Box<dyn std::error::Error>> {
    // One look alone has no width.
    let end_s = if end_s > begin_s { end_s } else { begin_s + 1.0 };
    let plane = ChartBuilder::on(root)
        .margin(MARGIN_PX)
        .margin_top(MARGIN_PX + 2 * TITLE_PX)
        .x_label_area_size(28)
        .y_label_area_size(scale_px)
        .build_cartesian_2d(begin_s..end_s, 0.0..top);
    plane.map_err(|error| error.to_string().into())
}

/// Names in their colours, in one row at the right of the title.
pub(crate) fn legend<'a>(
    root: &Area<'_>,
    names: impl DoubleEndedIterator<Item = (&'a str, RGBColor)>,
) -> Drawn {
    let style = (FONT, FONT_PX).into_font().color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
    let mut right_px = WIDTH_PX as i32 - MARGIN_PX;
    for (name, colour) in names.rev() {
        right_px -= longest_px([name].into_iter()) + 30;
        let y_px = MARGIN_PX + TITLE_PX / 2;
        root.draw(&Rectangle::new([(right_px, y_px - 6), (right_px + 12, y_px + 6)], colour.filled()))?;
        root.draw_text(name, &style, (right_px + 18, y_px))?;
    }
    Ok(())
}

/// The parts of a line between which there is nothing.
fn stretches(at_s: &[f64], values: &[Option<f64>]) -> Vec<Vec<(f64, f64)>> {
    let points: Vec<_> = at_s.iter().zip(values).collect();
    let parts = points.split(|(_, value)| value.is_none()).filter(|part| !part.is_empty());
    parts.map(|part| part.iter().filter_map(|(at_s, value)| Some((**at_s, (**value)?))).collect()).collect()
}

/// A time since the beginning: `45s`, `3:05`, `2:07:00`.
#[must_use]
pub fn clock(at_s: f64) -> String {
    let whole = at_s.max(0.0) as u64;
    match whole {
        0..60 if at_s.fract() > 0.01 => format!("{at_s:.1}s"),
        0..60 => format!("{whole}s"),
        60..3600 => format!("{}:{:02}", whole / 60, whole % 60),
        _ => format!("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline(values: Vec<Option<f64>>) -> Timeline {
        let at_s = (0..values.len()).map(|at| at as f64).collect();
        let series = vec![Series { name: "local & far".to_owned(), values }];
        Timeline { title: "Memory <1>".to_owned(), unit: "bytes".to_owned(), at_s, series }
    }

    #[test]
    fn a_line_breaks_where_nothing_is_known_and_a_lone_value_is_a_dot() {
        let drawn = timeline(vec![Some(1.0), Some(2.0), None, Some(5.0), None, Some(3.0), Some(3.0)]);
        assert!(drawn.has_values());
        let svg = drawn.svg().unwrap();
        let lines = svg.matches("stroke=\"#0072B2\"").count();
        assert_eq!((lines, svg.matches("<circle").count()), (3, 1), "{svg}");
        for text in ["Memory &lt;1&gt;", "local &amp; far", "bytes"] {
            assert!(svg.contains(text), "{text} is not in {svg}");
        }
    }

    #[test]
    fn nothing_and_one_look_are_drawn_and_odd_values_refused() {
        assert!(!timeline(vec![None, None]).has_values());
        for values in [vec![], vec![Some(1.0)], vec![Some(0.0), Some(0.0)]] {
            assert!(timeline(values).svg().is_ok());
        }
        assert!(timeline(vec![Some(f64::NAN)]).svg().unwrap_err().to_string().contains("finite"));
    }

    #[test]
    fn a_cell_of_the_map_stands_for_what_was_counted_and_no_other() {
        let map = HeatMap {
            title: "Faults".to_owned(),
            unit: "us".to_owned(),
            at_s: vec![1.0, 2.0],
            begin_s: 0.0,
            rows: ["1", "2", "4"].map(str::to_owned).into(),
            counts: vec![vec![0, 7, 0], vec![1000, 0, 1]],
        };
        assert!(map.has_values());
        let svg = map.svg().unwrap();
        assert_eq!(svg.matches("fill=\"#0072B2\"").count(), 3, "{svg}");
        let darkest = svg.split("opacity=\"").filter_map(|part| part.split('"').next()?.parse().ok());
        assert_eq!(darkest.fold(0.0, f64::max), 1.0);
        let empty = HeatMap { counts: vec![vec![0; 3]; 2], ..map.clone() };
        assert!(!empty.has_values() && empty.svg().is_ok());
        assert!(HeatMap { begin_s: f64::INFINITY, ..map }.svg().is_err());
    }

    #[test]
    fn times_read_as_a_clock() {
        for (at_s, text) in [(0.0, "0s"), (7.5, "7.5s"), (59.0, "59s"), (185.0, "3:05"), (7620.0, "2:07:00")]
        {
            assert_eq!(clock(at_s), text);
        }
    }
}
