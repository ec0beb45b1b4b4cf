//! Violins, as SVG: how often what took how long, on a logarithmic scale.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::distribution::Distribution;
use crate::drawing::{CHARACTER_PX, ChartError, Drawn, FONT, FONT_PX, GRID, INK, TITLE_PX, colour};
use crate::order::distinct;

/// What is to be seen in a violin, for the page that has some.
pub const HOW_TO_READ: &str = "\
    A violin is the wider the more values lie there, and goes from the least to the largest; the scale is \
    logarithmic. Its dark bar goes from the first quartile to the third, where half of all values lie, and \
    the white dot is the median.";

const WIDTH_PX: u32 = 900;
const HEIGHT_PX: u32 = 400;
/// Share of a point's room that its violins take.
const SHARE: f64 = 0.84;
/// Half of the width of a violin where it has next to nothing, as a share of the widest: a tail is to be
/// seen.
const THINNEST: f64 = 0.03;

type Plane<'a, 'b> =
    ChartContext<'a, SVGBackend<'b>, Cartesian2d<plotters::coord::types::RangedCoordf64, LogCoord<f64>>>;

/// One distribution among those of a picture.
#[derive(Clone, Copy, Debug)]
pub struct Violin<'a> {
    /// Its name in the legend, and by it its colour.
    pub series: &'a str,
    /// The name below it.
    pub point: &'a str,
    /// What it shows; none leaves its place free.
    pub distribution: Option<&'a Distribution>,
}

/// The picture of some violins, with `number` to label the scale. None where there is nothing to see.
///
/// # Errors
/// It cannot be drawn.
pub fn violins(
    title: &str,
    violins: &[Violin<'_>],
    number: &dyn Fn(f64) -> String,
) -> Result<Option<String>, ChartError> {
    let all: Vec<&Distribution> = violins.iter().filter_map(Violin::shown).collect();
    let least = all.iter().map(|all| all.min).fold(f64::INFINITY, f64::min).max(1.0);
    let most = all.iter().map(|all| all.max).fold(0.0, f64::max);
    if all.is_empty() {
        return Ok(None);
    }
    let mut svg = String::new();
    let scale = (least / 1.3)..(most.max(least) * 1.3);
    draw(title, violins, number, scale, &mut svg).map_err(|error| ChartError::new(title, error))?;
    Ok(Some(svg))
}

impl<'a> Violin<'a> {
    /// Its distribution, if there is anything in it.
    fn shown(&self) -> Option<&'a Distribution> {
        self.distribution.filter(|all| all.count > 0)
    }
}

fn draw(
    title: &str,
    violins: &[Violin<'_>],
    number: &dyn Fn(f64) -> String,
    scale: std::ops::Range<f64>,
    svg: &mut String,
) -> Drawn {
    let root = SVGBackend::with_string(svg, (WIDTH_PX, HEIGHT_PX)).into_drawing_area();
    root.fill(&WHITE)?;
    let points = distinct(violins.iter().map(|violin| violin.point));
    let series = distinct(violins.iter().map(|violin| violin.series));
    let mut plane = ChartBuilder::on(&root)
        .caption(title, (FONT, TITLE_PX).into_font().color(&INK))
        .margin(8)
        .x_label_area_size(44)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..points.len() as f64, scale.log_scale())?;
    plane
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .y_labels(8)
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(GRID)
        .label_style((FONT, FONT_PX).into_font().color(&INK))
        .y_label_formatter(&|value| number(*value))
        .draw()?;
    let width = SHARE / series.len().max(1) as f64;
    let place = |names: &[&str], name: &str| names.iter().position(|found| *found == name);
    for violin in violins {
        let (point, which) = (place(&points, violin.point), place(&series, violin.series));
        if let (Some(point), Some(which), Some(all)) = (point, which, violin.shown()) {
            let middle = point as f64 + (1.0 - SHARE) / 2.0 + (which as f64 + 0.5) * width;
            draw_violin(&mut plane, all, middle, width * 0.46, colour(which))?;
        }
    }
    labels(&root, &plane, &points, &series)?;
    root.present()?;
    Ok(())
}

/// Heights with half widths, from the least value to the largest.
fn outline(all: &Distribution, half: f64) -> Vec<(f64, f64)> {
    let widest = all.density.iter().map(|&(_, count)| count).max().unwrap_or(1) as f64;
    let thin = half * THINNEST;
    let mut outline = vec![(all.min.max(1.0), thin)];
    for &(value, count) in &all.density {
        // The middle of a step may lie beyond the last value in it.
        let value = value.min(all.max);
        let last = outline[outline.len() - 1].0;
        // Steps of equal ratio: where some are left out there is nothing.
        if value / last > 1.4 {
            outline.extend([(last * 1.05, thin), (value / 1.05, thin)]);
        }
        if value > last && value < all.max {
            outline.push((value, thin.max(half * count as f64 / widest)));
        } else if let Some(end) = outline.last_mut() {
            end.1 = end.1.max(half * count as f64 / widest);
        }
    }
    outline.push((all.max.max(1.0), thin));
    outline
}

fn draw_violin(
    plane: &mut Plane<'_, '_>,
    all: &Distribution,
    middle: f64,
    half: f64,
    colour: RGBColor,
) -> Drawn {
    let outline = outline(all, half);
    let right = outline.iter().map(|&(value, width)| (middle + width, value));
    let left = outline.iter().rev().map(|&(value, width)| (middle - width, value));
    plane.draw_series([Polygon::new(right.chain(left).collect::<Vec<_>>(), colour.mix(0.75).filled())])?;
    // To be seen also where the violin is thinner than a pixel.
    let whole = [(middle, all.min.max(1.0)), (middle, all.max.max(1.0))];
    plane.draw_series([PathElement::new(whole, colour.stroke_width(1))])?;
    let quarter =
        PathElement::new([(middle, all.p25.max(1.0)), (middle, all.p75.max(1.0))], INK.stroke_width(3));
    plane.draw_series([quarter])?;
    plane.draw_series([Circle::new((middle, all.p50.max(1.0)), 3, WHITE.filled())])?;
    Ok(())
}

fn labels(
    root: &DrawingArea<SVGBackend<'_>, Shift>,
    plane: &Plane<'_, '_>,
    points: &[&str],
    series: &[&str],
) -> Drawn {
    let centred = (FONT, FONT_PX).into_font().color(&INK).pos(Pos::new(HPos::Center, VPos::Top));
    let (_, bottom) = plane.plotting_area().get_pixel_range();
    for (at, point) in points.iter().enumerate() {
        let (x, _) = plane.backend_coord(&(at as f64 + 0.5, plane.y_range().start));
        // Neighbours would run into each other.
        let lower = if points.len() > 8 && at % 2 == 1 { 14 } else { 0 };
        root.draw_text(point, &centred, (x, bottom.end + 6 + lower))?;
    }
    let style = (FONT, FONT_PX).into_font().color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
    let mut x = 84;
    for (at, name) in series.iter().enumerate() {
        root.draw(&Rectangle::new([(x, 34), (x + 12, 44)], colour(at).filled()))?;
        root.draw_text(name, &style, (x + 18, 39))?;
        x += 40 + CHARACTER_PX * name.chars().count() as i32;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_distribution_is_a_violin_with_its_median() {
        let all = Distribution::of((500..1000).chain([1_000_000]).collect());
        let names =
            [("alone", "4 KiB"), ("alone", "2 MiB"), ("on all CPUs", "4 KiB"), ("on all CPUs", "2 MiB")];
        let mut shown: Vec<_> =
            names.map(|(series, point)| Violin { series, point, distribution: Some(&all) }).into();
        shown.push(Violin { series: "alone", point: "1 GiB", distribution: None });
        let svg = violins("First touch", &shown, &|ns| format!("{:.2} us", ns / 1e3)).unwrap().unwrap();
        for word in ["First touch", "4 KiB", "2 MiB", "1 GiB", "alone", "on all CPUs", "1.00 us"] {
            assert!(svg.contains(word), "no '{word}' in {svg}");
        }
        assert_eq!((svg.matches("<polygon").count(), svg.matches("<circle").count()), (4, 4), "{svg}");
        assert!(violins("nothing", &shown[4..], &|ns| ns.to_string()).unwrap().is_none());
    }

    #[test]
    fn an_outline_goes_up_and_is_thin_where_there_is_nothing() {
        let all = Distribution::of((500..1000).chain([1_000_000]).collect());
        let outline = outline(&all, 1.0);
        assert!(outline.windows(2).all(|pair| pair[0].0 <= pair[1].0), "{outline:?}");
        assert!(outline.iter().any(|&(_, width)| width == 1.0));
        let within = |&&(value, _): &&(f64, f64)| value > 2000.0 && value < 900_000.0;
        assert!(outline.iter().filter(within).all(|&(_, width)| width == THINNEST), "{outline:?}");
    }
}
