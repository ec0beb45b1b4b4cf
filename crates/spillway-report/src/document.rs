//! What all pages have in common: they hold their style and their charts, fetch nothing and run no script.

use maud::{DOCTYPE, Markup, PreEscaped, html};

/// How pages look.
const STYLE: &str = include_str!("style.css");

/// A page that needs nothing but itself.
#[must_use]
pub fn document(title: &str, header: &Markup, sections: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                // An icon of nothing: a browser would ask for one.
                link rel="icon" href="data:,";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (header)
                main { (sections) }
            }
        }
    };
    page.into_string()
}
