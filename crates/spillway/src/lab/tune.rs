//! `spillway lab judge --tune`: the search of settings, which can be cut off and gone on with.

use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};
use spillway_lab::judge::{self, Budget, OURS, RIVALS, Searched, Tuned};

use super::progress::progress_bar;
use super::run::{ended, print_json};

/// What is printed, and what is kept while it goes on.
#[derive(Serialize, Deserialize)]
struct Search {
    budget: Budget,
    searched: Vec<Searched>,
    tuned: Tuned,
}

type Failed = Box<dyn std::error::Error>;

impl Search {
    /// What an earlier search has kept in a file; nothing where there is none.
    fn resumed(file: Option<&Path>, budget: Budget) -> Result<Self, Failed> {
        let empty = Self { budget, searched: Vec::new(), tuned: Tuned::default() };
        let Some(path) = file else { return Ok(empty) };
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(empty),
            text => text.map_err(|error| format!("cannot read '{}': {error}", path.display()))?,
        };
        let kept: Self = serde_json::from_str(&text).map_err(|error| {
            format!("'{}' is no search that can be gone on with: {error}; name another file", path.display())
        })?;
        if kept.budget != budget {
            let Budget { trials, rounds } = kept.budget;
            let path = path.display();
            return Err(format!(
                "'{path}' was searched with --trials {trials} --rounds {rounds}: all policies must have the \
                 same; give these, or name another file"
            )
            .into());
        }
        Ok(kept)
    }

    fn has(&self, policy: &str) -> bool {
        self.searched.iter().any(|one| one.policy == policy)
    }

    /// Keeps what one more policy came to.
    fn add(&mut self, one: Searched, file: Option<&Path>) -> Result<(), Failed> {
        self.searched.push(one);
        self.tuned = Tuned::of(&self.searched);
        let Some(path) = file else { return Ok(()) };
        let text = serde_json::to_string_pretty(self)?;
        // A search that is cut off while it writes leaves the file as it was.
        let new = path.with_extension("new");
        fs::write(&new, text)
            .and_then(|()| fs::rename(&new, path))
            .map_err(|error| format!("cannot keep the search in '{}': {error}", path.display()).into())
    }
}

/// Searches the settings of these policies, all where none is named, and prints what was found.
pub fn run(
    policies: &[String],
    budget: Budget,
    threads: usize,
    file: Option<&Path>,
) -> Result<ExitCode, Failed> {
    let all: Vec<&str> = RIVALS.into_iter().chain([OURS]).collect();
    let given: Vec<&str> = policies.iter().map(String::as_str).collect();
    let policies = if given.is_empty() { all } else { given };
    let mut search = Search::resumed(file, budget)?;
    let left: Vec<&str> = policies.into_iter().filter(|policy| !search.has(policy)).collect();
    let bar = progress_bar(left.len() * budget.work() as usize, "sixths of a run");
    for policy in left {
        let found = judge::search(policy, budget, threads, &|work| bar.inc(work));
        let kept = found.map_err(Failed::from).and_then(|one| search.add(one, file));
        if kept.is_err() {
            bar.finish_and_clear();
        }
        kept?;
    }
    bar.finish_and_clear();
    Ok(ended(print_json(&mut io::stdout().lock(), &search)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn searched(policy: &str) -> Searched {
        let factors = std::collections::BTreeMap::from([("period_us".to_owned(), 2.0)]);
        let settings = serde_json::Map::new();
        Searched { policy: policy.into(), settings, before_s: 2.0, after_s: 1.0, factors }
    }

    #[test]
    fn a_search_goes_on_where_it_was_cut_off_and_only_with_the_same_budget() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("search.json");
        let budget = Budget { trials: 4, rounds: 1 };
        let resumed = |budget| Search::resumed(Some(&file), budget).map_err(|error| error.to_string());
        let mut search = resumed(budget).unwrap();
        search.add(searched("tpp"), Some(&file)).unwrap();
        search.add(searched("hemem"), Some(&file)).unwrap();
        let again = resumed(budget).unwrap();
        assert!(again.has("tpp") && again.has("hemem") && !again.has("swap"));
        assert_eq!(again.searched, search.searched);
        assert_eq!(again.tuned, search.tuned);
        let told = resumed(Budget { trials: 8, rounds: 1 }).err().unwrap();
        assert!(told.contains("--trials 4"), "{told}");
        fs::write(&file, "{").unwrap();
        let told = resumed(budget).err().unwrap();
        assert!(told.contains("name another file"), "{told}");
    }
}
