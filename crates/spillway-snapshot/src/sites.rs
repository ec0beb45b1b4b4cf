//! Where a run's programs waited for pages, by the function that did.

use serde::{Deserialize, Serialize};

/// Functions in one answer, and stacks.
pub const MOST_SITES: usize = 64;

/// A function that waited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// The file of its code; none of code that lies in no file, and of what system calls waited for.
    pub file: Option<String>,
    /// Its name in its language, as far as that is Rust or C++; none where the file names nothing there.
    pub function: Option<String>,
    /// How long it waited together, in microseconds, by samples.
    pub waited_us: u64,
}

impl Site {
    /// Whether both tell of the same.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.file, &self.function) == (&other.file, &other.function)
    }
}

/// A function in which a thread was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// The file of its code; none of code that lies in no file.
    pub file: Option<String>,
    /// Its name in its language, as far as that is Rust or C++; none where the file names nothing there.
    pub function: Option<String>,
}

/// Calls in which threads waited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// The function that waited, the one that had called it, and so on, as far as that is known.
    pub frames: Vec<Frame>,
    /// How long they waited together, in microseconds, by samples.
    pub waited_us: u64,
}

/// Where a run's programs waited, since its start or since somebody began to ask.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sites {
    /// Functions, the one that waited longest first: at most [`MOST_SITES`].
    pub sites: Vec<Site>,
    /// How long others waited, in microseconds.
    pub others_us: u64,
    /// In which calls they waited, where that is known, since somebody began to ask: those in which they
    /// waited longest first, at most [`MOST_SITES`].
    #[serde(default)]
    pub stacks: Vec<Stack>,
}

impl Sites {
    /// Puts together what was met, function by function.
    #[must_use]
    pub fn of(met: impl IntoIterator<Item = Site>, others_us: u64) -> Self {
        let mut told = Self { others_us, ..Self::default() };
        for site in met {
            match told.sites.iter_mut().find(|other| other.is_same(&site)) {
                Some(other) => other.waited_us = other.waited_us.saturating_add(site.waited_us),
                None => told.sites.push(site),
            }
        }
        told.sites.sort_by_key(|site| std::cmp::Reverse(site.waited_us));
        told.most(MOST_SITES)
    }

    /// With the calls that were met, put together where all functions are the same.
    #[must_use]
    pub fn with_stacks(mut self, met: impl IntoIterator<Item = Stack>) -> Self {
        for stack in met {
            match self.stacks.iter_mut().find(|other| other.frames == stack.frames) {
                Some(other) => other.waited_us = other.waited_us.saturating_add(stack.waited_us),
                None => self.stacks.push(stack),
            }
        }
        self.stacks.sort_by_key(|stack| std::cmp::Reverse(stack.waited_us));
        self.stacks.truncate(MOST_SITES);
        self
    }

    /// The same with so many functions and stacks at most.
    #[must_use]
    pub fn most(mut self, functions: usize) -> Self {
        self.stacks.truncate(functions);
        let beyond = self.sites.split_off(self.sites.len().min(functions));
        self.others_us = beyond.iter().fold(self.others_us, |sum, site| sum.saturating_add(site.waited_us));
        self
    }

    /// What came since `before`, an earlier answer of the same run.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let new = self.sites.iter().filter_map(|site| {
            let old = before.sites.iter().find(|old| old.is_same(site)).map_or(0, |old| old.waited_us);
            let waited_us = site.waited_us.saturating_sub(old);
            (waited_us > 0).then(|| Site { waited_us, ..site.clone() })
        });
        let stacks = self.stacks.iter().filter_map(|stack| {
            let old =
                before.stacks.iter().find(|old| old.frames == stack.frames).map_or(0, |old| old.waited_us);
            let waited_us = stack.waited_us.saturating_sub(old);
            (waited_us > 0).then(|| Stack { waited_us, ..stack.clone() })
        });
        Self::of(new.collect::<Vec<_>>(), self.others_us.saturating_sub(before.others_us)).with_stacks(stacks)
    }

    /// How long all waited, in microseconds.
    #[must_use]
    pub fn waited_us(&self) -> u64 {
        self.sites.iter().fold(self.others_us, |sum, site| sum.saturating_add(site.waited_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(function: &str, waited_us: u64) -> Site {
        Site { file: Some("/bin/x".to_owned()), function: Some(function.to_owned()), waited_us }
    }

    #[test]
    fn what_one_function_waited_is_one_and_the_longest_comes_first() {
        let told = Sites::of([site("a", 1), site("b", 5), site("a", 7), Site::default()], 2);
        assert_eq!(told.sites, [site("a", 8), site("b", 5), Site::default()]);
        assert_eq!((told.others_us, told.waited_us()), (2, 15));
        let many = (0..100).map(|at| site(&at.to_string(), at));
        let most = Sites::of(many, 0);
        assert_eq!((most.sites.len(), most.sites[0].waited_us), (MOST_SITES, 99));
        assert_eq!(most.waited_us(), (0..100).sum::<u64>());
    }

    #[test]
    fn what_came_between_two_answers_alone_counts() {
        let before = Sites::of([site("a", 8), site("b", 5)], 2);
        let after = Sites::of([site("b", 25), site("a", 8), site("c", 1)], 3);
        let since = after.since(&before);
        assert_eq!((since.sites, since.others_us), (vec![site("b", 20), site("c", 1)], 1));
    }

    #[test]
    fn stacks_are_one_where_all_their_functions_are_and_only_what_is_new_counts() {
        let stack = |names: &[&str], waited_us| Stack {
            frames: names
                .iter()
                .map(|name| Frame { file: None, function: Some((*name).to_owned()) })
                .collect(),
            waited_us,
        };
        let before = Sites::default().with_stacks([stack(&["a", "b"], 3), stack(&["a", "c"], 5)]);
        assert_eq!(before.stacks, [stack(&["a", "c"], 5), stack(&["a", "b"], 3)]);
        let met = [stack(&["a", "b"], 4), stack(&["a", "c"], 5), stack(&["a", "b"], 8), stack(&[], 1)];
        let after = Sites::default().with_stacks(met);
        assert_eq!(after.since(&before).stacks, [stack(&["a", "b"], 9), stack(&[], 1)]);
        assert_eq!(after.most(1).stacks, [stack(&["a", "b"], 12)]);
        let old: Sites = serde_json::from_str(r#"{"sites":[],"others_us":0}"#).unwrap();
        assert_eq!(old, Sites::default(), "histories of before have none");
    }
}
