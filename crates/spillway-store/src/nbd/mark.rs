//! The mark of a run on an NBD server that is none of ours, and is a pool's donor: the run's claim on the
//! export ([`crate::claim`]), with a name that is another one in each of the donor's lives. Such a server
//! does not say whether it has lost what it held, so each connection shows it: by one that does not find the
//! mark, nothing is read or written.

use std::time::Duration;

use spillway_core::page::{PAGE_SIZE, Page};
use spillway_nbd::proof::{Hexadecimal, RunKey};

use super::connection::{ConnectError, Connection};
use super::exchange::{Exchange, Interruption, Pages, Silence, plan};
use crate::ReadRequest;
use crate::claim::Claimant;

/// Received bytes that are held while the page of the claim comes.
const INPUT_BYTES: usize = 2 * PAGE_SIZE;

/// The name by which a run claims an export in one life of the donor: that of its key, which tells nothing of
/// the run's token.
#[must_use]
pub fn mark_of(key: &RunKey) -> String {
    key.public().text()
}

/// The slot behind the last that an export has for pages, where the claim is.
pub(super) fn claim_slot(size_bytes: u64) -> u32 {
    let last = (size_bytes / PAGE_SIZE as u64).saturating_sub(1);
    u32::try_from(last).unwrap_or(u32::MAX - 1)
}

/// Whether the export that a connection has opened shows the mark of this key. Waits for at most `patience`
/// after whatever came last.
///
/// # Errors
/// [`ConnectError`] where the server does not give the page.
pub fn is_marked(
    connection: &mut Connection,
    key: &RunKey,
    epoch: u32,
    patience: Duration,
) -> Result<bool, ConnectError> {
    let page = read(connection, epoch, patience)?;
    Ok(Claimant::of_page(&page).is_some_and(|claimant| claimant.run == mark_of(key)))
}

fn read(connection: &mut Connection, epoch: u32, patience: Duration) -> Result<Box<Page>, ConnectError> {
    let slot = claim_slot(connection.size_bytes);
    let mut page = Box::new([0; PAGE_SIZE]);
    let mut batch = [ReadRequest { slot, page: &mut page, outcome: Ok(()) }];
    let mut pages = Pages::Read(&mut batch);
    let (order, mut runs) = plan(&pages, 1, u32::MAX);
    let mut input = vec![0; INPUT_BYTES];
    Exchange::new(connection, &mut pages, &order, &mut runs, epoch, &mut input)
        .finish(patience, patience, &mut |_| Silence::Wait)
        .map_err(|interruption| match interruption {
            Interruption::Lost(reason) => ConnectError::Unreachable(reason),
            Interruption::Silent | Interruption::Left => ConnectError::Silent(patience),
        })?;
    match runs.first().and_then(|run| run.answer) {
        Some(0) => Ok(page),
        answer => Err(ConnectError::Unreachable(format!(
            "the server does not give the page of the run's claim (NBD error {})",
            answer.unwrap_or_default()
        ))),
    }
}
