//! Where a run's programs waited for pages, by the function that did.

use serde::{Deserialize, Serialize};

/// Functions in one answer.
pub const MOST_SITES: usize = 64;

/// A function that waited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// The file of its code; none of code that lies in no file, and of what system calls waited for.
    pub file: Option<String>,
    /// Its name, as the file has it; none where the file names nothing there.
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

/// Where a run's programs waited, since its start or since somebody began to ask.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sites {
    /// Functions, the one that waited longest first: at most [`MOST_SITES`].
    pub sites: Vec<Site>,
    /// How long others waited, in microseconds.
    pub others_us: u64,
}

impl Sites {
    /// Puts together what was met, function by function.
    #[must_use]
    pub fn of(met: impl IntoIterator<Item = Site>, others_us: u64) -> Self {
        let mut told = Self { sites: Vec::new(), others_us };
        for site in met {
            match told.sites.iter_mut().find(|other| other.is_same(&site)) {
                Some(other) => other.waited_us = other.waited_us.saturating_add(site.waited_us),
                None => told.sites.push(site),
            }
        }
        told.sites.sort_by_key(|site| std::cmp::Reverse(site.waited_us));
        told.most(MOST_SITES)
    }

    /// The same with so many functions at most.
    #[must_use]
    pub fn most(mut self, functions: usize) -> Self {
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
        Self::of(new.collect::<Vec<_>>(), self.others_us.saturating_sub(before.others_us))
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
}
