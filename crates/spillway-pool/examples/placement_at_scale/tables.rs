//! The report as tables in Markdown.

use std::fmt::Write as _;

use crate::report::{Load, Loss, OfScheme, Repair, Report};

const GIB: f64 = (1_u64 << 30) as f64;

/// All tables, with their heads.
pub fn text(report: &Report) -> String {
    let mut text = String::new();
    site(&mut text, report);
    table(&mut text, &LOAD_HEAD, &report.schemes, |scheme| scheme.loads.iter().map(load).collect());
    table(&mut text, &LOSS_HEAD, &report.schemes, |scheme| scheme.losses.iter().map(loss).collect());
    table(&mut text, &REPAIR_HEAD, &report.schemes, |scheme| scheme.repairs.iter().map(repair).collect());
    table(&mut text, &TIME_HEAD, &report.schemes, |scheme| scheme.repairs.iter().map(time).collect());
    text
}

const LOAD_HEAD: [&str; 9] = [
    "scheme",
    "bytes",
    "placement",
    "mean",
    "deviation",
    "computed",
    "deviation/mean",
    "p99/mean",
    "max/mean",
];
const LOSS_HEAD: [&str; 8] = [
    "scheme",
    "dead",
    "placement",
    "something is lost",
    "a run loses something",
    "lost on average",
    "if anything",
    "runs then",
];
const REPAIR_HEAD: [&str; 8] = [
    "scheme",
    "dead donors",
    "placement",
    "lost",
    "read (computed)",
    "written (computed)",
    "no room",
    "runs (computed)",
];
const TIME_HEAD: [&str; 8] = [
    "scheme",
    "dead donors",
    "placement",
    "donors that share it",
    "most of a donor",
    "by donors",
    "most of a run",
    "by runs",
];

fn site(text: &mut String, report: &Report) {
    let terms = &report.terms;
    let _ = writeln!(
        text,
        "{} donors in {} racks, {:.0} GiB each, {:.0}% promised; runs of {:.0} to {:.0} GiB, {:.0}% \
         written; seed {}\n",
        terms.donors,
        terms.racks,
        terms.offered_bytes as f64 / GIB,
        terms.full * 100.0,
        terms.least_run_bytes as f64 / GIB,
        terms.most_run_bytes as f64 / GIB,
        terms.written * 100.0,
        terms.seed
    );
    let heads = [
        "scheme",
        "runs",
        "refused",
        "pages",
        "copysets a run",
        "sets used",
        "deadly groups a run",
        "on copysets",
        "short",
    ];
    table(text, &heads, &report.schemes, |scheme| {
        let each = |count: usize| format!("{:.0}", count as f64 / scheme.runs.max(1) as f64);
        vec![vec![
            scheme.runs.to_string(),
            scheme.refused_runs.to_string(),
            gib(scheme.page_bytes as f64),
            each(scheme.copysets),
            each(scheme.sets),
            each(scheme.deadly_groups),
            percent(scheme.on_copysets),
            scheme.short_units.to_string(),
        ]]
    });
}

fn table(
    text: &mut String,
    heads: &[&str],
    schemes: &[OfScheme],
    rows: impl Fn(&OfScheme) -> Vec<Vec<String>>,
) {
    let _ = writeln!(text, "| {} |", heads.join(" | "));
    let _ = writeln!(text, "|{}", "---|".repeat(heads.len()));
    for scheme in schemes {
        for row in rows(scheme) {
            let _ = writeln!(text, "| {} | {} |", scheme.scheme, row.join(" | "));
        }
    }
    text.push('\n');
}

/// Bytes in a unit that is read easily.
fn gib(bytes: f64) -> String {
    let (count, unit) = match bytes / GIB {
        none if none <= 0.0 => return "0".to_owned(),
        small if small < 1.0 => (small * 1024.0, "MiB"),
        large if large < 1024.0 => (large, "GiB"),
        huge => (huge / 1024.0, "TiB"),
    };
    match count {
        few if few < 10.0 => format!("{few:.2} {unit}"),
        some if some < 100.0 => format!("{some:.1} {unit}"),
        many => format!("{many:.0} {unit}"),
    }
}

fn percent(share: f64) -> String {
    match share * 100.0 {
        tiny if tiny < 0.01 && tiny > 0.0 => format!("{tiny:.5}%"),
        small if small < 1.0 => format!("{small:.3}%"),
        large if large < 99.95 => format!("{large:.1}%"),
        _ => "100%".to_owned(),
    }
}

fn load(load: &Load) -> Vec<String> {
    let of_mean = |bytes: f64| format!("{:.3}", bytes / load.mean_bytes);
    vec![
        load.of.to_owned(),
        load.placement.to_owned(),
        gib(load.mean_bytes),
        gib(load.deviation_bytes),
        load.computed_deviation_bytes.map(gib).unwrap_or_default(),
        of_mean(load.deviation_bytes),
        of_mean(load.p99_bytes as f64),
        of_mean(load.most_bytes as f64),
    ]
}

fn loss(loss: &Loss) -> Vec<String> {
    let both = |seen: f64, computed: f64| format!("{} ({})", percent(seen), percent(computed));
    let has_any = loss.probability > 0.0;
    vec![
        loss.dead.clone(),
        loss.placement.to_owned(),
        both(loss.probability, loss.computed_probability),
        both(loss.run_probability, loss.computed_run_probability),
        format!("{} ({})", gib(loss.mean_bytes), gib(loss.computed_mean_bytes)),
        if has_any { gib(loss.bytes_if_any) } else { String::new() },
        if has_any { format!("{:.1}", loss.runs_if_any) } else { String::new() },
    ]
}

fn repair(repair: &Repair) -> Vec<String> {
    let both = |seen: f64, computed: f64| format!("{} ({})", gib(seen), gib(computed));
    vec![
        repair.dead_donors.to_string(),
        repair.placement.to_owned(),
        gib(repair.lost_bytes),
        both(repair.read_bytes, repair.computed_read_bytes),
        both(repair.written_bytes, repair.computed_written_bytes),
        gib(repair.no_room_bytes),
        format!("{:.0} ({:.0})", repair.runs, repair.computed_runs),
    ]
}

fn time(repair: &Repair) -> Vec<String> {
    let computed = repair.computed_donors.map(|donors| format!(" ({donors:.0})")).unwrap_or_default();
    vec![
        repair.dead_donors.to_string(),
        repair.placement.to_owned(),
        format!("{:.0}{computed}", repair.donors),
        gib(repair.most_of_a_donor_bytes),
        format!("{:.2} s", repair.seconds_by_donors),
        gib(repair.most_of_a_run_bytes),
        format!("{:.1} s", repair.seconds_by_runs),
    ]
}
