//! Who is judged: our own policy, and those that it is judged against.

/// The name of our own policy.
pub const OURS: &str = "spillway";

/// Those that it is judged against: all that need not know the run beforehand. Of Nimble's two readings both.
/// The first moves nothing.
pub const RIVALS: [&str; 18] = [
    "first-touch",
    "hotbox",
    "indigo",
    "tpp",
    "nimble-base",
    "nimble-huge",
    "nimble-base-smaller",
    "nimble-huge-smaller",
    "multi-clock",
    "autonuma",
    "autotiering",
    "hemem",
    "memtis",
    "linux-tiering",
    "colloid",
    "nomad",
    "swap",
    "dcm",
];
