//! What all pictures have in common.

use plotters::prelude::*;
use thiserror::Error;

/// Why a picture could not be drawn.
#[derive(Debug, Error)]
#[error("the chart '{title}' cannot be drawn: {reason}; leave it out, or give it finite values")]
pub struct ChartError {
    title: String,
    reason: String,
}

impl ChartError {
    pub(crate) fn new(title: &str, reason: impl ToString) -> Self {
        Self { title: title.to_owned(), reason: reason.to_string() }
    }
}

/// The outcome of a step of drawing, in the terms of the library that draws.
pub type Drawn = Result<(), Box<dyn std::error::Error>>;

/// A picture as SVG, of which all numbers are finite; `what` they are is said where one is not.
pub fn svg_of<'a>(
    title: &str,
    what: &str,
    mut numbers: impl Iterator<Item = &'a f64>,
    draw: impl FnOnce(&mut String) -> Drawn,
) -> Result<String, ChartError> {
    if numbers.any(|number| !number.is_finite()) {
        return Err(ChartError::new(title, format!("a {what} is not finite")));
    }
    let mut svg = String::new();
    draw(&mut svg).map_err(|error| ChartError::new(title, error))?;
    Ok(svg)
}

/// Colours that people with any colour vision tell apart (Okabe and Ito), and three more.
const COLOURS: [RGBColor; 10] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 94, 60),
    RGBColor(90, 90, 90),
    RGBColor(148, 103, 189),
    RGBColor(190, 180, 20),
];
pub const INK: RGBColor = RGBColor(40, 44, 52);
pub const GRID: RGBColor = RGBColor(226, 229, 234);

pub const FONT: &str = "sans-serif";
pub const FONT_PX: i32 = 13;
pub const TITLE_PX: i32 = 16;
/// Width of a character of the font, on average.
pub const CHARACTER_PX: i32 = 7;
/// Width of a character of the title's font, on average.
pub const TITLE_CHARACTER_PX: i32 = 9;
pub const MARGIN_PX: i32 = 12;

/// The colour of the series with this number.
pub fn colour(series: usize) -> RGBColor {
    COLOURS[series % COLOURS.len()]
}

/// Width of the longest of some texts, in pixels.
pub fn longest_px<'a>(texts: impl Iterator<Item = &'a str>) -> i32 {
    texts.map(|text| text.chars().count()).max().unwrap_or(0) as i32 * CHARACTER_PX
}
