//! The page itself: its sections, in HTML.

use maud::{Markup, PreEscaped, html};
use spillway_report::chart::{Chart, short};
use spillway_report::claim::{Score, claims_table};
use spillway_report::document::document;

use super::compare::{Group, breakdown, by_latency, by_local_memory, groups, policies};
use super::error::ReportError;
use super::table::Run;
use crate::figures::Figure;

/// Measures of the table of all numbers: their columns and their headings.
const MEASURES: [(&str, &str); 9] = [
    ("run_s", "run time, s"),
    ("amat_ns", "ns an access"),
    ("local_hit_ratio", "local hits"),
    ("promotions_per_s", "promotions/s"),
    ("demotions_per_s", "demotions/s"),
    ("good_put", "good-put"),
    ("migration_bytes_per_s", "migrated, bytes/s"),
    ("access_bytes", "lines on the link, bytes"),
    ("migration_bytes", "pages on the link, bytes"),
];

/// A slowdown at which a cell has its full colour.
const WORST_SLOWDOWN: f64 = 3.0;

/// The page for these runs and figures.
pub(super) fn page(runs: &[Run], figures: &[Figure]) -> Result<String, ReportError> {
    let groups = groups(runs);
    let sections = html! {
        @if !runs.is_empty() {
            (winners(&groups))
            (curves(&groups)?)
            (breakdowns(&groups)?)
        }
        @if !figures.is_empty() { (papers(figures)?) }
        @if !runs.is_empty() { (numbers(&groups)) }
    };
    Ok(document("Spillway lab", &header(runs, figures), &sections))
}

fn header(runs: &[Run], figures: &[Figure]) -> Markup {
    html! {
        header {
            h1 { "Spillway lab" }
            @if !runs.is_empty() {
                p { (runs.len()) " simulated runs: which policy, how much local memory, which link" }
            }
            @if !figures.is_empty() { p { (figures.len()) " of the papers' figures, made again" } }
            nav {
                @if !runs.is_empty() {
                    a href="#winners" { "Who wins where" }
                    a href="#curves" { "Curves" }
                    a href="#breakdowns" { "Where the time goes" }
                }
                @if !figures.is_empty() { a href="#figures" { "Figures of the papers" } }
                @if !runs.is_empty() { a href="#numbers" { "All numbers" } }
            }
        }
    }
}

/// Run times of every policy over the best one's, under every condition.
fn winners(groups: &[Group]) -> Markup {
    let names = policies(groups);
    let mut wins: Vec<(&String, usize)> = names
        .iter()
        .map(|name| (name, groups.iter().filter(|group| first(group) == Some(name)).count()))
        .filter(|(_, wins)| *wins > 0)
        .collect();
    wins.sort_by_key(|(_, wins)| std::cmp::Reverse(*wins));
    html! {
        section #winners {
            h2 { "Who wins where" }
            p.note {
                "Run time over that of the fastest policy under the same conditions. In italics: bounds, \
                 which have all the memory or know the future, and so do not compete."
            }
            div.scores {
                @for (name, wins) in &wins {
                    div.score { b { (wins) " of " (groups.len()) } (name) }
                }
            }
            div.card {
                table {
                    thead {
                        tr {
                            th { "workload" } th.number { "local" } th { "platform and link" } th { "first" }
                            th.number { "next" }
                            @for name in &names { th.number { (name) } }
                        }
                    }
                    tbody { @for group in groups { (winners_row(group, &names)) } }
                }
            }
        }
    }
}

fn first(group: &Group) -> Option<&str> {
    group.winner().map(|(policy, _)| policy)
}

fn winners_row(group: &Group, names: &[String]) -> Markup {
    let condition = &group.condition;
    let first = first(group);
    html! {
        tr {
            td { (condition.workload) }
            td.number { (condition.local_text()) }
            td { (condition.link_text()) }
            td { @if let Some(first) = first { b { (first) } } }
            td.number {
                @if let Some((_, Some(lead))) = group.winner() { (format!("{lead:.2}x")) }
            }
            @for name in names { (heat(group, name, first == Some(name.as_str()))) }
        }
    }
}

fn heat(group: &Group, policy: &str, first: bool) -> Markup {
    let Some(slowdown) = group.slowdown(policy) else { return html! { td.heat {} } };
    let heat = ((slowdown - 1.0) / (WORST_SLOWDOWN - 1.0)).clamp(0.0, 1.0);
    // From white to orange; what is faster than the best rival is a bound.
    let style = format!("background: rgba(213, 94, 0, {:.2})", heat * 0.75);
    let bound = group.policies.iter().any(|(name, runs)| name == policy && runs.iter().any(Run::is_bound));
    html! {
        td.heat.first[first].bound[bound] style=(style) { (format!("{slowdown:.2}")) }
    }
}

fn cards(charts: &[Chart]) -> Result<Markup, ReportError> {
    let drawn = charts.iter().map(Chart::svg).collect::<Result<Vec<_>, _>>()?;
    Ok(html! {
        div.charts { @for svg in &drawn { div.card { (PreEscaped(svg)) } } }
    })
}

fn curves(groups: &[Group]) -> Result<Markup, ReportError> {
    let mut charts = by_local_memory(groups);
    charts.extend(by_latency(groups));
    Ok(html! {
        section #curves {
            h2 { "Curves" }
            @if charts.is_empty() {
                p.note {
                    "The sweep has one local size and one latency: there is nothing to draw a curve along."
                }
            }
            (cards(&charts)?)
        }
    })
}

fn breakdowns(groups: &[Group]) -> Result<Markup, ReportError> {
    let charts: Vec<Chart> = groups.iter().map(breakdown).collect();
    Ok(html! {
        section #breakdowns {
            h2 { "Where the time goes" }
            p.note { "Time of the program's cores; what daemons do on a core of their own is not among it." }
            (cards(&charts)?)
        }
    })
}

fn papers(figures: &[Figure]) -> Result<Markup, ReportError> {
    let score = Score::of(figures.iter().flat_map(|figure| &figure.claims));
    let shown = figures.iter().map(paper).collect::<Result<Vec<_>, _>>()?;
    Ok(html! {
        section #figures {
            h2 { "Figures of the papers" }
            p.note { "Claims hold in direction, and in size where the paper has a number: within 25% of it." }
            div.scores {
                div.score { b { (score.directions) " of " (score.claims) } "claims hold in direction" }
                div.score { b { (score.sizes) " of " (score.sized) } "hold in size" }
            }
            @for figure in &shown { (figure) }
        }
    })
}

fn paper(figure: &Figure) -> Result<Markup, ReportError> {
    Ok(html! {
        div.card id=(figure.id) {
            h3 { (figure.id) ": " (figure.title) }
            p.note { (figure.source) }
            (cards(&figure.charts())?)
            (claims_table(&figure.claims, 3))
        }
    })
}

fn numbers(groups: &[Group]) -> Markup {
    html! {
        section #numbers {
            h2 { "All numbers" }
            div.card {
                details {
                    summary { "Every run, means over seeds" }
                    table {
                        thead {
                            tr {
                                th { "conditions" } th { "policy" }
                                @for (_, heading) in MEASURES { th.number { (heading) } }
                            }
                        }
                        tbody { @for group in groups { (numbers_rows(group)) } }
                    }
                }
            }
        }
    }
}

fn numbers_rows(group: &Group) -> Markup {
    html! {
        @for (policy, _) in &group.policies {
            tr {
                td { (group.condition.text()) }
                td { (policy) }
                @for (column, _) in MEASURES {
                    td.number { @if let Some(value) = group.mean(policy, column) { (short(value)) } }
                }
            }
        }
    }
}
