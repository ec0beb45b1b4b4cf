//! Samples of accesses for policies that ask for them: how often the source takes them, and what that costs.

use super::Daemon;

impl Daemon {
    /// Asks the source for samples as often as the group that wants them most often. The others pass some
    /// over.
    pub(super) fn settle_sampling(&mut self) {
        let running = self.groups.iter().filter(|group| group.ended.is_none());
        let wanted = running.map(|group| group.driver.machine.wanted_sample_period());
        let shortest = wanted.filter(|&period| period > 0).min().unwrap_or(0);
        if shortest == self.sampling.asked {
            return;
        }
        self.sampling.asked = shortest;
        if shortest > 0 {
            let taken = self.source.sample_every(shortest);
            self.groups.iter_mut().for_each(|group| group.driver.machine.set_source_period(taken));
        }
    }

    /// Taking accesses took so much CPU time. Where they are samples, it counts among what the groups may
    /// take that want them, and policies know what samples have cost.
    pub(super) fn account_sampling(&mut self, cpu_ns: u64) {
        let sampling = |group: &&mut super::Running| group.driver.machine.wanted_sample_period() > 0;
        let count = self.groups.iter_mut().filter(sampling).count() as u64;
        if count == 0 {
            return;
        }
        self.sampling.cpu_ns += cpu_ns;
        let cost_ns = self.sampling.cpu_ns + self.source.sampling_ns();
        for group in self.groups.iter_mut().filter(sampling) {
            group.busy_ns += cpu_ns / count;
            group.driver.machine.set_sampling_ns(cost_ns);
        }
    }
}
