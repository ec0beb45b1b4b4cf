//! Unknown keys and wrong values of a TOML file, all of them at once, each with its line.

use std::ops::Range;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

/// Something that is wrong in a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// The line that has it, from 1.
    pub line: usize,
    /// What is wrong, and what would be right where that is known.
    pub what: String,
}

/// How alike a key must be to be suggested, on Jaro and Winkler's scale of 0 to 1.
const ALIKE: f64 = 0.8;

/// A file under examination.
pub struct Examined<'a> {
    text: &'a str,
    table: Option<Spanned<DeTable<'a>>>,
    findings: Vec<Finding>,
}

impl<'a> Examined<'a> {
    /// Reads the text; what is no TOML is found.
    pub fn new(text: &'a str) -> Self {
        let (table, errors) = DeTable::parse_recoverable(text);
        let mut examined = Self { text, table: None, findings: Vec::new() };
        for error in &errors {
            examined.find(error.span().unwrap_or(0..0), error.message());
        }
        examined.table = errors.is_empty().then_some(table);
        examined
    }

    /// The keys at the top.
    pub fn top_keys(&self) -> Vec<&str> {
        self.table.iter().flat_map(|table| table.get_ref().keys()).map(|key| &**key.get_ref()).collect()
    }

    /// Whether nothing was found so far.
    pub fn is_well(&self) -> bool {
        self.findings.is_empty()
    }

    /// How many values the file sets.
    pub fn settings(&self) -> usize {
        self.table.as_ref().map_or(0, |table| leaves(table.get_ref()))
    }

    /// The line on which the `nth` table of an array begins, or else the array's.
    pub fn line_of_table(&self, array: &str, nth: usize) -> usize {
        let entry = self
            .table
            .iter()
            .flat_map(|table| table.get_ref().iter())
            .find(|(key, _)| *key.get_ref() == array);
        let span = entry.map_or(0..0, |(key, value)| match value.get_ref() {
            DeValue::Array(elements) => elements.get(nth).map_or(key.span(), Spanned::span),
            _ => key.span(),
        });
        self.line(span.start)
    }

    /// The line on which this key stands, wherever in the file; the first where none does.
    pub fn line_of_key(&self, key: &str) -> usize {
        let span = self.table.as_ref().and_then(|table| find_key(table.get_ref(), key));
        self.line(span.map_or(0, |span| span.start))
    }

    fn line(&self, at: usize) -> usize {
        let before = self.text.get(..at).unwrap_or(self.text);
        1 + before.matches('\n').count()
    }

    fn find(&mut self, span: Range<usize>, what: impl Into<String>) {
        let what: String = what.into().replace('\n', " ");
        self.findings.push(Finding { line: self.line(span.start), what });
    }

    /// Adds what was found by other means.
    pub fn add(&mut self, line: usize, what: String) {
        let finding = Finding { line, what };
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    /// The value that the file stands for, without what is wrong in it. `known` has all keys that there are;
    /// below null and empty tables any key goes.
    pub fn read<T: DeserializeOwned + Default>(&mut self, known: &Value) -> T {
        let Some(mut table) = self.table.clone() else { return T::default() };
        let mut unknown = Vec::new();
        take_unknown(table.get_mut(), known, &mut unknown);
        for (span, what) in unknown {
            self.find(span, what);
        }
        loop {
            match T::deserialize(Deserializer::from(table.clone())) {
                Ok(value) => return value,
                Err(error) => {
                    let span = error.span().unwrap_or(0..0);
                    let key = take_at(table.get_mut(), span.start);
                    let message = error.message();
                    match &key {
                        Some(key) if !message.contains(key.as_str()) => {
                            self.find(span, format!("{key}: {message}"))
                        }
                        _ => self.find(span, message),
                    }
                    if key.is_none() {
                        return T::default();
                    }
                }
            }
        }
    }

    /// All that was found, in the order of the lines.
    pub fn findings(mut self) -> Vec<Finding> {
        self.findings.sort();
        self.findings
    }
}

fn leaves(table: &DeTable<'_>) -> usize {
    let of_value = |value: &Spanned<DeValue<'_>>| match value.get_ref() {
        DeValue::Table(table) => leaves(table),
        DeValue::Array(elements) if elements.iter().any(|element| element.get_ref().is_table()) => {
            let tables = elements.iter().filter_map(|element| element.get_ref().as_table());
            tables.map(leaves).sum()
        }
        _ => 1,
    };
    table.values().map(of_value).sum()
}

fn find_key(table: &DeTable<'_>, wanted: &str) -> Option<Range<usize>> {
    table.iter().find_map(|(key, value)| match value.get_ref() {
        _ if *key.get_ref() == wanted => Some(key.span()),
        DeValue::Table(table) => find_key(table, wanted),
        DeValue::Array(elements) => elements
            .iter()
            .filter_map(|element| element.get_ref().as_table())
            .find_map(|table| find_key(table, wanted)),
        _ => None,
    })
}

/// Takes unknown keys out of the table, and says of each what might have been meant.
fn take_unknown(table: &mut DeTable<'_>, known: &Value, found: &mut Vec<(Range<usize>, String)>) {
    let Some(known) = known.as_object().filter(|known| !known.is_empty()) else { return };
    let mut gone = Vec::new();
    for (key, value) in table.iter_mut() {
        let Some(known_value) = known.get(&**key.get_ref()) else {
            found.push((key.span(), unknown(key.get_ref(), known.keys().map(String::as_str))));
            gone.push(key.get_ref().to_string());
            continue;
        };
        match value.get_mut() {
            DeValue::Table(table) => take_unknown(table, known_value, found),
            value => tables_of(value).for_each(|table| take_unknown(table, &known_value[0], found)),
        }
    }
    gone.iter().for_each(|key| drop(table.remove(key.as_str())));
}

/// The tables of an array of tables.
fn tables_of<'v, 'i>(value: &'v mut DeValue<'i>) -> impl Iterator<Item = &'v mut DeTable<'i>> {
    let elements = match value {
        DeValue::Array(elements) => Some(elements.iter_mut()),
        _ => None,
    };
    elements.into_iter().flatten().filter_map(|element| match element.get_mut() {
        DeValue::Table(table) => Some(table),
        _ => None,
    })
}

/// What to say of an unknown key among these.
fn unknown<'a>(key: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let likeness = |other: &str| {
        let begins = other.starts_with(key) || key.starts_with(other);
        strsim::jaro_winkler(key, other).max(if begins { ALIKE } else { 0.0 })
    };
    let likest = known.clone().max_by(|one, other| likeness(one).total_cmp(&likeness(other)));
    match likest.filter(|other| likeness(other) >= ALIKE) {
        Some(other) => format!("unknown key '{key}'; did you mean '{other}'?"),
        None => format!("unknown key '{key}'; there are {}", known.collect::<Vec<_>>().join(", ")),
    }
}

/// Takes the value out that lies there, or else the table around it, and says its key.
fn take_at(table: &mut DeTable<'_>, at: usize) -> Option<String> {
    let mut here = None;
    for (key, value) in table.iter_mut() {
        let spans_it = value.span().contains(&at) || key.span().contains(&at);
        let within = match value.get_mut() {
            DeValue::Table(table) => take_at(table, at),
            value => tables_of(value).find_map(|table| take_at(table, at)),
        };
        if within.is_some() {
            return within;
        }
        if spans_it {
            here = Some(key.get_ref().to_string());
            break;
        }
    }
    let key = here?;
    table.remove(key.as_str());
    Some(key)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Inner {
        speed_us: u8,
        names: Vec<String>,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Outer {
        size: u64,
        inner: Inner,
        group: Vec<Inner>,
    }

    fn examined(text: &str) -> (Outer, Vec<String>) {
        let inner = json!({ "speed_us": 0, "names": [] });
        let known = json!({ "size": 0, "inner": inner, "group": [inner] });
        let mut examined = Examined::new(text);
        let value = examined.read(&known);
        let said = |Finding { line, what }: &Finding| format!("{line}: {what}");
        (value, examined.findings().iter().map(said).collect())
    }

    #[test]
    fn what_is_right_is_read() {
        let (value, findings) = examined("size = 3\n[inner]\nspeed_us = 7\n[[group]]\nnames = ['a']\n");
        let group = Inner { names: vec!["a".to_owned()], ..Inner::default() };
        assert_eq!(value, Outer { size: 3, inner: Inner { speed_us: 7, names: vec![] }, group: vec![group] });
        assert_eq!(findings, Vec::<String>::new());
    }

    #[test]
    fn every_unknown_key_is_found_with_what_may_have_been_meant() {
        let text = "sise = 3\n[inner]\nspeed = 7\n\n[[group]]\n[[group]]\nnmaes = []\n[zebra]\n";
        let (value, findings) = examined(text);
        assert_eq!(value.group.len(), 2);
        assert_eq!(
            findings,
            [
                "1: unknown key 'sise'; did you mean 'size'?",
                "3: unknown key 'speed'; did you mean 'speed_us'?",
                "7: unknown key 'nmaes'; did you mean 'names'?",
                "8: unknown key 'zebra'; there are group, inner, size",
            ]
        );
    }

    #[test]
    fn every_wrong_value_is_found_by_its_key_and_the_rest_is_read() {
        let text =
            "size = 'big'\ninner = { speed_us = 300, names = [1] }\n[[group]]\nspeed_us = 9\nnames = 1\n";
        let (value, findings) = examined(text);
        assert_eq!(value.group[0].speed_us, 9);
        assert_eq!(findings.len(), 4, "{findings:?}");
        for (finding, part) in findings.iter().zip(["1: size: ", "2: names: ", "2: speed_us: ", "5: names: "])
        {
            assert!(finding.starts_with(part), "{findings:?}");
        }
        assert_eq!(examined("inner = 3").1.len(), 1);
        assert_eq!(examined("group = 3\nsize = 1").0.size, 1);
    }

    #[test]
    fn what_is_no_toml_is_found_by_its_line() {
        let (value, findings) = examined("size = 1\n[inner\nspeed_us = = 2\n");
        assert_eq!(value, Outer::default());
        assert!(!findings.is_empty() && findings[0].starts_with("2: "), "{findings:?}");
    }

    #[test]
    fn keys_and_tables_are_told_by_their_lines() {
        let examined = Examined::new("size = 1\n[[group]]\nspeed_us = 1\n[[group]]\n\nspeed_us = 2\n");
        assert_eq!((examined.line_of_key("speed_us"), examined.line_of_key("size")), (3, 1));
        assert_eq!((examined.line_of_table("group", 0), examined.line_of_table("group", 1)), (2, 4));
        assert_eq!(examined.settings(), 3);
        assert_eq!(examined.top_keys(), ["group", "size"]);
    }
}
