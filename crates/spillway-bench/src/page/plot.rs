//! Bars in groups, as SVG.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::BenchError;

const WIDTH: u32 = 900;
const HEIGHT: u32 = 380;
/// Colours that people with any kind of colour vision tell apart.
pub(super) const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(86, 180, 233),
    RGBColor(204, 121, 167),
    RGBColor(120, 120, 120),
];

/// A picture of bars: one group a category, one bar in it a series.
#[derive(Clone, Debug, Default)]
pub struct Bars {
    /// What it shows.
    pub title: String,
    /// What the height of a bar is.
    pub unit: String,
    /// Names of the groups.
    pub categories: Vec<String>,
    /// Name, and height in each group where there is one.
    pub series: Vec<(String, Vec<Option<f64>>)>,
    /// A height at which a line is drawn.
    pub line_at: Option<f64>,
}

impl Bars {
    /// Whether there is anything to see.
    #[must_use]
    pub fn has_bars(&self) -> bool {
        self.series.iter().any(|(_, values)| values.iter().any(Option::is_some))
    }

    fn highest(&self) -> f64 {
        let values = self.series.iter().flat_map(|(_, values)| values.iter().flatten());
        values.copied().chain(self.line_at).fold(0.0, f64::max)
    }

    /// The picture.
    pub fn svg(&self) -> Result<String, BenchError> {
        let mut svg = String::new();
        self.draw(&mut svg).map_err(|error| BenchError::Page {
            what: format!("draw '{}'", self.title),
            reason: error.to_string(),
        })?;
        Ok(svg)
    }

    fn draw(&self, svg: &mut String) -> Result<(), Box<dyn std::error::Error>> {
        let root = SVGBackend::with_string(svg, (WIDTH, HEIGHT)).into_drawing_area();
        root.fill(&WHITE)?;
        let count = self.categories.len();
        let top = self.highest().max(f64::MIN_POSITIVE) * 1.05;
        // Room at the right for the names of the series.
        let end = count as f64 * 1.25;
        let mut chart = ChartBuilder::on(&root)
            .caption(&self.title, ("sans-serif", 17))
            .margin(8)
            .x_label_area_size(28)
            .y_label_area_size(60)
            .build_cartesian_2d(0.0..end, 0.0..top)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .x_labels(0)
            .y_desc(&self.unit)
            .draw()?;
        for (which, (name, values)) in self.series.iter().enumerate() {
            let colour = COLOURS[which % COLOURS.len()];
            let bars = values.iter().enumerate().filter_map(|(group, height)| {
                let (from, to) = self.span(group, which);
                height.map(|height| Rectangle::new([(from, 0.0), (to, height)], colour.filled()))
            });
            chart
                .draw_series(bars)?
                .label(name)
                .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
        }
        let below = ("sans-serif", 12).into_text_style(&root).pos(Pos::new(HPos::Center, VPos::Top));
        for (group, name) in self.categories.iter().enumerate() {
            let (x, y) = chart.plotting_area().map_coordinate(&(group as f64 + 0.5, 0.0));
            root.draw_text(name, &below, (x, y + 8))?;
        }
        if let Some(height) = self.line_at {
            let line = PathElement::new([(0.0, height), (count as f64, height)], BLACK.stroke_width(1));
            chart.draw_series([line])?;
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        root.present()?;
        Ok(())
    }

    /// Where the bar of a series stands in its group.
    fn span(&self, group: usize, which: usize) -> (f64, f64) {
        const GAP: f64 = 0.1;
        let width = (1.0 - 2.0 * GAP) / self.series.len().max(1) as f64;
        let from = group as f64 + GAP + which as f64 * width;
        (from, from + width * 0.92)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_its_words_and_one_bar_for_each_value() {
        let bars = Bars {
            title: "Time per access".to_owned(),
            unit: "us".to_owned(),
            categories: vec!["zipf".to_owned(), "strided".to_owned()],
            series: vec![
                ("ours".to_owned(), vec![Some(1.0), Some(2.0)]),
                ("theirs".to_owned(), vec![None, Some(4.0)]),
            ],
            line_at: Some(1.0),
        };
        assert!(bars.has_bars());
        let svg = bars.svg().unwrap();
        for word in ["Time per access", "us", "zipf", "strided", "ours", "theirs"] {
            assert!(svg.contains(word), "no '{word}' in {svg}");
        }
        // One for each value and one for each name, the second in its colour.
        assert_eq!(svg.matches("fill=\"#0072B2\"").count(), 3, "{svg}");
        assert_eq!(svg.matches("fill=\"#E69F00\"").count(), 2, "{svg}");
        assert!(!Bars::default().has_bars());
    }
}
