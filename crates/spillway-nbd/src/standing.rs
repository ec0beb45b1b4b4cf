//! How a donor stands, as it tells anybody who may connect: what it lends, promises and holds, and whether it
//! is being drained. Part of the private extension ([`crate::private`]).

use std::fmt;

/// How a donor stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Bytes that it lends in all.
    pub offered_bytes: u64,
    /// Bytes of them that are promised to runs, taken or not.
    pub promised_bytes: u64,
    /// Bytes that are neither promised nor taken.
    pub free_bytes: u64,
    /// Bytes that it holds, for runs and in exports that were opened by name.
    pub held_bytes: u64,
    /// Bytes of them that it holds for runs.
    pub run_bytes: u64,
    /// Runs that it holds something for, or has promised memory.
    pub runs: u64,
    /// It lets in no new run, and those that it has should go elsewhere.
    pub is_draining: bool,
    /// Its machine is short of memory: the same, until it is so no more.
    pub is_short: bool,
    /// Its version of Spillway.
    pub version: String,
}

/// Why runs are to go elsewhere: the bits of a number.
const DRAINING: u8 = 1;
const SHORT: u8 = 2;

const PREFIX: &str = "spillway:standing=";

impl fmt::Display for Standing {
    /// As it travels to the client.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offered_bytes, promised_bytes, free_bytes, held_bytes, run_bytes, runs, .. } = self;
        write!(f, "{PREFIX}{offered_bytes},{promised_bytes},{free_bytes},{held_bytes},{run_bytes},{runs},")?;
        let leaving = u8::from(self.is_draining) * DRAINING + u8::from(self.is_short) * SHORT;
        write!(f, "{leaving},{}", self.version)
    }
}

impl Standing {
    /// Whether runs should have nothing there.
    #[must_use]
    pub fn is_to_be_left(&self) -> bool {
        self.is_draining || self.is_short
    }

    /// Reads a donor's answer; `None` where it is none.
    #[must_use]
    pub fn parse(context: &str) -> Option<Self> {
        let mut fields = context.strip_prefix(PREFIX)?.splitn(8, ',');
        let mut number = || fields.next()?.parse::<u64>().ok();
        let mut standing = Self {
            offered_bytes: number()?,
            promised_bytes: number()?,
            free_bytes: number()?,
            held_bytes: number()?,
            run_bytes: number()?,
            runs: number()?,
            ..Self::default()
        };
        let leaving = u8::try_from(number()?).ok().filter(|leaving| *leaving <= DRAINING + SHORT)?;
        (standing.is_draining, standing.is_short) = (leaving & DRAINING != 0, leaving & SHORT != 0);
        let version = fields.next().filter(|version| version.len() <= MOST_VERSION_BYTES)?;
        let is_plain = version.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-+.".contains(&byte));
        is_plain.then(|| Self { version: version.to_owned(), ..standing })
    }
}

const MOST_VERSION_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_donor_says_how_it_stands_and_nothing_else_is_taken_for_it() {
        let standing = Standing {
            offered_bytes: 1 << 40,
            promised_bytes: 7,
            free_bytes: u64::MAX,
            held_bytes: 4096,
            run_bytes: 0,
            runs: 3,
            is_draining: true,
            is_short: false,
            version: "0.1.0".to_owned(),
        };
        let text = standing.to_string();
        for (is_draining, is_short) in [(false, false), (false, true), (true, true)] {
            let standing = Standing { is_draining, is_short, ..standing.clone() };
            assert_eq!(Standing::parse(&standing.to_string()), Some(standing));
        }
        assert_eq!(Standing::parse(&text), Some(standing));
        for odd in [
            "",
            "spillway:standing",
            "spillway:standing=1,2,3,4,5,6,1",
            "spillway:standing=1,2,3,4,5,6,4,0.1",
            "spillway:standing=1,2,3,4,5,-6,1,0.1",
            "spillway:standing=1,2,3,4,5,6,1,0.1\u{1b}[2J",
            &text.replace("0.1.0", &"9".repeat(65)),
        ] {
            assert_eq!(Standing::parse(odd), None, "{odd}");
        }
    }
}
