//! What a tape must know of the program's mappings: that they come, go, grow and move. As hooks tell it, in
//! their order.

use crate::kernel::Kernel;
use crate::pages::address::{page_number_of, page_numbers};
use crate::process::worker::Worker;
use crate::threads::calls::{Operation, Request};

impl<K: Kernel> Worker<K> {
    /// Tells the tape that is recorded or played, if one is, of what a hook asks for.
    pub(crate) fn note_births(&self, request: &Request) {
        let Some(deck) = self.engine.deck() else { return };
        let [a, b, c, d, ..] = request.arguments;
        let pages = |start: usize, bytes: usize| {
            let (from, to) = page_numbers(&(start..start.saturating_add(bytes)));
            from..to
        };
        match request.operation {
            Operation::Map => deck.born::<K>(&pages(a, b), false),
            // The heap is, and goes on with what the program maps behind it.
            Operation::Adopt => deck.born::<K>(&pages(a, b), true),
            Operation::Forget => deck.died::<K>(&pages(a, b)),
            Operation::Grown => deck.grown::<K>(page_number_of(a), pages(b, c).end),
            Operation::RemapEnd if c != 0 => deck.moved::<K>(&pages(a, b), &pages(c, d)),
            _ => {}
        }
    }
}
