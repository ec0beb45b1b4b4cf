//! All events that there are: [docs/reference/events.md](../../../docs/reference/events.md) describes each.
//!
//! A name, once given, stays; so do fields. A field's unit is in its name.

use tracing::Level;

/// Whether an event is told as text too, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Each time that it happens.
    Said,
    /// A few at once and then one a second: others decide how often it happens.
    Spared,
    /// The same, and in JSON alone.
    Quiet,
}

/// What is known of an event before it happens.
#[derive(Clone, Copy, Debug)]
pub struct Described {
    /// Whose it is: `run`, `donor` or `tier`.
    pub of: &'static str,
    /// The name that it has there.
    pub name: &'static str,
    /// How grave it is.
    pub level: Level,
    /// Whether and how often it is told as text.
    pub manner: Manner,
    /// Its own fields, with their units.
    pub fields: &'static [&'static str],
    /// What a line of text begins with.
    pub(crate) says: &'static str,
    pub(crate) target: &'static str,
}

impl Described {
    /// The level as it is in JSON.
    #[must_use]
    pub fn level_word(&self) -> &'static str {
        match self.level {
            Level::ERROR => "error",
            Level::WARN => "warn",
            Level::INFO => "info",
            _ => "debug",
        }
    }
}

macro_rules! events {
    ($(
        $(#[doc = $about:literal])+
        mod $who:ident of $of:literal says $says:literal {
            $(
                $(#[doc = $is:literal])+
                $level:ident $manner:ident $name:ident ($($field:ident : $kind:ty),*);
            )+
        }
    )+) => {
        /// Every event that can happen.
        pub const ALL: &[Described] = &[$($(
            Described {
                of: $of,
                name: stringify!($name),
                level: Level::$level,
                manner: Manner::$manner,
                fields: &[$(stringify!($field)),*],
                says: $says,
                target: concat!("spillway::", stringify!($who)),
            },
        )+)+];

        $(
            $(#[doc = $about])+
            pub mod $who {
                $(
                    $(#[doc = $is])+
                    pub fn $name(text: &str $(, $field: $kind)*) {
                        tracing::event!(
                            name: stringify!($name),
                            target: concat!("spillway::", stringify!($who)),
                            tracing::Level::$level,
                            // The name that the journal has; lines take it from the catalogue.
                            { event = stringify!($name), of = $of $(, $field = $field)* },
                            "{}", text
                        );
                    }
                )+
            }
        )+
    };
}

events! {
    /// What happens at a donor.
    mod donor of "donor" says "spillway donor: " {
        /// The first connection of a client.
        INFO Spared client_came(client: &str);
        /// The last connection of a client has ended.
        INFO Spared client_left(client: &str, connections: u64, failed_connections: u64);
        /// A connection ended by the client's fault.
        WARN Spared connection_failed(client: &str, reason: &str);
        /// A connection was turned away, or ended for the sake of another.
        WARN Spared connection_refused(client: &str, reason: &str);
        /// A run begins, with memory that is promised to it.
        INFO Spared run_granted(client: &str, run: u64, granted_bytes: u64, free_bytes: u64);
        /// A run, or an export, was refused.
        WARN Spared refused(client: &str, reason: &str);
        /// A run has ended, and its memory is given back.
        INFO Spared run_ended(client: &str, run: u64, held_bytes: u64);
        /// The last connection of a run is lost; its memory is kept for the grace time.
        WARN Spared run_lost(client: &str, run: u64, grace_s: f64);
        /// A run that was lost is connected again.
        INFO Spared run_found(client: &str, run: u64);
        /// Nobody came back for a lost run in its grace time.
        WARN Spared run_expired(client: &str, run: u64, held_bytes: u64);
        /// A named export was made.
        INFO Spared export_made(client: &str, export: &str);
        /// A named export was dropped.
        INFO Spared export_dropped(client: &str, export: &str, held_bytes: u64);
        /// Somebody has the donor drained, or stay.
        INFO Spared draining(client: &str, is_draining: bool);
        /// Its machine is short of memory, or is so no more.
        WARN Spared short(available_bytes: u64, keep_free_bytes: u64, is_short: bool);
        /// It is told to end, and waits for its runs.
        INFO Said ending(runs: u64, connections: u64);
        /// It is registered in its pool, for the first time or again.
        INFO Said registered(pool: &str);
        /// It is in no pool at present, for etcd does not answer.
        WARN Said unregistered(pool: &str, reason: &str);
        /// Something else about the donor itself.
        INFO Said note();
    }

    /// What the command has to say of its donor.
    mod donor_command of "donor" says "spillway: " {
        /// It does not begin, or cannot go on.
        ERROR Said cannot_start();
        /// Where its metrics are told.
        INFO Said metrics_told(url: &str);
        /// `spillway top` and `donor status` cannot see it.
        WARN Said unseen(reason: &str);
    }

    /// What happens in a run, as its supervisor sees it.
    mod run of "run" says "spillway: " {
        /// It does not begin.
        ERROR Said cannot_start(exit_status: u64);
        /// Its program has begun.
        INFO Quiet began(pid: u64, local_limit_bytes: u64, fault_mode: &str);
        /// Its program has ended.
        INFO Quiet ended(exit_status: u64, wall_s: f64);
        /// What the user should know of how it begins: a store that is missing or taken over.
        WARN Said notice();
        /// A program that is not managed.
        WARN Said unmanaged(program: &str, reason: &str);
        /// Faults are not served inline, though that was asked for.
        WARN Said not_inline(reason: &str);
        /// Where its metrics are told.
        INFO Said metrics_told(url: &str);
        /// `spillway top` cannot see it.
        WARN Said unseen(reason: &str);
        /// Pages have to leave local memory for the first time.
        INFO Quiet limit_reached(local_limit_bytes: u64);
        /// A program gets SIGBUS, for a page cannot be had.
        ERROR Quiet page_refused(pid: u64, address: u64, reason: &str);
        /// A read failed or came wrong, and is made again; told of the first in a run.
        WARN Quiet page_read_again(pid: u64, reason: &str);
        /// A store had no room for a page, which stays local; told of the first in a run.
        WARN Quiet store_full(pid: u64, store: &str);
        /// A store did not take a page, which stays local; told of the first in a run.
        ERROR Quiet store_failed(pid: u64, reason: &str);
        /// The last store is nearly full.
        WARN Quiet store_nearly_full(pid: u64, store: &str);
        /// Of one store: pages refused or failed since it was looked at last, and all since the start.
        WARN Quiet store_refusals(store: &str, full_refusals: u64, failed_writes: u64, failed_reads: u64);
        /// A fork was refused, for its child found no room or a page could not be had.
        ERROR Quiet fork_refused(pid: u64, reason: &str);
        /// A program was stopped before it would have read wrong data.
        ERROR Quiet program_stopped(pid: u64, reason: &str);
        /// Notices of programs' pagers came faster than they were read, or were left unfinished.
        WARN Quiet notices_missed(notices: u64);
        /// A store does not answer: who needs its pages waits, and it is given up in so long.
        WARN Said store_away(store: &str, reason: &str, left_s: u64);
        /// A store answers again.
        INFO Said store_back(store: &str);
        /// A store takes no further connection: threads take turns.
        WARN Said store_crowded(store: &str, reason: &str);
        /// Another run has taken a store's export.
        ERROR Said store_taken(store: &str);
        /// A store is given up: what it held is lost.
        ERROR Said store_gone(reason: &str);
        /// A donor of a pool does not answer: its pages are read from others.
        WARN Said donor_away(donor: &str, reason: &str);
        /// A donor of a pool answers again.
        INFO Said donor_back(donor: &str);
        /// A donor of a pool has lost what it held.
        WARN Said donor_lost(donor: &str);
        /// A donor has come to the pool.
        INFO Said donor_joined(donor: &str, lent_bytes: u64);
        /// A donor of the pool is not used.
        WARN Said donor_unused(donor: &str, reason: &str);
        /// A donor of the pool is being drained.
        INFO Said donor_draining(donor: &str);
        /// A donor of the pool is drained no more, and used again.
        INFO Said donor_stays(donor: &str);
        /// A donor's machine is short of memory: its pages are moved to others.
        WARN Said donor_short(donor: &str);
        /// Nothing of the run is left on a donor that is drained.
        INFO Said donor_drained(donor: &str);
        /// A donor that is drained cannot be left: no other has room.
        WARN Said donor_stuck(donor: &str, left_bytes: u64);
        /// Pages of a pool have fewer copies, or parts, than they should.
        WARN Said pages_in_danger(endangered_bytes: u64);
        /// All pages of a pool have as many as they should.
        INFO Said pages_safe();
        /// Pages stay with fewer, for want of room.
        WARN Said pages_stuck(endangered_bytes: u64);
        /// Pages are lost with their donors: a program that needs one gets SIGBUS.
        ERROR Said pages_lost(donors: &str, lost_bytes: u64);
        /// The pool's etcd does not answer.
        WARN Said directory_away(reason: &str);
        /// The pool's etcd answers again.
        INFO Said directory_back();
        /// Something else about a pool, such as its last resort.
        WARN Said pool_notice();
        /// What became of `--record`.
        WARN Said recording();
        /// What became of `--tape`.
        WARN Said tape();
        /// A program that was told to end hangs, and is killed.
        ERROR Said program_hangs();
        /// A core dump has zeros in place of far memory.
        WARN Said core_dump_incomplete();
        /// The program cannot be waited for.
        ERROR Said wait_failed(reason: &str);
        /// `--stats` could not be written.
        ERROR Said stats_unwritten(file: &str, reason: &str);
    }

    /// What happens in the tier daemon.
    mod tier of "tier" says "spillway: " {
        /// It does not begin, or cannot go on.
        ERROR Said cannot_start(exit_status: u64);
        /// It manages a group from now on.
        INFO Quiet group_began(group: &str, policy: &str, local_limit_bytes: u64);
        /// A group is no longer managed.
        INFO Quiet group_ended(group: &str, reason: &str);
        /// Where its metrics are told.
        INFO Said metrics_told(url: &str);
        /// A setting of the kernel is as it was before a daemon that was killed.
        WARN Said setting_restored(path: &str);
        /// A group has as much local memory as it may, and more is far.
        INFO Quiet limit_reached(group: &str, local_limit_bytes: u64, far_bytes: u64);
        /// A group's migrations are paused.
        INFO Quiet policy_paused(group: &str, policy: &str, reason: &str);
        /// A group's migrations go on.
        INFO Quiet policy_resumed(group: &str, policy: &str);
        /// The kernel refused to move pages of a group: so many since the last of these, so many in all.
        WARN Quiet pages_refused(group: &str, reason: &str, pages: u64, all_pages: u64);
        /// A policy began anew, since processes had outgrown what it knew.
        INFO Quiet policy_restarted(group: &str, policy: &str, restarts: u64);
        /// The program cannot be waited for.
        ERROR Said wait_failed(reason: &str);
        /// `--stats` could not be written.
        ERROR Said stats_unwritten(file: &str, reason: &str);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_plain_and_no_field_hides_what_each_line_has() {
        let is_plain = |word: &str| {
            word.starts_with(|letter: char| letter.is_ascii_lowercase())
                && word.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_')
        };
        for (at, described) in ALL.iter().enumerate() {
            let Described { of, name, fields, .. } = described;
            assert!(is_plain(name) && fields.iter().all(|field| is_plain(field)), "{name} {fields:?}");
            let of_each_line = ["unix_ms", "of", "event", "level", "text", "left_out", "message"];
            assert!(!fields.iter().any(|field| of_each_line.contains(field)), "{name} {fields:?}");
            let is_there = |other: &Described| (other.of, other.name) == (*of, *name);
            assert!(!ALL[..at].iter().any(is_there), "{of} {name}");
        }
    }
}
