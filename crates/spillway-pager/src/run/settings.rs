//! What the supervisor tells each process of a run.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use spillway_core::background;
use spillway_core::page::PAGE_SIZE;
use spillway_core::size::Size;
use spillway_policy::blocks::MAX_ORDER;
use spillway_policy::dcm;
use spillway_policy::strides::Foresight;
use spillway_store::{LatencyClass, StoreSpec};
use thiserror::Error;

/// Environment variable that names the supervisor's socket and the run's token, `NAME/TOKEN`. A process that
/// has it when the preload library enters it is managed.
pub const RUN_VARIABLE: &str = "SPILLWAY_RUN";

/// How much is fetched at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Block {
    /// As much as a program's stream of faults has earned, a page to 256 KiB ([`crate::fault::block`]).
    #[default]
    Streams,
    /// dcm's blocks, which grow to this many bytes and are taken apart again ([`crate::fault::elastic`]).
    Elastic(Size),
    /// Always what is far of this many bytes, in line with their size.
    Static(Size),
}

/// The smallest and the largest block.
const BLOCK_BYTES: std::ops::RangeInclusive<u64> = 4 << 10..=2 << 20;

/// Why a block was not understood.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("'{0}' is no block: write streams, elastic, elastic:SIZE, or a power of two from 4K to 2M")]
pub struct BlockError(String);

impl Block {
    /// Elastic blocks as the paper has them: 4 to 64 KiB (dcm, section 4.2).
    pub const PAPER: Self = Self::Elastic(Size::from_bytes((PAGE_SIZE as u64) << MAX_ORDER));

    /// Blocks grow and are taken apart.
    #[must_use]
    pub fn is_elastic(self) -> bool {
        matches!(self, Self::Elastic(_))
    }

    fn parse(text: &str) -> Option<Self> {
        let size = |text: &str| {
            let size = text.parse::<Size>().ok()?;
            (size.bytes().is_power_of_two() && BLOCK_BYTES.contains(&size.bytes())).then_some(size)
        };
        match text.strip_prefix("elastic:") {
            Some(largest) => size(largest).map(Self::Elastic),
            None if text == "streams" => Some(Self::Streams),
            None if text == "elastic" => Some(Self::PAPER),
            None => size(text).map(Self::Static),
        }
    }
}

impl FromStr for Block {
    type Err = BlockError;

    fn from_str(text: &str) -> Result<Self, BlockError> {
        Self::parse(text).ok_or_else(|| BlockError(text.to_owned()))
    }
}

/// Who serves a fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultMode {
    /// A thread of the pager's, while the faulting one sleeps.
    #[default]
    Thread,
    /// The faulting thread itself, in a signal handler ([`crate::inline`]).
    Inline,
}

impl FaultMode {
    /// The mode for a run that asks for one, or for none in particular, and why. A program that leads the
    /// kernel to its memory by ways other than system calls (io_uring, KVM) leaves inline mode by itself.
    #[must_use]
    pub fn choose(asked: Option<Self>, stores: &[String]) -> (Self, String) {
        let waits = |uri: &&String| {
            uri.parse::<StoreSpec>().is_ok_and(|spec| spec.latency_class().waits_for_others())
        };
        let slow = stores.iter().find(waits);
        match (asked, slow) {
            (Some(Self::Thread), _) => (Self::Thread, "asked for".to_owned()),
            (_, Some(uri)) => (Self::Thread, format!("store {uri} makes a fault wait")),
            (_, None) if !spillway_sys::dispatch::disable() => {
                (Self::Thread, "this kernel has no syscall user dispatch".to_owned())
            }
            (None, None) => (Self::Inline, "auto: the stores are memory of this machine".to_owned()),
            (Some(Self::Inline), None) => (Self::Inline, "asked for".to_owned()),
        }
    }
}

/// Which stores' pages are sealed ([`crate::seal`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Seal {
    /// Of those by which pages leave this machine.
    #[default]
    Remote,
    /// Of all stores, whatever they are.
    All,
    /// Of none: whoever keeps a page can read it, and put another in its place.
    None,
}

impl Seal {
    /// Whether the pages of a store are sealed.
    #[must_use]
    pub fn covers(self, store: &StoreSpec) -> bool {
        match self {
            Self::Remote => store.leaves_machine(),
            Self::All => true,
            Self::None => false,
        }
    }

    /// Of stores that are sealed, the first that is of no use then: what is sealed cannot be compressed.
    #[must_use]
    pub fn spoils(self, stores: &[String]) -> Option<&str> {
        let is_spoilt = |uri: &&String| {
            let spec = uri.parse::<StoreSpec>();
            spec.is_ok_and(|spec| spec.latency_class() == LatencyClass::Compression && self.covers(&spec))
        };
        stores.iter().find(is_spoilt).map(String::as_str)
    }
}

/// Settings of the frames of one tier; local memory is the pager's only one whose frames are its own.
/// Differential management: "Physical memory management on NVMM", section 5.5.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PoolSettings {
    /// Pages of zeros kept ready while first writes form streams: at most so many bytes, and a sixteenth of
    /// the local limit; 0 for none.
    pub reserve_bytes: Size,
    /// Of so many of the oldest pages those leave first that are used least, and that lie together in a range
    /// of 2 MiB; 0 for their order alone.
    pub victim_window_pages: usize,
    /// Scattered pages of a program that serves its own faults come into frames by reference, with one flush
    /// of the CPUs' translations a batch ([`crate::evict::by_reference`]). For several threads.
    pub by_reference: bool,
    /// Of as many of the local pages as are this share of the limit `compressed:` keeps the copies that they
    /// came from ([`crate::evict::copies`]).
    pub copy_share: f64,
    /// Huge pages: native memory asks the kernel for them, and whole managed ranges are re-formed while
    /// nothing is evicted.
    pub huge_pages: bool,
    /// What may be done in the background, and when it yields.
    pub background: background::Config,
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self {
            reserve_bytes: Size::from_bytes(4 << 20),
            victim_window_pages: 512,
            by_reference: true,
            copy_share: 0.125,
            huge_pages: false,
            background: background::Config::default(),
        }
    }
}

/// How the pages are foreseen that no stream brings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strides {
    /// In rounds where the store answers later: each page that comes along saves a round trip. Not at all
    /// where it answers at once, and a page that nobody uses costs as much as the trap that another saves.
    #[default]
    Auto,
    /// Not at all, whatever the store.
    Off,
    /// [`Foresight::Trend`], whatever the store.
    Trend,
    /// [`Foresight::Rounds`], whatever the store.
    Rounds,
}

impl Strides {
    /// How they are foreseen with a page of a store that `answers_later` than it is asked, or at once.
    #[must_use]
    pub fn over(self, answers_later: bool) -> Foresight {
        match self {
            Self::Auto if answers_later => Foresight::Rounds,
            Self::Auto | Self::Off => Foresight::Off,
            Self::Trend => Foresight::Trend,
            Self::Rounds => Foresight::Rounds,
        }
    }
}

/// How far pages are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FetchSettings {
    /// A fault posts its read, makes room while the read is under way, and then completes it: dcm, section
    /// 3.3. Otherwise it makes room first.
    pub overlap: bool,
    /// How the pages are foreseen that no stream brings, of threads that step through memory in strides
    /// (`streams` only).
    pub strides: Strides,
    /// Streams go by huge pages, where the machine has any ([`crate::fault::huge_streams`]).
    pub huge_streams: bool,
}

impl Default for FetchSettings {
    fn default() -> Self {
        Self { overlap: true, strides: Strides::Auto, huge_streams: false }
    }
}

/// Settings of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// Memory that all processes together may keep local.
    pub local_bytes: Size,
    /// URIs of the stores, in the order in which they are filled.
    pub stores: Vec<String>,
    /// Slots of each store.
    pub store_slots: Vec<u32>,
    /// How much is fetched at once.
    pub block: Block,
    /// Which threads serve faults.
    pub fault_mode: FaultMode,
    /// Why faults are served in that mode.
    pub fault_mode_reason: String,
    /// Which pages leave first.
    pub replacement: dcm::Config,
    /// How local frames are kept.
    pub pool: PoolSettings,
    /// How far pages are fetched.
    pub fetch: FetchSettings,
    /// Which stores' pages are sealed.
    pub seal: Seal,
}

impl Settings {
    /// Whether some store's pages are sealed.
    #[must_use]
    pub fn seals_any(&self) -> bool {
        let covers = |uri: &String| uri.parse().is_ok_and(|spec| self.seal.covers(&spec));
        self.stores.iter().any(covers)
    }
}

/// The smallest `--local`: enough for the pages that one system call or instruction needs at a time, for the
/// frames and for a batch of write-backs.
pub const MIN_LOCAL_BYTES: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_followed_by_default_where_a_store_answers_later() {
        let over = |answers_later| {
            let auto = FetchSettings::default().strides;
            [auto, Strides::Off, Strides::Trend, Strides::Rounds].map(|strides| strides.over(answers_later))
        };
        assert_eq!(over(true), [Foresight::Rounds, Foresight::Off, Foresight::Trend, Foresight::Rounds]);
        assert_eq!(over(false), [Foresight::Off, Foresight::Off, Foresight::Trend, Foresight::Rounds]);
    }

    #[test]
    fn what_leaves_the_machine_is_sealed_unless_said_otherwise() {
        let stores = [
            "compressed:",
            "ram:",
            "file:/tmp/x?size=1M",
            "shm:idle",
            "nbd+unix:///e?socket=/tmp/s",
            "nbd://127.0.0.1:10809/e",
            "nbds://10.0.0.2/e?tls-certificates=/c",
        ];
        let sealed = |seal: Seal| stores.map(|uri| seal.covers(&uri.parse().unwrap()));
        assert_eq!(sealed(Seal::default()), [false, false, false, false, false, true, true]);
        assert_eq!(sealed(Seal::All), [true; 7]);
        assert_eq!(sealed(Seal::None), [false; 7]);
    }

    #[test]
    fn what_is_compressed_is_not_sealed() {
        let stores = ["ram:".to_owned(), "compressed:?size=1G".to_owned()];
        assert_eq!(Seal::All.spoils(&stores), Some("compressed:?size=1G"));
        assert_eq!(Seal::All.spoils(&stores[..1]), None);
        assert_eq!((Seal::Remote.spoils(&stores), Seal::None.spoils(&stores)), (None, None));
    }

    #[test]
    fn blocks_are_streams_elastic_or_powers_of_two_of_pages() {
        let kib = |kib: u64| Size::from_bytes(kib << 10);
        assert_eq!("streams".parse(), Ok(Block::Streams));
        assert_eq!(Block::default(), Block::Streams);
        assert_eq!("elastic".parse(), Ok(Block::Elastic(kib(64))));
        assert_eq!("elastic:64K".parse(), Ok(Block::PAPER));
        assert_eq!("elastic:2M".parse(), Ok(Block::Elastic(kib(2048))));
        assert_eq!("4K".parse(), Ok(Block::Static(Size::from_bytes(4096))));
        assert_eq!("2M".parse(), Ok(Block::Static(Size::from_bytes(2 << 20))));
        for wrong in
            ["", "2K", "4M", "12K", "big", "-4K", "elastic:", "elastic:4M", "elastic:12K", "streams:64K"]
        {
            assert_eq!(wrong.parse::<Block>(), Err(BlockError(wrong.to_owned())));
        }
    }
}
