//! Why a page of a run's is where it is, what leaves next, and what limits the run.

use std::io::{BufRead, BufReader};
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use spillway_core::page::{PAGE_BYTES, PAGE_SHIFT};
use spillway_core::page_word::{PageState, Queue};
use spillway_pager::evict::write_back::BATCH_PAGES;
use spillway_pager::run::inquiry::{PageTold, Whose};
use spillway_pager::run::state::slot_ranges;
use spillway_pager::run::views::RunView;
use spillway_snapshot::snapshot::{Health, Run, Store};
use spillway_sys::maps::Mapping;

/// How long the process's pager may take: less than who asks waits.
const PATIENCE: Duration = Duration::from_millis(400);
/// At this share of what there may be, something is as good as full.
const FULL: f64 = 0.97;

/// What is told of a process, and of a page of it.
#[derive(Debug, Serialize)]
struct Explanation {
    process: u32,
    name: Option<String>,
    /// The run's program, by its process.
    program_pid: u32,
    fault_mode: String,
    local_bytes: u64,
    native_bytes: u64,
    far_bytes: u64,
    /// Of the run, whose processes share the limit.
    run_local_bytes: u64,
    local_limit_bytes: u64,
    limits: Vec<Limit>,
    /// Pages that leave next, as things are.
    next: Vec<Next>,
    page: Option<Page>,
}

/// What keeps a run from being faster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
enum Limit {
    /// All that may be local is, and pages are fetched.
    Local,
    /// Stores have no room.
    StoresFull,
    /// A store does not answer.
    StoreSilent { store: String },
    /// A store fails pages.
    StoreFailing { store: String },
    /// Pages that cannot leave, for they are pinned or the like.
    Pinned { refused_pages: u64 },
    /// Nothing of all these.
    Nothing,
}

#[derive(Debug, Serialize)]
struct Next {
    address: u64,
    queue: &'static str,
}

/// A page of the process.
#[derive(Debug, Serialize)]
struct Page {
    address: u64,
    /// `far`, `mapped`, `inactive`, `writeback`, `lost`, `absent`, `native`, or `unmanaged`.
    state: &'static str,
    /// The queue that it is in.
    queue: Option<&'static str>,
    /// The store that has it, or has a copy.
    store: Option<String>,
    /// It is on that store as it is here, so that it leaves without a write; none where it is not local.
    has_copy: Option<bool>,
    /// A forked process has the same page on the store.
    is_shared: bool,
    /// Pages that have left since it did.
    left_since_pages: Option<u64>,
    /// It came along with another, before a fault asked for it.
    came_ahead: bool,
    /// How much scans found it in use, 0 to 21; none where they do not say.
    use_rank: Option<u8>,
    /// It is being fetched, written or moved at this moment.
    is_busy: bool,
    /// Why it is not managed.
    unmanaged_because: Option<&'static str>,
}

/// Explains a process of a run, and a page of it.
///
/// # Errors
/// The run has no such process, or its pager does not answer.
pub fn explain(view: &RunView, run: &Run, pid: u32, address: Option<u64>) -> Result<Value, String> {
    let of_run = |entry: &usize| view.run.process(*entry).pid() == pid;
    let entry = view.run.processes().find(of_run);
    let entry = entry.ok_or_else(|| format!("process {pid} has ended, or runs unmanaged"))?;
    let told = view.inquire(entry, address.map(|address| address >> PAGE_SHIFT), PATIENCE);
    let told = told.ok_or_else(|| {
        format!("process {pid} does not answer: it is stopped, has ended, or its pager is busy; ask again")
    })?;
    let process = run.processes.iter().find(|process| process.pid == Some(pid));
    let explanation = Explanation {
        process: pid,
        name: process.and_then(|process| process.name.clone()),
        program_pid: run.program_pid,
        fault_mode: process.map_or_else(|| run.fault_mode.clone(), |process| process.fault_mode.clone()),
        local_bytes: process.map_or(0, |process| process.local_bytes),
        native_bytes: process.map_or(0, |process| process.native_bytes),
        far_bytes: process.map_or(0, |process| process.far_bytes),
        run_local_bytes: run.local_bytes,
        local_limit_bytes: run.local_limit_bytes,
        limits: limits(run),
        next: told.next.iter().map(|&(queue, page)| next(queue, page)).collect(),
        page: address.zip(told.page).map(|(address, page)| page_of(view, pid, address, &page)),
    };
    serde_json::to_value(&explanation).map_err(|error| error.to_string())
}

fn next(queue: Queue, page_number: u64) -> Next {
    Next { address: page_number << PAGE_SHIFT, queue: name_of(queue) }
}

const fn name_of(queue: Queue) -> &'static str {
    match queue {
        Queue::Active => "active",
        Queue::Proactive => "proactive",
        Queue::Inactive => "inactive",
    }
}

/// What limits a run, the worst first.
fn limits(run: &Run) -> Vec<Limit> {
    let named = |health: Health, limit: fn(String) -> Limit| {
        let stores = run.stores.iter().filter(move |store| store.health == health);
        stores.map(move |store| limit(store.uri.clone()))
    };
    let mut limits: Vec<Limit> = named(Health::Silent, |store| Limit::StoreSilent { store })
        .chain(named(Health::Failing, |store| Limit::StoreFailing { store }))
        .collect();
    if !run.stores.is_empty() && run.stores.iter().all(is_full) {
        limits.push(Limit::StoresFull);
    }
    if is_limit_taken(run.local_bytes, run.local_limit_bytes) && run.fetched_pages > 0 {
        limits.push(Limit::Local);
    }
    // Counted each time, so some are of no account.
    if run.evictions.refused_pages * PAGE_BYTES > run.local_limit_bytes / 4 {
        limits.push(Limit::Pinned { refused_pages: run.evictions.refused_pages });
    }
    if limits.is_empty() {
        limits.push(Limit::Nothing);
    }
    limits
}

/// But for what departures have just made room for: a batch, and the headroom of a limit (a 64th of it).
fn is_limit_taken(local_bytes: u64, limit_bytes: u64) -> bool {
    let batch_bytes = BATCH_PAGES as u64 * PAGE_BYTES;
    let room_bytes = (limit_bytes / 64 + batch_bytes).max(((1.0 - FULL) * limit_bytes as f64) as u64);
    local_bytes + room_bytes >= limit_bytes
}

fn is_full(store: &Store) -> bool {
    store.health == Health::Full || store.used_bytes as f64 >= FULL * store.capacity_bytes as f64
}

fn page_of(view: &RunView, pid: u32, address: u64, told: &PageTold) -> Page {
    let info = told.info;
    let slot = info.slot();
    let store = slot.and_then(|slot| {
        let ranges = slot_ranges(&view.settings.store_slots);
        ranges.iter().position(|range| range.contains(&slot)).map(|at| view.settings.stores[at].clone())
    });
    let unmanaged_because = match told.whose {
        Whose::Nobody => Some(why_unmanaged(pid, address)),
        Whose::Pager | Whose::Kernel => None,
    };
    let is_local = info.is_local() && told.whose == Whose::Pager;
    Page {
        address,
        state: state(told),
        queue: info.queue().filter(|_| is_local).map(name_of),
        store,
        has_copy: is_local.then(|| match info.state {
            PageState::Mapped { slot, protected_in, .. } => slot.is_some() && protected_in.is_some(),
            PageState::Inactive { is_clean, .. } => is_clean,
            _ => false,
        }),
        is_shared: slot.is_some_and(|slot| view.run.slots().is_shared(slot)),
        left_since_pages: info.is_far().then_some(told.left_since_pages),
        came_ahead: is_local && told.is_ahead,
        use_rank: told.use_rank.filter(|_| is_local),
        is_busy: told.is_busy,
        unmanaged_because,
    }
}

const fn state(told: &PageTold) -> &'static str {
    match (told.whose, told.info.state) {
        (Whose::Nobody, _) => "unmanaged",
        (Whose::Kernel, _) => "native",
        (Whose::Pager, PageState::Absent) => "absent",
        (Whose::Pager, PageState::Far { .. }) => "far",
        (Whose::Pager, PageState::Mapped { .. }) => "mapped",
        (Whose::Pager, PageState::Inactive { .. }) => "inactive",
        (Whose::Pager, PageState::Writeback { .. }) => "writeback",
        (Whose::Pager, PageState::Poisoned { .. }) => "lost",
    }
}

/// What an address is that the pager leaves alone.
fn why_unmanaged(pid: u32, address: u64) -> &'static str {
    const UNKNOWN: &str = "its mappings cannot be read";
    let Ok(maps) = std::fs::File::open(format!("/proc/{pid}/maps")) else { return UNKNOWN };
    let mappings = BufReader::new(maps).lines().map_while(Result::ok);
    let mut mappings = mappings.filter_map(|line| Mapping::parse(&line));
    let found = mappings.find(|mapping| address < mapping.end as u64);
    found
        .filter(|mapping| mapping.start as u64 <= address)
        .map_or("no memory is there", |mapping| why(&mapping))
}

fn why(mapping: &Mapping) -> &'static str {
    match mapping {
        mapping if mapping.permissions.ends_with('s') => "it is shared memory",
        mapping if mapping.name.starts_with("[stack") => "it is a stack",
        mapping if mapping.name.starts_with("[v") => "it is the kernel's",
        mapping if mapping.inode != 0 => "it is a file's",
        mapping if !mapping.permissions.starts_with("rw") => "the program may not write it",
        _ => "it is a thread's stack, locked, the pager's own, or was there before the pager",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::metrics::tests::whole_snapshot;
    use spillway_snapshot::snapshot::Body;

    fn run() -> Run {
        match whole_snapshot().body {
            Body::Run { run } => *run,
            _ => panic!("no run"),
        }
    }

    #[test]
    fn a_limit_is_taken_but_for_what_departures_make_room_for() {
        const LIMIT: u64 = 8 << 20;
        let room = LIMIT / 64 + (256 << 10);
        assert!(is_limit_taken(LIMIT, LIMIT) && is_limit_taken(LIMIT - room, LIMIT));
        assert!(!is_limit_taken(LIMIT - room - PAGE_BYTES, LIMIT));
        assert!(is_limit_taken(973 << 20, 1000 << 20) && !is_limit_taken(950 << 20, 1000 << 20));
    }

    #[test]
    fn what_limits_a_run_is_named_the_worst_first() {
        let mut run = run();
        run.stores[0].health = Health::Ok;
        assert_eq!(limits(&run), [Limit::Nothing]);
        run.local_bytes = run.local_limit_bytes;
        assert_eq!(limits(&run), [Limit::Local]);
        run.stores[0].used_bytes = run.stores[0].capacity_bytes;
        assert_eq!(limits(&run), [Limit::StoresFull, Limit::Local]);
        run.evictions.refused_pages = 1 << 20;
        run.stores[0].health = Health::Silent;
        let store = run.stores[0].uri.clone();
        let pinned = Limit::Pinned { refused_pages: 1 << 20 };
        assert_eq!(limits(&run), [Limit::StoreSilent { store }, Limit::StoresFull, Limit::Local, pinned]);
        // All that fits is local: nothing was fetched, and nothing limits it.
        let fits = Run { fetched_pages: 0, local_bytes: run.local_limit_bytes, ..self::run() };
        let fits = Run { stores: Vec::new(), ..fits };
        assert_eq!(limits(&fits), [Limit::Nothing]);
    }

    #[test]
    fn memory_that_is_left_alone_is_called_what_it_is() {
        let own = std::process::id();
        let on_stack = 0_u8;
        let kept = Box::new(0_u64);
        assert_eq!(why_unmanaged(own, 0), "no memory is there");
        let code = why_unmanaged as *const () as u64;
        assert_eq!(why_unmanaged(own, code), "it is a file's");
        for address in [std::ptr::from_ref(&on_stack) as u64, std::ptr::from_ref(&*kept) as u64] {
            assert!(why_unmanaged(own, address).starts_with("it is a "), "{}", why_unmanaged(own, address));
        }
        assert_eq!(why_unmanaged(u32::MAX, 0), "its mappings cannot be read");
    }
}
