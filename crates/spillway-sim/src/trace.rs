//! What happened, in the order in which it did: kept in words where somebody reads it, and always as one
//! number.

/// The events of a world.
#[derive(Debug, Default)]
pub struct Trace {
    is_kept: bool,
    lines: Vec<String>,
    digest: u64,
    events: u64,
}

impl Trace {
    /// An empty trace; its lines are kept only if somebody will read them.
    #[must_use]
    pub fn new(is_kept: bool) -> Self {
        Self { is_kept, ..Self::default() }
    }

    /// Whether lines are kept.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Notes an event by numbers that say which, and by a line that is made only where it is kept.
    pub fn note(&mut self, numbers: [u64; 3], line: impl FnOnce() -> String) {
        for number in numbers {
            self.digest = (self.digest ^ number).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(23);
        }
        self.events += 1;
        if self.is_kept {
            self.lines.push(line());
        }
    }

    /// All events as one number: equal for equal worlds.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest ^ self.events
    }

    /// The lines, oldest first.
    #[must_use]
    pub fn into_lines(self) -> Vec<String> {
        self.lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_known_by_its_events_whether_or_not_its_lines_are_kept() {
        let noted = |is_kept, numbers: &[u64]| {
            let mut trace = Trace::new(is_kept);
            numbers.iter().for_each(|&number| trace.note([number, 1, 2], || format!("event {number}")));
            trace
        };
        assert_eq!(noted(true, &[1, 2]).digest(), noted(false, &[1, 2]).digest());
        assert_ne!(noted(true, &[1, 2]).digest(), noted(true, &[2, 1]).digest());
        assert_eq!(noted(true, &[1, 2]).into_lines(), ["event 1", "event 2"]);
        assert!(noted(false, &[1, 2]).into_lines().is_empty());
    }
}
