//! Charts as SVG: lines along a scale, bars beside each other, bars on top of each other.
//!
//! Points are named, not measured: papers give their axes the same way, latency by latency or size by size.

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::drawing::{
    ChartError, Drawn, FONT, FONT_PX, GRID, INK, MARGIN_PX, TITLE_CHARACTER_PX, TITLE_PX, colour, longest_px,
    svg_of,
};
use crate::order::distinct;

/// How values are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A line for each series.
    Lines,
    /// At each point, a bar for each series.
    Bars,
    /// At each point, one bar of all series on top of each other.
    Stacked,
}

/// One curve or colour.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// A value for each point of the chart; none where there is none.
    pub values: Vec<Option<f64>>,
}

/// Curves or bars over named points.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// What stands above it.
    pub title: String,
    /// What its values are.
    pub unit: String,
    /// How they are shown.
    pub kind: Kind,
    /// Names of the points, from left to right.
    pub points: Vec<String>,
    /// A value of each series at each point.
    pub series: Vec<Series>,
    /// A value at which a line is drawn from left to right.
    pub line_at: Option<f64>,
}

const HEIGHT_PX: u32 = 320;
/// Share of a point's room that bars fill.
const BARS_SHARE: f64 = 0.8;

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Plane<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

impl Chart {
    /// A chart of values that come one by one, as (series, point, value); series and points keep the order in
    /// which they came.
    #[must_use]
    pub fn of<'a>(
        title: &str,
        unit: &str,
        stacked: bool,
        values: impl Iterator<Item = (&'a str, &'a str, f64)> + Clone,
    ) -> Self {
        let points: Vec<_> = distinct(values.clone().map(|(_, point, _)| point.to_owned()));
        let names: Vec<_> = distinct(values.clone().map(|(series, _, _)| series.to_owned()));
        let value = |name: &str, point: &str| {
            values.clone().find(|found| (found.0, found.1) == (name, point)).map(|found| found.2)
        };
        let series = |name: &String| Series {
            name: name.clone(),
            values: points.iter().map(|point| value(name, point)).collect(),
        };
        let kind = match stacked {
            true => Kind::Stacked,
            false if is_scale(&points) => Kind::Lines,
            false => Kind::Bars,
        };
        let series = names.iter().map(series).collect();
        Self { title: title.to_owned(), unit: unit.to_owned(), kind, points, series, line_at: None }
    }

    /// Bars: at each point one for each series, given as its name and a value for each point.
    #[must_use]
    pub fn bars(
        title: impl Into<String>,
        unit: &str,
        points: Vec<String>,
        series: impl IntoIterator<Item = (String, Vec<Option<f64>>)>,
    ) -> Self {
        let series = series.into_iter().map(|(name, values)| Series { name, values }).collect();
        Self { title: title.into(), unit: unit.to_owned(), kind: Kind::Bars, points, series, line_at: None }
    }

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
        svg_of(&self.title, "value", values.chain(&self.line_at), |svg| self.draw(svg))
    }

    fn draw(&self, svg: &mut String) -> Drawn {
        let (plot_px, legend_px) = (self.plot_px(), self.legend_px());
        let width_px = (plot_px + legend_px).max(self.title_px());
        let root = SVGBackend::with_string(svg, (width_px, HEIGHT_PX + self.labels_px())).into_drawing_area();
        root.fill(&WHITE)?;
        let title_style = (FONT, TITLE_PX).into_font().color(&INK);
        root.draw_text(&self.title, &title_style, (MARGIN_PX, MARGIN_PX))?;
        let (left, right) = root.split_horizontally(plot_px);
        let mut plane = ChartBuilder::on(&left)
            .margin(MARGIN_PX)
            .margin_top(MARGIN_PX + 2 * TITLE_PX)
            .x_label_area_size(self.labels_px())
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..self.points.len() as f64, 0.0..self.top())?;
        plane
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(0)
            .y_labels(6)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .axis_style(GRID)
            .y_desc(&self.unit)
            .y_label_formatter(&|value| short(*value))
            .label_style((FONT, FONT_PX).into_font().color(&INK))
            .draw()?;
        self.draw_labels(&left, &plane)?;
        match self.kind {
            Kind::Lines => self.draw_lines(&mut plane)?,
            Kind::Bars => self.draw_bars(&mut plane)?,
            Kind::Stacked => self.draw_stacks(&mut plane)?,
        }
        if let Some(value) = self.line_at {
            let ends = [(0.0, value), (self.points.len() as f64, value)];
            plane.draw_series([PathElement::new(ends, INK.stroke_width(1))])?;
        }
        self.draw_legend(&right)?;
        root.present()?;
        Ok(())
    }

    fn draw_lines(&self, plane: &mut Plane<'_>) -> Drawn {
        for (at, series) in self.series.iter().enumerate() {
            let found =
                |(point, value): (usize, &Option<f64>)| value.map(|value| (point as f64 + 0.5, value));
            let line: Vec<(f64, f64)> = series.values.iter().enumerate().filter_map(found).collect();
            plane.draw_series(LineSeries::new(line.iter().copied(), colour(at).stroke_width(2)))?;
            plane.draw_series(line.iter().map(|&at_point| Circle::new(at_point, 3, colour(at).filled())))?;
        }
        Ok(())
    }

    fn draw_bars(&self, plane: &mut Plane<'_>) -> Drawn {
        let width = BARS_SHARE / self.series.len().max(1) as f64;
        for (at, series) in self.series.iter().enumerate() {
            let bar = |(point, value): (usize, &Option<f64>)| {
                let left = point as f64 + (1.0 - BARS_SHARE) / 2.0 + at as f64 * width;
                let corners = [(left, 0.0), (left + 0.94 * width, (*value)?)];
                Some(Rectangle::new(corners, colour(at).filled()))
            };
            plane.draw_series(series.values.iter().enumerate().filter_map(bar))?;
        }
        Ok(())
    }

    fn draw_stacks(&self, plane: &mut Plane<'_>) -> Drawn {
        let mut reached = vec![0.0; self.points.len()];
        for (at, series) in self.series.iter().enumerate() {
            for (point, value) in series.values.iter().enumerate() {
                let (bottom, top) = (reached[point], reached[point] + value.unwrap_or(0.0));
                reached[point] = top;
                let side = (1.0 - BARS_SHARE) / 2.0;
                let corners = [(point as f64 + side, bottom), (point as f64 + 1.0 - side, top)];
                plane.draw_series([Rectangle::new(corners, colour(at).filled())])?;
            }
        }
        Ok(())
    }

    fn draw_labels(&self, area: &Area<'_>, plane: &Plane<'_>) -> Drawn {
        let upright = (FONT, FONT_PX).into_font().color(&INK).pos(Pos::new(HPos::Center, VPos::Top));
        let turned = (FONT, FONT_PX).into_font().transform(FontTransform::Rotate90).color(&INK);
        let turned = turned.pos(Pos::new(HPos::Left, VPos::Center));
        let style = if self.labels_turned() { turned } else { upright };
        for (at, point) in self.points.iter().enumerate() {
            let (x, y) = plane.backend_coord(&(at as f64 + 0.5, 0.0));
            area.draw_text(point, &style, (x, y + 8))?;
        }
        Ok(())
    }

    fn draw_legend(&self, area: &Area<'_>) -> Drawn {
        let style = (FONT, FONT_PX).into_font().color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
        for (at, series) in self.series.iter().enumerate() {
            let y = 52 + at as i32 * 20;
            area.draw(&Rectangle::new([(4, y - 6), (16, y + 6)], colour(at).filled()))?;
            area.draw_text(&series.name, &style, (24, y))?;
        }
        Ok(())
    }

    /// The upper end of the scale.
    fn top(&self) -> f64 {
        let at = |point: usize| self.series.iter().filter_map(move |series| series.values[point]);
        let highest = |point: usize| match self.kind {
            Kind::Stacked => at(point).sum(),
            Kind::Lines | Kind::Bars => at(point).fold(0.0, f64::max),
        };
        let values = (0..self.points.len()).map(highest).chain(self.line_at);
        let top = values.fold(0.0, f64::max) * 1.05;
        if top > 0.0 { top } else { 1.0 }
    }

    fn plot_px(&self) -> u32 {
        const MOST_PX: usize = 1100;
        let bars = if self.kind == Kind::Bars { self.series.len() } else { 1 };
        let bars_px = 18 + 12 * bars;
        let width_px = |point_px: usize| self.points.len() * point_px + 130;
        // Names are easiest to read upright, where there is room.
        let names_px = longest_px(self.points.iter().map(String::as_str)) as usize + 10;
        let upright_px = width_px(bars_px.max(names_px));
        let width_px = if upright_px <= MOST_PX { upright_px } else { width_px(bars_px) };
        width_px.clamp(460, MOST_PX) as u32
    }

    fn title_px(&self) -> u32 {
        (self.title.chars().count() as i32 * TITLE_CHARACTER_PX + 2 * MARGIN_PX) as u32
    }

    fn legend_px(&self) -> u32 {
        longest_px(self.series.iter().map(|series| series.name.as_str())) as u32 + 40
    }

    fn labels_turned(&self) -> bool {
        let room_px = (self.plot_px() as i32 - 110) / self.points.len().max(1) as i32;
        longest_px(self.points.iter().map(String::as_str)) > room_px
    }

    fn labels_px(&self) -> u32 {
        let labels_px = longest_px(self.points.iter().map(String::as_str));
        if self.labels_turned() { labels_px as u32 + 12 } else { 28 }
    }
}

/// Whether points are steps on a scale: the same text around different numbers.
fn is_scale(points: &[String]) -> bool {
    let around = |point: &String| point.split(|c: char| c.is_ascii_digit() || c == '.').collect::<String>();
    let numbered = |point: &String| point.contains(|c: char| c.is_ascii_digit());
    points.len() > 1 && points.iter().all(|point| numbered(point) && around(point) == around(&points[0]))
}

/// A number in few characters.
#[must_use]
pub fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 0.1 => 2,
        size if size >= 0.01 => 3,
        _ => 4,
    };
    format!("{scaled:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_title_has_room() {
        let title =
            "a workload by local memory (a platform, 1500 ns, 50% of the link taken) and more than that";
        let chart = Chart::of(title, "s", false, [("a", "1%", 1.0), ("a", "2%", 2.0)].into_iter());
        assert!(chart.title_px() > chart.plot_px() + chart.legend_px());
        let width = format!("width=\"{}\"", chart.title_px());
        assert!(chart.svg().unwrap().contains(&width), "{width}");
    }

    fn chart(values: &[(&str, &str, f64)]) -> Chart {
        Chart::of("A <title>", "seconds", false, values.iter().copied())
    }

    #[test]
    fn values_find_their_series_and_point() {
        let chart = chart(&[("b", "20%", 1.0), ("a", "20%", 2.0), ("b", "40%", 3.0)]);
        assert_eq!(chart.points, ["20%", "40%"]);
        let expected = [("b", vec![Some(1.0), Some(3.0)]), ("a", vec![Some(2.0), None])];
        for (series, (name, values)) in chart.series.iter().zip(expected) {
            assert_eq!((series.name.as_str(), &series.values), (name, &values));
        }
        assert_eq!(chart.kind, Kind::Lines);
    }

    #[test]
    fn names_make_bars_and_numbers_lines() {
        assert_eq!(chart(&[("a", "tpcc", 1.0), ("a", "redis", 1.0)]).kind, Kind::Bars);
        assert_eq!(chart(&[("a", "HF 0.1", 1.0), ("a", "HF 0.25", 1.0)]).kind, Kind::Lines);
        assert_eq!(chart(&[("a", "20%", 1.0), ("a", "20 ns", 1.0)]).kind, Kind::Bars);
        assert_eq!(
            Chart::of("t", "u", true, [("a", "1%", 1.0), ("a", "2%", 1.0)].into_iter()).kind,
            Kind::Stacked
        );
    }

    #[test]
    fn a_drawing_shows_every_name_escaped() {
        for stacked in [false, true] {
            let values = [("one & only", "left", 1.0), ("other", "left", 2.0), ("other", "right", 0.5)];
            let svg = Chart::of("A <title>", "seconds", stacked, values.into_iter()).svg().unwrap();
            for text in ["A &lt;title&gt;", "seconds", "one &amp; only", "other", "left", "right"] {
                assert!(svg.contains(text), "{text} is not in {svg}");
            }
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        }
    }

    #[test]
    fn each_value_has_its_bar_and_a_line_its_height() {
        let points = ["zipf", "strided"].map(str::to_owned).into();
        let series =
            [("ours".to_owned(), vec![Some(1.0), Some(2.0)]), ("theirs".to_owned(), vec![None, Some(4.0)])];
        let mut bars = Chart::bars("Time per access", "us", points, series);
        assert!(bars.has_values());
        let without = bars.svg().unwrap();
        // One for each value and one for each name, the second in its colour.
        assert_eq!(without.matches("fill=\"#0072B2\"").count(), 3, "{without}");
        assert_eq!(without.matches("fill=\"#D55E00\"").count(), 2, "{without}");
        bars.line_at = Some(8.0);
        let with = bars.svg().unwrap();
        assert_eq!(with.matches("<polyline").count(), without.matches("<polyline").count() + 1, "{with}");
        assert_eq!(bars.top(), 8.0 * 1.05, "the line is within the scale");
        bars.series.clear();
        assert!(!bars.has_values());
    }

    #[test]
    fn names_are_turned_only_where_there_is_no_room() {
        let points = |count: usize| (0..count).map(|_| "a name of 20 letters".to_owned()).collect();
        let chart =
            |count| Chart::bars("Names", "s", points(count), [("a".to_owned(), vec![Some(1.0); count])]);
        assert!(!chart(6).labels_turned());
        assert!(chart(7).labels_turned());
    }

    #[test]
    fn odd_values_are_refused_and_empty_charts_drawn() {
        assert!(chart(&[("a", "x", f64::NAN)]).svg().unwrap_err().to_string().contains("finite"));
        assert!(chart(&[]).svg().is_ok());
        assert!(chart(&[("a", "x", 0.0)]).svg().is_ok());
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in
            [(0.0, "0"), (1.5, "1.50"), (12_345.0, "12.3k"), (2.5e9, "2.50G"), (0.012, "0.012")]
        {
            assert_eq!(short(value), text);
        }
    }
}
