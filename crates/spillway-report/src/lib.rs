//! What the lab and the benchmarks show their results with. It knows neither of them: they hand it names and
//! numbers.
//!
//! | file | holds |
//! |---|---|
//! | [`chart`] | lines, bars and stacked bars as SVG |
//! | [`violin`] | distributions as SVG |
//! | [`distribution`] | where many values of one kind lie |
//! | [`claim`] | what a paper claims, and whether it holds here: in direction, and in size |
//! | [`document`] | pages of HTML |
//! | [`markdown`] | pages of Markdown with pictures |
//! | `drawing` | colours, fonts and the error that all pictures share |
//! | [`order`] | names in the order in which they come |
//! | [`address_map`] | what lies where over time, as SVG |
//! | [`timeline`] | lines and maps of heat over time, as SVG |
//! | [`whole_file`] | files that are written whole or not at all |

pub mod address_map;
pub mod chart;
pub mod claim;
pub mod distribution;
pub mod document;
mod drawing;
pub mod markdown;
pub mod order;
pub mod timeline;
pub mod violin;
pub mod whole_file;

pub use drawing::ChartError;
